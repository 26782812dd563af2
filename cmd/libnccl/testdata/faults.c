// faults KIND VICTIM RANKS RANK DEVICE FILE: one rank of a job, a process with a GPU, which uses
// NCCL's API as training does, and in which one rank, the victim, does something wrong in
// the middle, after MIDDLE rounds. Whatever a synchronized stream has given is checked: wrong data
// exit with 3. With AHEAD=N the program calls N more operations before it synchronizes, as training
// does.
#include <dlfcn.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "nccl.h"

static int (*cuInit)(unsigned), (*cuDevicePrimaryCtxRetain)(void **, int), (*cuCtxSetCurrent)(void *), (*cuStreamCreate)(void **, unsigned), (*cuStreamSynchronize)(void *),
    (*cuMemcpyHtoD)(uintptr_t, const void *, size_t), (*cuMemcpyDtoH)(void *, uintptr_t, size_t), (*cuMemHostAlloc)(void **, size_t, unsigned),
    (*cuMemHostGetDevicePointer)(uintptr_t *, void *, unsigned), (*cuStreamWaitValue32)(void *, uintptr_t, uint32_t, unsigned),
    (*cuStreamBeginCapture)(void *, int), (*cuStreamEndCapture)(void *, void **), (*cuGraphInstantiate)(void **, void *, unsigned long long), (*cuGraphLaunch)(void *, void *);

