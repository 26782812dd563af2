// Tests of ranks.c: the API beside operations.

static uint64_t stat(ncclComm_t c, ncclCommMemStat_t which) {
  uint64_t v = 1;
  OK(ncclCommMemStats(c, which, &v));
  return v;
}

static size_t free_memory(void) {
  size_t left, all;
  OK(cuMemGetInfo(&left, &all));
  return left;
}

// meet makes more communicators of all ranks.
static void meet(struct rank *r, ncclComm_t *c, int n) {
  static ncclUniqueId ids[16];
  for (int i = 0; i < n && r->rank == 0; i++) OK(ncclGetUniqueId(&ids[i]));
  pthread_barrier_wait(&barrier);
  for (int i = 0; i < n; i++) OK(ncclCommInitRank(&c[i], ranks, ids[i], r->rank));
  pthread_barrier_wait(&barrier);
}

// accounted holds what communicators say that they take against what the driver has given
// away since there was so much. In the emulated driver every stream, event and piece of
// pinned memory takes a byte of it, whichever device it is of.
static void accounted(struct rank *r, const ncclComm_t *c, int n, size_t before) {
  static uint64_t all;
  static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
  pthread_barrier_wait(&barrier);
  all = 0;
  pthread_barrier_wait(&barrier);
  pthread_mutex_lock(&lock);
  for (int i = 0; i < n; i++) {
    uint64_t own = stat(c[i], ncclStatGpuMemSuspend), shared = stat(c[i], ncclStatGpuMemPersist);
    TRUE(own > 0 && stat(c[i], ncclStatGpuMemSuspended) == 0 && stat(c[i], ncclStatGpuMemTotal) == own + shared);
    all += own + shared;
  }
  pthread_mutex_unlock(&lock);
  pthread_barrier_wait(&barrier);
  uint64_t taken = before - free_memory();
  if (r->rank == 0) fprintf(stderr, "%d communicators of %d ranks take %llu bytes, and say %llu\n", n, ranks, (unsigned long long)taken, (unsigned long long)all);
  TRUE(taken >= all && taken - all < 1000);
  pthread_barrier_wait(&barrier);
}

// memory: one communicator and ten of a device, all in use, say what they take, and leave
// nothing behind.
static void memory(struct rank *r) {
  ncclComm_t c[10];
  uint64_t v;
  pthread_barrier_wait(&barrier);
  OK(ncclCommDestroy(r->comm));
  pthread_barrier_wait(&barrier);
  size_t before = free_memory();
  meet(r, c, 1);
  accounted(r, c, 1, before);
  meet(r, c + 1, 9);
  accounted(r, c, 10, before);
  for (int i = 0; i < 10; i++) {
    fill(r, 1000);
    OK(ncclAllReduce(r->send, r->recv, 1000, ncclInt32, ncclSum, c[i], r->stream));
    check(r, 1000, want_sum);
  }
  TRUE(ncclCommMemStats(c[0], 4, &v) == ncclInvalidArgument);
  TRUE(ncclCommMemStats(c[0], ncclStatGpuMemTotal, NULL) == ncclInvalidArgument);
  for (int i = 5; i < 10; i++) OK(ncclCommDestroy(c[i]));
  accounted(r, c, 5, before); // what the others have left is shared
  for (int i = 0; i < 5; i++) OK(ncclCommDestroy(c[i]));
  pthread_barrier_wait(&barrier);
  TRUE(free_memory() == before);
  pthread_barrier_wait(&barrier);
  OK(ncclMemFree(r->send));
  OK(ncclMemFree(r->recv));
}

#define SIM_INFO ((ncclSimInfo_t){sizeof(ncclSimInfo_t), SIM_MAGIC, 23007, -1})

