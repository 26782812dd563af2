// Package model says what programs of collectives must do: it runs them on slices, by the rules
// of NCCL's documentation and of package coll, and shares no code with the engine that is compared
// with it.
//
// A Program is what all ranks call. Within a group, calls that use the same memory take effect in
// the order in which a rank makes them; the k-th Send to a rank is received by its k-th Recv from
// the sender, and one that a rank calls before its Send to itself comes directly after that;
// collectives of a communicator follow one another. An element that is computed from
// floats is known with a bound: any order of the ranks and any precision above the type's is
// right.
package model

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sort"
)

// An Op is what a Call does.
type Op string

// The operations, named as by nccl-tests.
const (
	AllReduce     Op = "all_reduce"
	Broadcast     Op = "broadcast"
	Reduce        Op = "reduce"
	AllGather     Op = "all_gather"
	ReduceScatter Op = "reduce_scatter"
	AllToAll      Op = "alltoall"
	Gather        Op = "gather"
	Scatter       Op = "scatter"
	Send          Op = "send"
	Recv          Op = "recv"
)

// Collectives are those that all ranks of a communicator call.
var Collectives = []Op{AllReduce, Broadcast, Reduce, AllGather, ReduceScatter, AllToAll, Gather, Scatter}

// Reduces reports whether the operation has a reduction.
func (o Op) Reduces() bool { return o == AllReduce || o == Reduce || o == ReduceScatter }

// Rooted reports whether the operation has a root.
func (o Op) Rooted() bool { return o == Broadcast || o == Reduce || o == Gather || o == Scatter }

// Parts returns how many times Count elements a rank's buffers have.
func (o Op) Parts(rank, root, ranks int) (send, recv int) {
	atRoot := func(n int) int {
		if rank == root {
			return n
		}
		return 0
	}
	switch o {
	case AllReduce:
		return 1, 1
	case Broadcast:
		return atRoot(1), 1
	case Reduce:
		return 1, atRoot(1)
	case AllGather:
		return 1, ranks
	case ReduceScatter:
		return ranks, 1
	case AllToAll:
		return ranks, ranks
	case Gather:
		return 1, atRoot(ranks)
	case Scatter:
		return atRoot(ranks), 1
	case Send:
		return 1, 0
	}
	return 0, 1
}

// A Call is a collective of all ranks of a communicator, or one rank's Send or Recv.
type Call struct {
	Comm   int
	Op     Op
	Type   Type
	Count  int
	Red    Red       `json:",omitempty"`
	Factor []float64 `json:",omitempty"` // of a PreMulSum, by rank
	Root   int       `json:",omitempty"`
	From   int       `json:",omitempty"` // ranks of a Send or Recv
	To     int       `json:",omitempty"`
	Send   []int     `json:",omitempty"` // where buffers begin in each rank's memory, in bytes;
	Recv   []int     `json:",omitempty"` // of a Send or Recv one number
}

// A Split makes communicators of one, by rank: the ranks of a color, ordered by key. They are
// numbered on in the order of the colors. A rank of color -1 is in none.
type Split struct {
	Comm   int
	Colors []int
	Keys   []int
}

// A Step is a Split, or calls that each rank makes together.
type Step struct {
	Split *Split `json:",omitempty"`
	Calls []Call `json:",omitempty"`
	// Single are ranks of communicator 0 that make the calls one by one and not as a group.
	Single []int `json:",omitempty"`
}

// A Program is what the ranks of communicator 0 do, and the memory that they do it with.
type Program struct {
	Ranks  int
	Memory int    // of each rank, in bytes
	Seed   uint64 // of what it contains in the beginning
	Type   Type   // of what it contains; NumTypes: any bits
	Env    []string
	Steps  []Step
}

// A cell is what is known of a byte that is part of a computed float.
type cell struct {
	known bool // false: the byte is what the memory says
	t     Type
	at    int // which byte of the element
	err   float64
	id    int // of the element: bytes of two are none
}

// A State is what the program has made of a rank's memory.
type State struct {
	Bytes []byte
	cells []cell
}

// A message is what a Send has sent.
type message struct {
	bytes []byte
	cells []cell
}

// A Machine runs a program step by step.
type Machine struct {
	p      Program
	States []State
	Comms  [][]int // members of each communicator as ranks of communicator 0
	number int     // of the last element that was computed
}

// New returns a machine before the first step.
func New(p Program) *Machine {
	m := &Machine{p: p}
	all := make([]int, p.Ranks)
	for r := range all {
		all[r] = r
		m.States = append(m.States, State{p.content(r), make([]cell, p.Memory)})
	}
	m.Comms = [][]int{all}
	return m
}

