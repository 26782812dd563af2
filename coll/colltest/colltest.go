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

import "github.com/assay-hpc/assay/coll/op"

// A Comm is one rank of a communicator.
type Comm interface {
	Rank() int
	Size() int
	// Do does an operation, and blocks until the rank's part of it is complete. Its
	// buffers may have more than it needs.
	Do(o *op.Op) error
}
