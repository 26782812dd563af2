// Collectives over packets: data and flag arrive together, so that nobody
// waits for a fence. Best for short messages.
#ifndef ASSAY_PACKETS_CUH
#define ASSAY_PACKETS_CUH
#include "channel.cuh"
#include "reduce.cuh"

// Messages are shorter than 2 GiB. A protocol cuts one into units of 16 bytes on the wire, of which a
// thread moves one at a time; unit u lies at byte 16 u of the slot.
//
// After it has been read, a unit's flag is cleared: what an earlier message
// left behind is never taken for a new one, though numbers wrap.

// LL: 8 bytes of data with a flag of 4 bytes in each half. Only stores of 8
// bytes must be whole.
struct LL {
  enum { W = 2, SHORT = 1 };
  __device__ static __forceinline__ uint64_t slots(const Comm &c) { return c.ll; }
  __device__ static __forceinline__ uint32_t slot_bytes(const Comm &c) { return c.ll_slot; }
  __device__ static __forceinline__ uint32_t units(uint32_t bytes) { return (bytes + 7) / 8; }
  __device__ static __forceinline__ uint32_t offset(uint32_t unit) { return unit * 8; }
  __device__ static __forceinline__ bool carries(uint32_t) { return true; }
  __device__ static __forceinline__ void put(char *slot, uint32_t u, bool active, const uint32_t (&w)[2], uint32_t flag) {
    if (active) st_volatile((uint4 *)(slot + (uint64_t)u * 16), make_uint4(w[0], flag, w[1], flag));
  }
};

// LL128: lines of 128 bytes, written by 8 lanes of a warp with one
// instruction: 112 bytes of data, then the flag. The whole line must arrive at
// once; it does over NVLink between GPUs of the kinds that NCCL does the same
// on (its LL128 has 120 bytes of data a line, which do not fall on 16-byte
// boundaries).
struct LL128 {
  enum { W = 4, SHORT = 0 };
  __device__ static __forceinline__ uint64_t slots(const Comm &c) { return c.ll128; }
  __device__ static __forceinline__ uint32_t slot_bytes(const Comm &c) { return c.ll128_slot; }
  __device__ static __forceinline__ uint32_t units(uint32_t bytes) { return (bytes + 111) / 112 * 8; }
  __device__ static __forceinline__ uint32_t offset(uint32_t unit) { return unit / 8 * 112 + unit % 8 * 16; }
  __device__ static __forceinline__ bool carries(uint32_t unit) { return unit % 8 != 7; }
  __device__ static __forceinline__ void put(char *slot, uint32_t u, bool active, const uint32_t (&w)[4], uint32_t flag) {
    uint4 v = u % 8 == 7 ? make_uint4(flag, flag, flag, flag) : make_uint4(w[0], w[1], w[2], w[3]);
    __syncwarp();  // lanes may have parted: a line is stored by all of its own
    if (active) st_volatile((uint4 *)(slot + (uint64_t)u * 16), v);
  }
};

// So many rounds are in flight at a time.
enum { LL_ROUNDS = 1, LL128_ROUNDS = ASSAY_RANKS > 4 ? 1 : 2 };

// flag_of is never 0, and differs between messages that share a slot. It also differs
// between operations: a rank that is in another one than its peer waits for ever, and
// never takes the peer's bytes for what they are not. The host finds out, and says so.
__device__ __forceinline__ uint32_t flag_of(uint32_t number, uint32_t sign) { return (number ^ sign) | 1; }

// slot_of is where the messages with a number, from one rank, lie in owner's window.
template <class P>
__device__ __forceinline__ char *slot_of(const Comm &c, int owner, uint32_t ch, int from, uint32_t number) {
  return c.win[owner] + P::slots(c) +
         (uint64_t)(((number % PACKET_SLOTS) * PACKET_CHANNELS + ch) * c.ranks + from) * P::slot_bytes(c);
}

// A Share is what one thread of a channel has of a message: unit `unit(k)` of
// the message, which is unit `local(k)` of the channel's slot, in round k.
template <class P> struct Share {
  uint32_t total, row, first;
  __device__ __forceinline__ Share(uint64_t bytes, uint32_t ch, uint32_t channels)
      : total(P::units((uint32_t)bytes)), row(channels * blockDim.x), first(ch * blockDim.x) {}
  // any reports whether a thread of the block has a unit in round k.
  __device__ __forceinline__ bool any(uint32_t k) const { return first + k * row < total; }
  __device__ __forceinline__ uint32_t unit(uint32_t k) const { return first + k * row + threadIdx.x; }
  __device__ __forceinline__ bool active(uint32_t k) const { return unit(k) < total; }
};

