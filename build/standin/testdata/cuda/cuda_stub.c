/* Stand-in for the stub libcuda that the toolkit has for linking. */
#include <cuda.h>

CUresult cuInit(unsigned flags) { (void)flags; return CUDA_ERROR_STUB_LIBRARY; }
CUresult cuDriverGetVersion(int *version) { (void)version; return CUDA_ERROR_STUB_LIBRARY; }
CUresult cuDeviceGetCount(int *count) { (void)count; return CUDA_ERROR_STUB_LIBRARY; }
CUresult cuDeviceGet(CUdevice *device, int ordinal) { (void)device; (void)ordinal; return CUDA_ERROR_STUB_LIBRARY; }
CUresult cuMemAlloc(CUdeviceptr *pointer, unsigned long size) { (void)pointer; (void)size; return CUDA_ERROR_STUB_LIBRARY; }
CUresult cuGetErrorString(CUresult error, const char **text) { (void)error; *text = "stub library"; return CUDA_SUCCESS; }
#if CUDA_VERSION >= 13000
CUresult cuCtxCreate(CUcontext *context, void *params, unsigned flags, CUdevice device) {
	(void)params;
#else
CUresult cuCtxCreate(CUcontext *context, unsigned flags, CUdevice device) {
#endif
	(void)context; (void)flags; (void)device;
	return CUDA_ERROR_STUB_LIBRARY;
}