// simulate: a group that is reckoned is over, and nothing of it was done.
static void simulate(struct rank *r) {
  ncclSimInfo_t one = SIM_INFO, two = SIM_INFO, none = SIM_INFO, bad = SIM_INFO;
  fill(r, 1000);
  OK(ncclGroupStart());
  OK(ncclAllReduce(r->send, r->recv, 1000, ncclInt32, ncclSum, r->comm, r->stream));
  OK(ncclGroupSimulateEnd(&one));
  TRUE(one.estimatedTime > 0.1 && one.estimatedTime < 1000);
  OK(ncclGroupStart());
  OK(ncclGroupStart());
  for (int i = 0; i < 2; i++) OK(ncclAllReduce(r->send, r->recv, 1000, ncclInt32, ncclSum, r->comm, r->stream));
  OK(ncclGroupSimulateEnd(&none)); // the outer one goes on
  TRUE(none.estimatedTime == -1);
  OK(ncclGroupSimulateEnd(&two));
  TRUE(two.estimatedTime > 1.99 * one.estimatedTime && two.estimatedTime < 2.01 * one.estimatedTime);
  OK(ncclGroupStart());
  OK(ncclSend(r->send, most, ncclInt32, (r->rank + 1) % ranks, r->comm, r->stream));
  OK(ncclRecv(r->recv, most, ncclInt32, (r->rank + 1) % ranks, r->comm, r->stream));
  OK(ncclGroupSimulateEnd(&two));
  TRUE(two.estimatedTime > 0.1);
  OK(ncclGroupStart());
  OK(ncclGroupSimulateEnd(&none));
  TRUE(none.estimatedTime == 0);
  TRUE(ncclGroupSimulateEnd(&bad) == ncclInvalidUsage);
  OK(ncclGroupStart());
  TRUE(ncclAllReduce(r->send, r->recv, 10, 12, ncclSum, r->comm, r->stream) == ncclInvalidArgument); // and its end says so, too
  TRUE(ncclGroupSimulateEnd(&bad) == ncclInvalidArgument && bad.estimatedTime == -1);
  bad.magic = 0;
  OK(ncclGroupStart());
  OK(ncclAllReduce(r->send, r->recv, 10, ncclInt32, ncclSum, r->comm, r->stream));
  TRUE(ncclGroupSimulateEnd(&bad) == ncclInvalidArgument && bad.estimatedTime == -1);
  OK(ncclGroupStart());
  OK(ncclGroupSimulateEnd(NULL));
  OK(cuStreamSynchronize(r->stream));
  TRUE(got(r, 5) == -1); // nothing has come
  OK(ncclAllReduce(r->send, r->recv, 1000, ncclInt32, ncclSum, r->comm, r->stream));
  check(r, 1000, want_sum);
  leave(r);
}

// entries counts those of a directory: /proc/self/fd, /proc/self/task.
static int entries(const char *directory) {
  DIR *d = opendir(directory);
  int n = 0;
  TRUE(d);
  while (readdir(d)) n++;
  closedir(d);
  return n;
}

// exported sees, by a file descriptor, what is written to memory of ncclMemAlloc.
static void exported(void *at) {
  uint64_t handle;
  int file, three = 3;
  OK(cuMemRetainAllocationHandle(&handle, at));
  OK(cuMemExportToShareableHandle(&file, handle, 1, 0)); // as a POSIX file descriptor
  OK(cuMemRelease(handle));
  int *shared = mmap(NULL, 2 << 20, PROT_READ, MAP_SHARED, file, 0);
  TRUE(shared != MAP_FAILED);
  OK(cuMemcpyHtoD((uintptr_t)at, &three, sizeof three));
  TRUE(*shared == 3);
  munmap(shared, 2 << 20);
  close(file);
}

