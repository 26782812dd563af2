// Kernels of the copy benchmark. A grid of any size does, in blocks of 512
// threads. ../testdata/fake.cpp compiles this file for the processor, too.
#include <stdint.h>

typedef unsigned long long u64;

// spin holds a stream until the host sets *flag, or for so many ticks of the
// multiprocessor's clock: a host that fails must not leave it there. Then it says
// so in *late.
extern "C" __global__ void spin(volatile uint32_t *flag, uint32_t *late, u64 ticks) {
  const u64 begin = clock64();
  while (*flag == 0) {
    if (clock64() - begin > ticks) {
      *late = 1;
      return;
    }
  }
}

// The test data: the word at index i of the data that a seed names
// (the finalizer of SplitMix64, by Vigna).
__device__ inline u64 word(u64 seed, u64 i) {
  u64 z = (seed + i) * 0x9e3779b97f4a7c15ull;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
  return z ^ (z >> 31);
}

// fill writes test data to whole words: memory has room for them.
extern "C" __global__ void fill(u64 *to, u64 bytes, u64 seed) {
  const u64 words = (bytes + 7) / 8, stride = (u64)gridDim.x * blockDim.x;
  for (u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x; i < words; i += stride) to[i] = word(seed, i);
}

// check adds to wrong[0] how many words are not test data, and has the index of
// the first of them in wrong[1]. Of the last word only what lies within the bytes
// counts.
extern "C" __global__ void check(const u64 *got, u64 bytes, u64 seed, u64 *wrong) {
  const u64 words = (bytes + 7) / 8, stride = (u64)gridDim.x * blockDim.x;
  const u64 rest = bytes % 8, last = rest ? (1ull << (8 * rest)) - 1 : ~0ull;
  for (u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x; i < words; i += stride) {
    if ((got[i] ^ word(seed, i)) & (i + 1 == words ? last : ~0ull)) {
      atomicAdd(wrong, 1ull);
      atomicMin(wrong + 1, i);
    }
  }
}

// So many words of 16 bytes a thread has on their way at the same time.
constexpr int kInFlight = 8;

// copy_words copies words of 16 bytes, thread number me of so many threads.
__device__ inline void copy_words(uint4 *to, const uint4 *from, u64 words, u64 me, u64 threads) {
  u64 i = me;
  for (; i + (kInFlight - 1) * threads < words; i += kInFlight * threads) {
    uint4 v[kInFlight];
#pragma unroll
    for (int k = 0; k < kInFlight; k++) v[k] = from[i + k * threads];
#pragma unroll
    for (int k = 0; k < kInFlight; k++) to[i + k * threads] = v[k];
  }
  for (; i < words; i += threads) to[i] = from[i];
}

// copy_rest copies the bytes behind the last whole word of 16.
__device__ inline void copy_rest(char *to, const char *from, u64 bytes, u64 me) {
  const u64 at = bytes / 16 * 16 + me;
  if (me < 16 && at < bytes) to[at] = from[at];
}

// copy copies bytes so many times over. Addresses are multiples of 16.
extern "C" __global__ void __launch_bounds__(512) copy(char *to, const char *from, u64 bytes, u64 times) {
  const u64 me = (u64)blockIdx.x * blockDim.x + threadIdx.x, threads = (u64)gridDim.x * blockDim.x;
  for (u64 t = 0; t < times; t++) {
    copy_words((uint4 *)to, (const uint4 *)from, bytes / 16, me, threads);
    copy_rest(to, from, bytes, me);
  }
}

// copy_both copies both ways at the same time: even warps a to b, odd ones c to d.
extern "C" __global__ void __launch_bounds__(512) copy_both(char *b, const char *a, char *d, const char *c, u64 bytes, u64 times) {
  const u64 me = (u64)blockIdx.x * blockDim.x + threadIdx.x, threads = (u64)gridDim.x * blockDim.x / 2;
  const u64 warp = me / 32, mine = warp / 2 * 32 + me % 32;
  char *to = warp % 2 ? d : b;
  const char *from = warp % 2 ? c : a;
  for (u64 t = 0; t < times; t++) {
    copy_words((uint4 *)to, (const uint4 *)from, bytes / 16, mine, threads);
    copy_rest(to, from, bytes, mine);
  }
}

// chase follows pointers, each of which is known only when the one before it has
// arrived, and says where it got to.
extern "C" __global__ void chase(const u64 *start, u64 steps, u64 *end) {
  const u64 *p = start;
  for (u64 i = 0; i < steps; i++) p = (const u64 *)*(const volatile u64 *)p;
  *end = (u64)p;
}
