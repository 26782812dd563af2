// Reductions of elements in registers, 2 or 4 words of 32 bits at a time. The
// bits are those of package elem: what it says of Reduce is the contract, but
// that several sources of 16- and 8-bit floats are accumulated in float32 and
// rounded once. A test holds this file to it.
#ifndef ASSAY_REDUCE_CUH
#define ASSAY_REDUCE_CUH
#include <math.h>
#include <stdint.h>

#include "convert.cuh"

// The reductions, numbered as in ncclRedOp_t.
enum Op { OP_SUM = 0, OP_PROD = 1, OP_MAX = 2, OP_MIN = 3 };

// An Elem says of a type what an element is stored as (Word), what it is
// computed in (Acc), and its size in bytes.
template <int TYPE> struct Elem;

template <class W, class A> struct ElemOf {
  using Word = W;
  using Acc = A;
  enum { size = sizeof(W) };
};

template <> struct Elem<TYPE_I8> : ElemOf<uint8_t, int8_t> {};
template <> struct Elem<TYPE_U8> : ElemOf<uint8_t, uint8_t> {};
template <> struct Elem<TYPE_I32> : ElemOf<uint32_t, int32_t> {};
template <> struct Elem<TYPE_U32> : ElemOf<uint32_t, uint32_t> {};
template <> struct Elem<TYPE_I64> : ElemOf<uint64_t, int64_t> {};
template <> struct Elem<TYPE_U64> : ElemOf<uint64_t, uint64_t> {};
template <> struct Elem<TYPE_F16> : ElemOf<uint16_t, float> {};
template <> struct Elem<TYPE_F32> : ElemOf<uint32_t, float> {};
template <> struct Elem<TYPE_F64> : ElemOf<uint64_t, double> {};
template <> struct Elem<TYPE_BF16> : ElemOf<uint16_t, float> {};
template <> struct Elem<TYPE_E4M3> : ElemOf<uint8_t, float> {};
template <> struct Elem<TYPE_E5M2> : ElemOf<uint8_t, float> {};

// Arithmetic of floats: never fused, a number wins over a NaN, -0 is less than
// +0, and a NaN comes out as the one that is stored. Of float32 the processor
// gives all this; of float64 it keeps a NaN's payload.
__device__ __forceinline__ float canonical(float x) {
  return x == x ? x : bits<float>(0x7fffffffu);
}

__device__ __forceinline__ double canonical(double x) {
  return x == x ? x : bits<double>((uint64_t)0x7fffffffffffffff);
}

#ifdef __CUDA_ARCH__
template <int OP> __device__ __forceinline__ float apply(float x, float y) {
  switch (OP) {
    case OP_SUM: return __fadd_rn(x, y);
    case OP_PROD: return __fmul_rn(x, y);
    case OP_MAX: return fmaxf(x, y);
    default: return fminf(x, y);
  }
}

template <int OP> __device__ __forceinline__ double apply(double x, double y) {
  switch (OP) {
    case OP_SUM: return canonical(__dadd_rn(x, y));
    case OP_PROD: return canonical(__dmul_rn(x, y));
    case OP_MAX: return canonical(fmax(x, y));
    default: return canonical(fmin(x, y));
  }
}
#else
template <int OP, class T> inline T apply(T x, T y) {
  const bool less = x < y || (x == y && signbit(x) && !signbit(y));
  switch (OP) {
    case OP_SUM: return canonical(x + y);
    case OP_PROD: return canonical(x * y);
    default:
      if (x != x) return canonical(y);
      if (y != y) return x;
      return less == (OP == OP_MAX) ? y : x;
  }
}
#endif

// A Pair reduces two Units of elements, the words in which a type is taken,
// where the result needs no rounding or is one element: everything but sums
// and products of narrow floats.
//
// This is that of integers of 32 and 64 bits.
template <int TYPE, int OP> struct Pair {
  using Unit = typename Elem<TYPE>::Word;

  static __device__ __forceinline__ Unit of(Unit a, Unit b) {
    using Value = typename Elem<TYPE>::Acc;
    switch (OP) {
      case OP_SUM: return a + b;
      case OP_PROD: return a * b;
      case OP_MAX: return (Value)a > (Value)b ? a : b;
      default: return (Value)a < (Value)b ? a : b;
    }
  }
};

