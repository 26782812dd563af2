// What a program gets from each call that needs the driver, on a machine where it does not work: a
// line for each with the call, its result and the reason.
#include <stdio.h>

#include "nccl.h"

static void said(const char *call, ncclResult_t r) {
  const char *why = r == ncclSuccess ? "" : ncclGetLastError(NULL);
  printf("%s\t%d\t%s\t%s\n", call, r, ncclGetErrorString(r), why);
  fflush(stdout);
}
#define SAY(call, ...) said(#call, call(__VA_ARGS__))

int main(void) {
  ncclComm_t comm, two[2];
  ncclUniqueId id;
  ncclConfig_t config = unset_config;
  void *memory;
  int version;
  SAY(ncclGetVersion, &version);
  SAY(ncclGetUniqueId, &id);
  SAY(ncclCommInitRank, &comm, 1, id, 0);
  SAY(ncclCommInitRankConfig, &comm, 2, id, 1, &config);
  config.blocking = 0;
  SAY(ncclCommInitRankConfig, &comm, 1, id, 0, &config);
  SAY(ncclCommInitRankScalable, &comm, 1, 0, 1, &id, NULL);
  SAY(ncclCommGrow, NULL, 2, &id, 1, &comm, NULL);
  SAY(ncclCommInitAll, two, 1, NULL);
  SAY(ncclCommInitAll, two, 2, (int[]){0, 1});
  SAY(ncclGroupStart);
  SAY(ncclCommInitRank, &comm, 1, id, 0);
  SAY(ncclGroupEnd);
  SAY(ncclMemAlloc, &memory, 1 << 20);
  SAY(ncclMemFree, &version);
}
