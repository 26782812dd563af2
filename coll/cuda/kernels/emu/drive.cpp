// Runs random sequences of collectives on the emulator and compares memory
// with what it should hold.
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <algorithm>

#include "operation.h"

namespace emu {

static uint64_t current;  // seed
static uint64_t grids;

static void enqueue(World &w, const Operation &op, int rank, bool early, std::function<void()> done = {}) {
  Launch l;
  l.name = op.name;
  l.grid = op.grid;
  l.threads = op.threads;
  l.lines = op.lines;
  if (op.norm) l.cluster = 1u << op.norms[rank].split;
  l.early = early;
  l.done = std::move(done);
  l.kernel = [k = op.kernel, norm = op.norm, c = w.comms[rank], a = op.args[rank], n = op.norms[rank]] {
    if (norm)
      norm(c, a, n);
    else
      k(c, a);
  };
  w.machine.enqueue(rank, std::move(l));
  grids++;
}

// sequence runs operations of all kinds one after the other.
static std::string sequence(uint64_t seed, int ranks, int operations) {
  World w(seed, ranks);
  Random &r = w.machine.random;
  const bool early = r.one_in(2);
  if (r.one_in(3)) w.machine.multiprocessors = 3 + r.below(8);  // a relay has three blocks for a channel
  for (int i = 0; i < operations; i++) {
    Operation op = make(w);
    for (int rank = 0; rank < ranks; rank++)
      if (!op.absent[rank]) enqueue(w, op, rank, early && !r.one_in(4));
  }
  std::string e = w.machine.run();
  return e.empty() ? w.check() : e;
}

// abandoned runs operations of which one rank does not do the last: the others
// are to leave, stopped or out of time, and to say for whom they waited.
static std::string abandoned(uint64_t seed, int ranks, bool stopped) {
  World w(seed, ranks);
  Random &r = w.machine.random;
  const int gone = int(r.below(ranks));
  if (!stopped)
    for (Comm &c : w.comms) c.timeout = 1000000;
  const int before = int(r.below(3));
  int earlier = 0, ended = 0;  // kernels of operations before the last
  for (int i = before; i > 0; i--) {
    Operation op = make(w);
    for (int rank = 0; rank < ranks; rank++)
      if (!op.absent[rank]) enqueue(w, op, rank, false, [&] { ended++; }), earlier++;
  }
  Operation op;
  bool all;
  do {  // one in which each needs each
    op = make(w);
    all = true;
    for (const Args &a : op.args) all &= a.symmetric && (op.name.find("simple") == std::string::npos || op.name.find("exchange") == 0);
  } while (!all);
  for (int rank = 0; rank < ranks; rank++)
    if (rank != gone) enqueue(w, op, rank, false);
  bool named = false;
  if (stopped)
    w.machine.call(1000 + r.below(50000), [&] {
      for (uint32_t &s : w.stop) s = 1;
      named = ended < earlier;  // ranks may wait for one another there, and not for the one that is gone
    });
  std::string e = w.machine.run();
  if (!e.empty()) return e;
  // Who waits for a rank that waits may say so instead.
  for (int rank = 0; rank < ranks; rank++) {
    bool said = false;
    for (const Report &report : w.reports[rank]) {
      if (!report.taken) continue;
      if (report.who >> 24 != (stopped ? 1 : 2)) return op.name + ": a report without the reason";
      said = true;
      named |= int(report.who >> 16 & 255) == gone;
    }
    if (rank == gone && said && stopped && before > 0) {  // in an operation before the last
      named = true;
      continue;
    }
    if (said != (rank != gone)) return op.name + ": rank " + std::to_string(rank) + (said ? " says that it waited" : " does not say that it waited");
  }
  return named ? "" : op.name + ": nobody waited for " + std::to_string(gone);
}

// left_alone runs operations while one rank or two, of more than two, give up: told to leave, or out of
// time, at any moment, maybe because another rank is busy with other work. Nobody tells the rest. What a
// rank has ended without giving up is right; what it cannot end, it waits for.
static std::string left_alone(uint64_t seed, int ranks) {
  World w(seed, ranks);
  Random &r = w.machine.random;
  w.machine.soon(300);
  const int gone = int(r.below(ranks)), late = int(r.below(ranks)), operations = 1 + int(r.below(4));
  const int busy = r.one_in(4) ? operations : int(r.below(operations));  // the operation before which the late rank has other work
  const bool early = r.one_in(2);
  const uint64_t leaves = r.below(r.one_in(2) ? 3000 : 30000);
  if (r.one_in(3))
    w.comms[gone].timeout = 10 * (1 + leaves);
  else
    w.machine.call(leaves, [&] { w.stop[gone] = 1; });
  if (ranks > 2 && r.one_in(4)) w.machine.call(leaves + r.below(20000), [&, also = r.below(ranks)] { w.stop[also] = 1; });
  bool free = false;
  w.machine.call(leaves + r.below(30000), [&] { free = true; });
  std::vector<std::string> wrong;
  for (int i = 0; i < operations; i++) {
    Operation op = make(w);
    for (int rank = 0; rank < ranks; rank++) {
      if (i == busy && rank == late) {
        Launch other;
        other.name = "other work";
        other.kernel = [&] {
          while (!free) machine->yield();
        };
        w.machine.enqueue(rank, std::move(other));
      }
      if (op.absent[rank]) continue;
      enqueue(w, op, rank, early && !r.one_in(4), [&, rank, of = op.name, want = w.wants(rank)] {
        if (w.gave_up(rank)) return;
        std::string e = w.check(want);
        if (!e.empty()) wrong.push_back(of + " ended, and nothing was said, but " + e);
      });
    }
  }
  std::string e = w.machine.run();
  if (!wrong.empty()) return wrong[0];
  bool anyone = false;
  for (int rank = 0; rank < ranks; rank++) anyone |= w.gave_up(rank);
  if (w.machine.stuck() && anyone) return "";
  return !e.empty() || anyone ? e : w.check();
}

static void crashed(int signal) {
  char text[500];
  int n = snprintf(text, sizeof text, "seed %llu: %s: %s\n", static_cast<unsigned long long>(current), strsignal(signal), machine ? machine->running().c_str() : "");
  if (write(1, text, n) < 0) _exit(3);
  _exit(2);
}

// catch_crashes makes memory that nobody may touch a failure with a name.
static void catch_crashes() {
  static char stack[64 << 10];
  stack_t s = {};
  s.ss_sp = stack;
  s.ss_size = sizeof stack;
  sigaltstack(&s, nullptr);
  struct sigaction a = {};
  a.sa_handler = crashed;
  a.sa_flags = SA_ONSTACK;
  for (int sig : {SIGSEGV, SIGBUS, SIGILL, SIGFPE}) sigaction(sig, &a, nullptr);
}

}  // namespace emu

