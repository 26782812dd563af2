package perf

import (
	"github.com/assay-hpc/assay/coll/elem"
	"github.com/assay-hpc/assay/coll/op"
)

// A collective is an operation as the benchmark sees it.
type collective struct{ op.Collective }

// collectives in the order in which nccl-tests lists its programs.
var collectives = []op.Collective{
	op.AllReduce, op.AllGather, op.Broadcast, op.ReduceScatter, op.Reduce, op.AllToAll, op.Scatter, op.Gather, op.SendRecv,
}

// Collectives returns the names of the operations.
func Collectives() []string {
	var out []string
	for _, c := range collectives {
		out = append(out, c.Test())
	}
	return out
}

func findCollective(name string) (collective, bool) {
	c, ok := op.OfTest(name)
	return collective{c}, ok
}

// redop reports whether the table shows a reduction's name. nccl-tests shows one for sendrecv,
// too.
func (c collective) redop() bool { return c.Reduces() || c.Collective == op.SendRecv }

// blocks reports whether the data consists of a block for each rank: bandwidth counts all of
// them.
func (c collective) blocks() bool { return !c.Vector() && c.Collective != op.SendRecv }

// inSend reports whether in-place operations use the rank's block of the send buffer as receive
// buffer, rather than the other way round.
func (c collective) inSend() bool {
	_, recv, ok := c.InPlace(1)
	return ok && recv == 1
}

// aliased reports whether in place both buffers are the same memory, with an undefined result.
func (c collective) aliased() bool {
	_, _, ok := c.InPlace(0)
	return !ok
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
	if !c.blocks() {
		return volume{send: count, recv: count, count: count, total: count * ws, size: t.Size()}
	}
	b := count / int64(n) &^ (16/ws - 1)
	send, recv := c.Parts(0, 0, n) // the root's, which are the longest
	return volume{send: b * int64(send), recv: b * int64(recv), count: b, total: b * ws * int64(n), size: t.Size()}
}

// bytes is the larger of the two buffers: what the table prints as size.
func (v volume) bytes() int64 { return max(v.send, v.recv) * int64(v.size) }

// bandwidth returns the algorithm and bus bandwidth in GB/s (1e9 bytes) of one operation that
// took the given number of microseconds.
func (c collective) bandwidth(v volume, us float64, n int) (alg, bus float64) {
	alg = float64(v.total) / 1e3 / us
	return alg, alg * c.BusFactor(n)
}

// buffers slices an operation's buffers out of a rank's memory. Out of place they are separate;
// in place one of them is the other, or the rank's block of it, and both are in recv.
func (c collective) buffers(send, recv []byte, v volume, rank int, inPlace bool) (s, r []byte) {
	ws := int64(v.size)
	if !inPlace {
		return send[:v.send*ws], recv[:v.recv*ws]
	}
	m := recv[:max(v.send, v.recv)*ws]
	from, to, _ := c.InPlace(rank)
	block := v.count * ws
	return m[int64(from)*block:][:v.send*ws], m[int64(to)*block:][:v.recv*ws]
}
