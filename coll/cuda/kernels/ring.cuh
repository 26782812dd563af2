// Collectives by copy engines: blocks that stay from the first round to the last. They tell a stream
// when it may copy, and reduce what has come or move it to its place. A kernel for each round would
// wait, in each round, for multiprocessors that matrix products hold.
#ifndef ASSAY_RING_CUH
#define ASSAY_RING_CUH
#include "rows.cuh"

// A Round is a round of a ring, with the step and the chunk that it is for. In a chain a rank gets and
// sends different chunks, and neither is used.
struct Round {
  uint32_t number, step, chunk;
  __device__ __forceinline__ Round(const Ring &g, uint32_t n) : number(n), step(0), chunk(0) {
    if (!g.steps) return;
    const uint32_t group = g.steps * g.lag, in = n % group;
    step = in / g.lag;
    chunk = n / group * g.lag + in % g.lag;
  }
};

// A Stretch is a chunk of a segment.
struct Stretch {
  uint64_t segment, at, n;  // segment: where it begins; at: in the segment
};

// stretch_of returns the chunk that comes in a round (ahead 0), or that goes (ahead 1).
__device__ __forceinline__ Stretch stretch_of(const Comm &c, const Ring &g, const Round &r, uint32_t ahead) {
  uint32_t k = r.chunk;
  uint64_t begins = 0, length = g.segment;
  if (g.steps) {
    int of = c.rank + (int)ahead - (int)g.shift - (int)r.step;
    while (of < 0) of += c.ranks;
    begins = (uint64_t)of * g.segment;
    if (g.total) length = begins < g.total ? min(g.segment, g.total - begins) : 0;
  } else {
    k = r.number - (g.position - 1 + ahead) * g.lag;
    if (behind(k, 0) || k >= g.chunks || (ahead ? !g.next : !g.prev)) return {0, 0, 0};
  }
  if (g.tail && k >= g.whole) {  // the last chunk is cut into parts
    const uint64_t before = (uint64_t)g.whole * g.chunk, last = length - before, at = min((uint64_t)(k - g.whole) * g.tail, last);
    return {begins, before + at, min((uint64_t)g.tail, last - at)};
  }
  const uint64_t at = min((uint64_t)k * g.chunk, length);
  return {begins, at, min((uint64_t)g.chunk, length - at)};
}

// await_rounds waits until a rank that does this operation has got to a number of rounds. One that has
// begun another operation at the same time has not; but one that has gone on to the next one has.
__device__ __forceinline__ void await_rounds(const Args &a, const Ring &g, const Ready *ready, int p, uint32_t number, Waiter &wait) {
  for (;;) {
    const uint2 got = ld_volatile((const uint2 *)ready);
    if (!behind(got.x, number) && (got.y == a.sign || !behind(got.x, g.after))) break;
    if (!wait.again(p, number, got.x)) return;
  }
  wait.met();
}
__device__ __forceinline__ void await_word(const uint32_t *word, int p, uint32_t number, Waiter &wait) {
  uint32_t got;
  while (behind(got = ld_acquire(word), number))
    if (!wait.again(p, number, got)) return;
  wait.met();
}

// has_left is whether the rank has left in a kernel before.
__device__ __forceinline__ uint32_t has_left(const Comm &c) { return ld_volatile(left_of(c, c.rank, c.rank)); }

// before_of is the rank that all the rank's own waits depend on in the end.
__device__ __forceinline__ int before_of(const Comm &c, const Ring &g) { return g.prev ? next_peer(c, c.ranks - 1) : c.rank; }

