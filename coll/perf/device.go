package perf

import "time"

// A Remote is a Comm on device memory. Its buffers are slices over device addresses
// (unsafe.Slice): the processor must not touch their bytes, and this package does not. Its
// operations are enqueued on the lane's stream and return at once; those of a Group are enqueued
// when Group returns. Exchange and Barrier run on the processor and do not wait for the device.
// Alloc returns when the memory is allocated; Free waits for what is enqueued.
type Remote interface {
	Comm
	Lane
}

// A Lane is a device with one stream. All enqueued work is done in the stream's order. A rank's
// goroutine is locked to its OS thread and is the only one that calls the Lane.
type Lane interface {
	// Bind makes the device the current one of the calling OS thread. It is
	// called before everything else, and once for each of the rank's Comms.
	Bind() error
	// Memory returns how many bytes of the device are free, and how many it has in total.
	Memory() (free, total int64, err error)
	// Wait returns when all enqueued work is done, with the error of work that failed.
	Wait() error

	// Fill enqueues the tiling of dst with a pattern in host memory: dst[i] = pattern[(phase+i) %
	// len(pattern)]. 0 <= phase < len(pattern). dst may be empty, and is aligned to the element
	// only. A pattern is not changed after it was first passed, so a Lane that keeps a reference
	// to the slice may cache a copy of it on the device.
	Fill(dst, pattern []byte, phase int64) error
	// Compare enqueues a count of the elements of got that differ from what Fill writes with the
	// same pattern and phase. Elements have size bytes (1, 2, 4 or 8), and len(got), len(pattern)
	// and phase are multiples of size. An element is wrong if its bits, taken as an unsigned
	// integer, differ from the pattern's by more than slack.
	Compare(got, pattern []byte, phase int64, size int, slack uint64) error
	// Wrong waits, and returns how many wrong elements the Compares since the last Wrong have
	// found in total.
	Wrong() (int64, error)

	// Read waits, and copies memory of the device to memory of the processor.
	Read(dst, src []byte) error

	// Mark enqueues a time stamp as mark i (from 0 on; a later Mark with the same i replaces it).
	// Between waits for mark j, and returns the time from mark i to mark j.
	Mark(i int) error
	Between(i, j int) (time.Duration, error)

	// Capture records what f enqueues, instead of doing it. Every rank captures the same
	// operations in the same order. If f fails, Capture returns its error.
	Capture(f func() error) (Graph, error)
}

// A Graph is recorded work that can be enqueued again and again on the lane
// that it was captured on.
type Graph interface {
	Launch() error // enqueues all of it
	Close() error  // after Wait
}

// A ModeSetter is a Comm that is faster, or otherwise different, on some kinds of memory: NCCL on
// buffers that are registered as a symmetric window. A mode is a kind of memory; operations on it
// need no other calls. Every engine can work on every other engine's memory.
type ModeSetter interface {
	// Modes returns the names of the modes, the same on every rank: "plain", "symmetric". The
	// first is memory as Alloc returns it, and is not passed to AllocMode.
	Modes() []string
	// AllocMode allocates n bytes of a kind. Every rank calls it at the same point, with the same
	// n. If it fails on some ranks, it must still return on all of them.
	AllocMode(mode string, n int) ([]byte, error)
	// FreeMode releases memory of AllocMode. Every rank calls it at the same point, unless the
	// world was aborted.
	FreeMode(mode string, b []byte)
}

// A Registrar is a Comm that is faster, or otherwise different, on memory that all ranks have
// registered with it, whoever allocated it.
type Registrar interface {
	// Register registers memory. Every rank calls it at the same point, with the same length. It
	// is no error if that changes nothing.
	Register(b []byte) error
	// Deregister ends that. Every rank calls it at the same point, after Wait, unless the world
	// was aborted.
	Deregister(b []byte)
}

// A Rival is another engine on the ranks of a World, for comparison.
type Rival struct {
	Engine  string // "nccl"
	Version int    // of its library, as NCCL encodes it
	// Comms are this process's ranks, in the order of the World's. Each one uses the same device
	// as the World's, and works on its memory. Exchange and Barrier are not called.
	Comms []Comm
}

// laneOf returns the device that a Comm works on; nil for the processor.
func laneOf(c Comm) Lane {
	if r, ok := c.(Remote); ok {
		return r
	}
	return nil
}
