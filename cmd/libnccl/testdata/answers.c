// answers [NAME...]: what a library of NCCL's API answers, a line a case: its name, a tab, and what
// the calls returned. The library is ANSWERS_LIBRARY, or the libnccl.so.2 that the loader finds.
// Up to 25 cases run one after the other in a process; those that leave something behind, and those
// with settings, have one of their own. A case that crashes or stands still has that as its answer,
// and the next one runs in a new process. What an older library does not have is "no function".
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "../front/api.h"

#define FUNCTIONS(F)                                                                                     \
  F(ncclGetVersion, (int *))                                                                             \
  F(ncclGetUniqueId, (ncclUniqueId *))                                                                   \
  F(ncclCommInitRank, (ncclComm_t *, int, ncclUniqueId, int))                                            \
  F(ncclCommInitRankConfig, (ncclComm_t *, int, ncclUniqueId, int, ncclConfig_t *))                      \
  F(ncclCommInitRankScalable, (ncclComm_t *, int, int, int, ncclUniqueId *, ncclConfig_t *))             \
  F(ncclCommInitAll, (ncclComm_t *, int, const int *))                                                   \
  F(ncclCommSplit, (ncclComm_t, int, int, ncclComm_t *, ncclConfig_t *))                                 \
  F(ncclCommShrink, (ncclComm_t, int *, int, ncclComm_t *, ncclConfig_t *, int))                         \
  F(ncclCommFinalize, (ncclComm_t))                                                                      \
  F(ncclCommDestroy, (ncclComm_t))                                                                       \
  F(ncclCommAbort, (ncclComm_t))                                                                         \
  F(ncclCommGetAsyncError, (ncclComm_t, ncclResult_t *))                                                 \
  F(ncclCommCount, (ncclComm_t, int *))                                                                  \
  F(ncclCommUserRank, (ncclComm_t, int *))                                                               \
  F(ncclCommCuDevice, (ncclComm_t, int *))                                                               \
  F(ncclMemAlloc, (void **, size_t))                                                                     \
  F(ncclMemFree, (void *))                                                                               \
  F(ncclCommRegister, (const ncclComm_t, void *, size_t, void **))                                       \
  F(ncclCommDeregister, (const ncclComm_t, void *))                                                      \
  F(ncclCommWindowRegister, (ncclComm_t, void *, size_t, ncclWindow_t *, int))                           \
  F(ncclCommWindowDeregister, (ncclComm_t, ncclWindow_t))                                                \
  F(ncclGroupStart, (void))                                                                              \
  F(ncclGroupEnd, (void))                                                                                \
  F(ncclGroupSimulateEnd, (ncclSimInfo_t *))                                                             \
  F(ncclAllReduce, (const void *, void *, size_t, int, int, ncclComm_t, void *))                         \
  F(ncclBroadcast, (const void *, void *, size_t, int, int, ncclComm_t, void *))                         \
  F(ncclBcast, (void *, size_t, int, int, ncclComm_t, void *))                                           \
  F(ncclReduce, (const void *, void *, size_t, int, int, int, ncclComm_t, void *))                       \
  F(ncclAllGather, (const void *, void *, size_t, int, ncclComm_t, void *))                              \
  F(ncclReduceScatter, (const void *, void *, size_t, int, int, ncclComm_t, void *))                     \
  F(ncclAlltoAll, (const void *, void *, size_t, int, ncclComm_t, void *))                               \
  F(ncclGather, (const void *, void *, size_t, int, int, ncclComm_t, void *))                            \
  F(ncclScatter, (const void *, void *, size_t, int, int, ncclComm_t, void *))                           \
  F(ncclSend, (const void *, size_t, int, int, ncclComm_t, void *))                                      \
  F(ncclRecv, (void *, size_t, int, int, ncclComm_t, void *))                                            \
  F(ncclRedOpCreatePreMulSum, (int *, void *, int, int, ncclComm_t))                                     \
  F(ncclRedOpDestroy, (int, ncclComm_t))

#define POINTER(name, args) static ncclResult_t (*name) args;
FUNCTIONS(POINTER)
static const char *(*ncclGetErrorString)(ncclResult_t), *(*ncclGetLastError)(ncclComm_t);

enum { ints = 2, floats = 7, types = 12, sum = 0, reductions = 5, count = 1000, room = 4 * count * sizeof(int) };
static const char *const codes[] = {"Success", "UnhandledCudaError", "SystemError", "InternalError", "InvalidArgument", "InvalidUsage", "RemoteError", "InProgress", "Timeout"};

static FILE *out; // where a case's answer goes
static int words; // of it

// say adds a word to the answer.
__attribute__((format(printf, 1, 2))) static void say(const char *format, ...) {
  va_list args;
  va_start(args, format);
  if (words++) fputc(' ', out);
  vfprintf(out, format, args);
  va_end(args);
  fflush(out);
}
static ncclResult_t said(ncclResult_t r) {
  if ((unsigned)r < sizeof codes / sizeof *codes) say("%s", codes[r]);
  else say("%d", r);
  return r;
}
#define SAY(call) said(call)
static void must(ncclResult_t r, const char *what) {
  if (r) said(r), say("from %s", what), _exit(0);
}
static void driven(int r, const char *what) {
  if (r) say("driver: %d from %s", r, what), _exit(0);
}
#define DO(call) must(call, #call)
#define CU(call) driven(call, #call)

static int (*cuInit)(unsigned), (*cuDeviceGetCount)(int *), (*cuDevicePrimaryCtxRetain)(void **, int), (*cuCtxSetCurrent)(void *), (*cuStreamCreate)(void **, unsigned), (*cuStreamSynchronize)(void *),
    (*cuMemAlloc)(uintptr_t *, size_t), (*cuMemcpyHtoD)(uintptr_t, const void *, size_t), (*cuMemcpyDtoH)(void *, uintptr_t, size_t),
    (*cuStreamBeginCapture)(void *, int), (*cuStreamEndCapture)(void *, void **), (*cuGraphInstantiate)(void **, void *, unsigned long long), (*cuGraphLaunch)(void *, void *);

static int devices;
static void *context[2], *stream[2];
static char *send[2], *recv[2]; // device memory of room bytes

static void on(int d) { CU(cuCtxSetCurrent(context[d])); }

// upload copies to a device. The driver's call may return before memory that is not pinned has arrived, and other
// streams than the default one do not wait for it.
static void upload(uintptr_t to, const void *from, size_t n) {
  CU(cuMemcpyHtoD(to, from, n));
  CU(cuStreamSynchronize(NULL));
}

static void fill(void) {
  int v[room / sizeof(int)];
  for (int d = 0; d < devices; d++) {
    for (size_t i = 0; i < room / sizeof(int); i++) v[i] = (d + 1) * ((int)i % 50 + 1);
    on(d);
    upload((uintptr_t)send[d], v, room);
    memset(v, 0, sizeof v);
    upload((uintptr_t)recv[d], v, room);
  }
  on(0);
}

