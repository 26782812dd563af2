// What kernels call, on the machine that runs.
#include "machine.h"

using emu::Collective;
using emu::machine;
using emu::Thread;

static int barrier(int value) {
  Thread &t = machine->self();
  t.value = value != 0;
  machine->block_barrier();
  return int(t.value);
}

void __syncthreads() { barrier(0); }
int __syncthreads_or(int v) { return barrier(v) != 0; }
int __syncthreads_and(int v) { return barrier(!v) == 0; }
int __syncthreads_count(int v) { return barrier(v); }

static uint64_t collective(Collective kind, unsigned mask, uint64_t value, int from = 0) {
  Thread &t = machine->self();
  t.kind = kind;
  t.mask = mask;
  t.value = value;
  t.from = from;
  machine->warp_collective();
  return t.value;
}

void __syncwarp(unsigned mask) { collective(Collective::sync, mask, 0); }
int __any_sync(unsigned mask, int v) { return int(collective(Collective::any, mask, v != 0)); }
int __all_sync(unsigned mask, int v) { return int(collective(Collective::all, mask, v != 0)); }
unsigned __ballot_sync(unsigned mask, int v) { return unsigned(collective(Collective::ballot, mask, v != 0)); }
uint64_t emu::shuffle(unsigned mask, uint64_t v, int from) { return collective(Collective::shuffle, mask, v, from); }
void *emu::shared(const void *key, size_t size) { return machine->shared(key, size); }
int emu::lane() { return int(machine->self().lane); }

static void aligned(const void *p, unsigned size) {
  if (reinterpret_cast<uintptr_t>(p) % size) machine->fail("an access of " + std::to_string(size) + " bytes is not aligned, " + machine->where(p));
}

static void part(char *to, const void *p, unsigned offset, unsigned size) {
  Thread &t = machine->self();
  t.block->stores.load(to + offset, static_cast<const char *>(p) + offset, size, t.index);
}

// load reads in halves of 8 bytes, in either order: no more is promised to be
// read at once.
template <class T> static T load(const T *p) {
  aligned(p, sizeof(T));
  machine->maybe_yield(2);
  char v[sizeof(T)];
  if (sizeof(T) <= 8) {
    part(v, p, 0, sizeof(T));
  } else {
    unsigned first = machine->random.one_in(2) ? 8 : 0;
    part(v, p, first, 8);
    machine->maybe_yield(8);
    part(v, p, 8 - first, 8);
  }
  T r;
  memcpy(static_cast<void *>(&r), v, sizeof r);
  Thread &t = machine->self();
  t.polled = p;
  memcpy(&t.found, v, 4);
  return r;
}

template <class T> static void store(T *p, const T &v) {
  aligned(p, sizeof(T));
  machine->store(p, &v, sizeof v, true);
  machine->maybe_yield(4);
}

emu::Remote emu::remote;
void emu::store_plain(void *p, const void *v) { machine->store(p, v, 16, false); }

uint4 ld_volatile(const uint4 *p) { return load(p); }
uint2 ld_volatile(const uint2 *p) { return load(p); }
uint32_t ld_volatile(const uint32_t *p) { return load(p); }
void st_volatile(uint4 *p, uint4 v) { store(p, v); }
void st_volatile(uint2 *p, uint2 v) { store(p, v); }
void st_volatile(uint32_t *p, uint32_t v) { store(p, v); }

uint4 ld_slot(const uint4 *p) { return load(p); }
uint32_t ld_acquire(const uint32_t *p) { return load(p); }

void fence_system() {
  machine->maybe_yield(2);
  machine->fence();
}

void st_release(uint32_t *p, uint32_t v) {
  fence_system();
  store(p, v);
}

template <class F> static uint32_t atomic(uint32_t *p, F f) {
  aligned(p, 4);
  machine->maybe_yield(2);
  machine->settle(p, 4);
  machine->progress();
  uint32_t old = *p;
  *p = f(old);
  return old;
}

uint32_t atomicAdd(uint32_t *p, uint32_t v) {
  return atomic(p, [=](uint32_t old) { return old + v; });
}
uint32_t atomicExch(uint32_t *p, uint32_t v) {
  return atomic(p, [=](uint32_t) { return v; });
}
uint32_t atomicCAS(uint32_t *p, uint32_t expected, uint32_t v) {
  return atomic(p, [=](uint32_t old) { return old == expected ? v : old; });
}

void barrier_sync(uint32_t name, uint32_t threads) { machine->named_barrier(name, threads, true); }
void barrier_arrive(uint32_t name, uint32_t threads) { machine->named_barrier(name, threads, false); }

void cluster_arrive() { machine->cluster_arrive(); }
void cluster_wait() { machine->cluster_wait(); }
void cluster_store(uint64_t *at, uint32_t block, uint64_t v) {
  machine->maybe_yield(2);
  *static_cast<uint64_t *>(machine->shared_of(block, at)) = v;
  machine->progress();
}
uint64_t ld_shared(const uint64_t *p) {
  machine->maybe_yield(2);
  return *p;
}

uint64_t now_ns() { return machine->now; }
void pause_ns(unsigned) { machine->yield(); }
void dependency_wait() { machine->wait_for_grid_before(); }
void dependents_launch() { machine->trigger(); }
