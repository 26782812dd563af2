// The machine runs grids of several GPUs in one thread, every CUDA thread as a
// fiber, in an order that a seed decides.
#ifndef ASSAY_EMU_MACHINE_H
#define ASSAY_EMU_MACHINE_H
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "fiber.h"
#include "random.h"
#include "stores.h"

#include "emu.h"

namespace emu {

// A Launch is a grid to come.
struct Launch {
  std::string name;
  std::function<void()> kernel;  // what each thread calls
  dim3 grid;
  unsigned threads = 32;  // of a block, a multiple of 32
  unsigned cluster = 1;   // consecutive blocks that form a cluster
  bool early = false;     // programmatic dependent launch: may start when the grid before allows it
  bool lines = false;     // lines of 128 bytes that a warp stores at once arrive at once
  std::function<void()> done = {};  // called when the grid has ended and all its stores have arrived
};

enum class Wait : uint8_t { none, warp, block, named, grid, ended };
enum class Collective : uint8_t { sync, any, all, ballot, shuffle };

struct Block;

struct Thread {
  Fiber fiber;
  Block *block;
  unsigned index, warp, lane;  // in the block, of the block's warps, in the warp
  unsigned met;                // how often it arrived at its cluster's barrier
  Wait wait;
  Collective kind;  // of a warp's collective, with mask, value and from
  uint32_t mask;
  uint64_t value;  // given to a collective or a barrier, then got from it
  int from;
  Instruction instruction;  // the next store's
  const void *polled;       // where it loaded from last, for the report
  uint32_t found;
};

struct Grid;

// A Shared is a variable of a block's shared memory.
struct Shared {
  const void *key;
  std::unique_ptr<char[]> bytes;
  size_t size;
};

// A Named is a barrier of some of a block's threads, of which some may not wait for it.
struct Named {
  unsigned threads = 0;  // that it is for; 0: none has arrived
  std::vector<Thread *> arrived, waiting;
};

struct Block {
  Grid *grid;
  uint3 index;
  std::vector<Thread *> threads;
  std::vector<uint32_t> ready;  // lanes, by warp
  unsigned live, arrived;       // threads: not ended, at the barrier
  Named named[16];
  bool triggered = false;       // allows the next grid to start
  unsigned speed = 256;         // of 256: how often its turn is taken
  Stores stores;
  std::vector<Shared> shared;
};

struct Grid {
  Launch launch;
  unsigned gpu;
  std::vector<std::unique_ptr<Block>> blocks;
  unsigned live;  // blocks
  bool ended = false;
  std::shared_ptr<Grid> before;
};

class Machine {
 public:
  explicit Machine(uint64_t seed);
  ~Machine();
  Machine(const Machine &) = delete;
  Machine &operator=(const Machine &) = delete;

  // enqueue adds a grid to those that a GPU runs one after the other.
  void enqueue(unsigned gpu, Launch l);
  // run returns when all grids have ended, with "", or when nothing can happen
  // any more, with who waits for what, or when a kernel failed, with why.
  std::string run();
  // stuck reports whether run returned because nothing can happen any more.
  bool stuck() const { return stuck_; }
  // soon makes run find out sooner that nothing can happen: after so many runs of each thread.
  void soon(uint64_t runs) { runs_ = runs; }
  // call makes run call f after so many turns.
  void call(uint64_t turn, std::function<void()> f) { calls_.push_back({turn, std::move(f)}); }
  // name says what a piece of memory is, for the reports.
  void name(const void *p, size_t size, std::string what) { names_.push_back({static_cast<const char *>(p), size, std::move(what)}); }
  std::string where(const void *p) const;
  std::string running() const;

  // What threads call, of the one that runs.
  Thread &self() { return *self_; }
  void yield();
  void maybe_yield(uint32_t n) { if (random.one_in(n)) yield(); }
  void block_barrier();
  void named_barrier(unsigned name, unsigned threads, bool wait);
  void warp_collective();
  void cluster_arrive();
  void cluster_wait();
  // shared_of is where another block of the cluster has what the thread's block has at p.
  void *shared_of(unsigned block, const void *p);
  // store is done some time; whole if it may be part of a line that a warp
  // stores at once.
  void store(void *p, const void *value, unsigned size, bool whole);
  void fence();
  void settle(const void *p, unsigned size);
  void wait_for_grid_before();
  void trigger();
  void *shared(const void *key, size_t size);
  void progress() { stale_ = 0; }
  // fail ends the run: a kernel did what no kernel may. A thread that calls it
  // does not go on.
  void fail(const std::string &why);

  size_t multiprocessors = 0;  // of a GPU, for a block each; 0: as many as there are blocks
  Random random;
  uint64_t now = 1;  // ns

 private:
  struct Gpu {
    std::deque<Launch> queue;
    std::shared_ptr<Grid> last;
    unsigned running = 0;
    uint64_t delay = 0;  // turns before the next grid starts
    unsigned speed = 256;
    bool hold = false;  // its stores do not arrive for now
    std::deque<Block *> waiting;  // without a multiprocessor
    size_t resident = 0;          // blocks
  };
  struct Piece { const char *at; size_t size; std::string what; };
  struct Call { uint64_t turn; std::function<void()> f; };

  void start_grids();
  void start(Gpu &g, unsigned gpu);
  void admit(Gpu &g);
  Block *beside(const Block *b, unsigned block) const;
  void change_pace();
  void turn();
  void run_thread(Thread *t);
  void let_arrive(Block *b, unsigned n);
  bool may_arrive(Block *b, size_t i) const;
  bool idle() const;
  void wake(Thread *t);
  void ended(Thread *t);
  void release_block(Block *b);
  void try_warp(Block *b, unsigned warp);
  void end_grid(Grid *g);
  std::string report() const;
  static void entry();

  std::vector<Gpu> gpus_;
  std::vector<Block *> blocks_;  // of the grids that run
  std::vector<std::shared_ptr<Grid>> grids_;
  std::vector<Thread *> pool_;
  std::vector<Piece> names_;
  std::vector<Call> calls_;
  Thread *self_ = nullptr;
  uint64_t turns_ = 0, pace_until_ = 0;
  uint64_t stale_ = 0;  // threads run since something last changed
  uint64_t threads_ = 0;
  unsigned arrive_rate_ = 1;
  bool fair_ = false, stuck_ = false;
  uint64_t runs_ = 20000;  // of each thread, before it is sure that nothing can happen
  std::string failure_;
};

// machine is the one that runs.
extern Machine *machine;

}  // namespace emu
#endif
