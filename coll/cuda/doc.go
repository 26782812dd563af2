// Package cuda does coll's operations on the memory of NVIDIA GPUs. A program
// that gives coll its Factory, as Config.GPUs, can make communicators with a
// Config.Device. The Factory is there in builds with cgo and the tag cuda.
//
// # How it works
//
// Each rank has a window: memory on its device that all other ranks of the
// communicator write into. An operation is one kernel on every rank's stream.
// It pushes what goes to the others into their windows, and takes what comes
// out of its own (coll/cuda/kernels says how). Nothing of it needs the
// processor once it is enqueued, so that operations can be captured in graphs
// and be replayed. Large messages go by copy engines instead, where that was
// measured to be faster (copies.go): several kernels and copies an operation.
//
// Windows are reached through peer access, between processes through CUDA's
// handles for them. Where devices cannot reach one another, windows are in the
// processor's memory, which they all reach (hosted.go). Between hosts, and where
// no memory may be shared, operations are staged in the processor's memory and
// done by coll's engine for that (staged.go); such operations cannot be
// captured.
//
// Results have the same bits on all ranks and in every run. Sums and products of
// narrow floats are bit for bit what coll computes on host memory when it reduces
// in the order of the ranks; what goes from rank to rank (reduce_chain, and
// copyring.go) begins with another rank.
//
// # Rules for the caller
//
// All ranks enqueue the same operations in the same order, one of which is on
// its way at a time: a rank that works on two streams has it ordered. Ranks
// that share a device need streams of their own that do not wait for one
// another; the default stream does.
package cuda