// Bytes are four 8-bit integers.
template <int OP, bool SIGNED> struct Bytes {
  using Unit = uint32_t;

  static __device__ __forceinline__ Unit of(Unit a, Unit b) {
    switch (OP) {
      case OP_SUM: return sum(a, b);
      case OP_PROD: return product(a, b);
      case OP_MAX: return choose(a, b, not_less(a, b));
      default: return choose(b, a, not_less(a, b));
    }
  }

  // The highest bits are added without their carries.
  static __device__ __forceinline__ Unit sum(Unit a, Unit b) {
    return ((a & 0x7f7f7f7f) + (b & 0x7f7f7f7f)) ^ ((a ^ b) & 0x80808080);
  }

  // A byte of a in its place, times the bytes of b from the same one on: the
  // product's byte there is that of the two.
  static __device__ __forceinline__ Unit product(Unit a, Unit b) {
    return (a * b & 0xff) | ((a & 0xff00) * (b >> 8) & 0xff00) |
           ((a & 0xff0000) * (b >> 16) & 0xff0000) | (a & 0xff000000) * (b >> 24);
  }

  // not_less has the highest bit of each byte set where a's is not less than
  // b's: by the lower 7 bits, unless the highest ones differ.
  static __device__ __forceinline__ Unit not_less(Unit a, Unit b) {
    const Unit lower = (a | 0x80808080) - (b & 0x7f7f7f7f);
    const Unit higher = SIGNED ? ~a & b : a & ~b;
    return (higher | (~(a ^ b) & lower)) & 0x80808080;
  }

  // choose gives the bytes of a where which has the highest bit set, else b's.
  static __device__ __forceinline__ Unit choose(Unit a, Unit b, Unit which) {
    const Unit mask = (which >> 7) * 0xff;
    return (a & mask) | (b & ~mask);
  }
};

template <int OP> struct Pair<TYPE_I8, OP> : Bytes<OP, true> {};
template <int OP> struct Pair<TYPE_U8, OP> : Bytes<OP, false> {};

// Wide are float32 and float64.
template <int TYPE, int OP> struct Wide {
  using Unit = typename Elem<TYPE>::Word;

  static __device__ __forceinline__ Unit of(Unit a, Unit b) {
    using Value = typename Elem<TYPE>::Acc;
    return bits<Unit>(apply<OP>(bits<Value>(a), bits<Value>(b)));
  }
};

template <int OP> struct Pair<TYPE_F32, OP> : Wide<TYPE_F32, OP> {};
template <int OP> struct Pair<TYPE_F64, OP> : Wide<TYPE_F64, OP> {};

// Extremes are the maxima and minima of narrow floats. This is the way of
// processors that cannot compare such.
template <int TYPE, int OP, bool NATIVE> struct Extremes {
  using Unit = uint32_t;

  static __device__ OUTLINE Unit of(Unit a, Unit b) {
    float x[Narrow<TYPE>::lanes], y[Narrow<TYPE>::lanes];
    Narrow<TYPE>::widen(x, a);
    Narrow<TYPE>::widen(y, b);
    for (int i = 0; i < Narrow<TYPE>::lanes; i++) x[i] = apply<OP>(x[i], y[i]);
    return Narrow<TYPE>::round(x);
  }
};

#if HAS_HALF_CONVERSION
template <int OP> struct Extremes<TYPE_F16, OP, true> {
  using Unit = uint32_t;

  static __device__ __forceinline__ Unit of(Unit a, Unit b) {
    Unit c;
    if (OP == OP_MAX) {
      asm("max.f16x2 %0, %1, %2;" : "=r"(c) : "r"(a), "r"(b));
    } else {
      asm("min.f16x2 %0, %1, %2;" : "=r"(c) : "r"(a), "r"(b));
    }
    return c;
  }
};

