package coll

import "github.com/assay-hpc/assay/coll/transport/shm"

// Alloc returns n bytes of zeroed memory outside Go's heap, of the kind that suits the engine
// best: other ranks of the host can access it, so long messages are not copied on the way.
// Release it with Free.
func Alloc(n int) ([]byte, error) { return shm.Alloc(n) }

// Free releases memory that Alloc returned. As with all buffers, no operation may be using it: an
// operation that returned without an error no longer does, but a failed one may until Abort or
// Destroy of its communicator has returned.
func Free(b []byte) error { return shm.Free(b) }