__device__ __forceinline__ uint32_t local_unit(uint32_t k) { return k * blockDim.x + threadIdx.x; }

// A Taker waits for units of U rounds, from round k on, of the messages of all
// ranks: of rank p those rounds that the bits of have[p] name. plus is the
// messages' number, counted from the last ones before this operation, and sign the
// operation's.
template <class P, int U> struct Taker;

template <int U> struct Taker<LL, U> {
  __device__ static __forceinline__ void take(uint32_t (&w)[U][ASSAY_RANKS][2], const Comm &c, const Channel &s, uint32_t ch, uint32_t k, const uint32_t (&have)[ASSAY_RANKS],
                                              uint32_t plus, uint32_t sign, Waiter &wait) {
    uint4 *at[ASSAY_RANKS];
    uint32_t flag[ASSAY_RANKS];
#pragma unroll
    for (int p = 0; p < ASSAY_RANKS; p++)
      if (have[p]) {
        const uint32_t number = s.received[p] + plus;
        flag[p] = flag_of(number, sign);
        at[p] = (uint4 *)slot_of<LL>(c, c.rank, ch, p, number) + local_unit(k);
      }
    uint4 v[U][ASSAY_RANKS];
    for (;;) {
      int missing = -1;
#pragma unroll
      for (int u = 0; u < U; u++)
#pragma unroll
        for (int p = 0; p < ASSAY_RANKS; p++)
          if (have[p] >> u & 1) v[u][p] = ld_volatile(at[p] + u * blockDim.x);
#pragma unroll
      for (int u = 0; u < U; u++)
#pragma unroll
        for (int p = 0; p < ASSAY_RANKS; p++)
          if ((have[p] >> u & 1) && (v[u][p].y != flag[p] || v[u][p].w != flag[p])) missing = p;
      if (missing < 0 || !wait.again(missing, s.received[missing] + plus, s.received[missing])) break;
    }
    wait.met();
#pragma unroll
    for (int u = 0; u < U; u++)
#pragma unroll
      for (int p = 0; p < ASSAY_RANKS; p++)
        if (have[p] >> u & 1) {
          st_volatile(at[p] + u * blockDim.x, make_uint4(0, 0, 0, 0));
          w[u][p][0] = v[u][p].x, w[u][p][1] = v[u][p].z;
        }
  }
};

template <int U> struct Taker<LL128, U> {
  __device__ static __forceinline__ void take(uint32_t (&w)[U][ASSAY_RANKS][4], const Comm &c, const Channel &s, uint32_t ch, uint32_t k, const uint32_t (&have)[ASSAY_RANKS],
                                              uint32_t plus, uint32_t sign, Waiter &wait) {
    uint4 *at[ASSAY_RANKS];
    uint32_t flag[ASSAY_RANKS];
    const bool last = threadIdx.x % 8 == 7;  // has the line's flag
#pragma unroll
    for (int p = 0; p < ASSAY_RANKS; p++)
      if (have[p]) {
        const uint32_t number = s.received[p] + plus;
        flag[p] = flag_of(number, sign);
        at[p] = (uint4 *)slot_of<LL128>(c, c.rank, ch, p, number) + local_unit(k);
      }
    for (;;) {
      int missing = -1;
      if (last) {
        uint32_t got[U][ASSAY_RANKS];
#pragma unroll
        for (int u = 0; u < U; u++)
#pragma unroll
          for (int p = 0; p < ASSAY_RANKS; p++)
            if (have[p] >> u & 1) got[u][p] = ld_volatile((const uint32_t *)(at[p] + u * blockDim.x));
#pragma unroll
        for (int u = 0; u < U; u++)
#pragma unroll
          for (int p = 0; p < ASSAY_RANKS; p++)
            if ((have[p] >> u & 1) && got[u][p] != flag[p]) missing = p;
      }
      const bool leave = missing >= 0 && !wait.again(missing, s.received[missing] + plus, s.received[missing]);
      if (__all_sync(0xffffffffu, missing < 0)) break;
      if (__any_sync(0xffffffffu, leave)) {
        wait.leave();
        break;
      }
    }
    wait.met();
    // The data lanes are read after the flag: they are there now.
#pragma unroll
    for (int u = 0; u < U; u++)
#pragma unroll
      for (int p = 0; p < ASSAY_RANKS; p++)
        if (have[p] >> u & 1) {
          const uint4 v = ld_volatile(at[p] + u * blockDim.x);
          w[u][p][0] = v.x, w[u][p][1] = v.y, w[u][p][2] = v.z, w[u][p][3] = v.w;
        }
    __syncwarp();
    if (last) {
#pragma unroll
      for (int u = 0; u < U; u++)
#pragma unroll
        for (int p = 0; p < ASSAY_RANKS; p++)
          if (have[p] >> u & 1) st_volatile((uint32_t *)(at[p] + u * blockDim.x), 0u);
    }
  }
};

