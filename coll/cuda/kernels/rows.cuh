// Copies and reductions of memory by warps, row by row.
#ifndef ASSAY_ROWS_CUH
#define ASSAY_ROWS_CUH
#include "turns.cuh"

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

#endif
