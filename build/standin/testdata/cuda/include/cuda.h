/* Stand-in for CUDA's driver header: the few declarations that assay's
 * recipes compile against. Not NVIDIA's file. */
#ifndef STANDIN_CUDA_H
#define STANDIN_CUDA_H
#define CUDA_VERSION @CUDA_CODE@
#ifdef __cplusplus
extern "C" {
#endif
typedef int CUdevice;
typedef int CUresult;
typedef unsigned long long CUdeviceptr;
typedef struct CUctx_st *CUcontext;
#define CUDA_SUCCESS 0
#define CUDA_ERROR_STUB_LIBRARY 34
#define CUDA_ERROR_NO_DEVICE 100
CUresult cuInit(unsigned flags);
CUresult cuDriverGetVersion(int *version);
CUresult cuDeviceGetCount(int *count);
CUresult cuDeviceGet(CUdevice *device, int ordinal);
CUresult cuMemAlloc(CUdeviceptr *pointer, unsigned long size);
CUresult cuGetErrorString(CUresult error, const char **text);
#if CUDA_VERSION >= 13000 /* the change that broke programs written for 12 */
CUresult cuCtxCreate(CUcontext *context, void *params, unsigned flags, CUdevice device);
#else
CUresult cuCtxCreate(CUcontext *context, unsigned flags, CUdevice device);
#endif
#ifdef __cplusplus
}
#endif
#endif
