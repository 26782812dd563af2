// Package bench is the device side of the benchmark (coll/perf): a Lane is a
// GPU with a stream, on which memory is filled, compared and timed and
// operations are recorded; both engines share it. NCCL puts NVIDIA's library
// behind the benchmark's interface.
//
// There is code only in builds with cgo and the tag cuda.
//
// Test data is made and compared by the kernels of check.cu, every element of
// it. check.ptx is what nvcc makes of them, for devices of compute capability
// 8.0 and newer.
package bench
