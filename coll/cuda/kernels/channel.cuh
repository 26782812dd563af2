// Channels: numbers of messages, credit, slots.
#ifndef ASSAY_CHANNEL_CUH
#define ASSAY_CHANNEL_CUH
#include "device.cuh"

// begin waits for the kernel before, and copies what is known of a channel to
// shared memory, with whether the rank has left: every thread needs it, and must have it before it is
// changed. load_channel does so with so many threads, of which this is the one of the given index, and waits for no other.
__device__ __forceinline__ void load_channel(const Comm &c, Channel &s, uint32_t ch, uint32_t index, uint32_t threads) {
  dependency_wait();
  const uint32_t *from = (const uint32_t *)channel_of(c, c.rank, ch), *left = left_of(c, c.rank, c.rank);
  const uint32_t last = offsetof(Channel, left) / sizeof(uint32_t);
  for (uint32_t i = index; i <= last; i += threads) ((uint32_t *)&s)[i] = ld_volatile(i == last ? left : from + i);
}
__device__ __forceinline__ void begin(const Comm &c, Channel &s, uint32_t ch) {
  dependents_launch();
  load_channel(c, s, ch, threadIdx.x, blockDim.x);
  __syncthreads();
}

// behind reports whether number a is before b, though numbers wrap.
__device__ __forceinline__ bool behind(uint32_t a, uint32_t b) { return (int32_t)(a - b) < 0; }

// acknowledge tells a peer that this rank is done with the messages that came
// from it before this kernel. Ranks that send in both directions need not, but
// do so now and then: a number that is never written again seems new once the
// others have wrapped.
__device__ __forceinline__ void acknowledge(const Comm &c, const Channel &s, uint32_t ch, int p, bool symmetric) {
  if (symmetric && (s.received[p] & 0xffff) > 1) return;
  st_volatile(&channel_of(c, p, ch)->acked[c.rank], s.received[p]);
}

// await_credit waits until the peer is done with the message whose slot this
// one takes. After operations in which each sends to each it is known already.
__device__ __forceinline__ void await_credit(const Comm &c, const Channel &s, uint32_t ch, int p, uint32_t number, uint32_t slots, Waiter &wait) {
  const uint32_t need = number - slots;
  if (!behind(s.credit[p], need) || !behind(s.acked[p], need)) return;
  const uint32_t *acked = &channel_of(c, c.rank, ch)->acked[p];
  uint32_t got;
  while (behind(got = ld_acquire(acked), need))
    if (!wait.again(p, need, got)) return;
  wait.met();
}

// await_credits is await_credit for the next message to each peer of a mask.
__device__ __forceinline__ void await_credits(const Comm &c, const Channel &s, uint32_t ch, uint32_t to, uint32_t slots, Waiter &wait) {
  for (int p = 0; p < c.ranks; p++)
    if (to >> p & 1) await_credit(c, s, ch, p, s.sent[p] + 1, slots, wait);
}

// finish writes back what has changed: so many messages were sent to, and came
// from, each peer that the masks name. After a wait that was given up that is not so; but then the rank has
// left, and nothing of this is used any more.
__device__ __forceinline__ void finish(const Comm &c, const Channel &s, uint32_t ch, uint32_t messages, uint32_t to, uint32_t from, bool symmetric) {
  __syncthreads();
  const uint32_t p = threadIdx.x;
  if (p >= (uint32_t)c.ranks || p == (uint32_t)c.rank) return;
  Channel *mine = channel_of(c, c.rank, ch);
  if (to >> p & 1) mine->sent[p] = s.sent[p] + messages;
  if (from >> p & 1) mine->received[p] = s.received[p] + messages;
  // A peer that has begun this operation is done with all before.
  if (symmetric)
    mine->credit[p] = s.sent[p];
  else if (behind(s.credit[p], s.acked[p]))
    mine->credit[p] = s.acked[p];
}

// hold_if_left waits, as long as a thread waits, if one of those ranks has left. Its copies cannot be called
// off: they may have overwritten what an earlier one brought, and what this rank has made of that.
__device__ __forceinline__ void hold_if_left(const Comm &c, uint32_t ranks, Waiter &wait) {
  for (; ranks; ranks &= ranks - 1) {
    const int p = __ffs(ranks) - 1;
    while (ld_volatile(left_of(c, c.rank, p)))
      if (!wait.again(p, 1, 0)) return;
  }
}

// tell_left tells all peers that this rank has left, before any copy that is behind it goes.
__device__ __forceinline__ void tell_left(const Comm &c) {
  for (int p = 0; p < c.ranks; p++)
    if (p != c.rank) st_volatile(left_of(c, p, c.rank), 1u);
  fence_system();
}

#endif
