// Kernels of the benchmark: they write test data, and count what differs from
// it. Test data is a pattern that repeats; memory is aligned to its elements
// only. A grid of any size does; an element is of 1, 2, 4 or 8 bytes.
#include <stdint.h>

// A Walk goes through a pattern in step with the elements that a thread
// visits, without a division for each.
struct Walk {
  uint32_t at, step, period;

  __device__ Walk(uint64_t first, uint64_t stride, uint32_t period)
      : at((uint32_t)(first % period)), step((uint32_t)(stride % period)), period(period) {}

  __device__ void next() {
    at += step;  // both are less than period, which is at most 2^31
    if (at >= period) at -= period;
  }
};

// tile writes n elements: dst[i] = pattern[(phase + i) % period].
template <typename T>
__device__ void tile(T *dst, uint64_t n, const T *pattern, uint32_t period, uint32_t phase) {
  const uint64_t stride = (uint64_t)gridDim.x * blockDim.x;
  uint64_t i = (uint64_t)blockIdx.x * blockDim.x + threadIdx.x;
  for (Walk w(phase + i, stride, period); i < n; i += stride, w.next()) dst[i] = pattern[w.at];
}

// compare adds to *wrong how many of n elements are more than slack away from
// what tile writes, as unsigned integers.
template <typename T>
__device__ void compare(const T *got, uint64_t n, const T *pattern, uint32_t period, uint32_t phase,
                        uint64_t slack, unsigned long long *wrong) {
  __shared__ uint32_t block;
  if (threadIdx.x == 0) block = 0;
  __syncthreads();
  const uint64_t stride = (uint64_t)gridDim.x * blockDim.x;
  uint64_t i = (uint64_t)blockIdx.x * blockDim.x + threadIdx.x;
  uint32_t bad = 0;
  for (Walk w(phase + i, stride, period); i < n; i += stride, w.next()) {
    const T a = got[i], b = pattern[w.at];
    const T apart = a > b ? a - b : b - a;
    if (apart > slack) bad++;
  }
  if (bad) atomicAdd(&block, bad);
  __syncthreads();
  if (threadIdx.x == 0 && block) atomicAdd(wrong, (unsigned long long)block);
}

#define KERNELS(bytes, T)                                                                                    \
  extern "C" __global__ void tile##bytes(T *dst, uint64_t n, const T *pattern, uint32_t period,              \
                                         uint32_t phase) {                                                   \
    tile(dst, n, pattern, period, phase);                                                                    \
  }                                                                                                          \
  extern "C" __global__ void compare##bytes(const T *got, uint64_t n, const T *pattern, uint32_t period,     \
                                            uint32_t phase, uint64_t slack, unsigned long long *wrong) {     \
    compare(got, n, pattern, period, phase, slack, wrong);                                                   \
  }

KERNELS(1, uint8_t)
KERNELS(2, uint16_t)
KERNELS(4, uint32_t)
KERNELS(8, uint64_t)