// allocation: memory is zeroed, can be given to other processes, and is freed once.
static void allocation(struct rank *r) {
  static const char *const steps[] = {"cuMemCreate 1", "cuMemAddressReserve 1", "cuMemMap 1", "cuMemSetAccess 1", "cuStreamCreate 1"};
  int whole = getenv("FAKE_NO_VMM") == NULL, files = entries("/proc/self/fd"), here;
  size_t before = free_memory();
  void *p, *q;
  char bytes[5];
  OK(ncclMemAlloc(&p, sizeof bytes));
  OK(cuMemcpyDtoH(bytes, (uintptr_t)p, sizeof bytes));
  TRUE(!memcmp(bytes, "\0\0\0\0", sizeof bytes));
  TRUE(before - free_memory() == (whole ? 2 << 20 : sizeof bytes)); // its granularity
  if (whole) exported(p);
  TRUE(ncclMemFree((char *)p + 1) == ncclInvalidArgument);
  TRUE(ncclMemFree(&here) == ncclInvalidArgument);
  OK(ncclMemFree(NULL));
  OK(ncclMemFree(p));
  TRUE(ncclMemFree(p) == ncclInvalidArgument && strstr(ncclGetLastError(NULL), "no memory of this library's"));
  TRUE(ncclMemAlloc(&p, 0) == ncclSuccess && p == NULL);
  TRUE(ncclMemAlloc(&p, SIZE_MAX) == ncclInvalidArgument);
  TRUE(!whole || ncclMemAlloc(&p, SIZE_MAX / 4) == ncclUnhandledCudaError);
  for (int i = 0; whole && i < 5; i++) {
    setenv("FAKE_FAIL", steps[i], 1);
    TRUE(ncclMemAlloc(&q, 3 << 20) == ncclUnhandledCudaError);
    unsetenv("FAKE_FAIL");
    TRUE(free_memory() == before);
  }
  OK(ncclMemAlloc(&p, 3 << 20));
  OK(ncclMemFree(p));
  TRUE(free_memory() == before && entries("/proc/self/fd") == files);
  leave(r);
}

// configured: a child has the configuration that it is given, or is like its parent.
static void configured(struct rank *r) {
  ncclConfig_t config = unset_config;
  config.blocking = 0, config.maxCTAs = 2;
  ncclComm_t child, grandchild, own;
  ncclResult_t e = ncclInProgress;
  static ncclUniqueId more;
  TRUE(ncclCommSplit(r->comm, 0, r->rank, &child, &config) == ncclInProgress);
  while (e == ncclInProgress) OK(ncclCommGetAsyncError(child, &e));
  TRUE(e == ncclSuccess);
  TRUE(ncclCommSplit(child, 0, r->rank, &grandchild, NULL) == ncclInProgress); // as its parent
  for (e = ncclInProgress; e == ncclInProgress;) OK(ncclCommGetAsyncError(grandchild, &e));
  TRUE(e == ncclSuccess);
  // NCCL's guide polls the parent, and then uses the child. A rank that is left out gets none.
  ncclComm_t row, none;
  for (int k = 0; k < 5; k++) {
    ncclResult_t first = ncclCommSplit(child, 0, r->rank, &row, &config);
    for (e = first; e == ncclInProgress;) OK(ncclCommGetAsyncError(child, &e));
    TRUE(e == ncclSuccess && row);
    fill(r, 1000);
    OK(ncclAllReduce(r->send, r->recv, 1000, ncclInt32, ncclSum, row, r->stream));
    check(r, 1000, want_sum);
    OK(ncclCommDestroy(row));
    first = ncclCommSplit(child, r->rank ? -1 : 0, 0, &none, &config);
    for (e = first; e == ncclInProgress;) OK(ncclCommGetAsyncError(child, &e));
    TRUE(e == ncclSuccess && !none == (r->rank != 0));
    OK(ncclCommDestroy(none));
  }
  fill(r, 1000);
  OK(ncclAllReduce(r->send, r->recv, 1000, ncclInt32, ncclSum, grandchild, r->stream));
  check(r, 1000, want_sum);
  config.blocking = 1;
  OK(ncclCommSplit(child, 0, r->rank, &own, &config));
  OK(ncclCommDestroy(own));
  config.collnetEnable = 2;
  TRUE(ncclCommSplit(r->comm, 0, r->rank, &own, &config) == ncclInvalidArgument);
  if (r->rank == 0) OK(ncclCommGetUniqueId(r->comm, &more));
  pthread_barrier_wait(&barrier);
  TRUE(ncclCommGrow(r->comm, ranks + 1, r->rank ? NULL : &more, -1, &own, &config) == ncclInvalidArgument);
  TRUE(ncclCommShrink(r->comm, (int[]){1 - r->rank}, 1, &own, &config, 0) == ncclInvalidArgument);
  e = ncclCommFinalize(grandchild);
  TRUE(e == ncclInProgress || e == ncclSuccess);
  for (e = ncclInProgress; e == ncclInProgress;) OK(ncclCommGetAsyncError(grandchild, &e));
  TRUE(e == ncclSuccess);
  OK(ncclCommDestroy(grandchild));
  OK(ncclCommDestroy(child));
  leave(r);
}

