// Products on tensor cores with wgmma, the way to their full speed on processors
// of compute capability 9.0. PTX has it since version 8.0, for sm_90a alone: see
// generate.
#include "device.h"
#include "outcome.h"

constexpr int kRows = 128, kColumns = 256, kK = 64;  // 64 numbers of 2 bytes: a row of what is swizzled as one

// A descriptor of a matrix in shared memory: its address, eight rows of 128 bytes
// to the next eight, the 128-byte swizzle; in units of 16 bytes.
__device__ inline u64 descriptor(unsigned at) { return (u64)((at & 0x3ffff) >> 4) | 1ull << 16 | (u64)(1024 >> 4) << 32 | 1ull << 62; }

#define EIGHT(d, i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]), "+f"(d[i + 6]), "+f"(d[i + 7])
#define SIXTY_FOUR(d, i) EIGHT(d, i), EIGHT(d, i + 8), EIGHT(d, i + 16), EIGHT(d, i + 24), EIGHT(d, i + 32), EIGHT(d, i + 40), EIGHT(d, i + 48), EIGHT(d, i + 56)
#define RESULTS                                                                     \
  "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, " \
  "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, " \
  "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, " \
  "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, " \
  "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, " \
  "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, " \
  "%96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, " \
  "%112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127}, "
#define WGMMA(type)                                                     \
  asm volatile(                                                         \
      "{\n.reg .pred p;\nsetp.ne.b32 p, %130, 0;\n"                     \
      "wgmma.mma_async.sync.aligned.m64n256k16.f32." type "." type " "  \
      RESULTS "%128, %129, p, 1, 1, 0, 0;\n}\n"                         \
      : SIXTY_FOUR(d, 0), SIXTY_FOUR(d, 64)                             \
      : "l"(a), "l"(b), "r"(1))

// wgmma adds to d 64 by 256 results of 16 terms.
template <bool half>
__device__ inline void wgmma(float (&d)[128], u64 a, u64 b) {
  if (half)
    WGMMA("f16");
  else
    WGMMA("bf16");
}

// swizzled is where the 16 bytes at index i are: in rows of 128 bytes, the place
// exclusive-ored with the row.
__device__ inline int swizzled(int i) { return i / 8 * 128 + (i % 8 ^ i / 8 % 8) * 16; }

// warpgroup_product has two warpgroups, each with 64 by 256 results of a[row][k]
// and b[column][k].
template <bool half>
__device__ inline void warpgroup_product(const uint4 *a, const uint4 *b, float *c, const Check &check) {
  __shared__ __align__(1024) char tiles[(kRows + kColumns) * kK * 2];
  for (int i = threadIdx.x; i < kRows * kK / 8; i += blockDim.x) *(uint4 *)(tiles + swizzled(i)) = a[i];
  for (int i = threadIdx.x; i < kColumns * kK / 8; i += blockDim.x) *(uint4 *)(tiles + kRows * kK * 2 + swizzled(i)) = b[i];
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  __syncthreads();
  const int group = threadIdx.x / 128, warp = threadIdx.x / 32 % 4, lane = threadIdx.x % 32;
  const unsigned base = (unsigned)__cvta_generic_to_shared(tiles);
  const u64 from_a = descriptor(base + group * 64 * 128), from_b = descriptor(base + kRows * kK * 2);
  Tally tally;
  for (u64 r = 0; r < check.rounds; r++) {
    float d[128];
#pragma unroll
    for (int i = 0; i < 128; i++) d[i] = 0;
#pragma unroll 1
    for (u64 n = 0; n < check.reps; n++) {
      asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
      for (int k = 0; k < kK / 16; k++) wgmma<half>(d, from_a + (k * 32 >> 4), from_b + (k * 32 >> 4));
      asm volatile("wgmma.commit_group.sync.aligned;\nwgmma.wait_group.sync.aligned 0;" : SIXTY_FOUR(d, 0), SIXTY_FOUR(d, 64)::"memory");
    }
    if (flipped(check, r)) d[0] = -d[0];
    unsigned h = 0;
#pragma unroll
    for (int i = 0; i < 128; i++) {
      h = fold(h, float_bits(d[i]));
      const int row = group * 64 + warp * 16 + i / 2 % 2 * 8 + lane / 4, column = i / 4 * 8 + lane % 4 * 2 + i % 2;
      if (c && r == 0 && blockIdx.x == 0) c[row * kColumns + column] = d[i];
    }
    tally.round(r, h);
  }
  tally.done(check);
}

extern "C" __global__ void __launch_bounds__(256, 1) wgmma_bf16(const uint4 *a, const uint4 *b, float *c, u64 rounds, u64 reps, u64 flip, Outcome *out) {
  warpgroup_product<false>(a, b, c, Check{rounds, reps, flip, out});
}

extern "C" __global__ void __launch_bounds__(256, 1) wgmma_f16(const uint4 *a, const uint4 *b, float *c, u64 rounds, u64 reps, u64 flip, Outcome *out) {
  warpgroup_product<true>(a, b, c, Check{rounds, reps, flip, out});
}
