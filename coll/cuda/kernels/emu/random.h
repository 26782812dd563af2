#ifndef ASSAY_EMU_RANDOM_H
#define ASSAY_EMU_RANDOM_H
#include <stdint.h>

namespace emu {

// Random is a stream of numbers that its seed decides (splitmix64).
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}
  uint64_t next() {
    uint64_t z = state_ += 0x9e3779b97f4a7c15;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
    z = (z ^ z >> 27) * 0x94d049bb133111eb;
    return z ^ z >> 31;
  }
  // below is less than n, which is not 0.
  uint32_t below(uint32_t n) { return uint64_t(uint32_t(next())) * n >> 32; }
  // one_in is true once in n times.
  bool one_in(uint32_t n) { return below(n) == 0; }

 private:
  uint64_t state_;
};

}  // namespace emu
#endif
