package model

import (
	"math/rand/v2"
	"slices"
)

// Options bound the programs that Random makes.
type Options struct {
	Ranks  int // most; 0: 9
	Memory int // most bytes of a rank; 0: 64 KiB
	Steps  int // most; 0: 12
	// Apart is for device memory, where a group does one communicator's operations after the other's, the
	// Sends and Recvs last and all at once. It keeps these from memory that other calls of the group use,
	// and has all ranks make a group of calls of several communicators.
	Apart bool
	Env   []string // settings of all programs
}

// settings are variables that change how the engine does an operation, never what it does.
var settings = [][]string{
	nil, nil,
	{"ASSAY_SAME_BITS=1"},
	{"NCCL_SHM_DISABLE=1"},
	{"NCCL_BUFFSIZE=16384"},
	{"NCCL_ALGO=Ring"},
	{"NCCL_ALGO=Tree"},
	{"NCCL_PROTO=Simple"},
	{"NCCL_PROTO=LL"},
	{"NCCL_MAX_NCHANNELS=1"},
	{"NCCL_MIN_NCHANNELS=4"},
	{"NCCL_P2P_DISABLE=1"},
	{"NCCL_SHM_DISABLE=1", "NCCL_NSOCKS_PERTHREAD=2", "NCCL_SOCKET_NTHREADS=2"},
	{"NCCL_ALGO=Ring", "NCCL_PROTO=LL128", "NCCL_BUFFSIZE=65536"},
}

// generator makes one program.
type generator struct {
	*rand.Rand
	o    Options
	p    Program
	m    *Machine
	unit int // what offsets are multiples of
}

// Random returns a program that is the same for the same seed and options. It is valid: a machine
// runs it without an error.
func Random(seed uint64, o Options) Program {
	if o.Ranks == 0 {
		o.Ranks = 9
	}
	if o.Memory == 0 {
		o.Memory = 64 << 10
	}
	if o.Steps == 0 {
		o.Steps = 12
	}
	for retry := uint64(0); ; retry++ {
		g := &generator{Rand: rand.New(rand.NewPCG(seed, retry)), o: o, unit: 8}
		g.p = Program{Ranks: 1 + g.IntN(o.Ranks), Memory: max(64, o.Memory>>g.IntN(8)), Seed: g.Uint64() >> 40, Type: Type(g.IntN(int(NumTypes) + 2))}
		g.p.Type = min(g.p.Type, NumTypes)
		g.p.Env = slices.Concat(o.Env, settings[g.IntN(len(settings))])
		g.m = New(g.p)
		if g.fill() {
			return g.p
		}
	}
}

// fill adds steps; it reports whether there is one at least.
func (g *generator) fill() bool {
	for range 1 + g.IntN(g.o.Steps) {
		var s Step
		if len(g.m.Comms) < 6 && g.IntN(6) == 0 {
			s.Split = g.split()
		} else {
			s = g.calls()
		}
		g.m.p.Steps = append(g.m.p.Steps, s)
		before := make([]State, len(g.m.States))
		for r, state := range g.m.States {
			before[r] = State{slices.Clone(state.Bytes), slices.Clone(state.cells)}
		}
		if err := g.m.Step(len(g.m.p.Steps) - 1); err != nil {
			g.m.States = before // the calls wait for one another, or two communicators share memory
			g.m.p.Steps = g.m.p.Steps[:len(g.m.p.Steps)-1]
		}
	}
	g.p.Steps = g.m.p.Steps
	return len(g.p.Steps) > 0
}

func (g *generator) split() *Split {
	s := &Split{Comm: g.IntN(len(g.m.Comms))}
	for range g.m.Comms[s.Comm] {
		s.Colors = append(s.Colors, g.IntN(4)-1)
		s.Keys = append(s.Keys, g.IntN(3))
	}
	return s
}

// calls returns a step of calls: often of one communicator, at times of several.
func (g *generator) calls() Step {
	var s Step
	one := g.IntN(len(g.m.Comms))
	several := g.IntN(3) == 0
	n := 1 + g.IntN(4)
	if g.IntN(4) == 0 {
		n += g.IntN(12)
	}
	exchanges := false
	for range n {
		if several {
			one = g.IntN(len(g.m.Comms))
		}
		if g.IntN(4) == 0 {
			s.Calls = append(s.Calls, g.exchange(one)...)
			exchanges = true
		} else {
			s.Calls = append(s.Calls, g.collective(one))
		}
	}
	if !exchanges && !(g.o.Apart && several) {
		for r := range g.p.Ranks {
			if g.IntN(3) == 0 {
				s.Single = append(s.Single, r)
			}
		}
	} else if g.IntN(2) == 0 {
		g.stir(s.Calls)
	}
	if g.o.Apart {
		s.Calls = g.apart(s.Calls)
	}
	return s
}

