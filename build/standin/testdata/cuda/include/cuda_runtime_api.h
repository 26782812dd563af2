/* Stand-in for CUDA's runtime header. Not NVIDIA's file. */
#ifndef STANDIN_CUDA_RUNTIME_API_H
#define STANDIN_CUDA_RUNTIME_API_H
#include <stddef.h>
#define CUDART_VERSION @CUDA_CODE@
#ifdef __cplusplus
extern "C" {
#endif
typedef int cudaError_t;
typedef struct CUstream_st *cudaStream_t;
typedef struct cudaDeviceProp { char name[256]; int major, minor; } cudaDeviceProp; /* CMake's test program names it */
#define cudaSuccess 0
#define cudaErrorNoDevice 100
cudaError_t cudaGetDeviceCount(int *count);
cudaError_t cudaGetDeviceProperties(cudaDeviceProp *properties, int device);
cudaError_t cudaRuntimeGetVersion(int *version);
cudaError_t cudaDriverGetVersion(int *version);
cudaError_t cudaMalloc(void **pointer, size_t size);
const char *cudaGetErrorString(cudaError_t error);
#ifdef __cplusplus
}
#endif
#endif