// content is what a rank's memory contains in the beginning: small numbers, of which many sums
// and products are exact.
func (p *Program) content(rank int) []byte {
	rng := rand.New(rand.NewPCG(p.Seed, uint64(rank)))
	b := make([]byte, p.Memory)
	if p.Type == NumTypes {
		for i := range b {
			b[i] = byte(rng.Uint32())
		}
		return b
	}
	for i := 0; i+p.Type.Size() <= len(b); i += p.Type.Size() {
		switch x := rng.IntN(9) - 4; {
		case p.Type.Float():
			p.Type.store(b[i:], p.Type.Exact(math.Ldexp(float64(x), rng.IntN(3)-1)))
		default:
			p.Type.store(b[i:], uint64(x))
		}
	}
	return b
}

// Step does step i. An error says what is wrong with the program.
func (m *Machine) Step(i int) error {
	s := m.p.Steps[i]
	if s.Split != nil {
		return m.split(s.Split)
	}
	return m.group(s.Calls)
}

// Members returns the members of the communicators that a split makes, by parent's rank.
func (s *Split) Members() [][]int {
	colors := slices.Compact(slices.Sorted(slices.Values(s.Colors)))
	var all [][]int
	for _, color := range colors {
		if color < 0 {
			continue
		}
		var members []int
		for r, c := range s.Colors {
			if c == color {
				members = append(members, r)
			}
		}
		sort.SliceStable(members, func(i, j int) bool { return s.Keys[members[i]] < s.Keys[members[j]] })
		all = append(all, members)
	}
	return all
}

func (m *Machine) split(s *Split) error {
	if s.Comm >= len(m.Comms) || len(s.Colors) != len(m.Comms[s.Comm]) || len(s.Keys) != len(s.Colors) {
		return errors.New("a split of a communicator that there is not")
	}
	for _, members := range s.Members() {
		ranks := make([]int, len(members))
		for i, r := range members {
			ranks[i] = m.Comms[s.Comm][r]
		}
		m.Comms = append(m.Comms, ranks)
	}
	return nil
}

// A rankPart is what one rank does in a call.
type rankPart struct {
	call       int
	rank       int // in communicator 0
	send, recv [2]int
	done       bool
}

// parts returns what the ranks do in a call.
func (m *Machine) parts(i int, c *Call) ([]rankPart, error) {
	bad := func(why string) ([]rankPart, error) { return nil, fmt.Errorf("call %d, %s: %s", i, c.Op, why) }
	if c.Comm >= len(m.Comms) {
		return bad("there is no such communicator")
	}
	members := m.Comms[c.Comm]
	who := make([]int, len(members))
	for r := range members {
		who[r] = r
	}
	switch c.Op {
	case Send:
		who = []int{c.From}
	case Recv:
		who = []int{c.To}
	}
	if max(c.From, c.To, c.Root) >= len(members) {
		return bad("there is no such rank")
	}
	var all []rankPart
	for k, r := range who {
		send, recv := c.Op.Parts(r, c.Root, len(members))
		p := rankPart{call: i, rank: members[r]}
		for _, b := range []struct {
			span  *[2]int
			parts int
			at    []int
		}{{&p.send, send, c.Send}, {&p.recv, recv, c.Recv}} {
			if n := b.parts * c.Count * c.Type.Size(); n > 0 {
				if k >= len(b.at) || b.at[k]+n > m.p.Memory || b.at[k]%c.Type.Size() != 0 {
					return bad("a buffer is not in memory")
				}
				*b.span = [2]int{b.at[k], b.at[k] + n}
			}
		}
		if overlap(p.send, p.recv) && !c.inPlace(r, p) {
			return bad("buffers overlap")
		}
		all = append(all, p)
	}
	return all, nil
}

// inPlace reports whether buffers that overlap are the same memory in the allowed way.
func (c *Call) inPlace(rank int, p rankPart) bool {
	own := rank * c.Count * c.Type.Size()
	switch c.Op {
	case AllGather, Gather:
		return p.send[0] == p.recv[0]+own
	case ReduceScatter, Scatter:
		return p.recv[0] == p.send[0]+own
	}
	return p.send[0] == p.recv[0]
}

func overlap(a, b [2]int) bool { return a[0] < b[1] && b[0] < a[1] }

// conflict reports whether the order of two parts of one rank is visible in memory.
func conflict(a, b *rankPart) bool {
	return overlap(a.recv, b.recv) || overlap(a.recv, b.send) || overlap(a.send, b.recv)
}

