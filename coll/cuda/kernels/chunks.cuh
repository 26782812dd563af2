// Collectives over chunks: whole runs of memory, then a fence and a number.
// Best for long messages. Each role of an operation has blocks of its own, or
// half a block, so that pushing, reducing and copying out overlap without a
// schedule; in a block some warps wait and tell, so that moving data waits for
// neither.
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

// Blocks get unequal parts of a link: on an H200 a third of them send 1.3 times as much as the others.
// So blocks take on the pieces of longer messages in turn, each the next one that no other has.
//
// in_turn reports whether they do; of shorter messages, piece k * channels + ch is step k of a channel.
// Where receivers' blocks take them on, so is each of a channel's first AHEAD steps. Windows in host
// memory, which have no LL128, are too far away to be counted in.
enum { AHEAD = 4 };
__device__ __forceinline__ bool in_turn(const Comm &c, const Args &a, uint64_t bytes, uint32_t steps) {
  return c.depth >= AHEAD && c.ll128_slot && bytes > (uint64_t)steps * a.channels * a.chunk;
}

// pieces_in is how many pieces a message has, and own_piece one that needs not be taken on, or NONE.
__device__ __forceinline__ uint32_t pieces_in(const Args &a, uint64_t bytes) { return (uint32_t)((bytes + a.chunk - 1) / a.chunk); }
__device__ __forceinline__ uint32_t own_piece(const Args &a, uint32_t ch, uint64_t bytes, uint32_t k) {
  const uint32_t piece = k * a.channels + ch;
  return piece < pieces_in(a, bytes) ? piece : NONE;
}

// claim takes on one of so many pieces, or NONE. The last block to find none leaves the count as the next
// operation needs it.
__device__ __forceinline__ uint32_t claim(const Comm &c, const Args &a, uint32_t pieces) {
  uint32_t *claimed = &channel_of(c, c.rank, PACKET_CHANNELS)->claimed;
  const uint32_t got = atomicAdd(claimed, 1);
  if (got + 1 == pieces + a.channels) atomicExch(claimed, 0);
  return got < pieces ? got : NONE;
}

// label says which piece message `number` to a peer is.
__device__ __forceinline__ void label(const Comm &c, const Args &a, const Line &l, int p, uint32_t number, uint32_t piece) {
  st_volatile((uint2 *)&label_of(c, p, l.ch, c.rank, number)->sign, make_uint2(a.sign, piece));
}

// A Source reads 16 bytes of memory.
struct Memory {  // the user's
  __device__ static __forceinline__ uint4 load(const char *p) { return *(const uint4 *)p; }
};
struct Slot {  // what a peer wrote
  __device__ static __forceinline__ uint4 load(const char *p) { return ld_slot((const uint4 *)p); }
};

// A Piece is n bytes from `at`.
struct Piece {
  uint64_t at, n;
};

// A row is what the lanes of a warp move with 16 bytes each. A warp moves rows of its own: NVLink
// carries a fifth more of such from a few blocks than of rows of whole blocks.
enum { ROW = 512 };

// A Rows says at compile time how many rows there are, and whether they are there in whole.
template <int N, bool WHOLE> struct Rows {
  enum { n = N, whole = WHOLE };
};

// each_row moves n bytes with the moving warps of a team: it calls load(regs, Rows, at, end), then
// store(regs, Rows, at, end), for each warp's rows. at is this lane's place in the first of the Rows,
// end is behind the warp's last one, and a Regs holds what is loaded. aligned: whole rows are moved
// MANY at a time, and FEW of the rest; otherwise all are moved FEW at a time and never taken for
// whole. EARLY: the next rows are loaded before these are stored, so that both go on at once.
template <template <int> class Regs, int MANY, int FEW, bool EARLY, class Load, class Store>
__device__ __forceinline__ void each_row(const Team &t, uint64_t n, bool aligned, const Load &load, const Store &store) {
  const uint32_t all = (uint32_t)((n + ROW - 1) / ROW), warps = t.movers() / 32, share = (all + warps - 1) / warps;
  const uint32_t per = aligned ? (share + MANY - 1) / MANY * MANY : share;  // fewer rows than MANY would take as long, one FEW after the other
  uint32_t row = t.index() / 32 * per;
  const uint32_t last = min(row + per, all), sure = aligned ? min(last, (uint32_t)(n / ROW)) : 0;
  const uint64_t end = min((uint64_t)last * ROW, n), lane = threadIdx.x % 32 * 16;
  const auto at = [&](uint32_t r) { return (uint64_t)r * ROW + lane; };
  const Rows<MANY, true> rows;
  if (!EARLY) {
    for (; row + MANY <= sure; row += MANY) {
      Regs<MANY> a;
      load(a, rows, at(row), end);
      store(a, rows, at(row), end);
    }
  } else if (row + MANY <= sure) {
    Regs<MANY> a, b;
    load(a, rows, at(row), end);
    for (;;) {
      row += MANY;
      if (row + MANY > sure) {
        store(a, rows, at(row - MANY), end);
        break;
      }
      load(b, rows, at(row), end);
      store(a, rows, at(row - MANY), end);
      row += MANY;
      if (row + MANY > sure) {
        store(b, rows, at(row - MANY), end);
        break;
      }
      load(a, rows, at(row), end);
      store(b, rows, at(row - MANY), end);
    }
  }
  for (; row < last; row += FEW) {
    Regs<FEW> a;
    load(a, Rows<FEW, false>(), at(row), end);
    store(a, Rows<FEW, false>(), at(row), end);
  }
}

