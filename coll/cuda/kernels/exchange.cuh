// Exchanges over chunks: what each rank sends to each other one.
#ifndef ASSAY_EXCHANGE_CUH
#define ASSAY_EXCHANGE_CUH
#include "rows.cuh"

// step_at is where step k of a channel begins in a message.
__device__ __forceinline__ uint64_t step_at(const Args &a, uint32_t ch, uint32_t channels, uint32_t k) { return ((uint64_t)k * channels + ch) * a.chunk; }

// sends and takes report whether a channel has a step k of the message to a peer, or from it.
__device__ __forceinline__ bool sends(const Args &a, uint32_t ch, int p, uint32_t k) { return ch < to_channels(a, p) && step_at(a, ch, to_channels(a, p), k) < a.send[p]; }
__device__ __forceinline__ bool takes(const Args &a, uint32_t ch, int p, uint32_t k) { return ch < from_channels(a, p) && step_at(a, ch, from_channels(a, p), k) < a.recv[p]; }

// An Own is what a role of an exchange copies of the rank's own part: half of each step, if the rank
// sends to peers and receives from them; otherwise the role that has nothing else to do copies all.
// Blocks that push and blocks that take are both as fast as their loads and stores.
struct Own {
  bool some, half, second;
  __device__ __forceinline__ Own(const Comm &c, const Args &a, bool takes) {
    bool to = false, from = false;
    for (int p = 0; p < c.ranks; p++) {
      if (p == c.rank) continue;
      to |= a.send[p] > 0;
      from |= a.recv[p] > 0;
    }
    half = to == from;
    second = takes;
    some = a.in[c.rank] != a.out[c.rank] && (half || takes == to);
  }
  // has reports whether a channel has a step k of it.
  __device__ __forceinline__ bool has(const Comm &c, const Args &a, uint32_t ch, uint32_t k) const { return some && step_at(a, ch, a.channels, k) < a.send[c.rank]; }
  __device__ __forceinline__ void copy_step(const Team &t, const Comm &c, const Args &a, uint32_t ch, uint32_t k) const {
    uint64_t at = step_at(a, ch, a.channels, k), n = min((uint64_t)a.chunk, a.send[c.rank] - at);
    if (half) {
      const uint64_t first = min((n / 2 + ROW - 1) / ROW * ROW, n);
      at += second ? first : 0;
      n = second ? n - first : first;
    }
    copy<Memory>(t, a.out[c.rank] + at, a.in[c.rank] + at, n);
  }
};

// steps_in is how many steps a channel has of a message that is cut for so many.
__device__ __forceinline__ uint32_t steps_in(const Args &a, uint32_t ch, uint32_t channels, uint64_t bytes) {
  const uint64_t first = (uint64_t)ch * a.chunk, row = (uint64_t)channels * a.chunk;
  return ch < channels && first < bytes ? (uint32_t)((bytes - first + row - 1) / row) : 0;
}

// pushes_of and takes_of are how many steps a channel has of the messages to peers, and from them.
__device__ __forceinline__ uint32_t pushes_of(const Comm &c, const Args &a, uint32_t ch) {
  uint32_t steps = 0;
  for (int p = 0; p < c.ranks; p++)
    if (p != c.rank) steps = max(steps, steps_in(a, ch, to_channels(a, p), a.send[p]));
  return steps;
}
__device__ __forceinline__ uint32_t takes_of(const Comm &c, const Args &a, uint32_t ch) {
  uint32_t steps = 0;
  for (int p = 0; p < c.ranks; p++)
    if (p != c.rank) steps = max(steps, steps_in(a, ch, from_channels(a, p), a.recv[p]));
  return steps;
}

// push_all sends in[p] to each peer. An exchange may be in place, or have an own part: the link is
// busy with steps of other blocks meanwhile.
__device__ __forceinline__ void push_all(const Team &t, const Comm &c, const Args &a, uint32_t ch) {
  SHARED(Channel, s);
  SHARED(TwoWords, taken);
  const Line line(ch);
  begin(c, s, line.state, t);
  Waiter waiting(c, line.state, s.left);
  const int me = serving_lane() - TO;
  const bool serves = me >= 0 && me < c.ranks && me != c.rank;
  const Own own(c, a, false);
  const uint32_t pushes = pushes_of(c, a, ch);
  const auto wait = [&](uint32_t k) {
    if (k >= pushes && !own.has(c, a, ch, k)) return NONE;
    if (serves && sends(a, ch, me, k)) await_credit(c, s, line.state, me, s.sent[me] + 1 + k, c.depth, waiting);
    return k;
  };
  const auto move = [&](uint32_t k, uint32_t) {
    each_peer(c, ch, [&](int p) {
      if (!sends(a, ch, p, k)) return;
      const uint64_t at = step_at(a, ch, to_channels(a, p), k);
      copy<Memory>(t, chunk_of(c, p, line.ch, c.rank, s.sent[p] + 1 + k), a.in[p] + at, min((uint64_t)a.chunk, a.send[p] - at));
    });
    if (own.has(c, a, ch, k)) own.copy_step(t, c, a, ch, k);
  };
  uint32_t sent = 0;
  const auto tell = [&](uint32_t k, uint32_t) {
    if (a.in_place && k < pushes && serving_lane() == EXTRA) st_volatile(&channel_of(c, c.rank, line.state)->pushed, s.used + k + 1);
    if (!serves || !sends(a, ch, me, k)) return;
    post(c, a, line, me, s.sent[me] + 1 + k, k);
    sent++;
  };
  if (run_steps(t, taken, true, waiting, wait, move, tell) == LEFT) return;
  if (t.tells() && me >= 0 && me < c.ranks) leave_sent(c, s, line, me, sent);
}

