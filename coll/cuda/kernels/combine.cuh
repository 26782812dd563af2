// Reductions over chunks by the owners of parts, and Broadcasts whose parts other ranks relay.
#ifndef ASSAY_COMBINE_CUH
#define ASSAY_COMBINE_CUH
#include "rows.cuh"

// Slots are where a step's data come from and go to, by rank. Each moving warp has its own.
struct Slots {
  const char *in[ASSAY_RANKS];
  char *out[ASSAY_RANKS];
};
typedef Slots WarpSlots[512 / 32];

// combine_rows is a step of combine_role, of n bytes from several peers. The slots' addresses stay
// in shared memory, and few rows are moved at a time: registers have no room for more.
template <bool RELAY, int T, int OP>
__device__ __forceinline__ void combine_rows(const Team &t, const Comm &c, const Args &a, const Slots &slots, uint32_t sources, uint32_t targets, const char *own_in, char *keep, uint64_t n) {
  const bool aligned = (((uintptr_t)own_in | (uintptr_t)keep) & 15) == 0;
  enum { MANY = ASSAY_RANKS > 4 ? 1 : 2 };
  const auto load = [&](auto &regs, auto rows, uint64_t at, uint64_t end) {
#pragma unroll
    for (int u = 0; u < rows.n; u++) {
      if (!rows.whole && at + u * ROW >= end) continue;
      if (!RELAY) load_user<rows.whole>(regs.own[u], own_in, at + u * ROW, n);
#pragma unroll
      for (int p = 0; p < ASSAY_RANKS; p++)
        if (sources >> p & 1) load_slot(regs.w[u][p], slots.in[p] + at + u * ROW);
    }
  };
  const auto store = [&](auto &regs, auto rows, uint64_t at, uint64_t end) {
#pragma unroll
    for (int u = 0; u < rows.n; u++) {
      if (!rows.whole && at + u * ROW >= end) continue;
      uint32_t(&own)[4] = regs.own[u];
      if (RELAY) {
#pragma unroll
        for (int p = 0; p < ASSAY_RANKS; p++)
          if (sources >> p & 1)
            for (int i = 0; i < 4; i++) own[i] = regs.w[u][p][i];
      } else {
        scaled<T>(own, a);
        fold<T, OP>(own, regs.w[u], sources, c.rank);
        divided<T>(own, a);
      }
      // Slots are longer than chunks by what 16 bytes need.
#pragma unroll
      for (int p = 0; p < ASSAY_RANKS; p++)
        if (targets >> p & 1) *(uint4 *)(slots.out[p] + at + u * ROW) = make_uint4(own[0], own[1], own[2], own[3]);
      if (keep) store_user<rows.whole>(own, keep, at + u * ROW, n);
    }
  };
  each_row<TakenAll, MANY, 1, false>(t, n, aligned, load, store);
}

// A Turn is the pieces of a step, by rank. Two of them are for steps in turn.
typedef uint32_t Turn[MAX_RANKS];
typedef Turn TwoTurns[2];

typedef uint32_t Planned[AHEAD];  // pieces of the next steps

// want tells a peer which piece this rank wants as the peer's message `number`, and that its slot is free.
// await_wanted waits for that, and takes it away: numbers wrap, and then it would be wanted again.
__device__ __forceinline__ void want(const Comm &c, const Line &l, int p, uint32_t number, uint32_t piece) {
  st_volatile((uint2 *)&label_of(c, p, l.ch, c.rank, number)->number, make_uint2(number, piece == NONE ? NONE : piece + 1));
}
__device__ __forceinline__ uint32_t await_wanted(const Comm &c, const Line &l, int p, uint32_t number, Waiter &wait) {
  uint2 *const said = (uint2 *)&label_of(c, c.rank, l.ch, p, number)->number;
  uint2 got;
  while ((got = ld_volatile((const uint2 *)said)).x != number || got.y == 0)
    if (!wait.again(p, number, got.x)) return NONE;
  wait.met();
  st_volatile(said, make_uint2(0, 0));
  return got.y == NONE ? NONE : got.y - 1;
}