// ordered returns the calls with each Recv of a rank from itself behind the Send.
func ordered(calls []Call) []Call {
	type line struct{ comm, rank int }
	early := map[line][]Call{} // Recvs whose Send follows
	sent := map[line]int{}     // Sends whose Recv follows
	var out []Call
	for _, c := range calls {
		on := line{c.Comm, c.From}
		switch self := c.From == c.To; {
		case c.Op == Recv && self && sent[on] == 0:
			early[on] = append(early[on], c)
			continue
		case c.Op == Recv && self:
			sent[on]--
		case c.Op == Send && self && len(early[on]) > 0:
			out = append(out, c, early[on][0])
			early[on] = early[on][1:]
			continue
		case c.Op == Send && self:
			sent[on]++
		}
		out = append(out, c)
	}
	for _, rest := range early {
		out = append(out, rest...) // they wait forever
	}
	return out
}

// group does calls that are made together: each when those before it that it depends on are done.
func (m *Machine) group(calls []Call) error {
	calls = ordered(calls)
	type line struct{ comm, from, to int }
	sent := map[line][]message{}
	kinds := map[line][]Type{}
	var all []*rankPart
	of := make([][]*rankPart, len(calls))
	for i := range calls {
		parts, err := m.parts(i, &calls[i])
		if err != nil {
			return err
		}
		for k := range parts {
			p := &parts[k]
			for _, q := range all {
				if q.rank == p.rank && calls[q.call].Comm != calls[p.call].Comm && conflict(p, q) {
					return fmt.Errorf("call %d uses memory of call %d, of another communicator", i, q.call)
				}
			}
			all, of[i] = append(all, p), append(of[i], p)
		}
	}
	exchange := func(c *Call) bool { return c.Op == Send || c.Op == Recv }
	ready := func(p *rankPart) bool {
		c := &calls[p.call]
		for _, q := range all {
			if q == p {
				return true
			}
			o := &calls[q.call]
			if q.done || q.rank != p.rank {
				continue
			}
			switch {
			case conflict(p, q),
				o.Comm == c.Comm && !exchange(o) && !exchange(c),
				o.Comm == c.Comm && o.Op == c.Op && exchange(c) && o.From == c.From && o.To == c.To:
				return false
			}
		}
		return true
	}
	for left := len(calls); left > 0; {
		before := left
		for i := range calls {
			c := &calls[i]
			if of[i][0].done || slices.ContainsFunc(of[i], func(p *rankPart) bool { return !ready(p) }) {
				continue
			}
			on := line{c.Comm, c.From, c.To}
			switch c.Op {
			case Send:
				s := &m.States[of[i][0].rank]
				span := of[i][0].send
				kinds[on] = append(kinds[on], c.Type)
				sent[on] = append(sent[on], message{slices.Clone(s.Bytes[span[0]:span[1]]), slices.Clone(s.cells[span[0]:span[1]])})
			case Recv:
				if len(sent[on]) == 0 {
					continue
				}
				msg := sent[on][0]
				if span := of[i][0].recv; len(msg.bytes) != span[1]-span[0] || kinds[on][0] != c.Type {
					return fmt.Errorf("call %d receives %d bytes of %d, or another type than is sent", i, span[1]-span[0], len(msg.bytes))
				}
				sent[on], kinds[on] = sent[on][1:], kinds[on][1:]
				s := &m.States[of[i][0].rank]
				copy(s.Bytes[of[i][0].recv[0]:], msg.bytes)
				copy(s.cells[of[i][0].recv[0]:], msg.cells)
			default:
				m.collective(c, of[i])
			}
			for _, p := range of[i] {
				p.done = true
			}
			left--
		}
		if left == before {
			return errors.New("the calls wait for one another")
		}
	}
	for on, rest := range sent {
		if len(rest) > 0 {
			return fmt.Errorf("%v sends what is not received", on)
		}
	}
	return nil
}

// collective does a collective in all ranks' memory.
func (m *Machine) collective(c *Call, parts []*rankPart) {
	size, n := c.Type.Size(), len(parts)
	bytes := c.Count * size
	in := make([]message, n)
	for r, p := range parts {
		s := &m.States[p.rank]
		in[r] = message{slices.Clone(s.Bytes[p.send[0]:p.send[1]]), slices.Clone(s.cells[p.send[0]:p.send[1]])}
	}
	var all message // the result of the whole operation
	if c.Op.Reduces() {
		all = m.reduce(c, in)
	} else {
		for _, msg := range in {
			all = message{append(all.bytes, msg.bytes...), append(all.cells, msg.cells...)}
		}
	}
	for r, p := range parts {
		s := &m.States[p.rank]
		put := func(at int, from message, begin, end int) {
			copy(s.Bytes[p.recv[0]+at:p.recv[1]], from.bytes[begin:end])
			copy(s.cells[p.recv[0]+at:p.recv[1]], from.cells[begin:end])
		}
		switch {
		case p.recv[0] == p.recv[1]:
		case c.Op == AllToAll:
			for from := range n {
				put(from*bytes, in[from], r*bytes, (r+1)*bytes)
			}
		case c.Op == ReduceScatter || c.Op == Scatter:
			put(0, all, r*bytes, (r+1)*bytes)
		default:
			put(0, all, 0, len(all.bytes))
		}
	}
}

