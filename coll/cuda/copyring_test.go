package cuda

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/assay-hpc/assay/coll/elem"
	"github.com/assay-hpc/assay/coll/op"
)

// Every rank has two streams, which go on in any order that events and barriers
// allow; at the end all outputs have what the collective makes of the inputs.
func TestRings(t *testing.T) {
	for _, c := range []op.Collective{op.AllReduce, op.ReduceScatter, op.AllGather, op.Broadcast, op.Reduce} {
		for size := 2; size <= maxRanks; size++ {
			t.Run(fmt.Sprintf("%v among %d", c, size), func(t *testing.T) {
				t.Parallel()
				for seed := range uint64(30) {
					r := rand.New(rand.NewPCG(seed, uint64(size)))
					o := &op.Op{Coll: c, Count: 1 + r.IntN(6000), Type: elem.Uint8, Root: r.IntN(size)}
					for _, inPlace := range []bool{false, true} {
						if err := newRingWorld(o, size, partAlign*(1+r.IntN(4)), inPlace).run(r); err != nil {
							t.Fatalf("seed %d, %d bytes, root %d, in place %v: %v", seed, o.Count, o.Root, inPlace, err)
						}
					}
				}
			})
		}
	}
}

// A ringWorld has all ranks of a ring. What a byte holds is whose inputs are in
// it: bits by rank, from bit 8 on where in the input it was.
type ringWorld struct {
	op            *op.Op
	plans         []ring
	in, out, room [][]uint32
	copied, met   []int // the rounds before these are over: copies, barriers
	passed        []int
}

func newRingWorld(o *op.Op, size, chunk int, inPlace bool) *ringWorld {
	n := o.Count
	w := &ringWorld{op: o, copied: make([]int, size), met: make([]int, size), passed: make([]int, size)}
	for rank := range size {
		w.plans = append(w.plans, newRing(o, rank, size, chunk))
		if longest := w.plans[rank].chunk; longest > chunk {
			panic(fmt.Sprintf("a chunk has %d bytes, and slots have %d", longest, chunk))
		}
		first := w.plans[rank].first
		w.copied[rank], w.met[rank], w.passed[rank] = first, first, first
		ins, outs := o.Coll.Parts(rank, o.Root, size)
		buffer := func(parts int) []uint32 { return make([]uint32, parts*n) }
		in, out := buffer(ins), buffer(outs)
		if inPlace {
			switch {
			case o.Coll == op.AllGather:
				in = out[rank*n : (rank+1)*n]
			case o.Coll == op.ReduceScatter:
				out = in[rank*n : (rank+1)*n]
			case ins == outs:
				in = out
			}
		}
		for i := range in {
			in[i] = uint32(i)<<8 | 1<<rank
		}
		w.in, w.out = append(w.in, in), append(w.out, out)
		w.room = append(w.room, make([]uint32, ringSlots*w.plans[rank].chunk))
	}
	return w
}

func (w *ringWorld) run(r *rand.Rand) error {
	want := w.want()
	size := len(w.plans)
	for done := 0; done < size; {
		rank := r.IntN(size)
		if r.IntN(2) == 0 {
			w.copy(rank)
		} else if w.main(rank) && w.passed[rank] == w.plans[rank].end {
			done++
		}
	}
	for rank := range size {
		if !slices.Equal(w.out[rank], want[rank]) {
			return fmt.Errorf("rank %d has something else", rank)
		}
	}
	return nil
}

// copy does the next copy of a rank, if it may.
func (w *ringWorld) copy(rank int) {
	g, t := &w.plans[rank], w.copied[rank]
	if t == g.end || w.met[rank] < t-copyDepth+2 { // so many barriers are over
		return
	}
	if m := g.sends(t); m.n > 0 {
		var from []uint32
		if m.where == inSlot {
			from = w.slot(rank, t-g.lag)
		} else {
			from = w.at(rank, m.where, &m)
		}
		copy(w.slot(g.next, t)[:m.n], from[:m.n])
	}
	w.copied[rank]++
}

// main does the next barrier of a rank, and what comes behind it, if it may.
func (w *ringWorld) main(rank int) bool {
	g, t := &w.plans[rank], w.passed[rank]
	if t == g.end || w.copied[rank] <= t {
		return false
	}
	if w.met[rank] == t {
		// The others have come to it when their copies are over.
		for p := range w.plans {
			if g.meets(p, t) && (w.copied[p] <= t || w.passed[p] < t) {
				return false
			}
		}
		w.met[rank]++
		return false
	}
	if m := g.keeps(t); m.n > 0 {
		copy(w.at(rank, output, &m)[:m.n], w.at(rank, input, &m)[:m.n])
	}
	if m := g.gets(t); m.n > 0 {
		slot := w.slot(rank, t)
		to := slot
		if m.where == output {
			to = w.at(rank, output, &m)
		}
		for i := range m.n {
			v := slot[i]
			if m.reduce {
				v |= w.at(rank, input, &m)[i]
			}
			to[i] = v
		}
	}
	w.passed[rank]++
	return true
}

func (w *ringWorld) slot(rank, round int) []uint32 {
	chunk := w.plans[rank].chunk
	return w.room[rank][round%ringSlots*chunk:][:chunk]
}

