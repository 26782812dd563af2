/* Stand-in for CUDA's runtime header: a .cu file is compiled as C++ here. */
#ifndef STANDIN_CUDA_RUNTIME_H
#define STANDIN_CUDA_RUNTIME_H
#include "cuda_runtime_api.h"
#define __global__
#define __device__
#define __host__
#define __shared__
#define __forceinline__ inline
#endif
