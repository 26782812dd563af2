// Package driver calls NVIDIA's driver, libcuda.so.1, which is looked up at the
// first call that needs it: a program with this package starts on any machine
// and Init says why there are no GPUs.
//
// There is code only in builds with cgo and the tag cuda, which need cuda.h of
// CUDA 11.8 or 12: CUDA 13 changed functions that gorgonia.org/cu calls. Where it
// is not in /usr/include or /usr/local/cuda/include, CGO_CFLAGS names its
// directory: CGO_CFLAGS=-I$CUDA_HOME/include. The driver must be of branch 525
// (CUDA 12.0) or newer.
//
// Devices, contexts, memory, streams, events and modules are gorgonia.org/cu's
// underneath. That package links with libcuda.so and calls cuInit when the
// program starts; here every function that it refers to is defined as a stub
// (stubs_amd64.S, stubs_arm64.S) that jumps to the driver's, so that neither
// needs a driver. What the package lacks is called directly: pinned memory,
// prepared launches, graphs, handles for other processes.
//
// # Threads
//
// CUDA knows the current context by operating system thread. Functions that say
// so work on the current one; a goroutine that calls them is locked to its
// thread (runtime.LockOSThread) and has called Context.Bind. Handles (Stream,
// Event, Ptr) may be used from any thread on which their context is current.
package driver

//go:generate go run ./internal/stubgen
