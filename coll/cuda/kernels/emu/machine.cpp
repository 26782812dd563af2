#include "machine.h"

#include <stdio.h>
#include <stdlib.h>
#include <algorithm>

uint3 threadIdx, blockIdx;
dim3 blockDim, gridDim;

namespace emu {

Machine *machine;

void Machine::fail(const std::string &why) {
  if (failure_.empty()) failure_ = why + ", " + running();
  if (self_) self_->fiber.suspend();
}

Machine::Machine(uint64_t seed) : random(seed) { machine = this; }

Machine::~Machine() {
  for (Thread *t : pool_) delete t;
  for (Block *b : blocks_)
    for (Thread *t : b->threads) delete t;
  machine = nullptr;
}

void Machine::enqueue(unsigned gpu, Launch l) {
  if (gpus_.size() <= gpu) gpus_.resize(gpu + 1);
  gpus_[gpu].queue.push_back(std::move(l));
}

std::string Machine::run() {
  for (;;) {
    turns_++;
    now += 10;
    for (size_t i = 0; i < calls_.size();) {
      if (calls_[i].turn > turns_) {
        i++;
        continue;
      }
      std::function<void()> f = std::move(calls_[i].f);
      calls_.erase(calls_.begin() + i);
      f();
      progress();
    }
    start_grids();
    if (grids_.empty() && idle()) return "";
    if (turns_ >= pace_until_) change_pace();
    // When nothing has changed for long, everyone gets his turn and time
    // flies; what still does not change then never does.
    if (stale_ > 100 * threads_ + 1000 && !fair_) {
      fair_ = true;
      change_pace();
    }
    if (fair_) {
      now += 100000;
      if (!stale_) {
        fair_ = false;
        change_pace();
      } else if (stale_ > runs_ * (threads_ + 5) && calls_.empty()) {
        stuck_ = true;
        return report();
      }
    }
    turn();
    if (!failure_.empty()) return failure_;
  }
}

bool Machine::idle() const {
  for (const Gpu &g : gpus_)
    if (!g.queue.empty()) return false;
  return true;
}

// start_grids starts those whose turn on their GPU has come.
void Machine::start_grids() {
  for (unsigned i = 0; i < gpus_.size(); i++) {
    Gpu &g = gpus_[i];
    if (g.queue.empty()) continue;
    if (g.running) {
      if (!g.queue.front().early || g.running > 2) continue;
      bool all = true;
      for (auto &b : g.last->blocks) all &= b->triggered || !b->live;
      if (!all) continue;
    }
    if (g.delay && !fair_) {
      g.delay--;
      continue;
    }
    start(g, i);
    g.delay = random.one_in(3) ? random.below(20000) : random.below(100);
  }
}

void Machine::start(Gpu &g, unsigned gpu) {
  auto grid = std::make_shared<Grid>();
  grid->launch = std::move(g.queue.front());
  g.queue.pop_front();
  grid->gpu = gpu;
  if (g.running) grid->before = g.last;
  const Launch &l = grid->launch;
  for (unsigned z = 0; z < l.grid.z; z++)
    for (unsigned y = 0; y < l.grid.y; y++)
      for (unsigned x = 0; x < l.grid.x; x++) {
        auto b = std::make_unique<Block>();
        b->grid = grid.get();
        b->index = {x, y, z};
        b->live = l.threads;
        b->arrived = 0;
        b->ready.assign(l.threads / 32, ~0u);
        for (unsigned i = 0; i < l.threads; i++) {
          Thread *t;
          if (pool_.empty()) {
            t = new Thread();
          } else {
            t = pool_.back();
            pool_.pop_back();
          }
          t->block = b.get();
          t->index = i;
          t->warp = i / 32;
          t->lane = i % 32;
          t->met = 0;
          t->wait = Wait::none;
          t->instruction = {0, 0};
          t->polled = nullptr;
          t->fiber.start(entry);
          b->threads.push_back(t);
        }
        b->speed = 256;
        g.waiting.push_back(b.get());
        grid->blocks.push_back(std::move(b));
      }
  grid->live = grid->blocks.size();
  threads_ += grid->blocks.size() * l.threads;
  g.running++;
  g.last = grid;
  grids_.push_back(grid);
  admit(g);
  progress();
}

// admit starts blocks for which there are multiprocessors, in order; those of a cluster together.
void Machine::admit(Gpu &g) {
  while (!g.waiting.empty()) {
    const size_t n = g.waiting.front()->grid->launch.cluster;
    if (multiprocessors && g.resident && g.resident + n > multiprocessors) return;
    for (size_t i = 0; i < n; i++) {
      blocks_.push_back(g.waiting.front());
      g.waiting.pop_front();
    }
    g.resident += n;
  }
}

// change_pace draws who runs fast, slowly or not at all for a while, and how
// soon stores arrive.
void Machine::change_pace() {
  static const unsigned speeds[] = {256, 256, 256, 64, 8, 0};
  pace_until_ = turns_ + 20 + random.below(random.one_in(8) ? 4000 : 400);
  arrive_rate_ = random.below(4);
  bool even = fair_ || random.one_in(3);
  for (Gpu &g : gpus_) {
    g.speed = even ? 256 : speeds[random.below(6)];
    g.hold = !fair_ && random.one_in(6);
  }
  for (Block *b : blocks_) b->speed = even ? 256 : speeds[random.below(6)];
}

// turn runs one warp of one block, and lets stores arrive.
void Machine::turn() {
  if (blocks_.empty()) return;
  Block *b = blocks_[random.below(blocks_.size())];
  Gpu &g = gpus_[b->grid->gpu];
  if (!g.hold) let_arrive(b, fair_ ? 64 : arrive_rate_ ? random.below(1u << 2 * arrive_rate_) : random.one_in(16));
  stale_++;
  if (random.below(256) >= b->speed || random.below(256) >= g.speed) return;
  unsigned warp = random.below(b->ready.size());
  uint32_t lanes = b->ready[warp];
  if (!lanes) return;
  unsigned first = random.below(32);
  if (random.one_in(4)) {  // one lane alone
    while (!(lanes >> first & 1)) first = (first + 1) % 32;
    lanes = 1u << first;
  }
  Grid *grid = b->grid;
  for (unsigned i = 0; i < 32; i++) {
    unsigned lane = (first + i) % 32;
    if (!(lanes >> lane & 1) || !(b->ready[warp] >> lane & 1)) continue;
    run_thread(b->threads[warp * 32 + lane]);
    if (grid->ended) break;  // the block is gone
  }
  if (grid->ended) end_grid(grid);
}

void Machine::run_thread(Thread *t) {
  Block *b = t->block;
  unsigned n = b->threads.size();
  threadIdx = {t->index, 0, 0};
  blockIdx = b->index;
  blockDim = {n, 1, 1};
  gridDim = b->grid->launch.grid;
  self_ = t;
  stale_++;
  t->fiber.resume();
  self_ = nullptr;
  if (t->fiber.overrun()) fail("a thread's stack is too small for the kernel");
  if (t->wait == Wait::ended) ended(t);
}

void Machine::entry() {
  machine->self_->block->grid->launch.kernel();
  Thread &t = machine->self();
  t.wait = Wait::ended;
  t.block->ready[t.warp] &= ~(1u << t.lane);
  t.fiber.suspend();
}

// ended counts the thread as one that has arrived wherever others wait.
void Machine::ended(Thread *t) {
  progress();
  Block *b = t->block;
  b->live--;
  threads_--;
  try_warp(b, t->warp);
  if (b->live && b->arrived == b->live) release_block(b);
  if (b->live) return;
  if (--b->grid->live == 0) b->grid->ended = true;
  Gpu &g = gpus_[b->grid->gpu];
  g.resident--;
  admit(g);
}

// end_grid lets all stores of a grid arrive, and the next one see them.
void Machine::end_grid(Grid *g) {
  for (auto &b : g->blocks) {
    while (!b->stores.empty()) b->stores.arrive(random.below(b->stores.size()));
    for (Thread *t : b->threads) pool_.push_back(t);
    b->threads.clear();
    blocks_.erase(std::find(blocks_.begin(), blocks_.end(), b.get()));
  }
  gpus_[g->gpu].running--;
  if (g->launch.done) g->launch.done();
  for (Block *b : blocks_)
    for (Thread *t : b->threads)
      if (t->wait == Wait::grid && b->grid->before.get() == g) wake(t);
  for (auto &next : grids_)
    if (next->before.get() == g) next->before = nullptr;
  grids_.erase(std::find_if(grids_.begin(), grids_.end(), [g](auto &p) { return p.get() == g; }));
}

void Machine::yield() { self_->fiber.suspend(); }

void Machine::wake(Thread *t) {
  t->wait = Wait::none;
  t->block->ready[t->warp] |= 1u << t->lane;
}

// block_barrier waits for the block's other threads. value becomes the sum of
// what they gave.
void Machine::block_barrier() {
  Thread &t = *self_;
  Block *b = t.block;
  t.wait = Wait::block;
  b->ready[t.warp] &= ~(1u << t.lane);
  if (++b->arrived == b->live) release_block(b);
  yield();
}

void Machine::release_block(Block *b) {
  uint64_t sum = 0;
  for (Thread *t : b->threads)
    if (t->wait == Wait::block) sum += t->value;
  for (Thread *t : b->threads) {
    if (t->wait != Wait::block) continue;
    t->value = sum;
    t->instruction = {t->instruction.collectives + 1, 0};
    wake(t);
  }
  b->arrived = 0;
  b->stores.widen_to_block();
}

// named_barrier is one of so many threads. A thread arrives once each time; what it stored before,
// the fences of others wait for.
void Machine::named_barrier(unsigned name, unsigned threads, bool wait) {
  Thread &t = *self_;
  Block *b = t.block;
  if (name == 0 || name >= 16 || threads == 0 || threads % 32 || threads > b->threads.size()) return fail("there is no such barrier");
  Named &n = b->named[name];
  if (threads > b->live) return fail("threads have ended for which a barrier waits");
  if (n.threads && n.threads != threads) return fail("threads meet at a barrier that is for other numbers of them");
  if (std::find(n.arrived.begin(), n.arrived.end(), &t) != n.arrived.end()) return fail("a thread arrives a second time at a barrier");
  n.threads = threads;
  n.arrived.push_back(&t);
  b->stores.widen(t.index);
  t.instruction = {t.instruction.collectives + 1, 0};
  const bool last = n.arrived.size() == threads;
  if (last) {
    for (Thread *w : n.waiting) wake(w);
    n = Named();
    progress();
  } else if (wait) {
    n.waiting.push_back(&t);
    t.wait = Wait::named;
    b->ready[t.warp] &= ~(1u << t.lane);
    yield();
    return;
  }
  maybe_yield(4);
}

// warp_collective waits for the lanes of the mask. They all give value; it
// becomes the result.
void Machine::warp_collective() {
  Thread &t = *self_;
  if (!(t.mask >> t.lane & 1)) fail("a lane is not in the mask of its own collective");
  t.wait = Wait::warp;
  t.block->ready[t.warp] &= ~(1u << t.lane);
  try_warp(t.block, t.warp);
  yield();
}

// try_warp completes the collectives of a warp whose lanes are all there.
void Machine::try_warp(Block *b, unsigned warp) {
  Thread **lanes = &b->threads[warp * 32];
  uint32_t tried = 0;
  for (unsigned l = 0; l < 32; l++) {
    Thread *t = lanes[l];
    if (t->wait != Wait::warp || tried >> l & 1) continue;
    uint32_t mask = t->mask, in = 0;
    bool all = true;
    for (unsigned i = 0; i < 32; i++) {
      Thread *o = lanes[i];
      if (!(mask >> i & 1) || o->wait == Wait::ended) continue;
      if (o->wait != Wait::warp) {
        all = false;
        continue;
      }
      if (o->mask != mask || o->kind != t->kind) return fail("lanes of a warp meet in different collectives");
      in |= 1u << i;
    }
    tried |= in;
    if (!all) continue;
    uint32_t votes = 0;
    uint64_t given[32] = {};
    for (unsigned i = 0; i < 32; i++) {
      if (!(in >> i & 1)) continue;
      given[i] = lanes[i]->value;
      if (given[i]) votes |= 1u << i;
    }
    for (unsigned i = 0; i < 32; i++) {
      if (!(in >> i & 1)) continue;
      Thread *o = lanes[i];
      switch (o->kind) {
        case Collective::sync: break;
        case Collective::any: o->value = votes != 0; break;
        case Collective::all: o->value = votes == in; break;
        case Collective::ballot: o->value = votes; break;
        case Collective::shuffle:
          if (!(in >> o->from & 1)) return fail("a lane shuffles from one that is not there");
          o->value = given[o->from];
      }
      o->instruction = {o->instruction.collectives + 1, 0};
      wake(o);
    }
    b->stores.widen_to_warp(warp, in);
  }
}

void Machine::store(void *p, const void *value, unsigned size, bool whole) {
  Thread &t = *self_;
  Block *b = t.block;
  for (unsigned i = 0; i < size; i += 8) {
    Store s = {};
    s.at = static_cast<char *>(p) + i;
    s.size = size < 8 ? size : 8;
    memcpy(&s.value, static_cast<const char *>(value) + i, s.size);
    s.thread = t.index;
    s.line = whole && b->grid->launch.lines && size == 16;
    s.instruction = t.instruction;
    b->stores.add(s);
  }
  if (whole) t.instruction.stores++;
  if (b->stores.size() > 512) let_arrive(b, 16);
}

// may_arrive is false of a part of a line while the rest may still come: a warp
// stores a line at once where its lanes do not part.
bool Machine::may_arrive(Block *b, size_t i) const {
  const Store &s = b->stores[i];
  if (!s.line || b->stores.complete(i)) return true;
  for (unsigned l = 0; l < 32; l++) {
    const Thread *t = b->threads[s.thread / 32 * 32 + l];
    bool past = t->wait != Wait::none || t->instruction.collectives > s.instruction.collectives || t->instruction.stores > s.instruction.stores;
    if (!past) return false;
  }
  return true;
}

void Machine::let_arrive(Block *b, unsigned n) {
  for (; n && !b->stores.empty(); n--) {
    size_t i = random.below(b->stores.size());
    if (may_arrive(b, i) && b->stores.arrive(i)) progress();
  }
}

// fence waits for the stores that the thread did or that happened before.
void Machine::fence() {
  Thread &t = *self_;
  Stores &stores = t.block->stores;
  for (int patience = 1000;;) {
    int i = stores.pending(t.index);
    if (i < 0) return;
    if (!may_arrive(t.block, i) && patience-- > 0) {
      yield();
      continue;
    }
    if (stores.arrive(i)) progress();
  }
}

// settle makes what was stored at p arrive, for an atomic operation.
void Machine::settle(const void *p, unsigned size) {
  Stores &stores = self_->block->stores;
  const char *at = static_cast<const char *>(p);
  for (size_t i = stores.size(); i-- > 0;)
    if (i < stores.size() && stores[i].at < at + size && at < stores[i].at + stores[i].size) stores.arrive(i);
}

void Machine::wait_for_grid_before() {
  Thread &t = *self_;
  if (!t.block->grid->before) return;
  t.wait = Wait::grid;
  t.block->ready[t.warp] &= ~(1u << t.lane);
  yield();
}

void *Machine::shared(const void *key, size_t size) {
  auto &all = self_->block->shared;
  for (Shared &s : all)
    if (s.key == key) return s.bytes.get();
  all.push_back({key, std::unique_ptr<char[]>(new char[size]), size});
  memset(all.back().bytes.get(), 0xa5, size);  // as on a GPU: not zero
  return all.back().bytes.get();
}

// beside is a block of b's cluster.
Block *Machine::beside(const Block *b, unsigned block) const { return b->grid->blocks[b->index.x - b->index.x % b->grid->launch.cluster + block].get(); }

void Machine::cluster_arrive() {
  self_->met++;
  progress();
  maybe_yield(4);
}

// cluster_wait waits until all threads of the cluster have arrived as often as this one, or ended.
void Machine::cluster_wait() {
  Thread &t = *self_;
  if (!t.met) return fail("a thread waits at its cluster's barrier before it has arrived");
  for (unsigned i = 0; i < t.block->grid->launch.cluster; i++)
    for (const Thread *o : beside(t.block, i)->threads)
      while (o->wait != Wait::ended && o->met < t.met) yield();
}

void *Machine::shared_of(unsigned block, const void *p) {
  Block *own = self_->block;
  if (block >= own->grid->launch.cluster) fail("the cluster has no such block");
  Block *other = beside(own, block);
  if (!other->live) fail("a store to shared memory of a block that has ended");
  const char *at = static_cast<const char *>(p);
  for (const Shared &s : own->shared) {
    if (at < s.bytes.get() || at >= s.bytes.get() + s.size) continue;
    for (const Thread *o : other->threads)
      if (!o->met && o->wait != Wait::ended) fail("a store to shared memory of a block that may not have begun");
    for (const Shared &o : other->shared)
      if (o.key == s.key) return o.bytes.get() + (at - s.bytes.get());
  }
  fail("a store to shared memory that another block does not have");
  return nullptr;
}

void Machine::trigger() { self_->block->triggered = true; }

std::string Machine::where(const void *p) const {
  const char *at = static_cast<const char *>(p);
  char text[200];
  for (const Piece &n : names_) {
    if (at < n.at || at >= n.at + n.size) continue;
    snprintf(text, sizeof text, "%s + %zu", n.what.c_str(), size_t(at - n.at));
    return text;
  }
  snprintf(text, sizeof text, "%p", p);
  return text;
}

std::string Machine::running() const {
  if (!self_) return "on the host";
  const Thread &t = *self_;
  char text[200];
  snprintf(text, sizeof text, "GPU %u, %s, block %u,%u, thread %u", t.block->grid->gpu, t.block->grid->launch.name.c_str(), t.block->index.x, t.block->index.y, t.index);
  return text;
}

// report says of every warp that has not ended what its first thread waits for.
std::string Machine::report() const {
  static const char *names[] = {"polls", "in a warp's collective", "at a barrier", "at a named barrier", "for the grid before", "ended"};
  std::string s = "nothing changes any more:\n";
  for (const Block *b : blocks_) {
    char text[400];
    for (size_t w = 0; w < b->ready.size(); w++) {
      const Thread *shown = nullptr;
      unsigned n = 0;
      for (unsigned l = 0; l < 32; l++) {
        const Thread *t = b->threads[w * 32 + l];
        if (t->wait == Wait::ended) continue;
        n++;
        if (!shown || (shown->wait != Wait::none && t->wait == Wait::none)) shown = t;
      }
      if (!shown) continue;
      snprintf(text, sizeof text, "  GPU %u, %s, block %u,%u, warp %zu: %u threads, %u %s, last load %s: %u, stores under way %zu\n", b->grid->gpu, b->grid->launch.name.c_str(), b->index.x, b->index.y, w, n,
               shown->index, names[int(shown->wait)], shown->polled ? where(shown->polled).c_str() : "none", shown->found, b->stores.size());
      s += text;
    }
  }
  for (size_t i = 0; i < gpus_.size(); i++)
    if (!gpus_[i].queue.empty()) s += "  GPU " + std::to_string(i) + " has " + std::to_string(gpus_[i].queue.size()) + " grids to start\n";
  return s;
}

}  // namespace emu
