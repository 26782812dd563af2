package coll

import "github.com/assay-hpc/assay/coll/transport/shm"

// Alloc returns n bytes of zeroed memory as the engine likes it best: other
// ranks of the host can see it, so that long messages are not copied on their
// way. It lies outside of Go's heap and is given back with Free.
func Alloc(n int) ([]byte, error) { return shm.Alloc(n) }

// Free gives back what Alloc returned. As with all buffers, no operation may be
// using it. One that has returned no error does not; one that failed may, until
// Abort or Destroy of its communicator has returned.
func Free(b []byte) error { return shm.Free(b) }
