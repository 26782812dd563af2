// Patterns in memory, and streams through it.

// A pattern's kinds, as in pattern.go.
enum { kConstant, kWalkingOne, kWalkingZero, kAddress, kRandom };

// The pattern's words of 16 bytes at an address: seed is the constant, the step
// of what walks, or what makes random words random.
template <int kind>
__device__ inline ulonglong2 expected(u64 at, u64 seed) {
  ulonglong2 v;
  if (kind == kConstant) {
    v.x = v.y = seed;
  } else if (kind == kWalkingOne || kind == kWalkingZero) {
    // Each word of 8 bytes has its bit one place further than the one before.
    const u64 i = at / 8 + seed;
    v.x = 1ull << (i % 64), v.y = 1ull << ((i + 1) % 64);
    if (kind == kWalkingZero) v.x = ~v.x, v.y = ~v.y;
  } else if (kind == kAddress) {
    v.x = at, v.y = ~(at + 8);
    if (seed) v.x = ~v.x, v.y = ~v.y;
  } else {
    // A hash of the address in 32 bits, stretched: memory must be what limits this.
    unsigned h = (unsigned)(at >> 4) * 0x9e3779b1u ^ (unsigned)(at >> 36) ^ (unsigned)seed;
    h = (h ^ h >> 16) * 0x85ebca6bu;
    h = (h ^ h >> 13) * 0xc2b2ae35u;
    h ^= h >> 16;
    const unsigned a = h * 0x9e3779b1u, b = h ^ h << 7 ^ (unsigned)(seed >> 32), c = a + (b >> 3);
    v.x = (u64)a << 32 | b, v.y = (u64)c << 32 | (h ^ a >> 5);
  }
  return v;
}

// Words of 16 bytes that a thread has on their way at the same time; a block
// takes kInFlight times its threads of them in one go.
constexpr int kInFlight = 8;

template <int kind>
__device__ inline void write_as(ulonglong2 *p, u64 words, u64 seed) {
  const u64 stride = (u64)gridDim.x * blockDim.x * kInFlight;
  for (u64 i = (u64)blockIdx.x * blockDim.x * kInFlight + threadIdx.x; i < words; i += stride)
#pragma unroll 4
    for (int k = 0; k < kInFlight; k++) {
      const u64 j = i + (u64)k * blockDim.x;
      if (j < words) p[j] = expected<kind>((u64)(p + j), seed);
    }
}

// pattern_write fills words of 16 bytes.
extern "C" __global__ void __launch_bounds__(512) pattern_write(ulonglong2 *p, u64 words, u64 kind, u64 seed) {
  switch (kind) {
    case kConstant: return write_as<kConstant>(p, words, seed);
    case kWalkingOne: return write_as<kWalkingOne>(p, words, seed);
    case kWalkingZero: return write_as<kWalkingZero>(p, words, seed);
    case kAddress: return write_as<kAddress>(p, words, seed);
    case kRandom: return write_as<kRandom>(p, words, seed);
  }
}

// A miscompare, and all of them: how many words of 8 bytes, which bits, and the
// first of them. miscompare.go reads it.
struct Miscompare {
  u64 at, expected, found;
};
constexpr u64 kKept = 16;
struct Miscompares {
  u64 count, bits;
  Miscompare kept[kKept];
};

__device__ inline void note(Miscompares *out, u64 at, u64 want, u64 got) {
  if (want == got) return;
  const u64 n = atomicAdd(&out->count, 1ull);
  atomicOr(&out->bits, want ^ got);
  if (n < kKept) out->kept[n].at = at, out->kept[n].expected = want, out->kept[n].found = got;
}