// to_channels is over how many channels the message to a peer goes.
__device__ __forceinline__ uint32_t to_channels(const Args &a, int p) { return a.to[p] ? a.to[p] : a.channels; }
__device__ __forceinline__ uint32_t from_channels(const Args &a, int p) { return a.from[p] ? a.from[p] : a.channels; }

// factor_of is an operation's factor, which is in device memory if it was there when
// the operation was called: nobody knows it before the kernel runs.
template <int T> __device__ __forceinline__ uint64_t factor_of(const Args &a) {
  if (a.scale != 3) return a.factor;
  switch ((int)Elem<T>::size) {
    case 1: return *(const volatile uint8_t *)a.factor;
    case 2: return *(const volatile uint16_t *)a.factor;
    case 4: return *(const volatile uint32_t *)a.factor;
    default: return *(const volatile uint64_t *)a.factor;
  }
}

// scaled applies the rank's own factor.
template <int T, int W> __device__ __forceinline__ void scaled(uint32_t (&w)[W], const Args &a) {
  if (a.scale & 1) scale_words<T, W>(w, factor_of<T>(a));
}
template <int T, int W> __device__ __forceinline__ void divided(uint32_t (&w)[W], const Args &a) {
  if (a.scale == 2) divide_words<T, W>(w, a.divisor);
}

// fold reduces own words and those of the peers in a mask in the order of the ranks.
template <int T, int OP, int W>
__device__ __forceinline__ void fold(uint32_t (&own)[W], const uint32_t (&w)[ASSAY_RANKS][W], uint32_t mask, int rank) {
  Reducer<T, OP, W> r;
#pragma unroll
  for (int p = 0; p < ASSAY_RANKS; p++) {
    const bool mine = p == rank;
    if (!mine && !(mask >> p & 1)) continue;
    uint32_t x[W];
#pragma unroll
    for (int i = 0; i < W; i++) x[i] = mine ? own[i] : w[p][i];
    if (p == 0)
      r.first(x);
    else
      r.add(x);
  }
  r.result(own);
}

__device__ __forceinline__ uint32_t peers_of(const Comm &c) { return ((1u << c.ranks) - 1) & ~(1u << c.rank); }

__device__ __forceinline__ int next_peer(const Comm &c, int j) {
  const int p = c.rank + j;
  return p < c.ranks ? p : p - c.ranks;
}

// A Sender puts messages into peers' slots, U rounds at a time. The input of
// the first rounds to the next peer is asked for before the channel's state is
// known: both take as long.
//
// T < 0: bytes, as they are.
template <class P, int U, int T> struct Sender {
  uint32_t w[U][P::W];
  const char *held;  // whose rounds w has
  uint32_t bytes, row;  // of their message, and of its Share: of one input peers may get more or less

  __device__ __forceinline__ void load(const Args &a, const char *in, uint64_t n, const Share<P> &share, uint32_t k) {
#pragma unroll
    for (int u = 0; u < U; u++)
      if (share.active(k + u) && P::carries(share.unit(k + u))) {
        load_words(w[u], in, P::offset(share.unit(k + u)), n);
        if (T >= 0) scaled<T < 0 ? 0 : T>(w[u], a);
      }
    held = in, bytes = (uint32_t)n, row = share.row;
  }
  // send follows await_credits. A line is stored by all of its lanes, or by none.
  __device__ __forceinline__ void send(const Comm &c, const Args &a, const Channel &s, uint32_t ch, uint32_t to, const Waiter &wait) {
    if (__any_sync(0xffffffffu, wait.left())) return;
    for (uint32_t k = 0;; k += U) {
      bool more = false;
#pragma unroll 1
      for (int j = 1; j < c.ranks; j++) {
        const int p = next_peer(c, j);
        if (!(to >> p & 1)) continue;
        const Share<P> share(a.send[p], ch, to_channels(a, p));
        if (!share.any(k)) continue;
        if (share.any(k + U)) more = true;
        if (held != a.in[p] || bytes != (uint32_t)a.send[p] || row != share.row) load(a, a.in[p], a.send[p], share, k);
        const uint32_t number = s.sent[p] + 1;
        char *slot = slot_of<P>(c, p, ch, c.rank, number);
#pragma unroll
        for (int u = 0; u < U; u++) P::put(slot, local_unit(k + u), share.active(k + u), w[u], flag_of(number, a.sign));
      }
      if (!more) return;
      held = 0;
    }
  }
};