// driver opens the first n devices.
static void driver(int n) {
  void *h = dlopen("libcuda.so.1", RTLD_NOW);
  if (!h) say("no libcuda.so.1"), _exit(0);
#define FIND(name, symbol) *(void **)&name = dlsym(h, symbol)
  FIND(cuInit, "cuInit");
  FIND(cuDeviceGetCount, "cuDeviceGetCount");
  FIND(cuDevicePrimaryCtxRetain, "cuDevicePrimaryCtxRetain");
  FIND(cuCtxSetCurrent, "cuCtxSetCurrent");
  FIND(cuStreamCreate, "cuStreamCreate");
  FIND(cuStreamSynchronize, "cuStreamSynchronize");
  FIND(cuMemAlloc, "cuMemAlloc_v2");
  FIND(cuMemcpyHtoD, "cuMemcpyHtoD_v2");
  FIND(cuMemcpyDtoH, "cuMemcpyDtoH_v2");
  FIND(cuStreamBeginCapture, "cuStreamBeginCapture_v2");
  FIND(cuStreamEndCapture, "cuStreamEndCapture");
  FIND(cuGraphInstantiate, "cuGraphInstantiateWithFlags");
  FIND(cuGraphLaunch, "cuGraphLaunch");
  CU(cuInit(0));
  CU(cuDeviceGetCount(&devices));
  if (devices > n) devices = n;
  for (int d = devices - 1; d >= 0; d--) {
    uintptr_t a, b;
    CU(cuDevicePrimaryCtxRetain(&context[d], d));
    on(d);
    CU(cuStreamCreate(&stream[d], 1));
    CU(cuMemAlloc(&a, room));
    CU(cuMemAlloc(&b, room));
    send[d] = (char *)a, recv[d] = (char *)b;
  }
  fill();
}

static void load(void) {
  const char *file = getenv("ANSWERS_LIBRARY");
  void *h = dlopen(file ? file : "libnccl.so.2", RTLD_NOW | RTLD_GLOBAL);
  if (!h) fprintf(stderr, "%s\n", dlerror()), _exit(3);
#define LOAD(name, args) *(void **)&name = dlsym(h, #name);
  FUNCTIONS(LOAD)
  *(void **)&ncclGetErrorString = dlsym(h, "ncclGetErrorString");
  *(void **)&ncclGetLastError = dlsym(h, "ncclGetLastError");
}

// A case is a function, and the devices that it needs.
struct test {
  const char *name;
  void (*run)(void);
  int devices;
  const char *env;
  struct test *next;
};
static struct test *first, **end = &first;

static void add(struct test *t) { *end = t, end = &t->next; }

#define CASE_ON(n, id, environ)                                                   \
  static void test_##id(void);                                                    \
  static struct test at_##id = {#id, test_##id, n, environ, NULL};                \
  __attribute__((constructor)) static void add_##id(void) { add(&at_##id); }      \
  static void test_##id(void)
#define CASE(id) CASE_ON(1, id, NULL)
#define PAIR(id) CASE_ON(2, id, NULL)
// ONE is a case of one call.
#define ONE(id, call) \
  CASE(id) { SAY(call); }
// ALONE is a case of calls with a communicator c of one rank.
#define ALONE(id, ...)        \
  CASE(id) {                  \
    ncclComm_t c = alone();   \
    __VA_ARGS__;              \
    (void)c;                  \
  }
#define NEEDS(f)                            \
  if (!(f)) {                               \
    say("no function");                     \
    return;                                 \
  }

static ncclComm_t alone(void) {
  ncclComm_t c;
  DO(ncclCommInitAll(&c, 1, (int[]){0}));
  return c;
}

static ncclConfig_t config(void) {
  ncclConfig_t c = {.size = offsetof(ncclConfig_t, nChannelsPerNetPeer), .magic = CONFIG_MAGIC, .version = 22700, .blocking = UNSET, .cgaClusterSize = UNSET, .minCTAs = UNSET, .maxCTAs = UNSET,
                    .splitShare = UNSET, .trafficClass = UNSET, .collnetEnable = UNSET, .CTAPolicy = UNSET, .shrinkShare = UNSET, .nvlsCTAs = UNSET};
  return c;
}

static ncclUniqueId unique(void) {
  ncclUniqueId id;
  DO(ncclGetUniqueId(&id));
  return id;
}

// configured joins a communicator of one rank with a configuration.
static ncclResult_t configured(ncclComm_t *c, ncclConfig_t *with) { return ncclCommInitRankConfig(c, 1, unique(), 0, with); }

// settled polls a communicator until it is not in progress.
static ncclResult_t settled(ncclComm_t c) {
  ncclResult_t r = ncclInProgress;
  for (int i = 0; i < 10000 && r == ncclInProgress; i++) {
    if (ncclCommGetAsyncError(c, &r)) break;
    usleep(1000);
  }
  return r;
}

// right does a sum of all ranks on each of n communicators and says whether it is right.
static void right(ncclComm_t *c, int n) {
  fill();
  DO(ncclGroupStart());
  for (int d = 0; d < n; d++) on(d), DO(ncclAllReduce(send[d], recv[d], count, ints, sum, c[d], stream[d]));
  DO(ncclGroupEnd());
  int wrong = 0, v[count];
  for (int d = 0; d < n; d++) {
    on(d);
    CU(cuStreamSynchronize(stream[d]));
    CU(cuMemcpyDtoH(v, (uintptr_t)recv[d], sizeof v));
    for (int i = 0; i < count; i++) wrong += v[i] != (n == 2 ? 3 : 1) * (i % 50 + 1);
  }
  on(0);
  say("%s", wrong ? "wrong" : "right");
}

static void pair(ncclComm_t *c) { DO(ncclCommInitAll(c, 2, (int[]){0, 1})); }

