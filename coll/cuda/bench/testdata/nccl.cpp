// A libnccl.so.2 for ranks that are threads of one process, on the driver of
// driver.cpp. Every group of operations is one step in the stream, in which the
// ranks meet. It adds bytes and moves everything.
#include <cuda.h>

#include <barrier>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <vector>

typedef struct {
  char internal[128];
} ncclUniqueId;

enum Kind { allreduce, broadcast, reduce, allgather, reducescatter, alltoall, gather, scatter, transfer };

struct Op {
  Kind kind;
  const uint8_t *send;
  uint8_t *recv;
  size_t block;  // bytes
  int factor;    // of what this rank gives
  int root;      // or the peer of a transfer
};

struct World {
  explicit World(int n) : n(n), all(n), barrier(n) {}
  const int n;
  std::vector<std::vector<Op>> all;  // what each rank does in this step
  std::barrier<> barrier;
};

struct Comm {
  World *world;
  int rank;
  std::vector<int> factors;
};

struct Step {
  Comm *comm;
  CUstream stream;
  std::vector<Op> ops;
};

static std::mutex lock;
static std::map<int, World *> worlds;
static int next_world;
static thread_local int depth;
static thread_local std::vector<Step *> group;

static const size_t sizes[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1};

using Bytes = std::vector<uint8_t>;

// sum adds a run of what all ranks give to their i-th operation.
static Bytes sum(World *w, size_t i, size_t at, size_t n) {
  Bytes out(n);
  for (auto &ops : w->all)
    for (size_t k = 0; k < n; k++) out[k] += ops[i].send[at + k] * ops[i].factor;
  return out;
}

// concat is a run of what each rank gives, one after the other.
static Bytes concat(World *w, size_t i, size_t at, size_t n) {
  Bytes out;
  for (auto &ops : w->all) out.insert(out.end(), ops[i].send + at, ops[i].send + at + n);
  return out;
}

static Bytes part(const uint8_t *p, size_t n) { return Bytes(p, p + n); }

// result is what the i-th operation writes on a rank.
static Bytes result(World *w, int rank, size_t i) {
  const Op &op = w->all[rank][i];
  const size_t n = op.block;
  switch (op.kind) {
    case allreduce:
      return sum(w, i, 0, n);
    case reduce:
      return rank == op.root ? sum(w, i, 0, n) : Bytes();
    case reducescatter:
      return sum(w, i, rank * n, n);
    case broadcast:
      return part(w->all[op.root][i].send, n);
    case scatter:
      return part(w->all[op.root][i].send + rank * n, n);
    case allgather:
      return concat(w, i, 0, n);
    case gather:
      return rank == op.root ? concat(w, i, 0, n) : Bytes();
    case alltoall:
      return concat(w, i, rank * n, n);
    case transfer:
      if (!op.recv) return Bytes();
      for (auto &other : w->all[op.root])
        if (other.kind == transfer && other.send && other.root == rank) return part(other.send, n);
      abort();
  }
  abort();
}

static void meet(void *data) {
  Step *s = static_cast<Step *>(data);
  World *w = s->comm->world;
  w->all[s->comm->rank] = s->ops;
  w->barrier.arrive_and_wait();
  std::vector<Bytes> out;
  for (size_t i = 0; i < s->ops.size(); i++) out.push_back(result(w, s->comm->rank, i));
  w->barrier.arrive_and_wait();
  for (size_t i = 0; i < out.size(); i++)
    if (!out[i].empty()) memcpy(s->ops[i].recv, out[i].data(), out[i].size());
}

static int add(void *comm, void *stream, Op op) {
  for (auto s : group)
    if (s->comm == comm) return s->ops.push_back(op), 0;
  group.push_back(new Step{static_cast<Comm *>(comm), (CUstream)stream, {op}});
  return 0;
}

