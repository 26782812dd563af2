// Collectives into memory that the ranks have registered: they store results where these belong in one
// another's memory, so there are no slots, and nothing is copied a second time.
#ifndef ASSAY_DIRECT_CUH
#define ASSAY_DIRECT_CUH
#include "exchange.cuh"

// piece_of is what a channel has of a message.
__device__ __forceinline__ Piece piece_of(const Args &a, uint32_t ch, uint64_t bytes) {
  const uint64_t each = (uint64_t)a.chunk * 16, at = ch * each;
  return {at, at < bytes ? min(bytes - at, each) : 0};
}

// await_ready waits until a peer has begun the operation in which message `number` goes to its own
// memory. A peer that has begun another one is not ready: see flag_of.
__device__ __forceinline__ void await_ready(const Comm &c, const Args &a, const Line &l, int p, uint32_t number, Waiter &wait) {
  const uint2 *ready = (const uint2 *)&channel_of(c, c.rank, l.state)->ready[p];
  for (;;) {
    const uint2 got = ld_volatile(ready);
    if (got.x == number && got.y == a.sign) break;
    if (!wait.again(p, number, got.x)) return;
  }
  wait.met();
}

// direct_chunks sends to one peer after the other, as in phases; a channel has one message to each.
// Nothing is written to a peer that has not begun the operation: until then its memory belongs to what
// its stream does before. A thread for each peer waits and tells, all at once, because a fence takes a
// microsecond. A second block copies the rank's own part.
__device__ __forceinline__ void direct_chunks(const Comm &c, const Args &a) {
  SHARED(Channel, s);
  SHARED(uint32_t, left);  // a wait was given up: nobody knows whose the peer's memory is
  const uint32_t ch = blockIdx.x / 2, role = blockIdx.x % 2;
  const int me = threadIdx.x;
  const Line line(ch);
  const Team all = {0, blockDim.x + SERVING, 1};  // every warp moves
  if (role == 1) {
    const Piece own = piece_of(a, ch, a.in[c.rank] != a.out[c.rank] ? a.send[c.rank] : 0);
    dependents_launch();
    dependency_wait();
    if (own.n) copy<Memory>(all, a.out[c.rank] + own.at, a.in[c.rank] + own.at, own.n);
    return;
  }
  if (me == 0) left = 0;
  const bool peer = me < c.ranks && me != c.rank;
  const bool to = peer && piece_of(a, ch, a.send[me]).n, from = peer && piece_of(a, ch, a.recv[me]).n;
  begin(c, s, line.state);
  Waiter waiting(c, line.state, s.left);
  if (from && !waiting.left()) st_volatile((uint2 *)&channel_of(c, me, line.state)->ready[c.rank], make_uint2(s.received[me] + 1, a.sign));
  if (to) await_ready(c, a, line, me, s.sent[me] + 1, waiting);
  if (peer && waiting.left()) left = 1;
  __syncthreads();
  if (left) return;
  for (int j = 1; j < c.ranks; j++) {
    const int p = phase_to(c, j);
    const Piece piece = piece_of(a, ch, a.send[p]);
    if (piece.n) copy<Memory>(all, a.out[p] + piece.at, a.in[p] + piece.at, piece.n);
  }
  __syncthreads();
  if (to) post(c, a, line, me, s.sent[me] + 1, 0);
  if (from) await_first(c, a, line, me, s.received[me] + 1, waiting);
  if (!to && !from || waiting.left()) return;
  Channel *mine = channel_of(c, c.rank, line.state);
  if (to) mine->sent[me] = s.sent[me] + 1;
  if (from) mine->received[me] = s.received[me] + 1;
  if (from) release(c, line, me, s.received[me] + 1);
  mine->credit[me] = s.sent[me];  // the peer has begun this operation, and is done with all before
}

#endif
