// Conversions between float32 and the floats of 16 and 8 bits, for the elements
// of a 32-bit word together. Numbers are rounded to nearest even, any NaN becomes
// the positive one with every bit set, and 8-bit floats saturate, infinities too.
//
// Processors that have instructions for a conversion use them. The rest of the
// file is the same in C++, which the CPU runs too.
#ifndef ASSAY_CONVERT_CUH
#define ASSAY_CONVERT_CUH
#include <stdint.h>
#include <string.h>

// A C++ compiler that is not CUDA's sees plain functions.
#ifndef __CUDACC__
#ifndef __device__
#define __device__
#endif
#ifndef __forceinline__
#define __forceinline__ inline
#endif
#endif

// OUTLINE is for what is long and rare: a kernel has it once.
#ifdef __CUDACC__
#define OUTLINE __noinline__
#else
#define OUTLINE inline
#endif

// What the target has: conversions of 16-bit floats, and of 8-bit ones.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
#define HAS_HALF_CONVERSION 1
#else
#define HAS_HALF_CONVERSION 0
#endif
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
#define HAS_FP8_CONVERSION 1
#else
#define HAS_FP8_CONVERSION 0
#endif

// The element types, numbered as in ncclDataType_t.
enum Type {
  TYPE_I8 = 0,
  TYPE_U8 = 1,
  TYPE_I32 = 2,
  TYPE_U32 = 3,
  TYPE_I64 = 4,
  TYPE_U64 = 5,
  TYPE_F16 = 6,
  TYPE_F32 = 7,
  TYPE_F64 = 8,
  TYPE_BF16 = 9,
  TYPE_E4M3 = 10,
  TYPE_E5M2 = 11
};

// bits gives the memory of one type as another of the same size.
template <class To, class From> __device__ __forceinline__ To bits(From x) {
  static_assert(sizeof(To) == sizeof(From), "bits keeps the size");
  To y;
  memcpy(&y, &x, sizeof y);
  return y;
}

// A Format is a float narrower than float32 that has subnormal numbers.
template <int FRACTION, uint32_t BIAS> struct Format {
  // round gives the bits of x, which is not negative, no NaN, and no larger than
  // the format's largest number, or rounds to that. Normal numbers are rounded
  // on their bits; subnormal ones by adding a number whose last place is the
  // format's smallest step.
  static __device__ __forceinline__ uint32_t round(float x) {
    const uint32_t abs = bits<uint32_t>(x), smallest = (128 - BIAS) << 23;
    const uint32_t magic = (127 + 23 + 1 - BIAS - FRACTION) << 23;
    const int shift = 23 - FRACTION;
    const uint32_t subnormal = bits<uint32_t>(x + bits<float>(magic)) - magic;
    const uint32_t even = abs + (1u << (shift - 1)) - 1 + (abs >> shift & 1);
    const uint32_t normal = (even - ((127 - BIAS) << 23)) >> shift;
    return abs < smallest ? subnormal : normal;
  }

  // saturate is round for any x, in a format of 8 bits whose largest number is
  // max.
  static __device__ __forceinline__ uint32_t saturate(float x, float max) {
    const uint32_t sign = bits<uint32_t>(x) >> 24 & 0x80;
    const float abs = bits<float>(bits<uint32_t>(x) & 0x7fffffff);
    const uint32_t number = sign | round(abs < max ? abs : max);
    return x != x ? 0x7f : number;
  }

  static __device__ OUTLINE uint32_t saturate(float x, float y, float z, float w, float max) {
    return saturate(x, max) | saturate(y, max) << 8 | saturate(z, max) << 16 |
           saturate(w, max) << 24;
  }
};

// half_value is the value of a half.
__device__ __forceinline__ float half_value(uint32_t h) {
#if HAS_HALF_CONVERSION
  float x;
  asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"((uint16_t)h));
  return x;
#else
  // Read as a float32 the exponent is too small by 112. Multiplying puts that
  // right, for subnormal numbers too.
  const uint32_t abs = (h & 0x7fff) << 13, sign = (h & 0x8000) << 16;
  const bool finite = (h & 0x7c00) != 0x7c00;
  const float x = bits<float>(abs) * bits<float>((127u + 112) << 23);
  return bits<float>(sign | (finite ? bits<uint32_t>(x) : abs | 0xffu << 23));
#endif
}

// A Narrow converts words of a type of 16 or 8 bits.
template <int TYPE> struct Narrow;

template <> struct Narrow<TYPE_F16> {
  enum { lanes = 2 };

  static __device__ __forceinline__ void widen(float (&x)[lanes], uint32_t w) {
    x[0] = half_value(w & 0xffff);
    x[1] = half_value(w >> 16);
  }

  static __device__ __forceinline__ uint32_t round(const float (&x)[lanes]) {
#if HAS_HALF_CONVERSION
    uint32_t w;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(w) : "f"(x[1]), "f"(x[0]));
    return w;
#else
    return one(x[0]) | one(x[1]) << 16;
#endif
  }

#if !HAS_HALF_CONVERSION
  static __device__ __forceinline__ uint32_t one(float x) {
    const uint32_t sign = bits<uint32_t>(x) >> 16 & 0x8000;
    const float abs = bits<float>(bits<uint32_t>(x) & 0x7fffffff);
    if (x != x) return 0x7fff;
    // Half-way between the largest number and the next power of two.
    if (abs >= 65520.0f) return sign | 0x7c00;
    return sign | Format<10, 15>::round(abs);
  }