extern "C" {

int ncclGroupStart() { return depth++, 0; }
int ncclGroupEnd() {
  if (--depth > 0) return 0;
  int r = 0;
  for (auto s : group) r |= cuLaunchHostFunc(s->stream, meet, s);
  group.clear();
  return r;
}

const char *ncclGetErrorString(int) { return "failed"; }
const char *ncclGetLastError(void *) { return ""; }
int ncclGetVersion(int *v) { return *v = 22803, 0; }
int ncclGetUniqueId(ncclUniqueId *id) {
  std::lock_guard<std::mutex> hold(lock);
  memset(id, 0, sizeof *id);
  memcpy(id, &++next_world, sizeof next_world);
  return 0;
}
int ncclCommInitRank(void **comm, int n, ncclUniqueId id, int rank) {
  std::lock_guard<std::mutex> hold(lock);
  int number;
  memcpy(&number, &id, sizeof number);
  World *&w = worlds[number];
  if (!w) w = new World(n);
  *comm = new Comm{w, rank, {}};
  return 0;
}
int ncclCommInitAll(void **, int, const int *) { return 5; }
int ncclCommDestroy(void *) { return 0; }
int ncclCommAbort(void *) { return 0; }
int ncclCommGetAsyncError(void *, int *r) { return *r = 0, 0; }

int ncclMemAlloc(void **p, size_t n) { return *p = aligned_alloc(4096, (n + 4095) & ~4095ull), 0; }
int ncclMemFree(void *p) { return free(p), 0; }
int ncclCommRegister(void *, void *, size_t, void **) { return 0; }
int ncclCommDeregister(void *, void *) { return 0; }
int ncclCommWindowRegister(void *c, void *p, size_t, void **h, int flags) {
  static_cast<Comm *>(c)->world->barrier.arrive_and_wait();
  return *h = p, flags == 1 ? 0 : 5;
}
int ncclCommWindowDeregister(void *c, void *h) {
  static_cast<Comm *>(c)->world->barrier.arrive_and_wait();
  return h ? 0 : 5;
}

int ncclRedOpCreatePreMulSum(int *op, void *scalar, int, int residence, void *comm) {
  auto &f = static_cast<Comm *>(comm)->factors;
  f.push_back(*static_cast<uint8_t *>(scalar));
  return *op = 1000 + (int)f.size() - 1, residence == 1 ? 0 : 5;
}
int ncclRedOpDestroy(int op, void *comm) {
  auto &f = static_cast<Comm *>(comm)->factors;
  return op - 1000 < (int)f.size() ? 0 : 5;
}

static int issue(Kind kind, const void *s, void *r, size_t n, int t, int op, int root, void *c, void *st) {
  if (op != 0 && (op < 1000 || t != 1)) return 5;  // nothing but sums; factors for bytes only
  int factor = op >= 1000 ? static_cast<Comm *>(c)->factors[op - 1000] : 1;
  ncclGroupStart();
  add(c, st, Op{kind, (const uint8_t *)s, (uint8_t *)r, n * sizes[t], factor, root});
  return ncclGroupEnd();
}

int ncclAllReduce(const void *s, void *r, size_t n, int t, int op, void *c, void *st) { return issue(allreduce, s, r, n, t, op, 0, c, st); }
int ncclBroadcast(const void *s, void *r, size_t n, int t, int root, void *c, void *st) { return issue(broadcast, s, r, n, t, 0, root, c, st); }
int ncclReduce(const void *s, void *r, size_t n, int t, int op, int root, void *c, void *st) { return issue(reduce, s, r, n, t, op, root, c, st); }
int ncclAllGather(const void *s, void *r, size_t n, int t, void *c, void *st) { return issue(allgather, s, r, n, t, 0, 0, c, st); }
int ncclReduceScatter(const void *s, void *r, size_t n, int t, int op, void *c, void *st) { return issue(reducescatter, s, r, n, t, op, 0, c, st); }
int ncclAlltoAll(const void *s, void *r, size_t n, int t, void *c, void *st) { return issue(alltoall, s, r, n, t, 0, 0, c, st); }
int ncclGather(const void *s, void *r, size_t n, int t, int root, void *c, void *st) { return issue(gather, s, r, n, t, 0, root, c, st); }
int ncclScatter(const void *s, void *r, size_t n, int t, int root, void *c, void *st) { return issue(scatter, s, r, n, t, 0, root, c, st); }
int ncclSend(const void *s, size_t n, int t, int peer, void *c, void *st) { return issue(transfer, s, nullptr, n, t, 0, peer, c, st); }
int ncclRecv(void *r, size_t n, int t, int peer, void *c, void *st) { return issue(transfer, nullptr, r, n, t, 0, peer, c, st); }
}
