//go:build cuda && cgo

package cuda

import (
	"encoding/binary"
	"time"

	"github.com/assay-hpc/assay/internal/gpu/driver"
)

// A departure is the end of a rank's communicator that not all ranks left together. Another
// rank's kernels, behind other work of its GPU, may still write to this rank's memory, until it
// has marked its end in this rank's window, or its process has ended.
type departure struct {
	marks  driver.Ptr // in this rank's window: a word for each rank
	gone   func(rank int) bool
	rank   int
	words  *loan // pinned memory, into which marks are read
	over   bool
	looked time.Time
}

// markedAt is where a rank has the word with which it marks its end in other windows, in pinned
// memory; the stop word is before it.
const markedAt = 32

// marks is the offset of the marks in a window.
func (l layout) marks() int { return l.size() - 4*l.ranks }

// depart tells the other ranks that no kernel of this one runs any more, and returns the
// departure, until which this rank's memory is not lent again. A suspended communicator has none:
// no kernel of any rank has run since all gave their windows back.
func (e *engine) depart() *departure {
	if e.windows.own == nil {
		return nil
	}
	d := &departure{marks: e.windows.own.ptr + driver.Ptr(e.chooser.marks()), gone: e.cfg.Gone, rank: e.cfg.Rank}
	if words, err := newPinned(4 * e.cfg.Size); err == nil {
		d.words = words
	}
	if e.pinned == nil { // it could not be opened; the others' memory stays unused
		return d
	}
	e.pinned.bytes[markedAt] = 1
	_ = copied(func(s driver.Stream) error {
		for r, at := range e.windows.at {
			if r == e.cfg.Rank {
				continue
			}
			if err := driver.CopyAsync(at+driver.Ptr(e.chooser.marks()+4*e.cfg.Rank), e.pinned.ptr+markedAt, 4, s); err != nil {
				return err
			}
		}
		return nil
	})
	return d
}

// ended reports whether nobody writes to the memory any more. The arena is locked, and the
// device's context current.
func (d *departure) ended() bool {
	if d == nil || d.over {
		return true
	}
	if d.words == nil || time.Since(d.looked) < time.Second {
		return false
	}
	d.looked = time.Now()
	clear(d.words.bytes)
	if !copied(func(s driver.Stream) error { return driver.CopyAsync(d.words.ptr, d.marks, len(d.words.bytes), s) }) {
		return false
	}
	for r := range len(d.words.bytes) / 4 {
		if r != d.rank && binary.LittleEndian.Uint32(d.words.bytes[4*r:]) == 0 && (d.gone == nil || !d.gone(r)) {
			return false
		}
	}
	d.end()
	return true
}

// end lets the memory be lent again.
func (d *departure) end() {
	if d.over = true; d.words != nil {
		_ = d.words.free()
		d.words = nil
	}
}

// copied enqueues copies on a stream of their own, and reports whether they end within a second:
// copies of the program may be before them.
func copied(enqueue func(driver.Stream) error) bool {
	s, err := driver.NewStream(-1)
	if err != nil {
		return false
	}
	defer s.Destroy()
	if enqueue(s) != nil {
		return false
	}
	for until := time.Now().Add(time.Second); time.Now().Before(until); time.Sleep(20 * time.Microsecond) {
		if done, err := s.Query(); done || err != nil {
			return err == nil
		}
	}
	return false
}