// first_of is the first peer of a mask, as Senders go; the rank itself if there is none.
__device__ __forceinline__ int first_of(const Comm &c, uint32_t mask) {
  for (int j = 1; j < c.ranks; j++)
    if (mask >> next_peer(c, j) & 1) return next_peer(c, j);
  return c.rank;
}

// take_all takes the messages of the peers in a mask, as they come, to out.
template <class P, int U> __device__ __forceinline__ void take_all(const Comm &c, const Args &a, const Channel &s, uint32_t ch, uint32_t from, uint32_t plus, Waiter &wait) {
  for (uint32_t k = 0;; k += U) {
    bool any = false;
    uint32_t have[ASSAY_RANKS] = {};
#pragma unroll
    for (int p = 0; p < ASSAY_RANKS; p++)
      if (from >> p & 1) {
        const Share<P> share(a.recv[p], ch, from_channels(a, p));
        if (share.any(k)) any = true;
#pragma unroll
        for (int u = 0; u < U; u++)
          if (share.active(k + u)) have[p] |= 1u << u;
      }
    if (!any) return;
    uint32_t w[U][ASSAY_RANKS][P::W];
    Taker<P, U>::take(w, c, s, ch, k, have, plus, a.sign, wait);
#pragma unroll
    for (int p = 0; p < ASSAY_RANKS; p++)
      if (have[p]) {
        const Share<P> share(a.recv[p], ch, from_channels(a, p));
#pragma unroll
        for (int u = 0; u < U; u++)
          if ((have[p] >> u & 1) && P::carries(share.unit(k + u))) store_words(w[u][p], a.out[p], P::offset(share.unit(k + u)), a.recv[p]);
      }
  }
}

// A Short is what a thread of a short operation has: messages by LL that take one round, or few. There
// is a thread for each unit and peer, and each reads what it needs of the channel's state: what others do
// for one peer after the other is done at once, and with a third of the instructions. These are what such
// an operation waits for: on an H200 it took 0.8 us to send to 3 peers in turn, and a block runs each
// instruction once, so most have to be fetched.
struct Short {
  const Comm &c;
  const Args &a;
  uint32_t ch, unit;  // unit: of those of a round
  int me, p;
  uint32_t sent, received, credit, acked, left;
  // Where messages of number 0 lie; the others are multiples of `each` behind.
  uint64_t each;
  char *there, *here;
  Channel *mine;

