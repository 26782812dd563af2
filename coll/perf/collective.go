package perf

import "github.com/assay-hpc/assay/coll/elem"

// A collective is all that the benchmark knows about one operation.
type collective struct {
	name    string
	rooted  bool // it has a root, shown in the table
	reduces bool // it applies a reduction
	redop   bool // the table shows a reduction's name
	blocks  bool // its data is a block for each rank: bandwidth counts all of them
	send    bool // the send buffer holds a block for each rank
	recv    bool // the receive buffer does
	// inSend says where in-place operations find the other buffer: the rank's
	// own block of the send buffer (true) or of the receive buffer (false).
	inSend  bool
	aliased bool // in place both are the same and the result is undefined
	factor  func(n float64) float64
	run     func(c Comm, send, recv []byte, a args) error
}

// args are those of one operation.
type args struct {
	count int
	t     elem.Type
	op    elem.Op
	root  int
}

func ringTwice(n float64) float64 { return 2 * (n - 1) / n }
func ringOnce(n float64) float64  { return (n - 1) / n }
func whole(float64) float64       { return 1 }

// collectives in the order in which nccl-tests lists its programs. Factors
// are from its PERFORMANCE.md: bus bandwidth is what the slowest link carries
// at best, whatever the number of ranks.
var collectives = []collective{
	{
		name: "all_reduce", reduces: true, redop: true, factor: ringTwice,
		run: func(c Comm, s, r []byte, a args) error { return c.AllReduce(s, r, a.count, a.t, a.op) },
	},
	{
		name: "all_gather", blocks: true, recv: true, factor: ringOnce,
		run: func(c Comm, s, r []byte, a args) error { return c.AllGather(s, r, a.count, a.t) },
	},
	{
		name: "broadcast", rooted: true, factor: whole,
		run: func(c Comm, s, r []byte, a args) error { return c.Broadcast(s, r, a.count, a.t, a.root) },
	},
	{
		name: "reduce_scatter", reduces: true, redop: true, blocks: true, send: true, inSend: true, factor: ringOnce,
		run: func(c Comm, s, r []byte, a args) error { return c.ReduceScatter(s, r, a.count, a.t, a.op) },
	},
	{
		name: "reduce", rooted: true, reduces: true, redop: true, factor: whole,
		run: func(c Comm, s, r []byte, a args) error { return c.Reduce(s, r, a.count, a.t, a.op, a.root) },
	},
	{
		name: "alltoall", blocks: true, send: true, recv: true, aliased: true, factor: ringOnce,
		run: func(c Comm, s, r []byte, a args) error { return c.AllToAll(s, r, a.count, a.t) },
	},
	{
		name: "scatter", rooted: true, blocks: true, send: true, inSend: true, factor: ringOnce,
		run: func(c Comm, s, r []byte, a args) error { return c.Scatter(s, r, a.count, a.t, a.root) },
	},
	{
		name: "gather", rooted: true, blocks: true, recv: true, factor: ringOnce,
		run: func(c Comm, s, r []byte, a args) error { return c.Gather(s, r, a.count, a.t, a.root) },
	},
	{
		// Every rank sends to the next one and receives from the one before.
		name: "sendrecv", redop: true, aliased: true, factor: whole,
		run: func(c Comm, s, r []byte, a args) error {
			n := c.Size()
			return c.SendRecv(s, (c.Rank()+1)%n, r, (c.Rank()+n-1)%n, a.count, a.t)
		},
	},
}

// Collectives are the names of the operations.
func Collectives() []string {
	var out []string
	for _, c := range collectives {
		out = append(out, c.name)
	}
	return out
}

func findCollective(name string) (collective, bool) {
	for _, c := range collectives {
		if c.name == name {
			return c, true
		}
	}
	return collective{}, false
}

// A volume is how much one operation moves: elements of each buffer, the count
// that is passed, and the bytes that bandwidth is computed from.
type volume struct {
	send, recv, count int64
	total             int64
	size              int // of an element
}

// volume applies nccl-tests' rounding to a size in bytes: blocks are whole
// multiples of 16 bytes.
func (c collective) volume(size int64, n int, t elem.Type) volume {
	ws := int64(t.Size())
	count := size / ws
	v := volume{send: count, recv: count, count: count, total: count * ws, size: t.Size()}
	if !c.blocks {
		return v
	}
	b := count / int64(n) &^ (16/ws - 1)
	v = volume{send: b, recv: b, count: b, total: b * ws * int64(n), size: t.Size()}
	if c.send {
		v.send *= int64(n)
	}
	if c.recv {
		v.recv *= int64(n)
	}
	return v
}

// bytes is the larger of the two buffers: what the table prints as size.
func (v volume) bytes() int64 { return max(v.send, v.recv) * int64(v.size) }

// bandwidth is the algorithm's and the bus's in GB/s (1e9 bytes), of one
// operation that took so many microseconds.
func (c collective) bandwidth(v volume, us float64, n int) (alg, bus float64) {
	alg = float64(v.total) / 1e3 / us
	return alg, alg * c.factor(float64(n))
}

// buffers cuts an operation's buffers out of a rank's memory. Out of place
// they are apart; in place the one is the other, or the rank's block of it,
// and both are in recv.
func (c collective) buffers(send, recv []byte, v volume, rank int, inPlace bool) (s, r []byte) {
	ws := int64(v.size)
	if !inPlace {
		return send[:v.send*ws], recv[:v.recv*ws]
	}
	m := recv[:max(v.send, v.recv)*ws]
	switch {
	case !c.blocks || c.aliased:
		return m, m
	case c.inSend:
		return m, m[int64(rank)*v.recv*ws:][:v.recv*ws]
	}
	return m[int64(rank)*v.send*ws:][:v.send*ws], m
}
