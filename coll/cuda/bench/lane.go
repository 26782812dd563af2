//go:build cuda && cgo

package bench

import (
	"encoding/binary"
	"errors"
	"fmt"
	"runtime"
	"time"

	"github.com/assay-hpc/assay/coll/perf"
	"github.com/assay-hpc/assay/internal/gpu/driver"
)

// A Lane is a GPU with one stream. It implements perf.Lane: all methods except Close are
// called by one goroutine, locked to a thread on which Bind was called.
type Lane struct {
	context  *driver.Context
	stream   driver.Stream
	kernels  kernels
	patterns patterns
	wrong    driver.Ptr // 8 bytes: the counter of the compare kernels
	marks    []driver.Event
}

// Open creates a lane on a device. The caller closes it before the context.
func Open(context *driver.Context) (*Lane, error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := context.Bind(); err != nil {
		return nil, err
	}
	l := &Lane{context: context}
	if err := l.open(); err != nil {
		return nil, errors.Join(fmt.Errorf("preparing GPU %d: %w", context.Ordinal(), err), l.Close())
	}
	return l, nil
}

func (l *Lane) open() error {
	devices, err := driver.Devices()
	if err != nil {
		return err
	}
	if l.stream, err = driver.NewStream(0); err != nil {
		return err
	}
	if l.wrong, err = driver.Malloc(8); err != nil {
		return err
	}
	if err := driver.Memset8Async(l.wrong, 0, 8, l.stream); err != nil {
		return err
	}
	if err := l.patterns.open(); err != nil {
		return err
	}
	return l.kernels.load(l.stream, devices[l.context.Ordinal()].SMs, l.wrong)
}

// Close waits for what is enqueued and frees what Open created. The caller must first free
// memory of Alloc and graphs. It may be called on any thread.
func (l *Lane) Close() error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := l.context.Bind(); err != nil {
		return err
	}
	var errs []error
	if l.stream != 0 {
		errs = append(errs, l.Wait(), l.stream.Destroy())
	}
	for _, e := range l.marks {
		errs = append(errs, e.Destroy())
	}
	if l.wrong != 0 {
		errs = append(errs, driver.Free(l.wrong))
	}
	return errors.Join(append(errs, l.patterns.close(), l.kernels.close())...)
}

// Stream is the lane's CUstream, for an engine's operations.
func (l *Lane) Stream() uintptr { return uintptr(l.stream) }

// Context returns the device's context, which Open was given.
func (l *Lane) Context() *driver.Context { return l.context }

// Bind makes the device current on the calling thread.
func (l *Lane) Bind() error { return l.context.Bind() }

// Memory returns how much memory is free and how much the device has, in bytes.
func (l *Lane) Memory() (free, total int64, err error) { return driver.MemInfo() }

// Alloc allocates n bytes of the device.
func (l *Lane) Alloc(n int) ([]byte, error) {
	p, err := driver.Malloc(n)
	if err != nil {
		return nil, err
	}
	return Bytes(uintptr(p), n), nil
}

// Free waits for what is enqueued, and frees memory of Alloc. A device that cannot do so has
// failed; Wait reports that.
func (l *Lane) Free(b []byte) {
	_ = l.Wait()
	_ = driver.Free(driver.Ptr(Address(b)))
}

// Wait returns when all enqueued work is done.
func (l *Lane) Wait() error { return l.stream.Synchronize() }

// Fill enqueues a kernel that tiles dst with a pattern, see perf.Lane.
func (l *Lane) Fill(dst, pattern []byte, phase int64) error {
	if len(dst) == 0 {
		return nil
	}
	at, err := l.patterns.get(pattern, l.stream)
	if err != nil {
		return err
	}
	w := widest(Address(dst), uintptr(len(dst)), uintptr(len(pattern)), uintptr(phase))
	return l.kernels.run(l.kernels.tile[w], dst, at, len(pattern), phase, w)
}

// Compare enqueues a kernel that counts differences from a pattern, see perf.Lane.
func (l *Lane) Compare(got, pattern []byte, phase int64, size int, slack uint64) error {
	if len(got) == 0 {
		return nil
	}
	w, err := widthOf(size)
	if err != nil {
		return err
	}
	if err := aligned(w, Address(got), uintptr(len(got)), uintptr(len(pattern)), uintptr(phase)); err != nil {
		return err
	}
	at, err := l.patterns.get(pattern, l.stream)
	if err != nil {
		return err
	}
	k := l.kernels.compare[w]
	set(k, 5, slack)
	return l.kernels.run(k, got, at, len(pattern), phase, w)
}

// Read waits, and copies memory of the device.
func (l *Lane) Read(dst, src []byte) error {
	if err := l.Wait(); err != nil {
		return err
	}
	return driver.CopyFromDevice(dst, driver.Ptr(Address(src)))
}

// Wrong waits and returns the count of all Compares since its last call.
func (l *Lane) Wrong() (int64, error) {
	if err := l.Wait(); err != nil {
		return 0, err
	}
	var n [8]byte
	if err := driver.CopyFromDevice(n[:], l.wrong); err != nil {
		return 0, err
	}
	return int64(binary.NativeEndian.Uint64(n[:])), driver.Memset8Async(l.wrong, 0, len(n), l.stream)
}

// Mark enqueues a time stamp, which becomes mark i.
func (l *Lane) Mark(i int) error {
	for len(l.marks) <= i {
		e, err := driver.NewEvent(driver.Timing)
		if err != nil {
			return err
		}
		l.marks = append(l.marks, e)
	}
	return l.marks[i].Record(l.stream)
}

// Between waits for mark j, and returns how long after mark i it was taken, accurate to half a
// microsecond.
func (l *Lane) Between(i, j int) (time.Duration, error) {
	if err := l.marks[j].Synchronize(); err != nil {
		return 0, err
	}
	return driver.Elapsed(l.marks[i], l.marks[j])
}

// Capture records what f enqueues instead of running it.
func (l *Lane) Capture(f func() error) (perf.Graph, error) {
	if err := l.stream.BeginCapture(); err != nil {
		return nil, err
	}
	err := f()
	g, ended := l.stream.EndCapture()
	if err == nil {
		err = ended
	}
	if ended != nil {
		return nil, err
	}
	defer func() { _ = g.Destroy() }() // only the instance is launched
	if err != nil {
		return nil, err
	}
	x, err := g.Instantiate()
	if err != nil {
		return nil, err
	}
	return graph{x, l.stream}, nil
}

// A graph is recorded work, on the lane's stream.
type graph struct {
	exec   *driver.GraphExec
	stream driver.Stream
}

// Launch implements perf.Graph.
func (g graph) Launch() error { return g.exec.Launch(g.stream) }

// Close implements perf.Graph.
func (g graph) Close() error { return g.exec.Destroy() }
