package driver

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// TestHeader: what gorgonia.org/cu and this package call compiles with a cuda.h of CUDA 12, and with one of CUDA 13,
// where the names are macros for functions with other parameters; in C and in C++.
func TestHeader(t *testing.T) {
	if _, err := exec.LookPath("cc"); err != nil {
		t.Skip("no C compiler")
	}
	include, err := filepath.Abs("include")
	if err != nil {
		t.Fatal(err)
	}
	for _, language := range []string{"c", "c++"} {
		for version, next := range map[string]string{
			"12": "#define CUDA_VERSION 12000\n" + headerTypes + "#define cuCtxCreate cuCtxCreate_v2\n" + headerOld + headerEnd,
			"13": "#define CUDA_VERSION 13010\n" + headerTypes + "#define cuCtxCreate cuCtxCreate_v4\n#define cuMemAdvise cuMemAdvise_v2\n#define cuMemPrefetchAsync cuMemPrefetchAsync_v2\n" +
				"#define cuGraphAddDependencies cuGraphAddDependencies_v2\n#define cuGraphGetEdges cuGraphGetEdges_v2\n#define cuGraphRemoveDependencies cuGraphRemoveDependencies_v2\n" +
				"#define cuStreamUpdateCaptureDependencies cuStreamUpdateCaptureDependencies_v2\n" + headerNew + headerEnd,
		} {
			dir := t.TempDir()
			program := filepath.Join(dir, "program."+language)
			for file, text := range map[string]string{filepath.Join(dir, "cuda.h"): next, program: headerCalls} {
				if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			out, err := exec.Command("cc", "-x", language, "-Wall", "-Werror", "-I"+include, "-I"+dir, "-c", "-o", os.DevNull, program).CombinedOutput()
			if err != nil {
				t.Errorf("%s with the header of CUDA %s: %v\n%s", language, version, err, out)
			}
		}
	}
}

const (
	headerTypes = `#ifndef NEXT
#define NEXT
#include <stddef.h>
#ifdef __cplusplus
extern "C" {
#endif
#define CUDAAPI
typedef int CUresult, CUdevice, CUmem_advise;
typedef struct { int id; } CUmemLocation;
typedef void *CUcontext, *CUstream, *CUgraph, *CUgraphNode, *CUgraphEdgeData, *CUctxCreateParams;
typedef unsigned long long CUdeviceptr;
`
	headerEnd = `#ifdef __cplusplus
}
#endif
#endif
`
	headerOld = `CUresult cuCtxCreate(CUcontext *, unsigned int, CUdevice);
CUresult cuMemAdvise(CUdeviceptr, size_t, CUmem_advise, CUdevice);
CUresult cuMemPrefetchAsync(CUdeviceptr, size_t, CUdevice, CUstream);
CUresult cuGraphAddDependencies(CUgraph, const CUgraphNode *, const CUgraphNode *, size_t);
CUresult cuGraphGetEdges(CUgraph, CUgraphNode *, CUgraphNode *, size_t *);
CUresult cuGraphRemoveDependencies(CUgraph, const CUgraphNode *, const CUgraphNode *, size_t);
CUresult cuStreamUpdateCaptureDependencies(CUstream, CUgraphNode *, size_t, unsigned int);
`
	headerNew = `CUresult cuCtxCreate(CUcontext *, CUctxCreateParams *, unsigned int, CUdevice);
CUresult cuMemAdvise(CUdeviceptr, size_t, CUmem_advise, CUmemLocation);
CUresult cuMemPrefetchAsync(CUdeviceptr, size_t, CUmemLocation, unsigned int, CUstream);
CUresult cuGraphAddDependencies(CUgraph, const CUgraphNode *, const CUgraphNode *, const CUgraphEdgeData *, size_t);
CUresult cuGraphGetEdges(CUgraph, CUgraphNode *, CUgraphNode *, CUgraphEdgeData *, size_t *);
CUresult cuGraphRemoveDependencies(CUgraph, const CUgraphNode *, const CUgraphNode *, const CUgraphEdgeData *, size_t);
CUresult cuStreamUpdateCaptureDependencies(CUstream, CUgraphNode *, const CUgraphEdgeData *, size_t, unsigned int);
`
	headerCalls = `#include <cuda.h>
#include <cuda.h>
CUresult f(CUcontext *c, CUdeviceptr p, CUgraph g, CUgraphNode *n, size_t *s) {
  return cuCtxCreate(c, 0, 0) + cuMemAdvise(p, 1, 0, 0) + cuMemPrefetchAsync(p, 1, 0, 0) + cuGraphAddDependencies(g, n, n, 1) + cuGraphGetEdges(g, n, n, s) +
    cuGraphRemoveDependencies(g, n, n, 1) + cuStreamUpdateCaptureDependencies(0, n, 1, 0);
}
`
)
