// The cuda.h of any CUDA from 11.8 on, as gorgonia.org/cu v0.9.6 and package driver call it. CUDA 13
// gave the names of these functions to newer versions with other parameters. The driver still
// exports the older ones.
#include_next <cuda.h>
#if CUDA_VERSION >= 13000 && !defined(ASSAY_CUDA_H)
#define ASSAY_CUDA_H
#undef cuCtxCreate
#undef cuMemAdvise
#undef cuMemPrefetchAsync
#undef cuGraphAddDependencies
#undef cuGraphGetEdges
#undef cuGraphRemoveDependencies
#undef cuStreamUpdateCaptureDependencies
#define cuCtxCreate cuCtxCreate_v2
#ifdef __cplusplus
extern "C" {
#endif
CUresult CUDAAPI cuCtxCreate_v2(CUcontext *, unsigned int, CUdevice);
CUresult CUDAAPI cuMemAdvise(CUdeviceptr, size_t, CUmem_advise, CUdevice);
CUresult CUDAAPI cuMemPrefetchAsync(CUdeviceptr, size_t, CUdevice, CUstream);
CUresult CUDAAPI cuGraphAddDependencies(CUgraph, const CUgraphNode *, const CUgraphNode *, size_t);
CUresult CUDAAPI cuGraphGetEdges(CUgraph, CUgraphNode *, CUgraphNode *, size_t *);
CUresult CUDAAPI cuGraphRemoveDependencies(CUgraph, const CUgraphNode *, const CUgraphNode *, size_t);
CUresult CUDAAPI cuStreamUpdateCaptureDependencies(CUstream, CUgraphNode *, size_t, unsigned int);
#ifdef __cplusplus
}
#endif
#endif
