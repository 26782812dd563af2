// Steps of a block: warps that move data, and two that serve them.
#ifndef ASSAY_TEAM_CUH
#define ASSAY_TEAM_CUH
#include "line.cuh"

// Most warps of a block move data. Two serve them: the waiter waits for what the next step needs,
// and the teller tells peers that a step is done. A fence takes up to 4 us, and 112 KB are moved in
// 5: a block that did one after the other carried 12 GB/s on an H100, and carries 20.
enum { SERVING = 64 };

// A Team is the warps of a block that have one role: all, or a half. The last two serve the others.
struct Team {
  uint32_t first, threads;  // of the block
  uint32_t barriers;        // the first one of its own
  __device__ __forceinline__ uint32_t index() const { return threadIdx.x - first; }
  __device__ __forceinline__ uint32_t movers() const { return threads - SERVING; }
  __device__ __forceinline__ bool moves() const { return index() < movers(); }
  __device__ __forceinline__ bool waits() const { return index() / 32 == movers() / 32; }
  __device__ __forceinline__ bool tells() const { return index() / 32 > movers() / 32; }
};
__device__ __forceinline__ Team whole_block() { return {0, blockDim.x, 1}; }

// A serving warp has a lane for each peer that data comes from, and TO + p for each that it goes to.
enum { TO = MAX_RANKS, EXTRA = 31 };
__device__ __forceinline__ int serving_lane() { return threadIdx.x % 32; }

// Named barriers of a team: two of each for steps in turn, and one for all its threads.
enum { READY = 0, MOVED = 2, FREE = 4, ALL = 6, BARRIERS = 7 };

// begin is for a team. Teams of a block need not wait for one another.
__device__ __forceinline__ void begin(const Comm &c, Channel &s, uint32_t ch, const Team &t) {
  load_channel(c, s, ch, t.index(), t.threads);
  barrier_sync(t.barriers + ALL, t.threads);
}

// NONE is no piece. LEFT stands for all that would come after a wait that was given up: nothing is moved
// any more, and nobody is told.
static const uint32_t NONE = ~0u, LEFT = NONE - 1;
typedef uint32_t TwoWords[2];  // of pieces in turn

// taken_now returns, to all lanes of a warp, a word that another warp wrote before a barrier. Barriers
// give all the order there is; but racecheck does not follow the order of one barrier after another, and
// leaves atomics alone.
__device__ __forceinline__ uint32_t taken_now(uint32_t *word) {
  uint32_t v = 0;
  if (serving_lane() == 0) v = atomicAdd(word, 0);
  return __shfl_sync(~0u, v, 0);
}

// run_steps runs steps 0, 1, …: the waiter calls wait(k), which returns to all its lanes which piece the
// step is for, and NONE behind the last one; then the movers move(k, piece), then the teller tell(k, piece),
// also of NONE. It returns the steps, with the one for NONE; or LEFT if the waiter has given up: the steps
// before are moved and told, and that one is the last, for no piece. The teller does not wait for the waiter: ranks
// that told their peers of a step only when the next one is ready could wait for one another. A barrier is
// used again two steps later. Its use before has ended by then: the movers are done with step k, and the
// teller has taken note of it, before the waiter begins step k + 2.
//
// early: the kernel behind may be launched when nothing is left to wait for.
template <class Wait, class Move, class Tell>
__device__ __forceinline__ uint32_t run_steps(const Team &t, TwoWords &taken, bool early, const Waiter &waiting, const Wait &wait, const Move &move, const Tell &tell) {
  const uint32_t one = t.movers() + 32;
  uint32_t k = 0, piece;
  if (t.waits()) {
    for (;; k++) {
      if (k >= 2) barrier_sync(t.barriers + FREE + k % 2, t.threads);
      piece = wait(k);
      if (__any_sync(~0u, waiting.left())) piece = LEFT;
      if (serving_lane() == 0) atomicExch(&taken[k % 2], piece);
      __syncwarp();
      barrier_arrive(t.barriers + READY + k % 2, one);
      if (piece >= LEFT) break;
    }
    if (early) dependents_launch();
    if (k > 0) barrier_sync(t.barriers + FREE + (k - 1) % 2, t.threads);
  } else if (t.tells()) {
    for (;; k++) {
      barrier_sync(t.barriers + MOVED + k % 2, one);
      piece = taken_now(&taken[k % 2]);
      if (piece < LEFT) barrier_arrive(t.barriers + FREE + k % 2, t.threads);
      if (piece != LEFT) tell(k, piece);
      __syncwarp();
      if (piece >= LEFT) break;
    }
  } else {
    for (;; k++) {
      barrier_sync(t.barriers + READY + k % 2, one);
      piece = taken_now(&taken[k % 2]);
      if (piece < LEFT) move(k, piece);
      __syncwarp();
      barrier_arrive(t.barriers + MOVED + k % 2, one);
      if (piece >= LEFT) break;
      barrier_arrive(t.barriers + FREE + k % 2, t.threads);
    }
  }
  // No barrier may be for more threads than the block has left: a GPU takes that for an illegal
  // instruction.
  barrier_sync(t.barriers + ALL, t.threads);
  return piece == LEFT ? LEFT : k + 1;
}

#endif