// verify_as compares, and writes the complement where that is wanted.
template <int kind>
__device__ inline void verify_as(ulonglong2 *p, u64 words, u64 seed, u64 base, bool invert, Miscompares *out) {
  const u64 stride = (u64)gridDim.x * blockDim.x * kInFlight, away = base - (u64)p;
  for (u64 i = (u64)blockIdx.x * blockDim.x * kInFlight + threadIdx.x; i < words; i += stride) {
    ulonglong2 v[kInFlight];
#pragma unroll
    for (int k = 0; k < kInFlight; k++) {
      const u64 j = i + (u64)k * blockDim.x;
      if (j < words) v[k] = load_once(p + j);
    }
#pragma unroll
    for (int k = 0; k < kInFlight; k++) {
      const u64 j = i + (u64)k * blockDim.x;
      if (j >= words) continue;
      const u64 at = (u64)(p + j) + away;
      const ulonglong2 want = expected<kind>(at, seed);
      if ((v[k].x ^ want.x) | (v[k].y ^ want.y)) note(out, at, want.x, v[k].x), note(out, at + 8, want.y, v[k].y);
      if (invert) {
        ulonglong2 c;
        c.x = ~want.x, c.y = ~want.y;
        p[j] = c;
      }
    }
  }
}

// pattern_verify compares words of 16 bytes with what was written to base, which
// is p unless the words were copied since. With invert it leaves their complement.
extern "C" __global__ void __launch_bounds__(512) pattern_verify(ulonglong2 *p, u64 words, u64 kind, u64 seed, u64 base, u64 invert, Miscompares *out) {
  switch (kind) {
    case kConstant: return verify_as<kConstant>(p, words, seed, base, invert, out);
    case kWalkingOne: return verify_as<kWalkingOne>(p, words, seed, base, invert, out);
    case kWalkingZero: return verify_as<kWalkingZero>(p, words, seed, base, invert, out);
    case kAddress: return verify_as<kAddress>(p, words, seed, base, invert, out);
    case kRandom: return verify_as<kRandom>(p, words, seed, base, invert, out);
  }
}

// flip changes bits of a word: the fault that a test of the tests injects.
extern "C" __global__ void flip(u64 *p, u64 mask) { *p ^= mask; }

// stream_read adds the words of 8 bytes up, whatever they are.
extern "C" __global__ void __launch_bounds__(512) stream_read(const ulonglong2 *a, u64 words, u64 *sum) {
  const u64 stride = (u64)gridDim.x * blockDim.x * kInFlight;
  u64 s = 0;
  for (u64 i = (u64)blockIdx.x * blockDim.x * kInFlight + threadIdx.x; i < words; i += stride) {
    ulonglong2 v[kInFlight];
#pragma unroll
    for (int k = 0; k < kInFlight; k++) {
      const u64 j = i + (u64)k * blockDim.x;
      if (j < words) v[k] = load_once(a + j);
    }
#pragma unroll
    for (int k = 0; k < kInFlight; k++)
      if (i + (u64)k * blockDim.x < words) s += v[k].x + v[k].y;
  }
  atomicAdd(sum, s);
}

// stream_copy: a = b.
extern "C" __global__ void __launch_bounds__(512) stream_copy(double2 *a, const double2 *b, u64 words) {
  const u64 stride = (u64)gridDim.x * blockDim.x * kInFlight;
  for (u64 i = (u64)blockIdx.x * blockDim.x * kInFlight + threadIdx.x; i < words; i += stride) {
    double2 v[kInFlight];
#pragma unroll
    for (int k = 0; k < kInFlight; k++) {
      const u64 j = i + (u64)k * blockDim.x;
      if (j < words) v[k] = b[j];
    }
#pragma unroll
    for (int k = 0; k < kInFlight; k++) {
      const u64 j = i + (u64)k * blockDim.x;
      if (j < words) a[j] = v[k];
    }
  }
}

// stream_triad: a = b + 3 c.
extern "C" __global__ void __launch_bounds__(512) stream_triad(double2 *a, const double2 *b, const double2 *c, u64 words) {
  constexpr int n = kInFlight / 2;
  const u64 stride = (u64)gridDim.x * blockDim.x * n;
  for (u64 i = (u64)blockIdx.x * blockDim.x * n + threadIdx.x; i < words; i += stride) {
    double2 v[n], w[n];
#pragma unroll
    for (int k = 0; k < n; k++) {
      const u64 j = i + (u64)k * blockDim.x;
      if (j < words) v[k] = b[j], w[k] = c[j];
    }
#pragma unroll
    for (int k = 0; k < n; k++) {
      const u64 j = i + (u64)k * blockDim.x;
      if (j < words) v[k].x += 3 * w[k].x, v[k].y += 3 * w[k].y, a[j] = v[k];
    }
  }
}
