// Package membw measures how fast memory is copied: between hosts and GPUs,
// between GPUs, and within one, by copy engines and by a kernel; and how long one
// access takes.
//
// Report is what an operator asks for: every way through a node, held against
// what the hardware should reach. The others measure and print as known tools do:
// TestOptions as bandwidthTest, P2POptions as p2pBandwidthLatencyTest, NVOptions as
// nvbandwidth. All of them ask a Machine, which Open gives in builds with cgo and
// the tag cuda.
//
// A GB is 1e9 bytes. Bytes are counted once for each copy, although they are both
// read and written, but for the tools that count them twice and say so.
package membw

//go:generate nvcc --ptx -O3 -std=c++17 -arch=compute_80 -o ptx/kernels.sm_80.ptx ptx/kernels.cu
//go:generate nvcc --ptx -O3 -std=c++17 -arch=compute_90 -o ptx/kernels.sm_90.ptx ptx/kernels.cu