// Arguments, without a communicator.
ONE(get_version_null, ncclGetVersion(NULL))
ONE(get_unique_id_null, ncclGetUniqueId(NULL))
ONE(init_rank_null, ncclCommInitRank(NULL, 1, unique(), 0))
CASE(init_rank_of_0) { ncclComm_t c; SAY(ncclCommInitRank(&c, 0, unique(), 0)); }
CASE(init_rank_of_minus_1) { ncclComm_t c; SAY(ncclCommInitRank(&c, -1, unique(), 0)); }
CASE(init_rank_minus_1) { ncclComm_t c; SAY(ncclCommInitRank(&c, 1, unique(), -1)); }
CASE(init_rank_beyond) { ncclComm_t c; SAY(ncclCommInitRank(&c, 1, unique(), 1)); }
ONE(init_all_null, ncclCommInitAll(NULL, 1, NULL))
CASE(init_all_of_0) { ncclComm_t c; SAY(ncclCommInitAll(&c, 0, NULL)); }
CASE(init_all_of_minus_1) { ncclComm_t c; SAY(ncclCommInitAll(&c, -1, NULL)); }
CASE(init_all_device_99) { ncclComm_t c; SAY(ncclCommInitAll(&c, 1, (int[]){99})); }
CASE(init_all_device_minus_1) { ncclComm_t c; SAY(ncclCommInitAll(&c, 1, (int[]){-1})); }
CASE(init_all_one_device_twice) { ncclComm_t c[2]; SAY(ncclCommInitAll(c, 2, (int[]){0, 0})); }
CASE(init_all_without_list) { ncclComm_t c; SAY(ncclCommInitAll(&c, 1, NULL)); }
ONE(destroy_null, ncclCommDestroy(NULL))
ONE(abort_null, ncclCommAbort(NULL))
ONE(finalize_null, ncclCommFinalize(NULL))
CASE(count_of_null) { int n; SAY(ncclCommCount(NULL, &n)); }
CASE(rank_of_null) { int n; SAY(ncclCommUserRank(NULL, &n)); }
CASE(device_of_null) { int n; SAY(ncclCommCuDevice(NULL, &n)); }
CASE(async_error_of_null) { ncclResult_t r; SAY(ncclCommGetAsyncError(NULL, &r)); }
ONE(all_reduce_null, ncclAllReduce(send[0], recv[0], 1, ints, sum, NULL, stream[0]))
ONE(send_null, ncclSend(send[0], 1, ints, 0, NULL, stream[0]))
CASE(split_null) { ncclComm_t n; SAY(ncclCommSplit(NULL, 0, 0, &n, NULL)); }
CASE(error_strings) {
  for (int r = 0; r < 8; r++) say("%d", ncclGetErrorString(r) != NULL && *ncclGetErrorString(r));
  say("%d %d", ncclGetErrorString(99) != NULL, ncclGetErrorString(-1) != NULL);
}
CASE(last_error_of_null) { say("%d", ncclGetLastError(NULL) != NULL); }

// Arguments, with a communicator.
ALONE(count_null, SAY(ncclCommCount(c, NULL)))
ALONE(rank_null, SAY(ncclCommUserRank(c, NULL)))
ALONE(device_null, SAY(ncclCommCuDevice(c, NULL)))
ALONE(async_error_null, SAY(ncclCommGetAsyncError(c, NULL)))
ALONE(numbers, int a; int b; int d; DO(ncclCommCount(c, &a)); DO(ncclCommUserRank(c, &b)); DO(ncclCommCuDevice(c, &d)); say("%d %d %d", a, b, d))
ALONE(last_error_when_none, say("%d", ncclGetLastError(c) != NULL))
ALONE(all_reduce_type_99, SAY(ncclAllReduce(send[0], recv[0], 1, 99, sum, c, stream[0])))
ALONE(all_reduce_type_beyond, SAY(ncclAllReduce(send[0], recv[0], 1, types, sum, c, stream[0])))
ALONE(all_reduce_type_minus_1, SAY(ncclAllReduce(send[0], recv[0], 1, -1, sum, c, stream[0])))
ALONE(all_reduce_op_beyond, SAY(ncclAllReduce(send[0], recv[0], 1, ints, reductions, c, stream[0])))
ALONE(all_reduce_op_minus_1, SAY(ncclAllReduce(send[0], recv[0], 1, ints, -1, c, stream[0])))
ALONE(all_reduce_op_huge, SAY(ncclAllReduce(send[0], recv[0], 1, ints, 0x7fffffff, c, stream[0])))
ALONE(all_reduce_of_0, SAY(ncclAllReduce(send[0], recv[0], 0, ints, sum, c, stream[0])))
ALONE(all_reduce_of_0_nulls, SAY(ncclAllReduce(NULL, NULL, 0, ints, sum, c, stream[0])))
ALONE(all_reduce_from_null, SAY(ncclAllReduce(NULL, recv[0], 1, ints, sum, c, stream[0])))
ALONE(all_reduce_to_null, SAY(ncclAllReduce(send[0], NULL, 1, ints, sum, c, stream[0])))
ALONE(all_reduce_in_place, SAY(ncclAllReduce(recv[0], recv[0], 8, ints, sum, c, stream[0])))
ALONE(broadcast_root_minus_1, SAY(ncclBroadcast(send[0], recv[0], 1, ints, -1, c, stream[0])))
ALONE(broadcast_root_beyond, SAY(ncclBroadcast(send[0], recv[0], 1, ints, 1, c, stream[0])))
ALONE(broadcast_from_null, SAY(ncclBroadcast(NULL, recv[0], 1, ints, 0, c, stream[0])))
ALONE(bcast, SAY(ncclBcast(recv[0], 4, ints, 0, c, stream[0])))
ALONE(bcast_root_beyond, SAY(ncclBcast(recv[0], 4, ints, 1, c, stream[0])))
ALONE(reduce_root_minus_1, SAY(ncclReduce(send[0], recv[0], 1, ints, sum, -1, c, stream[0])))
ALONE(reduce_root_beyond, SAY(ncclReduce(send[0], recv[0], 1, ints, sum, 1, c, stream[0])))
ALONE(reduce_to_null, SAY(ncclReduce(send[0], NULL, 1, ints, sum, 0, c, stream[0])))
ALONE(all_gather_of_0, SAY(ncclAllGather(send[0], recv[0], 0, ints, c, stream[0])))
ALONE(all_gather_type_99, SAY(ncclAllGather(send[0], recv[0], 1, 99, c, stream[0])))
ALONE(all_gather_from_null, SAY(ncclAllGather(NULL, recv[0], 1, ints, c, stream[0])))
ALONE(reduce_scatter_type_99, SAY(ncclReduceScatter(send[0], recv[0], 1, 99, sum, c, stream[0])))
ALONE(reduce_scatter_op_beyond, SAY(ncclReduceScatter(send[0], recv[0], 1, ints, reductions, c, stream[0])))
ALONE(reduce_scatter_to_null, SAY(ncclReduceScatter(send[0], NULL, 1, ints, sum, c, stream[0])))
ALONE(alltoall, NEEDS(ncclAlltoAll); SAY(ncclAlltoAll(send[0], recv[0], 4, ints, c, stream[0])))
ALONE(alltoall_type_99, NEEDS(ncclAlltoAll); SAY(ncclAlltoAll(send[0], recv[0], 4, 99, c, stream[0])))
ALONE(alltoall_of_0, NEEDS(ncclAlltoAll); SAY(ncclAlltoAll(send[0], recv[0], 0, ints, c, stream[0])))
ALONE(gather_root_beyond, NEEDS(ncclGather); SAY(ncclGather(send[0], recv[0], 4, ints, 1, c, stream[0])))
ALONE(gather_root_minus_1, NEEDS(ncclGather); SAY(ncclGather(send[0], recv[0], 4, ints, -1, c, stream[0])))
ALONE(scatter_root_beyond, NEEDS(ncclScatter); SAY(ncclScatter(send[0], recv[0], 4, ints, 1, c, stream[0])))
ALONE(scatter_type_99, NEEDS(ncclScatter); SAY(ncclScatter(send[0], recv[0], 4, 99, 0, c, stream[0])))
ALONE(send_to_beyond, SAY(ncclSend(send[0], 1, ints, 1, c, stream[0])))
ALONE(send_to_minus_1, SAY(ncclSend(send[0], 1, ints, -1, c, stream[0])))
ALONE(recv_from_beyond, SAY(ncclRecv(recv[0], 1, ints, 1, c, stream[0])))
ALONE(recv_from_minus_1, SAY(ncclRecv(recv[0], 1, ints, -1, c, stream[0])))
ALONE(send_type_99, SAY(ncclSend(send[0], 1, 99, 0, c, stream[0])))
ALONE(send_of_0_to_beyond, SAY(ncclSend(send[0], 0, ints, 1, c, stream[0])))
ALONE(send_to_self_alone, SAY(ncclSend(send[0], 1, ints, 0, c, stream[0])))
ALONE(send_and_recv_to_self, DO(ncclGroupStart()); SAY(ncclSend(send[0], 8, ints, 0, c, stream[0])); SAY(ncclRecv(recv[0], 8, ints, 0, c, stream[0])); SAY(ncclGroupEnd()))
ALONE(recv_and_send_to_self, DO(ncclGroupStart()); SAY(ncclRecv(recv[0], 8, ints, 0, c, stream[0])); SAY(ncclSend(send[0], 8, ints, 0, c, stream[0])); SAY(ncclGroupEnd()))
ALONE(send_100_recv_50_to_self, DO(ncclGroupStart()); SAY(ncclSend(send[0], 100, ints, 0, c, stream[0])); SAY(ncclRecv(recv[0], 50, ints, 0, c, stream[0])); SAY(ncclGroupEnd()))
ALONE(send_without_recv_to_self, DO(ncclGroupStart()); SAY(ncclSend(send[0], 8, ints, 0, c, stream[0])); SAY(ncclGroupEnd()))
ALONE(two_sends_two_recvs_to_self, DO(ncclGroupStart()); for (int i = 0; i < 2; i++) { SAY(ncclSend(send[0] + 32 * i, 8, ints, 0, c, stream[0])); SAY(ncclRecv(recv[0] + 32 * i, 8, ints, 0, c, stream[0])); } SAY(ncclGroupEnd()))

