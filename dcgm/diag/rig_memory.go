//go:build cuda && cgo

package diag

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	"github.com/assay-hpc/assay/internal/gpu/driver"
)

const (
	// kernelThreads is the number of threads per block of the kernels that access memory.
	kernelThreads = 512
	// smallest is the smallest piece that is tried, and pieces are multiples of it: it is the size
	// of the driver's pages.
	smallest = 2 << 20
	// reserve stays free while pieces are allocated: the driver allocates some memory when a kernel
	// runs for the first time.
	reserve = 64 << 20
)

// Take implements Device.
func (d *device) Take(most int64) (got, of int64, err error) {
	if err := d.Free(); err != nil {
		return 0, 0, err
	}
	free, of, err := driver.MemInfo()
	if err != nil {
		return 0, 0, err
	}
	most = cmp.Or(most, free-reserve) / smallest * smallest
	for size := most; size >= smallest && got < most; {
		size = min(size, most-got)
		p, err := driver.Malloc(int(size))
		switch {
		case errors.Is(err, driver.ErrOutOfMemory):
			size = size / 2 / smallest * smallest
		case err != nil:
			return got, of, err
		default:
			d.pieces = append(d.pieces, piece{p, size})
			got += size
		}
	}
	if got == 0 {
		return 0, of, fmt.Errorf("%w: %d bytes of %d are free: end the processes that use the GPU", driver.ErrOutOfMemory, free, of)
	}
	return got, of, nil
}

// Write implements Device.
func (d *device) Write(p memPattern) (float64, error) {
	if err := d.Bind(); err != nil {
		return 0, err
	}
	return d.lane.Time(func() error {
		for _, m := range d.pieces {
			if err := d.write(m.at, m.bytes, p); err != nil {
				return err
			}
		}
		return nil
	})
}

func (d *device) write(at driver.Ptr, bytes int64, p memPattern) error {
	return d.launch("pattern_write", uint64(at), uint64(bytes)/16, uint64(p.Kind), p.Seed)
}

// verify enqueues the comparison; base is the address where the pattern was written.
func (d *device) verify(at driver.Ptr, bytes int64, p memPattern, base driver.Ptr, invert bool) error {
	flag := uint64(0)
	if invert {
		flag = 1
	}
	return d.launch("pattern_verify", uint64(at), uint64(bytes)/16, uint64(p.Kind), p.Seed, uint64(base), flag, uint64(d.wrong))
}

// found runs comparisons and returns their miscompares.
func (d *device) found(f func() error) (m miscompares, seconds float64, err error) {
	if err := d.Bind(); err != nil {
		return m, 0, err
	}
	if err := driver.Memset8Async(d.wrong, 0, miscompareBytes, d.lane.Stream); err != nil {
		return m, 0, err
	}
	if seconds, err = d.lane.Time(f); err != nil {
		return m, 0, err
	}
	b := make([]byte, miscompareBytes)
	if err := driver.CopyFromDevice(b, d.wrong); err != nil {
		return m, 0, err
	}
	m, err = parseMiscompares(b)
	return m, seconds, err
}

// Verify implements Device.
func (d *device) Verify(p memPattern, invert bool) (miscompares, float64, error) {
	return d.found(func() error {
		for _, m := range d.pieces {
			if err := d.verify(m.at, m.bytes, p, m.at, invert); err != nil {
				return err
			}
		}
		return nil
	})
}

// Flip implements Device.
func (d *device) Flip(offset int64, mask uint64) error {
	if err := d.Bind(); err != nil {
		return err
	}
	for _, m := range d.pieces {
		if offset < m.bytes {
			if err := d.Run("flip", d.lane.Stream, 1, uint64(m.at)+uint64(offset), mask); err != nil {
				return err
			}
			return d.lane.Synchronize()
		}
		offset -= m.bytes
	}
	return fmt.Errorf("there is no byte %d of what was taken", offset)
}

// The values in a stream's arrays b and c, and the result of triad in a.
const streamB, streamC, streamA = 1.5, 2.25, streamB + 3*streamC

// Stream implements Device. Each array is a third of the largest piece.
func (d *device) Stream(s streamKind) (bytes int64, seconds float64, err error) {
	if err := d.Bind(); err != nil {
		return 0, 0, err
	}
	var room piece
	for _, m := range d.pieces {
		if m.bytes > room.bytes {
			room = m
		}
	}
	n := room.bytes / 3 / 256 * 256
	if n == 0 {
		return 0, 0, errors.New("no memory was taken for a stream")
	}
	a, b, c := room.at, room.at+driver.Ptr(n), room.at+driver.Ptr(2*n)
	fill := func(at driver.Ptr, v float64) error {
		return d.write(at, n, memPattern{Kind: constantWord, Seed: math.Float64bits(v)})
	}
	if err := errors.Join(fill(a, 0), fill(b, streamB), fill(c, streamC)); err != nil {
		return 0, 0, err
	}
	words := uint64(n) / 16
	run := func(name string, params ...uint64) func() error {
		return func() error { return d.launch(name, append(params, words)...) }
	}
	switch s {
	case writeStream:
		seconds, err = d.lane.Time(func() error { return fill(a, streamB) })
		return n, seconds, errors.Join(err, d.summed(a, n, streamB))
	case copyStream:
		seconds, err = d.lane.Time(run("stream_copy", uint64(a), uint64(b)))
		return 2 * n, seconds, errors.Join(err, d.summed(a, n, streamB))
	case triadStream:
		seconds, err = d.lane.Time(run("stream_triad", uint64(a), uint64(b), uint64(c)))
		return 3 * n, seconds, errors.Join(err, d.summed(a, n, streamA))
	}
	seconds, err = d.sum(b, n, streamB)
	return n, seconds, err
}

// summed returns an error if memory does not contain the number everywhere.
func (d *device) summed(at driver.Ptr, bytes int64, v float64) error {
	_, err := d.sum(at, bytes, v)
	return err
}

// sum reads memory and checks the sum of its words.
func (d *device) sum(at driver.Ptr, bytes int64, v float64) (float64, error) {
	if err := driver.Memset8Async(d.wrong, 0, 8, d.lane.Stream); err != nil {
		return 0, err
	}
	seconds, err := d.lane.Time(func() error {
		return d.launch("stream_read", uint64(at), uint64(bytes)/16, uint64(d.wrong))
	})
	if err != nil {
		return 0, err
	}
	var b [8]byte
	if err := driver.CopyFromDevice(b[:], d.wrong); err != nil {
		return 0, err
	}
	if got, want := binary.LittleEndian.Uint64(b[:]), uint64(bytes)/8*math.Float64bits(v); got != want {
		return 0, &wrongSum{got, want}
	}
	return seconds, nil
}

// A wrongSum is the error for memory that does not contain what was written.
type wrongSum struct{ got, want uint64 }

func (e *wrongSum) Error() string {
	return fmt.Sprintf("wrong data: the words of a stream add up to %#x, not %#x", e.got, e.want)
}
