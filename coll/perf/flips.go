package perf

import (
	"encoding/binary"
	"slices"
	"strings"

	"github.com/assay-hpc/assay/coll/elem"
	"github.com/assay-hpc/assay/coll/flip"
	"github.com/assay-hpc/assay/coll/op"
)

// Of wrong elements, these are kept: so many of a rank, among so many ranks.
const (
	mostFlips     = 16
	mostFlipRanks = 64
)

// A flipped is a wrong element of a reduction, with all that should have been added.
type flipped struct {
	flip.Wrong
	inputs []uint64 // bits, by rank
}

// flips returns the first wrong elements of a reduction on this rank.
func (w *worker) flips(o *operation, t *truth, g generator) (all []flipped, err error) {
	if !w.c.Reduces() || !flip.Adds(g.t, g.red.Op) || g.n < 2 || g.n > mostFlipRanks || g.red.Mulsum {
		return nil, nil
	}
	add := func(im layout, b *buffer, sent bool) error {
		return im.differences(b.data()[:im.bytes()], &w.medium, func(i int64, got, want uint64) bool {
			f := flipped{Wrong: flip.Wrong{Rank: t.rank, Sent: sent, Element: i, Got: got, Want: want}}
			if !sent && w.c.Collective == op.ReduceScatter {
				own := i
				if o.inPlace {
					f.Sent = i/o.v.count != int64(t.rank)
				} else {
					own = i + int64(t.rank)*o.v.count
				}
				f.Element = own
			}
			at := uint64(f.Element % int64(t.moved.elements()))
			for r := range g.n {
				f.inputs = append(f.inputs, g.bits(g.value(at, r)))
			}
			all = append(all, f)
			return len(all) < mostFlips
		})
	}
	s := t.after(o.v, o.inPlace)
	if t.receives() {
		if err := add(s.recv, &w.recv, false); err != nil {
			return nil, err
		}
	}
	if !o.inPlace && len(all) < mostFlips {
		err = add(s.send, &w.send, true)
	}
	return all, err
}

// readBytes is how much memory of a device is read at a time, in bytes.
const readBytes = 4 << 20

// differences calls f with each element of mem that differs from the layout, until f returns false.
func (im layout) differences(mem []byte, m *medium, f func(i int64, got, want uint64) bool) error {
	at := int64(0)
	var held []byte
	for _, s := range im {
		size := int64(s.p.t.Size())
		for done := int64(0); done < s.n; {
			n := min(s.n-done, readBytes/size)
			part := mem[:n*size]
			mem = mem[n*size:]
			if m.lane != nil {
				held = slices.Grow(held[:0], len(part))[:len(part)]
				if err := m.lane.Read(held, part); err != nil {
					return err
				}
				part = held
			}
			for i := range n {
				want := elem.Bits(s.p.data, s.p.t, int((s.first+done+i)%int64(s.p.elements())))
				if got := elem.Bits(part, s.p.t, int(i)); ulps(got, want) > s.p.slack && !f(at+done+i, got, want) {
					return nil
				}
			}
			done += n
		}
		at += s.n
	}
	return nil
}

// appendFlips and takeFlips are the form in which ranks exchange them.
func appendFlips(b []byte, all []flipped) []byte {
	for _, f := range all {
		sent := uint64(0)
		if f.Sent {
			sent = 1
		}
		for _, v := range append([]uint64{sent, uint64(f.Element), f.Got, f.Want}, f.inputs...) {
			b = binary.LittleEndian.AppendUint64(b, v)
		}
	}
	return b
}

func takeFlips(b []byte, n, ranks int64) (all []flipped, rest []byte, err error) {
	words := 4 + ranks
	if n < 0 || n > mostFlips || ranks < 0 || ranks > mostFlipRanks || n*words*8 > int64(len(b)) || n == 0 != (ranks == 0) {
		return nil, nil, errMeasure
	}
	for range n {
		w := make([]uint64, words)
		for i := range w {
			w[i] = binary.LittleEndian.Uint64(b[8*i:])
		}
		if w[0] > 1 || int64(w[1]) < 0 {
			return nil, nil, errMeasure
		}
		all = append(all, flipped{flip.Wrong{Sent: w[0] == 1, Element: int64(w[1]), Got: w[2], Want: w[3]}, w[4:]})
		b = b[8*words:]
	}
	return all, b, nil
}

// suspects returns who may be at fault for each wrong element of a reduction; nil where the algorithm is
// none of which it is known who adds.
func suspects(c collective, v volume, k combination, algorithm string, ms []measure) [][]flip.Suspect {
	owner := ownerOf(c.Collective, v, len(ms), k.root, algorithm)
	if owner == nil {
		return nil
	}
	var wrong []flip.Wrong
	inputs := map[int64][]uint64{}
	for r, m := range ms {
		for _, f := range m.flips {
			f.Rank = r
			if len(f.inputs) != len(ms) {
				return nil
			}
			wrong = append(wrong, f.Wrong)
			inputs[f.Element] = f.inputs
		}
	}
	d := flip.Reduction{Ranks: len(ms), Type: k.t, Op: k.red.Op, Has: 1, Owner: owner, Input: func(rank int, e int64) uint64 { return inputs[e][rank] }}
	if c.Collective == op.AllReduce {
		d.Has = len(ms)
	}
	return d.Explain(wrong)
}

// ownerOf returns who adds an element, by the engine's algorithm on GPUs.
func ownerOf(c op.Collective, v volume, ranks, root int, algorithm string) func(element int64) int {
	one := strings.HasPrefix(algorithm, "reduce_ll")
	two := strings.HasPrefix(algorithm, "allreduce_")
	size := int64(v.size)
	parts := func(n int) int64 { return int64(op.PartBytes(int(v.count*size), n)) }
	switch {
	case !one && !two:
		return nil
	case c == op.ReduceScatter:
		return func(e int64) int { return int(e / v.count) }
	case c == op.AllReduce && one:
		return func(int64) int { return flip.Itself }
	case c == op.AllReduce:
		return func(e int64) int { return int(e * size / parts(ranks)) }
	case one || ranks == 2:
		return func(int64) int { return root }
	}
	return func(e int64) int { // the root owns nothing
		p := int(e * size / parts(ranks-1))
		if p >= root {
			p++
		}
		return p
	}
}