// Reductions of one's own.
ALONE(premul_null, float f = 2; SAY(ncclRedOpCreatePreMulSum(NULL, &f, floats, 1, c)))
ALONE(premul_scalar_null, int o; SAY(ncclRedOpCreatePreMulSum(&o, NULL, floats, 1, c)))
ALONE(premul_type_99, int o; float f = 2; SAY(ncclRedOpCreatePreMulSum(&o, &f, 99, 1, c)))
ALONE(premul_residence_9, int o; float f = 2; SAY(ncclRedOpCreatePreMulSum(&o, &f, floats, 9, c)))
CASE(premul_of_null) { int o; float f = 2; SAY(ncclRedOpCreatePreMulSum(&o, &f, floats, 1, NULL)); }
ALONE(premul, int o; float f = 2; SAY(ncclRedOpCreatePreMulSum(&o, &f, floats, 1, c)); SAY(ncclAllReduce(send[0], recv[0], 8, floats, o, c, stream[0])); SAY(ncclRedOpDestroy(o, c)))
ALONE(premul_of_another_type, int o; float f = 2; DO(ncclRedOpCreatePreMulSum(&o, &f, floats, 1, c)); SAY(ncclAllReduce(send[0], recv[0], 8, ints, o, c, stream[0])))
ALONE(premul_after_destroy, int o; float f = 2; DO(ncclRedOpCreatePreMulSum(&o, &f, floats, 1, c)); DO(ncclRedOpDestroy(o, c)); SAY(ncclAllReduce(send[0], recv[0], 8, floats, o, c, stream[0])))
ALONE(premul_destroyed_twice, int o; float f = 2; DO(ncclRedOpCreatePreMulSum(&o, &f, floats, 1, c)); DO(ncclRedOpDestroy(o, c)); SAY(ncclRedOpDestroy(o, c)))
ALONE(destroy_sum, SAY(ncclRedOpDestroy(sum, c)))
ALONE(destroy_op_99, SAY(ncclRedOpDestroy(99, c)))
ALONE(premul_of_another_communicator, int o; float f = 2; DO(ncclRedOpCreatePreMulSum(&o, &f, floats, 1, c)); ncclComm_t d = alone(); SAY(ncclAllReduce(send[0], recv[0], 8, floats, o, d, stream[0])))

// Groups.
ONE(group_end_alone, ncclGroupEnd())
CASE(group_empty) { DO(ncclGroupStart()); SAY(ncclGroupEnd()); }
CASE(group_nested) { for (int i = 0; i < 3; i++) DO(ncclGroupStart()); for (int i = 0; i < 3; i++) SAY(ncclGroupEnd()); SAY(ncclGroupEnd()); }
ALONE(group_of_two, DO(ncclGroupStart()); for (int i = 0; i < 2; i++) SAY(ncclAllReduce(send[0], recv[0] + 4096 * i, 8, ints, sum, c, stream[0])); SAY(ncclGroupEnd()))
ALONE(group_wrong_call, DO(ncclGroupStart()); SAY(ncclAllReduce(send[0], recv[0], 8, 99, sum, c, stream[0])); SAY(ncclGroupEnd()))
ALONE(group_wrong_then_right, DO(ncclGroupStart()); SAY(ncclAllReduce(send[0], recv[0], 8, 99, sum, c, stream[0])); SAY(ncclAllReduce(send[0], recv[0], 8, ints, sum, c, stream[0])); SAY(ncclGroupEnd()); right(&c, 1))
ALONE(group_right_then_wrong, DO(ncclGroupStart()); SAY(ncclAllReduce(send[0], recv[0], 8, ints, sum, c, stream[0])); SAY(ncclAllReduce(send[0], recv[0], 8, ints, 99, c, stream[0])); SAY(ncclGroupEnd()); right(&c, 1))
CASE(simulate_null) { NEEDS(ncclGroupSimulateEnd); DO(ncclGroupStart()); SAY(ncclGroupSimulateEnd(NULL)); }
CASE(simulate_empty) { NEEDS(ncclGroupSimulateEnd); ncclSimInfo_t s = {sizeof s, SIM_MAGIC, 22300, 0}; DO(ncclGroupStart()); SAY(ncclGroupSimulateEnd(&s)); }
CASE(simulate_alone) { NEEDS(ncclGroupSimulateEnd); ncclSimInfo_t s = {sizeof s, SIM_MAGIC, 22300, 0}; SAY(ncclGroupSimulateEnd(&s)); }
CASE(simulate_magic) { NEEDS(ncclGroupSimulateEnd); ncclSimInfo_t s = {sizeof s, 1, 22300, 0}; DO(ncclGroupStart()); SAY(ncclGroupSimulateEnd(&s)); }
CASE(init_in_group) { ncclComm_t c; DO(ncclGroupStart()); SAY(ncclCommInitRank(&c, 1, unique(), 0)); SAY(ncclGroupEnd()); right(&c, 1); }