// copy moves n bytes with the moving warps of a team.
template <int N> struct Copied {
  uint4 v[N];
};
template <class S> __device__ __forceinline__ void copy(const Team &t, char *dst, const char *src, uint64_t n) {
  const bool aligned = (((uintptr_t)dst | (uintptr_t)src) & 15) == 0;
  const auto load = [&](auto &regs, auto rows, uint64_t at, uint64_t end) {
#pragma unroll
    for (int u = 0; u < rows.n; u++) {
      if (rows.whole) {
        regs.v[u] = S::load(src + at + u * ROW);
      } else if (at + u * ROW < end) {
        uint32_t w[4];
        load_words(w, src, at + u * ROW, n);
        regs.v[u] = make_uint4(w[0], w[1], w[2], w[3]);
      }
    }
  };
  const auto store = [&](auto &regs, auto rows, uint64_t at, uint64_t end) {
#pragma unroll
    for (int u = 0; u < rows.n; u++) {
      if (rows.whole) {
        *(uint4 *)(dst + at + u * ROW) = regs.v[u];
      } else if (at + u * ROW < end) {
        const uint32_t w[4] = {regs.v[u].x, regs.v[u].y, regs.v[u].z, regs.v[u].w};
        store_words(w, dst, at + u * ROW, n);
      }
    }
  };
  each_row<Copied, 4, 2, true>(t, n, aligned, load, store);
}

// copy_scaled is copy with the rank's own factor.
template <int T> __device__ __forceinline__ void copy_scaled(const Team &t, char *dst, const char *src, uint64_t n, const Args &a) {
  if (!(a.scale & 1)) {
    copy<Memory>(t, dst, src, n);
    return;
  }
  for (uint64_t at = (uint64_t)t.index() * 16; at < n; at += (uint64_t)t.movers() * 16) {
    uint32_t w[4];
    load_words(w, src, at, n);
    scale_words<T, 4>(w, factor_of<T>(a));
    store_words(w, dst, at, n);
  }
}

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

