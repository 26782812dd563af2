// What differs between a GPU and the emulator of the tests: memory accesses
// with an order, fences, time. All inline assembly is here.
#ifndef ASSAY_DEVICE_CUH
#define ASSAY_DEVICE_CUH
#include "abi.h"

// Loops over ranks are unrolled for so many. Kernels for few ranks have fewer
// registers and less code to fetch.
#ifndef ASSAY_RANKS
#define ASSAY_RANKS MAX_RANKS
#endif

#ifdef __CUDACC__

#define SHARED(type, name) __shared__ type name

// A thread that waits looks for a reason to give up each time that so many looks have found nothing.
enum { LOOKS = 1024 };

// Volatile accesses go past L1, are not merged, and have the strength of
// relaxed ones at system scope.
__device__ __forceinline__ uint4 ld_volatile(const uint4 *p) {
  uint4 v;
  asm volatile("ld.volatile.global.v4.u32 {%0,%1,%2,%3}, [%4];" : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(p) : "memory");
  return v;
}
__device__ __forceinline__ uint2 ld_volatile(const uint2 *p) {
  uint2 v;
  asm volatile("ld.volatile.global.v2.u32 {%0,%1}, [%2];" : "=r"(v.x), "=r"(v.y) : "l"(p) : "memory");
  return v;
}
__device__ __forceinline__ uint32_t ld_volatile(const uint32_t *p) {
  uint32_t v;
  asm volatile("ld.volatile.global.u32 %0, [%1];" : "=r"(v) : "l"(p) : "memory");
  return v;
}
__device__ __forceinline__ void st_volatile(uint4 *p, uint4 v) {
  asm volatile("st.volatile.global.v4.u32 [%0], {%1,%2,%3,%4};" ::"l"(p), "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w) : "memory");
}
__device__ __forceinline__ void st_volatile(uint2 *p, uint2 v) {
  asm volatile("st.volatile.global.v2.u32 [%0], {%1,%2};" ::"l"(p), "r"(v.x), "r"(v.y) : "memory");
}
__device__ __forceinline__ void st_volatile(uint32_t *p, uint32_t v) {
  asm volatile("st.volatile.global.u32 [%0], %1;" ::"l"(p), "r"(v) : "memory");
}
// ld_slot reads what a peer wrote before the message was posted.
__device__ __forceinline__ uint4 ld_slot(const uint4 *p) {
  uint4 v;
  asm volatile("ld.relaxed.sys.global.v4.u32 {%0,%1,%2,%3}, [%4];" : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(p) : "memory");
  return v;
}
__device__ __forceinline__ uint32_t ld_acquire(const uint32_t *p) {
  uint32_t v;
  asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(v) : "l"(p) : "memory");
  return v;
}
__device__ __forceinline__ void fence_system() { asm volatile("fence.acq_rel.sys;" ::: "memory"); }
__device__ __forceinline__ uint64_t now_ns() {
  uint64_t t;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(t));
  return t;
}
// barrier_sync and barrier_arrive are a named barrier (1 to 15) of so many threads. All lanes of a
// warp call them together, after a __syncwarp if they may have parted. A warp that arrives does not
// wait; those that wait see what it wrote before. (The forms for parted lanes, barrier.sync and
// barrier.arrive, as CUDA 11.8 compiles them, ended in illegal instructions on an H100.)
__device__ __forceinline__ void barrier_sync(uint32_t name, uint32_t threads) { asm volatile("bar.sync %0, %1;" ::"r"(name), "r"(threads) : "memory"); }
__device__ __forceinline__ void barrier_arrive(uint32_t name, uint32_t threads) { asm volatile("bar.arrive %0, %1;" ::"r"(name), "r"(threads) : "memory"); }
// Blocks of a cluster run at the same time (compute capability 9.0) and write to each other's shared
// memory. That of a block is there from its cluster_arrive, which all threads call, to its end: others
// write after their cluster_wait, and the block does not end before it has what they write.
//
// cluster_store stores v in another block of the cluster, where this one has `at`. ld_shared reads what
// may have been stored so. (A barrier behind the stores would wait for those to peers, too: 0.5 us.)
#if __CUDA_ARCH__ >= 900
__device__ __forceinline__ void cluster_arrive() { asm volatile("barrier.cluster.arrive.aligned;" ::: "memory"); }
__device__ __forceinline__ void cluster_wait() { asm volatile("barrier.cluster.wait.aligned;" ::: "memory"); }
__device__ __forceinline__ void cluster_store(uint64_t *at, uint32_t block, uint64_t v) {
  uint32_t there;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"((uint32_t)__cvta_generic_to_shared(at)), "r"(block));
  asm volatile("st.volatile.shared::cluster.u64 [%0], %1;" ::"r"(there), "l"(v) : "memory");
}
#else
__device__ __forceinline__ void cluster_arrive() {}
__device__ __forceinline__ void cluster_wait() {}
__device__ __forceinline__ void cluster_store(uint64_t *, uint32_t, uint64_t) {}
#endif
__device__ __forceinline__ uint64_t ld_shared(const uint64_t *p) {
  uint64_t v;
  asm volatile("ld.volatile.shared.u64 %0, [%1];" : "=l"(v) : "r"((uint32_t)__cvta_generic_to_shared(p)) : "memory");
  return v;
}
// dependency_wait returns when the kernel before has ended and its writes are
// there, if this one was launched early.
__device__ __forceinline__ void dependency_wait() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
// dependents_launch lets the kernel behind be launched early.
__device__ __forceinline__ void dependents_launch() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

