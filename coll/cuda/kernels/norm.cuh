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

// Sums are those of a block's warps, of two rows in turn, and those of the blocks that share a row, each
// with a bit that says that it is there.
struct Sums {
  float warps[2][16];
  uint64_t blocks[8];
};

// meet is called before add_up, by the blocks that share a row.
__device__ __forceinline__ void meet(Sums &sums, uint32_t blocks) {
  if (blocks == 1) return;
  if (threadIdx.x < blocks) sums.blocks[threadIdx.x] = 0;
  __syncwarp();
  cluster_arrive();
  cluster_wait();
}

// add_up adds x of all threads of the blocks that share a row, in an order that depends on nothing but
// their number. turn counts the calls: there is one if there are several blocks.
__device__ __forceinline__ float add_up(float x, Sums &sums, uint32_t block, uint32_t blocks, uint32_t turn) {
  const auto across = [](float y, uint32_t d) { return apply<OP_SUM>(y, bits<float>(__shfl_xor_sync(0xffffffffu, bits<uint32_t>(y), d))); };
#pragma unroll
  for (int d = 16; d > 0; d /= 2) x = across(x, d);
  float *warps = sums.warps[turn % 2];
  if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = x;
  __syncthreads();
  x = threadIdx.x % 16 < blockDim.x / 32 ? warps[threadIdx.x % 16] : 0;
#pragma unroll
  for (int d = 8; d > 0; d /= 2) x = across(x, d);
  if (blocks == 1) return x;
  if (threadIdx.x < blocks) cluster_store(&sums.blocks[block], threadIdx.x, (uint64_t)1 << 32 | bits<uint32_t>(x));
  uint64_t part;
  do {
    part = ld_shared(&sums.blocks[threadIdx.x % blocks]);
  } while (part >> 32 == 0);  // not for long: blocks give up waiting for a peer before they come here
  x = bits<float>((uint32_t)part);
  __syncwarp();
  for (uint32_t d = blocks / 2; d > 0; d /= 2) x = across(x, d);
  return x;
}

// So many pieces of a row a thread has in its registers.
enum { NORM_UNITS = 2 };

// A NormRow is what a thread has of a row: pieces of W words, piece i at byte at + i * stride. Of these
// it has those that the bits of have name.
template <int T, int W> struct NormRow {
  enum { N = NORM_UNITS, lanes = Narrow<T>::lanes };
  const Norm &n;
  char *residual, *out;  // of the row
  uint32_t h[N][W], before[N][W], weight[N][W];
  uint32_t at, stride, have;
  float squares;

  __device__ __forceinline__ NormRow(const Args &a, const Norm &norm, int rank, uint32_t row, uint32_t step)
      : n(norm), residual(norm.residual + (uint64_t)row * norm.row), out(a.out[rank] + (uint64_t)row * norm.row), at(0), stride(step), have(0), squares(0) {}
  __device__ __forceinline__ uint32_t place(int i) const { return at + i * stride; }

  // seek goes to the pieces from byte `from` on.
  __device__ __forceinline__ void seek(uint32_t from) {
    at = from, have = 0;
#pragma unroll
    for (int i = 0; i < N; i++)
      if (place(i) < n.row) have |= 1u << i;
  }
  // load reads the pieces of a row.
  __device__ __forceinline__ void load(uint32_t (&w)[N][W], const char *of) const {
#pragma unroll
    for (int i = 0; i < N; i++)
      if (have >> i & 1) load_words(w[i], of, place(i), n.row);
  }
  // ask loads what add and put need: it is there when the sum is.
  __device__ __forceinline__ void ask() { load(before, residual), load(weight, n.weight); }
  // add adds the residual to the sum in h, and stores it.
  __device__ __forceinline__ void add() {
#pragma unroll
    for (int i = 0; i < N; i++) {
      if (!(have >> i & 1)) continue;
#pragma unroll
      for (int k = 0; k < W; k++) {
        float x[lanes], y[lanes];
        Narrow<T>::widen(x, h[i][k]);
        Narrow<T>::widen(y, before[i][k]);
        for (int j = 0; j < lanes; j++) x[j] = apply<OP_SUM>(x[j], y[j]);
        h[i][k] = Narrow<T>::round(x);
        Narrow<T>::widen(x, h[i][k]);
        for (int j = 0; j < lanes; j++) squares = apply<OP_SUM>(squares, apply<OP_PROD>(x[j], x[j]));
      }
      store_words(h[i], residual, place(i), n.row);
    }
  }
  // factor is what a row with this sum of squares is multiplied by.
  __device__ __forceinline__ float factor(float sum) const {
    const float elements = (float)(n.row / (uint32_t)Elem<T>::size);
    return 1.0f / sqrtf(apply<OP_SUM>(sum / elements, n.eps));
  }
  // put stores the normalized words of h.
  __device__ __forceinline__ void put(float factor) {
#pragma unroll
    for (int i = 0; i < N; i++) {
      if (!(have >> i & 1)) continue;
      uint32_t y[W];
#pragma unroll
      for (int k = 0; k < W; k++) {
        float x[lanes], g[lanes];
        Narrow<T>::widen(x, h[i][k]);
        Narrow<T>::widen(g, weight[i][k]);
        for (int j = 0; j < lanes; j++) x[j] = apply<OP_PROD>(apply<OP_PROD>(x[j], factor), g[j]);
        y[k] = Narrow<T>::round(x);
      }
      store_words(y, out, place(i), n.row);
    }
  }
};

