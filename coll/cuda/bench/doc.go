// Package bench is the device side of the benchmark (coll/perf). A Lane is a GPU with a stream
// on which memory is filled and compared, times are taken and operations are recorded; both
// engines share it. NCCL adapts NVIDIA's library to the benchmark's interface.
//
// There is code only in builds with cgo and the tag cuda.
//
// The kernels of check.cu write the test data and compare every element of it. check.ptx is
// compiled from them by nvcc, for devices of compute capability 8.0 and newer.
package bench
