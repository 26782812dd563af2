// Collectives over chunks: whole runs of memory, then a fence and a number.
// Best for long messages. Each role of an operation has blocks of its own, or
// half a block, so that pushing, reducing and copying out overlap without a
// schedule; in a block some warps wait and tell, so that moving data waits for
// neither.
//
// Here: channels of chunks, their slots, numbers of messages, and labels.
#ifndef ASSAY_LINE_CUH
#define ASSAY_LINE_CUH
#include "packets.cuh"

// chunk_of is where message `number` of a channel and rank lies in owner's window.
__device__ __forceinline__ char *chunk_of(const Comm &c, int owner, uint32_t ch, int from, uint32_t number) {
  return c.win[owner] + c.chunks + ((uint64_t)(ch * c.ranks + from) * c.depth + (number & (c.depth - 1))) * c.chunk_slot;
}

// A Line is a chunk channel as one block sees it.
struct Line {
  uint32_t ch;     // among the chunk channels
  uint32_t state;  // among all
  __device__ __forceinline__ explicit Line(uint32_t ch_) : ch(ch_), state(PACKET_CHANNELS + ch_) {}
};

// await_posted waits until a message is there in whole.
__device__ __forceinline__ void await_posted(const Comm &c, const Line &l, int p, uint32_t number, Waiter &wait) {
  const uint32_t *posted = &channel_of(c, c.rank, l.state)->posted[p];
  uint32_t got;
  while (behind(got = ld_acquire(posted), number))
    if (!wait.again(p, number, got)) return;
  wait.met();
}

// label_of is the Label of message `number` of a channel and rank in owner's window: there is one
// for each slot, behind all slots.
__device__ __forceinline__ Label *label_of(const Comm &c, int owner, uint32_t ch, int from, uint32_t number) {
  const char *labels = c.win[owner] + c.chunks + (uint64_t)CHUNK_CHANNELS * c.ranks * c.depth * c.chunk_slot;
  return (Label *)labels + (ch * c.ranks + from) * c.depth + (number & (c.depth - 1));
}

// await_first is await_posted of the first message of an operation. That of another
// operation is not the one: see flag_of.
__device__ __forceinline__ void await_first(const Comm &c, const Args &a, const Line &l, int p, uint32_t number, Waiter &wait) {
  await_posted(c, l, p, number, wait);
  const uint32_t *sign = &label_of(c, c.rank, l.ch, p, number)->sign;
  while (ld_volatile(sign) != a.sign)
    if (!wait.again(p, number, number - 1)) return;
  wait.met();
}

// await_step is one or the other.
__device__ __forceinline__ void await_step(const Comm &c, const Args &a, const Line &l, int p, uint32_t number, uint32_t k, Waiter &wait) {
  if (k == 0)
    await_first(c, a, l, p, number, wait);
  else
    await_posted(c, l, p, number, wait);
}

// post tells a peer that message `number` is there, which is step k of an operation. All threads'
// writes to it come before, by a barrier and the fence.
__device__ __forceinline__ void post(const Comm &c, const Args &a, const Line &l, int p, uint32_t number, uint32_t k) {
  if (k == 0) st_volatile(&label_of(c, p, l.ch, c.rank, number)->sign, a.sign);
  fence_system();
  st_volatile(&channel_of(c, p, l.state)->posted[c.rank], number);
}

// release gives the slot of message `number` back to the peer that filled it.
__device__ __forceinline__ void release(const Comm &c, const Line &l, int p, uint32_t number) { st_volatile(&channel_of(c, p, l.state)->acked[c.rank], number); }

// leave_sent and leave_received write back how many messages went to a peer, or came from it,
// and what is known without a look: the slots before the last depth ones are done with.
__device__ __forceinline__ void leave_sent(const Comm &c, const Channel &s, const Line &l, int p, uint32_t messages) {
  Channel *mine = channel_of(c, c.rank, l.state);
  mine->sent[p] = s.sent[p] + messages;
  mine->credit[p] = s.sent[p] + messages - c.depth;
}
__device__ __forceinline__ void leave_received(const Comm &c, const Channel &s, const Line &l, int p, uint32_t messages) {
  channel_of(c, c.rank, l.state)->received[p] = s.received[p] + messages;
}

// each_peer calls f with each peer. Channels begin with different ones: where all blocks of all ranks
// went from peer to peer together, they would soon meet at the same one.
template <class F> __device__ __forceinline__ void each_peer(const Comm &c, uint32_t ch, const F &f) {
  int j = ch % max(c.ranks - 1, 1);
  for (int i = 1; i < c.ranks; i++) {
    if (++j >= c.ranks) j = 1;
    f(next_peer(c, j));
  }
}

#endif
