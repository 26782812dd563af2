package coll

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/assay-hpc/assay/coll/op"
)

// TestDo: an Op does what the method of its collective does, and Sends and Recvs are
// done together, also within a group of the caller's.
func TestDo(t *testing.T) {
	const n, part, root = 3, 16, 1
	fill := func(rank, parts int) []byte {
		b := make([]byte, parts*part)
		for i := range b {
			b[i] = byte(rank*50 + i)
		}
		return b
	}
	withRanks(t, n, testConfig(), func(c *Comm) error {
		methods := map[op.Collective]func(s, r Buffer) error{
			op.AllReduce:     func(s, r Buffer) error { return c.AllReduce(s, r, part, Uint8, Max) },
			op.Broadcast:     func(s, r Buffer) error { return c.Broadcast(s, r, part, Uint8, root) },
			op.Reduce:        func(s, r Buffer) error { return c.Reduce(s, r, part, Uint8, Max, root) },
			op.AllGather:     func(s, r Buffer) error { return c.AllGather(s, r, part, Uint8) },
			op.ReduceScatter: func(s, r Buffer) error { return c.ReduceScatter(s, r, part, Uint8, Max) },
			op.AllToAll:      func(s, r Buffer) error { return c.AllToAll(s, r, part, Uint8) },
			op.Gather:        func(s, r Buffer) error { return c.Gather(s, r, part, Uint8, root) },
			op.Scatter:       func(s, r Buffer) error { return c.Scatter(s, r, part, Uint8, root) },
		}
		for kind := range op.SendRecv {
			send, want, got := fill(c.Rank(), n), make([]byte, n*part), make([]byte, n*part)
			if err := methods[kind](Bytes(send), Bytes(want)); err != nil {
				return err
			}
			if err := c.Do(&op.Op{Coll: kind, Send: send, Recv: got, Count: part, Type: Uint8, Red: Max, Root: root}); err != nil {
				return err
			}
			if !bytes.Equal(got, want) {
				return fmt.Errorf("%v: %v; want %v", kind, got, want)
			}
		}
		next, last := (c.Rank()+1)%n, (c.Rank()+n-1)%n
		ring := op.Op{Coll: op.SendRecv, Send: fill(c.Rank(), 1), Recv: make([]byte, part), Count: part, Type: Uint8}
		ends := op.Op{Coll: op.SendRecv, Transfers: []op.Transfer{{Peer: last, Data: fill(c.Rank(), 2), Send: true}, {Peer: next, Data: make([]byte, 2*part)}}}
		check := func() error {
			if !bytes.Equal(ring.Recv, fill(last, 1)) || !bytes.Equal(ends.Transfers[1].Data, fill(next, 2)) {
				return fmt.Errorf("received %v and %v", ring.Recv, ends.Transfers[1].Data)
			}
			clear(ring.Recv)
			clear(ends.Transfers[1].Data)
			return nil
		}
		for _, o := range []*op.Op{&ring, &ends} {
			if err := c.Do(o); err != nil {
				return err
			}
		}
		if err := check(); err != nil {
			return err
		}
		var g Group
		g.Start()
		g.Add(c)
		_, _ = c.Do(&ring), c.Do(&ends)
		if ring.Recv[1] != 0 || ends.Transfers[1].Data[1] != 0 {
			return fmt.Errorf("what belongs to a group was done before its end")
		}
		if err := g.End(); err != nil {
			return err
		}
		if err := check(); err != nil {
			return err
		}
		if err := c.Do(&op.Op{Coll: op.SendRecv, Send: ring.Send[:3], Recv: ring.Recv, Count: part, Type: Uint8}); CodeOf(err) != InvalidArgument {
			return fmt.Errorf("a short buffer: %v", err)
		}
		return c.Barrier()
	})
}