// about is equal, but for some events or pieces of the processor's memory.
static int about(size_t a, size_t b) { return a + 8 >= b && b + 8 >= a; }

// suspended: the driver has the window back until the communicator is resumed, whatever
// others there are, and results are right afterwards.
static void suspended(struct rank *r) {
  ncclComm_t c, both[2];
  void *stream = r->stream;
  meet(r, &c, 1);
  uint64_t own = stat(c, ncclStatGpuMemSuspend);
  TRUE(own > 0 || getenv("NCCL_P2P_DISABLE"));
  TRUE(ncclCommResume(c) == ncclInvalidUsage);
  for (int k = 0; k < 3; k++) {
    fill(r, 9000);
    OK(ncclAllReduce(r->send, r->recv, 9000, ncclInt32, ncclSum, c, stream));
    pthread_barrier_wait(&barrier);
    size_t before = free_memory();
    pthread_barrier_wait(&barrier);
    OK(ncclCommSuspend(c, 1)); // when that operation has ended
    check(r, 9000, want_sum);
    pthread_barrier_wait(&barrier);
    TRUE(about(free_memory(), before + ranks * own));
    TRUE(stat(c, ncclStatGpuMemSuspended) == 1 && stat(c, ncclStatGpuMemSuspend) == 0);
    TRUE(ncclAllReduce(r->send, r->recv, 10, ncclInt32, ncclSum, c, stream) == ncclInvalidUsage && strstr(ncclGetLastError(NULL), "suspended"));
    TRUE(ncclCommSuspend(c, 1) == ncclInvalidUsage);
    fill(r, 1000);
    OK(ncclAllReduce(r->send, r->recv, 1000, ncclInt32, ncclSum, r->comm, stream)); // another one goes on
    check(r, 1000, want_sum);
    pthread_barrier_wait(&barrier);
    OK(ncclCommResume(c));
    pthread_barrier_wait(&barrier);
    TRUE(about(free_memory(), before) && stat(c, ncclStatGpuMemSuspended) == 0 && stat(c, ncclStatGpuMemSuspend) == own);
    pthread_barrier_wait(&barrier);
  }
  both[0] = c, both[1] = r->comm;
  OK(ncclGroupStart());
  for (int i = 0; i < 2; i++) OK(ncclCommSuspend(both[i], 1));
  OK(ncclGroupEnd());
  fill(r, 1000);
  OK(ncclGroupStart());
  for (int i = 0; i < 2; i++) OK(ncclCommResume(both[i]));
  OK(ncclAllReduce(r->send, r->recv, 1000, ncclInt32, ncclSum, c, stream));
  OK(ncclGroupEnd());
  check(r, 1000, want_sum);
  OK(ncclCommSuspend(c, 1));
  OK(ncclCommDestroy(c)); // as it is
  leave(r);
}

