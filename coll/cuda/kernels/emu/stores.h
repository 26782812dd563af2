// Stores are the volatile stores of a block that have not arrived yet.
#ifndef ASSAY_EMU_STORES_H
#define ASSAY_EMU_STORES_H
#include <stddef.h>
#include <stdint.h>
#include <vector>

#include "random.h"

namespace emu {

// Reach says whose fence waits for a store: that of the thread that did it,
// after a warp's collective that of any of the warp, after a block's barrier
// anyone's in the block.
enum class Reach : uint8_t { thread, warp, block };

// An Instruction names one store instruction of a warp: its lanes that execute
// it together have the same number of collectives and of stores since the last.
struct Instruction {
  uint32_t collectives, stores;
  bool operator==(const Instruction &o) const { return collectives == o.collectives && stores == o.stores; }
};

struct Store {
  char *at;
  uint64_t value;
  uint8_t size;  // 4 or 8
  Reach reach;
  uint16_t thread;
  bool line;  // is to arrive with the rest of its line of 128 bytes
  Instruction instruction;
};

class Stores {
 public:
  bool empty() const { return queue_.empty(); }
  size_t size() const { return queue_.size(); }
  void add(const Store &s);
  // load copies size bytes at p as thread sees them.
  void load(void *to, const char *p, unsigned size, unsigned thread) const;
  // widen lets the fences of a warp's other lanes (by the mask), or of the
  // whole block, wait for what these threads stored.
  void widen_to_warp(unsigned warp, uint32_t mask);
  void widen_to_block();
  // widen lets the fences of the whole block wait for what one thread stored.
  void widen(unsigned thread);
  // visible reports whether thread's fence waits for s.
  static bool visible(const Store &s, unsigned thread);
  // pending is the index of a store that thread's fence has to wait for, or -1.
  int pending(unsigned thread) const;
  // overlaps is whether some store to these bytes has not arrived.
  bool overlaps(const char *p, unsigned size) const;

  // complete reports whether the whole line of the i-th store is here.
  bool complete(size_t i) const;
  // arrive writes the i-th store to memory, after those before it to the same
  // bytes; a complete line as a whole. It reports whether memory changed.
  // Another process sees a line's last words only with those before them: its
  // loads are in order on x86, and kernels have a line's flag at its end.
  bool arrive(size_t i);
  const Store &operator[](size_t i) const { return queue_[i]; }

 private:
  static unsigned hash(const char *p) { return (reinterpret_cast<uintptr_t>(p) >> 3) * 0x9e3779b1u >> 20 & 1023; }
  bool same_line(const Store &a, const Store &b) const;
  bool apply(size_t i);

  std::vector<Store> queue_;  // oldest first
  uint16_t filter_[1024] = {};  // stores by the hash of their 8 bytes
};

}  // namespace emu
#endif