// Configurations.
#define CONFIG(id, change)                  \
  CASE(id) {                                \
    ncclComm_t c = NULL;                    \
    ncclConfig_t f = config();              \
    change;                                 \
    if (!SAY(configured(&c, &f))) right(&c, 1); \
  }
CONFIG(config_plain, (void)0)
CASE(config_null) { ncclComm_t c; if (!SAY(configured(&c, NULL))) right(&c, 1); }
CONFIG(config_size_0, f.size = 0)
CONFIG(config_size_short, f.size = 8)
CONFIG(config_size_2_14, f.size = offsetof(ncclConfig_t, cgaClusterSize); f.version = 21400)
CONFIG(config_size_2_17, f.size = offsetof(ncclConfig_t, splitShare); f.version = 21700)
CONFIG(config_size_2_18, f.size = offsetof(ncclConfig_t, trafficClass); f.version = 21800)
CONFIG(config_size_2_28, f.size = offsetof(ncclConfig_t, graphUsageMode); f.version = 22800; f.nChannelsPerNetPeer = UNSET; f.nvlinkCentricSched = UNSET)
CONFIG(config_magic, f.magic = 1)
CONFIG(config_version_0, f.version = 0)
CONFIG(config_version_future, f.version = 99999)
CONFIG(config_blocking_1, f.blocking = 1)
CONFIG(config_blocking_2, f.blocking = 2)
CONFIG(config_blocking_minus_1, f.blocking = -1)
CONFIG(config_cluster_0, f.cgaClusterSize = 0)
CONFIG(config_cluster_8, f.cgaClusterSize = 8)
CONFIG(config_cluster_99, f.cgaClusterSize = 99)
CONFIG(config_cluster_minus_1, f.cgaClusterSize = -1)
CONFIG(config_ctas, f.minCTAs = 1; f.maxCTAs = 4)
CONFIG(config_min_above_max, f.minCTAs = 8; f.maxCTAs = 4)
CONFIG(config_min_0, f.minCTAs = 0)
CONFIG(config_max_0, f.maxCTAs = 0)
CONFIG(config_max_minus_1, f.maxCTAs = -1)
CONFIG(config_max_1000, f.maxCTAs = 1000)
CONFIG(config_net_missing, f.netName = "there_is_none")
CONFIG(config_net_socket, f.netName = "Socket")
CONFIG(config_net_empty, f.netName = "")
CONFIG(config_split_share_1, f.splitShare = 1)
CONFIG(config_split_share_2, f.splitShare = 2)
CONFIG(config_traffic_class_minus_5, f.trafficClass = -5)
CONFIG(config_traffic_class, f.trafficClass = 105)
CONFIG(config_name, f.commName = "a name")
CONFIG(config_collnet_2, f.collnetEnable = 2)
CONFIG(config_policy_1, f.CTAPolicy = 1)
CONFIG(config_policy_99, f.CTAPolicy = 99)
CONFIG(config_policy_minus_1, f.CTAPolicy = -1)
CONFIG(config_shrink_share_2, f.shrinkShare = 2)
CONFIG(config_nvls_ctas_0, f.nvlsCTAs = 0)
CONFIG(config_nvls_ctas_4, f.nvlsCTAs = 4)

// Communicators that do not block.
static ncclComm_t unblocked(void) {
  ncclComm_t c;
  ncclConfig_t f = config();
  f.blocking = 0;
  ncclResult_t r = configured(&c, &f);
  if (r && r != ncclInProgress) said(r), _exit(0);
  if (settled(c)) say("not settled"), _exit(0);
  return c;
}
CASE(unblocked_init) { ncclComm_t c = unblocked(); right(&c, 1); SAY(ncclCommFinalize(c)); SAY(settled(c)); SAY(ncclCommDestroy(c)); }
CASE(unblocked_split) {
  ncclComm_t c = unblocked(), n = NULL;
  ncclResult_t r = ncclCommSplit(c, 0, 0, &n, NULL);
  say("%s", r == ncclInProgress || r == ncclSuccess ? "begun" : codes[r]);
  SAY(settled(c));
  right(&n, 1);
}
CASE(unblocked_abort) { ncclComm_t c = unblocked(); SAY(ncclCommAbort(c)); }
CASE(unblocked_destroy) { ncclComm_t c = unblocked(); ncclResult_t r = ncclCommDestroy(c); say("%s", r == ncclInProgress || r == ncclSuccess ? "ended" : codes[r]); }
CASE(unblocked_wrong_call) { ncclComm_t c = unblocked(); SAY(ncclAllReduce(send[0], recv[0], 8, 99, sum, c, stream[0])); SAY(settled(c)); }

// The end.
ALONE(finalize_then_destroy, SAY(ncclCommFinalize(c)); SAY(ncclCommDestroy(c)))
ALONE(finalize_twice, SAY(ncclCommFinalize(c)); SAY(ncclCommFinalize(c)))
ALONE(operation_after_finalize, DO(ncclCommFinalize(c)); SAY(ncclAllReduce(send[0], recv[0], 8, ints, sum, c, stream[0])))
ALONE(destroy_with_work, for (int i = 0; i < 100; i++) DO(ncclAllReduce(send[0], recv[0], count, ints, sum, c, stream[0])); SAY(ncclCommDestroy(c)); CU(cuStreamSynchronize(stream[0])))
ALONE(abort_with_work, for (int i = 0; i < 100; i++) DO(ncclAllReduce(send[0], recv[0], count, ints, sum, c, stream[0])); SAY(ncclCommAbort(c)); CU(cuStreamSynchronize(stream[0])))
ALONE(abort_after_finalize, DO(ncclCommFinalize(c)); SAY(ncclCommAbort(c)))
CASE(ten_times) { for (int i = 0; i < 10; i++) { ncclComm_t c = alone(); DO(ncclCommDestroy(c)); } ncclComm_t c = alone(); right(&c, 1); }
CASE(five_at_once) { ncclComm_t c[5]; for (int i = 0; i < 5; i++) c[i] = alone(); for (int i = 0; i < 5; i++) right(&c[i], 1); for (int i = 0; i < 5; i++) DO(ncclCommDestroy(c[i])); }

