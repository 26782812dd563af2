// A program of several ranks, each a thread or a process with a GPU, that uses NCCL's API as
// programs do. ranks NAME [ARGS] runs one of the tests at the end; it exits with 0 when
// all was right.
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "nccl.h"

// The driver's functions that are used, from the driver that is there.
static int (*cuInit)(unsigned), (*cuDeviceGetCount)(int *), (*cuDevicePrimaryCtxRetain)(void **, int), (*cuCtxSetCurrent)(void *), (*cuCtxGetCurrent)(void **),
    (*cuStreamCreate)(void **, unsigned), (*cuStreamSynchronize)(void *), (*cuStreamQuery)(void *), (*cuStreamDestroy)(void *), (*cuMemcpyHtoD)(uintptr_t, const void *, size_t),
    (*cuMemcpyDtoH)(void *, uintptr_t, size_t), (*cuMemGetInfo)(size_t *, size_t *), (*cuMemRetainAllocationHandle)(uint64_t *, void *),
    (*cuMemExportToShareableHandle)(void *, uint64_t, int, unsigned long long), (*cuMemRelease)(uint64_t), (*cuStreamBeginCapture)(void *, int), (*cuStreamEndCapture)(void *, void **),
    (*cuGraphInstantiate)(void **, void *, unsigned long long), (*cuGraphLaunch)(void *, void *),
    (*cuEventCreate)(void **, unsigned), (*cuEventRecord)(void *, void *), (*cuStreamWaitEvent)(void *, void *, unsigned), (*cuMemcpyAsync)(uintptr_t, uintptr_t, size_t, void *);