#else
#include "emu/emu.h"
#endif

__device__ __forceinline__ Channel *channel_of(const Comm &c, int owner, uint32_t ch) { return (Channel *)c.win[owner] + ch; }

// left_of is where it stands, in owner's window, whether a rank has given up. Every rank says so in its
// own window: what it would send from then on, in this kernel and in all behind it, may come of what did
// not happen. So it sends nothing, and allows nothing, any more: peers wait for it.
__device__ __forceinline__ uint32_t *left_of(const Comm &c, int owner, int rank) { return &channel_of(c, owner, rank)->left; }

// patience looks for a reason to give up. It returns since when the thread
// waits, or gave_up after it has written a report, and that the rank has left. A thread that is asked what it
// waits for writes one, too, and goes on. A look at the host's memory costs a
// microsecond: it is rare.
static const uint64_t gave_up = ~(uint64_t)0;
static __device__ __noinline__ uint64_t patience(const uint32_t *stop, Report *report, uint32_t *left, uint64_t timeout, uint64_t since, uint32_t place, uint32_t wanted, uint32_t found) {
  uint32_t reason = ld_volatile(stop);
  if (reason == 0 && timeout != 0) {
    const uint64_t t = now_ns();
    if (since == 0) since = t;
    if (t - since > timeout) reason = 2;
  }
  if (reason == 0) return since;
  st_volatile((uint4 *)report, make_uint4(reason << 24 | place, wanted, found, 1));
  if (reason == 3) return since;
  st_volatile(left, 1u);
  return gave_up;
}

// A Waiter is a thread's patience. Once it has given up, it never waits again: whoever has waited asks
// left() before it writes anything that a peer may take for data, or for permission. Where the rank has
// left in a kernel before, it has given up from the start.
// Its address is never taken: it lives in registers.
struct Waiter {
  const Comm &c;
  uint32_t channel;
  uint32_t polls;
  uint64_t since;

  __device__ __forceinline__ Waiter(const Comm &comm, uint32_t ch, uint32_t left) : c(comm), channel(ch), polls(0), since(left ? gave_up : 0) {}

  // again is called after a look that found nothing, and reports whether to
  // look again.
  __device__ __forceinline__ bool again(uint32_t peer, uint32_t wanted, uint32_t found) {
    if (since == gave_up) return false;
    if (++polls % LOOKS) return true;
    since = patience(c.stop, c.report + channel, left_of(c, c.rank, c.rank), c.timeout, since, peer << 16 | channel, wanted, found);
    return since != gave_up;
  }
  __device__ __forceinline__ void leave() { since = gave_up; }
  __device__ __forceinline__ bool left() const { return since == gave_up; }
  // met is called when a wait has ended well: the next one has all its time.
  __device__ __forceinline__ void met() {
    if (since != gave_up) since = 0;
  }
};

