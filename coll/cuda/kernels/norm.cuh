// An AllReduce of sums with what follows it in a layer of a transformer under tensor parallelism:
// the sum is added to the residual stream, which is normalized (RMSNorm: Zhang and Sennrich, 2019,
// arXiv:1910.07467). A block has whole rows, or a part of one, so that nothing of a row but its sum of
// squares leaves the registers between the sum and the result, if it has one round.
//
//	residual = residual + sum of all ranks' in
//	out      = residual / sqrt(mean(residual²) + eps) * weight
//
// The sum is rounded to an element as that of an AllReduce is, and so is the new residual; the rest
// is computed in float32 and rounded once. So the residual has the bits that an AllReduce and an
// addition give.
#ifndef ASSAY_NORM_CUH
#define ASSAY_NORM_CUH
#include "packets.cuh"

// A float32 is one lane of itself.
template <> struct Narrow<TYPE_F32> {
  enum { lanes = 1 };
  static __device__ __forceinline__ void widen(float (&x)[1], uint32_t w) { x[0] = bits<float>(w); }
  static __device__ __forceinline__ uint32_t round(const float (&x)[1]) { return bits<uint32_t>(x[0]); }
};

// Partials are the sums of a block's warps, of two rows in turn.
struct Partials {
  float of[2][16];
};

// block_sum adds x of all threads, in an order that depends on nothing but their number. turn counts
// the calls.
__device__ __forceinline__ float block_sum(float x, Partials &parts, uint32_t turn) {
#pragma unroll
  for (int d = 16; d > 0; d /= 2) x = apply<OP_SUM>(x, bits<float>(__shfl_xor_sync(0xffffffffu, bits<uint32_t>(x), d)));
  float *part = parts.of[turn % 2];
  if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = x;
  __syncthreads();
  float sum = threadIdx.x % 16 < blockDim.x / 32 ? part[threadIdx.x % 16] : 0;
#pragma unroll
  for (int d = 8; d > 0; d /= 2) sum = apply<OP_SUM>(sum, bits<float>(__shfl_xor_sync(0xffffffffu, bits<uint32_t>(sum), d)));
  return sum;
}

