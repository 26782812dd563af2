// Copies between the device and the host's memory for an operation that the host does. They are done by a kernel,
// which is in the stream of the operation: what the host puts on other streams while that one waits may stand
// behind it in a hardware queue.
#ifndef ASSAY_STAGE_CUH
#define ASSAY_STAGE_CUH
#include "rows.cuh"
#include "stage.h"

typedef uint32_t CopyWords[5];

// await_copy waits for copy n of a list. It returns false if the kernel is to end without it.
__device__ __forceinline__ bool await_copy(const StageList *l, uint32_t n, CopyWords &to) {
  const uint4 *at = (const uint4 *)l->copies[n % LISTED];
  for (;;) {
    const uint32_t stop = ld_volatile(&l->stop);
    const uint4 a = ld_volatile(at), b = ld_volatile(at + 1);
    const uint2 c = ld_volatile((const uint2 *)(at + 2));
    if (stop) return false;
    if (a.y != n || a.w != n || b.y != n || b.w != n || c.y != n) continue;
    to[0] = a.x, to[1] = a.z, to[2] = b.x, to[3] = b.z, to[4] = c.x;
    fence_system();  // what the host wrote before is read after this
    return true;
  }
}

__device__ __forceinline__ char *address(const uint32_t *halves) { return (char *)((uint64_t)halves[1] << 32 | halves[0]); }

template <class S> __device__ __forceinline__ void stage_copies(StageList *l, uint32_t number) {
  SHARED(CopyWords, now);
  const Team all = {0, blockDim.x + SERVING, 1};  // every warp moves
  uint32_t n = 0;
  if (threadIdx.x == 0) {
    st_volatile(&l->begun, number);
    n = ld_volatile(&l->done);
  }
  for (;;) {
    bool there = true;
    if (threadIdx.x == 0 && !(there = await_copy(l, ++n, now))) now[4] = STAGE_END;
    __syncthreads();
    const uint32_t bytes = now[4];
    if (bytes != STAGE_END) copy<S>(all, address(now + 2), address(now), bytes);
    __syncthreads();
    if (threadIdx.x == 0 && there) {
      fence_system();
      st_volatile(&l->done, n);
    }
    if (bytes == STAGE_END) return;
  }
}

#endif
