// What libnccl.so.2 asks of its engine, call by call.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "nccl.h"

static int failed;

#define SAY(call)                                                                             \
  do {                                                                                        \
    ncclResult_t r_ = call;                                                                   \
    printf("%s: %d%s%s\n", #call, r_, r_ > 0 && r_ != ncclInProgress ? ": " : "", r_ > 0 && r_ != ncclInProgress ? ncclGetLastError(NULL) : ""); \
  } while (0)

#define AT(n) ((void *)(uintptr_t)(n))

// releases are configurations as programs of other releases have them.
static void releases(void) {
  ncclUniqueId id;
  ncclComm_t c;
  ncclGetUniqueId(&id);
  ncclConfig_t full = unset_config;
  full.blocking = 1, full.minCTAs = 2, full.maxCTAs = 4, full.netName = "Socket", full.CTAPolicy = 0;
  SAY(ncclCommInitRankConfig(&c, 2, id, 0, &full));
  ncclConfig_t old = full; // 2.14 had blocking alone, in 24 bytes
  old.size = 24, old.version = 21400;
  SAY(ncclCommInitRankConfig(&c, 2, id, 1, &old));
  ncclConfig_t later = full;
  later.size = 4096; // has more than is known here
  char page[4096] = {0};
  memcpy(page, &later, sizeof later);
  SAY(ncclCommInitRankConfig(&c, 2, id, 1, (ncclConfig_t *)page));
  old.magic = 0;
  SAY(ncclCommInitRankConfig(&c, 2, id, 1, &old));
  full.blocking = 5;
  SAY(ncclCommInitRankConfig(&c, 2, id, 1, &full));
  full.blocking = 1, full.minCTAs = 5;
  SAY(ncclCommInitRankConfig(&c, 2, id, 1, &full));
  full.minCTAs = 0;
  SAY(ncclCommInitRankConfig(&c, 2, id, 1, &full));
  full.minCTAs = UNSET, full.trafficClass = -1;
  SAY(ncclCommInitRankConfig(&c, 2, id, 1, &full));
  full.trafficClass = UNSET, full.CTAPolicy = 3;
  SAY(ncclCommInitRankConfig(&c, 2, id, 1, &full));
  full.CTAPolicy = 1;
  SAY(ncclCommInitRankConfig(&c, 2, id, 1, &full));
  full.trafficClass = -1, full.version = 21700; // which had no traffic class
  SAY(ncclCommInitRankConfig(&c, 2, id, 1, &full));
}

// children are communicators made out of another one, with configurations of their own.
static void children(ncclComm_t parent) {
  ncclComm_t c;
  ncclConfig_t own = unset_config;
  own.blocking = 1, own.maxCTAs = 7, own.trafficClass = 3, own.commName = "child", own.CTAPolicy = 0;
  SAY(ncclCommSplit(parent, 1, 2, &c, &own));
  SAY(ncclCommShrink(parent, (int[]){1}, 1, &c, &own, 0));
  SAY(ncclCommGrow(parent, 9, NULL, -1, &c, &own));
  own.collnetEnable = 2;
  SAY(ncclCommSplit(parent, 1, 2, &c, &own));
}

static void groups(ncclComm_t a, ncclComm_t b) {
  SAY(ncclGroupStart());
  SAY(ncclGroupStart());
  SAY(ncclSend(AT(16), 1, ncclInt32, 1, a, AT(5)));
  SAY(ncclRecv(AT(32), 2, ncclInt32, 0, b, AT(6)));
  SAY(ncclGroupEnd());
  for (int i = 0; i < 20; i++) ncclAllReduce(AT(16), AT(32), 3 + i * (i != 10), ncclFloat32, ncclSum, i % 2 ? a : b, NULL);
  SAY(ncclGroupEnd());
  SAY(ncclGroupEnd());
  ncclComm_t x, y;
  ncclUniqueId id = {{1}};
  SAY(ncclGroupStart());
  SAY(ncclCommInitRank(&x, 2, id, 0));
  SAY(ncclCommInitRank(&y, 2, id, 1));
  printf("%s\n", x && y && x != y ? "two" : "not two"); // at once
  SAY(ncclGroupEnd());
  SAY(ncclGroupStart());
  SAY(ncclCommSplit(x, 0, 5, &x, NULL));
  SAY(ncclCommSplit(y, -1, 0, &y, NULL));
  SAY(ncclGroupEnd());
  printf("%s\n", x && !y ? "one" : "not one");
  SAY(ncclGroupStart());
  SAY(ncclCommInitRank(&y, 2, id, 0));
  SAY(ncclCommInitRank(&y, -1, id, 0));
  SAY(ncclGroupEnd());
  SAY(ncclGroupStart());
  SAY(ncclCommInitRank(&y, 13, id, 0));
  SAY(ncclGroupEnd());
  printf("%s\n", y ? "it stays" : "it is gone");
  SAY(ncclCommInitRank(&y, 13, id, 0));
  printf("%s\n", y ? "it stays" : "it is gone");
  SAY(ncclGroupStart());
  SAY(ncclAllReduce(AT(16), AT(32), 1, ncclFloat32, ncclSum, NULL, NULL));
  SAY(ncclAllReduce(AT(16), AT(32), 1, ncclFloat32, ncclSum, a, NULL));
  SAY(ncclGroupEnd());
  SAY(ncclAllReduce(AT(16), AT(32), 13, ncclFloat32, ncclSum, a, NULL));
}

static void statistics(ncclComm_t c) {
  uint64_t v = 0;
  ncclSimInfo_t info = {sizeof info, SIM_MAGIC, 23007, -1};
  for (int i = 0; i < 5; i++) {
    SAY(ncclCommMemStats(c, i, &v));
    printf("%d: %llu\n", i, (unsigned long long)v);
  }
  SAY(ncclCommMemStats(c, 0, NULL));
  SAY(ncclCommMemStats(NULL, 0, &v));
  SAY(ncclGroupStart());
  SAY(ncclAllReduce(AT(16), AT(32), 3, ncclFloat32, ncclSum, c, NULL));
  SAY(ncclGroupSimulateEnd(&info));
  printf("%g us\n", info.estimatedTime);
  info.estimatedTime = -1;
  SAY(ncclGroupStart());
  SAY(ncclAllReduce(AT(16), AT(32), 13, ncclFloat32, ncclSum, c, NULL));
  SAY(ncclGroupSimulateEnd(&info));
  info.size = 16; // of a release without a time
  SAY(ncclGroupStart());
  SAY(ncclGroupSimulateEnd(&info));
  SAY(ncclGroupSimulateEnd(&info));
  printf("%g us\n", info.estimatedTime);
}

static void registrations(ncclComm_t a, ncclComm_t b) {
  void *handle, *p = NULL;
  ncclWindow_t win, other;
  SAY(ncclCommRegister(a, AT(4096), 100, &handle));
  SAY(ncclCommWindowRegister(a, AT(8192), 200, &win, 1));
  SAY(ncclCommWindowRegister(b, AT(8192), 200, &other, 0));
  SAY(ncclWinGetUserPtr(a, win, &p));
  printf("%p, %s\n", p, handle && win && other && win != other ? "three handles" : "no three handles");
  failed |= ncclWinGetUserPtr(a, other, &p) != ncclInvalidArgument; // of another communicator
  failed |= ncclWinGetUserPtr(a, (ncclWindow_t)handle, &p) != ncclInvalidArgument;
  failed |= ncclCommDeregister(a, win) != ncclInvalidArgument;
  failed |= ncclCommWindowDeregister(b, win) != ncclInvalidArgument;
  SAY(ncclCommWindowDeregister(a, AT(1))); // nobody looks at what is there
  SAY(ncclCommDeregister(a, NULL));
  SAY(ncclCommDeregister(a, handle));
  failed |= ncclCommDeregister(a, handle) != ncclInvalidArgument;
  SAY(ncclCommWindowDeregister(a, win));
  failed |= ncclWinGetUserPtr(a, win, &p) != ncclInvalidArgument;
  SAY(ncclCommWindowRegister(a, AT(8192), 13, &win, 1));
  printf("%p\n", (void *)win);
  SAY(ncclGroupStart());
  for (int i = 0; i < 10; i++) SAY(ncclCommWindowRegister(i % 2 ? b : a, AT(8192 + i), 300, &win, 3));
  SAY(ncclGroupEnd());
  SAY(ncclCommWindowDeregister(b, win));
  SAY(ncclCommWindowRegister(a, AT(8192), 200, &win, 4));
  SAY(ncclCommWindowRegister(a, AT(8192), 200, NULL, 0));
  SAY(ncclCommWindowRegister(a, AT(8192), -1, &win, 0));
  SAY(ncclCommRegister(a, NULL, 1, &handle));
  SAY(ncclCommRegister(a, AT(4096), 0, &handle));
  printf("%p\n", handle);
}

static void parameters(void) {
  ncclParamHandle_t a = NULL, b = NULL, c = NULL, again = NULL;
  SAY(ncclParamBind(&a, "NCCL_A"));
  SAY(ncclParamBind(&b, "NCCL_B"));
  SAY(ncclParamBind(&c, "NCCL_C"));
  SAY(ncclParamBind(&again, "NCCL_A"));
  printf("%s\n", a == again && a != b ? "one handle a name" : "handles differ");
  SAY(ncclParamBind(&again, "NCCL_D"));
  int8_t i8;
  int32_t i32;
  uint16_t u16;
  uint64_t u64;
  SAY(ncclParamGetI32(a, &i32));
  SAY(ncclParamGetU64(a, &u64));
  printf("%d %llu\n", i32, (unsigned long long)u64);
  SAY(ncclParamGetI8(a, &i8));
  SAY(ncclParamGetU16(a, &u16));
  SAY(ncclParamGetI8(c, &i8));
  printf("%d\n", i8);
  SAY(ncclParamGetU64(c, &u64));
  SAY(ncclParamGetI32(b, &i32));
  SAY(ncclParamGetI32(NULL, &i32));
  const char *text, **keys;
  char raw[4];
  int n;
  SAY(ncclParamGetStr(b, &text));
  SAY(ncclParamGet(b, raw, 4, &n));
  printf("%s %.4s %d\n", text, raw, n);
  SAY(ncclParamGet(a, raw, 4, &n));
  SAY(ncclParamGetParameter("NCCL_C", &text, &n));
  printf("%s %d\n", text, n);
  SAY(ncclParamGetAllParameterKeys(&keys, &n));
  for (int i = 0; i < n; i++) printf("%s\n", keys[i]);
  ncclParamDumpAll();
}

int main(int argc, char **argv) {
  setvbuf(stdout, NULL, _IONBF, 0);
  int v, n;
  SAY(ncclGetVersion(&v));
  printf("%d %s\n", v, ncclGetErrorString(ncclRemoteError));
  if (argc > 1 && !strcmp(argv[1], "none")) {
    ncclUniqueId id;
    SAY(ncclGetUniqueId(&id));
    return 0;
  }
  if (fork() == 0) { // before the engine is needed: the child has its own
    ncclUniqueId id;
    _exit(ncclGetUniqueId(&id));
  }
  wait(&n);
  printf("a child that forked before: %d\n", WEXITSTATUS(n));
  setenv("NCCL_LATE", "1", 1);
  ncclComm_t all[3];
  SAY(ncclCommInitAll(all, 3, (int[]){4, 5, 6}));
  if (fork() == 0) {
    ncclUniqueId id;
    _exit(ncclGetUniqueId(&id));
  }
  wait(&n);
  printf("a child that forked after: %d\n", WEXITSTATUS(n));
  parameters();
  releases();
  children(all[0]);
  groups(all[0], all[1]);
  statistics(all[0]);
  registrations(all[0], all[1]);
  ncclComm_t c = all[0];
  SAY(ncclAllReduce(AT(16), AT(32), 1ull << 33, ncclFloat32, ncclMax, c, AT(9)));
  SAY(ncclBroadcast(AT(16), AT(32), 2, ncclFloat32, 1, c, AT(9)));
  SAY(ncclReduce(AT(16), NULL, 2, ncclFloat32, ncclAvg, 1, c, AT(9)));
  SAY(ncclAllGather(AT(16), AT(32), 2, ncclUint64, c, AT(9)));
  SAY(ncclReduceScatter(AT(16), AT(32), 2, ncclUint64, ncclSum, c, AT(9)));
  SAY(ncclAlltoAll(AT(16), AT(32), 2, ncclUint64, c, AT(9)));
  SAY(ncclGather(AT(16), AT(32), 2, ncclUint64, 2, c, AT(9)));
  SAY(ncclScatter(AT(16), AT(32), 2, ncclUint64, 2, c, AT(9)));
  int op = 0;
  float half = 0.5;
  SAY(ncclRedOpCreatePreMulSum(&op, &half, ncclFloat32, ncclScalarHostImmediate, c));
  SAY(ncclAllReduce(AT(16), AT(32), 2, ncclFloat32, op, c, AT(9)));
  SAY(ncclRedOpDestroy(op, c));
  op = 0;
  SAY(ncclRedOpCreatePreMulSum(&op, &half, ncclFloat32, ncclScalarDevice, c));
  printf("op %d\n", op);
  ncclResult_t r;
  SAY(ncclCommGetAsyncError(c, &r));
  printf("asynchronous: %d: %s\n", r, ncclGetLastError(c));
  SAY(ncclCommCount(c, &n));
  printf("%d ranks\n", n);
  SAY(ncclCommUserRank(c, &n));
  printf("rank %d\n", n);
  SAY(ncclCommCuDevice(c, &n));
  printf("device %d\n", n);
  SAY(ncclCommInitRank(&c, -1, (ncclUniqueId){{0}}, 0));
  SAY(ncclCommInitRank(&c, 7, (ncclUniqueId){{0}}, 0));
  SAY(ncclCommAbort(c));
  n = 2;
  SAY(ncclCommShrink(all[0], &n, 1, &c, NULL, 0));
  SAY(ncclGroupStart());
  SAY(ncclCommShrink(all[0], &n, 1, &c, NULL, 1));
  SAY(ncclGroupEnd());
  SAY(ncclCommShrink(all[0], NULL, 1, &c, NULL, 0));
  ncclUniqueId more;
  SAY(ncclCommGetUniqueId(all[0], &more));
  SAY(ncclCommGrow(all[0], 5, &more, -1, &c, NULL));
  SAY(ncclCommGrow(all[0], 5, NULL, -1, &c, NULL));
  SAY(ncclCommGrow(all[0], 5, NULL, 2, &c, NULL));
  SAY(ncclCommGrow(NULL, 5, &more, 4, &c, NULL));
  SAY(ncclCommGrow(NULL, 5, NULL, 4, &c, NULL));
  SAY(ncclCommRevoke(all[0], 0));
  SAY(ncclCommRevoke(all[0], 1));
  SAY(ncclCommSuspend(all[0], 1));
  SAY(ncclCommSuspend(all[0], 0));
  SAY(ncclGroupStart());
  for (int i = 0; i < 10; i++) SAY(ncclCommResume(all[i % 2]));
  SAY(ncclAllReduce(AT(16), AT(32), 1, ncclFloat32, ncclSum, all[1], NULL));
  SAY(ncclGroupEnd());
  SAY(ncclCommFinalize(all[0]));
  SAY(ncclCommDestroy(all[0]));
  SAY(ncclCommDestroy(all[0]));
  SAY(ncclAllReduce(AT(16), AT(32), 1, ncclFloat32, ncclSum, all[0], NULL));
  struct { uint64_t magic; } foreign = {0x0280028002800280};
  SAY(ncclCommCount((ncclComm_t)&foreign, &n));
  SAY(ncclCommAbort(all[1]));
  SAY(ncclCommDestroy(NULL));
  return failed;
}