template <int OP> struct Extremes<TYPE_BF16, OP, true> {
  using Unit = uint32_t;

  static __device__ __forceinline__ Unit of(Unit a, Unit b) {
    Unit c;
    if (OP == OP_MAX) {
      asm("max.bf16x2 %0, %1, %2;" : "=r"(c) : "r"(a), "r"(b));
    } else {
      asm("min.bf16x2 %0, %1, %2;" : "=r"(c) : "r"(a), "r"(b));
    }
    return c;
  }
};
#endif

#if HAS_FP8_CONVERSION
// 8-bit floats are compared as halves.
template <int TYPE, int OP> struct Extremes<TYPE, OP, true> {
  using Unit = uint32_t;

  static __device__ __forceinline__ Unit of(Unit a, Unit b) {
    uint32_t x[2], y[2];
    Narrow<TYPE>::halves(x, a);
    Narrow<TYPE>::halves(y, b);
    for (int i = 0; i < 2; i++) x[i] = Extremes<TYPE_F16, OP, true>::of(x[i], y[i]);
    return Narrow<TYPE>::narrow_halves(x);
  }
};
#endif

template <int OP> struct Pair<TYPE_F16, OP> : Extremes<TYPE_F16, OP, HAS_HALF_CONVERSION> {};
template <int OP> struct Pair<TYPE_BF16, OP> : Extremes<TYPE_BF16, OP, HAS_HALF_CONVERSION> {};
template <int OP> struct Pair<TYPE_E4M3, OP> : Extremes<TYPE_E4M3, OP, HAS_FP8_CONVERSION> {};
template <int OP> struct Pair<TYPE_E5M2, OP> : Extremes<TYPE_E5M2, OP, HAS_FP8_CONVERSION> {};

// load_units and store_units are between words and Units of 32 or 64 bits.
template <int W>
__device__ __forceinline__ void load_units(uint32_t (&u)[W], const uint32_t (&w)[W]) {
  for (int i = 0; i < W; i++) u[i] = w[i];
}

template <int W>
__device__ __forceinline__ void load_units(uint64_t (&u)[W / 2], const uint32_t (&w)[W]) {
  for (int i = 0; i < W / 2; i++) u[i] = w[2 * i] | (uint64_t)w[2 * i + 1] << 32;
}

template <int W>
__device__ __forceinline__ void store_units(uint32_t (&w)[W], const uint32_t (&u)[W]) {
  for (int i = 0; i < W; i++) w[i] = u[i];
}

template <int W>
__device__ __forceinline__ void store_units(uint32_t (&w)[W], const uint64_t (&u)[W / 2]) {
  for (int i = 0; i < W; i++) w[i] = (uint32_t)(u[i / 2] >> i % 2 * 32);
}

// Rounds says whether more than two elements are reduced in float32 and rounded
// at the end: where rounding after each would give other bits.
template <int TYPE, int OP> struct Rounds {
  enum {
    yes = (TYPE == TYPE_F16 || TYPE == TYPE_BF16 || TYPE == TYPE_E4M3 || TYPE == TYPE_E5M2) &&
          (OP == OP_SUM || OP == OP_PROD)
  };
};

// A Reducer reduces any number of sources, W words of each: first the first one,
// add the others in order, and then result. A single source comes out as it is.
template <int TYPE, int OP, int W, bool ROUNDS = Rounds<TYPE, OP>::yes> struct Reducer {
  using Unit = typename Pair<TYPE, OP>::Unit;
  enum { units = W * 4 / sizeof(Unit) };
  Unit acc[units];

  __device__ __forceinline__ void first(const uint32_t (&w)[W]) { load_units<W>(acc, w); }

  __device__ __forceinline__ void add(const uint32_t (&w)[W]) {
    Unit u[units];
    load_units<W>(u, w);
    for (int i = 0; i < units; i++) acc[i] = Pair<TYPE, OP>::of(acc[i], u[i]);
  }

  __device__ __forceinline__ void result(uint32_t (&w)[W]) const { store_units<W>(w, acc); }
};