// scarce: where a rank gets no memory, no rank is resumed, and all may try again.
static void scarce(struct rank *r) {
  OK(ncclCommSuspend(r->comm, 1));
  pthread_barrier_wait(&barrier);
  if (r->rank == 0) setenv("FAKE_FAIL", "cuMemAlloc 1", 1);
  pthread_barrier_wait(&barrier);
  TRUE(ncclCommResume(r->comm) == ncclInvalidUsage);
  TRUE(stat(r->comm, ncclStatGpuMemSuspended) == 1);
  pthread_barrier_wait(&barrier);
  unsetenv("FAKE_FAIL");
  pthread_barrier_wait(&barrier);
  OK(ncclCommResume(r->comm));
  fill(r, 1000);
  OK(ncclAllReduce(r->send, r->recv, 1000, ncclInt32, ncclSum, r->comm, r->stream));
  check(r, 1000, want_sum);
  leave(r);
}

// captured: a communicator with an operation in a graph stays as it is.
static void captured(struct rank *r) {
  void *graph, *run;
  pthread_barrier_wait(&barrier);
  OK(cuStreamBeginCapture(r->stream, 0)); // global: no thread may make calls that ask or allocate
  OK(ncclAllReduce(r->send, r->recv, 1000, ncclInt32, ncclSum, r->comm, r->stream));
  OK(cuStreamEndCapture(r->stream, &graph));
  pthread_barrier_wait(&barrier); // which the other rank's thread does from here on
  OK(cuGraphInstantiate(&run, graph, 0));
  for (int k = 0; k < 2; k++) {
    fill(r, 1000);
    OK(cuGraphLaunch(run, r->stream));
    check(r, 1000, want_sum);
    TRUE(ncclCommSuspend(r->comm, 1) == ncclInvalidUsage && strstr(ncclGetLastError(NULL), "CUDA graph has operations of rank 0"));
  }
  leave(r);
}

enum { area_width = 6000, eager = 5, sent = 6, copied = 7, areas = 8 };

// reduce sums an area of the buffers, of which each has other values.
static void reduce(struct rank *r, int area, int n, void *stream) {
  OK(ncclAllReduce((int *)r->send + area * area_width, (int *)r->recv + area * area_width, n, ncclInt32, ncclSum, r->comm, stream));
}

// exchange sends an area to the next rank, on one stream, and receives one on another.
static ncclResult_t exchange(struct rank *r, void *s, void *other) {
  OK(ncclGroupStart());
  OK(ncclSend((int *)r->send + sent * area_width, 700, ncclInt32, (r->rank + 1) % ranks, r->comm, s));
  OK(ncclRecv((int *)r->recv + sent * area_width, 700, ncclInt32, (r->rank + ranks - 1) % ranks, r->comm, other));
  return ncclGroupEnd();
}

// graphs captures three graphs: operations on two streams of one graph, which nothing orders;
// operations on one; and an exchange of which the Send and the Recv are on two streams, with a
// copy of what has come.
static void graphs(struct rank *r, void **streams, void **made) {
  void *event, *graph;
  OK(cuEventCreate(&event, 2));
  OK(cuStreamBeginCapture(streams[0], 1));
  TRUE(exchange(r, streams[0], streams[1]) == ncclInvalidUsage && strstr(ncclGetLastError(NULL), "captured in one graph or none is"));
  OK(cuStreamEndCapture(streams[0], &graph));
  for (int k = 0; k < 3; k++) {
    void *s = streams[k], *other = streams[3];
    OK(cuStreamBeginCapture(s, 1));
    if (k == 1) {
      reduce(r, 3, 2000, s);
      reduce(r, 4, 8, s);
    } else {
      OK(cuEventRecord(event, s));
      OK(cuStreamWaitEvent(other, event, 0));
      if (k == 0) {
        reduce(r, 0, 300, s);
        reduce(r, 1, 5000, other);
        reduce(r, 2, 40, s);
      } else {
        OK(exchange(r, s, other));
        OK(cuMemcpyAsync((uintptr_t)((int *)r->recv + copied * area_width), (uintptr_t)((int *)r->recv + sent * area_width), 700 * sizeof(int), other));
      }
      OK(cuEventRecord(event, other));
      OK(cuStreamWaitEvent(s, event, 0));
    }
    OK(cuStreamEndCapture(s, &graph));
    OK(cuGraphInstantiate(&made[k], graph, 0));
  }
}