func (w *ringWorld) at(rank int, where copyPlace, m *move) []uint32 {
	base := w.out[rank]
	if where == input {
		base = w.in[rank]
	}
	return base[w.plans[rank].offset(where, m):]
}

// want is what the outputs are to have.
func (w *ringWorld) want() [][]uint32 {
	size, n := len(w.plans), w.op.Count
	all := uint32(1)<<size - 1
	want := make([][]uint32, size)
	for rank := range want {
		out := slices.Clone(w.out[rank])
		for i := range out {
			switch at := uint32(i); w.op.Coll {
			case op.AllReduce, op.Reduce:
				out[i] = at<<8 | all
			case op.ReduceScatter:
				out[i] = uint32(rank*n+i)<<8 | all
			case op.AllGather:
				out[i] = at%uint32(n)<<8 | 1<<(i/n)
			case op.Broadcast:
				out[i] = at<<8 | 1<<w.op.Root
			}
		}
		want[rank] = out
	}
	return want
}

// The chunks of a message are all of it, none is longer than it may be, and as
// many are left at both ends.
func TestChunks(t *testing.T) {
	for _, tail := range []int{1, 4} {
		const chunk = leastCopy
		for _, length := range []int{0, 1, 127, 128, 129, chunk - 1, chunk, chunk + 1, 2 * chunk, 7*chunk + 5} {
			end := 0
			for round := range chunks(length, chunk, tail) {
				at, n := chunkOf(length, chunk, tail, round)
				if n > 0 && at != end || n < 0 || n > chunk {
					t.Fatalf("%d bytes by %d: round %d has %d at %d; %d come before", length, chunk, round, n, at, end)
				}
				end += n
			}
			if _, n := chunkOf(length, chunk, tail, chunks(length, chunk, tail)); end != length || n != 0 {
				t.Errorf("%d bytes by %d: %d in all, then %d", length, chunk, end, n)
			}
		}
	}
}

// stretchOf is stretch_of of the kernels: the chunk that comes to a rank in a round (ahead 0), or that
// goes (ahead 1), with the place in the output, or the input, where its segment begins.
func stretchOf(a *ringABI, rank, size, round, ahead int) (begins, at, n int) {
	k, length := 0, int(a.segment)
	if a.steps > 0 {
		in := round % int(a.steps*a.lag)
		k = round/int(a.steps*a.lag)*int(a.lag) + in%int(a.lag)
		begins = (rank + ahead - int(a.shift) - in/int(a.lag) + 3*size) % size * int(a.segment)
		if a.total > 0 {
			length = max(0, min(int(a.segment), int(a.total)-begins))
		}
	} else {
		k = round - (int(a.position)-1+ahead)*int(a.lag)
		if k < 0 || k >= int(a.chunks) || ahead == 0 && a.prev == 0 || ahead == 1 && a.next == 0 {
			return 0, 0, 0
		}
	}
	if a.tail > 0 && k >= int(a.whole) {
		before := int(a.whole) * int(a.chunk)
		at = min((k-int(a.whole))*int(a.tail), length-before)
		return begins, before + at, min(int(a.tail), length-before-at)
	}
	at = min(k*int(a.chunk), length)
	return begins, at, min(int(a.chunk), length-at)
}

// What a kernel gets of a plan says the same as the plan.
func TestRingKernel(t *testing.T) {
	for seed := range uint64(400) {
		r := rand.New(rand.NewPCG(seed, 3))
		size := 2 + r.IntN(maxRanks-1)
		colls := []op.Collective{op.AllReduce, op.ReduceScatter, op.AllGather, op.Broadcast, op.Reduce}
		o := &op.Op{Coll: colls[r.IntN(len(colls))], Count: 1 + r.IntN(6000), Type: elem.Uint8, Root: r.IntN(size)}
		chunk := partAlign * (1 + r.IntN(4))
		for rank := range size {
			g := newRing(o, rank, size, chunk)
			var a ringABI
			g.fill(&a)
			g.neighbours(&a, func(rank int) uint64 { return uint64(1 + rank) })
			if a.next > 0 != (g.next != op.NoPeer) || a.prev > 0 != (g.prev != op.NoPeer) || a.next > 0 && int(a.next) != 1+g.next || a.prev > 0 && int(a.prev) != 1+g.prev {
				t.Fatalf("%v, rank %d of %d: neighbours %d and %d; want %d and %d", o.Coll, rank, size, a.prev, a.next, 1+g.prev, 1+g.next)
			}
			if g.end > g.rounds() {
				t.Fatalf("%v, rank %d of %d: rounds up to %d of %d", o.Coll, rank, size, g.end, g.rounds())
			}
			for round := g.first; round < g.end; round++ {
				for ahead, m := range []move{g.gets(round), g.sends(round)} {
					begins, at, n := stretchOf(&a, rank, size, round, ahead)
					if n != m.n || n > 0 && (at != m.at || begins != m.segment*g.segment) {
						t.Fatalf("seed %d, %v of %d bytes, rank %d of %d, round %d, ahead %d: %d bytes at %d of %d; want %+v", seed, o.Coll, o.Count, rank, size, round, ahead, n, at, begins, m)
					}
				}
				if m := g.keeps(round); m.n > 0 && a.keeps == 0 {
					t.Fatalf("seed %d, %v, rank %d of %d: %+v is not kept", seed, o.Coll, rank, size, m)
				}
			}
		}
	}
}