// A NormRow is what a thread has of a row: N pieces of W words at a time, piece i at byte
// at + i * stride. Of these it has those that the bits of have name.
template <int T, int N, int W> struct NormRow {
  enum { ahead = N <= 4, lanes = Narrow<T>::lanes };  // registers for loads ahead of their use
  const Norm &n;
  char *residual, *out;  // of the row
  uint32_t h[N][W], r[ahead ? N : 1][W];
  uint32_t at, stride, have;
  float squares;

  __device__ __forceinline__ NormRow(const Args &a, const Norm &norm, int rank, uint32_t row, uint32_t step)
      : n(norm), residual(norm.residual + (uint64_t)row * norm.row), out(a.out[rank] + (uint64_t)row * norm.row), at(0), stride(step), have(0), squares(0) {}
  __device__ __forceinline__ uint32_t place(int i) const { return at + i * stride; }

  // ask loads what the next add or put needs: the residual, or the weight.
  __device__ __forceinline__ void ask(const char *from) {
#pragma unroll
    for (int i = 0; i < N; i++)
      if (ahead && (have >> i & 1)) load_words(r[ahead ? i : 0], from, place(i), n.row);
  }
  // other gives the words of piece i that were asked for.
  __device__ __forceinline__ uint32_t (&other(int i, const char *from))[W] {
    if (!ahead) load_words(r[0], from, place(i), n.row);
    return r[ahead ? i : 0];
  }
  // add adds the residual to the sum in h, and stores it.
  __device__ __forceinline__ void add() {
#pragma unroll
    for (int i = 0; i < N; i++) {
      if (!(have >> i & 1)) continue;
      uint32_t(&with)[W] = other(i, residual);
#pragma unroll
      for (int k = 0; k < W; k++) {
        float x[lanes], y[lanes];
        Narrow<T>::widen(x, h[i][k]);
        Narrow<T>::widen(y, with[k]);
        for (int j = 0; j < lanes; j++) x[j] = apply<OP_SUM>(x[j], y[j]);
        h[i][k] = Narrow<T>::round(x);
        Narrow<T>::widen(x, h[i][k]);
        for (int j = 0; j < lanes; j++) squares = apply<OP_SUM>(squares, apply<OP_PROD>(x[j], x[j]));
      }
      store_words(h[i], residual, place(i), n.row);
    }
  }
  // factor is what the row is multiplied by. All threads of the block call it when each has added all
  // that it has of the row.
  __device__ __forceinline__ float factor(Partials &parts, uint32_t turn) { return factor_of(block_sum(squares, parts, turn)); }
  __device__ __forceinline__ float factor_of(float sum) const {
    const float elements = (float)(n.row / (uint32_t)Elem<T>::size);
    return 1.0f / sqrtf(apply<OP_SUM>(sum / elements, n.eps));
  }
  // put stores the normalized words of h.
  __device__ __forceinline__ void put(float factor) {
#pragma unroll
    for (int i = 0; i < N; i++) {
      if (!(have >> i & 1)) continue;
      uint32_t(&with)[W] = other(i, n.weight);
      uint32_t y[W];
#pragma unroll
      for (int k = 0; k < W; k++) {
        float x[lanes], g[lanes];
        Narrow<T>::widen(x, h[i][k]);
        Narrow<T>::widen(g, with[k]);
        for (int j = 0; j < lanes; j++) x[j] = apply<OP_PROD>(apply<OP_PROD>(x[j], factor), g[j]);
        y[k] = Narrow<T>::round(x);
      }
      store_words(y, out, place(i), n.row);
    }
  }
  // again loads what add has stored, and puts it.
  __device__ __forceinline__ void again(float factor) {
#pragma unroll
    for (int i = 0; i < N; i++)
      if (have >> i & 1) load_words(h[i], residual, place(i), n.row);
    ask(n.weight);
    put(factor);
  }
};

// rounds_of is how many rounds of a block units take. A channel's row j lies in its slots from round
// j * rounds_of on.
__device__ __forceinline__ uint32_t rounds_of(uint32_t units) { return (units + blockDim.x - 1) / blockDim.x; }

// So many rounds are in flight at a time, as registers allow.
enum { NORM_ROUNDS = ASSAY_RANKS > 4 ? 1 : 2 };

// So many rounds of a short operation: a row has more units than a reduction's.
enum { NORM_UNITS = 2 };
using NormGathered = Gathered<NORM_UNITS>;