int main(int argc, char **argv) {
  using namespace emu;
  if (argc != 5 || (strcmp(argv[1], "all") != 0 && strcmp(argv[1], "alone") != 0)) {
    fprintf(stderr, "usage: %s all|alone FIRST-SEED SEEDS MOST-RANKS\n", argv[0]);
    return 2;
  }
  catch_crashes();
  const bool alone = strcmp(argv[1], "alone") == 0;
  const uint64_t first = strtoull(argv[2], nullptr, 10), seeds = strtoull(argv[3], nullptr, 10);
  const int most = atoi(argv[4]);  // that the kernels are compiled for
  static const int ranks[] = {2, 3, 4, 2, 3, 4, 2, 8, 3, 4};
  for (current = first; current < first + seeds; current++) {
    const int n = std::min(ranks[current % 10], most);
    std::string e = alone ? left_alone(current, n) : current % 9 == 8 && n < 8 ? abandoned(current, n, current % 2) : sequence(current, n, n == 8 ? 4 : 12);
    if (e.empty()) continue;
    printf("seed %llu, %d ranks: %s\n", static_cast<unsigned long long>(current), n, e.c_str());
    return 1;
  }
  printf("%llu sequences, %llu grids\n", static_cast<unsigned long long>(seeds), static_cast<unsigned long long>(grids));
  return 0;
}
