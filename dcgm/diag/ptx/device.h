// What the kernels take from the processor; ../testdata/fake.cpp has the same for
// the host's.
#include <stdint.h>

typedef unsigned long long u64;

__device__ inline ulonglong2 load_once(const ulonglong2 *p) { return __ldcs(p); }
__device__ inline float4 load_cached(const float4 *p) { return __ldg(p); }
__device__ inline double2 load_cached(const double2 *p) { return __ldg(p); }
__device__ inline unsigned float_bits(float v) { return __float_as_uint(v); }
__device__ inline u64 double_bits(double v) { return __double_as_longlong(v); }
__device__ inline unsigned multiprocessor() {
  unsigned id;
  asm volatile("mov.u32 %0, %%smid;" : "=r"(id));
  return id;
}