static void die(const char *what, int line) {
  fprintf(stderr, "line %d: %s: %s\n", line, what, ncclGetLastError(NULL));
  _exit(1);
}
#define OK(call) \
  do { if ((call) != 0) die(#call, __LINE__); } while (0)

static void driver(void) {
  void *h = dlopen("libcuda.so.1", RTLD_NOW);
  if (!h) die("libcuda.so.1", __LINE__);
#define FIND(name, symbol) *(void **)&name = dlsym(h, symbol)
  FIND(cuInit, "cuInit");
  FIND(cuDevicePrimaryCtxRetain, "cuDevicePrimaryCtxRetain");
  FIND(cuCtxSetCurrent, "cuCtxSetCurrent");
  FIND(cuStreamCreate, "cuStreamCreate");
  FIND(cuStreamSynchronize, "cuStreamSynchronize");
  FIND(cuMemcpyHtoD, "cuMemcpyHtoD_v2");
  FIND(cuMemcpyDtoH, "cuMemcpyDtoH_v2");
  FIND(cuMemHostAlloc, "cuMemHostAlloc");
  FIND(cuMemHostGetDevicePointer, "cuMemHostGetDevicePointer_v2");
  FIND(cuStreamWaitValue32, "cuStreamWaitValue32_v2");
  FIND(cuStreamBeginCapture, "cuStreamBeginCapture_v2");
  FIND(cuStreamEndCapture, "cuStreamEndCapture");
  FIND(cuGraphInstantiate, "cuGraphInstantiateWithFlags");
  FIND(cuGraphLaunch, "cuGraphLaunch");
  OK(cuInit(0));
}

enum { rest = 6, most = 1 << 14, float32 = 7, max = 2 };
static int ranks, rank, victim, device, middle = 6;
static const char *kind;
static ncclComm_t dp, tp;
static void *stream, *send, *recv, *spare;
static int ahead;

static int is(const char *k) { return rank == victim && !strcmp(kind, k); }

// mark says when the victim does what is wrong, in nanoseconds since 1970.
static void mark(void) {
  struct timespec t;
  clock_gettime(CLOCK_REALTIME, &t);
  if (rank == victim) fprintf(stderr, "fault at %ld%09ld\n", t.tv_sec, t.tv_nsec);
}
static int input(int r, int i) { return (r + 1) * (i % 97 + 1); }
static int sum(int i) { return input(0, i) * (ranks * (ranks + 1) / 2); }

// upload copies to a device. The driver's call may return before memory that is not pinned has arrived, and other
// streams than the default one do not wait for it.
static void upload(uintptr_t to, const void *from, size_t n) {
  OK(cuMemcpyHtoD(to, from, n));
  OK(cuStreamSynchronize(NULL));
}

static void fill(int n) {
  static int b[most];
  for (int i = 0; i < n; i++) b[i] = input(rank, i);
  upload((uintptr_t)send, b, n * sizeof *b);
  memset(b, -1, n * sizeof *b);
  upload((uintptr_t)recv, b, n * sizeof *b);
}

// check synchronizes, and looks at what came.
static void check(int round, int n, int gathered) {
  static int b[most];
  OK(cuStreamSynchronize(stream));
  OK(cuMemcpyDtoH(b, (uintptr_t)recv, n * sizeof *b));
  for (int i = 0; i < n; i++) {
    int want = gathered ? input(i / (n / ranks), i % (n / ranks)) : sum(i);
    if (b[i] == want) continue;
    fprintf(stderr, "WRONG DATA: rank %d, round %d: element %d is %d; want %d\n", rank, round, i, b[i], want);
    _exit(3);
  }
}

// meet has a rank wait until the network was cut, which the test does when all are here.
static void meet(const char *file) {
  char path[256];
  snprintf(path, sizeof path, "%s.here.%d", file, rank);
  FILE *f = fopen(path, "w");
  if (!f || fclose(f)) die(path, __LINE__);
  snprintf(path, sizeof path, "%s.cut", file);
  while (access(path, F_OK)) usleep(1000);
}

// block puts something on the stream that never ends.
static void block(void) {
  static void *word;
  uintptr_t at;
  OK(cuMemHostAlloc(&word, 4, 2));
  memset(word, 0, 4);
  OK(cuMemHostGetDevicePointer(&at, word, 0));
  OK(cuStreamWaitValue32(stream, at, 1, 0));
}

// run_ahead calls operations that leave the result as it is.
static void run_ahead(int n) {
  for (int k = 0; k < ahead; k++) {
    if (k % 3 == 2)
      OK(ncclAllGather(recv, spare, n / ranks, ncclInt32, tp, stream));
    else
      OK(ncclAllReduce(recv, recv, n, ncclInt32, max, dp, stream));
  }
}

// ring has every rank send to the next one; the victim does not receive.
static void ring(void) {
  mark();
  OK(ncclGroupStart());
  OK(ncclSend(send, most / 2, ncclInt32, (rank + 1) % ranks, dp, stream));
  if (!is("recv")) OK(ncclRecv(spare, most / 2, ncclInt32, (rank + ranks - 1) % ranks, dp, stream));
  OK(ncclGroupEnd());
}

// crossed calls an operation of each communicator, the victim the other way round.
static void crossed(int n) {
  mark();
  if (is("cross")) OK(ncclAllGather(send, spare, n / ranks, ncclInt32, tp, stream));
  OK(ncclAllReduce(send, recv, n, ncclInt32, ncclSum, dp, stream));
  if (!is("cross")) OK(ncclAllGather(send, spare, n / ranks, ncclInt32, tp, stream));
}

// wrong does what the victim does before the AllReduce of the middle; it returns 1 if that
// takes the AllReduce's place.
static int wrong(int n) {
  if (strcmp(kind, "root")) mark();
  if (is("kill")) raise(SIGKILL);
  if (is("stop")) raise(SIGSTOP);
  if (is("late")) sleep(5);
  if (is("block")) block();
  while (is("never")) pause();
  if (is("leave")) ncclCommDestroy(dp);
  while (is("leave")) pause();
  ncclResult_t r = ncclSuccess;
  if (is("count"))
    r = ncclAllReduce(send, recv, 2 * n, ncclInt32, ncclSum, dp, stream);
  else if (is("type"))
    r = ncclAllReduce(send, recv, n, float32, ncclSum, dp, stream);
  else if (is("reduction"))
    r = ncclAllReduce(send, recv, n, ncclInt32, max, dp, stream);
  else if (is("order"))
    r = ncclAllGather(send, recv, n / ranks, ncclInt32, dp, stream);
  else
    return is("skip");
  OK(r);
  return 1;
}

// root has a Broadcast, of which the victim takes another rank for the root.
static void root(int n) {
  static int b[most];
  int from = is("root") ? 1 : 0;
  if (!strcmp(kind, "root")) mark();
  fill(n);
  OK(ncclBroadcast(send, recv, n, ncclInt32, from, dp, stream));
  if (!strcmp(kind, "root")) run_ahead(n);
  OK(cuStreamSynchronize(stream));
  OK(cuMemcpyDtoH(b, (uintptr_t)recv, n * sizeof *b));
  for (int i = 0; i < n; i++) {
    if (b[i] == input(from, i)) continue;
    fprintf(stderr, "WRONG DATA: rank %d: element %d of the Broadcast is %d; want %d\n", rank, i, b[i], input(from, i));
    _exit(3);
  }
}

// graph replays an AllReduce in a CUDA graph, which the victim does not launch any more.
static void graph(int n) {
  void *captured, *run;
  OK(cuStreamBeginCapture(stream, 0)); // global: what the library does beside must not spoil it
  OK(ncclAllReduce(send, recv, n, ncclInt32, ncclSum, dp, stream));
  sleep(2);
  OK(cuStreamEndCapture(stream, &captured));
  OK(cuGraphInstantiate(&run, captured, 0));
  for (int k = 0; k < 4; k++) {
    if (k == 3) {
      mark();
      while (is("graph")) pause();
    }
    fill(n);
    OK(cuGraphLaunch(run, stream));
    check(k, n, 0);
  }
}

static ncclComm_t join(const char *file, const char *name) {
  char path[256], next[280];
  ncclUniqueId id;
  ncclComm_t c;
  ncclConfig_t config = unset_config;
  config.commName = name;
  snprintf(path, sizeof path, "%s.%s", file, name);
  snprintf(next, sizeof next, "%s.new", path);
  if (rank == 0) {
    OK(ncclGetUniqueId(&id));
    FILE *f = fopen(next, "w");
    if (!f || fwrite(&id, sizeof id, 1, f) != 1 || fclose(f) || rename(next, path)) die(path, __LINE__);
  }
  for (FILE *f = NULL; !f; usleep(1000))
    if ((f = fopen(path, "r")) && fread(&id, sizeof id, 1, f) != 1) f = NULL;
  OK(ncclCommInitRankConfig(&c, ranks, id, rank, &config));
  return c;
}

int main(int argc, char **argv) {
  void *context;
  if (argc != 7) return 2;
  kind = argv[1], victim = atoi(argv[2]), ranks = atoi(argv[3]), rank = atoi(argv[4]), device = atoi(argv[5]);
  driver();
  OK(cuDevicePrimaryCtxRetain(&context, device));
  OK(cuCtxSetCurrent(context));
  OK(cuStreamCreate(&stream, 1));
  OK(ncclMemAlloc(&send, most * sizeof(int)));
  OK(ncclMemAlloc(&recv, most * sizeof(int)));
  OK(ncclMemAlloc(&spare, most * sizeof(int)));
  if (getenv("MIDDLE")) middle = atoi(getenv("MIDDLE"));
  if (getenv("AHEAD")) ahead = atoi(getenv("AHEAD"));
  dp = join(argv[6], "dp");
  tp = join(argv[6], "tp");
  for (int round = 0; round < middle + rest; round++) {
    const int n = ranks * (100 + 50 * round);
    if (round == middle) root(n);
    if (round == middle && !strcmp(kind, "cut")) meet(argv[6]);
    if (round == middle && !strcmp(kind, "graph")) graph(n);
    fill(n);
    if (round == middle && !strcmp(kind, "recv")) ring();
    if (round == middle && !strcmp(kind, "cross")) crossed(n);
    if (round != middle || !wrong(n)) OK(ncclAllReduce(send, recv, n, ncclInt32, ncclSum, dp, stream));
    if (round == middle) run_ahead(n);
    if (round == middle && is("skip")) continue;
    check(round, n, 0);
    fill(n);
    OK(ncclAllGather(send, recv, n / ranks, ncclInt32, tp, stream));
    check(round, n, 1);
  }
  printf("rank %d is done\n", rank);
  fflush(stdout);
  OK(ncclCommDestroy(tp));
  OK(ncclCommDestroy(dp));
  return 0;
}
