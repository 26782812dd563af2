package colltest

import "github.com/assay-hpc/assay/coll/elem"

// An operation is one call that all ranks make.
type operation struct {
	coll    *collective
	t       elem.Type
	op      elem.Op
	count   int
	root    int
	inPlace bool
	seed    uint64
	answer  *answer // what it comes to, for those that reduce
}

// A collective says for one of Comm's methods how long the buffers are, in
// parts of count elements, and what comes out.
type collective struct {
	name         string
	reduces      bool
	rooted       bool
	sends, recvs func(n int) int // parts of the send and of the receive buffer
	alias        alias
	call         func(c Comm, o operation, send, recv []byte) error
	receives     func(rank, root int) bool                     // whether the rank's receive buffer is written
	want         func(d data, rank, root, count, i int) uint64 // element i of the receive buffer
}

// An alias says how the buffers lie in place.
type alias uint8

const (
	never      alias = iota // there is no in-place form
	same                    // send and receive are one
	sendInRecv              // send is the rank's part of receive
	recvInSend              // receive is the rank's part of send
)

func one(int) int                { return 1 }
func each(n int) int             { return n }
func all(_, _ int) bool          { return true }
func atRoot(rank, root int) bool { return rank == root }

var collectives = []*collective{
	{name: "AllReduce", reduces: true, sends: one, recvs: one, alias: same, receives: all,
		call: func(c Comm, o operation, s, r []byte) error { return c.AllReduce(s, r, o.count, o.t, o.op) },
		want: func(d data, _, _, _, i int) uint64 { return d.reduced(i) }},
	{name: "Reduce", reduces: true, rooted: true, sends: one, recvs: one, alias: same, receives: atRoot,
		call: func(c Comm, o operation, s, r []byte) error { return c.Reduce(s, r, o.count, o.t, o.op, o.root) },
		want: func(d data, _, _, _, i int) uint64 { return d.reduced(i) }},
	{name: "ReduceScatter", reduces: true, sends: each, recvs: one, alias: recvInSend, receives: all,
		call: func(c Comm, o operation, s, r []byte) error { return c.ReduceScatter(s, r, o.count, o.t, o.op) },
		want: func(d data, rank, _, count, i int) uint64 { return d.reduced(rank*count + i) }},
	{name: "Broadcast", rooted: true, sends: one, recvs: one, alias: same, receives: all,
		call: func(c Comm, o operation, s, r []byte) error { return c.Broadcast(s, r, o.count, o.t, o.root) },
		want: func(d data, _, root, _, i int) uint64 { return d.at(root, i) }},
	{name: "AllGather", sends: one, recvs: each, alias: sendInRecv, receives: all,
		call: func(c Comm, o operation, s, r []byte) error { return c.AllGather(s, r, o.count, o.t) },
		want: func(d data, _, _, count, i int) uint64 { return d.at(i/count, i%count) }},
	{name: "AllToAll", sends: each, recvs: each, receives: all,
		call: func(c Comm, o operation, s, r []byte) error { return c.AllToAll(s, r, o.count, o.t) },
		want: func(d data, rank, _, count, i int) uint64 { return d.at(i/count, rank*count+i%count) }},
	{name: "Gather", rooted: true, sends: one, recvs: each, alias: sendInRecv, receives: atRoot,
		call: func(c Comm, o operation, s, r []byte) error { return c.Gather(s, r, o.count, o.t, o.root) },
		want: func(d data, _, _, count, i int) uint64 { return d.at(i/count, i%count) }},
	{name: "Scatter", rooted: true, sends: each, recvs: one, alias: recvInSend, receives: all,
		call: func(c Comm, o operation, s, r []byte) error { return c.Scatter(s, r, o.count, o.t, o.root) },
		want: func(d data, rank, root, count, i int) uint64 { return d.at(root, rank*count+i) }},
	{name: "SendRecv", sends: one, recvs: one, receives: all,
		call: func(c Comm, o operation, s, r []byte) error {
			n := c.Size()
			return c.SendRecv(s, (c.Rank()+1)%n, r, (c.Rank()+n-1)%n, o.count, o.t)
		},
		want: func(d data, rank, _, _, i int) uint64 { return d.at((rank+d.n-1)%d.n, i) }},
}