// Splitting and shrinking.
ALONE(split, ncclComm_t n; SAY(ncclCommSplit(c, 0, 0, &n, NULL)); right(&n, 1); SAY(ncclCommDestroy(n)); SAY(ncclCommDestroy(c)))
ALONE(split_no_color, ncclComm_t n = c; SAY(ncclCommSplit(c, -1, 0, &n, NULL)); say("%d", n == NULL))
ALONE(split_color_minus_5, ncclComm_t n; SAY(ncclCommSplit(c, -5, 0, &n, NULL)))
ALONE(split_key_minus_5, ncclComm_t n; SAY(ncclCommSplit(c, 3, -5, &n, NULL)))
ALONE(split_to_null, SAY(ncclCommSplit(c, 0, 0, NULL, NULL)))
ALONE(split_config_magic, ncclComm_t n; ncclConfig_t f = config(); f.magic = 1; SAY(ncclCommSplit(c, 0, 0, &n, &f)))
ALONE(split_parent_first, ncclComm_t n; DO(ncclCommSplit(c, 0, 0, &n, NULL)); SAY(ncclCommDestroy(c)); right(&n, 1))
ALONE(split_in_group, ncclComm_t n; DO(ncclGroupStart()); SAY(ncclCommSplit(c, 0, 0, &n, NULL)); SAY(ncclGroupEnd()); right(&n, 1))
ALONE(shrink_of_nobody, NEEDS(ncclCommShrink); ncclComm_t n; SAY(ncclCommShrink(c, NULL, 0, &n, NULL, 0)))
ALONE(shrink_null, NEEDS(ncclCommShrink); SAY(ncclCommShrink(c, (int[]){0}, 1, NULL, NULL, 0)))
ALONE(shrink_of_beyond, NEEDS(ncclCommShrink); ncclComm_t n; SAY(ncclCommShrink(c, (int[]){7}, 1, &n, NULL, 0)))
ALONE(shrink_of_itself, NEEDS(ncclCommShrink); ncclComm_t n; SAY(ncclCommShrink(c, (int[]){0}, 1, &n, NULL, 0)))
PAIR(split_pair) {
  ncclComm_t c[2], n[2];
  pair(c);
  DO(ncclGroupStart());
  for (int d = 0; d < 2; d++) on(d), SAY(ncclCommSplit(c[d], 5, -d, &n[d], NULL));
  SAY(ncclGroupEnd());
  int r[2];
  for (int d = 0; d < 2; d++) DO(ncclCommUserRank(n[d], &r[d]));
  say("%d %d", r[0], r[1]);
  right(n, 2);
}
PAIR(split_pair_apart) {
  ncclComm_t c[2], n[2];
  pair(c);
  DO(ncclGroupStart());
  for (int d = 0; d < 2; d++) on(d), SAY(ncclCommSplit(c[d], d, 0, &n[d], NULL));
  SAY(ncclGroupEnd());
  int k[2];
  for (int d = 0; d < 2; d++) DO(ncclCommCount(n[d], &k[d]));
  say("%d %d", k[0], k[1]);
}

// Memory.
ONE(mem_alloc_null, ncclMemAlloc(NULL, 8))
CASE(mem_alloc_0) { void *p = &p; SAY(ncclMemAlloc(&p, 0)); }
ONE(mem_free_null, ncclMemFree(NULL))
CASE(mem) { void *p; SAY(ncclMemAlloc(&p, 1 << 20)); say("%d", p != NULL); SAY(ncclMemFree(p)); }
ALONE(register, void *h; SAY(ncclCommRegister(c, send[0], room, &h)); right(&c, 1); SAY(ncclCommDeregister(c, h)))
ALONE(register_null, void *h; SAY(ncclCommRegister(c, NULL, room, &h)))
ALONE(register_0, void *h; SAY(ncclCommRegister(c, send[0], 0, &h)))
ALONE(register_to_null, SAY(ncclCommRegister(c, send[0], room, NULL)))
ALONE(deregister_null, SAY(ncclCommDeregister(c, NULL)))
ALONE(window_null, NEEDS(ncclCommWindowRegister); ncclWindow_t w; SAY(ncclCommWindowRegister(c, NULL, room, &w, 0)))
ALONE(window_0, NEEDS(ncclCommWindowRegister); ncclWindow_t w; SAY(ncclCommWindowRegister(c, send[0], 0, &w, 0)))
ALONE(window_deregister_null, NEEDS(ncclCommWindowDeregister); SAY(ncclCommWindowDeregister(c, NULL)))

// Pairs.
PAIR(pair_all_reduce) { ncclComm_t c[2]; pair(c); right(c, 2); for (int d = 0; d < 2; d++) SAY(ncclCommDestroy(c[d])); }
PAIR(pair_device_twice) { ncclComm_t c[3]; SAY(ncclCommInitAll(c, 3, (int[]){0, 1, 0})); }
#define TWO(...) for (int d = 0; d < 2; d++) on(d), __VA_ARGS__
static void sync_all(void) {
  TWO(CU(cuStreamSynchronize(stream[d])));
  say("done");
}
static void send_to_the_other(size_t n) {
  ncclComm_t c[2];
  pair(c);
  DO(ncclGroupStart());
  on(0), SAY(ncclSend(send[0], n, ints, 1, c[0], stream[0]));
  on(1), SAY(ncclRecv(recv[1], n, ints, 0, c[1], stream[1]));
  SAY(ncclGroupEnd());
  sync_all();
}
PAIR(pair_send_recv) { send_to_the_other(8); }
PAIR(pair_send_of_0) { send_to_the_other(0); }
PAIR(pair_all_gather_base) { ncclComm_t c[2]; pair(c); DO(ncclGroupStart()); TWO(SAY(ncclAllGather(recv[d], recv[d], 8, ints, c[d], stream[d]))); SAY(ncclGroupEnd()); sync_all(); }
PAIR(pair_all_gather_in_place) { ncclComm_t c[2]; pair(c); DO(ncclGroupStart()); TWO(SAY(ncclAllGather(recv[d] + 32 * d, recv[d], 8, ints, c[d], stream[d]))); SAY(ncclGroupEnd()); sync_all(); }
PAIR(pair_reduce_scatter_base) { ncclComm_t c[2]; pair(c); DO(ncclGroupStart()); TWO(SAY(ncclReduceScatter(send[d], send[d], 8, ints, sum, c[d], stream[d]))); SAY(ncclGroupEnd()); sync_all(); }
PAIR(pair_overlap) { ncclComm_t c[2]; pair(c); DO(ncclGroupStart()); TWO(SAY(ncclAllReduce(send[d], send[d] + 4, 8, ints, sum, c[d], stream[d]))); SAY(ncclGroupEnd()); sync_all(); }
PAIR(pair_reduce_nobody_else_receives) { ncclComm_t c[2]; pair(c); DO(ncclGroupStart()); TWO(SAY(ncclReduce(send[d], d ? NULL : recv[d], 8, ints, sum, 0, c[d], stream[d]))); SAY(ncclGroupEnd()); sync_all(); }
PAIR(pair_broadcast_only_root_sends) { ncclComm_t c[2]; pair(c); DO(ncclGroupStart()); TWO(SAY(ncclBroadcast(d ? NULL : send[d], recv[d], 8, ints, 0, c[d], stream[d]))); SAY(ncclGroupEnd()); sync_all(); }
PAIR(pair_default_stream) { ncclComm_t c[2]; pair(c); DO(ncclGroupStart()); TWO(SAY(ncclAllReduce(send[d], recv[d], 8, ints, sum, c[d], NULL))); SAY(ncclGroupEnd()); TWO(CU(cuStreamSynchronize(NULL))); }
PAIR(pair_abort) { ncclComm_t c[2]; pair(c); on(0), DO(ncclAllReduce(send[0], recv[0], 8, ints, sum, c[0], stream[0])); for (int d = 0; d < 2; d++) SAY(ncclCommAbort(c[d])); sync_all(); }
PAIR(pair_graph) {
  ncclComm_t c[2];
  void *g, *run[2];
  pair(c);
  right(c, 2);
  TWO(CU(cuStreamBeginCapture(stream[d], 2)));
  DO(ncclGroupStart());
  TWO(DO(ncclAllReduce(send[d], recv[d], count, ints, sum, c[d], stream[d])));
  SAY(ncclGroupEnd());
  TWO(CU(cuStreamEndCapture(stream[d], &g)), CU(cuGraphInstantiate(&run[d], g, 0)));
  for (int i = 0; i < 3; i++) TWO(CU(cuGraphLaunch(run[d], stream[d])));
  sync_all();
  right(c, 2);
}
static void *of_thread(void *arg) {
  ncclComm_t *c = arg;
  int d;
  DO(ncclCommCuDevice(*c, &d));
  on(d);
  for (int i = 0; i < 50; i++) DO(ncclAllReduce(send[d], recv[d], count, ints, sum, *c, stream[d]));
  CU(cuStreamSynchronize(stream[d]));
  return NULL;
}
PAIR(pair_threads) {
  ncclComm_t c[2];
  pthread_t t[2];
  pair(c);
  for (int d = 0; d < 2; d++) pthread_create(&t[d], NULL, of_thread, &c[d]);
  for (int d = 0; d < 2; d++) pthread_join(t[d], NULL);
  right(c, 2);
}