// A role that combines what comes from the sources, writes it to out[rank],
// and passes it on to the targets over the result channels. In turn, it says which piece it wants next
// as soon as a slot is free, and which one a result is.
//
// RELAY: there is one source, the root, and nothing to combine. ONE: there is one source.
template <bool RELAY, bool ONE, int T, int OP>
__device__ __forceinline__ void combine_role(const Team &t, const Comm &c, const Args &a, uint32_t ch, uint32_t sources, uint32_t targets, bool keep) {
  SHARED(Channel, s);
  SHARED(Channel, r);
  SHARED(TwoWords, taken);
  SHARED(Planned, planned);
  const Line line(ch), result(RESULT_CHANNEL + ch);
  begin(c, s, line.state, t);
  begin(c, r, result.state, t);
  Waiter waiting(c, line.state, s.left);
  const uint64_t total = RELAY ? a.recv[c.rank] : a.send[c.rank];
  const int me = serving_lane(), other = me - TO;
  const bool from = me < c.ranks && (sources >> me & 1);
  const bool to = other >= 0 && other < c.ranks && (targets >> other & 1);
  const bool turns = in_turn(c, a, total, AHEAD);
  const auto wait = [&](uint32_t k) {
    const uint32_t piece = turns && k >= AHEAD ? taken_now(&planned[k % AHEAD]) : own_piece(a, ch, total, k);
    if (from && piece != NONE) await_step(c, a, line, me, s.received[me] + 1 + k, k, waiting);
    if (to && (turns || piece != NONE)) await_credit(c, r, result.state, other, r.sent[other] + 1 + k, c.depth, waiting);
    return piece;
  };
  const auto move = [&](uint32_t k, uint32_t piece) {
    const uint64_t at = (uint64_t)piece * a.chunk, n = min((uint64_t)a.chunk, total - at);
    const auto in = [&](int p) { return chunk_of(c, c.rank, line.ch, p, s.received[p] + 1 + k); };
    const auto out = [&](int p) { return chunk_of(c, p, result.ch, c.rank, r.sent[p] + 1 + k); };
    const char *own = RELAY ? nullptr : a.in[c.rank] + at;
    char *kept = keep ? a.out[c.rank] + at : nullptr;
    if (!ONE) {
      SHARED(WarpSlots, slots);
      Slots &slot = slots[threadIdx.x / 32];
      if (from) slot.in[me] = in(me);
      if (to) slot.out[other] = out(other);
      __syncwarp();
      combine_rows<RELAY, T, OP>(t, c, a, slot, sources, targets, own, kept, n);
    } else {
      const int p = __ffs(sources) - 1;
      pass_rows<true, T, OP>(t, a, own, in(p), targets ? out(p) : nullptr, kept, n, true);
    }
  };
  bool over = false;  // there is no piece left
  const auto tell = [&](uint32_t k, uint32_t piece) {
    if (turns && !over) {
      uint32_t then = NONE;
      if (me == 0) {
        then = claim(c, a, pieces_in(a, total) - AHEAD * a.channels);
        if (then != NONE) then += AHEAD * a.channels;
      }
      then = __shfl_sync(~0u, then, 0);
      over = then == NONE;
      if (from) want(c, line, me, s.received[me] + 1 + k + AHEAD, then);
      if (me == 0) atomicExch(&planned[k % AHEAD], then);
    } else if (turns && me == 0) {
      atomicExch(&planned[k % AHEAD], NONE);
    }
    if (from && piece != NONE) release(c, line, me, s.received[me] + 1 + k);
    if (!to) return;
    if (turns) label(c, a, result, other, r.sent[other] + 1 + k, piece);
    if (turns || piece != NONE) post(c, a, result, other, r.sent[other] + 1 + k, turns ? 1 : k);
  };
  const uint32_t ran = run_steps(t, taken, true, waiting, wait, move, tell), steps = ran - 1;
  if (ran == LEFT || !t.tells()) return;
  if (from) leave_received(c, s, line, me, steps);
  if (to) leave_sent(c, r, result, other, steps + turns);
}

