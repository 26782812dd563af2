// Products on tensor cores with mma.sync, which processors since 8.0 have.

constexpr int kTensorEdge = 128, kTensorK = 64;

// A row of 64 numbers of 2 bytes and 16 bytes more, so that the eight rows that
// ldmatrix reads at once are in different banks.
constexpr int kRow = kTensorK * 2 + 16;

template <bool half>
__device__ inline void mma(float (&d)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) {
  if (half)
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  else
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

__device__ inline void ldmatrix(unsigned (&v)[4], unsigned at) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];" : "=r"(v[0]), "=r"(v[1]), "=r"(v[2]), "=r"(v[3]) : "r"(at) : "memory");
}

// tensor_product has four warps, each with 64 by 64 results of a[row][k] and
// b[column][k].
template <bool half>
__device__ inline void tensor_product(const uint4 *a, const uint4 *b, float *c, const Check &check) {
  __shared__ __align__(16) char rows[2 * kTensorEdge * kRow];
  for (int i = threadIdx.x; i < kTensorEdge * kTensorK / 8; i += blockDim.x) {
    const int at = i / (kTensorK / 8) * kRow + i % (kTensorK / 8) * 16;
    *(uint4 *)(rows + at) = a[i];
    *(uint4 *)(rows + kTensorEdge * kRow + at) = b[i];
  }
  __syncthreads();
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int row0 = warp / 2 * 64, column0 = warp % 2 * 64;
  const unsigned base = (unsigned)__cvta_generic_to_shared(rows);
  // Of a, rows 0 to 15 by k 0 and then by k 8; of b, columns 0 to 7 by k 0 and 8,
  // then columns 8 to 15.
  const unsigned from_a = base + (row0 + lane % 16) * kRow + lane / 16 * 16;
  const unsigned from_b = base + (kTensorEdge + column0 + lane / 16 * 8 + lane % 8) * kRow + lane / 8 % 2 * 16;
  Tally tally;
  for (u64 r = 0; r < check.rounds; r++) {
    float d[4][8][4];
#pragma unroll
    for (int i = 0; i < 4; i++)
#pragma unroll
      for (int j = 0; j < 8; j++)
#pragma unroll
        for (int k = 0; k < 4; k++) d[i][j][k] = 0;
#pragma unroll 1
    for (u64 n = 0; n < check.reps; n++) {
#pragma unroll
      for (int k = 0; k < kTensorK / 16; k++) {
        unsigned x[4][4], y[4][4];
#pragma unroll
        for (int i = 0; i < 4; i++) ldmatrix(x[i], from_a + i * 16 * kRow + k * 32);
#pragma unroll
        for (int j = 0; j < 4; j++) ldmatrix(y[j], from_b + j * 16 * kRow + k * 32);
#pragma unroll
        for (int i = 0; i < 4; i++)
#pragma unroll
          for (int j = 0; j < 8; j++) mma<half>(d[i][j], x[i], y[j / 2][j % 2 * 2], y[j / 2][j % 2 * 2 + 1]);
      }
    }
    if (flipped(check, r)) d[0][0][0] = -d[0][0][0];
    unsigned h = 0;
#pragma unroll
    for (int i = 0; i < 4; i++)
#pragma unroll
      for (int j = 0; j < 8; j++)
#pragma unroll
        for (int k = 0; k < 4; k++) {
          h = fold(h, float_bits(d[i][j][k]));
          const int row = row0 + i * 16 + k / 2 * 8 + lane / 4, column = column0 + j * 8 + lane % 4 * 2 + k % 2;
          if (c && r == 0 && blockIdx.x == 0) c[row * kTensorEdge + column] = d[i][j][k];
        }
    tally.round(r, h);
  }
  tally.done(check);
}