// forked has the ranks of a job be forks of the process that made the ID, which uses no GPU.
static void forked(int n) {
  ncclUniqueId id;
  DO(ncclGetUniqueId(&id));
  for (int r = 0; r < n; r++) {
    if (fork()) continue;
    ncclComm_t c;
    driver(n);
    on(r);
    ncclResult_t e = ncclCommInitRank(&c, n, id, r);
    if (r == 0) said(e);
    if (!e) e = ncclAllReduce(send[r], recv[r], 8, ints, sum, c, stream[r]);
    if (!e) e = cuStreamSynchronize(stream[r]) ? ncclUnhandledCudaError : ncclSuccess;
    if (r == 0) said(e);
    _exit(0);
  }
  while (wait(NULL) > 0) {}
}
CASE_ON(-1, fork_then_init, NULL) { forked(1); }
CASE_ON(-2, fork_then_init_pair, NULL) { forked(2); }
CASE_ON(-1, scalable, NULL) { driver(1); NEEDS(ncclCommInitRankScalable); ncclComm_t c; ncclUniqueId id = unique(); if (!SAY(ncclCommInitRankScalable(&c, 1, 0, 1, &id, NULL))) right(&c, 1); }
CASE_ON(-1, scalable_of_0, NULL) { driver(1); NEEDS(ncclCommInitRankScalable); ncclComm_t c; ncclUniqueId id = unique(); SAY(ncclCommInitRankScalable(&c, 1, 0, 0, &id, NULL)); }

// Signals: which handlers of the program, installed before the library's first use, are its own after it.
static void handler(int s) { (void)s; }
CASE(signal_handlers) {
  static const int all[] = {SIGURG, SIGSEGV, SIGBUS, SIGFPE, SIGPIPE, SIGPROF, SIGINT, SIGTERM, SIGUSR1};
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) signal(all[i], handler);
  ncclComm_t c = alone();
  right(&c, 1);
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
    struct sigaction is;
    sigaction(all[i], NULL, &is);
    say("%s:%s", strsignal(all[i]), is.sa_handler == handler ? "kept" : "replaced");
  }
}

static volatile int urgent_calls;
static void count_urgent(int s, siginfo_t *info, void *context) { urgent_calls += s == SIGURG && info && context; }
CASE(signal_urgent) {
  struct sigaction a = {.sa_sigaction = count_urgent, .sa_flags = SA_SIGINFO};
  sigaction(SIGURG, &a, NULL);
  ncclComm_t c = alone();
  int before = urgent_calls;
  for (int i = 0; i < 3; i++) kill(getpid(), SIGURG), usleep(10000);
  say("%d", urgent_calls - before);
  right(&c, 1);
}

