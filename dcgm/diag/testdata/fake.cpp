// The fake driver with the kernels of memory.h and product.h; those for tensor cores are
// replaced.
#include "fakecuda.h"

template <class T> static T load_once(const T *p) { return *p; }
template <class T> static T load_cached(const T *p) { return *p; }
static unsigned float_bits(float v) { return __builtin_bit_cast(unsigned, v); }
static u64 double_bits(double v) { return __builtin_bit_cast(u64, v); }
static unsigned multiprocessor() { return blockIdx.x; }

#include "memory.h"
#include "product.h"

static float wide(uint16_t v, bool half) {
  if (!half) return __builtin_bit_cast(float, unsigned(v) << 16);
  const float size = (v & 0x7fff) == 0 ? 0 : __builtin_bit_cast(float, (unsigned(v & 0x7fff) << 13) + (112u << 23));
  return v & 0x8000 ? -size : size;
}

// tensor_product is what stands for a kernel on tensor cores: the first thread of a
// block does it all.
template <int columns, bool half>
static void tensor_product(const uint16_t *a, const uint16_t *b, float *c, u64 rounds, u64 reps, u64 flip, Outcome *out) {
  if (threadIdx.x != 0) return;
  const Check check{rounds, reps, flip, out};
  Tally tally;
  for (u64 r = 0; r < rounds; r++) {
    unsigned h = 0;
    for (int i = 0; i < 128; i++)
      for (int j = 0; j < columns; j++) {
        float sum = 0;
        for (int k = 0; k < 64; k++) sum += wide(a[i * 64 + k], half) * wide(b[j * 64 + k], half);
        sum *= reps;
        if (i + j == 0 && flipped(check, r)) sum = -sum;
        h = fold(h, float_bits(sum));
        if (c && r == 0 && blockIdx.x == 0) c[i * columns + j] = sum;
      }
    tally.round(r, h);
  }
  tally.done(check);
}

std::map<std::string, CUfunc_st> functions{
    {"pattern_write", kernel_of(pattern_write)}, {"pattern_verify", kernel_of(pattern_verify)}, {"flip", kernel_of(flip)},
    {"stream_read", kernel_of(stream_read)}, {"stream_copy", kernel_of(stream_copy)}, {"stream_triad", kernel_of(stream_triad)},
    {"fma_f32", kernel_of(fma_f32)}, {"fma_f64", kernel_of(fma_f64)},
    {"mma_bf16", kernel_of(tensor_product<128, false>)}, {"mma_f16", kernel_of(tensor_product<128, true>)},
    {"wgmma_bf16", kernel_of(tensor_product<256, false>)}, {"wgmma_f16", kernel_of(tensor_product<256, true>)}};