template <int TYPE, int OP, int W> struct Reducer<TYPE, OP, W, true> {
  enum { lanes = Narrow<TYPE>::lanes };
  float acc[W][lanes];
  uint32_t only[W];  // the source, while there is one: acc has lost a NaN's bits
  bool many;

  __device__ __forceinline__ void first(const uint32_t (&w)[W]) {
    for (int i = 0; i < W; i++) {
      Narrow<TYPE>::widen(acc[i], w[i]);
      only[i] = w[i];
    }
    many = false;
  }

  __device__ __forceinline__ void add(const uint32_t (&w)[W]) {
    for (int i = 0; i < W; i++) {
      float x[lanes];
      Narrow<TYPE>::widen(x, w[i]);
      for (int j = 0; j < lanes; j++) acc[i][j] = apply<OP>(acc[i][j], x[j]);
    }
    many = true;
  }

  __device__ __forceinline__ void result(uint32_t (&w)[W]) const {
    for (int i = 0; i < W; i++) w[i] = many ? Narrow<TYPE>::round(acc[i]) : only[i];
  }
};

// scale_words multiplies every element by factor, whose low bytes are one, and
// rounds the product.
template <int TYPE, int W>
__device__ __forceinline__ void scale_words(uint32_t (&w)[W], uint64_t factor) {
  uint32_t lower = (uint32_t)factor, upper = lower;
  switch ((int)Elem<TYPE>::size) {
    case 1: lower = upper = (lower & 0xff) * 0x01010101; break;
    case 2: lower = upper = (lower & 0xffff) * 0x00010001; break;
    case 8: upper = (uint32_t)(factor >> 32);
  }
  uint32_t f[W];
  for (int i = 0; i < W; i++) f[i] = i % 2 ? upper : lower;
  Reducer<TYPE, OP_PROD, W> r;
  r.first(w);
  r.add(f);
  r.result(w);
}

// A Quotient divides the elements of a Unit by a number below 2^31, towards
// zero. Floats are left alone.
template <class Value> struct Quotient {
  static __device__ __forceinline__ uint32_t of(uint32_t u, uint32_t) { return u; }
};

template <> struct Quotient<int32_t> {
  static __device__ __forceinline__ uint32_t of(uint32_t u, uint32_t divisor) {
    return (uint32_t)((int32_t)u / (int32_t)divisor);
  }
};

template <> struct Quotient<uint32_t> {
  static __device__ __forceinline__ uint32_t of(uint32_t u, uint32_t divisor) {
    return u / divisor;
  }
};

template <> struct Quotient<int8_t> {
  static __device__ OUTLINE uint32_t of(uint32_t u, uint32_t divisor) {
    uint32_t q = 0;
    for (int i = 0; i < 4; i++) {
      const int32_t x = (int8_t)(u >> 8 * i);
      q |= (uint32_t)(x / (int32_t)divisor & 0xff) << 8 * i;
    }
    return q;
  }
};

template <> struct Quotient<uint8_t> {
  static __device__ OUTLINE uint32_t of(uint32_t u, uint32_t divisor) {
    uint32_t q = 0;
    for (int i = 0; i < 4; i++) q |= (u >> 8 * i & 0xff) / divisor << 8 * i;
    return q;
  }
};

template <> struct Quotient<int64_t> {
  static __device__ __forceinline__ uint64_t of(uint64_t u, uint32_t divisor) {
    return (uint64_t)((int64_t)u / (int64_t)divisor);
  }
};

template <> struct Quotient<uint64_t> {
  static __device__ __forceinline__ uint64_t of(uint64_t u, uint32_t divisor) {
    return u / divisor;
  }
};

template <> struct Quotient<double> {
  static __device__ __forceinline__ uint64_t of(uint64_t u, uint32_t) { return u; }
};

// divide_words divides integers, see Quotient.
template <int TYPE, int W>
__device__ __forceinline__ void divide_words(uint32_t (&w)[W], uint32_t divisor) {
  using Unit = typename Pair<TYPE, OP_SUM>::Unit;
  Unit u[W * 4 / sizeof(Unit)];
  load_units<W>(u, w);
  for (Unit &x : u) x = Quotient<typename Elem<TYPE>::Acc>::of(x, divisor);
  store_units<W>(w, u);
}

#endif
