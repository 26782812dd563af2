// Does the emulator find what it is there to find? Small kernels that are
// right, and wrong ones that must not pass.
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
#include <string>
#include <vector>

#include "machine.h"

namespace {

// A Window is a rank's memory that its peer writes to.
struct alignas(128) Window {
  uint4 line[64][8];
  uint32_t flag, ack;
};

struct Pair {
  Window window[2];
  uint32_t out[2][4096];
};

uint32_t word(int rank, int message, unsigned thread) { return (rank + 1) * 1000003u * (message + 1) + thread * 7919u; }

constexpr int kMessages = 6;
constexpr uint32_t kToProcess = 5;

// Packets with a flag in each half go to and fro.
void packets(Pair &m, int rank) {
  Window &mine = m.window[rank], &peer = m.window[1 - rank];
  for (int k = 0; k < kMessages; k++) {
    uint32_t flag = k + 1;
    unsigned slot = k % 2 * 8 + threadIdx.x / 8, i = threadIdx.x % 8;
    uint32_t w = word(rank, k, threadIdx.x);
    st_volatile(&peer.line[slot][i], make_uint4(w, flag, ~w, flag));
    uint4 v;
    do v = ld_volatile(&mine.line[slot][i]);
    while (v.y != flag || v.w != flag);
    m.out[rank][k * 64 + threadIdx.x] = v.x == ~v.z ? v.x : 0;
  }
}

// One flag for 16 bytes is not enough.
void packets_with_one_flag(Pair &m, int rank) {
  Window &mine = m.window[rank], &peer = m.window[1 - rank];
  for (int k = 0; k < kMessages; k++) {
    uint32_t flag = k + 1, w = word(rank, k, threadIdx.x);
    unsigned slot = k % 2 * 8 + threadIdx.x / 8, i = threadIdx.x % 8;
    st_volatile(&peer.line[slot][i], make_uint4(w, w, ~w, flag));
    uint4 v;
    do v = ld_volatile(&mine.line[slot][i]);
    while (v.w != flag);
    m.out[rank][k * 64 + threadIdx.x] = v.x;
  }
}

// A single buffer is overwritten before it has been read.
void packets_in_one_buffer(Pair &m, int rank) {
  Window &mine = m.window[rank], &peer = m.window[1 - rank];
  for (int k = 0; k < kMessages; k++) {
    uint32_t flag = k + 1, w = word(rank, k, threadIdx.x);
    unsigned slot = threadIdx.x / 8, i = threadIdx.x % 8;
    st_volatile(&peer.line[slot][i], make_uint4(w, flag, w, flag));
    uint4 v;
    do v = ld_volatile(&mine.line[slot][i]);
    while (v.y != flag || v.w != flag);
    m.out[rank][k * 64 + threadIdx.x] = v.x;
  }
}

// Lines of 128 bytes of which the last lane's words are the flag. part makes
// the lanes store apart; early takes the data that was loaded with the flag.
void lines(Pair &m, int rank, bool part, bool early) {
  Window &mine = m.window[rank], &peer = m.window[1 - rank];
  unsigned i = threadIdx.x % 8;
  for (int k = 0; k < kMessages; k++) {
    uint32_t flag = k + 1, w = word(rank, k, threadIdx.x);
    unsigned slot = k % 2 * 8 + threadIdx.x / 8;
    __syncwarp();
    if (part && i < 4) st_volatile(&peer.ack, 0u);
    st_volatile(&peer.line[slot][i], i == 7 ? make_uint4(flag, flag, flag, flag) : make_uint4(w, w, w, w));
    uint4 v;
    do v = ld_volatile(&mine.line[slot][i]);
    while (__any_sync(~0u, i == 7 && v.x != flag));
    if (!early) v = ld_volatile(&mine.line[slot][i]);
    m.out[rank][k * 64 + threadIdx.x] = i == 7 ? word(1 - rank, k, threadIdx.x) : v.x;
    __syncthreads();
  }
}
void whole_lines(Pair &m, int rank) { lines(m, rank, false, false); }
void lines_of_parted_lanes(Pair &m, int rank) { lines(m, rank, true, false); }
void lines_not_reloaded(Pair &m, int rank) { lines(m, rank, false, true); }

// Data, then a fence, then a flag; and the way back for the credit.
void chunks(Pair &m, int rank, bool fence, bool barrier) {
  Window &mine = m.window[rank], &peer = m.window[1 - rank];
  for (int k = 0; k < kMessages; k++) {
    uint32_t n = k + 1, w = word(rank, k, threadIdx.x);
    unsigned slot = threadIdx.x / 8, i = threadIdx.x % 8;
    st_volatile(&peer.line[slot][i], make_uint4(w, w, w, w));
    if (barrier) __syncthreads();
    if (threadIdx.x == 0) {
      if (fence) fence_system();
      st_volatile(&peer.flag, n);
    }
    while (ld_acquire(&mine.flag) != n) {}
    __syncthreads();
    m.out[rank][k * 64 + threadIdx.x] = ld_slot(&mine.line[slot][i]).w;
    __syncthreads();
    if (threadIdx.x == 0) {
      st_release(&peer.ack, n);
      while (ld_acquire(&mine.ack) != n) {}
    }
    __syncthreads();
  }
}
void fenced_chunks(Pair &m, int rank) { chunks(m, rank, true, true); }
void chunks_without_fence(Pair &m, int rank) { chunks(m, rank, false, true); }
void chunks_without_barrier(Pair &m, int rank) { chunks(m, rank, true, false); }

// A warp moves data, and another one tells the peer, by a named barrier at which the first does not
// wait.
void told(Pair &m, int rank, bool barrier) {
  Window &mine = m.window[rank], &peer = m.window[1 - rank];
  const bool moves = threadIdx.x < 32;
  for (int k = 0; k < kMessages; k++) {
    const uint32_t n = k + 1, name = 1 + k % 2;
    if (moves) {
      for (unsigned t = threadIdx.x; t < 64; t += 32) {
        const uint32_t w = word(rank, k, t);
        st_volatile(&peer.line[t / 8][t % 8], make_uint4(w, w, w, w));
      }
      if (barrier) barrier_arrive(name, 64);
    } else {
      if (barrier) barrier_sync(name, 64);
      if (threadIdx.x == 32) {
        fence_system();
        st_volatile(&peer.flag, n);
      }
    }
    while (ld_acquire(&mine.flag) != n) {}
    __syncthreads();
    m.out[rank][k * 64 + threadIdx.x] = ld_slot(&mine.line[threadIdx.x / 8][threadIdx.x % 8]).w;
    __syncthreads();
    if (threadIdx.x == 0) {
      st_release(&peer.ack, n);
      while (ld_acquire(&mine.ack) != n) {}
    }
    __syncthreads();
  }
}
void told_by_another_warp(Pair &m, int rank) { told(m, rank, true); }
void told_without_barrier(Pair &m, int rank) { told(m, rank, false); }
void left_before_a_barrier(Pair &, int) {
  if (threadIdx.x < 32)
    barrier_arrive(1, 64);
  else
    barrier_sync(1, 64);
}
void barriers_not_in_turns(Pair &m, int rank) {
  for (int k = 0; k < 2; k++) {
    if (threadIdx.x < 32)
      barrier_arrive(1, 64);
    else
      barrier_sync(1, 64);
  }
  told(m, rank, true);
}

// What lanes and threads do together.
void together(Pair &m, int rank) {
  SHARED(uint32_t, sum);
  unsigned l = threadIdx.x % 32;
  bool good = __ballot_sync(~0u, l % 3 == 0) == 0x49249249u;
  good &= __any_sync(~0u, l == 9) && !__any_sync(~0u, 0) && __all_sync(~0u, 1) && !__all_sync(~0u, l != 4);
  good &= __shfl_sync(~0u, l * 2, 5) == 10 && __shfl_sync(~0u, uint64_t(l) << 40, 3, 8) == uint64_t(l / 8 * 8 + 3) << 40;
  good &= __shfl_xor_sync(~0u, l, 1) == (l ^ 1) && __shfl_down_sync(~0u, l, 4, 16) == (l % 16 < 12 ? l + 4 : l);
  if (threadIdx.x == 0) sum = 0;
  __syncthreads();
  atomicAdd(&sum, threadIdx.x);
  good &= __syncthreads_or(threadIdx.x == 50) == 1 && __syncthreads_and(threadIdx.x != 50) == 0 && __syncthreads_count(l == 1) == 2;
  good &= sum == 63 * 64 / 2;
  if (l > 20) __syncwarp(0xffe00000u);
  if (threadIdx.x == 3) {
    for (int k = 0; k < kMessages; k++) m.out[rank][k * 64 + 3] = good ? word(1 - rank, k, 3) : 0;
    return;
  }
  __syncthreads();
  for (int k = 0; k < kMessages; k++) m.out[rank][k * 64 + threadIdx.x] = good ? word(1 - rank, k, threadIdx.x) : 0;
}

void lanes_in_two_collectives(Pair &, int) {
  if (threadIdx.x % 2)
    __syncwarp();
  else
    __any_sync(~0u, 1);
}

void unaligned(Pair &m, int rank) { ld_volatile(reinterpret_cast<uint4 *>(reinterpret_cast<char *>(&m.window[rank]) + 8)); }

void waits_for_ever(Pair &m, int rank) {
  while (ld_volatile(&m.window[rank].flag) == 0) {}
}

// A grid that starts early, of what the one before leaves in memory.
void follow(Pair &m, int rank, bool wait, int k) {
  dependents_launch();
  if (wait) dependency_wait();
  uint32_t *at = reinterpret_cast<uint32_t *>(&m.window[rank].line[threadIdx.x / 4][threadIdx.x % 4]);
  uint32_t before = ld_volatile(at);
  m.out[rank][k * 64 + threadIdx.x] = before == uint32_t(k) ? word(1 - rank, k, threadIdx.x) : 0;
  st_volatile(at, before + 1);
}

struct Told {
  uint64_t of[64];
};

enum Beside { right, unmet, hasty };

// Two blocks of a cluster tell each other what is to come out: unmet: before the other one may be there;
// hasty: the first one ends before it has what the other one tells.
void beside(Pair &m, int rank, Beside how) {
  SHARED(Told, told);
  const unsigned t = threadIdx.x, k = blockIdx.x;
  told.of[t] = 0;
  cluster_arrive();
  if (how != unmet) cluster_wait();
  cluster_store(&told.of[t], 1 - k % 2, uint64_t(1) << 32 | word(1 - rank, int(k ^ 1), t));
  uint64_t v = 0;
  if (how == hasty && k % 2 == 0) return;
  do v = ld_shared(&told.of[t]);
  while (v >> 32 == 0);
  m.out[rank][k * 64 + t] = uint32_t(v);
}

struct Case {
  const char *name;
  void (*kernel)(Pair &, int);
  const char *found;  // what must be found; null: it is right
  bool lines;
};

const char wrong[] = "wrong data", still[] = "nothing changes any more";

const Case cases[] = {
    {"packets", packets, nullptr, false},
    {"packets with one flag", packets_with_one_flag, wrong, false},
    {"packets in one buffer", packets_in_one_buffer, still, false},
    {"lines", whole_lines, nullptr, true},
    {"lines of parted lanes", lines_of_parted_lanes, wrong, true},
    {"lines not loaded again", lines_not_reloaded, wrong, true},
    {"lines where stores of 16 bytes tear", whole_lines, wrong, false},
    {"chunks", fenced_chunks, nullptr, false},
    {"chunks without a fence", chunks_without_fence, wrong, false},
    {"chunks told by another warp", told_by_another_warp, nullptr, false},
    {"chunks told by another warp without a barrier", told_without_barrier, wrong, false},
    {"a warp that leaves before a barrier", left_before_a_barrier, "threads have ended for which a barrier waits", false},
    {"a barrier used twice without a turn", barriers_not_in_turns, "a thread arrives a second time at a barrier", false},
    {"chunks without a barrier", chunks_without_barrier, wrong, false},
    {"together", together, nullptr, false},
    {"lanes in two collectives", lanes_in_two_collectives, "different collectives", false},
    {"an unaligned access", unaligned, "not aligned", false},
    {"a wait for ever", waits_for_ever, still, false},
};

std::string check(const Pair &m) {
  for (int rank = 0; rank < 2; rank++)
    for (int k = 0; k < kMessages; k++)
      for (unsigned t = 0; t < 64; t++)
        if (m.out[rank][k * 64 + t] != word(1 - rank, k, t)) return wrong;
  return "";
}

std::string run(const Case &c, uint64_t seed) {
  auto m = std::make_unique<Pair>();
  memset(static_cast<void *>(m.get()), 0, sizeof *m);
  emu::Machine machine(seed);
  for (int rank = 0; rank < 2; rank++) {
    emu::Launch l;
    l.name = c.name;
    l.kernel = [&, rank] { c.kernel(*m, rank); };
    l.threads = 64;
    l.lines = c.lines;
    machine.enqueue(rank, l);
  }
  std::string e = machine.run();
  return e.empty() ? check(*m) : e;
}

std::string run_early(bool wait, uint64_t seed) {
  auto m = std::make_unique<Pair>();
  memset(static_cast<void *>(m.get()), 0, sizeof *m);
  emu::Machine machine(seed);
  for (int k = 0; k < kMessages; k++)
    for (int rank = 0; rank < 2; rank++) {
      emu::Launch l;
      l.name = "early";
      l.kernel = [&, rank, k] { follow(*m, rank, wait, k); };
      l.threads = 64;
      l.early = true;
      machine.enqueue(rank, l);
    }
  std::string e = machine.run();
  return e.empty() ? check(*m) : e;
}

std::string run_clusters(Beside how, uint64_t seed) {
  auto m = std::make_unique<Pair>();
  memset(static_cast<void *>(m.get()), 0, sizeof *m);
  emu::Machine machine(seed);
  for (int rank = 0; rank < 2; rank++) {
    emu::Launch l;
    l.name = "cluster";
    l.kernel = [&, rank] { beside(*m, rank, how); };
    l.grid.x = kMessages;
    l.threads = 64;
    l.cluster = 2;
    machine.enqueue(rank, l);
  }
  std::string e = machine.run();
  return e.empty() ? check(*m) : e;
}

// to_a_process stores lines for another process, which reads a line's last words first and then
// the rest, and allows the next lines when it has them.
void to_a_process(Window &w) {
  for (uint32_t k = 1; k <= kToProcess; k++) {
    st_volatile(&w.line[threadIdx.x / 8][threadIdx.x % 8], make_uint4(k, k, k, k));
    while (ld_volatile(&w.ack) != k) emu::machine->progress();  // the other process is alive
  }
}

// takes_lines is the other process; it reports whether each line was there as a whole.
bool takes_lines(Window &w) {
  bool whole = true;
  for (uint32_t k = 1; k <= kToProcess; k++) {
    for (auto &line : w.line) {
      if (&line == &w.line[4]) break;
      while (__atomic_load_n(&line[7].w, __ATOMIC_ACQUIRE) != k) sched_yield();
      for (int i = 6; i >= 0; i--) whole &= __atomic_load_n(&line[i].x, __ATOMIC_ACQUIRE) == k;
    }
    __atomic_store_n(&w.ack, k, __ATOMIC_RELEASE);
  }
  return whole;
}

std::string run_processes(uint64_t seed) {
  void *p = mmap(nullptr, sizeof(Window), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  Window &w = *static_cast<Window *>(p);
  pid_t other = fork();
  if (other == 0) _exit(takes_lines(w) ? 0 : 1);
  emu::Machine machine(seed);
  emu::Launch l;
  l.name = "to a process";
  l.kernel = [&] { to_a_process(w); };
  l.lines = true;
  machine.enqueue(0, l);
  std::string e = machine.run();
  if (!e.empty()) kill(other, SIGKILL);
  int status = 0;
  waitpid(other, &status, 0);
  munmap(p, sizeof(Window));
  return e.empty() && status ? wrong : e;
}

// hold runs seeds of a case, and reports whether what is right always passes
// and what is wrong is found.
template <class F> bool hold(const char *name, const char *found, F once) {
  const unsigned seeds = 100;
  for (unsigned seed = 0; seed < seeds; seed++) {
    std::string e = once(seed);
    if (e.empty()) continue;
    if (found && e.find(found) != std::string::npos) {
      printf("ok: %s: found with seed %u\n", name, seed);
      return true;
    }
    printf("FAIL: %s, seed %u: %s\n", name, seed, e.c_str());
    return false;
  }
  if (found) {
    printf("FAIL: %s: not found with %u seeds\n", name, seeds);
    return false;
  }
  printf("ok: %s\n", name);
  return true;
}

}  // namespace

int main() {
  bool good = true;
  for (const Case &c : cases) good &= hold(c.name, c.found, [&](uint64_t seed) { return run(c, seed); });
  good &= hold("lines for another process", nullptr, run_processes);
  good &= hold("an early grid", nullptr, [](uint64_t seed) { return run_early(true, seed); });
  good &= hold("an early grid that does not wait", wrong, [](uint64_t seed) { return run_early(false, seed); });
  good &= hold("a cluster", nullptr, [](uint64_t seed) { return run_clusters(right, seed); });
  good &= hold("a cluster that does not wait", "that may not have begun", [](uint64_t seed) { return run_clusters(unmet, seed); });
  good &= hold("a block that ends before its cluster is done", "of a block that has ended", [](uint64_t seed) { return run_clusters(hasty, seed); });
  return good ? 0 : 1;
}
