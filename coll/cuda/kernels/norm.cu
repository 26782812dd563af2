// Kernels that normalize rows of elements of one type, ASSAY_TYPE, a number of ncclDataType_t.
#include "norm.cuh"

#if ASSAY_TYPE == 6
#define NAME f16
#elif ASSAY_TYPE == 7
#define NAME f32
#elif ASSAY_TYPE == 9
#define NAME bf16
#else
#error "ASSAY_TYPE is none of the types with norms"
#endif

#define JOIN(base, type) base##_##type
#define JOINED(base, type) JOIN(base, type)
#define KERNEL(base, body) \
  extern "C" __global__ void __launch_bounds__(512, 1) JOINED(base, NAME)(const __grid_constant__ Comm c, const __grid_constant__ Args a, const __grid_constant__ Norm n) { body; }

KERNEL(norm_ll, (norm_short<ASSAY_TYPE>(c, a, n)))
KERNEL(norm_local, (norm_local<ASSAY_TYPE>(c, a, n)))
