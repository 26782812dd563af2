package cuda

import (
	"github.com/assay-hpc/assay/coll/op"
)

// In a ring every rank copies only to the next rank and receives only from the previous one.
// So each link has one sender, and a rank needs to keep in step only with its neighbours.
// Ranks that copy to several others alternately get out of step ever faster once two of them
// meet at one receiver while another receiver has none: four H200s carried 215 GB/s that way,
// and 375 in a ring.
//
// AllReduce is the ring of Patarasuk and Yuan; ReduceScatter and AllGather are its halves. The
// vector has a segment for each rank, which goes around once to be reduced and once more to be
// distributed. Broadcast and Reduce are chains: a ring without the link between its ends.
//
// A rank passes on what it has received, and reduced, in a round ringLag rounds later, so that
// its copies never wait for it: a segment is passed on in groups of ringLag chunks.
const (
	ringLag = copyDepth
	// A slot is free once the data reduced in it has been passed on, and copies run ahead by
	// copyDepth-1 rounds.
	ringSlots = ringLag + copyDepth - 1

	// Short chunks take longer to be reduced and reported than to be copied. A kernel that stays for
	// all rounds has as many slots as there is room for, up to this.
	mostRingSlots = 16
)

// chainTail is how many parts the last chunk is cut into where data go to one rank only, or along
// a chain: the next operation can begin when they have been used, or passed on.
const chainTail = 4

// A ring says what one rank does in each round of a collective.
type ring struct {
	coll       op.Collective
	rank, size int
	next, prev int // op.NoPeer: none
	position   int // in a chain
	segment    int // bytes of the longest one
	total      int // bytes of all, for AllReduce
	chunk      int // bytes of the longest one
	lag        int // rounds
	steps      int // of a segment, from rank to rank; 0: a chain
	chunks     int // of a segment
	tail       int // parts of the last one; 0: it is not cut
	first, end int // this rank takes part in rounds first to end-1
}

// ringed reports whether a collective uses a ring.
func ringed(c op.Collective) bool {
	switch c {
	case op.AllReduce, op.ReduceScatter, op.AllGather, op.Broadcast, op.Reduce:
		return true
	}
	return false
}

// newRing plans a collective in chunks of at most chunk bytes.
func newRing(o *op.Op, rank, size, chunk int) ring {
	g := ring{coll: o.Coll, rank: rank, size: size, next: (rank + 1) % size, prev: (rank + size - 1) % size, segment: o.Bytes(), lag: ringLag}
	switch o.Coll {
	case op.Broadcast, op.Reduce:
		g.position = (rank - o.Root + size) % size
		if o.Coll == op.Reduce { // which ends at the root
			g.position = (g.position + size - 1) % size
		}
		if g.position == 0 {
			g.prev = op.NoPeer
		}
		if g.position == size-1 {
			g.next = op.NoPeer
		}
		g.chunk, g.chunks, g.tail = chunk, chunks(g.segment, chunk, chainTail), chainTail
		// Only the rounds of this rank: in the others its peers may be in the previous or next
		// operation.
		g.first = max(g.position-1, 0) * g.lag
		g.end = min(g.position, size-2)*g.lag + g.chunks
		return g
	case op.AllReduce:
		g.total, g.segment, g.steps = g.segment, partBytes(g.segment, size), 2*(size-1)
	default:
		g.steps = size - 1
	}
	if g.steps == 1 { // nothing is passed on
		g.lag, g.tail = 1, chainTail
		g.chunk, g.chunks = chunk, chunks(g.segment, chunk, chainTail)
	} else {
		g.chunks = ((g.segment+chunk-1)/chunk + g.lag - 1) / g.lag * g.lag
		g.chunk = max(partBytes(g.segment, g.chunks), partAlign)
	}
	g.end = g.chunks * g.steps
	return g
}

// rounds returns the number of rounds of all ranks together.
func (g *ring) rounds() int {
	if g.steps == 0 {
		return (g.size-2)*g.lag + g.chunks
	}
	return g.end
}

// fill writes the plan for a kernel that stays for all rounds.
func (g *ring) fill(a *ringABI) {
	*a = ringABI{
		segment: uint64(g.segment), total: uint64(g.total), chunk: uint32(g.chunk),
		first: uint32(g.first), end: uint32(g.end), lag: uint32(g.lag), chunks: uint32(g.chunks), steps: uint32(g.steps),
		position: uint32(g.position), shift: 1,
	}
	switch g.coll {
	case op.AllReduce:
		a.reduces = uint32(g.size - 1)
	case op.ReduceScatter:
		a.reduces, a.shift, a.oneOut = uint32(g.steps), 2, 1
	case op.AllGather:
		a.oneIn, a.keeps = 1, 1
	case op.Reduce:
		a.reduces = 1
	case op.Broadcast:
		if g.position == 0 {
			a.keeps = 1
		}
	}
	if g.tail > 0 && g.segment > 0 {
		whole := (g.segment - 1) / g.chunk
		a.whole, a.tail = uint32(whole), uint32(partBytes(g.segment-whole*g.chunk, g.tail))
	}
}

// neighbours writes where the states of the ranks are that this rank exchanges data with, and of
// the rank before those.
func (g *ring) neighbours(a *ringABI, state func(rank int) uint64) {
	at := func(distance int) uint64 {
		if g.steps == 0 && (g.position+distance < 0 || g.position+distance >= g.size) {
			return 0
		}
		return state(g.mod(g.rank + distance))
	}
	a.next, a.prev, a.before = at(1), at(-1), at(-2)
	if g.steps != 1 && at(2) != 0 {
		a.behind = 1
	}
}