// mixed: graphs and calls of one communicator, on streams of their own, which nothing orders
// but that all ranks launch them one after the other. ROUNDS is how many there are of 12 launches.
static void mixed(struct rank *r) {
  static const int counts[areas] = {300, 5000, 40, 2000, 8, 1000, 700, 700}, graph_of[areas] = {0, 0, 0, 1, 1, 3, 2, 2};
  void *streams[5], *made[3];
  int *b = malloc(areas * area_width * sizeof *b);
  for (int k = 0; k < 5; k++) OK(cuStreamCreate(&streams[k], 1));
  for (int i = 0; i < areas * area_width; i++) b[i] = input(r->rank, i % area_width) * (i / area_width + 1);
  OK(cuMemcpyHtoD((uintptr_t)r->send, b, areas * area_width * sizeof *b));
  reduce(r, eager, 1000, streams[4]);
  graphs(r, streams, made);
  unsigned order = 1, wait = r->rank;
  const int rounds = getenv("ROUNDS") ? atoi(getenv("ROUNDS")) : 12;
  for (int round = 0; round < rounds; round++) {
    int launched = 0;
    for (int k = 0; k < 5; k++) OK(cuStreamSynchronize(streams[k]));
    memset(b, -1, areas * area_width * sizeof *b);
    OK(cuMemcpyHtoD((uintptr_t)r->recv, b, areas * area_width * sizeof *b));
    for (int k = 0; k < 12; k++) {
      int what = rand_r(&order) % 4;
      if (rand_r(&wait) % 4 == 0) usleep(rand_r(&wait) % 3000);
      if (what == 3) reduce(r, eager, 1000, streams[4]);
      else OK(cuGraphLaunch(made[what], streams[what]));
      launched |= 1 << what;
    }
    for (int k = 0; k < 5; k++) OK(cuStreamSynchronize(streams[k]));
    for (int a = 0; a < areas; a++) {
      for (int i = 0; i < counts[a]; i += 1 + counts[a] / 100) {
        int want = (a == sent || a == copied ? input((r->rank + ranks - 1) % ranks, i) * (sent + 1) : sum(i) * (a + 1));
        if (!(launched >> graph_of[a] & 1) || got(r, a * area_width + i) == want) continue;
        fprintf(stderr, "rank %d, round %d: element %d of area %d is %d; want %d\n", r->rank, round, i, a, got(r, a * area_width + i), want);
        _exit(1);
      }
    }
  }
  free(b);
  leave(r);
}

// restarts: a communicator is aborted with an operation under way, and made anew, fifty
// times. Descriptors and threads stay as they were, and of the device windows, streams, events
// and pinned memory, the last three of which are a byte each here. A window is lent again when
// all ranks have marked that they left, which a rank asks at most once a second: some may be
// idle at either time of counting.
static void restarts(struct rank *r) {
  static ncclUniqueId next;
  long own = 1;
  size_t before = 0;
  int files = 0, threads = 0;
  pthread_barrier_wait(&barrier);
  OK(ncclCommDestroy(r->comm));
  for (int k = 0; k < 53; k++) {
    if (r->rank == 0) OK(ncclGetUniqueId(&next));
    pthread_barrier_wait(&barrier);
    if (k == 3) before = free_memory(), files = entries("/proc/self/fd"), threads = entries("/proc/self/task");
    pthread_barrier_wait(&barrier);
    OK(ncclCommInitRank(&r->comm, ranks, next, r->rank));
    own = stat(r->comm, ncclStatGpuMemSuspend);
    fill(r, 1000);
    OK(ncclAllReduce(r->send, r->recv, 1000, ncclInt32, ncclSum, r->comm, r->stream));
    check(r, 1000, want_sum);
    if (r->rank == k % ranks) OK(ncclAllReduce(r->send, r->recv, 1000, ncclInt32, ncclSum, r->comm, r->stream));
    pthread_barrier_wait(&barrier);
    OK(ncclCommAbort(r->comm));
    OK(cuStreamSynchronize(r->stream));
    pthread_barrier_wait(&barrier);
  }
  long taken = (long)before - (long)free_memory(), windows = (taken + (taken < 0 ? -own : own) / 2) / own, objects = taken - windows * own;
  fprintf(stderr, "rank %d: %ld windows of %ld bytes and %ld objects; descriptors %d, then %d; threads %d, then %d\n", r->rank, windows, own, objects,
          files, entries("/proc/self/fd"), threads, entries("/proc/self/task"));
  TRUE(windows <= 4 * ranks && objects <= 8);
  TRUE(entries("/proc/self/fd") <= files + 8);
  TRUE(entries("/proc/self/task") <= threads + 16);
  pthread_barrier_wait(&barrier);
  OK(ncclMemFree(r->send));
  OK(ncclMemFree(r->recv));
}