// Settings.
#define SETTING(id, environ) \
  CASE_ON(1, set_##id, environ) { ncclComm_t c; if (!SAY(ncclCommInitAll(&c, 1, (int[]){0}))) right(&c, 1); }
#define SETTING2(id, environ) \
  CASE_ON(2, set_##id, environ) { ncclComm_t c[2]; if (!SAY(ncclCommInitAll(c, 2, (int[]){0, 1}))) right(c, 2); }
SETTING2(algo_tree, "NCCL_ALGO=Tree")
SETTING2(algo_ring, "NCCL_ALGO=Ring")
SETTING2(algo_list, "NCCL_ALGO=Ring,Tree")
SETTING2(algo_not, "NCCL_ALGO=^Tree")
SETTING2(algo_unknown, "NCCL_ALGO=Foo")
SETTING2(proto_simple, "NCCL_PROTO=Simple")
SETTING2(proto_ll, "NCCL_PROTO=LL")
SETTING2(proto_unknown, "NCCL_PROTO=Foo")
SETTING2(p2p_level_5, "NCCL_P2P_LEVEL=5")
SETTING2(p2p_level_nvl, "NCCL_P2P_LEVEL=NVL")
SETTING2(p2p_level_unknown, "NCCL_P2P_LEVEL=Foo")
SETTING2(p2p_disable, "NCCL_P2P_DISABLE=1")
SETTING2(p2p_disable_true, "NCCL_P2P_DISABLE=true")
SETTING2(shm_disable, "NCCL_SHM_DISABLE=1")
SETTING2(nchannels_1, "NCCL_MAX_NCHANNELS=1")
SETTING2(nchannels_128, "NCCL_MAX_NCHANNELS=128")
SETTING2(nchannels_0, "NCCL_MAX_NCHANNELS=0")
SETTING2(nchannels_word, "NCCL_MAX_NCHANNELS=many")
SETTING2(min_nchannels_32, "NCCL_MIN_NCHANNELS=32")
SETTING2(nthreads_640, "NCCL_NTHREADS=640")
SETTING2(nthreads_100, "NCCL_NTHREADS=100")
SETTING2(buffsize_8m, "NCCL_BUFFSIZE=8M")
SETTING2(buffsize_1048576, "NCCL_BUFFSIZE=1048576")
SETTING(debug_abort, "NCCL_DEBUG=ABORT")
SETTING(debug_unknown, "NCCL_DEBUG=Foo")
SETTING(debug_file_missing, "NCCL_DEBUG_FILE=/there/is/none")
SETTING(socket_ifname_missing, "NCCL_SOCKET_IFNAME=there_is_none")
SETTING(socket_ifname_lo, "NCCL_SOCKET_IFNAME=lo")
SETTING(socket_family, "NCCL_SOCKET_FAMILY=Foo")
SETTING(net_missing, "NCCL_NET=there_is_none")
SETTING(net_plugin_missing, "NCCL_NET_PLUGIN=there_is_none")
SETTING(ib_timeout_0, "NCCL_IB_TIMEOUT=0")
SETTING(ib_hca_missing, "NCCL_IB_HCA=there_is_none")
SETTING(cta_policy_zero, "NCCL_CTA_POLICY=ZERO")
SETTING(cta_policy_list, "NCCL_CTA_POLICY=ZERO|EFFICIENCY")
SETTING(graph_file_missing, "NCCL_GRAPH_FILE=/there/is/none")
SETTING(topo_file_missing, "NCCL_TOPO_FILE=/there/is/none")
SETTING(comm_blocking_0, "NCCL_COMM_BLOCKING=1")
SETTING(launch_mode, "NCCL_LAUNCH_MODE=PARALLEL")
SETTING(checks_disable, "NCCL_CHECKS_DISABLE=1")
SETTING(check_pointers, "NCCL_CHECK_POINTERS=1")
CASE_ON(1, set_check_pointers_host, "NCCL_CHECK_POINTERS=1") { ncclComm_t c = alone(); int v[8]; SAY(ncclAllReduce(v, recv[0], 8, ints, sum, c, stream[0])); }

// own reports whether a case needs a process of its own.
static int own(const struct test *t) {
  static const char *const all[] = {"group_", "simulate_", "unblocked_", "signal_", "abort_", "destroy_with", "finalize_", "operation_after", "pair_", "send_without", "send_100", "init_all_of_0"};
  int yes = t->env != NULL || t->devices < 0;
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) yes |= !strncmp(t->name, all[i], strlen(all[i]));
  return yes;
}

static void answer(struct test *t) {
  fprintf(out, "%s\t", t->name);
  fflush(out);
  words = 0;
  if (t->devices > devices) say("skipped: %d device", devices);
  else t->run();
  fputc('\n', out);
  fflush(out);
}

// A job is a process with cases that are next to one another.
struct job {
  struct test *at; // the case that it is in
  struct test *behind;
  pid_t pid;
  int from, in; // its pipe; whether a line has begun
  time_t since;
};

enum { batch = 25, most_at_once = 32 };
static int at_once = 3, limit = 60; // ANSWERS_AT_ONCE, ANSWERS_SECONDS

static void start(struct job *j) {
  int p[2];
  if (pipe2(p, O_CLOEXEC)) perror("pipe"), exit(3);
  fflush(stdout);
  if ((j->pid = fork()) == 0) {
    setpgid(0, 0);
    dup2(STDERR_FILENO, STDOUT_FILENO); // what a library logs does not mix with the answers
    out = fdopen(p[1], "w");
    if (j->at->env) putenv(strdup(j->at->env));
    load();
    if (j->at->devices > 0) driver(j->at->devices);
    for (struct test *t = j->at; t != j->behind; t = t->next) answer(t);
    _exit(0);
  }
  close(p[1]);
  fcntl(p[0], F_SETFL, O_NONBLOCK);
  j->from = p[0], j->in = 0, j->since = time(NULL);
}

// lines takes what a job has written. It is kept until the line is whole, so that those of several
// jobs do not mix.
static char kept[most_at_once][8192];
static void lines(struct job *j, char *line) {
  char c;
  while (read(j->from, &c, 1) == 1) {
    size_t n = strlen(line);
    if (c != '\n' && n + 1 < sizeof kept[0]) {
      line[n] = c, line[n + 1] = 0;
      continue;
    }
    puts(line);
    *line = 0;
    j->at = j->at->next, j->since = time(NULL);
  }
}

// ended reports whether a job has ended, or is restarted behind a case that it did not survive.
static int ended(struct job *j, char *line) {
  int status;
  lines(j, line);
  if (waitpid(j->pid, &status, WNOHANG) == 0) {
    if (time(NULL) - j->since < limit) return 0;
    kill(-j->pid, SIGKILL);
    waitpid(j->pid, &status, 0);
  }
  lines(j, line);
  kill(-j->pid, SIGKILL); // what it has left
  close(j->from);
  if (j->at == j->behind) return 1;
  if (!*line) sprintf(line, "%s\t", j->at->name);
  const char *sep = line[strlen(line) - 1] == '\t' ? "" : " ";
  if (WIFSIGNALED(status)) printf("%s%s%s\n", line, sep, WTERMSIG(status) == SIGKILL ? "stands still" : strsignal(WTERMSIG(status)));
  else if (WEXITSTATUS(status)) printf("%s%sexit %d\n", line, sep, WEXITSTATUS(status));
  else puts(line);
  *line = 0;
  if ((j->at = j->at->next) == j->behind) return 1;
  start(j);
  return 0;
}

int main(int argc, char **argv) {
  struct job jobs[most_at_once] = {0};
  int running = 0;
  if (getenv("ANSWERS_AT_ONCE")) at_once = atoi(getenv("ANSWERS_AT_ONCE"));
  if (getenv("ANSWERS_SECONDS")) limit = atoi(getenv("ANSWERS_SECONDS"));
  if (at_once < 1 || at_once > most_at_once) return 2;
  for (struct test **t = &first; argc > 1 && *t;) { // only those that are named
    int wanted = 0;
    for (int i = 1; i < argc; i++) wanted |= !strcmp(argv[i], (*t)->name);
    if (wanted) t = &(*t)->next;
    else *t = (*t)->next;
  }
  for (struct test *t = first; t || running;) {
    for (int i = 0; i < at_once; i++) {
      struct job *j = &jobs[i];
      if (j->pid && ended(j, kept[i])) j->pid = 0, running--;
      if (j->pid || !t) continue;
      j->at = t;
      int n = 0;
      do t = t->next;
      while (t && ++n < batch && !own(j->at) && !own(t) && t->devices == j->at->devices);
      j->behind = t;
      start(j);
      running++;
    }
    fflush(stdout);
    usleep(2000);
  }
  return 0;
}