// ring_rows reduces n bytes of a slot and of the rank's own memory with the moving warps of a team. raw: the slot
// contains what the previous rank began with. Each rank's part is scaled before it is added, as in other kernels:
// the sum may be out of the type's range.
template <int T, int OP> __device__ __forceinline__ void ring_rows(const Team &t, const Args &a, char *out, const char *own_in, const char *slot, uint64_t n, bool raw, bool last) {
  const bool aligned = (((uintptr_t)own_in | (uintptr_t)out) & 15) == 0;
  const auto load = [&](auto &regs, auto rows, uint64_t at, uint64_t end) {
#pragma unroll
    for (int u = 0; u < rows.n; u++) {
      if (!rows.whole && at + u * ROW >= end) continue;
      load_user<rows.whole>(regs.own[u], own_in, at + u * ROW, n);
      load_slot(regs.w[u][0], slot + at + u * ROW);
    }
  };
  const auto store = [&](auto &regs, auto rows, uint64_t at, uint64_t end) {
#pragma unroll
    for (int u = 0; u < rows.n; u++) {
      if (!rows.whole && at + u * ROW >= end) continue;
      uint32_t(&v)[4] = regs.w[u][0];
      if (raw) scaled<T>(v, a);
      scaled<T>(regs.own[u], a);
      Reducer<T, OP, 4> r;
      r.first(v);
      r.add(regs.own[u]);
      r.result(v);
      if (last) divided<T>(v, a);
      store_user<rows.whole>(v, out, at + u * ROW, n);
    }
  };
  each_row<TakenOne, 4, 1, true>(t, n, aligned, load, store);
}

// ring_moves is what all blocks but the first do: they move what has come, a piece after the other, and
// before that the round's part of what the rank keeps. Each takes on the next piece that no other has,
// because some may get no multiprocessor for long.
template <int T, int OP> __device__ __forceinline__ void ring_moves(const Comm &c, const Args &a, const Ring &g) {
  SHARED(TwoWords, taken);
  const Team t = whole_block();
  const uint32_t each = g.pieces << g.keeps, total = (g.end - g.first) * each;
  const auto round_of = [&](uint32_t piece) { return Round(g, g.first + piece / each); };
  const auto kept = [&](uint32_t piece) { return piece % each + g.pieces < each; };
  Waiter waiting(c, PACKET_CHANNELS + blockIdx.x % CHUNK_CHANNELS, has_left(c));
  const auto wait = [&](uint32_t) {
    uint32_t piece = NONE;
    if (serving_lane() == 0) {
      piece = atomicAdd(&g.own->claimed, 1) - g.claim;
      if (piece < total) {
        const Round r = round_of(piece);
        const uint32_t number = g.base + r.number;
        if (!kept(piece) && stretch_of(c, g, r, 0).n) {
          await_rounds(a, g, &g.own->granted, before_of(c, g), number + 1, waiting);
          await_word(&g.own->arrived, before_of(c, g), number + 1, waiting);
        } else if (r.number >= g.first + RING_ROUNDS / 2) {
          await_word(&g.own->through, before_of(c, g), number - RING_ROUNDS / 2, waiting);
        }
      }
      if (piece >= total) piece = NONE;
    }
    return __shfl_sync(~0u, piece, 0);
  };
  const char *const in = a.in[c.rank];
  char *const out = a.out[c.rank];
  const auto move = [&](uint32_t, uint32_t piece) {
    const Round r = round_of(piece);
    const bool own = kept(piece);
    const Stretch s = stretch_of(c, g, r, own);  // what a rank keeps is what it sends first
    const uint64_t at = (uint64_t)(piece % g.pieces) * g.piece, n = at < s.n ? min((uint64_t)g.piece, s.n - at) : 0;
    const char *from = in + (g.one_in ? 0 : s.segment) + s.at + at;
    char *to = out + (g.one_out ? 0 : s.segment) + s.at + at;
    char *slot = g.in_slots + (uint64_t)(r.number % g.slots) * g.chunk + at;
    const bool reduces = g.steps ? r.step < g.reduces : g.reduces, last = g.steps ? r.step + 1 == g.reduces : !g.next;
    if (n == 0) return;
    if (own) {
      if (r.step == 0 && to != from) copy<Memory>(t, to, from, n);
    } else if (reduces) {
      ring_rows<T, OP>(t, a, last ? to : slot, from, slot, n, g.steps ? r.step == 0 : g.position == 1, last);
    } else {
      copy<Slot>(t, to, slot, n);
    }
  };
  // Copies of a rank that has left may have overwritten what came from it, or, in the slot of the previous
  // rank, what that one has passed on.
  const int prev = next_peer(c, c.ranks - 1), before = next_peer(c, c.ranks - 2);
  run_steps(t, taken, false, waiting, wait, move, [&](uint32_t, uint32_t piece) {
    if (piece == NONE || serving_lane() != 0) return;
    fence_system();
    if (g.prev && ld_volatile(left_of(c, c.rank, prev)) || g.before && ld_volatile(left_of(c, c.rank, before))) return;
    atomicAdd(&g.own->moved[round_of(piece).number % RING_ROUNDS], 1);
  });
}

