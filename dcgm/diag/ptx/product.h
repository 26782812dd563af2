// Products on the multiprocessors' ordinary units.
#include "outcome.h"

// fma_product has 256 threads, each with two by two squares of V by V results,
// of matrices of K rows: a[k][row], b[k][column].
template <class T, class V4, int V, int K>
__device__ inline void fma_product(const T *a, const T *b, T *c, const Check &check) {
  constexpr int edge = 32 * V;
  const int tx = threadIdx.x % 16, ty = threadIdx.x / 16;
  Tally tally;
  for (u64 r = 0; r < check.rounds; r++) {
    T sum[2 * V][2 * V];
#pragma unroll
    for (int i = 0; i < 2 * V; i++)
#pragma unroll
      for (int j = 0; j < 2 * V; j++) sum[i][j] = 0;
#pragma unroll 1
    for (u64 n = 0; n < check.reps; n++) {
#pragma unroll 2
      for (int k = 0; k < K; k++) {
        V4 x[2], y[2];
#pragma unroll
        for (int h = 0; h < 2; h++) {
          x[h] = load_cached((const V4 *)(a + k * edge + h * edge / 2) + ty);
          y[h] = load_cached((const V4 *)(b + k * edge + h * edge / 2) + tx);
        }
        const T *xs = (const T *)x, *ys = (const T *)y;
#pragma unroll
        for (int i = 0; i < 2 * V; i++)
#pragma unroll
          for (int j = 0; j < 2 * V; j++) sum[i][j] += xs[i] * ys[j];
      }
    }
    if (flipped(check, r)) sum[0][0] = -sum[0][0];
    unsigned h = 0;
#pragma unroll
    for (int i = 0; i < 2 * V; i++)
#pragma unroll
      for (int j = 0; j < 2 * V; j++) {
        h = fold_value(h, sum[i][j]);
        const int row = i / V * edge / 2 + ty * V + i % V, column = j / V * edge / 2 + tx * V + j % V;
        if (c && r == 0 && blockIdx.x == 0) c[row * edge + column] = sum[i][j];
      }
    tally.round(r, h);
  }
  tally.done(check);
}

// fma_f32 is of 128 by 128 results, fma_f64 of 64 by 64.
extern "C" __global__ void __launch_bounds__(256, 2) fma_f32(const float *a, const float *b, float *c, u64 rounds, u64 reps, u64 flip, Outcome *out) {
  fma_product<float, float4, 4, 64>(a, b, c, Check{rounds, reps, flip, out});
}

extern "C" __global__ void __launch_bounds__(256, 2) fma_f64(const double *a, const double *b, double *c, u64 rounds, u64 reps, u64 flip, Outcome *out) {
  fma_product<double, double2, 2, 64>(a, b, c, Check{rounds, reps, flip, out});
}
