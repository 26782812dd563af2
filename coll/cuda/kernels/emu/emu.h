// What kernels see of the emulator: the words of CUDA C++ that they use, and
// the memory accesses that device.cuh writes in assembly on a GPU.
#ifndef ASSAY_EMU_H
#define ASSAY_EMU_H
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(...)
#define __grid_constant__

#define __noinline__ __attribute__((noinline))

// SHARED declares a variable of the block's shared memory: the machine finds
// each block's own by the key's address.
#define SHARED(type, name)     \
  static const char name##_key = 0; \
  type &name = *static_cast<type *>(emu::shared(&name##_key, sizeof(type)))

// Few, so that threads may give up at any place.
enum { LOOKS = 16 };

struct uint3 { unsigned x, y, z; };
struct dim3 { unsigned x = 1, y = 1, z = 1; };
struct alignas(8) uint2 { unsigned x, y; };


extern uint3 threadIdx, blockIdx;
extern dim3 blockDim, gridDim;
constexpr int warpSize = 32;

template <class T> inline T min(T a, T b) { return b < a ? b : a; }
template <class T> inline T max(T a, T b) { return a < b ? b : a; }

namespace emu {
void *shared(const void *key, size_t size);


// remote is the memory in which plain stores of 16 bytes are seen by others,
// and arrive as late as volatile ones.
extern struct Remote {
  uintptr_t at, size;
} remote;
void store_plain(void *p, const void *v);

template <class To, class From> inline To bits(From v) {
  static_assert(sizeof(To) == sizeof(From), "sizes");
  To t;
  memcpy(&t, &v, sizeof t);
  return t;
}
}  // namespace emu

struct alignas(16) uint4 {
  unsigned x, y, z, w;
  uint4() = default;
  uint4(const uint4 &) = default;
  uint4 &operator=(const uint4 &v) {
    if (reinterpret_cast<uintptr_t>(this) - emu::remote.at < emu::remote.size)
      emu::store_plain(this, &v);
    else
      memcpy(this, &v, sizeof v);
    return *this;
  }
};

inline uint2 make_uint2(unsigned x, unsigned y) { return {x, y}; }
inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return {x, y, z, w}; }

inline unsigned __float_as_uint(float v) { return emu::bits<unsigned>(v); }
inline int __float_as_int(float v) { return emu::bits<int>(v); }
inline float __uint_as_float(unsigned v) { return emu::bits<float>(v); }
inline float __int_as_float(int v) { return emu::bits<float>(v); }
inline long long __double_as_longlong(double v) { return emu::bits<long long>(v); }
inline double __longlong_as_double(long long v) { return emu::bits<double>(v); }
inline int __popc(unsigned v) { return __builtin_popcount(v); }
inline int __ffs(int v) { return __builtin_ffs(v); }
inline int __clz(int v) { return v ? __builtin_clz(v) : 32; }
inline void __nanosleep(unsigned) {}

// Barriers and what the lanes of a warp do together.
void __syncthreads();
int __syncthreads_or(int);
int __syncthreads_and(int);
int __syncthreads_count(int);
void __syncwarp(unsigned mask = ~0u);
int __any_sync(unsigned mask, int);
int __all_sync(unsigned mask, int);
unsigned __ballot_sync(unsigned mask, int);

namespace emu {
uint64_t shuffle(unsigned mask, uint64_t v, int from);
int lane();
template <class T> inline T shuffled(unsigned mask, T v, int from) {
  static_assert(sizeof(T) == 4 || sizeof(T) == 8, "4 or 8 bytes");
  uint64_t u = 0;
  memcpy(&u, &v, sizeof v);
  u = shuffle(mask, u, from);
  memcpy(&v, &u, sizeof v);
  return v;
}
}  // namespace emu

template <class T> inline T __shfl_sync(unsigned mask, T v, int from, int width = 32) {
  int l = emu::lane();
  return emu::shuffled(mask, v, (l & -width) | (from & (width - 1)));
}
template <class T> inline T __shfl_xor_sync(unsigned mask, T v, int bits, int width = 32) {
  int l = emu::lane(), from = l ^ bits;
  return emu::shuffled(mask, v, (from & -width) == (l & -width) ? from : l);
}
template <class T> inline T __shfl_up_sync(unsigned mask, T v, unsigned d, int width = 32) {
  int l = emu::lane(), from = l - int(d);
  return emu::shuffled(mask, v, from >= (l & -width) ? from : l);
}
template <class T> inline T __shfl_down_sync(unsigned mask, T v, unsigned d, int width = 32) {
  int l = emu::lane(), from = l + int(d);
  return emu::shuffled(mask, v, from < (l & -width) + width ? from : l);
}

// Memory. A volatile store arrives some time later, unordered with those to
// other addresses; a fence waits for them. An unaligned access ends the test.
uint4 ld_volatile(const uint4 *);
uint2 ld_volatile(const uint2 *);
uint32_t ld_volatile(const uint32_t *);
void st_volatile(uint4 *, uint4);
void st_volatile(uint2 *, uint2);
void st_volatile(uint32_t *, uint32_t);
uint4 ld_slot(const uint4 *);
uint32_t ld_acquire(const uint32_t *);
void st_release(uint32_t *, uint32_t);
void fence_system();
uint32_t atomicAdd(uint32_t *, uint32_t);
uint32_t atomicExch(uint32_t *, uint32_t);
uint32_t atomicCAS(uint32_t *, uint32_t expected, uint32_t v);

void barrier_sync(uint32_t name, uint32_t threads);
void barrier_arrive(uint32_t name, uint32_t threads);

void cluster_arrive();
void cluster_wait();
void cluster_store(uint64_t *at, uint32_t block, uint64_t v);
uint64_t ld_shared(const uint64_t *);

uint64_t now_ns();
void pause_ns(unsigned);
void dependency_wait();
void dependents_launch();

#endif