#endif
};

template <> struct Narrow<TYPE_BF16> {
  enum { lanes = 2 };

  static __device__ __forceinline__ void widen(float (&x)[lanes], uint32_t w) {
    x[0] = bits<float>(w << 16);
    x[1] = bits<float>(w & 0xffff0000);
  }

  static __device__ __forceinline__ uint32_t round(const float (&x)[lanes]) {
#if HAS_HALF_CONVERSION
    uint32_t w;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(w) : "f"(x[1]), "f"(x[0]));
    return w;
#else
    return one(x[0]) | one(x[1]) << 16;
#endif
  }

#if !HAS_HALF_CONVERSION
  static __device__ __forceinline__ uint32_t one(float x) {
    const uint32_t b = bits<uint32_t>(x);
    return x != x ? 0x7fff : (b + 0x7fff + (b >> 16 & 1)) >> 16;
  }
#endif
};

// The 8-bit formats are subsets of half, so that halves can stand for them
// where nothing is rounded: halves gives a word's elements as two words of
// halves, narrow_halves takes such.
template <> struct Narrow<TYPE_E4M3> {
  enum { lanes = 4 };

  static __device__ __forceinline__ void widen(float (&x)[lanes], uint32_t w) {
#if HAS_FP8_CONVERSION
    uint32_t h[2];
    halves(h, w);
    for (int i = 0; i < lanes; i++) x[i] = half_value(h[i / 2] >> i % 2 * 16);
#else
    // Read as a half the exponent is too small by 8.
    for (int i = 0; i < lanes; i++) {
      const uint32_t b = w >> 8 * i & 0xff;
      const float number = half_value((b & 0x80) << 8 | (b & 0x7f) << 7) * 256.0f;
      x[i] = (b & 0x7f) == 0x7f ? bits<float>(0x7fffffffu) : number;
    }
#endif
  }

  static __device__ __forceinline__ uint32_t round(const float (&x)[lanes]) {
#if HAS_FP8_CONVERSION
    uint32_t w;
    asm("{\n\t"
        ".reg .b16 lo, hi;\n\t"
        "cvt.rn.satfinite.e4m3x2.f32 lo, %2, %1;\n\t"
        "cvt.rn.satfinite.e4m3x2.f32 hi, %4, %3;\n\t"
        "mov.b32 %0, {lo, hi};\n\t"
        "}"
        : "=r"(w)
        : "f"(x[0]), "f"(x[1]), "f"(x[2]), "f"(x[3]));
    return w;
#else
    return Format<3, 7>::saturate(x[0], x[1], x[2], x[3], 448.0f);
#endif
  }

#if HAS_FP8_CONVERSION
  static __device__ __forceinline__ void halves(uint32_t (&h)[2], uint32_t w) {
    asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(h[0]) : "h"((uint16_t)w));
    asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(h[1]) : "h"((uint16_t)(w >> 16)));
  }

  static __device__ __forceinline__ uint32_t narrow_halves(const uint32_t (&h)[2]) {
    uint32_t w;
    asm("{\n\t"
        ".reg .b16 lo, hi;\n\t"
        "cvt.rn.satfinite.e4m3x2.f16x2 lo, %1;\n\t"
        "cvt.rn.satfinite.e4m3x2.f16x2 hi, %2;\n\t"
        "mov.b32 %0, {lo, hi};\n\t"
        "}"
        : "=r"(w)
        : "r"(h[0]), "r"(h[1]));
    return w;
  }
#endif
};

template <> struct Narrow<TYPE_E5M2> {
  enum { lanes = 4 };

  // An e5m2 is the upper half of a half.
  static __device__ __forceinline__ void widen(float (&x)[lanes], uint32_t w) {
    for (int i = 0; i < lanes; i++) x[i] = half_value((w >> 8 * i & 0xff) << 8);
  }

  static __device__ __forceinline__ uint32_t round(const float (&x)[lanes]) {
#if HAS_FP8_CONVERSION
    uint32_t w;
    asm("{\n\t"
        ".reg .b16 lo, hi;\n\t"
        "cvt.rn.satfinite.e5m2x2.f32 lo, %2, %1;\n\t"
        "cvt.rn.satfinite.e5m2x2.f32 hi, %4, %3;\n\t"
        "mov.b32 %0, {lo, hi};\n\t"
        "}"
        : "=r"(w)
        : "f"(x[0]), "f"(x[1]), "f"(x[2]), "f"(x[3]));
    return w;
#else
    return Format<2, 15>::saturate(x[0], x[1], x[2], x[3], 57344.0f);
#endif
  }

#if HAS_FP8_CONVERSION
  static __device__ __forceinline__ void halves(uint32_t (&h)[2], uint32_t w) {
    h[0] = (w & 0xff) << 8 | (w & 0xff00) << 16;
    h[1] = (w >> 16 & 0xff) << 8 | (w & 0xff000000);
  }

  static __device__ __forceinline__ uint32_t narrow_halves(const uint32_t (&h)[2]) {
    uint32_t w;
    asm("{\n\t"
        ".reg .b16 lo, hi;\n\t"
        "cvt.rn.satfinite.e5m2x2.f16x2 lo, %1;\n\t"
        "cvt.rn.satfinite.e5m2x2.f16x2 hi, %2;\n\t"
        "mov.b32 %0, {lo, hi};\n\t"
        "}"
        : "=r"(w)
        : "r"(h[0]), "r"(h[1]));
    return w;
  }
#endif
};

#endif