// counts: what an address cannot tell is refused, and counts beyond 2^31 and 2^32 are taken
// for what they are.
static void counts(struct rank *r) {
  static const size_t wrong[] = {SIZE_MAX, SIZE_MAX / 4 + 1, SIZE_MAX / 2 + 1, SIZE_MAX / 8 + 1, 1ull << 62, 1ull << 61, 1ull << 60};
  ncclSimInfo_t some = SIM_INFO, more = SIM_INFO;
  for (int i = 0; i < 7; i++) {
    size_t n = wrong[i];
    TRUE(ncclAllReduce(r->send, r->recv, n, ncclUint64, ncclSum, r->comm, r->stream) == ncclInvalidArgument);
    TRUE(ncclBroadcast(r->send, r->recv, n, ncclUint64, 0, r->comm, r->stream) == ncclInvalidArgument);
    TRUE(ncclAllGather(r->send, r->recv, n, ncclUint64, r->comm, r->stream) == ncclInvalidArgument);
    TRUE(ncclReduceScatter(r->send, r->recv, n, ncclUint64, ncclSum, r->comm, r->stream) == ncclInvalidArgument);
    TRUE(ncclAlltoAll(r->send, r->recv, n, ncclUint64, r->comm, r->stream) == ncclInvalidArgument);
    TRUE(ncclSend(r->send, n, ncclUint64, 1 - r->rank, r->comm, r->stream) == ncclInvalidArgument);
    TRUE(ncclRecv(r->recv, n, ncclUint64, 1 - r->rank, r->comm, r->stream) == ncclInvalidArgument);
    OK(ncclGroupStart());
    OK(ncclAllReduce(r->send, r->recv, 10, ncclInt32, ncclSum, r->comm, r->stream));
    OK(ncclAllReduce(r->send, r->recv, n, ncclUint64, ncclSum, r->comm, r->stream));
    TRUE(ncclGroupEnd() == ncclInvalidArgument); // neither is done
  }
  size_t n = (1ull << 31) + 5;
  void *from = (void *)(1ul << 40), *to = (void *)(1ul << 42); // nobody looks there
  OK(ncclGroupStart());
  OK(ncclAllReduce(from, to, n, ncclUint64, ncclSum, r->comm, r->stream));
  OK(ncclGroupSimulateEnd(&some));
  OK(ncclGroupStart());
  OK(ncclAllReduce(from, to, 8 * n, ncclUint64, ncclSum, r->comm, r->stream));
  OK(ncclGroupSimulateEnd(&more));
  TRUE(some.estimatedTime > 1000 && more.estimatedTime > 7.9 * some.estimatedTime && more.estimatedTime < 8.1 * some.estimatedTime);
  fill(r, 1000);
  OK(ncclAllReduce(r->send, r->recv, 1000, ncclInt32, ncclSum, r->comm, r->stream));
  check(r, 1000, want_sum);
  leave(r);
}

