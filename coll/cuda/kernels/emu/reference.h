#ifndef ASSAY_EMU_REFERENCE_H
#define ASSAY_EMU_REFERENCE_H
#include <stddef.h>
#include <stdint.h>

namespace emu {

constexpr int kTypes = 12, kOps = 4;

// A Scaling is what is done to elements before and after a reduction, see Args.
struct Scaling {
  uint32_t kind;
  uint64_t factor;
  uint32_t divisor;
};

size_t size_of(int type);

// reduce reduces n sources of so many bytes in their order, one after the
// other, into out. Elements are reduced as reduce.cuh does, which has a test of
// its own.
void reduce(int type, int op, char *out, const char *const *in, int n, size_t bytes, const Scaling &s);

// load and store are a float of 32 or 16 bits.
float load(int type, const char *at);
void store(int type, char *at, float x);

// normalize is norm.cuh's residual, which may be `before`, and out.
void normalize(int type, char *out, char *residual, const char *sum, const char *before, const char *weight, size_t rows, size_t row, float eps);

}  // namespace emu
#endif
