// Package membw measures the bandwidth of memory copies between hosts and GPUs, between GPUs, and
// within one GPU, by copy engines and by a kernel; and the latency of a single access.
//
// Report is for operators: it compares every path through a node with what the hardware should
// reach. The other modes measure and print like known tools: TestOptions like bandwidthTest,
// P2POptions like p2pBandwidthLatencyTest, NVOptions like nvbandwidth. All of them use a Machine,
// which Open returns in builds with cgo and the tag cuda.
//
// A GB is 1e9 bytes. The bytes of a copy are counted once although they are both read and written,
// except for the tools that count them twice and say so.
package membw

//go:generate nvcc --ptx -O3 -std=c++17 -arch=compute_80 -o ptx/kernels.sm_80.ptx ptx/kernels.cu
//go:generate nvcc --ptx -O3 -std=c++17 -arch=compute_90 -o ptx/kernels.sm_90.ptx ptx/kernels.cu
