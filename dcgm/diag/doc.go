// Package diag tests GPUs by using them, with the levels and test names of NVIDIA's DCGM: it fills
// and verifies memory, multiplies matrices on all multiprocessors and compares the results, copies
// between hosts and GPUs and between GPUs, and loads GPUs while it watches their clocks.
//
// Each test runs in its own process, a child: a fault that poisons its CUDA context, a crash or a
// hang fails only that test. Run is the parent's side, Child the child's. A test uses GPUs through
// Machine, which Open returns in builds with cgo and the tag cuda, and reads their state under load
// from Sensors, which internal/host/nvml provides in builds with the tag nvml.
//
// A GB is 1e9 bytes.
package diag

//go:generate sh -c "cd ptx && ./generate ."