  __device__ __forceinline__ Short(const Comm &comm, const Args &args)
      : c(comm), a(args), ch(blockIdx.x), unit(threadIdx.x & ((1u << args.row) - 1)), me(comm.rank), p(next_peer(comm, (int)(threadIdx.x >> args.row) + 1)) {
    const uint64_t line = (uint64_t)ch * c.ranks;
    each = (uint64_t)PACKET_CHANNELS * c.ranks * c.ll_slot;
    there = c.win[p] + c.ll + (line + me) * c.ll_slot + unit * 16;
    here = c.win[me] + c.ll + (line + p) * c.ll_slot + unit * 16;
    mine = channel_of(c, me, ch);
  }
  // first reports whether the thread's peer is the first one: such threads do what is done once for a unit.
  __device__ __forceinline__ bool first() const { return threadIdx.x >> a.row == 0; }
  __device__ __forceinline__ void begin() {
    sent = ld_volatile(&mine->sent[p]), received = ld_volatile(&mine->received[p]);
    credit = ld_volatile(&mine->credit[p]), acked = ld_volatile(&mine->acked[p]);
    left = ld_volatile(left_of(c, me, me));
  }
  __device__ __forceinline__ void acknowledge() const {
    if (unit == 0 && !left && !(a.symmetric && (received & 0xffff) > 1)) st_volatile(&channel_of(c, p, ch)->acked[me], received);
  }
  __device__ __forceinline__ void await_credit(Waiter &wait) const {
    const uint32_t need = sent + 1 - PACKET_SLOTS;
    if (!behind(credit, need) || !behind(acked, need)) return;
    uint32_t got;
    while (behind(got = ld_acquire(&mine->acked[p]), need))
      if (!wait.again(p, need, got)) return;
    wait.met();
  }
  __device__ __forceinline__ void put(uint32_t round, const uint32_t (&w)[2]) const {
    const uint32_t number = sent + 1, flag = flag_of(number, a.sign);
    st_volatile((uint4 *)(there + number % PACKET_SLOTS * each) + (round << a.row), make_uint4(w[0], flag, w[1], flag));
  }
  // take waits for the units of those rounds that the bits of have name.
  template <int U> __device__ __forceinline__ void take(uint32_t (&w)[U][2], uint32_t have, Waiter &wait) const {
    const uint32_t number = received + 1, flag = flag_of(number, a.sign);
    uint4 *const slot = (uint4 *)(here + number % PACKET_SLOTS * each), v[U];
    bool met;
    do {
      met = true;
#pragma unroll
      for (int u = 0; u < U; u++) {
        if (!(have >> u & 1)) continue;
        v[u] = ld_volatile(slot + (u << a.row));
        met &= v[u].y == flag && v[u].w == flag;
      }
    } while (!met && wait.again(p, number, received));
    wait.met();
#pragma unroll
    for (int u = 0; u < U; u++) {
      if (!(have >> u & 1)) continue;
      st_volatile(slot + (u << a.row), make_uint4(0, 0, 0, 0));
      w[u][0] = v[u].x, w[u][1] = v[u].z;
    }
  }
  // leave writes back what has changed, when all threads of the block have begun: see finish.
  __device__ __forceinline__ void leave(bool to, bool from) const {
    if (unit != 0) return;
    if (to) mine->sent[p] = sent + 1;
    if (from) mine->received[p] = received + 1;
    if (a.symmetric)
      mine->credit[p] = sent;
    else if (behind(credit, acked))
      mine->credit[p] = acked;
  }
};

// Gathered are units of all threads of a block, for those that reduce them.
template <int U> struct Gathered {
  uint2 of[U][512];
  __device__ __forceinline__ void put(const uint32_t (&w)[U][2]) {
#pragma unroll
    for (int u = 0; u < U; u++) of[u][threadIdx.x] = make_uint2(w[u][0], w[u][1]);
  }
  // get gives what has come from each peer of this thread's unit of a round.
  __device__ __forceinline__ void get(uint32_t (&got)[ASSAY_RANKS][2], const Short &s, int u) const {
#pragma unroll
    for (int q = 0; q < ASSAY_RANKS; q++) {
      if (q >= s.c.ranks || q == s.me) continue;
      const uint2 x = of[u][(((q > s.me ? q - s.me : q - s.me + s.c.ranks) - 1) << s.a.row) + s.unit];
      got[q][0] = x.x, got[q][1] = x.y;
    }
  }
};
using GatheredOne = Gathered<1>;

