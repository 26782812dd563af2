package perf

import "time"

// A Remote is a Comm whose memory is a device's. Its buffers are slices over
// the device's addresses (unsafe.Slice): the processor must not touch their
// bytes, and this package does not. Its operations are enqueued on the lane's
// stream and return at once; Group's are enqueued when Group returns.
// Exchange and Barrier are the processor's, and wait for nothing on the
// device. Alloc returns when the memory is there; Free waits for what is
// enqueued.
type Remote interface {
	Comm
	Lane
}

// A Lane is a device with one stream, in whose order all enqueued work is
// done. A rank's goroutine is locked to its OS thread and is the only one that
// calls it.
type Lane interface {
	// Bind makes the device the current one of the calling OS thread. It is
	// called before everything else, and once for each of the rank's Comms.
	Bind() error
	// Memory is how many bytes of the device are free, and how many it has.
	Memory() (free, total int64, err error)
	// Wait returns when all enqueued work is done, with the error of that which
	// failed.
	Wait() error

	// Fill enqueues the tiling of dst with a pattern of the processor's memory:
	// dst[i] = pattern[(phase+i) % len(pattern)]. 0 <= phase < len(pattern).
	// dst may be empty, and is aligned to the element only. Nobody changes a
	// pattern after it was first passed, so a Lane that holds on to the slice
	// may keep a copy of it on the device.
	Fill(dst, pattern []byte, phase int64) error
	// Compare enqueues the counting of those elements of got that are not what
	// Fill with the same pattern and phase writes. Elements have size bytes (1,
	// 2, 4 or 8), and len(got), len(pattern) and phase are multiples of it. One
	// is wrong when its bits, taken as an unsigned integer, are more than slack
	// away from the pattern's.
	Compare(got, pattern []byte, phase int64, size int, slack uint64) error
	// Wrong waits, and returns how many wrong elements the Compares since the
	// last Wrong have counted together.
	Wrong() (int64, error)

	// Mark enqueues the taking of the time as mark i (from 0 on; a later Mark
	// with the same i replaces it). Between waits for mark j, and returns how
	// long after mark i it was taken.
	Mark(i int) error
	Between(i, j int) (time.Duration, error)

	// Capture records what f enqueues, instead of doing it. Every rank captures
	// the same operations in the same order. f's error is Capture's.
	Capture(f func() error) (Graph, error)
}

// A Graph is recorded work that can be enqueued again and again on the lane
// that it was captured on.
type Graph interface {
	Launch() error // enqueues all of it
	Close() error  // after Wait
}

// A ModeSetter is a Comm that is faster, or else different, on memory of several
// kinds: NCCL on buffers that are registered as a symmetric window. A mode is a
// kind of memory; operations on it need no other calls. Every engine can work
// on every other's memory.
type ModeSetter interface {
	// Modes names them, the same ones on every rank. The first is memory as
	// Alloc returns it, and is not passed to AllocMode: "plain", "symmetric".
	Modes() []string
	// AllocMode allocates n bytes of a kind. Every rank calls it at the same
	// point, with the same n. It must not fail on some ranks only without all
	// of them returning.
	AllocMode(mode string, n int) ([]byte, error)
	// FreeMode takes them back. Every rank calls it at the same point, unless
	// the world was aborted.
	FreeMode(mode string, b []byte)
}

// A Rival is another engine over the ranks of a World, to compare it with.
type Rival struct {
	Engine  string // "nccl"
	Version int    // of its library, as NCCL encodes it
	// Comms are this process's ranks, in the order of the World's. Each is on
	// the device of the World's, and works on its memory. Exchange and Barrier
	// are not called.
	Comms []Comm
}

// laneOf is the device that a Comm works on; nil for the processor.
func laneOf(c Comm) Lane {
	if r, ok := c.(Remote); ok {
		return r
	}
	return nil
}