// Where what comes overwrites what goes, a step is taken only after the same one was pushed, of
// which the two blocks of a channel count.
__device__ __forceinline__ void await_pushed(const Comm &c, const Line &line, uint32_t number, Waiter &waiting) {
  const uint32_t *pushed = &channel_of(c, c.rank, line.state)->pushed;
  uint32_t got;
  while (behind(got = ld_acquire(pushed), number))
    if (!waiting.again(c.rank, number, got)) break;
  waiting.met();
}

// leave_pushed ends an exchange in place of so many steps. Only when the last one is seen is it
// sure that the other block has begun, and seen what was used.
__device__ __forceinline__ void leave_pushed(const Comm &c, const Channel &s, const Line &line, uint32_t steps, Waiter &waiting) {
  await_pushed(c, line, s.used + steps, waiting);
  if (waiting.left()) return;
  channel_of(c, c.rank, line.state)->used = s.used + steps;
}

// take_all copies what comes from each peer to out[p].
__device__ __forceinline__ void take_all(const Team &t, const Comm &c, const Args &a, uint32_t ch) {
  SHARED(Channel, s);
  SHARED(TwoWords, taken);
  const Line line(ch);
  begin(c, s, line.state, t);
  Waiter waiting(c, line.state, s.left);
  const int me = serving_lane();
  const bool serves = me < c.ranks && me != c.rank;
  const Own own(c, a, true);
  const uint32_t pushes = a.in_place ? pushes_of(c, a, ch) : 0, from_peers = takes_of(c, a, ch);
  const auto wait = [&](uint32_t k) {
    if (k >= from_peers && !own.has(c, a, ch, k)) return NONE;
    if (serves && takes(a, ch, me, k)) await_step(c, a, line, me, s.received[me] + 1 + k, k, waiting);
    if (me == EXTRA && k < pushes) await_pushed(c, line, s.used + k + 1, waiting);
    return k;
  };
  const auto move = [&](uint32_t k, uint32_t) {
    for (int j = 1; j < c.ranks; j++) {
      const int p = next_peer(c, j);
      if (!takes(a, ch, p, k)) continue;
      const uint64_t at = step_at(a, ch, from_channels(a, p), k);
      copy<Slot>(t, a.out[p] + at, chunk_of(c, c.rank, line.ch, p, s.received[p] + 1 + k), min((uint64_t)a.chunk, a.recv[p] - at));
    }
    if (own.has(c, a, ch, k)) own.copy_step(t, c, a, ch, k);
  };
  uint32_t received = 0;
  const auto tell = [&](uint32_t k, uint32_t) {
    if (!serves || !takes(a, ch, me, k)) return;
    release(c, line, me, s.received[me] + 1 + k);
    received++;
  };
  if (run_steps(t, taken, true, waiting, wait, move, tell) == LEFT) return;
  if (t.tells() && me < c.ranks) leave_received(c, s, line, me, received);
  if (a.in_place && t.waits() && me == EXTRA) leave_pushed(c, s, line, pushes, waiting);
}

// In phases every rank sends to one peer and receives from one, as long as it
// takes, so that each link has one sender: four H200s exchange 360 GB/s in that
// way, and 345 when each sends to all the time. That the receiver is in the same
// phase keeps the ranks together. Where the number of ranks is a power of two,
// the two peers are one, and the exchange may be in place.
__device__ __forceinline__ int phase_to(const Comm &c, int j) { return c.ranks & (c.ranks - 1) ? next_peer(c, j) : c.rank ^ j; }
__device__ __forceinline__ int phase_from(const Comm &c, int j) { return c.ranks & (c.ranks - 1) ? next_peer(c, c.ranks - j) : c.rank ^ j; }

