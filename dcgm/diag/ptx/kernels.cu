// Kernels of the diagnostics. A grid of any size does.
#include "device.h"
#include "memory.h"
#include "product.h"
#include "tensor.h"

extern "C" __global__ void __launch_bounds__(128, 2) mma_bf16(const uint4 *a, const uint4 *b, float *c, u64 rounds, u64 reps, u64 flip, Outcome *out) {
  tensor_product<false>(a, b, c, Check{rounds, reps, flip, out});
}

extern "C" __global__ void __launch_bounds__(128, 2) mma_f16(const uint4 *a, const uint4 *b, float *c, u64 rounds, u64 reps, u64 flip, Outcome *out) {
  tensor_product<true>(a, b, c, Check{rounds, reps, flip, out});
}