// norm_short: each rank sends its input to all others, and reduces everything. in[rank] and out[rank] are
// the input and the result. Blocks share a row where there are more blocks than rows: each has a part of
// it, and tells the others its sum of squares by LL, in the slots of messages from the rank to itself,
// which nothing else uses.
template <int T> __device__ __forceinline__ void norm_short(const Comm &c, const Args &a, const Norm &n) {
  enum { U = NORM_UNITS };
  SHARED(NormGathered, all);
  SHARED(Partials, parts);
  Short s(c, a);
  Waiter wait(c, s.ch);
  const uint32_t block = s.ch & ((1u << n.split) - 1), row = s.ch >> n.split, blocks = 1u << n.split;
  NormRow<T, U, 2> here(a, n, c.rank, row, 8u << (a.row + n.split));
  here.at = ((block << a.row) + s.unit) * 8;
#pragma unroll
  for (int u = 0; u < U; u++)
    if (here.place(u) < n.row) here.have |= 1u << u;
  const char *const in = a.in[c.rank] + (uint64_t)row * n.row;
  const int beside = next_peer(c, 1);
  dependents_launch();
  dependency_wait();
  s.begin();
  // The number of the other blocks' messages, which do not change before this block has told its sum.
  const uint32_t lane = threadIdx.x, other = (s.ch & ~(blocks - 1)) + lane;
  const bool tells = lane < blocks && lane != block;
  const uint32_t theirs = tells ? ld_volatile(&channel_of(c, c.rank, other)->sent[beside]) : 0;
  uint32_t w[U][2];
#pragma unroll
  for (int u = 0; u < U; u++)
    if (here.have >> u & 1) load_words(w[u], in, here.place(u), n.row);
  if (s.first()) here.ask(here.residual);
  s.acknowledge();
  s.await_credit(wait);
#pragma unroll
  for (int u = 0; u < U; u++) {
    if (here.have >> u & 1) s.put(u, w[u]);
    here.h[u][0] = w[u][0], here.h[u][1] = w[u][1];
  }
  s.take(w, here.have, wait);
  all.put(w);
  __syncthreads();
  if (s.first()) {
#pragma unroll
    for (int u = 0; u < U; u++) {
      if (!(here.have >> u & 1)) continue;
      uint32_t got[ASSAY_RANKS][2];
      all.get(got, s, u);
      fold<T, OP_SUM>(here.h[u], got, peers_of(c), c.rank);
    }
    here.add();
    here.ask(n.weight);
  }
  float sum = block_sum(here.squares, parts, 0);
  if (blocks > 1) {
    if (threadIdx.x < 32) {
      uint32_t bits_of = bits<uint32_t>(sum);
      const uint64_t line = (uint64_t)PACKET_CHANNELS * c.ranks * c.ll_slot;
      char *const slots = c.win[c.rank] + c.ll + (uint64_t)c.rank * c.ll_slot;
      if (tells) {
        const uint32_t to = theirs + 1, flag = flag_of(to, a.sign);
        st_volatile((uint4 *)(slots + to % PACKET_SLOTS * line + (uint64_t)other * c.ranks * c.ll_slot) + block, make_uint4(bits_of, flag, 0, flag));
        const uint32_t own = s.sent + 1, want = flag_of(own, a.sign);
        uint4 *const from = (uint4 *)(slots + own % PACKET_SLOTS * line + (uint64_t)s.ch * c.ranks * c.ll_slot) + lane, v;
        do {
          v = ld_volatile(from);
        } while ((v.y != want || v.w != want) && wait.again(c.rank, own, s.sent));
        st_volatile(from, make_uint4(0, 0, 0, 0));
        bits_of = v.x;
      }
      __syncwarp();
      sum = 0;
      for (uint32_t i = 0; i < blocks; i++) sum = apply<OP_SUM>(sum, bits<float>(__shfl_sync(0xffffffffu, bits_of, i)));
      if (threadIdx.x == 0) parts.of[1][0] = sum;
    }
    __syncthreads();
    sum = parts.of[1][0];
  }
  if (s.first()) here.put(here.factor_of(sum));
  s.leave(true, true);
}