// push_phases sends to one peer after the other, and copies of the own part between the steps.
__device__ __forceinline__ void push_phases(const Team &t, const Comm &c, const Args &a, uint32_t ch) {
  SHARED(Channel, s);
  SHARED(TwoWords, taken);
  const Line line(ch);
  begin(c, s, line.state, t);
  Waiter waiting(c, line.state, s.left);
  const Own own(c, a, false);
  uint32_t before = 0;  // steps of the phases before
  for (int j = 1; j < c.ranks; j++) {
    const int p = phase_to(c, j);
    const uint32_t steps = steps_in(a, ch, a.channels, a.send[p]);
    const uint32_t ran = run_steps(t, taken, j + 1 == c.ranks, waiting,
              [&](uint32_t k) {
                if (k >= steps) return NONE;
                if (serving_lane() == TO) await_credit(c, s, line.state, p, s.sent[p] + 1 + k, c.depth, waiting);
                return k;
              },
              [&](uint32_t k, uint32_t) {
                const uint64_t at = step_at(a, ch, a.channels, k);
                copy<Memory>(t, chunk_of(c, p, line.ch, c.rank, s.sent[p] + 1 + k), a.in[p] + at, min((uint64_t)a.chunk, a.send[p] - at));
                if (own.has(c, a, ch, before + k)) own.copy_step(t, c, a, ch, before + k);
              },
              [&](uint32_t k, uint32_t) {
                if (k >= steps) return;
                if (a.in_place && serving_lane() == EXTRA) st_volatile(&channel_of(c, c.rank, line.state)->pushed, s.used + before + k + 1);
                if (serving_lane() == TO) post(c, a, line, p, s.sent[p] + 1 + k, k);
              });
    if (ran == LEFT) return;
    if (t.tells() && serving_lane() == TO) leave_sent(c, s, line, p, steps);
    before += steps;
  }
  if (t.moves())
    for (uint32_t k = before; own.has(c, a, ch, k); k++) own.copy_step(t, c, a, ch, k);
}

// take_phases copies to its place what comes from one peer after the other, and of the own part.
__device__ __forceinline__ void take_phases(const Team &t, const Comm &c, const Args &a, uint32_t ch) {
  SHARED(Channel, s);
  SHARED(TwoWords, taken);
  const Line line(ch);
  begin(c, s, line.state, t);
  Waiter waiting(c, line.state, s.left);
  const Own own(c, a, true);
  uint32_t before = 0;
  for (int j = 1; j < c.ranks; j++) {
    const int p = phase_from(c, j);
    const uint32_t steps = steps_in(a, ch, a.channels, a.recv[p]);
    const uint32_t ran = run_steps(t, taken, j + 1 == c.ranks, waiting,
              [&](uint32_t k) {
                if (k >= steps) return NONE;
                if (serving_lane() == 0) await_step(c, a, line, p, s.received[p] + 1 + k, k, waiting);
                if (a.in_place && serving_lane() == EXTRA) await_pushed(c, line, s.used + before + k + 1, waiting);
                return k;
              },
              [&](uint32_t k, uint32_t) {
                const uint64_t at = step_at(a, ch, a.channels, k);
                copy<Slot>(t, a.out[p] + at, chunk_of(c, c.rank, line.ch, p, s.received[p] + 1 + k), min((uint64_t)a.chunk, a.recv[p] - at));
                if (own.has(c, a, ch, before + k)) own.copy_step(t, c, a, ch, before + k);
              },
              [&](uint32_t k, uint32_t) {
                if (k >= steps) return;
                if (serving_lane() == 0) release(c, line, p, s.received[p] + 1 + k);
              });
    if (ran == LEFT) return;
    if (t.tells() && serving_lane() == 0) leave_received(c, s, line, p, steps);
    before += steps;
  }
  if (t.moves())
    for (uint32_t k = before; own.has(c, a, ch, k); k++) own.copy_step(t, c, a, ch, k);
  if (a.in_place && t.waits() && serving_lane() == EXTRA) leave_pushed(c, s, line, before, waiting);
}

// pushes_ahead reports whether there are slots for all that the rank sends: blocks that push then wait for
// none that take, neither here nor at a peer.
__device__ __forceinline__ bool pushes_ahead(const Comm &c, const Args &a) {
  for (int p = 0; p < c.ranks; p++)
    if (p != c.rank && a.send[p] > (uint64_t)c.depth * to_channels(a, p) * a.chunk) return false;
  return !a.phased;
}

// Where blocks that push wait for none, all of them come first: on two H200s an AllToAll of 3 MB takes 8 %
// less time than with the two blocks of each channel one behind the other.
__device__ __forceinline__ void exchange_chunks(const Comm &c, const Args &a) {
  const Team t = whole_block();
  const uint32_t half = gridDim.x / 2;
  const bool ahead = pushes_ahead(c, a);
  const uint32_t ch = ahead ? blockIdx.x % half : blockIdx.x / 2, role = ahead ? blockIdx.x / half : blockIdx.x % 2;
  if (a.phased) {
    if (role == 0)
      push_phases(t, c, a, ch);
    else
      take_phases(t, c, a, ch);
  } else if (role == 0) {
    push_all(t, c, a, ch);
  } else {
    take_all(t, c, a, ch);
  }
}

#endif
