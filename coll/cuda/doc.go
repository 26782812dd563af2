// Package cuda does coll's operations on the memory of NVIDIA GPUs. A program that passes its
// Factory to coll as Config.GPUs can create communicators with a Config.Device. The Factory
// exists in builds with cgo and the tag cuda.
//
// # How it works
//
// Each rank has a window: memory on its device that all other ranks of the communicator write
// into. An operation is one kernel on every rank's stream. The kernel pushes the data for its
// peers into their windows and takes the data for this rank out of its own window (see
// coll/cuda/kernels). Once enqueued, an operation needs nothing from the CPU, so operations
// can be captured in graphs and replayed. Where measurements show it to be faster, large
// messages use copy engines instead (copies.go), with several copies, and at times kernels, per
// operation.
//
// Windows are reached through peer access, and between processes through CUDA's memory
// handles. Where devices have no peer access, the windows are in host memory, which all
// devices reach (hosted.go). Between hosts, and where memory cannot be shared, operations are
// staged in host memory and done by coll's engine for host memory (staged.go); such operations
// cannot be captured.
//
// Results have the same bits on all ranks and in every run. Sums and products of narrow floats
// are bit for bit what coll computes on host memory when it reduces in rank order. Algorithms
// that pass data from rank to rank (reduce_chain and copyring.go) start with another rank.
//
// # Rules for the caller
//
// All ranks enqueue the same operations in the same order. Only one operation is in progress
// at a time: if a rank uses two streams, its operations are ordered across them. Ranks that
// share a device each need their own stream, and these streams must not wait for one another;
// the default stream does wait for others.
package cuda