// short_packets is exchange_packets, or reduce_packets if REDUCE, of a short operation.
template <bool REDUCE, int T, int OP> __device__ __forceinline__ void short_packets(const Comm &c, const Args &a) {
  SHARED(GatheredOne, all);
  Short s(c, a);
  const int me = c.rank, p = s.p;
  const uint32_t at = (s.ch << a.row | s.unit) * 8;
  const bool to = REDUCE ? a.owners >> p & 1 : a.send[p] != 0, from = REDUCE ? a.owners >> me & 1 : a.recv[p] != 0;
  const uint64_t n = REDUCE ? a.recv[me] : a.recv[p];
  const bool sends = to && at < a.send[p], takes = from && at < n;
  const bool keeps = s.first() && (REDUCE ? takes : at < a.send[me] && a.in[me] != a.out[me]);
  dependents_launch();
  dependency_wait();
  s.begin();
  uint32_t w[1][2], own[2];
  if (sends) load_words(w[0], a.in[p], at, a.send[p]);
  if (keeps) load_words(own, a.in[me], at, a.send[me]);
  Waiter wait(c, s.ch, s.left);
  if (from) s.acknowledge();
  if (sends) {
    if (REDUCE) scaled<T>(w[0], a);
    s.await_credit(wait);
    if (!wait.left()) s.put(0, w[0]);
  }
  if (!REDUCE && keeps) store_words(own, a.out[me], at, a.send[me]);
  if (takes) {
    s.take(w, 1, wait);
    if (!REDUCE) store_words(w[0], a.out[p], at, n);
  }
  if (REDUCE) all.put(w);
  __syncthreads();
  if (REDUCE && keeps) {
    uint32_t got[ASSAY_RANKS][2];
    all.get(got, s, 0);
    scaled<T>(own, a);
    fold<T, OP>(own, got, peers_of(c), me);
    divided<T>(own, a);
    store_words(own, a.out[me], at, n);
  }
  s.leave(to, from);
}

// exchange_packets: each rank sends to each what it has for it. By LL it is the barrier between rounds of
// copies, too: then its owners are the rank itself, and the one whose copies it has passed on.
template <class P, int U> __device__ __forceinline__ void exchange_packets(const Comm &c, const Args &a) {
  if (P::SHORT && a.row != 0) return short_packets<false, 0, 0>(c, a);
  SHARED(Channel, s);
  const uint32_t ch = blockIdx.x;
  uint32_t to = 0, from = 0;
#pragma unroll
  for (int p = 0; p < ASSAY_RANKS; p++) {
    if (p >= c.ranks || p == c.rank) continue;
    if (a.send[p] != 0 && ch < to_channels(a, p)) to |= 1u << p;
    if (a.recv[p] != 0 && ch < from_channels(a, p)) from |= 1u << p;
  }
  dependents_launch();
  dependency_wait();
  Sender<P, U, -1> sender;
  sender.held = 0;
  if (to != 0) {
    const int p = first_of(c, to);
    sender.load(a, a.in[p], a.send[p], Share<P>(a.send[p], ch, to_channels(a, p)), 0);
  }
  begin(c, s, ch);
  Waiter wait(c, ch, s.left);
  if (threadIdx.x < (uint32_t)c.ranks && (from >> threadIdx.x & 1) && !wait.left()) acknowledge(c, s, ch, threadIdx.x, a.symmetric);
  if (P::SHORT && a.owners) hold_if_left(c, a.owners & peers_of(c), wait);
  await_credits(c, s, ch, to, PACKET_SLOTS, wait);
  sender.send(c, a, s, ch, to, wait);
  if (a.send[c.rank] != 0 && a.in[c.rank] != a.out[c.rank]) {
    const uint64_t n = a.send[c.rank];
    for (uint64_t at = ((uint64_t)ch * blockDim.x + threadIdx.x) * 16; at < n; at += (uint64_t)gridDim.x * blockDim.x * 16) {
      uint32_t w[4];
      load_words(w, a.in[c.rank], at, n);
      store_words(w, a.out[c.rank], at, n);
    }
  }
  take_all<P, U>(c, a, s, ch, from, 1, wait);
  if (P::SHORT && a.owners && wait.left()) tell_left(c);
  finish(c, s, ch, 1, to, from, a.symmetric);
}

// A Folder reduces U rounds of what came with the rank's own part.
template <class P, int U, int T, int OP> struct Folder {
  uint32_t own[U][P::W];

  __device__ __forceinline__ void fold_rounds(const Comm &c, const Args &a, const Channel &s, uint32_t ch, const Share<P> &share, uint64_t n, uint32_t k, Waiter &wait) {
    const uint32_t peers = peers_of(c);
    uint32_t rounds = 0;
#pragma unroll
    for (int u = 0; u < U; u++)
      if (share.active(k + u)) {
        rounds |= 1u << u;
        if (P::carries(share.unit(k + u))) load_words(own[u], a.in[c.rank], P::offset(share.unit(k + u)), n);
      }
    uint32_t have[ASSAY_RANKS];
#pragma unroll
    for (int p = 0; p < ASSAY_RANKS; p++) have[p] = peers >> p & 1 ? rounds : 0;
    uint32_t w[U][ASSAY_RANKS][P::W];
    Taker<P, U>::take(w, c, s, ch, k, have, 1, a.sign, wait);
#pragma unroll
    for (int u = 0; u < U; u++)
      if ((rounds >> u & 1) && P::carries(share.unit(k + u))) {
        scaled<T>(own[u], a);
        fold<T, OP>(own[u], w[u], peers, c.rank);
        divided<T>(own[u], a);
      }
  }
  __device__ __forceinline__ void store(const Comm &c, const Args &a, const Share<P> &share, uint64_t n, uint32_t k) {
#pragma unroll
    for (int u = 0; u < U; u++)
      if (share.active(k + u) && P::carries(share.unit(k + u))) store_words(own[u], a.out[c.rank], P::offset(share.unit(k + u)), n);
  }
};

