// Package colltest tests collective engines: one conformance suite for all
// (Run), and rough treatment (Start, Chaos, Watch, Veth, NewWire).
//
// # Conformance
//
// Run takes ranks, however they are connected, through all collectives, types
// and reductions at lengths around every edge. What must come out is computed
// here, from the definition and independently of the engine: integers as
// residues, floats in float64 with inputs chosen so that each partial result
// in whatever order is representable. So results are compared bit by bit. The
// one exception is the average of floats, where two ULP are allowed, as in
// nccl-tests. Memory around and between the buffers, and what a rank only
// reads, must not change.
//
// # Rough treatment
//
// Start runs ranks as processes of their own by executing the test binary
// anew; Main, called by TestMain, is the way back in. Chaos kills one of them
// at a random moment, many times, and looks at what the survivors say. Watch
// fails a test that leaves goroutines, files, mappings, shared memory or
// processes behind. Veth and NewWire make two network namespaces with a link
// between them, NewWire one that loses, delays and swallows packets.
package colltest

import "github.com/assay-hpc/assay/coll/elem"

// A Comm is one rank of a communicator. Each method blocks until the rank's
// part of the operation is complete. Buffers and counts are as in NCCL:
// AllGather's, Gather's and Scatter's count is that of one rank's part, and so
// are ReduceScatter's and AllToAll's.
type Comm interface {
	Rank() int
	Size() int
	AllReduce(send, recv []byte, count int, t elem.Type, op elem.Op) error
	Broadcast(send, recv []byte, count int, t elem.Type, root int) error
	Reduce(send, recv []byte, count int, t elem.Type, op elem.Op, root int) error
	AllGather(send, recv []byte, count int, t elem.Type) error
	ReduceScatter(send, recv []byte, count int, t elem.Type, op elem.Op) error
	AllToAll(send, recv []byte, count int, t elem.Type) error
	Gather(send, recv []byte, count int, t elem.Type, root int) error
	Scatter(send, recv []byte, count int, t elem.Type, root int) error
	SendRecv(send []byte, to int, recv []byte, from int, count int, t elem.Type) error
}