// push_parts sends to each owner of a mask its part of the rank's input. T < 0: bytes, as they are.
template <int T> __device__ __forceinline__ void push_parts(const Team &t, const Comm &c, const Args &a, uint32_t ch, uint32_t owners) {
  SHARED(Channel, s);
  SHARED(TwoWords, taken);
  SHARED(TwoTurns, turn);
  const Line line(ch);
  begin(c, s, line.state, t);
  Waiter waiting(c, line.state, s.left);
  const int me = serving_lane() - TO;
  const bool serves = me >= 0 && me < c.ranks && (owners >> me & 1);
  bool over = !serves;  // the owner wants no more
  const auto wait = [&](uint32_t k) {
    uint32_t piece = NONE;
    if (!over) {
      const uint32_t number = s.sent[me] + 1 + k;
      if (k >= AHEAD && in_turn(c, a, a.send[me], AHEAD)) {
        piece = await_wanted(c, line, me, number, waiting);
      } else {
        piece = own_piece(a, ch, a.send[me], k);
        if (piece != NONE) await_credit(c, s, line.state, me, number, c.depth, waiting);
      }
      over = piece == NONE;
    }
    if (serves) atomicExch(&turn[k % 2][me], piece);
    const uint32_t some = __ballot_sync(~0u, piece != NONE) >> TO;
    return some ? some : NONE;
  };
  const auto move = [&](uint32_t k, uint32_t some) {
    each_peer(c, ch, [&](int p) {
      if (!(some >> p & 1)) return;
      const uint64_t at = (uint64_t)taken_now(&turn[k % 2][p]) * a.chunk, n = min((uint64_t)a.chunk, a.send[p] - at);
      char *dst = chunk_of(c, p, line.ch, c.rank, s.sent[p] + 1 + k);
      if (T < 0)
        copy<Memory>(t, dst, a.in[p] + at, n);
      else
        copy_scaled<T < 0 ? 0 : T>(t, dst, a.in[p] + at, n, a);
    });
  };
  uint32_t sent = 0;
  const auto tell = [&](uint32_t k, uint32_t some) {
    if (some == NONE || !serves || !(some >> me & 1)) return;
    post(c, a, line, me, s.sent[me] + 1 + k, k);
    sent++;
  };
  if (run_steps(t, taken, true, waiting, wait, move, tell) == LEFT) return;
  if (t.tells() && me >= 0 && me < c.ranks) leave_sent(c, s, line, me, sent);
}

// take_parts copies the results of each owner of a mask to out[owner].
__device__ __forceinline__ void take_parts(const Team &t, const Comm &c, const Args &a, uint32_t ch, uint32_t owners) {
  SHARED(Channel, s);
  SHARED(TwoWords, taken);
  SHARED(TwoTurns, turn);
  const Line line(RESULT_CHANNEL + ch);
  begin(c, s, line.state, t);
  Waiter waiting(c, line.state, s.left);
  const int me = serving_lane();
  const bool serves = me < c.ranks && (owners >> me & 1), turns = serves && in_turn(c, a, a.recv[me], AHEAD);
  bool over = !serves;  // the owner has no more
  const auto wait = [&](uint32_t k) {
    uint32_t piece = NONE;
    if (!over) {
      const uint32_t number = s.received[me] + 1 + k;
      piece = own_piece(a, ch, a.recv[me], k);
      if (turns || piece != NONE) await_step(c, a, line, me, number, k, waiting);
      if (turns) piece = ld_volatile(&label_of(c, c.rank, line.ch, me, number)->piece);
      over = piece == NONE;
    }
    if (serves) atomicExch(&turn[k % 2][me], piece);
    const uint32_t some = __ballot_sync(~0u, piece != NONE);
    return some ? some : NONE;
  };
  const auto move = [&](uint32_t k, uint32_t some) {
    for (int j = 1; j < c.ranks; j++) {
      const int p = next_peer(c, j);
      if (!(some >> p & 1)) continue;
      const uint64_t at = (uint64_t)taken_now(&turn[k % 2][p]) * a.chunk;
      copy<Slot>(t, a.out[p] + at, chunk_of(c, c.rank, line.ch, p, s.received[p] + 1 + k), min((uint64_t)a.chunk, a.recv[p] - at));
    }
  };
  uint32_t received = 0;
  const auto tell = [&](uint32_t k, uint32_t some) {
    if (over) return;
    over = some == NONE || !(some >> me & 1);
    if (over && !turns) return;
    release(c, line, me, s.received[me] + 1 + k);
    received++;
  };
  if (run_steps(t, taken, true, waiting, wait, move, tell) == LEFT) return;
  if (t.tells() && me < c.ranks) leave_received(c, s, line, me, received);
}

