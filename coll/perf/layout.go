package perf

import (
	"bytes"

	"github.com/assay-hpc/assay/coll/elem"
)

// A pattern is a period of elements that repeats endlessly.
type pattern struct {
	t     elem.Type
	data  []byte
	slack uint64 // by how many units in the last place an element may differ
}

// elements is the pattern's period.
func (p *pattern) elements() int { return len(p.data) / p.t.Size() }

// A segment is a run of elements of a pattern.
type segment struct {
	p     *pattern
	first int64 // index of the run's first element
	n     int64 // elements
}

// A layout is the expected content of memory: segments, one after the other.
type layout []segment

// runs calls f with each piece of mem, and its expected content.
func (im layout) runs(mem []byte, f func(p *pattern, mem, want []byte)) {
	for _, s := range im {
		size := int64(s.p.t.Size())
		at := int(s.first % int64(s.p.elements()) * size)
		for left := int(s.n * size); left > 0; at = 0 {
			k := min(left, len(s.p.data)-at)
			f(s.p, mem[:k], s.p.data[at:at+k])
			mem, left = mem[k:], left-k
		}
	}
}

// pieces calls f with the memory of each segment, and the offset in the pattern at which it
// begins, in bytes.
func (im layout) pieces(mem []byte, f func(s segment, mem []byte, phase int64) error) error {
	for _, s := range im {
		size := int64(s.p.t.Size())
		n := s.n * size
		if n == 0 {
			continue
		}
		if err := f(s, mem[:n], s.first%int64(s.p.elements())*size); err != nil {
			return err
		}
		mem = mem[n:]
	}
	return nil
}

// bytes is how much memory the layout covers.
func (im layout) bytes() int64 {
	n := int64(0)
	for _, s := range im {
		n += s.n * int64(s.p.t.Size())
	}
	return n
}

// fill writes the layout into mem.
func (im layout) fill(mem []byte) {
	im.runs(mem, func(_ *pattern, mem, want []byte) { copy(mem, want) })
}

// wrong counts the elements of mem that differ from the layout.
func (im layout) wrong(mem []byte) int64 {
	bad := int64(0)
	im.runs(mem, func(p *pattern, mem, want []byte) {
		if !bytes.Equal(mem, want) {
			bad += p.wrong(mem, want)
		}
	})
	return bad
}

func (p *pattern) wrong(mem, want []byte) int64 {
	bad := int64(0)
	for i := range len(mem) / p.t.Size() {
		if ulps(elem.Bits(mem, p.t, i), elem.Bits(want, p.t, i)) > p.slack {
			bad++
		}
	}
	return bad
}
