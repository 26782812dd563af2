// Package nccl calls NVIDIA's collective library, libnccl.so.2, which is looked
// up when Open is called: nothing of it is needed to build, or to start. The
// benchmark compares the engine of this module with it.
//
// There is code only in builds with cgo and the tag cuda; without them Open
// says so. Versions from 2.18 on are supported: what a version lacks is
// reported (Library.HasWindows), or made from what it has (AllToAll, Gather and
// Scatter are groups of Send and Recv before 2.28).
//
// NCCL reads its environment variables itself. None of them is changed, so that
// it runs as it would without this package: NCCL_NVLS_ENABLE=0, where NVLink
// multicast must not be used, is the caller's to set.
//
// Libraries that OpenFile loads are apart from one another, though all of them have
// the same SONAME and the same functions.
//
// ASSAY_NCCL_LIBRARY names another file than the dynamic linker would find, or
// the directory that libnccl.so.2 is in.
//
// NCCL knows the current CUDA context and open groups by thread. A goroutine
// that uses a Comm is locked to its thread, and the context of the rank's
// device is current there.
package nccl

import "errors"

// ErrUnavailable is why there is no library: the build has no binding, or
// libnccl.so.2 cannot be loaded.
var ErrUnavailable = errors.New("NCCL is not available")