// meets reports whether this rank and another one exchange data in a round. In a chain they do
// so only while there is data to pass between them.
func (g *ring) meets(rank, round int) bool {
	if g.steps > 0 {
		return rank == g.next || rank == g.prev
	}
	between := func(p int) bool { return round >= p*g.lag && round < p*g.lag+g.chunks } // positions p and p+1
	return rank == g.next && between(g.position) || rank == g.prev && between(g.position-1)
}

// A copyPlace is where copied data is.
type copyPlace uint8

const (
	nowhere copyPlace = iota
	input             // a segment of the input, or the rank's own part
	output            // a segment of the output, or the rank's own part
	inSlot            // received ringLag rounds before, and reduced
)

// A move is what happens to a chunk of a segment.
type move struct {
	where   copyPlace
	segment int // its number; 0 if there is only one
	at, n   int // the chunk
	reduce  bool
	raw     bool // what has come is what the previous rank began with
	last    bool // last reduction of the chunk
}

// at returns the step and the chunk of a round.
func (g *ring) at(round int) (step, chunk int) {
	group := g.steps * g.lag
	in := round % group
	return in / g.lag, round/group*g.lag + in%g.lag
}

// cut returns the offset and length of a chunk in a segment.
func (g *ring) cut(segment, chunk int) (at, n int) {
	if g.tail > 0 {
		return chunkOf(g.segment, g.chunk, g.tail, chunk)
	}
	length := g.segment
	if g.coll == op.AllReduce {
		length = min(max(g.total-segment*g.segment, 0), g.segment)
	}
	at = min(chunk*g.chunk, length)
	return at, min(g.chunk, length-at)
}

// offset returns the offset of a chunk in the input or the output.
func (g *ring) offset(where copyPlace, m *move) int {
	if g.coll == op.AllGather && where == input || g.coll == op.ReduceScatter && where == output {
		return m.at // there is one segment only
	}
	return m.segment*g.segment + m.at
}

func (g *ring) mod(segment int) int { return (segment + 2*g.size) % g.size }

// sends returns what is copied to the next rank in a round.
func (g *ring) sends(round int) (m move) {
	switch g.coll {
	case op.Broadcast, op.Reduce:
		chunk := round - g.position*g.lag
		if g.next == op.NoPeer || chunk < 0 {
			return m
		}
		switch {
		case g.position == 0:
			m.where = input
		case g.coll == op.Broadcast:
			m.where = output
		default:
			m.where = inSlot
		}
		m.at, m.n = g.cut(0, chunk)
		return m
	}
	step, chunk := g.at(round)
	m.where = input
	switch {
	case g.coll == op.AllGather:
		m.segment = g.mod(g.rank - step)
		if step > 0 {
			m.where = output
		}
	case g.coll == op.ReduceScatter:
		m.segment = g.mod(g.rank - 1 - step)
		if step > 0 {
			m.where = inSlot
		}
	case step < g.size-1:
		m.segment = g.mod(g.rank - step)
		if step > 0 {
			m.where = inSlot
		}
	default:
		m.segment, m.where = g.mod(g.rank-step), output // at step size-1: the segment after the rank's own
	}
	m.at, m.n = g.cut(m.segment, chunk)
	return m
}

// gets returns what is done with the data received from the previous rank: it goes to the
// output, or is reduced in its slot.
func (g *ring) gets(round int) (m move) {
	switch g.coll {
	case op.Broadcast, op.Reduce:
		chunk := round - (g.position-1)*g.lag
		if g.prev == op.NoPeer || chunk < 0 {
			return m
		}
		m.reduce, m.raw = g.coll == op.Reduce, g.position == 1
		m.last = g.next == op.NoPeer
		m.at, m.n = g.cut(0, chunk)
	case op.AllGather:
		step, chunk := g.at(round)
		m.segment = g.mod(g.rank - 1 - step)
		m.at, m.n = g.cut(m.segment, chunk)
	case op.ReduceScatter:
		step, chunk := g.at(round)
		m.segment, m.reduce, m.raw, m.last = g.mod(g.rank-2-step), true, step == 0, step == g.size-2
		m.at, m.n = g.cut(m.segment, chunk)
	default:
		step, chunk := g.at(round)
		m.segment, m.reduce, m.raw, m.last = g.mod(g.rank-1-step), step < g.size-1, step == 0, step == g.size-2
		m.at, m.n = g.cut(m.segment, chunk)
	}
	m.where = output
	if m.reduce && !m.last {
		m.where = inSlot
	}
	return m
}

// keeps returns what a rank copies from its own input to its output in a round.
func (g *ring) keeps(round int) (m move) {
	switch g.coll {
	case op.Broadcast:
		if g.position == 0 {
			m.where = output
			m.at, m.n = g.cut(0, round)
		}
	case op.AllGather:
		if step, chunk := g.at(round); step == 0 {
			m.where, m.segment = output, g.rank
			m.at, m.n = g.cut(g.rank, chunk)
		}
	}
	return m
}

// chunks returns how many rounds length bytes take if the last chunk is cut into tail parts.
func chunks(length, chunk, tail int) int {
	if length == 0 {
		return 0
	}
	return (length+chunk-1)/chunk - 1 + tail
}

// chunkOf returns the offset and length of a round's chunk in length bytes.
func chunkOf(length, chunk, tail, round int) (at, n int) {
	whole := max(length-1, 0) / chunk // chunks before the last one
	if round < whole {
		return round * chunk, chunk
	}
	last := length - whole*chunk
	per := partBytes(last, tail)
	at = min((round-whole)*per, last)
	return whole*chunk + at, min(per, last-at)
}