// load_slow reads up to 16 bytes from any address; what is missing is zero.
static __device__ __noinline__ uint4 load_slow(const char *p, uint32_t bytes) {
  uint32_t w[4] = {0, 0, 0, 0};
  if (((uintptr_t)p & 3) == 0) {
#pragma unroll
    for (int i = 0; i < 4; i++) {
      if (4 * i + 4 <= bytes) {
        w[i] = *(const uint32_t *)(p + 4 * i);
      } else {
#pragma unroll
        for (int k = 0; k < 3; k++)
          if (4 * i + k < bytes) w[i] |= (uint32_t) * (const unsigned char *)(p + 4 * i + k) << 8 * k;
      }
    }
  } else {
#pragma unroll
    for (int i = 0; i < 16; i++)
      if (i < bytes) w[i / 4] |= (uint32_t) * (const unsigned char *)(p + i) << 8 * (i % 4);
  }
  return make_uint4(w[0], w[1], w[2], w[3]);
}

static __device__ __noinline__ void store_slow(char *p, uint32_t bytes, uint4 v) {
  const uint32_t w[4] = {v.x, v.y, v.z, v.w};
  if (((uintptr_t)p & 3) == 0) {
#pragma unroll
    for (int i = 0; i < 4; i++) {
      if (4 * i + 4 <= bytes) {
        *(uint32_t *)(p + 4 * i) = w[i];
      } else {
#pragma unroll
        for (int k = 0; k < 3; k++)
          if (4 * i + k < bytes) *(unsigned char *)(p + 4 * i + k) = (unsigned char)(w[i] >> 8 * k);
      }
    }
  } else {
#pragma unroll
    for (int i = 0; i < 16; i++)
      if (i < bytes) *(unsigned char *)(p + i) = (unsigned char)(w[i / 4] >> 8 * (i % 4));
  }
}

// load_words reads W words of a user's buffer at byte `at` of `end`.
__device__ __forceinline__ void load_words(uint32_t (&w)[2], const char *p, uint64_t at, uint64_t end) {
  if (at + 8 <= end && ((uintptr_t)(p + at) & 7) == 0) {
    uint2 v = *(const uint2 *)(p + at);
    w[0] = v.x, w[1] = v.y;
  } else {
    uint4 v = load_slow(p + at, at < end ? (uint32_t)min(end - at, (uint64_t)8) : 0);
    w[0] = v.x, w[1] = v.y;
  }
}
__device__ __forceinline__ void load_words(uint32_t (&w)[4], const char *p, uint64_t at, uint64_t end) {
  uint4 v;
  if (at + 16 <= end && ((uintptr_t)(p + at) & 15) == 0)
    v = *(const uint4 *)(p + at);
  else
    v = load_slow(p + at, at < end ? (uint32_t)min(end - at, (uint64_t)16) : 0);
  w[0] = v.x, w[1] = v.y, w[2] = v.z, w[3] = v.w;
}
__device__ __forceinline__ void store_words(const uint32_t (&w)[2], char *p, uint64_t at, uint64_t end) {
  if (at + 8 <= end && ((uintptr_t)(p + at) & 7) == 0)
    *(uint2 *)(p + at) = make_uint2(w[0], w[1]);
  else if (at < end)
    store_slow(p + at, (uint32_t)min(end - at, (uint64_t)8), make_uint4(w[0], w[1], 0, 0));
}
__device__ __forceinline__ void store_words(const uint32_t (&w)[4], char *p, uint64_t at, uint64_t end) {
  if (at + 16 <= end && ((uintptr_t)(p + at) & 15) == 0)
    *(uint4 *)(p + at) = make_uint4(w[0], w[1], w[2], w[3]);
  else if (at < end)
    store_slow(p + at, (uint32_t)min(end - at, (uint64_t)16), make_uint4(w[0], w[1], w[2], w[3]));
}

#endif
