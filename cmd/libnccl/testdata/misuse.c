// misuse TEST [ARGS]: calls in any order, from any thread and with any pointer. Each has to return
// a result. It exits with 0 when all was right.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "nccl.h"

static int (*cuInit)(unsigned), (*cuDevicePrimaryCtxRetain)(void **, int), (*cuCtxSetCurrent)(void *), (*cuStreamCreate)(void **, unsigned), (*cuStreamSynchronize)(void *);

static void die(const char *what, int line) {
  fprintf(stderr, "line %d: %s: %s\n", line, what, ncclGetLastError(NULL));
  _exit(1);
}
#define OK(call) \
  do { if ((call) != 0) die(#call, __LINE__); } while (0)
#define TRUE(what) \
  do { if (!(what)) die(#what " is not so", __LINE__); } while (0)

enum { devices = 2, n = 100 };
static void *context_of[devices], *stream_of[devices], *send, *recv;

static void use_device(int d) { OK(cuCtxSetCurrent(context_of[d])); }

static void driver(void) {
  void *h = dlopen("libcuda.so.1", RTLD_NOW);
  if (!h) die("libcuda.so.1", __LINE__);
#define FIND(name) *(void **)&name = dlsym(h, #name)
  FIND(cuInit);
  FIND(cuDevicePrimaryCtxRetain);
  FIND(cuCtxSetCurrent);
  FIND(cuStreamCreate);
  FIND(cuStreamSynchronize);
#undef FIND
  OK(cuInit(0));
  for (int i = devices - 1; i >= 0; i--) {
    OK(cuDevicePrimaryCtxRetain(&context_of[i], i));
    use_device(i);
    OK(cuStreamCreate(&stream_of[i], 1));
  }
  OK(ncclMemAlloc(&send, n * sizeof(float)));
  OK(ncclMemAlloc(&recv, n * sizeof(float)));
}

static ncclResult_t reduce(ncclComm_t c) { return ncclAllReduce(send, recv, n, ncclFloat32, ncclSum, c, stream_of[0]); }

static ncclComm_t alone(void) {
  ncclComm_t c;
  OK(ncclCommInitAll(&c, 1, (int[]){0}));
  return c;
}

static int wrong;
static void expect(const char *name, const char *how, ncclResult_t got, ncclResult_t want) {
  printf("%s\n", name);
  if (got == want) return;
  fprintf(stderr, "%s%s: %d, want %d: %s\n", name, how, got, want, ncclGetLastError(NULL));
  wrong = 1;
}
#define IS(want, name, ...) expect(#name, "(" #__VA_ARGS__ ")", name(__VA_ARGS__), want)
#define BAD(name, ...) IS(ncclInvalidArgument, name, __VA_ARGS__)
#define NONE(name) printf("%s\n", #name)

// nulls calls all functions with each pointer that must not be NULL as NULL, in turn. The
// program prints the name of each function.
static void nulls(void) {
  ncclComm_t c = alone(), to;
  ncclUniqueId u;
  ncclResult_t r;
  ncclWindow_t win;
  void *handle, *p = NULL;
  uint64_t bytes;
  int i = 0;
  float scalar = 1;
  const char *text, **keys;
  void *s = stream_of[0];
  OK(ncclGetUniqueId(&u));
  OK(ncclCommWindowRegister(c, recv, n, &win, 0));
  BAD(ncclGetVersion, NULL);
  BAD(ncclGetUniqueId, NULL);
  BAD(ncclCommInitRank, NULL, 1, u, 0);
  BAD(ncclCommInitRankConfig, NULL, 1, u, 0, NULL);
  BAD(ncclCommInitRankScalable, NULL, 1, 0, 1, &u, NULL);
  BAD(ncclCommInitRankScalable, &to, 1, 0, 1, NULL, NULL);
  BAD(ncclCommInitAll, NULL, 1, NULL);
  IS(ncclSuccess, ncclCommFinalize, NULL);
  IS(ncclSuccess, ncclCommDestroy, NULL);
  IS(ncclSuccess, ncclCommAbort, NULL);
  BAD(ncclCommRevoke, NULL, 0);
  BAD(ncclCommSplit, NULL, 0, 0, &to, NULL);
  BAD(ncclCommSplit, c, 0, 0, NULL, NULL);
  BAD(ncclCommShrink, NULL, (int[]){0}, 1, &to, NULL, 0);
  BAD(ncclCommShrink, c, NULL, 1, &to, NULL, 0);
  BAD(ncclCommShrink, c, (int[]){0}, 1, NULL, NULL, 0);
  BAD(ncclCommGetUniqueId, NULL, &u);
  BAD(ncclCommGetUniqueId, c, NULL);
  BAD(ncclCommGrow, NULL, 2, NULL, 1, &to, NULL);
  BAD(ncclCommGrow, c, 2, &u, -1, NULL, NULL);
  BAD(ncclCommGetAsyncError, NULL, &r);
  BAD(ncclCommGetAsyncError, c, NULL);
  BAD(ncclCommCount, NULL, &i);
  BAD(ncclCommCount, c, NULL);
  BAD(ncclCommUserRank, NULL, &i);
  BAD(ncclCommUserRank, c, NULL);
  BAD(ncclCommCuDevice, NULL, &i);
  BAD(ncclCommCuDevice, c, NULL);
  BAD(ncclCommSuspend, NULL, 1);
  BAD(ncclCommResume, NULL);
  BAD(ncclCommMemStats, NULL, 0, &bytes);
  BAD(ncclCommMemStats, c, 0, NULL);
  BAD(ncclMemAlloc, NULL, 1);
  IS(ncclSuccess, ncclMemAlloc, &p, 0);
  TRUE(p == NULL);
  IS(ncclSuccess, ncclMemFree, NULL);
  BAD(ncclCommRegister, NULL, recv, n, &handle);
  IS(ncclSuccess, ncclCommRegister, c, NULL, n, &handle);
  TRUE(handle == NULL);
  BAD(ncclCommRegister, c, recv, n, NULL);
  BAD(ncclCommDeregister, NULL, win);
  IS(ncclSuccess, ncclCommDeregister, c, NULL);
  BAD(ncclCommWindowRegister, NULL, recv, n, &win, 0);
  BAD(ncclCommWindowRegister, c, NULL, n, &win, 1);
  BAD(ncclCommWindowRegister, c, recv, n, NULL, 1);
  BAD(ncclCommWindowDeregister, NULL, win);
  IS(ncclSuccess, ncclCommWindowDeregister, c, NULL);
  BAD(ncclWinGetUserPtr, NULL, win, &p);
  BAD(ncclWinGetUserPtr, c, NULL, &p);
  BAD(ncclWinGetUserPtr, c, win, NULL);
  BAD(ncclAllReduce, NULL, recv, n, ncclFloat32, ncclSum, c, s);
  BAD(ncclAllReduce, send, NULL, n, ncclFloat32, ncclSum, c, s);
  BAD(ncclAllReduce, send, recv, n, ncclFloat32, ncclSum, NULL, s);
  BAD(ncclReduce, NULL, recv, n, ncclFloat32, ncclSum, 0, c, s);
  BAD(ncclReduce, send, NULL, n, ncclFloat32, ncclSum, 0, c, s);
  BAD(ncclReduce, send, recv, n, ncclFloat32, ncclSum, 0, NULL, s);
  BAD(ncclBroadcast, NULL, recv, n, ncclFloat32, 0, c, s);
  BAD(ncclBroadcast, send, NULL, n, ncclFloat32, 0, c, s);
  BAD(ncclBroadcast, send, recv, n, ncclFloat32, 0, NULL, s);
  BAD(ncclBcast, NULL, n, ncclFloat32, 0, c, s);
  BAD(ncclBcast, recv, n, ncclFloat32, 0, NULL, s);
  BAD(ncclReduceScatter, NULL, recv, n, ncclFloat32, ncclSum, c, s);
  BAD(ncclReduceScatter, send, NULL, n, ncclFloat32, ncclSum, c, s);
  BAD(ncclReduceScatter, send, recv, n, ncclFloat32, ncclSum, NULL, s);
  BAD(ncclAllGather, NULL, recv, n, ncclFloat32, c, s);
  BAD(ncclAllGather, send, NULL, n, ncclFloat32, c, s);
  BAD(ncclAllGather, send, recv, n, ncclFloat32, NULL, s);
  BAD(ncclAlltoAll, NULL, recv, n, ncclFloat32, c, s);
  BAD(ncclAlltoAll, send, NULL, n, ncclFloat32, c, s);
  BAD(ncclAlltoAll, send, recv, n, ncclFloat32, NULL, s);
  BAD(ncclGather, NULL, recv, n, ncclFloat32, 0, c, s);
  BAD(ncclGather, send, NULL, n, ncclFloat32, 0, c, s);
  BAD(ncclGather, send, recv, n, ncclFloat32, 0, NULL, s);
  BAD(ncclScatter, NULL, recv, n, ncclFloat32, 0, c, s);
  BAD(ncclScatter, send, NULL, n, ncclFloat32, 0, c, s);
  BAD(ncclScatter, send, recv, n, ncclFloat32, 0, NULL, s);
  BAD(ncclSend, NULL, n, ncclFloat32, 0, c, s);
  BAD(ncclSend, send, n, ncclFloat32, 0, NULL, s);
  BAD(ncclRecv, NULL, n, ncclFloat32, 0, c, s);
  BAD(ncclRecv, recv, n, ncclFloat32, 0, NULL, s);
  BAD(ncclRedOpCreatePreMulSum, NULL, &scalar, ncclFloat32, ncclScalarHostImmediate, c);
  BAD(ncclRedOpCreatePreMulSum, &i, NULL, ncclFloat32, ncclScalarHostImmediate, c);
  BAD(ncclRedOpCreatePreMulSum, &i, &scalar, ncclFloat32, ncclScalarHostImmediate, NULL);
  BAD(ncclRedOpDestroy, 5, NULL);
  IS(ncclInvalidUsage, ncclGroupSimulateEnd, NULL); // there is no group
  OK(ncclGroupStart());
  IS(ncclSuccess, ncclGroupSimulateEnd, NULL);
  IS(ncclInvalidUsage, ncclGroupEnd); // that was the end
  BAD(ncclPutSignal, NULL, n, ncclFloat32, 0, win, 0, 0, 0, 0, c, s);
  BAD(ncclPutSignal, send, n, ncclFloat32, 0, NULL, 0, 0, 0, 0, c, s);
  BAD(ncclPutSignal, send, n, ncclFloat32, 0, win, 0, 0, 0, 0, NULL, s);
  BAD(ncclSignal, 0, 0, 0, 0, NULL, s);
  BAD(ncclWaitSignal, 1, NULL, c, s);
  BAD(ncclWaitSignal, 1, (ncclWaitSignalDesc_t[]){{0}}, NULL, s);
  BAD(ncclCommQueryProperties, NULL, &i);
  BAD(ncclCommQueryProperties, c, NULL);
  BAD(ncclDevCommCreate, NULL, &i, &i);
  BAD(ncclDevCommCreate, c, NULL, &i);
  BAD(ncclDevCommCreate, c, &i, NULL);
  BAD(ncclDevCommDestroy, NULL, &i);
  BAD(ncclDevCommDestroy, c, NULL);
  BAD(ncclGetLsaMultimemDevicePointer, NULL, 0, &p);
  BAD(ncclGetLsaMultimemDevicePointer, win, 0, NULL);
  BAD(ncclGetLsaDevicePointer, NULL, 0, 0, &p);
  BAD(ncclGetLsaDevicePointer, win, 0, 0, NULL);
  BAD(ncclGetPeerDevicePointer, NULL, 0, 0, &p);
  BAD(ncclGetPeerDevicePointer, win, 0, 0, NULL);
  ncclParamHandle_t param;
  int8_t i8;
  int16_t i16;
  int32_t i32;
  int64_t i64;
  uint8_t u8;
  uint16_t u16;
  uint32_t u32;
  uint64_t u64;
  BAD(ncclParamBind, NULL, "NCCL_BUFFSIZE");
  BAD(ncclParamBind, &param, NULL);
  OK(ncclParamBind(&param, "NCCL_BUFFSIZE"));
  BAD(ncclParamGetI8, NULL, &i8);
  BAD(ncclParamGetI8, param, NULL);
  BAD(ncclParamGetI16, NULL, &i16);
  BAD(ncclParamGetI16, param, NULL);
  BAD(ncclParamGetI32, NULL, &i32);
  BAD(ncclParamGetI32, param, NULL);
  BAD(ncclParamGetI64, NULL, &i64);
  BAD(ncclParamGetI64, param, NULL);
  BAD(ncclParamGetU8, NULL, &u8);
  BAD(ncclParamGetU8, param, NULL);
  BAD(ncclParamGetU16, NULL, &u16);
  BAD(ncclParamGetU16, param, NULL);
  BAD(ncclParamGetU32, NULL, &u32);
  BAD(ncclParamGetU32, param, NULL);
  BAD(ncclParamGetU64, NULL, &u64);
  BAD(ncclParamGetU64, param, NULL);
  BAD(ncclParamGetStr, NULL, &text);
  BAD(ncclParamGetStr, param, NULL);
  BAD(ncclParamGet, NULL, &u, sizeof u, &i);
  BAD(ncclParamGet, param, NULL, sizeof u, &i);
  BAD(ncclParamGet, param, &u, sizeof u, NULL);
  BAD(ncclParamGetParameter, NULL, &text, &i);
  BAD(ncclParamGetParameter, "NCCL_BUFFSIZE", NULL, &i);
  BAD(ncclParamGetParameter, "NCCL_BUFFSIZE", &text, NULL);
  BAD(ncclParamGetAllParameterKeys, NULL, &i);
  BAD(ncclParamGetAllParameterKeys, &keys, NULL);
  TRUE(ncclGetLastError(NULL) != NULL && ncclTeamWorld(NULL).nRanks == 1 && ncclTeamRail(NULL).nRanks == 1 && ncclTeamLsa(NULL).nRanks == 1);
  TRUE(ncclTeamRankToWorld(NULL, ncclTeamWorld(NULL), 0) == 0 && ncclTeamRankToLsa(NULL, ncclTeamWorld(NULL), 0) == 0);
  NONE(ncclGetLastError), NONE(ncclTeamWorld), NONE(ncclTeamRail), NONE(ncclTeamLsa), NONE(ncclTeamRankToWorld), NONE(ncclTeamRankToLsa);
  NONE(ncclGetErrorString), NONE(ncclGroupStart), NONE(ncclParamDumpAll), NONE(ncclResetDebugInit); // no such argument
  NONE(ncclGinOutboxCreateRequirement), NONE(ncclGinInboxA2ACreateRequirement), NONE(ncclGetMultimemDevicePointer), NONE(ncclGinBarrierCreateRequirement);
  NONE(ncclLsaBarrierCreateRequirement), NONE(ncclLLA2ACreateRequirement), NONE(ncclLLA2ACalcSlots);
  NONE(ncclCftBarrierCreateRequirement), NONE(ncclGetMultimemDeviceLeInfo), NONE(ncclGetCftDeviceLeInfo), NONE(ncclGetPeerDeviceLeInfo), NONE(ncclTeamCft), NONE(ncclTeamCftMultimem);
  OK(ncclCommDestroy(c));
}

// refused calls all functions of a communicator with something that is none.
static void refused(ncclComm_t c) {
  ncclComm_t to;
  ncclUniqueId u = {{0}};
  ncclResult_t r;
  ncclWindow_t win;
  void *handle;
  uint64_t bytes;
  int i;
  float scalar = 1;
  void *s = stream_of[0];
  BAD(ncclCommFinalize, c);
  BAD(ncclCommDestroy, c);
  BAD(ncclCommAbort, c);
  BAD(ncclCommRevoke, c, 0);
  BAD(ncclCommSplit, c, 0, 0, &to, NULL);
  BAD(ncclCommSplit, c, -1, 0, &to, (ncclConfig_t *)&unset_config);
  BAD(ncclCommShrink, c, (int[]){0}, 1, &to, NULL, 0);
  BAD(ncclCommGetUniqueId, c, &u);
  BAD(ncclCommGrow, c, 2, &u, -1, &to, NULL);
  BAD(ncclCommGetAsyncError, c, &r);
  BAD(ncclCommCount, c, &i);
  BAD(ncclCommUserRank, c, &i);
  BAD(ncclCommCuDevice, c, &i);
  BAD(ncclCommSuspend, c, 1);
  BAD(ncclCommResume, c);
  BAD(ncclCommMemStats, c, 0, &bytes);
  BAD(ncclCommRegister, c, recv, n, &handle);
  BAD(ncclCommDeregister, c, recv);
  BAD(ncclCommWindowRegister, c, recv, n, &win, 0);
  BAD(ncclCommWindowRegister, c, recv, n, &win, 1);
  BAD(ncclCommWindowDeregister, c, recv);
  BAD(ncclWinGetUserPtr, c, recv, &handle);
  char out[256] = {0};
  BAD(ncclDevCommCreate, c, out, out);
  BAD(ncclDevCommDestroy, c, out);
  BAD(ncclCommQueryProperties, c, (void *)out);
  BAD(ncclGetLsaDevicePointer, (ncclWindow_t)c, 0, 0, &handle);
  BAD(ncclGetPeerDevicePointer, (ncclWindow_t)c, 0, 0, &handle);
  BAD(ncclGetLsaMultimemDevicePointer, (ncclWindow_t)c, 0, &handle);
  TRUE(ncclTeamLsa(c).nRanks == 1 && ncclTeamRail(c).nRanks == 1);
  for (int grouped = 0; grouped < 2; grouped++) {
#define GROUPED(call)            \
  if (grouped) OK(ncclGroupStart()); \
  call;                          \
  if (grouped) BAD(ncclGroupEnd)
    GROUPED(BAD(ncclAllReduce, send, recv, n, ncclFloat32, ncclSum, c, s));
    GROUPED(BAD(ncclReduce, send, recv, n, ncclFloat32, ncclSum, 0, c, s));
    GROUPED(BAD(ncclBroadcast, send, recv, n, ncclFloat32, 0, c, s));
    GROUPED(BAD(ncclBcast, recv, n, ncclFloat32, 0, c, s));
    GROUPED(BAD(ncclReduceScatter, send, recv, n, ncclFloat32, ncclSum, c, s));
    GROUPED(BAD(ncclAllGather, send, recv, n, ncclFloat32, c, s));
    GROUPED(BAD(ncclAlltoAll, send, recv, n, ncclFloat32, c, s));
    GROUPED(BAD(ncclGather, send, recv, n, ncclFloat32, 0, c, s));
    GROUPED(BAD(ncclScatter, send, recv, n, ncclFloat32, 0, c, s));
    GROUPED(BAD(ncclSend, send, n, ncclFloat32, 0, c, s));
    GROUPED(BAD(ncclRecv, recv, n, ncclFloat32, 0, c, s));
    GROUPED(BAD(ncclCommSplit, c, 0, 0, &to, NULL));
  }
  BAD(ncclRedOpCreatePreMulSum, &i, &scalar, ncclFloat32, ncclScalarHostImmediate, c);
  BAD(ncclRedOpDestroy, 5, c);
  TRUE(ncclTeamWorld(c).nRanks == 1 && ncclTeamRankToWorld(c, ncclTeamWorld(c), 0) == 0);
}

// wild: pointers to anything.
static void wild(void) {
  char *page = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), here[64];
  TRUE(page != MAP_FAILED);
  memset(here, 0x41, sizeof here);
  ncclComm_t c = alone();
  struct {
    uint64_t words[32];
  } copy; // what a communicator points to, elsewhere
  memcpy(&copy, c, sizeof(uint64_t));
  refused((ncclComm_t)page);
  refused((ncclComm_t)1);
  refused((ncclComm_t)-1l);
  refused((ncclComm_t)(1l << 62));
  refused((ncclComm_t)here);
  refused((ncclComm_t)(here + 1));
  refused((ncclComm_t)&copy);
  refused((ncclComm_t)((char *)c + 1));
  refused((ncclComm_t)((char *)c - 8));
  TRUE(munmap(page, 4096) == 0);
  refused((ncclComm_t)page);
  OK(reduce(c));
  OK(ncclCommDestroy(c));
  refused(c);
  c = alone();
  OK(ncclCommAbort(c));
  refused(c);
  c = alone();
  OK(ncclCommFinalize(c));
  OK(ncclCommDestroy(c));
  refused(c);
  ncclComm_t both[2];
  OK(ncclCommInitAll(both, 2, (int[]){0, 1}));
  OK(ncclCommDestroy(both[0]));
  OK(ncclCommDestroy(both[1]));
  refused(both[0]);
  refused(both[1]);
}

// ended: a communicator of the group is gone when the group ends.
static void ended(void) {
  for (int how = 0; how < 4; how++) {
    ncclComm_t c = alone(), other = alone(), child;
    ncclWindow_t win;
    OK(ncclGroupStart());
    if (how & 2) OK(ncclSend(send, n, ncclFloat32, 0, c, stream_of[0]));
    OK(reduce(c));
    OK(reduce(other));
    OK(how & 1 ? ncclCommAbort(c) : ncclCommDestroy(c));
    TRUE(ncclGroupEnd() == ncclInvalidArgument);
    OK(reduce(other));
    c = alone();
    OK(ncclGroupStart());
    OK(ncclCommSplit(c, 0, 0, &child, NULL));
    TRUE(child != NULL);
    OK(how & 1 ? ncclCommAbort(c) : ncclCommDestroy(c));
    TRUE(ncclGroupEnd() != ncclSuccess);
    TRUE(reduce(child) != ncclSuccess);
    OK(how & 2 ? ncclCommAbort(child) : ncclCommDestroy(child));
    c = alone();
    OK(ncclGroupStart());
    OK(ncclCommWindowRegister(c, recv, n, &win, 1));
    OK(how & 1 ? ncclCommAbort(c) : ncclCommDestroy(c));
    TRUE(ncclGroupEnd() == ncclInvalidArgument);
    c = alone();
    OK(ncclGroupStart());
    OK(ncclCommSuspend(c, 1));
    OK(how & 1 ? ncclCommAbort(c) : ncclCommDestroy(c));
    TRUE(ncclGroupEnd() == ncclInvalidArgument);
    OK(ncclGroupStart());
    ncclUniqueId u;
    OK(ncclGetUniqueId(&u));
    OK(ncclCommInitRank(&c, 1, u, 0));
    TRUE(c != NULL);
    OK(how & 1 ? ncclCommAbort(c) : ncclCommDestroy(c));
    TRUE(ncclGroupEnd() == ncclInvalidArgument);
    refused(c);
    OK(ncclCommDestroy(other));
  }
}

// written: in a group the handle is there at once, and its place may be gone at the end.
static void written(void) {
  ncclUniqueId u;
  ncclComm_t kept[2], *place = malloc(sizeof *place);
  ncclConfig_t config = unset_config;
  char name[] = "gone when the group ends";
  int rank;
  OK(ncclGetUniqueId(&u));
  OK(ncclGroupStart());
  for (int i = 0; i < 2; i++) {
    use_device(i);
    config.commName = name;
    OK(i ? ncclCommInitRankConfig(place, 2, u, i, &config) : ncclCommInitRank(place, 2, u, i));
    TRUE((kept[i] = *place) != NULL);
    *place = (ncclComm_t)5;
    memset(name, 'x', sizeof name); // and what it points to
  }
  TRUE(kept[0] != kept[1]);
  TRUE(ncclCommGetAsyncError(kept[0], &(ncclResult_t){0}) == ncclSuccess);
  OK(ncclGroupEnd());
  TRUE(*place == (ncclComm_t)5);
  for (int i = 0; i < 2; i++) {
    OK(ncclCommUserRank(kept[i], &rank));
    TRUE(rank == i);
  }
  OK(ncclGroupStart());
  for (int i = 0; i < 2; i++) OK(ncclAllReduce(send, recv, n, ncclFloat32, ncclSum, kept[i], stream_of[i]));
  OK(ncclGroupEnd());
  ncclComm_t children[2];
  OK(ncclGroupStart());
  for (int i = 0; i < 2; i++) OK(ncclCommSplit(kept[i], i ? 0 : -1, 0, &children[i], NULL));
  TRUE(!children[0] && children[1]);
  OK(ncclGroupEnd());
  TRUE(!children[0] && children[1]);
  OK(ncclCommDestroy(children[1]));
  // A group that fails leaves them as they are, and they can be destroyed.
  ncclComm_t none;
  OK(ncclGetUniqueId(&u));
  OK(ncclGroupStart());
  OK(ncclCommInitRank(&none, 1, u, 0));
  TRUE(ncclCommInitRank(place, 2, u, 2) == ncclInvalidArgument && *place == NULL);
  TRUE(ncclGroupEnd() == ncclInvalidArgument);
  TRUE(reduce(none) != ncclSuccess);
  OK(ncclCommDestroy(none));
  for (int i = 0; i < 2; i++) OK(ncclCommDestroy(kept[i]));
  free(place);
}

// Threads that poll a communicator, call its operations, or ask, until it is gone.
static _Atomic(ncclComm_t) shared;
static atomic_int stop;

static void *poll(void *seen) {
  ncclResult_t e;
  while (!stop) {
    ncclComm_t c = shared;
    ncclResult_t r = ncclCommGetAsyncError(c, &e);
    TRUE(r == ncclSuccess || r == ncclInvalidArgument);
    ++*(_Atomic long *)seen;
  }
  return NULL;
}

static void *enqueue(void *seen) {
  use_device(0);
  while (!stop) {
    usleep(500); // the emulated device is slower than the calls
    ncclComm_t c = shared;
    if (*(_Atomic long *)seen % 2) OK(ncclGroupStart());
    ncclResult_t r = reduce(c), ended = *(_Atomic long *)seen % 2 ? ncclGroupEnd() : r;
    const int refused = 1 << ncclSuccess | 1 << ncclInvalidArgument | 1 << ncclInvalidUsage | 1 << ncclRemoteError;
    TRUE(refused >> r & refused >> ended & 1);
    ++*(_Atomic long *)seen;
  }
  return NULL;
}

static void *ask(void *seen) {
  int i;
  uint64_t bytes;
  void *handle;
  while (!stop) {
    ncclComm_t c = shared;
    ncclCommCount(c, &i);
    ncclCommMemStats(c, 0, &bytes);
    if (ncclCommRegister(c, recv, n, &handle) == ncclSuccess) ncclCommDeregister(c, handle);
    ++*(_Atomic long *)seen;
  }
  return NULL;
}

static void *both_end(void *c) { // several do, of whom one is first
  return (void *)(intptr_t)(ncclCommAbort(c) == ncclSuccess);
}

// first_of makes a communicator of one or of two ranks, which waits for its second one, and returns the
// first rank's.
static ncclComm_t other;

static ncclComm_t first_of(int ranks) {
  ncclComm_t c[2] = {0};
  OK(ncclCommInitAll(c, ranks, (int[]){0, 1}));
  other = c[1];
  return c[0];
}

// poll_ends: others poll and enqueue while a thread destroys or aborts.
static void poll_ends(int ranks, int rounds) {
  void *(*const what[])(void *) = {poll, poll, enqueue, enqueue, ask};
  enum { threads = sizeof what / sizeof *what };
  pthread_t t[threads], more[2];
  _Atomic long seen[threads] = {0};
  shared = first_of(ranks);
  for (int i = 0; i < threads; i++) OK(pthread_create(&t[i], NULL, what[i], &seen[i]));
  for (int k = 0; k < rounds; k++) {
    ncclComm_t c = shared;
    long before[threads];
    for (int i = 0; i < threads; i++) before[i] = seen[i];
    for (int i = 0; i < threads; i++) while (seen[i] < before[i] + 2) usleep(10); // all are at it
    void *first = NULL, *second = NULL;
    if (k % 8 < 4) OK(ncclCommAbort(other)); // the first rank hears of it
    switch (ranks == 1 ? k % 4 : k % 2 * 3) { // of two, the operations do not end by themselves
      case 0: OK(ncclCommAbort(c)); break;
      case 1: OK(ncclCommDestroy(c)); break;
      case 2:
        OK(ncclCommFinalize(c));
        OK(ncclCommDestroy(c));
        break;
      case 3:
        for (int i = 0; i < 2; i++) OK(pthread_create(&more[i], NULL, both_end, c));
        pthread_join(more[0], &first);
        pthread_join(more[1], &second);
        TRUE(!first != !second);
    }
    for (int i = 0; i < threads; i++) before[i] = seen[i];
    for (int i = 0; i < threads; i++) while (seen[i] < before[i] + 2) usleep(10); // and go on with what is gone
    TRUE(ncclCommDestroy(c) == ncclInvalidArgument);
    if (k % 8 >= 4) OK(ncclCommAbort(other));
    shared = first_of(ranks);
  }
  stop = 1;
  for (int i = 0; i < threads; i++) pthread_join(t[i], NULL);
  OK(ncclCommAbort(shared));
  OK(ncclCommAbort(other));
}

// stress: threads call anything on a few communicators, which any of them ends and makes anew.
enum { slots = 4 };
static _Atomic(ncclComm_t) slot[slots];

struct stressed {
  unsigned seed;
  int steps;
};

static void *stress_thread(void *arg) {
  struct stressed *s = arg;
  int depth = 0, i, red;
  ncclResult_t e;
  ncclComm_t child, fresh;
  ncclWindow_t win;
  ncclUniqueId u;
  float two = 2;
  void *where;
  static char out[256]; // a group writes to it at its end
  static const int barriers[14] = {[6] = 3}; // of NCCL 2.28
  use_device(0);
  for (int k = 0; k < s->steps; k++) {
    int at = rand_r(&s->seed) % slots;
    ncclComm_t c = slot[at];
    ncclResult_t r = ncclSuccess;
    switch (rand_r(&s->seed) % 20) {
      case 0: r = ncclCommAbort(c); break;
      case 1: r = ncclCommDestroy(c); break;
      case 2: r = ncclCommFinalize(c); break;
      case 3: r = ncclCommRevoke(c, 0); break;
      case 4:
        if (depth < 3 && ++depth) r = ncclGroupStart();
        break;
      case 5:
        if (depth > 0) r = ncclGroupEnd(), depth--;
        break;
      case 6:
        if (ncclCommSplit(c, 0, 0, &child, NULL) == ncclSuccess) { // in a group, before it is made
          if (depth == 0) reduce(child);
          r = ncclCommDestroy(child);
        }
        break;
      case 7:
        if (ncclCommWindowRegister(c, recv, n, &win, rand_r(&s->seed) % 2) == ncclSuccess) {
          if (depth == 0) ncclGetLsaDevicePointer(win, 0, 0, &where);
          r = depth == 0 ? ncclCommWindowDeregister(c, win) : ncclSuccess; // in a group it is there at its end
        }
        break;
      case 17:
        if (ncclDevCommCreate(c, barriers, out) == ncclSuccess && depth == 0) r = ncclDevCommDestroy(c, out);
        break;
      case 8:
        if (ncclRedOpCreatePreMulSum(&red, &two, ncclFloat32, ncclScalarHostImmediate, c) == ncclSuccess) {
          ncclAllReduce(send, recv, n, ncclFloat32, red, c, stream_of[0]);
          r = ncclRedOpDestroy(red, c);
        }
        break;
      case 9: r = ncclCommSuspend(c, 1); break;
      case 10: r = ncclCommResume(c); break;
      case 11:
      case 12:
        if (ncclGetUniqueId(&u) == ncclSuccess && ncclCommInitRank(&fresh, 1, u, 0) == ncclSuccess) {
          child = atomic_exchange(&slot[at], fresh);
          r = rand_r(&s->seed) % 2 ? ncclCommAbort(child) : ncclCommDestroy(child);
        }
        break;
      case 13: r = ncclSend(send, n, ncclFloat32, 0, c, stream_of[0]); break;
      case 14: r = ncclRecv(recv, n, ncclFloat32, 0, c, stream_of[0]); break;
      case 15: r = ncclCommCount(c, &i); break;
      case 16: r = ncclCommGetAsyncError(c, &e); break;
      default: r = reduce(c);
    }
    TRUE(r >= ncclSuccess && r < ncclNumResults && r != ncclInternalError);
  }
  while (depth-- > 0) ncclGroupEnd();
  return NULL;
}

static void stress(unsigned seed, int threads, int steps) {
  pthread_t t[16];
  struct stressed s[16];
  for (int i = 0; i < slots; i++) slot[i] = alone();
  for (int i = 0; i < threads; i++) {
    s[i] = (struct stressed){seed * 100 + i, steps};
    OK(pthread_create(&t[i], NULL, stress_thread, &s[i]));
  }
  for (int i = 0; i < threads; i++) pthread_join(t[i], NULL);
  for (int i = 0; i < slots; i++) ncclCommAbort(slot[i]);
}

// fuzz: one thread calls anything in any order, and a model says what NCCL documents.
struct model {
  ncclComm_t c;
  enum { GONE, ASKED, WHOLE, FAILED, FINALIZED, REVOKED } state;
  int collected; // operations in the open group
  int counted;   // ncclCommCount is known
};

static void fuzz(unsigned seed, int steps) {
  static const char *const states[] = {"gone", "asked for", "whole", "failed", "finalized", "revoked"};
  enum { comms = 5 };
  struct model m[comms] = {0};
  int depth = 0, i, collected = 0, spoiled = 0;
  ncclResult_t e, want;
  ncclUniqueId u;
  for (int k = 0; k < steps; k++) {
    struct model *o = &m[rand_r(&seed) % comms];
    const char *what = "";
    ncclResult_t r = ncclSuccess;
    int good = 1, any_error = 0; // want Success; or any error; or InvalidArgument
    switch (rand_r(&seed) % 12) {
      case 0:
        what = "ncclGroupStart", depth++;
        r = ncclGroupStart();
        break;
      case 1:
        what = "ncclGroupEnd";
        good = depth > 1 || (depth == 1 && !spoiled), any_error = 1;
        for (int j = 0; depth == 1 && j < comms; j++)
          if (m[j].collected && m[j].state != WHOLE) good = 0;
        r = ncclGroupEnd();
        for (int j = 0; depth == 1 && j < comms; j++) {
          m[j].collected = 0;
          if (m[j].state == ASKED) m[j].state = !spoiled && (r == ncclSuccess || reduce(m[j].c) == ncclSuccess) ? WHOLE : FAILED;
        }
        if (depth == 1) spoiled = collected = 0;
        depth -= depth > 0;
        break;
      case 2:
        what = "ncclCommDestroy", good = o->state != GONE || !o->c;
        if (o->state == ASKED || o->collected) spoiled |= depth > 0; // its group fails
        r = ncclCommDestroy(o->c), o->state = GONE;
        break;
      case 3:
        what = "ncclCommAbort", good = o->state != GONE || !o->c;
        if (o->state == ASKED || o->collected) spoiled |= depth > 0;
        r = ncclCommAbort(o->c), o->state = GONE;
        break;
      case 4:
        what = "ncclCommFinalize", good = o->state == WHOLE || !o->c, any_error = o->state != GONE;
        if (o->state == REVOKED || o->state == FINALIZED) { // a second one may be an error
          ncclCommFinalize(o->c), o->state = FINALIZED, good = 1;
          break;
        }
        r = ncclCommFinalize(o->c);
        if (r == ncclSuccess && o->c) o->state = FINALIZED;
        break;
      case 5:
        what = "ncclCommCount", good = o->c && o->state != GONE;
        r = ncclCommCount(o->c, &i);
        TRUE(r != ncclSuccess || i == 1);
        break;
      case 6:
        what = "ncclCommGetAsyncError", good = o->c && o->state != GONE;
        r = ncclCommGetAsyncError(o->c, &e);
        if (good && o->state == WHOLE) TRUE(e == ncclSuccess);
        if (good && o->state == ASKED) TRUE(e == ncclInProgress);
        if (good && o->state == FAILED) TRUE(e != ncclSuccess && e != ncclInProgress);
        break;
      case 7:
        what = "ncclCommRevoke", good = o->state == WHOLE || o->state == REVOKED, any_error = o->state != GONE;
        r = ncclCommRevoke(o->c, 0);
        if (good) o->state = REVOKED;
        break;
      case 8:
      case 9:
        if (o->c && o->state != GONE) break;
        what = "ncclCommInitRank";
        OK(ncclGetUniqueId(&u));
        o->collected = 0;
        r = ncclCommInitRank(&o->c, 1, u, 0);
        TRUE(o->c != NULL);
        o->state = depth ? ASKED : WHOLE;
        break;
      default:
        what = "ncclAllReduce", good = o->state == WHOLE, any_error = o->state != GONE;
        if (depth && (o->state == FINALIZED || o->state == REVOKED)) good = 1; // the end may say so
        r = reduce(o->c);
        if (depth && r == ncclSuccess) o->collected++, collected++;
        if (depth && r != ncclSuccess) spoiled = 1;
    }
    want = good ? ncclSuccess : ncclInvalidArgument;
    if (any_error && !good ? r != ncclSuccess && r != ncclInternalError : r == want) continue;
    fprintf(stderr, "step %d, depth %d: %s of a communicator that is %s: %d, want %d%s: %s\n", k, depth, what, states[o->state], r, want, any_error ? " or so" : "", ncclGetLastError(NULL));
    _exit(1);
  }
  while (depth-- > 0) ncclGroupEnd();
  for (int j = 0; j < comms; j++) ncclCommAbort(m[j].c);
}

// panics calls functions of the engine as the library never does. What it does then, in Go, is a
// panic, and the call has to return it.
static void panics(void) {
  Dl_info info;
  ncclComm_t c = alone();
  char path[4096], text[1024];
  TRUE(dladdr((void *)ncclCommDestroy, &info));
  snprintf(path, sizeof path, "%s", info.dli_fname);
  strcpy(strrchr(path, '/') + 1, "libassay-coll.so");
  void *h = dlopen(path, RTLD_NOW | RTLD_NOLOAD);
  TRUE(h);
#define FAILS(name, ...)                                                                \
  do {                                                                                  \
    int (*f)() = (int (*)())dlsym(h, #name);                                            \
    memset(text, 0, sizeof text);                                                       \
    TRUE(f);                                                                            \
    int r = f(__VA_ARGS__);                                                             \
    printf(#name ": %d %s\n", r, text);                                                 \
    if (r != ncclInternalError || !strstr(text, "standard error")) wrong = 1;           \
  } while (0)
  size_t one = 1;
  FAILS(assay_unique_id, NULL, (uintptr_t)0, NULL, text);
  FAILS(assay_device, NULL, text);
  FAILS(assay_make, NULL, NULL, text);
  FAILS(assay_start, NULL, one, 0, text);
  FAILS(assay_run, NULL, one, text);
  FAILS(assay_run, NULL, one + one, text);
  FAILS(assay_estimate, NULL, one, NULL, text);
  FAILS(assay_state, c, NULL, text);
  FAILS(assay_info, c, NULL, text);
  FAILS(assay_memory, c, NULL, text);
  FAILS(assay_pause, NULL, one, text);
  FAILS(assay_register, NULL, one, text);
  FAILS(assay_param, NULL, NULL, 0, NULL, NULL, text);
  FAILS(assay_scale_new, c, &one, ncclFloat32, ncclScalarHostImmediate, NULL, text);
  FAILS(assay_check, NULL, text);
  FAILS(assay_mem_alloc, NULL, one, text);
  OK(reduce(c)); // it goes on
  OK(ncclCommDestroy(c));
}

int main(int argc, char **argv) {
  unsigned seed = argc > 2 ? atoi(argv[2]) : 1;
  int steps = argc > 3 ? atoi(argv[3]) : 1000;
  if (argc < 2) return 2;
  driver();
  if (!strcmp(argv[1], "nulls")) nulls();
  else if (!strcmp(argv[1], "wild")) wild();
  else if (!strcmp(argv[1], "ended")) ended();
  else if (!strcmp(argv[1], "written")) written();
  else if (!strcmp(argv[1], "poll")) poll_ends(seed, steps);
  else if (!strcmp(argv[1], "stress")) stress(seed, 6, steps);
  else if (!strcmp(argv[1], "fuzz")) fuzz(seed, steps);
  else if (!strcmp(argv[1], "panics")) panics();
  else return 2;
  OK(cuStreamSynchronize(stream_of[0]));
  return wrong;
}
