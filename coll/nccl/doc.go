// Package nccl calls NVIDIA's collective library, libnccl.so.2, which is looked up when Open is
// called: the library is needed neither to build nor to start. The benchmark compares the engine
// of this module with it.
//
// The binding exists only in builds with cgo and the tag cuda; in others Open returns an error
// that says so. Versions from 2.18 on are supported: what a version lacks is reported
// (Library.HasWindows), or built from what it has (AllToAll, Gather and Scatter are groups of
// Send and Recv before 2.28).
//
// NCCL reads its environment variables itself. This package changes none of them, so that NCCL
// runs as it would without this package: where NVLink multicast must not be used, the caller must
// set NCCL_NVLS_ENABLE=0.
//
// Libraries that OpenFile loads are separate from one another, although all of them have the same
// SONAME and the same functions.
//
// ASSAY_NCCL_LIBRARY names a file to load instead of the one that the dynamic linker would find,
// or the directory that libnccl.so.2 is in.
//
// NCCL tracks the current CUDA context and open groups per thread. A goroutine that uses a Comm
// is locked to its thread, and the context of the rank's device is current there.
package nccl

import "errors"

// ErrUnavailable is the error if there is no library: the build has no binding, or libnccl.so.2
// cannot be loaded.
var ErrUnavailable = errors.New("NCCL is not available")