// norm_packets: the same with whole rows for each block, which may have several.
template <class P, int U, int T> __device__ __forceinline__ void norm_packets(const Comm &c, const Args &a, const Norm &n) {
  SHARED(Channel, s);
  SHARED(Partials, parts);
  const uint32_t ch = blockIdx.x, peers = peers_of(c);
  Waiter wait(c, ch);
  const uint32_t units = P::units(n.row), rounds = rounds_of(units);
  const auto active = [&](uint32_t k) { return local_unit(k) < units; };
  dependents_launch();
  dependency_wait();
  uint32_t w[U][P::W];
  const auto load = [&](uint32_t row, uint32_t k) {
#pragma unroll
    for (int u = 0; u < U; u++)
      if (active(k + u) && P::carries(local_unit(k + u))) load_words(w[u], a.in[c.rank] + (uint64_t)row * n.row, P::offset(local_unit(k + u)), n.row);
  };
  load(ch, 0);  // while the channel's state is read
  begin(c, s, ch);
  if (threadIdx.x < (uint32_t)c.ranks && (peers >> threadIdx.x & 1)) acknowledge(c, s, ch, threadIdx.x, true);
  await_credits(c, s, ch, peers, PACKET_SLOTS, wait);
  for (uint32_t row = ch, j = 0; row < n.rows; row += a.channels, j++)
    for (uint32_t k = 0; k < rounds; k += U) {
      if (j + k > 0) load(row, k);
#pragma unroll 1
      for (int i = 1; i < c.ranks; i++) {
        const int p = next_peer(c, i);
        const uint32_t number = s.sent[p] + 1;
        char *slot = slot_of<P>(c, p, ch, c.rank, number);
#pragma unroll
        for (int u = 0; u < U; u++) P::put(slot, local_unit(j * rounds + k + u), active(k + u), w[u], flag_of(number, a.sign));
      }
    }
  for (uint32_t row = ch, j = 0; row < n.rows; row += a.channels, j++) {
    NormRow<T, U, P::W> here(a, n, c.rank, row, P::offset(blockDim.x));
    const auto seek = [&](uint32_t k) {
      here.at = P::offset(local_unit(k)), here.have = 0;
#pragma unroll
      for (int u = 0; u < U; u++)
        if (active(k + u) && P::carries(local_unit(k + u))) here.have |= 1u << u;
    };
    uint32_t k = 0;
    for (;; k += U) {
      seek(k);
      uint32_t come = 0;
#pragma unroll
      for (int u = 0; u < U; u++)
        if (active(k + u)) {
          come |= 1u << u;
          if (here.have >> u & 1) load_words(here.h[u], a.in[c.rank] + (uint64_t)row * n.row, here.place(u), n.row);
        }
      here.ask(here.residual);
      uint32_t from[ASSAY_RANKS], got[U][ASSAY_RANKS][P::W];
#pragma unroll
      for (int p = 0; p < ASSAY_RANKS; p++) from[p] = peers >> p & 1 ? come : 0;
      Taker<P, U>::take(got, c, s, ch, j * rounds + k, from, 1, a.sign, wait);
#pragma unroll
      for (int u = 0; u < U; u++)
        if (here.have >> u & 1) fold<T, OP_SUM>(here.h[u], got[u], peers, c.rank);
      here.add();
      if (k + U >= rounds) break;
    }
    here.ask(n.weight);
    const float factor = here.factor(parts, j);
    here.put(factor);
    while (k > 0) {
      seek(k -= U);
      here.again(factor);
    }
  }
  finish(c, s, ch, 1, peers, peers, true);
}