// allreduce_chunks has two blocks for a channel. One combines. Of the other, a half pushes and a half
// takes: each of these loads and stores half as much as combining does.
template <int T, int OP> __device__ __forceinline__ void allreduce_chunks(const Comm &c, const Args &a) {
  const uint32_t ch = blockIdx.x / 2, role = blockIdx.x % 2, peers = peers_of(c), self = 1u << c.rank;
  const bool owner = a.owners & self, target = a.targets & self;
  if (role == 0) {
    const uint32_t half = target ? blockDim.x / 64 * 32 : blockDim.x;
    const bool pushes = threadIdx.x < half;
    const Team t = pushes ? Team{0, half, 1} : Team{half, blockDim.x - half, 1 + BARRIERS};
    if (pushes)
      push_parts<T>(t, c, a, ch, peers & a.owners);
    else
      take_parts(t, c, a, ch, peers & a.owners);
    return;
  }
  if (!owner) return;
  const Team t = whole_block();
  const bool keep = target || a.targets == 0;
  if (c.ranks == 2)
    combine_role<false, true, T, OP>(t, c, a, ch, peers, peers & a.targets, keep);
  else
    combine_role<false, false, T, OP>(t, c, a, ch, peers, peers & a.targets, keep);
}

__device__ __forceinline__ void relay_chunks(const Comm &c, const Args &a) {
  const Team t = whole_block();
  const uint32_t ch = blockIdx.x / 3, role = blockIdx.x % 3, peers = peers_of(c), self = 1u << c.rank, root = 1u << a.root;
  if (role == 0) {
    if (c.rank == a.root) push_parts<-1>(t, c, a, ch, peers & a.owners);
  } else if (role == 1) {
    if (a.owners & self) combine_role<true, false, 0, 0>(t, c, a, ch, root, peers & ~root, true);
  } else if (c.rank != a.root) {
    take_parts(t, c, a, ch, peers & a.owners);
  } else if (t.moves()) {
    dependency_wait();
    for (int o = 0; o < c.ranks; o++) {
      if (!(a.owners >> o & 1) || a.in[o] == a.out[o]) continue;
      for (uint64_t at = (uint64_t)ch * a.chunk; at < a.send[o]; at += (uint64_t)a.channels * a.chunk)
        copy<Memory>(t, a.out[o] + at, a.in[o] + at, min((uint64_t)a.chunk, a.send[o] - at));
    }
  }
}

// combine_local reduces what lies on this device: in[0 … ranks) to out[rank]. targets are those of them that
// have been scaled. It does not end if what it reads may have been overwritten: owners are the ranks that copy
// there.
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
          if (p < c.ranks && !(a.targets >> p & 1)) scale_words<T, 4>(w[u][p], factor_of<T>(a));
      }
      uint32_t own[4];
#pragma unroll
      for (int i = 0; i < 4; i++) own[i] = w[u][0][i];
      fold<T, OP>(own, w[u], ((1u << c.ranks) - 1) & ~1u, 0);
      divided<T>(own, a);
      store_words(own, a.out[c.rank], at + u * row, n);
    }
  }
  if (a.owners == 0) return;
  fence_system();
  Waiter waiting(c, PACKET_CHANNELS + blockIdx.x % CHUNK_CHANNELS, 0);
  hold_if_left(c, a.owners, waiting);
}

#endif