// stir moves Recvs to another place among the calls.
func (g *generator) stir(calls []Call) {
	for i := range calls {
		if j := g.IntN(len(calls)); calls[i].Op == Recv && calls[j].Op == Recv {
			calls[i], calls[j] = calls[j], calls[i]
		}
	}
	if i := g.IntN(len(calls)); calls[i].Op == Recv && i > 0 {
		j := g.IntN(i)
		c := calls[i]
		copy(calls[j+1:i+1], calls[j:i])
		calls[j] = c
	}
}

// apart leaves out the Sends and Recvs of a group if one of them shares memory with another call.
func (g *generator) apart(calls []Call) []Call {
	var all []rankPart
	for i := range calls {
		parts, err := g.m.parts(i, &calls[i])
		if err != nil {
			return calls // the machine says so
		}
		all = append(all, parts...)
	}
	exchange := func(p rankPart) bool { c := calls[p.call]; return c.Op == Send || c.Op == Recv }
	for i := range all {
		for k := range i {
			if all[i].rank == all[k].rank && (exchange(all[i]) || exchange(all[k])) && conflict(&all[i], &all[k]) {
				return slices.DeleteFunc(calls, func(c Call) bool { return c.Op == Send || c.Op == Recv })
			}
		}
	}
	return calls
}

// typ is the type of a call: most often that of the memory's content.
func (g *generator) typ() Type {
	if t := g.p.Type; t < NumTypes && g.IntN(8) > 0 {
		return t
	}
	return Type(g.IntN(int(NumTypes)))
}

// count is the number of elements of a part, such that so many bytes suffice for parts of them.
func (g *generator) count(t Type, parts, room int) int {
	most := room / parts / t.Size()
	switch g.IntN(6) {
	case 0:
		return min(most, g.IntN(4))
	case 1:
		return most
	}
	return g.IntN(most>>g.IntN(6) + 1)
}

// at is the begin of a buffer in [from, to).
func (g *generator) at(t Type, from, to, bytes int) int {
	size := t.Size()
	from = (from + size - 1) / size * size
	return from + g.IntN((to-from-bytes)/size+1)*size
}

func (g *generator) collective(comm int) Call {
	n := len(g.m.Comms[comm])
	c := Call{Comm: comm, Op: Collectives[g.IntN(len(Collectives))], Type: g.typ()}
	if c.Op.Rooted() {
		c.Root = g.IntN(n)
	}
	half := g.p.Memory / 2
	c.Count = g.count(c.Type, n, half-8)
	if c.Op.Reduces() {
		if c.Red = Red(g.IntN(int(NumReds))); c.Red == Sum && g.IntN(3) == 0 {
			for range n {
				c.Factor = append(c.Factor, []float64{0, 1, 2, 3, 0.5}[g.IntN(4+g.IntN(2)*boolToInt(c.Type.Float()))])
			}
		}
	}
	inPlace := g.IntN(2) == 0
	low := g.IntN(2) == 0
	same := g.IntN(2) == 0 // ranks have their buffers at the same place
	var sendAt, recvAt int
	for r := range n {
		in, out := c.Op.Parts(r, c.Root, n)
		bytes := c.Count * c.Type.Size()
		own := r * bytes
		if r == 0 || !same {
			sendAt, recvAt = g.at(c.Type, 0, half, n*bytes), g.at(c.Type, half, g.p.Memory, n*bytes)
			if low {
				sendAt, recvAt = recvAt, sendAt
			}
		}
		send, recv := sendAt, recvAt
		switch {
		case !inPlace:
		case c.Op == AllGather || c.Op == Gather:
			send = recv + own
		case c.Op == ReduceScatter || c.Op == Scatter:
			recv = send + own
		default:
			recv = send
		}
		if in == 0 {
			send = 0
		}
		if out == 0 {
			recv = 0
		}
		c.Send, c.Recv = append(c.Send, send), append(c.Recv, recv)
	}
	return c
}

func boolToInt(b bool) int {
	if b {
		return 1
	}
	return 0
}

// exchange returns a Send and its Recv, at times with the like in the other direction, or a ring.
func (g *generator) exchange(comm int) []Call {
	n := len(g.m.Comms[comm])
	t := g.typ()
	count := g.count(t, 1, g.p.Memory/8)
	pair := func(from, to int) []Call {
		bytes := count * t.Size()
		c := Call{Comm: comm, Op: Send, Type: t, Count: count, From: from, To: to}
		c.Send = []int{g.at(t, 0, g.p.Memory, bytes)}
		d := c
		d.Op, d.Send, d.Recv = Recv, nil, []int{g.at(t, 0, g.p.Memory, bytes)}
		return []Call{c, d}
	}
	from, to := g.IntN(n), g.IntN(n)
	switch g.IntN(4) {
	case 0:
		return append(pair(from, to), pair(to, from)...)
	case 1:
		var all []Call
		for r := range n {
			all = append(all, pair(r, (r+1)%n)...)
		}
		return all
	}
	return pair(from, to)
}