using NormGathered = Gathered<NORM_UNITS>;

// norm_short: each rank sends its input to all others, and reduces everything. in[rank] and out[rank] are
// the input and the result. Blocks share a row where there are more blocks than rows.
template <int T> __device__ __forceinline__ void norm_short(const Comm &c, const Args &a, const Norm &n) {
  enum { U = NORM_UNITS };
  SHARED(NormGathered, all);
  SHARED(Sums, sums);
  Short s(c, a);
  const uint32_t blocks = 1u << n.split, block = s.ch & (blocks - 1), row = s.ch >> n.split;
  NormRow<T, 2> here(a, n, c.rank, row, 8u << (a.row + n.split));
  here.seek(((block << a.row) + s.unit) * 8);
  meet(sums, blocks);
  dependents_launch();
  dependency_wait();
  s.begin();
  uint32_t w[U][2];
  here.load(w, a.in[c.rank] + (uint64_t)row * n.row);
  Waiter wait(c, s.ch, s.left);
  s.acknowledge();
  s.await_credit(wait);
#pragma unroll
  for (int u = 0; u < U; u++) {
    if (here.have >> u & 1 && !wait.left()) s.put(u, w[u]);
    here.h[u][0] = w[u][0], here.h[u][1] = w[u][1];
  }
  if (s.first()) here.ask();
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
  }
  const float factor = here.factor(add_up(here.squares, sums, block, blocks, 0));
  if (s.first()) here.put(factor);
  s.leave(true, true);
}

// norm_local: the sum is in in[rank] already. A block that shares its row with others has one row.
template <int T> __device__ __forceinline__ void norm_local(const Comm &c, const Args &a, const Norm &n) {
  SHARED(Sums, sums);
  const uint32_t blocks = 1u << n.split, block = blockIdx.x & (blocks - 1), step = 16u * blockDim.x << n.split;
  meet(sums, blocks);
  dependents_launch();
  dependency_wait();
  for (uint32_t row = blockIdx.x >> n.split, j = 0; row < n.rows; row += a.channels >> n.split, j++) {
    NormRow<T, 4> here(a, n, c.rank, row, step);
    uint32_t at = 16 * (block * blockDim.x + threadIdx.x);
    const uint32_t pass = NORM_UNITS * step, first = at;
    for (;; at += pass) {
      here.seek(at);
      here.load(here.h, a.in[c.rank] + (uint64_t)row * n.row);
      here.ask();
      here.add();
      if (at - first + pass >= n.row) break;
    }
    const float factor = here.factor(add_up(here.squares, sums, block, blocks, j));
    for (;; at -= pass) {
      here.put(factor);
      if (at == first) break;
      here.seek(at - pass);  // what add has stored
      here.load(here.h, here.residual);
      here.load(here.weight, n.weight);
    }
  }
}

#endif