static void die(const char *what, int line) {
  fprintf(stderr, "line %d: %s: %s\n", line, what, ncclGetLastError(NULL));
  _exit(1); // with operations under way
}
#define OK(call) \
  do { if ((call) != 0) die(#call, __LINE__); } while (0)
#define TRUE(what) \
  do { if (!(what)) die(#what " is not so", __LINE__); } while (0)

static void driver(void) {
  void *h = dlopen("libcuda.so.1", RTLD_NOW);
  if (!h) die("libcuda.so.1", __LINE__);
#define FIND(name, symbol) *(void **)&name = dlsym(h, symbol)
  FIND(cuInit, "cuInit");
  FIND(cuDeviceGetCount, "cuDeviceGetCount");
  FIND(cuDevicePrimaryCtxRetain, "cuDevicePrimaryCtxRetain");
  FIND(cuCtxSetCurrent, "cuCtxSetCurrent");
  FIND(cuCtxGetCurrent, "cuCtxGetCurrent");
  FIND(cuStreamCreate, "cuStreamCreate");
  FIND(cuStreamSynchronize, "cuStreamSynchronize");
  FIND(cuStreamQuery, "cuStreamQuery");
  FIND(cuStreamDestroy, "cuStreamDestroy_v2");
  FIND(cuMemcpyHtoD, "cuMemcpyHtoD_v2");
  FIND(cuMemcpyDtoH, "cuMemcpyDtoH_v2");
  FIND(cuMemGetInfo, "cuMemGetInfo_v2");
  FIND(cuMemRetainAllocationHandle, "cuMemRetainAllocationHandle");
  FIND(cuMemExportToShareableHandle, "cuMemExportToShareableHandle");
  FIND(cuMemRelease, "cuMemRelease");
  FIND(cuStreamBeginCapture, "cuStreamBeginCapture_v2");
  FIND(cuStreamEndCapture, "cuStreamEndCapture");
  FIND(cuGraphInstantiate, "cuGraphInstantiateWithFlags");
  FIND(cuGraphLaunch, "cuGraphLaunch");
  FIND(cuEventCreate, "cuEventCreate");
  FIND(cuEventRecord, "cuEventRecord");
  FIND(cuStreamWaitEvent, "cuStreamWaitEvent");
  FIND(cuMemcpyAsync, "cuMemcpyAsync");
  OK(cuInit(0));
}

static int ranks, devices;
static ncclUniqueId id;
static pthread_barrier_t barrier;
static void *context_of[16];

// A rank is a thread.
struct rank {
  int rank;
  ncclComm_t comm;
  void *stream, *send, *recv;
  void (*run)(struct rank *);
};

enum { most = 1 << 16 }; // elements of a buffer

static void use_device(struct rank *r) { OK(cuCtxSetCurrent(context_of[r->rank % devices])); }

// fill gives element i of a rank's input the value of input.
static int input(int rank, int i) { return (rank + 1) * (i % 97 + 1); }

// upload copies to a device. The driver's call may return before memory that is not pinned has arrived, and other
// streams than the default one do not wait for it.
static void upload(uintptr_t to, const void *from, size_t n) {
  OK(cuMemcpyHtoD(to, from, n));
  OK(cuStreamSynchronize(NULL));
}

static void fill(struct rank *r, int n) {
  int *b = malloc(n * sizeof *b);
  for (int i = 0; i < n; i++) b[i] = input(r->rank, i);
  upload((uintptr_t)r->send, b, n * sizeof *b);
  memset(b, -1, n * sizeof *b);
  upload((uintptr_t)r->recv, b, n * sizeof *b);
  free(b);
}

// got returns element i of the output.
static int got(struct rank *r, int i) {
  int v;
  OK(cuMemcpyDtoH(&v, (uintptr_t)r->recv + i * sizeof v, sizeof v));
  return v;
}

static int sum(int i) {
  int s = 0;
  for (int k = 0; k < ranks; k++) s += input(k, i);
  return s;
}

static void *start(void *arg) {
  struct rank *r = arg;
  void *context;
  use_device(r);
  OK(ncclCommInitRank(&r->comm, ranks, id, r->rank));
  OK(cuStreamCreate(&r->stream, 1));
  OK(ncclMemAlloc(&r->send, most * sizeof(int)));
  OK(ncclMemAlloc(&r->recv, most * sizeof(int)));
  r->run(r);
  OK(cuCtxGetCurrent(&context));
  TRUE(context == context_of[r->rank % devices]); // as it was
  return NULL;
}

static void leave(struct rank *r) {
  OK(ncclMemFree(r->send));
  OK(ncclMemFree(r->recv));
  OK(ncclCommDestroy(r->comm));
}

static void check(struct rank *r, int n, int (*want)(struct rank *, int)) {
  OK(cuStreamSynchronize(r->stream));
  for (int i = 0; i < n; i += 1 + n / 100) {
    if (got(r, i) == want(r, i)) continue;
    fprintf(stderr, "rank %d: element %d of %d is %d; want %d\n", r->rank, i, n, got(r, i), want(r, i));
    _exit(1);
  }
}

static int want_sum(struct rank *r, int i) { return sum(i); }
static int want_root(struct rank *r, int i) { return r->rank == ranks - 1 ? sum(i) : -1; }
static int want_first(struct rank *r, int i) { return input(0, i); }
static int width; // elements a rank
static int want_gathered(struct rank *r, int i) { return input(i / width, i % width); }
static int want_part(struct rank *r, int i) { return sum(r->rank * width + i); }
static int want_exchanged(struct rank *r, int i) { return input(i / width, r->rank * width + i % width); }
static int want_scattered(struct rank *r, int i) { return input(0, r->rank * width + i); }
static int want_gathered_at_root(struct rank *r, int i) { return r->rank == ranks - 1 ? want_gathered(r, i) : -1; }
static int want_before(struct rank *r, int i) { return input((r->rank + ranks - 1) % ranks, i); }
static int want_double(struct rank *r, int i) { return 2 * sum(i); }

static void collectives(struct rank *r) {
  int info;
  const char *value;
  if (r->rank == 0) {
    OK(ncclParamGetParameter("NCCL_BUFFSIZE", &value, &info));
    TRUE(!strcmp(value, "4194304") && info == 7);
    TRUE(ncclParamGetParameter("NCCL_NONE", &value, &info) == ncclInvalidArgument);
  }
  OK(ncclCommCount(r->comm, &info));
  TRUE(info == ranks);
  OK(ncclCommUserRank(r->comm, &info));
  TRUE(info == r->rank);
  OK(ncclCommCuDevice(r->comm, &info));
  TRUE(info == r->rank % devices);
  static const int sizes[] = {1, 7, 1000, 9000};
  for (int k = 0; k < 4; k++) {
    int n = sizes[k];
    pthread_barrier_wait(&barrier);
    if (r->rank == 0) width = n;
    pthread_barrier_wait(&barrier);
#define DO(elements, want, call)   \
  fill(r, elements);               \
  OK(call);                        \
  check(r, elements, want)
    DO(n, want_sum, ncclAllReduce(r->send, r->recv, n, ncclInt32, ncclSum, r->comm, r->stream));
    DO(n, want_root, ncclReduce(r->send, r->rank == ranks - 1 ? r->recv : NULL, n, ncclInt32, ncclSum, ranks - 1, r->comm, r->stream));
    DO(n, want_first, ncclBroadcast(r->send, r->recv, n, ncclInt32, 0, r->comm, r->stream));
    DO(n * ranks, want_gathered, ncclAllGather(r->send, r->recv, n, ncclInt32, r->comm, r->stream));
    DO(n, want_part, (fill(r, n * ranks), ncclReduceScatter(r->send, r->recv, n, ncclInt32, ncclSum, r->comm, r->stream)));
    DO(n * ranks, want_exchanged, ncclAlltoAll(r->send, r->recv, n, ncclInt32, r->comm, r->stream));
    DO(n * ranks, want_gathered_at_root, ncclGather(r->send, r->recv, n, ncclInt32, ranks - 1, r->comm, r->stream));
    DO(n, want_scattered, (fill(r, n * ranks), ncclScatter(r->send, r->recv, n, ncclInt32, 0, r->comm, r->stream)));
    fill(r, n);
    OK(ncclGroupStart());
    OK(ncclSend(r->send, n, ncclInt32, (r->rank + 1) % ranks, r->comm, r->stream));
    OK(ncclRecv(r->recv, n, ncclInt32, (r->rank + ranks - 1) % ranks, r->comm, r->stream));
    OK(ncclGroupEnd());
    check(r, n, want_before);
    int two = 2, op;
    OK(ncclRedOpCreatePreMulSum(&op, &two, ncclInt32, ncclScalarHostImmediate, r->comm));
    DO(n, want_double, ncclAllReduce(r->send, r->recv, n, ncclInt32, op, r->comm, r->stream));
    OK(ncclRedOpDestroy(op, r->comm));
    TRUE(ncclAllReduce(r->send, r->recv, n, ncclInt32, op, r->comm, r->stream) == ncclInvalidArgument);
    // A group may end when the reduction is gone already, as in nccl-tests.
    fill(r, n);
    OK(ncclGroupStart());
    OK(ncclRedOpCreatePreMulSum(&op, &two, ncclInt32, ncclScalarHostImmediate, r->comm));
    OK(ncclAllReduce(r->send, r->recv, n, ncclInt32, op, r->comm, r->stream));
    OK(ncclRedOpDestroy(op, r->comm));
    OK(ncclGroupEnd());
    check(r, n, want_double);
    // A scalar on the device is read when the operation runs.
    void *scalar;
    OK(ncclMemAlloc(&scalar, sizeof two));
    OK(ncclRedOpCreatePreMulSum(&op, scalar, ncclInt32, ncclScalarDevice, r->comm));
    upload((uintptr_t)scalar, &two, sizeof two);
    DO(n, want_double, ncclAllReduce(r->send, r->recv, n, ncclInt32, op, r->comm, r->stream));
    OK(ncclRedOpDestroy(op, r->comm));
    OK(ncclMemFree(scalar));
    TRUE(ncclRedOpCreatePreMulSum(&op, (char *)r->send + 1, ncclInt32, ncclScalarDevice, r->comm) == ncclInvalidArgument);
    TRUE(ncclAllReduce(r->send, r->recv, n, ncclInt32, op, r->comm, r->stream) == ncclInvalidArgument);
    TRUE(ncclAllReduce(r->send, r->recv, n, 12, ncclSum, r->comm, r->stream) == ncclInvalidArgument);
  }
  OK(ncclAllReduce(r->send, r->recv, 0, ncclInt32, ncclSum, r->comm, r->stream));
  leave(r);
}

// windows: ranks write to one another's registered memory, also when it was registered before. The
// last windows go with the communicator.
// normed uses what the engine adds to NCCL's API.
static void normed(struct rank *r) {
  enum { rows = 3, row = 64, n = rows * row };
  Dl_info info;
  TRUE(dladdr((void *)ncclCommDestroy, &info));
  char path[4096], text[1024] = "";
  snprintf(path, sizeof path, "%s", info.dli_fname);
  TRUE(strrchr(path, '/'));
  strcpy(strrchr(path, '/') + 1, "libassay-coll.so");
  void *h = dlopen(path, RTLD_NOW | RTLD_NOLOAD);
  int (*norm)(ncclComm_t, const void *, void *, void *, const void *, size_t, size_t, ncclDataType_t, float, void *, char *) = NULL;
  if (h) *(void **)&norm = dlsym(h, "assay_all_reduce_norm");
  TRUE(norm);
  // Of each row the first half is 1 from each rank, the rest 2; the residual makes it 3 and 4.
  float in[n], residual[n], weight[row], out[n];
  for (int i = 0; i < n; i++) in[i] = i % row < row / 2 ? 1 : 2, residual[i] = (i % row < row / 2 ? 3 : 4) - ranks * in[i];
  for (int i = 0; i < row; i++) weight[i] = i;
  float *at = (float *)r->recv;
  upload((uintptr_t)r->send, in, sizeof in);
  upload((uintptr_t)(at + n), residual, sizeof residual);
  upload((uintptr_t)(at + 2 * n), weight, sizeof weight);
  int code = norm(r->comm, r->send, at, at + n, at + 2 * n, rows, row, ncclFloat32, 0, r->stream, text);
  if (code) fprintf(stderr, "assay_all_reduce_norm: %d: %s\n", code, text), _exit(1);
  OK(cuStreamSynchronize(r->stream));
  OK(cuMemcpyDtoH(out, (uintptr_t)at, sizeof out));
  OK(cuMemcpyDtoH(residual, (uintptr_t)(at + n), sizeof residual));
  for (int i = 0; i < n; i++) {
    const float sum = i % row < row / 2 ? 3 : 4, want = sum / 3.5355339f * (i % row), off = out[i] - want;
    TRUE(residual[i] == sum && off < 1e-4f && off > -1e-4f);
  }
  TRUE(norm(r->comm, r->send, at, at + n, at + 2 * n, rows, row, ncclInt32, 0, r->stream, text) == ncclInvalidArgument && strstr(text, "ncclBfloat16"));
  TRUE(norm(r->comm, r->send, at, at + n, at + 2 * n, (size_t)1 << 40, row, ncclFloat32, 0, r->stream, text) == ncclInvalidArgument && strstr(text, "too many"));
  TRUE(norm(r->comm, r->send, at, at + n, at + 2 * n, (size_t)1 << 30, 1 << 24, ncclFloat32, 0, r->stream, text) == ncclInvalidArgument);
  TRUE(norm((ncclComm_t)text, r->send, at, at + n, at + 2 * n, rows, row, ncclFloat32, 0, r->stream, text) == ncclInvalidArgument && strstr(text, "no communicator"));
  leave(r);
}

static void windows(struct rank *r) {
  ncclWindow_t own, none, again;
  for (int k = 0; k < 4; k++) {
    static const int sizes[] = {1, 13, 1000, 9000};
    int n = sizes[k];
    pthread_barrier_wait(&barrier);
    if (r->rank == 0) width = n;
    pthread_barrier_wait(&barrier);
    if (k != 1) {
      OK(ncclCommWindowRegister(r->comm, r->recv, most * sizeof(int), &own, 1));
      OK(ncclCommWindowRegister(r->comm, r->send, most * sizeof(int), &none, 0)); // waits for nobody
      OK(ncclCommWindowRegister(r->comm, r->send, most * sizeof(int), &again, 1));
    }
    DO(n * ranks, want_gathered, ncclAllGather(r->send, r->recv, n, ncclInt32, r->comm, r->stream));
    DO(n * ranks, want_exchanged, ncclAlltoAll(r->send, r->recv, n, ncclInt32, r->comm, r->stream));
    DO(n, want_first, ncclBroadcast(r->send, r->recv, n, ncclInt32, 0, r->comm, r->stream));
    DO(n, want_sum, ncclAllReduce(r->send, r->recv, n, ncclInt32, ncclSum, r->comm, r->stream));
    if (k == 0 || k == 2) {
      pthread_barrier_wait(&barrier);
      OK(ncclCommWindowDeregister(r->comm, own));
      OK(ncclCommWindowDeregister(r->comm, none));
      OK(ncclCommWindowDeregister(r->comm, again));
    }
  }
  OK(ncclCommDestroy(r->comm));
  OK(ncclMemFree(r->send));
  OK(ncclMemFree(r->recv));
}

// streams: an operation comes behind the one before, also when the stream of that one
// is gone.
static void streams(struct rank *r) {
  for (int k = 0; k < 100; k++) {
    void *s;
    OK(cuStreamCreate(&s, 1));
    fill(r, 1000);
    OK(ncclAllReduce(r->send, r->recv, 1000, ncclInt32, ncclSum, r->comm, s));
    OK(cuStreamDestroy(s));
    OK(cuStreamCreate(&r->stream, 1));
    OK(ncclBroadcast(r->recv, r->recv, 1000, ncclInt32, 1, r->comm, r->stream));
    check(r, 1000, want_sum);
    OK(cuStreamDestroy(r->stream));
  }
  leave(r);
}

// orders: in a group, ranks call the operations of two communicators, which share a stream, in different orders.
static void orders(struct rank *r) {
  enum { n = 1000 };
  ncclComm_t second;
  OK(ncclCommSplit(r->comm, 0, r->rank, &second, NULL));
  for (int k = 0; k < 40; k++) {
    fill(r, 2 * n);
    OK(ncclGroupStart());
    for (int i = 0; i < 4; i++) {
      int part = (i + r->rank + k) % 2;
      ncclComm_t c = part ? second : r->comm;
      if (i < 2) OK(ncclAllReduce((int *)r->send + part * n, (int *)r->recv + part * n, n, ncclInt32, ncclSum, c, r->stream));
      if (i >= 2) OK(ncclBroadcast((int *)r->recv + part * n, (int *)r->recv + part * n, n / 2, ncclInt32, k % ranks, c, r->stream));
    }
    OK(ncclGroupEnd());
    check(r, 2 * n, want_sum);
  }
  OK(ncclCommDestroy(second));
  leave(r);
}

// split: rows of two, a rank that is left out, and both communicators in use.
static void split(struct rank *r) {
  ncclComm_t row, none;
  int n;
  OK(ncclCommSplit(r->comm, r->rank / 2, -r->rank, &row, NULL));
  OK(ncclCommCount(row, &n));
  TRUE(n == 2);
  OK(ncclCommUserRank(row, &n));
  TRUE(n == 1 - r->rank % 2); // keys are descending
  OK(ncclCommSplit(r->comm, r->rank ? -1 : 0, 0, &none, NULL));
  TRUE(!none == (r->rank != 0));
  if (none) OK(ncclCommDestroy(none));
  fill(r, 100);
  OK(ncclAllReduce(r->send, r->recv, 100, ncclInt32, ncclSum, row, r->stream));
  OK(cuStreamSynchronize(r->stream));
  TRUE(got(r, 5) == input(r->rank, 5) + input(r->rank ^ 1, 5));
  OK(ncclCommFinalize(row));
  OK(ncclCommDestroy(row));
  leave(r);
}

// fault: rank 1 aborts. What rank 0 had enqueued does not end, and its error says so,
// until it aborts, too.
static void fault(struct rank *r) {
  fill(r, 1000);
  OK(ncclAllReduce(r->send, r->recv, 1000, ncclInt32, ncclSum, r->comm, r->stream));
  check(r, 1000, want_sum);
  fill(r, 1000);
  if (r->rank == 0) OK(ncclAllReduce(r->send, r->recv, 1000, ncclInt32, ncclSum, r->comm, r->stream));
  pthread_barrier_wait(&barrier);
  if (r->rank == 1) {
    OK(ncclCommAbort(r->comm));
    pthread_barrier_wait(&barrier);
    return;
  }
  ncclResult_t e = ncclSuccess;
  for (int i = 0; i < 3000 && e == ncclSuccess; i++) {
    usleep(10000);
    OK(ncclCommGetAsyncError(r->comm, &e));
  }
  TRUE(e == ncclRemoteError);
  usleep(500000);
  TRUE(cuStreamQuery(r->stream) == 600); // CUDA_ERROR_NOT_READY
  TRUE(ncclAllReduce(r->send, r->recv, 1000, ncclInt32, ncclSum, r->comm, r->stream) == ncclRemoteError);
  OK(ncclCommAbort(r->comm));
  OK(cuStreamSynchronize(r->stream));
  pthread_barrier_wait(&barrier);
}

// parts: rank 0 and, of four ranks, rank 1, whose operations have ended, abort. Those of the others do, too, also
// if they call them later; only what needs more of the first is an error.
static void parts(struct rank *r) {
  enum { n = 1000, calls = 3 };
  const int leaving = ranks > 3 ? 2 : 1;
  ncclResult_t e;
  fill(r, n);
  OK(ncclAllReduce(r->send, r->recv, n, ncclInt32, ncclSum, r->comm, r->stream));
  check(r, n, want_sum);
  fill(r, n);
  for (int k = 0; k < calls; k++) {
    if (r->rank >= leaving && k == 1) pthread_barrier_wait(&barrier);
    OK(ncclBroadcast(r->send, r->recv, n, ncclInt32, 0, r->comm, r->stream));
  }
  OK(cuStreamSynchronize(r->stream));
  if (r->rank < leaving) {
    OK(ncclCommAbort(r->comm));
    pthread_barrier_wait(&barrier);
    pthread_barrier_wait(&barrier);
    return;
  }
  TRUE(got(r, 5) == input(0, 5));
  OK(ncclCommGetAsyncError(r->comm, &e));
  TRUE(e == ncclSuccess);
  pthread_barrier_wait(&barrier);
  if (r->rank == leaving) TRUE(ncclAllReduce(r->send, r->recv, n, ncclInt32, ncclSum, r->comm, r->stream) == ncclRemoteError);
  for (int i = 0; i < 3000 && e == ncclSuccess; i++) {
    usleep(1000);
    OK(ncclCommGetAsyncError(r->comm, &e));
  }
  TRUE(e == ncclRemoteError);
  OK(ncclCommAbort(r->comm));
}

// shrink: rank 0 aborts, and the others go on without it, when what they had enqueued
// has ended by their own abort.
static void shrink(struct rank *r) {
  ncclResult_t e = ncclSuccess;
  ncclComm_t left;
  int n;
  fill(r, 1000);
  if (r->rank == 1) OK(ncclAllReduce(r->send, r->recv, 1000, ncclInt32, ncclSum, r->comm, r->stream));
  pthread_barrier_wait(&barrier);
  if (r->rank == 0) {
    OK(ncclCommAbort(r->comm));
    return;
  }
  for (int i = 0; i < 3000 && e == ncclSuccess; i++) {
    usleep(10000);
    OK(ncclCommGetAsyncError(r->comm, &e));
  }
  TRUE(e == ncclRemoteError);
  OK(ncclCommShrink(r->comm, (int[]){0}, 1, &left, NULL, 1));
  OK(cuStreamSynchronize(r->stream)); // it was held
  OK(ncclCommUserRank(left, &n));
  TRUE(n == r->rank - 1);
  fill(r, 1000);
  OK(ncclAllReduce(r->send, r->recv, 1000, ncclInt32, ncclSum, left, r->stream));
  OK(cuStreamSynchronize(r->stream));
  TRUE(got(r, 5) == sum(5) - input(0, 5));
  OK(ncclCommAbort(r->comm));
  OK(ncclCommDestroy(left));
}

// grow: all ranks but the last make a communicator, which that one then joins; then it
// is revoked. The rank that made the ID passes it, or none does, as in NCCL's guide.
static void grow(struct rank *r) {
  static ncclUniqueId few, more;
  for (int guide = 0; guide < 2; guide++) {
    ncclComm_t first = NULL, all;
    ncclResult_t e;
    if (r->rank == 0) OK(ncclGetUniqueId(&few));
    pthread_barrier_wait(&barrier);
    if (r->rank < ranks - 1) OK(ncclCommInitRank(&first, ranks - 1, few, r->rank));
    if (r->rank == 0) OK(ncclCommGetUniqueId(guide ? first : r->comm, &more));
    pthread_barrier_wait(&barrier);
    OK(ncclCommGrow(first, ranks, first && (guide || r->rank) ? NULL : &more, first ? -1 : r->rank, &all, NULL));
    fill(r, 1000);
    OK(ncclAllReduce(r->send, r->recv, 1000, ncclInt32, ncclSum, all, r->stream));
    check(r, 1000, want_sum);
    if (r->rank == 0) OK(ncclAllReduce(r->send, r->recv, 1000, ncclInt32, ncclSum, all, r->stream));
    pthread_barrier_wait(&barrier);
    OK(ncclCommRevoke(all, 0));
    OK(cuStreamSynchronize(r->stream)); // it does not end by itself
    OK(ncclCommGetAsyncError(all, &e));
    TRUE(e == ncclSuccess);
    TRUE(ncclAllReduce(r->send, r->recv, 1000, ncclInt32, ncclSum, all, r->stream) != ncclSuccess);
    OK(ncclCommAbort(all));
    if (first) OK(ncclCommDestroy(first));
  }
  leave(r);
}

// hang: the last rank is late, by twelve seconds.
static void hang(struct rank *r) {
  ncclComm_t c;
  static ncclUniqueId other;
  ncclConfig_t config = unset_config;
  config.commName = "dp";
  if (r->rank == 0) OK(ncclGetUniqueId(&other));
  pthread_barrier_wait(&barrier);
  OK(ncclCommInitRankConfig(&c, ranks, other, r->rank, &config));
  for (int k = 0; k < 2; k++) {
    fill(r, 1000);
    if (k == 1 && r->rank == ranks - 1) sleep(12);
    OK(ncclAllReduce(r->send, r->recv, 1000, ncclInt32, ncclSum, c, r->stream));
    check(r, 1000, want_sum);
  }
  OK(ncclCommDestroy(c));
  leave(r);
}

// nonblocking: nothing waits, and ncclCommGetAsyncError tells when it is done. An
// Abort ends what will never be.
static void nonblocking(struct rank *r) {
  ncclComm_t c, never;
  ncclUniqueId nobody;
  ncclConfig_t config = unset_config;
  config.blocking = 0;
  static ncclUniqueId other;
  if (r->rank == 0) OK(ncclGetUniqueId(&other));
  pthread_barrier_wait(&barrier);
  TRUE(ncclCommInitRankConfig(&c, ranks, other, r->rank, &config) == ncclInProgress);
  ncclResult_t e = ncclInProgress;
  for (int i = 0; i < 2000 && e == ncclInProgress; i++) {
    usleep(10000);
    OK(ncclCommGetAsyncError(c, &e));
  }
  TRUE(e == ncclSuccess);
  fill(r, 10);
  OK(ncclAllReduce(r->send, r->recv, 10, ncclInt32, ncclSum, c, r->stream));
  check(r, 10, want_sum);
  OK(ncclCommDestroy(c));
  OK(ncclGetUniqueId(&nobody));
  TRUE(ncclCommInitRankConfig(&never, ranks + 1, nobody, r->rank, &config) == ncclInProgress);
  TRUE(ncclAllReduce(r->send, r->recv, 10, ncclInt32, ncclSum, never, r->stream) == ncclInvalidArgument);
  OK(ncclCommAbort(never));
  leave(r);
}

// dies: rank 1 is killed. The others hear so, what they had enqueued does not end, and
// each can abort.
static void dies(struct rank *r) {
  ncclResult_t e = ncclSuccess;
  fill(r, 1000);
  OK(ncclAllReduce(r->send, r->recv, 1000, ncclInt32, ncclSum, r->comm, r->stream));
  check(r, 1000, want_sum);
  if (r->rank == 1) kill(getpid(), SIGKILL);
  fill(r, 1000);
  if (ncclAllReduce(r->send, r->recv, 1000, ncclInt32, ncclSum, r->comm, r->stream) != ncclSuccess) return; // it knows already
  for (int i = 0; i < 2000 && e == ncclSuccess; i++) {
    usleep(10000);
    OK(ncclCommGetAsyncError(r->comm, &e));
  }
  TRUE(e == ncclRemoteError);
  TRUE(strstr(ncclGetLastError(r->comm), "(rank 1)"));
  TRUE(cuStreamQuery(r->stream) == 600);
  OK(ncclCommAbort(r->comm));
  OK(cuStreamSynchronize(r->stream));
}

// processes runs this program once for each rank, which meet by a file, and returns how
// many of them were not right.
static int processes(const char *self, const char *test) {
  char name[] = "/tmp/libnccl-id-XXXXXX", number[16], count[16];
  int bad = 0, status, f = mkstemp(name);
  pid_t pid[16];
  TRUE(f >= 0 && ftruncate(f, 0) == 0);
  for (int i = 0; i < ranks; i++) {
    snprintf(number, sizeof number, "%d", i);
    snprintf(count, sizeof count, "%d", ranks);
    if ((pid[i] = fork()) == 0) {
      execl(self, self, test, count, number, name, NULL);
      _exit(127);
    }
  }
  for (int i = 0; i < ranks; i++) {
    waitpid(pid[i], &status, 0);
    bad += status != 0 && !(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL && i == 1);
  }
  unlink(name);
  return bad;
}

// process is one of them.
static void process(struct rank *r, const char *file) {
  if (r->rank == 0) {
    char next[256];
    OK(ncclGetUniqueId(&id));
    snprintf(next, sizeof next, "%s.new", file);
    FILE *f = fopen(next, "w");
    TRUE(f && fwrite(&id, sizeof id, 1, f) == 1 && fclose(f) == 0 && rename(next, file) == 0);
  }
  for (FILE *f = NULL; !f;) {
    if (!(f = fopen(file, "r")) || fread(&id, sizeof id, 1, f) != 1) {
      if (f) fclose(f);
      f = NULL;
      usleep(1000);
    }
  }
  start(r);
}

#include "lsa.h"

// single is one thread with all ranks.
static void single(void) {
  ncclComm_t all[16];
  struct rank r[16];
  int list[16];
  for (int i = 0; i < ranks; i++) list[i] = i % devices;
  OK(ncclCommInitAll(all, ranks, list));
  for (int i = 0; i < ranks; i++) {
    r[i] = (struct rank){.rank = i, .comm = all[i]};
    use_device(&r[i]);
    OK(cuStreamCreate(&r[i].stream, 1));
    OK(ncclMemAlloc(&r[i].send, most * sizeof(int)));
    OK(ncclMemAlloc(&r[i].recv, most * sizeof(int)));
  }
  ncclWindow_t windows[2][16];
  OK(ncclGroupStart());
  for (int i = 0; i < ranks; i++) {
    OK(ncclCommWindowRegister(all[i], r[i].send, most * sizeof(int), &windows[0][i], 1));
    OK(ncclCommWindowRegister(all[i], r[i].recv, most * sizeof(int), &windows[1][i], 1));
  }
  OK(ncclGroupEnd());
  width = 5000;
  for (int i = 0; i < ranks; i++) {
    use_device(&r[i]);
    fill(&r[i], width * ranks);
  }
  OK(ncclGroupStart());
  for (int i = 0; i < ranks; i++) OK(ncclAllGather(r[i].send, r[i].recv, width, ncclInt32, r[i].comm, r[i].stream));
  OK(ncclGroupEnd());
  for (int i = 0; i < ranks; i++) {
    use_device(&r[i]);
    check(&r[i], width * ranks, want_gathered);
    OK(ncclCommWindowDeregister(all[i], windows[0][i]));
    OK(ncclCommWindowDeregister(all[i], windows[1][i]));
  }
  for (int k = 0; k < 20; k++) {
    for (int i = 0; i < ranks; i++) {
      use_device(&r[i]);
      fill(&r[i], 5000);
    }
    OK(ncclGroupStart());
    for (int i = 0; i < ranks; i++) OK(ncclAllReduce(r[i].send, r[i].recv, 5000, ncclInt32, ncclSum, r[i].comm, r[i].stream));
    OK(ncclGroupEnd());
    for (int i = 0; i < ranks; i++) {
      use_device(&r[i]);
      check(&r[i], 5000, want_sum);
    }
  }
  lsa_single(r, all);
  for (int i = 0; i < ranks; i++) OK(ncclCommDestroy(all[i])); // one after another
}

#include "api.h"

int main(int argc, char **argv) {
  static const struct {
    const char *name;
    void (*run)(struct rank *);
  } tests[] = {{"collectives", collectives}, {"normed", normed}, {"windows", windows}, {"lsa", lsa}, {"streams", streams}, {"split", split}, {"fault", fault}, {"shrink", shrink}, {"grow", grow}, {"hang", hang}, {"nonblocking", nonblocking}, {"dies", dies},
               {"memory", memory}, {"simulate", simulate}, {"allocation", allocation}, {"configured", configured}, {"suspended", suspended}, {"scarce", scarce}, {"restarts", restarts}, {"counts", counts}, {"nested", nested}, {"captured", captured}, {"mixed", mixed}, {"orders", orders}, {"parts", parts}};
  if (argc != 3 && argc != 5) return 2;
  ranks = atoi(argv[2]);
  if (argc == 3 && !strcmp(argv[1], "dies")) return processes(argv[0], argv[1]);
  if (argc == 3 && !strcmp(argv[1], "processes")) return processes(argv[0], "streams");
  if (argc == 3 && !strcmp(argv[1], "apart")) return processes(argv[0], "lsa");
  if (!strcmp(argv[1], "forks")) { // before anything is used
    forks();
    return 0;
  }
  driver();
  OK(cuDeviceGetCount(&devices));
  for (int i = 0; i < devices && i < 16; i++) OK(cuDevicePrimaryCtxRetain(&context_of[i], i));
  if (!strcmp(argv[1], "single")) {
    single();
    return 0;
  }
  for (unsigned t = 0; t < sizeof tests / sizeof *tests; t++) {
    if (strcmp(argv[1], tests[t].name)) continue;
    struct rank r[16];
    if (argc == 5) {
      r[0] = (struct rank){.rank = atoi(argv[3]), .run = tests[t].run};
      process(&r[0], argv[4]);
      return 0;
    }
    pthread_t threads[16];
    pthread_barrier_init(&barrier, NULL, ranks);
    OK(ncclGetUniqueId(&id));
    for (int i = 0; i < ranks; i++) {
      r[i] = (struct rank){.rank = i, .run = tests[t].run};
      pthread_create(&threads[i], NULL, start, &r[i]);
    }
    for (int i = 0; i < ranks; i++) pthread_join(threads[i], NULL);
    return 0;
  }
  return 2;
}