// ring_tells is what one thread of the first block does: it tells the ranks that copy to this one, and
// ring_grants, which rounds this rank is through with.
__device__ __forceinline__ void ring_tells(const Comm &c, const Args &a, const Ring &g) {
  Waiter waiting(c, PACKET_CHANNELS, has_left(c));
  for (uint32_t r = g.first; !waiting.left(); r++) {
    const uint32_t number = g.base + r;
    if (g.prev) st_volatile((uint2 *)&g.prev->passed[0], make_uint2(number, a.sign));
    if (g.before) st_volatile((uint2 *)&g.before->passed[1], make_uint2(number, a.sign));
    st_volatile(&g.own->through, number);
    if (r == g.end) return;
    uint32_t *moved = &g.own->moved[r % RING_ROUNDS];
    await_word(moved, before_of(c, g), g.pieces << g.keeps, waiting);
    if (waiting.left()) return;
    st_volatile(moved, 0);  // the next round that it counts begins only when this one is known to be over
    fence_system();
  }
}

// ring_grants is what another thread does: it lets the rank's stream copy as soon as what
// goes is there and the slot for it is free.
__device__ __forceinline__ void ring_grants(const Comm &c, const Args &a, const Ring &g) {
  const int to = next_peer(c, 1), beyond = next_peer(c, 2 % c.ranks);
  Waiter waiting(c, PACKET_CHANNELS + CHUNK_CHANNELS - 1, has_left(c));
  // The first rounds of the next rank and of the one behind it, from which on they take part.
  const uint32_t begins = g.steps ? 0 : g.position * g.lag, begins_beyond = g.steps ? 0 : begins + g.lag;
  uint32_t sent = 0;
  for (uint32_t n = g.first; n < g.end; n++) {
    const Round r(g, n);
    if (stretch_of(c, g, r, 1).n == 0) continue;
    // The next rank has used what was in the slot, and the one behind it has got it, too.
    await_rounds(a, g, &g.own->passed[0], to, g.base + max(begins, n < g.slots ? 0 : n + 1 - g.slots), waiting);
    if (g.behind && n + g.lag + 1 > g.slots + begins_beyond) await_rounds(a, g, &g.own->passed[1], beyond, g.base + n + g.lag + 1 - g.slots, waiting);
    if (g.steps ? r.step > 0 : g.position > 0) await_word(&g.own->through, before_of(c, g), g.base + n - g.lag + 1, waiting);
    if (waiting.left()) break;
    sent = g.base + n + 1;
    st_volatile((uint2 *)&g.next->granted, make_uint2(sent, a.sign));
    fence_system();
    st_volatile(&g.own->go, sent);
  }
  if (sent && !waiting.left()) await_rounds(a, g, &g.own->passed[0], to, sent, waiting);  // what goes was read
  if (!waiting.left()) return;
  tell_left(c);
  st_volatile(&g.own->go, g.base + g.end);  // no stream waits for ever
}

// The first block is the one that gets a multiprocessor first.
template <int T, int OP> __device__ __forceinline__ void ring_copies(const Comm &c, const Args &a, const Ring &g) {
  dependency_wait();
  if (blockIdx.x > 0)
    ring_moves<T, OP>(c, a, g);
  else if (threadIdx.x == 0)
    ring_tells(c, a, g);
  else if (threadIdx.x == 32)
    ring_grants(c, a, g);
}

#endif
