package predict

import "github.com/assay-hpc/assay/coll/schedule"

// A compiler turns the programs of the ranks 0 … period-1 into a machine. If the schedule is a
// rotation of itself (see rotation), the other ranks do the same at the same times: a message
// to rank r goes to r mod period.
type compiler struct {
	*simulation
	t        Topology
	n        int32
	period   int32
	out, in  []int32 // ports, by rank
	up, down []int32 // uplinks, by domain; nil with one domain
	conns    map[connection]int32
}

// A connection is a connection of the schedule: sender, receiver, channel. distance
// distinguishes ranks that map to the same rank of the period.
type connection struct {
	from, to, distance int32
	channel            int
	multi              bool
}

func compile(s *schedule.Schedule, t Topology, slots, period int) *simulation {
	c := compiler{simulation: newMachine(slots), t: t, n: int32(s.Ranks), period: int32(period), conns: map[connection]int32{}}
	for range period {
		c.out = append(c.out, c.link(t.Port))
		c.in = append(c.in, c.link(t.Port))
	}
	if t.domains() > 1 {
		for range period / t.domain() {
			c.up = append(c.up, c.link(t.Uplink))
			c.down = append(c.down, c.link(t.Uplink))
		}
	}
	for r := range int32(period) {
		for _, l := range s.Program(int(r)).Lanes {
			ops := make([]task, len(l.Steps))
			for i, st := range l.Steps {
				ops[i] = c.task(r, l.Channel, st)
			}
			c.lane(ops)
		}
	}
	return c.simulation
}

func (c *compiler) task(r int32, channel int, st schedule.Step) task {
	o := task{recv: -1, blocks: float64(st.Data.N), latency: c.t.Latency.Seconds()}
	if st.Recv >= 0 {
		o.recv = c.connect(st.Recv, r, channel, st.Multi)
	}
	switch {
	case st.Send >= 0:
		c.send(&o, r, st.Send, channel, false)
	case st.Send == schedule.Everyone:
		for d := int32(1); d < c.n; d++ {
			c.send(&o, r, (r+d)%c.n, channel, true)
		}
	}
	return o
}

// send adds a message to a task. A message to Everyone leaves the sender once.
func (c *compiler) send(o *task, from, to int32, channel int, multi bool) {
	o.sends = append(o.sends, c.connect(from, to, channel, multi))
	if len(o.links) == 0 {
		o.links = append(o.links, c.out[from%c.period])
	}
	o.links = append(o.links, c.in[to%c.period])
	size := int32(c.t.domain())
	if from/size == to/size {
		return
	}
	o.latency = c.t.UplinkLatency.Seconds()
	o.links = append(o.links, c.up[from%c.period/size], c.down[to%c.period/size])
}

func (c *compiler) connect(from, to int32, channel int, multi bool) int32 {
	k := connection{from % c.period, to % c.period, (to - from + c.n) % c.n, channel, multi}
	i, ok := c.conns[k]
	if !ok {
		i = c.conn()
		c.conns[k] = i
	}
	return i
}

// rotation returns the smallest number of ranks g, a domain or a single rank, such that rank
// r+g does what rank r does with all peers shifted by g. If there is none, it returns the
// number of all ranks. Only peers and sizes are compared, not blocks.
func rotation(s *schedule.Schedule, t Topology) int {
	g := 1
	if t.domains() > 1 {
		g = t.domain()
	}
	if g == s.Ranks {
		return g
	}
	first := make([]schedule.Program, g)
	for r := range first {
		first[r] = s.Program(r)
	}
	for r := g; r < s.Ranks; r++ {
		if !rotated(first[r%g], s.Program(r), int32(r-r%g), int32(s.Ranks)) {
			return s.Ranks
		}
	}
	return g
}

// rotated reports whether b is a with all peers shifted by d of n ranks.
func rotated(a, b schedule.Program, d, n int32) bool {
	if len(a.Lanes) != len(b.Lanes) {
		return false
	}
	move := func(rank int32) int32 {
		if rank < 0 {
			return rank
		}
		return (rank + d) % n
	}
	for i, l := range a.Lanes {
		if l.Channel != b.Lanes[i].Channel || len(l.Steps) != len(b.Lanes[i].Steps) {
			return false
		}
		for j, x := range l.Steps {
			y := b.Lanes[i].Steps[j]
			if move(x.Recv) != y.Recv || move(x.Send) != y.Send || x.Multi != y.Multi || x.Data.N != y.Data.N {
				return false
			}
		}
	}
	return true
}