// nested: groups in groups, of several communicators on several streams.
static void nested(struct rank *r) {
  enum { comms = 3, n = 1000 };
  ncclComm_t c[comms];
  void *stream[comms], *out[2 * comms];
  meet(r, c, comms);
  for (int i = 0; i < 2 * comms; i++) OK(ncclMemAlloc(&out[i], n * sizeof(int)));
  for (int i = 0; i < comms; i++) OK(cuStreamCreate(&stream[i], 1));
  for (int k = 0; k < 5; k++) {
    fill(r, n);
    OK(ncclGroupStart());
    for (int i = 0; i < comms; i++) {
      OK(ncclGroupStart());
      OK(ncclAllReduce(r->send, out[i], n, ncclInt32, ncclSum, c[i], stream[i]));
      OK(ncclSend(r->send, n, ncclInt32, (r->rank + 1) % ranks, c[i], stream[(i + 1) % comms]));
      OK(ncclGroupStart());
      OK(ncclRecv(out[comms + i], n, ncclInt32, (r->rank + ranks - 1) % ranks, c[i], stream[(i + k) % comms]));
      OK(ncclGroupEnd());
      OK(ncclGroupEnd());
    }
    OK(ncclAllReduce(r->send, r->recv, n, ncclInt32, ncclSum, r->comm, r->stream));
    OK(ncclGroupEnd());
    TRUE(ncclGroupEnd() == ncclInvalidUsage);
    check(r, n, want_sum);
    for (int i = 0; i < comms; i++) OK(cuStreamSynchronize(stream[i]));
    void *recv = r->recv;
    for (int i = 0; i < 2 * comms; i++) {
      r->recv = out[i];
      check(r, n, i < comms ? want_sum : want_before);
    }
    r->recv = recv;
  }
  for (int i = 0; i < 2 * comms; i++) OK(ncclMemFree(out[i]));
  for (int i = 0; i < comms; i++) OK(ncclCommDestroy(c[i]));
  leave(r);
}

// alone makes a communicator of this process.
static void alone(struct rank *r) {
  driver();
  OK(cuDeviceGetCount(&devices));
  OK(cuDevicePrimaryCtxRetain(&context_of[0], 0));
  use_device(r);
  OK(ncclCommInitAll(&r->comm, 1, (int[]){0}));
  OK(cuStreamCreate(&r->stream, 1));
  OK(ncclMemAlloc(&r->send, most * sizeof(int)));
  OK(ncclMemAlloc(&r->recv, most * sizeof(int)));
}

static void copy(struct rank *r) {
  fill(r, 1000);
  OK(ncclAllReduce(r->send, r->recv, 1000, ncclInt32, ncclSum, r->comm, r->stream));
  check(r, 1000, want_sum);
}

static int child_says(pid_t pid) {
  int status;
  TRUE(pid > 0 && waitpid(pid, &status, 0) == pid);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

// forks: a child of a process that has only linked the library uses it, and so does the
// parent; a child of one that has used it has an engine of its own, and the parent goes on.
static void forks(void) {
  struct rank r = {0};
  pid_t pid = fork();
  if (pid == 0) {
    alone(&r);
    copy(&r);
    leave(&r);
    _exit(7);
  }
  TRUE(child_says(pid) == 7);
  alone(&r);
  copy(&r);
  if ((pid = fork()) == 0) {
    ncclUniqueId own;
    int right = ncclGetUniqueId(&own) == ncclSuccess && ncclAllReduce(r.send, r.recv, 10, ncclInt32, ncclSum, r.comm, r.stream) == ncclInvalidArgument &&
                ncclCommDestroy(r.comm) == ncclInvalidArgument;
    _exit(right ? 8 : 9);
  }
  TRUE(child_says(pid) == 8);
  copy(&r);
  leave(&r);
}
