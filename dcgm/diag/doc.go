// Package diag tests GPUs by using them, in the levels of NVIDIA's DCGM and under
// the names that its tests have there: it fills and verifies memory, multiplies
// matrices on all multiprocessors and compares the results, copies between hosts
// and GPUs and between GPUs, and loads GPUs while it watches their clocks.
//
// Each test runs in a process of its own, a child: a fault that poisons its CUDA
// context, a crash or a hang fails that test alone. Run is the parent's side, Child
// the other one. What a test does with GPUs goes through Machine, which Open gives
// in builds with cgo and the tag cuda; what it reads of them meanwhile comes from
// Sensors, which harness/nvml gives in builds with the tag nvml.
//
// A GB is 1e9 bytes.
package diag

//go:generate sh -c "cd ptx && ./generate ."
