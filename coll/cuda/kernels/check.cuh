// Checksums of memory, and their comparison. A change of one aligned word of 8 bytes always changes the
// checksum: what is done to a word can be undone. Of several words it goes unseen once in 2^64 times.
#ifndef ASSAY_CHECK_CUH
#define ASSAY_CHECK_CUH
#include "check.h"
#include "device.cuh"

__device__ __forceinline__ uint64_t mixed(uint32_t low, uint32_t high, uint64_t index) {
  uint64_t x = ((uint64_t)high << 32 | low) ^ (index + 1) * 0x9e3779b97f4a7c15u;
  x *= 0xff51afd7ed558ccdu;
  x ^= x >> 32;
  return x * 0xc4ceb9fe1a85ec53u;
}

// checksum_spans computes the checksums. The block that is last adds what all have.
__device__ __forceinline__ void checksum_spans(const Check &k) {
  typedef uint64_t Sums[512 / 32];
  SHARED(Sums, sums);
  SHARED(uint32_t, before);
  dependency_wait();
  const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const uint64_t threads = (uint64_t)gridDim.x * blockDim.x, self = (uint64_t)blockIdx.x * blockDim.x + threadIdx.x;
  enum { U = 4 };
  for (uint32_t s = 0; s < k.count; s++) {
    const char *const at = k.spans[s].at;
    const uint64_t n = k.spans[s].bytes;
    uint64_t sum = 0;
    for (uint64_t i = self; i * 16 < n; i += U * threads) {
      uint32_t w[U][4];
#pragma unroll
      for (int u = 0; u < U; u++)
        if ((i + u * threads) * 16 < n) load_words(w[u], at, (i + u * threads) * 16, n);
#pragma unroll
      for (int u = 0; u < U; u++) {
        const uint64_t word = 2 * (i + u * threads);
        if (word * 8 < n) sum += mixed(w[u][0], w[u][1], word);
        if (word * 8 + 8 < n) sum += mixed(w[u][2], w[u][3], word + 1);
      }
    }
    for (int d = 16; d > 0; d /= 2) sum += __shfl_down_sync(~0u, sum, d);
    if (lane == 0) sums[warp] = sum;
    __syncthreads();
    if (threadIdx.x == 0) {
      for (uint32_t i = 1; i < blockDim.x / 32; i++) sum += sums[i];
      k.partial[blockIdx.x * CHECK_SPANS + s] = sum;
    }
    __syncthreads();
  }
  if (threadIdx.x == 0) {
    fence_system();
    before = atomicAdd(k.arrived, 1u);
  }
  __syncthreads();
  if (before != gridDim.x - 1) return;
  fence_system();
  if (threadIdx.x < k.count) {
    uint64_t sum = 0;
    for (uint32_t b = 0; b < gridDim.x; b++) {
      const uint2 part = ld_volatile((const uint2 *)(k.partial + b * CHECK_SPANS + threadIdx.x));
      sum += (uint64_t)part.y << 32 | part.x;
    }
    k.words[threadIdx.x] = sum;
  }
  if (threadIdx.x == 0) *k.arrived = 0;
}

// compare_all tells the host if words of a class differ. One block.
__device__ __forceinline__ void compare_all(const CheckWords &k) {
  dependency_wait();
  const uint32_t all = k.ranks * CHECK_WORDS;
  const uint8_t *const of = &k.classes[0][0];
  bool differs = false;
  for (uint32_t i = threadIdx.x; i < all; i += blockDim.x) {
    if (of[i] == 255) continue;
    uint32_t first = 0;
    while (of[first] != of[i]) first++;
    differs = differs || k.words[first] != k.words[i];
  }
  if (!__syncthreads_or(differs)) return;
  const bool free = __syncthreads_or(threadIdx.x == 0 && ld_volatile(&k.found->taken) == 0);
  if (free) {
    for (uint32_t i = threadIdx.x; i < all; i += blockDim.x) st_volatile((uint2 *)(&k.found->words[0][0] + i), make_uint2((uint32_t)k.words[i], (uint32_t)(k.words[i] >> 32)));
    fence_system();
  }
  __syncthreads();
  if (threadIdx.x == 0) {
    st_volatile(&k.found->count, ld_volatile(&k.found->count) + 1);
    if (!free) return;
    st_volatile(&k.found->number, k.number);
    fence_system();
    st_volatile(&k.found->taken, 1);
  }
}

#endif
