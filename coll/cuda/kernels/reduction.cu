// Kernels that reduce elements of one type, ASSAY_TYPE, a number of
// ncclDataType_t, by one operation, ASSAY_OP, a number of ncclRedOp_t. Without
// ASSAY_OP they are those of all operations.
#include "chain.cuh"
#include "combine.cuh"
#include "ring.cuh"

#if ASSAY_TYPE == 0
#define NAME i8
#elif ASSAY_TYPE == 1
#define NAME u8
#elif ASSAY_TYPE == 2
#define NAME i32
#elif ASSAY_TYPE == 3
#define NAME u32
#elif ASSAY_TYPE == 4
#define NAME i64
#elif ASSAY_TYPE == 5
#define NAME u64
#elif ASSAY_TYPE == 6
#define NAME f16
#elif ASSAY_TYPE == 7
#define NAME f32
#elif ASSAY_TYPE == 8
#define NAME f64
#elif ASSAY_TYPE == 9
#define NAME bf16
#elif ASSAY_TYPE == 10
#define NAME e4m3
#elif ASSAY_TYPE == 11
#define NAME e5m2
#else
#error "ASSAY_TYPE is none of ncclDataType_t"
#endif

#define JOIN(base, type, op) base##_##type##_##op
#define JOINED(base, type, op) JOIN(base, type, op)
#define KERNEL(base, op, body) \
  extern "C" __global__ void __launch_bounds__(512, 1) JOINED(base, NAME, op)(const __grid_constant__ Comm c, const __grid_constant__ Args a) { body; }

#define RING(op, OP) \
  extern "C" __global__ void __launch_bounds__(512, 1) JOINED(copy_ring, NAME, op)(const __grid_constant__ Comm c, const __grid_constant__ Args a, const __grid_constant__ Ring g) { ring_copies<ASSAY_TYPE, OP>(c, a, g); }

#define KERNELS(op, OP)                                                   \
  KERNEL(reduce_ll, op, (reduce_packets<LL, LL_ROUNDS, ASSAY_TYPE, OP>(c, a)))       \
  KERNEL(reduce_ll128, op, (reduce_packets<LL128, LL128_ROUNDS, ASSAY_TYPE, OP>(c, a))) \
  KERNEL(allreduce_ll, op, (allreduce_packets<LL, LL_ROUNDS, ASSAY_TYPE, OP>(c, a))) \
  KERNEL(allreduce_ll128, op, (allreduce_packets<LL128, LL128_ROUNDS, ASSAY_TYPE, OP>(c, a))) \
  KERNEL(allreduce_simple, op, (allreduce_chunks<ASSAY_TYPE, OP>(c, a)))  \
  KERNEL(combine, op, (combine_local<ASSAY_TYPE, OP>(c, a)))              \
  RING(op, OP)

// A chain rounds at each rank, which sums and products of narrow floats must not.
#define CHAIN(op, OP) KERNEL(reduce_chain, op, (chain_chunks<true, ASSAY_TYPE, OP>(c, a)))
#if ASSAY_TYPE == 6 || ASSAY_TYPE == 9 || ASSAY_TYPE == 10 || ASSAY_TYPE == 11
#define EXACT(op, OP)
#else
#define EXACT(op, OP) CHAIN(op, OP)
#endif

#if !defined(ASSAY_OP) || ASSAY_OP == 0
KERNELS(sum, OP_SUM)
EXACT(sum, OP_SUM)
#endif
#if !defined(ASSAY_OP) || ASSAY_OP == 1
KERNELS(prod, OP_PROD)
EXACT(prod, OP_PROD)
#endif
#if !defined(ASSAY_OP) || ASSAY_OP == 2
KERNELS(max, OP_MAX)
CHAIN(max, OP_MAX)
#endif
#if !defined(ASSAY_OP) || ASSAY_OP == 3
KERNELS(min, OP_MIN)
CHAIN(min, OP_MIN)
#endif
