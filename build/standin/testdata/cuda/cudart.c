/* Stand-in CUDA runtime: a machine without a GPU. */
#include <cuda_runtime_api.h>

cudaError_t cudaGetDeviceCount(int *count) { *count = 0; return cudaErrorNoDevice; }
cudaError_t cudaGetDeviceProperties(cudaDeviceProp *properties, int device) { (void)properties; (void)device; return cudaErrorNoDevice; }
cudaError_t cudaRuntimeGetVersion(int *version) { *version = CUDART_VERSION; return cudaSuccess; }
cudaError_t cudaDriverGetVersion(int *version) { *version = 0; return cudaSuccess; }
cudaError_t cudaMalloc(void **pointer, size_t size) { (void)pointer; (void)size; return cudaErrorNoDevice; }

const char *cudaGetErrorString(cudaError_t error) {
	if (error == cudaSuccess) return "no error";
	if (error == cudaErrorNoDevice) return "no CUDA-capable device is detected";
	return "unrecognized error code";
}