// reduce_packets: each rank sends its input to the owners, which reduce in the
// order of the ranks.
template <class P, int U, int T, int OP> __device__ __forceinline__ void reduce_packets(const Comm &c, const Args &a) {
  if (P::SHORT && a.row != 0) return short_packets<true, T, OP>(c, a);
  SHARED(Channel, s);
  const uint32_t ch = blockIdx.x;
  const uint32_t peers = peers_of(c);
  const bool owner = a.owners >> c.rank & 1;
  const uint32_t to = peers & a.owners, from = owner ? peers : 0;
  dependents_launch();
  dependency_wait();
  Sender<P, U, T> sender;
  sender.held = 0;
  if (to != 0) {
    const int p = first_of(c, to);
    sender.load(a, a.in[p], a.send[p], Share<P>(a.send[p], ch, a.channels), 0);
  }
  begin(c, s, ch);
  Waiter wait(c, ch, s.left);
  if (threadIdx.x < (uint32_t)c.ranks && (from >> threadIdx.x & 1) && !wait.left()) acknowledge(c, s, ch, threadIdx.x, a.symmetric);
  await_credits(c, s, ch, to, PACKET_SLOTS, wait);
  sender.send(c, a, s, ch, to, wait);
  if (owner) {
    const uint64_t n = a.recv[c.rank];
    const Share<P> share(n, ch, a.channels);
    Folder<P, U, T, OP> f;
    for (uint32_t k = 0; share.any(k); k += U) {
      f.fold_rounds(c, a, s, ch, share, n, k, wait);
      f.store(c, a, share, n, k);
    }
  }
  finish(c, s, ch, 1, to, from, a.symmetric);
}

// allreduce_packets: each rank sends parts to their owners, which reduce them
// and send the results to all. No barrier: a unit goes on when it is there.
template <class P, int U, int T, int OP> __device__ __forceinline__ void allreduce_packets(const Comm &c, const Args &a) {
  SHARED(Channel, s);
  const uint32_t ch = blockIdx.x;
  const uint32_t peers = peers_of(c);
  dependents_launch();
  dependency_wait();
  Sender<P, U, T> sender;
  {
    const int p = next_peer(c, 1);
    sender.load(a, a.in[p], a.send[p], Share<P>(a.send[p], ch, a.channels), 0);
  }
  begin(c, s, ch);
  Waiter wait(c, ch, s.left);
  if (threadIdx.x < (uint32_t)c.ranks && (peers >> threadIdx.x & 1) && !wait.left()) acknowledge(c, s, ch, threadIdx.x, true);
  await_credits(c, s, ch, peers, PACKET_SLOTS, wait);
  sender.send(c, a, s, ch, peers, wait);
  const uint64_t n = a.send[c.rank];
  const Share<P> share(n, ch, a.channels);
  Folder<P, U, T, OP> f;
  for (uint32_t k = 0; share.any(k); k += U) {
    f.fold_rounds(c, a, s, ch, share, n, k, wait);
    const bool left = __any_sync(0xffffffffu, wait.left());
#pragma unroll 1
    for (int j = 1; j < c.ranks && !left; j++) {
      const int p = next_peer(c, j);
      const uint32_t number = s.sent[p] + 2;
      char *slot = slot_of<P>(c, p, ch, c.rank, number);
#pragma unroll
      for (int u = 0; u < U; u++) P::put(slot, local_unit(k + u), share.active(k + u), f.own[u], flag_of(number, a.sign));
    }
    f.store(c, a, share, n, k);
  }
  take_all<P, U>(c, a, s, ch, peers, 2, wait);
  finish(c, s, ch, 2, peers, peers, true);
}

#endif
