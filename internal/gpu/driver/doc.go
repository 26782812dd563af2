// Package driver calls NVIDIA's driver, libcuda.so.1, which is loaded at the first call that
// needs it: a program with this package starts on any machine, and Init returns why there are
// no GPUs.
//
// There is code for GPUs only in builds with cgo and the tag cuda. These need cuda.h of CUDA 11.8
// or newer:
//
//	CGO_CFLAGS="-O2 -I$PWD/internal/gpu/driver/include -idirafter $CUDA_HOME/include"
//
// With -I$CUDA_HOME/include the toolkit's nvml.h would hide go-nvml's. The directory include has a
// cuda.h in front of CUDA 13's, which changed functions that gorgonia.org/cu calls; CUDA before 13
// in /usr/include or /usr/local/cuda/include needs none of the flags. The driver must be of branch
// 525 (CUDA 12.0) or newer.
//
// Devices, contexts, memory, streams, events and modules are built on gorgonia.org/cu. That
// package links with libcuda.so and calls cuInit when the program starts. So that neither
// needs a driver, every function that it refers to is defined here as a stub (stubs_amd64.S,
// stubs_arm64.S) that jumps to the driver's function. What gorgonia.org/cu lacks is called
// directly: pinned memory, prepared launches, graphs, handles for other processes.
//
// # Threads
//
// CUDA has one current context per operating system thread. Functions that are documented to
// use the current context must be called by a goroutine that is locked to its thread
// (runtime.LockOSThread) and has called Context.Bind. Handles (Stream, Event, Ptr) may be used
// from any thread on which their context is current.
package driver

//go:generate go run ./internal/stubgen
