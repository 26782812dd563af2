// Package colltest tests collective engines: with one conformance suite for all of them (Run),
// and under faults (Start, Chaos, Watch, Veth, NewWire).
//
// # Conformance
//
// Run runs all collectives, types and reductions on ranks, however they are connected, at lengths
// around every edge. The expected results are computed here, from the definition and
// independently of the engine: integers as residues, floats in float64 with inputs chosen so that
// each partial result, in any order, is representable. So results are compared bit by bit. The
// one exception is the average of floats, where two ULP are allowed, as in nccl-tests. Memory
// around and between the buffers, and memory that a rank only reads, must not change.
//
// # Faults
//
// Start runs ranks as processes of their own by executing the test binary again; Main, called by
// TestMain, runs the rank there. Chaos kills one of them at a random moment, many times, and
// checks what the survivors report. Watch fails a test that leaves goroutines, files, mappings,
// shared memory or processes behind. Veth and NewWire create two network namespaces with a link
// between them, NewWire one that loses, delays and drops packets.
package colltest

import "github.com/assay-hpc/assay/coll/op"

// A Comm is one rank of a communicator.
type Comm interface {
	Rank() int
	Size() int
	// Do does an operation, and blocks until the rank's part of it is complete. The buffers may
	// be longer than it needs.
	Do(o *op.Op) error
}