// norm_parts: each rank reduces one part of every row and sends the sum to all. Of long messages
// among more than two ranks that moves less.
template <class P, int T> __device__ __forceinline__ void norm_parts(const Comm &c, const Args &a, const Norm &n) {
  SHARED(Channel, s);
  SHARED(Partials, parts);
  const uint32_t ch = blockIdx.x, peers = peers_of(c);
  Waiter wait(c, ch);
  // Whole units of both protocols.
  const uint32_t part = ((n.row + 15) / 16 + c.ranks - 1) / c.ranks * 16, rounds = rounds_of(P::units(part));
  const auto length = [&](int p) { return n.row > p * part ? min(part, n.row - p * part) : 0; };
  const auto active = [&](int p, uint32_t k) { return local_unit(k) < P::units(length(p)); };
  const auto load = [&](uint32_t (&w)[P::W], int p, uint32_t row, uint32_t k) {
    if (active(p, k) && P::carries(local_unit(k))) load_words(w, a.in[c.rank] + (uint64_t)row * n.row + p * part, P::offset(local_unit(k)), length(p));
  };
  dependents_launch();
  dependency_wait();
  begin(c, s, ch);
  if (threadIdx.x < (uint32_t)c.ranks && (peers >> threadIdx.x & 1)) acknowledge(c, s, ch, threadIdx.x, true);
  await_credits(c, s, ch, peers, PACKET_SLOTS, wait);
  for (uint32_t row = ch, j = 0; row < n.rows; row += a.channels, j++)
    for (uint32_t k = 0; k < rounds; k++)
#pragma unroll 1
      for (int i = 1; i < c.ranks; i++) {
        const int p = next_peer(c, i);
        uint32_t w[P::W];
        load(w, p, row, k);
        const uint32_t number = s.sent[p] + 1;
        P::put(slot_of<P>(c, p, ch, c.rank, number), local_unit(j * rounds + k), active(p, k), w, flag_of(number, a.sign));
      }
  for (uint32_t row = ch, j = 0; row < n.rows; row += a.channels, j++) {
    NormRow<T, ASSAY_RANKS, P::W> here(a, n, c.rank, row, part);
    const auto seek = [&](uint32_t k) {
      here.at = P::offset(local_unit(k)), here.have = 0;
#pragma unroll
      for (int p = 0; p < ASSAY_RANKS; p++)
        if (p < c.ranks && active(p, k) && P::carries(local_unit(k)) && here.at < length(p)) here.have |= 1u << p;
    };
    uint32_t k = 0;
    for (;; k++) {
      seek(k);
      uint32_t own[P::W], from[ASSAY_RANKS], got[1][ASSAY_RANKS][P::W];
      load(own, c.rank, row, k);
      here.ask(here.residual);
#pragma unroll
      for (int p = 0; p < ASSAY_RANKS; p++) from[p] = (peers >> p & 1) && active(c.rank, k);
      Taker<P, 1>::take(got, c, s, ch, j * rounds + k, from, 1, a.sign, wait);
      if (here.have >> c.rank & 1) fold<T, OP_SUM>(own, got[0], peers, c.rank);
#pragma unroll 1
      for (int i = 1; i < c.ranks; i++) {
        const int p = next_peer(c, i);
        const uint32_t number = s.sent[p] + 2;
        P::put(slot_of<P>(c, p, ch, c.rank, number), local_unit(j * rounds + k), active(c.rank, k), own, flag_of(number, a.sign));
      }
#pragma unroll
      for (int p = 0; p < ASSAY_RANKS; p++) from[p] = (peers >> p & 1) && active(p, k);
      Taker<P, 1>::take(got, c, s, ch, j * rounds + k, from, 2, a.sign, wait);
#pragma unroll
      for (int p = 0; p < ASSAY_RANKS; p++)
#pragma unroll
        for (int i = 0; i < P::W; i++) here.h[p][i] = p == c.rank ? own[i] : got[0][p][i];
      here.add();
      if (k + 1 >= rounds) break;
    }
    here.ask(n.weight);
    const float factor = here.factor(parts, j);
    here.put(factor);
    while (k > 0) {
      seek(--k);
      here.again(factor);
    }
  }
  finish(c, s, ch, 2, peers, peers, true);
}

// norm_local: the sum is in in[rank] already.
template <int T> __device__ __forceinline__ void norm_local(const Comm &c, const Args &a, const Norm &n) {
  enum { U = 2, W = 4 };
  SHARED(Partials, parts);
  const uint32_t units = (n.row + 15) / 16, rounds = rounds_of(units);
  dependents_launch();
  dependency_wait();
  for (uint32_t row = blockIdx.x, j = 0; row < n.rows; row += a.channels, j++) {
    NormRow<T, U, W> here(a, n, c.rank, row, 16 * blockDim.x);
    const auto seek = [&](uint32_t k) {
      here.at = 16 * local_unit(k), here.have = 0;
#pragma unroll
      for (int u = 0; u < U; u++)
        if (local_unit(k + u) < units) here.have |= 1u << u;
    };
    uint32_t k = 0;
    for (;; k += U) {
      seek(k);
#pragma unroll
      for (int u = 0; u < U; u++)
        if (here.have >> u & 1) load_words(here.h[u], a.in[c.rank] + (uint64_t)row * n.row, here.place(u), n.row);
      here.ask(here.residual);
      here.add();
      if (k + U >= rounds) break;
    }
    here.ask(n.weight);
    const float factor = here.factor(parts, j);
    here.put(factor);
    while (k > 0) {
      seek(k -= U);
      here.again(factor);
    }
  }
}

#endif
