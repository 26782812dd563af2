// Collectives over chunks: whole runs of memory, then a fence and a number.
// Best for long messages. Each role of an operation has blocks of its own, so
// that pushing, reducing and copying out overlap without a schedule.
#ifndef ASSAY_CHUNKS_CUH
#define ASSAY_CHUNKS_CUH
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

// sign_of is where the sender of a message says what it takes the operation for, if the
// message is the first one of an operation. Behind all slots there is a word for each.
__device__ __forceinline__ uint32_t *sign_of(const Comm &c, int owner, uint32_t ch, int from, uint32_t number) {
  const char *signs = c.win[owner] + c.chunks + (uint64_t)CHUNK_CHANNELS * c.ranks * c.depth * c.chunk_slot;
  return (uint32_t *)signs + (ch * c.ranks + from) * c.depth + (number & (c.depth - 1));
}

// await_first is await_posted of the first message of an operation. That of another
// operation is not the one: see flag_of.
__device__ __forceinline__ void await_first(const Comm &c, const Args &a, const Line &l, int p, uint32_t number, Waiter &wait) {
  await_posted(c, l, p, number, wait);
  const uint32_t *sign = sign_of(c, c.rank, l.ch, p, number);
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

// post tells a peer that message s.sent[p]+1 is there. All threads' writes to
// it come before, by a barrier of the block and the fence.
__device__ __forceinline__ void post(const Comm &c, Channel &s, const Line &l, int p) {
  fence_system();
  s.sent[p]++;
  st_volatile(&channel_of(c, p, l.state)->posted[c.rank], s.sent[p]);
}

// post_step is post of step k of an operation.
__device__ __forceinline__ void post_step(const Comm &c, const Args &a, Channel &s, const Line &l, int p, uint32_t k) {
  if (k == 0) st_volatile(sign_of(c, p, l.ch, c.rank, s.sent[p] + 1), a.sign);
  post(c, s, l, p);
}

// release gives a slot back to the peer that filled it.
__device__ __forceinline__ void release(const Comm &c, Channel &s, const Line &l, int p) {
  s.received[p]++;
  st_volatile(&channel_of(c, p, l.state)->acked[c.rank], s.received[p]);
}

// leave_sent and leave_received write back what a role has changed, and what
// it knows without a look: the slots before the last depth ones are done with.
__device__ __forceinline__ void leave_sent(const Comm &c, const Channel &s, const Line &l) {
  __syncthreads();
  if (threadIdx.x >= (uint32_t)c.ranks) return;
  Channel *mine = channel_of(c, c.rank, l.state);
  mine->sent[threadIdx.x] = s.sent[threadIdx.x];
  mine->credit[threadIdx.x] = s.sent[threadIdx.x] - c.depth;
}
__device__ __forceinline__ void leave_received(const Comm &c, const Channel &s, const Line &l) {
  __syncthreads();
  if (threadIdx.x < (uint32_t)c.ranks) channel_of(c, c.rank, l.state)->received[threadIdx.x] = s.received[threadIdx.x];
}

// A Source reads 16 bytes of memory.
struct Memory {  // the user's
  __device__ static __forceinline__ uint4 load(const char *p) { return *(const uint4 *)p; }
};
struct Slot {  // what a peer wrote
  __device__ static __forceinline__ uint4 load(const char *p) { return ld_slot((const uint4 *)p); }
};

// A warp moves pieces of UNROLL rows of its own: NVLink carries a fifth more of
// such from a few blocks than of rows of whole blocks.
enum { UNROLL = 4, ROW = 512, PIECE = UNROLL * ROW };

// copy moves n bytes with all threads of a block.
template <class S> __device__ __forceinline__ void copy(char *dst, const char *src, uint64_t n) {
  uint64_t done = 0;
  if ((((uintptr_t)dst | (uintptr_t)src) & 15) == 0) {
    const uint64_t whole = n & ~(uint64_t)15, row = (uint64_t)blockDim.x * 16;
    for (; done + UNROLL * row <= whole; done += UNROLL * row) {
      const uint64_t at = done + (uint64_t)(threadIdx.x / 32) * PIECE + (threadIdx.x % 32) * 16;
      uint4 v[UNROLL];
#pragma unroll
      for (int i = 0; i < UNROLL; i++) v[i] = S::load(src + at + i * ROW);
#pragma unroll
      for (int i = 0; i < UNROLL; i++) *(uint4 *)(dst + at + i * ROW) = v[i];
    }
    const uint64_t at = done + (uint64_t)threadIdx.x * 16;
    uint4 v[UNROLL];
#pragma unroll
    for (int i = 0; i < UNROLL; i++)
      if (at + i * row < whole) v[i] = S::load(src + at + i * row);
#pragma unroll
    for (int i = 0; i < UNROLL; i++)
      if (at + i * row < whole) *(uint4 *)(dst + at + i * row) = v[i];
    done = whole;
  }
  for (uint64_t at = done + (uint64_t)threadIdx.x * 16; at < n; at += (uint64_t)blockDim.x * 16) {
    uint32_t w[4];
    load_words(w, src, at, n);
    store_words(w, dst, at, n);
  }
}

// copy_scaled is copy with the rank's own factor.
template <int T> __device__ __forceinline__ void copy_scaled(char *dst, const char *src, uint64_t n, const Args &a) {
  if (!(a.scale & 1)) {
    copy<Memory>(dst, src, n);
    return;
  }
  for (uint64_t at = (uint64_t)threadIdx.x * 16; at < n; at += (uint64_t)blockDim.x * 16) {
    uint32_t w[4];
    load_words(w, src, at, n);
    scale_words<T, 4>(w, factor_of<T>(a));
    store_words(w, dst, at, n);
  }
}

// step_at is where step k of a channel begins in a message.
__device__ __forceinline__ uint64_t step_at(const Args &a, uint32_t ch, uint32_t channels, uint32_t k) { return ((uint64_t)k * channels + ch) * a.chunk; }

// push_step sends step k of in[p] to each peer of a mask, and reports whether
// there was one. T < 0: bytes, as they are.
template <int T> __device__ __forceinline__ bool push_step(const Comm &c, const Args &a, Channel &s, const Line &line, uint32_t ch, uint32_t mask, uint32_t k, Waiter &wait) {
  // A block has channel ch of every message, if that has so many.
  bool more = false;
  for (int p = 0; p < c.ranks; p++)
    if ((mask >> p & 1) && ch < to_channels(a, p) && step_at(a, ch, to_channels(a, p), k) < a.send[p]) more = true;
  if (!more) return false;
  const int me = threadIdx.x;
  const bool mine = me < c.ranks && (mask >> me & 1) && ch < to_channels(a, me) && step_at(a, ch, to_channels(a, me), k) < a.send[me];
  if (mine) await_credit(c, s, line.state, me, s.sent[me] + 1, c.depth, wait);
  __syncthreads();
  // Channels begin with different peers: where all blocks of all ranks went
  // from peer to peer together, they would soon meet at the same one.
  int j = ch % max(c.ranks - 1, 1);
  for (int i = 1; i < c.ranks; i++) {
    if (++j >= c.ranks) j = 1;
    const int p = next_peer(c, j);
    if (!(mask >> p & 1) || ch >= to_channels(a, p)) continue;
    const uint64_t at = step_at(a, ch, to_channels(a, p), k);
    if (at >= a.send[p]) continue;
    char *dst = chunk_of(c, p, line.ch, c.rank, s.sent[p] + 1);
    const uint64_t n = min((uint64_t)a.chunk, a.send[p] - at);
    if (T < 0)
      copy<Memory>(dst, a.in[p] + at, n);
    else
      copy_scaled<T < 0 ? 0 : T>(dst, a.in[p] + at, n, a);
  }
  __syncthreads();
  if (mine) post_step(c, a, s, line, me, k);
  return true;
}

// push_role sends in[p] to each peer of a mask.
template <int T> __device__ __forceinline__ void push_role(const Comm &c, const Args &a, uint32_t ch, uint32_t mask) {
  SHARED(Channel, s);
  const Line line(ch);
  Waiter wait(c, line.state);
  begin(c, s, line.state);
  for (uint32_t k = 0; push_step<T>(c, a, s, line, ch, mask, k, wait); k++) {
  }
  leave_sent(c, s, line);
}

// take_step copies step k of what comes from each peer of a mask to out[p], and
// reports whether there was one.
__device__ __forceinline__ bool take_step(const Comm &c, const Args &a, Channel &s, const Line &line, uint32_t ch, uint32_t mask, uint32_t k, Waiter &wait) {
  bool more = false;
  for (int p = 0; p < c.ranks; p++)
    if ((mask >> p & 1) && ch < from_channels(a, p) && step_at(a, ch, from_channels(a, p), k) < a.recv[p]) more = true;
  if (!more) return false;
  const int me = threadIdx.x;
  const bool mine = me < c.ranks && (mask >> me & 1) && ch < from_channels(a, me) && step_at(a, ch, from_channels(a, me), k) < a.recv[me];
  if (mine) await_step(c, a, line, me, s.received[me] + 1, k, wait);
  __syncthreads();
  for (int j = 1; j < c.ranks; j++) {
    const int p = next_peer(c, j);
    if (!(mask >> p & 1) || ch >= from_channels(a, p)) continue;
    const uint64_t at = step_at(a, ch, from_channels(a, p), k);
    if (at >= a.recv[p]) continue;
    copy<Slot>(a.out[p] + at, chunk_of(c, c.rank, line.ch, p, s.received[p] + 1), min((uint64_t)a.chunk, a.recv[p] - at));
  }
  __syncthreads();
  if (mine) release(c, s, line, me);
  return true;
}

// take_role copies what comes from each peer of a mask to out[p].
__device__ __forceinline__ void take_role(const Comm &c, const Args &a, uint32_t ch, uint32_t base, uint32_t mask) {
  SHARED(Channel, s);
  const Line line(base + ch);
  Waiter wait(c, line.state);
  begin(c, s, line.state);
  for (uint32_t k = 0; take_step(c, a, s, line, ch, mask, k, wait); k++) {
  }
  leave_received(c, s, line);
}

// own_step copies step k of a rank's own part, and reports whether there was one.
__device__ __forceinline__ bool own_step(const Comm &c, const Args &a, uint32_t ch, uint32_t k) {
  const uint64_t at = step_at(a, ch, a.channels, k), n = a.send[c.rank];
  if (at >= n || a.in[c.rank] == a.out[c.rank]) return false;
  copy<Memory>(a.out[c.rank] + at, a.in[c.rank] + at, min((uint64_t)a.chunk, n - at));
  return true;
}

// exchange_role sends in[p] to each peer, and copies the own part between the
// steps: the link is busy with those of other blocks meanwhile.
__device__ __forceinline__ void exchange_role(const Comm &c, const Args &a, uint32_t ch) {
  SHARED(Channel, s);
  const Line line(ch);
  Waiter wait(c, line.state);
  begin(c, s, line.state);
  bool push = true, own = true;
  for (uint32_t k = 0; push || own; k++) {
    if (push) push = push_step<-1>(c, a, s, line, ch, peers_of(c), k, wait);
    if (own) own = own_step(c, a, ch, k);
  }
  leave_sent(c, s, line);
}

// push_steps is how many steps a channel of an exchange pushes.
__device__ __forceinline__ uint32_t push_steps(const Comm &c, const Args &a, uint32_t ch) {
  uint32_t most = 0;
  for (int p = 0; p < c.ranks; p++) {
    const uint64_t first = (uint64_t)ch * a.chunk, row = (uint64_t)to_channels(a, p) * a.chunk;
    if (p != c.rank && ch < to_channels(a, p) && first < a.send[p]) most = max(most, (uint32_t)((a.send[p] - first + row - 1) / row));
  }
  return most;
}

// Where what comes overwrites what goes, a step is taken only after the same one
// was pushed, of which the two blocks of a channel count.
__device__ __forceinline__ void push_in_place(const Comm &c, const Args &a, uint32_t ch) {
  SHARED(Channel, s);
  const Line line(ch);
  Waiter wait(c, line.state);
  begin(c, s, line.state);
  for (uint32_t k = 0; push_step<-1>(c, a, s, line, ch, peers_of(c), k, wait); k++)
    if (threadIdx.x == 0) st_volatile(&channel_of(c, c.rank, line.state)->pushed, s.used + k + 1);
  leave_sent(c, s, line);
}

__device__ __forceinline__ void await_pushed(const Comm &c, const Line &line, uint32_t number, Waiter &wait) {
  if (threadIdx.x == 0) {
    const uint32_t *pushed = &channel_of(c, c.rank, line.state)->pushed;
    uint32_t got;
    while (behind(got = ld_acquire(pushed), number))
      if (!wait.again(c.rank, number, got)) break;
    wait.met();
  }
  __syncthreads();
}

__device__ __forceinline__ void take_in_place(const Comm &c, const Args &a, uint32_t ch) {
  SHARED(Channel, s);
  const Line line(ch);
  Waiter wait(c, line.state);
  begin(c, s, line.state);
  const uint32_t steps = push_steps(c, a, ch);
  for (uint32_t k = 0;; k++) {
    if (k < steps) await_pushed(c, line, s.used + k + 1, wait);
    if (!take_step(c, a, s, line, ch, peers_of(c), k, wait)) break;
  }
  // Only now is it sure that the other block has begun, and seen what was used.
  await_pushed(c, line, s.used + steps, wait);
  leave_received(c, s, line);
  if (threadIdx.x == 0) channel_of(c, c.rank, line.state)->used = s.used + steps;
}

// In phases every rank sends to one peer and receives from one, as long as it
// takes, so that each link has one sender: four H200s exchange 360 GB/s in that
// way, and 345 when each sends to all the time. That the receiver is in the same
// phase keeps the ranks together. Where the number of ranks is a power of two,
// the two peers are one, and the exchange may be in place.
__device__ __forceinline__ int phase_to(const Comm &c, int j) { return c.ranks & (c.ranks - 1) ? next_peer(c, j) : c.rank ^ j; }
__device__ __forceinline__ int phase_from(const Comm &c, int j) { return c.ranks & (c.ranks - 1) ? next_peer(c, c.ranks - j) : c.rank ^ j; }

// steps_of is how many steps a channel has of a message.
__device__ __forceinline__ uint32_t steps_of(const Args &a, uint32_t ch, uint64_t bytes) {
  const uint64_t first = step_at(a, ch, a.channels, 0), row = (uint64_t)a.channels * a.chunk;
  return first < bytes ? (uint32_t)((bytes - first + row - 1) / row) : 0;
}

// push_phase sends to a peer what there is at a place of the message.
__device__ __forceinline__ void push_phase(const Comm &c, const Args &a, Channel &s, const Line &line, int p, uint64_t at, uint32_t k, Waiter &wait) {
  if (threadIdx.x == 0) await_credit(c, s, line.state, p, s.sent[p] + 1, c.depth, wait);
  __syncthreads();
  copy<Memory>(chunk_of(c, p, line.ch, c.rank, s.sent[p] + 1), a.in[p] + at, min((uint64_t)a.chunk, a.send[p] - at));
  __syncthreads();
  if (threadIdx.x == 0) post_step(c, a, s, line, p, k);
}

__device__ __forceinline__ void push_phases(const Comm &c, const Args &a, uint32_t ch) {
  SHARED(Channel, s);
  const Line line(ch);
  Waiter wait(c, line.state);
  begin(c, s, line.state);
  uint32_t pushed = 0, copied = 0;
  for (int j = 1; j < c.ranks; j++) {
    const int p = phase_to(c, j);
    const uint32_t steps = steps_of(a, ch, a.send[p]);
    for (uint32_t k = 0; k < steps; k++) {
      push_phase(c, a, s, line, p, step_at(a, ch, a.channels, k), k, wait);
      pushed++;
      if (a.in_place && threadIdx.x == 0) st_volatile(&channel_of(c, c.rank, line.state)->pushed, s.used + pushed);
      if (own_step(c, a, ch, copied)) copied++;
    }
  }
  while (own_step(c, a, ch, copied)) copied++;
  leave_sent(c, s, line);
}

// take_phase copies to its place what comes from a peer.
__device__ __forceinline__ void take_phase(const Comm &c, const Args &a, Channel &s, const Line &line, int p, uint64_t at, uint32_t k, Waiter &wait) {
  if (threadIdx.x == 0) await_step(c, a, line, p, s.received[p] + 1, k, wait);
  __syncthreads();
  copy<Slot>(a.out[p] + at, chunk_of(c, c.rank, line.ch, p, s.received[p] + 1), min((uint64_t)a.chunk, a.recv[p] - at));
  __syncthreads();
  if (threadIdx.x == 0) release(c, s, line, p);
}

__device__ __forceinline__ void take_phases(const Comm &c, const Args &a, uint32_t ch) {
  SHARED(Channel, s);
  const Line line(ch);
  Waiter wait(c, line.state);
  begin(c, s, line.state);
  uint32_t pushed = 0;
  for (int j = 1; j < c.ranks; j++) {
    const int p = phase_from(c, j);
    const uint32_t steps = steps_of(a, ch, a.recv[p]);
    for (uint32_t k = 0; k < steps; k++) {
      if (a.in_place) await_pushed(c, line, s.used + ++pushed, wait);
      take_phase(c, a, s, line, p, step_at(a, ch, a.channels, k), k, wait);
    }
  }
  leave_received(c, s, line);
  if (a.in_place && threadIdx.x == 0) channel_of(c, c.rank, line.state)->used = s.used + pushed;
}

__device__ __forceinline__ void exchange_chunks(const Comm &c, const Args &a) {
  const uint32_t ch = blockIdx.x;
  if (a.phased) {
    if (blockIdx.y == 0)
      push_phases(c, a, ch);
    else
      take_phases(c, a, ch);
  } else if (blockIdx.y == 0) {
    if (a.in_place)
      push_in_place(c, a, ch);
    else
      exchange_role(c, a, ch);
  } else if (a.in_place) {
    take_in_place(c, a, ch);
  } else {
    take_role(c, a, ch, 0, peers_of(c));
  }
}

// A role that combines what comes from the sources, writes it to out[rank],
// and passes it on to the targets over the result channels.
//
// RELAY: there is one source, the root, and nothing to combine.
template <bool RELAY, int T, int OP>
__device__ __forceinline__ void combine_role(const Comm &c, const Args &a, uint32_t ch, uint32_t sources, uint32_t targets, bool keep) {
  SHARED(Channel, s);
  SHARED(Channel, r);
  const Line line(ch), result(RESULT_CHANNEL + ch);
  Waiter wait(c, line.state);
  begin(c, s, line.state);
  begin(c, r, result.state);
  const uint64_t total = RELAY ? a.recv[c.rank] : a.send[c.rank];
  const int me = threadIdx.x, other = (int)threadIdx.x - 32;
  for (uint32_t k = 0;; k++) {
    const uint64_t at = step_at(a, ch, a.channels, k);
    if (at >= total) break;
    const uint64_t n = min((uint64_t)a.chunk, total - at);
    const bool from = me < c.ranks && (sources >> me & 1);
    const bool to = other >= 0 && other < c.ranks && (targets >> other & 1);
    if (from) await_step(c, a, line, me, s.received[me] + 1, k, wait);
    if (to) await_credit(c, r, result.state, other, r.sent[other] + 1, c.depth, wait);
    __syncthreads();
    const char *in[ASSAY_RANKS];
    char *out[ASSAY_RANKS];
#pragma unroll
    for (int p = 0; p < ASSAY_RANKS; p++) {
      if (sources >> p & 1) in[p] = chunk_of(c, c.rank, line.ch, p, s.received[p] + 1);
      if (targets >> p & 1) out[p] = chunk_of(c, p, result.ch, c.rank, r.sent[p] + 1);
    }
    enum { U = 2 };
    const uint64_t row = ROW, first = (uint64_t)(threadIdx.x / 32) * U * ROW + (threadIdx.x % 32) * 16;
    for (uint64_t i = first; i < n; i += (uint64_t)blockDim.x * U * 16) {
      uint32_t own[U][4], w[U][ASSAY_RANKS][4];
#pragma unroll
      for (int u = 0; u < U; u++) {
        if (i + u * row >= n) continue;
        if (!RELAY) load_words(own[u], a.in[c.rank] + at, i + u * row, n);
#pragma unroll
        for (int p = 0; p < ASSAY_RANKS; p++)
          if (sources >> p & 1) {
            uint4 v = ld_slot((const uint4 *)(in[p] + i + u * row));
            w[u][p][0] = v.x, w[u][p][1] = v.y, w[u][p][2] = v.z, w[u][p][3] = v.w;
          }
      }
#pragma unroll
      for (int u = 0; u < U; u++) {
        if (i + u * row >= n) continue;
        if (RELAY) {
#pragma unroll
          for (int p = 0; p < ASSAY_RANKS; p++)
            if (sources >> p & 1) own[u][0] = w[u][p][0], own[u][1] = w[u][p][1], own[u][2] = w[u][p][2], own[u][3] = w[u][p][3];
        } else {
          scaled<T>(own[u], a);
          fold<T, OP>(own[u], w[u], sources, c.rank);
          divided<T>(own[u], a);
        }
        // Slots are longer than chunks by what 16 bytes need.
#pragma unroll
        for (int p = 0; p < ASSAY_RANKS; p++)
          if (targets >> p & 1) *(uint4 *)(out[p] + i + u * row) = make_uint4(own[u][0], own[u][1], own[u][2], own[u][3]);
        if (keep) store_words(own[u], a.out[c.rank] + at, i + u * row, n);
      }
    }
    __syncthreads();
    if (from) release(c, s, line, me);
    if (to) post_step(c, a, r, result, other, k);
  }
  leave_received(c, s, line);
  leave_sent(c, r, result);
}

template <int T, int OP> __device__ __forceinline__ void allreduce_chunks(const Comm &c, const Args &a) {
  const uint32_t ch = blockIdx.x, peers = peers_of(c), self = 1u << c.rank;
  const bool owner = a.owners & self, target = a.targets & self;
  if (blockIdx.y == 0) {
    push_role<T>(c, a, ch, peers & a.owners);
  } else if (blockIdx.y == 1) {
    if (owner) combine_role<false, T, OP>(c, a, ch, peers, peers & a.targets, target || a.targets == 0);
  } else if (target) {
    take_role(c, a, ch, RESULT_CHANNEL, peers & a.owners);
  }
}

__device__ __forceinline__ void relay_chunks(const Comm &c, const Args &a) {
  const uint32_t ch = blockIdx.x, peers = peers_of(c), self = 1u << c.rank, root = 1u << a.root;
  if (blockIdx.y == 0) {
    if (c.rank == a.root) push_role<-1>(c, a, ch, peers & a.owners);
  } else if (blockIdx.y == 1) {
    if (a.owners & self) combine_role<true, 0, 0>(c, a, ch, root, peers & ~root, true);
  } else if (c.rank != a.root) {
    take_role(c, a, ch, RESULT_CHANNEL, peers & a.owners);
  } else {
    dependency_wait();
    for (int o = 0; o < c.ranks; o++) {
      if (!(a.owners >> o & 1) || a.in[o] == a.out[o]) continue;
      for (uint64_t at = (uint64_t)ch * a.chunk; at < a.send[o]; at += (uint64_t)gridDim.x * a.chunk)
        copy<Memory>(a.out[o] + at, a.in[o] + at, min((uint64_t)a.chunk, a.send[o] - at));
    }
  }
}

// chain_chunks passes a message from rank to rank, each step of it as soon as it
// is there, so that a link has one sender: a Broadcast from the root on, or a
// Reduce that ends there, to which every rank adds what it has.
template <bool REDUCE, int T, int OP> __device__ __forceinline__ void chain_chunks(const Comm &c, const Args &a) {
  SHARED(Channel, s);
  const uint32_t ch = blockIdx.x;
  const Line line(ch);
  Waiter wait(c, line.state);
  begin(c, s, line.state);
  const int prev = next_peer(c, c.ranks - 1), next = next_peer(c, 1);
  const bool from = c.rank != (REDUCE ? (a.root + 1) % c.ranks : a.root);  // the first one of the chain
  const bool to = (REDUCE ? c.rank : next) != a.root;                      // the last one
  const bool keep = REDUCE ? !to : from || a.in[c.rank] != a.out[c.rank];
  const uint64_t total = a.send[c.rank];
  for (uint32_t k = 0;; k++) {
    const uint64_t at = step_at(a, ch, a.channels, k);
    if (at >= total) break;
    const uint64_t n = min((uint64_t)a.chunk, total - at);
    if (from && threadIdx.x == 0) await_step(c, a, line, prev, s.received[prev] + 1, k, wait);
    if (to && threadIdx.x == 32) await_credit(c, s, line.state, next, s.sent[next] + 1, c.depth, wait);
    __syncthreads();
    const char *in = chunk_of(c, c.rank, line.ch, prev, s.received[prev] + 1);
    char *out = chunk_of(c, next, line.ch, c.rank, s.sent[next] + 1);
    const uint64_t first = (uint64_t)(threadIdx.x / 32) * PIECE + (threadIdx.x % 32) * 16;
    for (uint64_t i = first; i < n; i += (uint64_t)blockDim.x * UNROLL * 16) {
      uint32_t own[UNROLL][4], w[UNROLL][ASSAY_RANKS][4];
#pragma unroll
      for (int u = 0; u < UNROLL; u++) {
        if (i + u * ROW >= n) continue;
        if (REDUCE || !from) load_words(own[u], a.in[c.rank] + at, i + u * ROW, n);
        if (from) {
          const uint4 v = ld_slot((const uint4 *)(in + i + u * ROW));
          w[u][0][0] = v.x, w[u][0][1] = v.y, w[u][0][2] = v.z, w[u][0][3] = v.w;
        }
      }
#pragma unroll
      for (int u = 0; u < UNROLL; u++) {
        if (i + u * ROW >= n) continue;
        if (REDUCE) {
          scaled<T>(own[u], a);
          if (from) fold<T, OP>(own[u], w[u], 1, 1);
          if (!to) divided<T>(own[u], a);
        } else if (from) {
          own[u][0] = w[u][0][0], own[u][1] = w[u][0][1], own[u][2] = w[u][0][2], own[u][3] = w[u][0][3];
        }
        // Slots are longer than chunks by what 16 bytes need.
        if (to) *(uint4 *)(out + i + u * ROW) = make_uint4(own[u][0], own[u][1], own[u][2], own[u][3]);
        if (keep) store_words(own[u], a.out[c.rank] + at, i + u * ROW, n);
      }
    }
    __syncthreads();
    if (from && threadIdx.x == 0) release(c, s, line, prev);
    if (to && threadIdx.x == 32) post_step(c, a, s, line, next, k);
  }
  leave_received(c, s, line);
  leave_sent(c, s, line);
}

// combine_local reduces what lies on this device: in[0 … ranks) to out[rank].
template <int T, int OP> __device__ __forceinline__ void combine_local(const Comm &c, const Args &a) {
  dependency_wait();
  const uint64_t n = a.recv[c.rank], row = (uint64_t)gridDim.x * blockDim.x * 16;
  enum { U = 2 };
  for (uint64_t at = ((uint64_t)blockIdx.x * blockDim.x + threadIdx.x) * 16; at < n; at += U * row) {
    uint32_t w[U][ASSAY_RANKS][4];
#pragma unroll
    for (int u = 0; u < U; u++)
#pragma unroll
      for (int p = 0; p < ASSAY_RANKS; p++)
        if (p < c.ranks) load_words(w[u][p], a.in[p], at + u * row, n);
#pragma unroll
    for (int u = 0; u < U; u++) {
      if (a.scale & 1) {
#pragma unroll
        for (int p = 0; p < ASSAY_RANKS; p++)
          if (p < c.ranks) scale_words<T, 4>(w[u][p], factor_of<T>(a));
      }
      uint32_t own[4];
#pragma unroll
      for (int i = 0; i < 4; i++) own[i] = w[u][0][i];
      fold<T, OP>(own, w[u], ((1u << c.ranks) - 1) & ~1u, 0);
      divided<T>(own, a);
      store_words(own, a.out[c.rank], at + u * row, n);
    }
  }
}

#endif