// each_peer calls f with each peer. Channels begin with different ones: where all blocks of all ranks
// went from peer to peer together, they would soon meet at the same one.
template <class F> __device__ __forceinline__ void each_peer(const Comm &c, uint32_t ch, const F &f) {
  int j = ch % max(c.ranks - 1, 1);
  for (int i = 1; i < c.ranks; i++) {
    if (++j >= c.ranks) j = 1;
    f(next_peer(c, j));
  }
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

__device__ __forceinline__ void exchange_chunks(const Comm &c, const Args &a) {
  const Team t = whole_block();
  const uint32_t ch = blockIdx.x / 2, role = blockIdx.x % 2;
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

__device__ __forceinline__ void load_slot(uint32_t (&w)[4], const char *p) {
  const uint4 v = ld_slot((const uint4 *)p);
  w[0] = v.x, w[1] = v.y, w[2] = v.z, w[3] = v.w;
}

// load_user and store_user are load_words and store_words, of 16 bytes that are known to be
// aligned and there in whole if WHOLE.
template <bool WHOLE> __device__ __forceinline__ void load_user(uint32_t (&w)[4], const char *p, uint64_t at, uint64_t end) {
  if (!WHOLE) return load_words(w, p, at, end);
  const uint4 v = *(const uint4 *)(p + at);
  w[0] = v.x, w[1] = v.y, w[2] = v.z, w[3] = v.w;
}
template <bool WHOLE> __device__ __forceinline__ void store_user(const uint32_t (&w)[4], char *p, uint64_t at, uint64_t end) {
  if (!WHOLE) return store_words(w, p, at, end);
  *(uint4 *)(p + at) = make_uint4(w[0], w[1], w[2], w[3]);
}

// Taken holds what a rank has and what came from peers, of N rows.
template <int N, int PEERS> struct Taken {
  uint32_t own[N][4], w[N][PEERS][4];
};
template <int N> using TakenOne = Taken<N, 1>;
template <int N> using TakenAll = Taken<N, ASSAY_RANKS>;

// pass_rows moves n bytes with the moving warps of a team, from the rank's own input, if there is
// one, and from a slot, if there is one; with REDUCE, the two reduced. They go into a peer's slot
// and to the output, where there are such. Slots are longer than chunks by what 16 bytes need.
template <bool REDUCE, int T, int OP>
__device__ __forceinline__ void pass_rows(const Team &t, const Args &a, const char *own_in, const char *slot, char *out, char *keep, uint64_t n, bool last) {
  const bool aligned = (((uintptr_t)own_in | (uintptr_t)keep) & 15) == 0;
  const auto load = [&](auto &regs, auto rows, uint64_t at, uint64_t end) {
#pragma unroll
    for (int u = 0; u < rows.n; u++) {
      if (!rows.whole && at + u * ROW >= end) continue;
      if (own_in) load_user<rows.whole>(regs.own[u], own_in, at + u * ROW, n);
      if (slot) load_slot(regs.w[u][0], slot + at + u * ROW);
    }
  };
  const auto store = [&](auto &regs, auto rows, uint64_t at, uint64_t end) {
#pragma unroll
    for (int u = 0; u < rows.n; u++) {
      if (!rows.whole && at + u * ROW >= end) continue;
      uint32_t(&own)[4] = regs.own[u];
      if (REDUCE) {
        scaled<T>(own, a);
        if (slot) {
          Reducer<T, OP, 4> r;
          r.first(regs.w[u][0]);
          r.add(own);
          r.result(own);
        }
        if (last) divided<T>(own, a);
      } else if (slot) {
#pragma unroll
        for (int i = 0; i < 4; i++) own[i] = regs.w[u][0][i];
      }
      if (out) *(uint4 *)(out + at + u * ROW) = make_uint4(own[0], own[1], own[2], own[3]);
      if (keep) store_user<rows.whole>(own, keep, at + u * ROW, n);
    }
  };
  each_row<TakenOne, 4, 1, true>(t, n, aligned, load, store);
}

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

// chain_chunks passes a message from rank to rank, each piece of it as soon as it
// is there, so that a link has one sender: a Broadcast from the root on, or a
// Reduce that ends there, to which every rank adds what it has.
//
// In turn, the first rank's blocks take on pieces, and a channel ends with a message that is none.
template <bool REDUCE, int T, int OP> __device__ __forceinline__ void chain_chunks(const Comm &c, const Args &a) {
  const Team t = whole_block();
  SHARED(Channel, s);
  SHARED(TwoWords, taken);
  const uint32_t ch = blockIdx.x;
  const Line line(ch);
  begin(c, s, line.state, t);
  Waiter waiting(c, line.state, s.left);
  const int prev = next_peer(c, c.ranks - 1), next = next_peer(c, 1);
  const bool from = c.rank != (REDUCE ? (a.root + 1) % c.ranks : a.root);  // the first one of the chain
  const bool to = (REDUCE ? c.rank : next) != a.root;                      // the last one
  const bool keep = REDUCE ? !to : from || a.in[c.rank] != a.out[c.rank];
  const uint64_t total = a.send[c.rank];
  const int me = serving_lane();
  const bool turns = in_turn(c, a, total, 2 * AHEAD);
  const uint32_t ran = run_steps(t, taken, !turns, waiting,
            [&](uint32_t k) {
              uint32_t piece = turns ? NONE : own_piece(a, ch, total, k);
              if (!turns && piece == NONE) return NONE;
              if (me == 0 && from) {
                const uint32_t number = s.received[prev] + 1 + k;
                await_step(c, a, line, prev, number, k, waiting);
                if (turns) piece = ld_volatile(&label_of(c, c.rank, line.ch, prev, number)->piece);
              } else if (me == 0 && turns) {
                piece = claim(c, a, pieces_in(a, total));
              }
              if (to && me == TO) await_credit(c, s, line.state, next, s.sent[next] + 1 + k, c.depth, waiting);
              return __shfl_sync(~0u, piece, 0);
            },
            [&](uint32_t k, uint32_t piece) {
              const uint64_t at = (uint64_t)piece * a.chunk, n = min((uint64_t)a.chunk, total - at);
              const char *own = REDUCE || !from ? a.in[c.rank] + at : nullptr;
              const char *in = from ? chunk_of(c, c.rank, line.ch, prev, s.received[prev] + 1 + k) : nullptr;
              char *out = to ? chunk_of(c, next, line.ch, c.rank, s.sent[next] + 1 + k) : nullptr;
              pass_rows<REDUCE, T, OP>(t, a, own, in, out, keep ? a.out[c.rank] + at : nullptr, n, !to);
            },
            [&](uint32_t k, uint32_t piece) {
              if (!turns && piece == NONE) return;
              if (from && me == 0) release(c, line, prev, s.received[prev] + 1 + k);
              if (!to || me != TO) return;
              const uint32_t number = s.sent[next] + 1 + k;
              if (turns) label(c, a, line, next, number, piece);
              post(c, a, line, next, number, turns ? 1 : k);
            });
  if (ran == LEFT) return;
  const uint32_t messages = turns ? ran : ran - 1;
  if (t.tells() && from && me == 0) leave_received(c, s, line, prev, messages);
  if (t.tells() && to && me == TO) leave_sent(c, s, line, next, messages);
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