// read returns the float that begins at a byte.
func (t Type) read(msg message, at int) float {
	x := t.Number(t.load(msg.bytes[at:]))
	if first := msg.cells[at]; first.known && first.t == t && first.at == 0 {
		for i := range t.Size() {
			if c := msg.cells[at+i]; !c.known || c.t != t || c.at != i || c.id != first.id {
				return unknown
			}
		}
		return float{x, first.err}
	}
	for i := range t.Size() {
		if msg.cells[at+i].known {
			return unknown
		}
	}
	if math.IsNaN(x) {
		return unknown
	}
	return float{x: x}
}

// integer returns the bits of the integer that begins at a byte, unless it has bytes of a float
// that may be another one.
func (t Type) integer(msg message, at int) (uint64, bool) {
	for i := range t.Size() {
		if msg.cells[at+i].known {
			return 0, false
		}
	}
	return t.load(msg.bytes[at:]), true
}

// reduce returns the reduction of all ranks' inputs.
func (m *Machine) reduce(c *Call, in []message) message {
	t, size, n := c.Type, c.Type.Size(), len(in[0].bytes)
	out := message{make([]byte, n), make([]cell, n)}
	floats, words := make([]float, len(in)), make([]uint64, len(in))
	sameBits := slices.Contains(m.p.Env, "ASSAY_SAME_BITS=1")
	for at := 0; at < n; at += size {
		m.number++
		if !t.Float() {
			known := true
			for r := range in {
				w, ok := t.integer(in[r], at)
				if known = known && ok; c.Factor != nil {
					w *= uint64(int64(c.Factor[r]))
				}
				words[r] = w
			}
			t.store(out.bytes[at:], t.integers(c.Red, words))
			for i := range size {
				if !known {
					out.cells[at+i] = cell{true, t, i, math.Inf(1), m.number}
				}
			}
			continue
		}
		for r := range in {
			if floats[r] = t.read(in[r], at); c.Factor != nil {
				floats[r] = t.scaled(floats[r], c.Factor[r])
			}
		}
		if len(in) == 1 && c.Factor == nil && (c.Red != Avg || floats[0].known()) { // a copy, but a multiplication by one may change a NaN
			copy(out.bytes[at:at+size], in[0].bytes[at:])
			copy(out.cells[at:at+size], in[0].cells[at:])
			continue
		}
		f := t.floats(c.Red, floats)
		if sameBits && f.known() && f.err > 0 && (c.Red == Sum || c.Red == Prod) {
			if exact := t.inOrder(c.Red, floats); exact.known() {
				f = exact
			}
		}
		if f.known() {
			t.store(out.bytes[at:], t.Round(f.x))
			f.err += math.Abs(f.x - t.Number(t.Round(f.x)))
		}
		for i := range size {
			if f.err > 0 || f.x == 0 { // a zero may have either sign
				out.cells[at+i] = cell{true, t, i, f.err, m.number}
			}
		}
	}
	return out
}

// Compare returns an error for the first byte or element of a rank's memory that is not what the
// model says, and how many bytes could be compared.
func (m *Machine) Compare(rank int, got []byte) (compared int, err error) {
	s := &m.States[rank]
	for i := 0; i < len(got); {
		c := s.cells[i]
		whole := c.known && c.at == 0 && i+c.t.Size() <= len(got)
		for k := 1; whole && k < c.t.Size(); k++ {
			o := s.cells[i+k]
			whole = o.known && o.t == c.t && o.at == k && o.id == c.id
		}
		switch {
		case !c.known:
			if got[i] != s.Bytes[i] {
				return compared, fmt.Errorf("byte %d of rank %d is %#02x; want %#02x", i, rank, got[i], s.Bytes[i])
			}
			compared++
			i++
		case !whole || math.IsInf(c.err, 1):
			i++
		default:
			x, want := c.t.Number(c.t.load(got[i:])), c.t.Number(c.t.load(s.Bytes[i:]))
			if !(math.Abs(x-want) <= c.err) {
				return compared, fmt.Errorf("the element of type %d at byte %d of rank %d is %v (%#x); want %v within %v",
					c.t, i, rank, x, c.t.load(got[i:]), want, c.err)
			}
			compared += c.t.Size()
			i += c.t.Size()
		}
	}
	return compared, nil
}
