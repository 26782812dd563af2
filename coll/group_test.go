package coll

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/assay-hpc/assay/coll/colltest"
	"github.com/assay-hpc/assay/coll/transport"
)

// One goroutine is all ranks: without a group, the first call would wait for
// the others for ever.
func TestGroupSeveralRanks(t *testing.T) {
	const n, count = 4, 100_001
	comms, err := CommInitAll(context.Background(), n, testConfig())
	if err != nil {
		t.Fatal(err)
	}
	bufs := make([][]float32, n)
	var g Group
	for range 3 {
		g.Start()
		g.Add(comms...)
		for r, c := range comms {
			bufs[r] = make([]float32, count)
			for i := range bufs[r] {
				bufs[r][i] = float32(r + i%7)
			}
			if err := c.AllReduce(Of(bufs[r]), Of(bufs[r]), count, Float32, Sum); err != nil {
				t.Fatal(err)
			}
		}
		if err := g.End(); err != nil {
			t.Fatal(err)
		}
		for r := range bufs {
			for i, got := range bufs[r] {
				if want := float32(n*(n-1)/2 + n*(i%7)); got != want {
					t.Fatalf("rank %d: [%d] = %v; want %v", r, i, got, want)
				}
			}
		}
	}
	destroyAll(t, comms)
}

func destroyAll(t *testing.T, comms []*Comm) {
	t.Helper()
	for _, c := range comms {
		if err := c.Destroy(); err != nil {
			t.Error(err)
		}
	}
}

// A group of several operations, nested groups among them, is one launch; all
// results are there after the outermost End and none before.
func TestGroupAggregates(t *testing.T) {
	withRanks(t, 3, testConfig(), func(c *Comm) error {
		const layers = 20
		var g Group
		in, out := make([]int64, layers), make([]int64, layers)
		root := []int64{0}
		if c.Rank() == 1 {
			root[0] = 77
		}
		g.Start()
		g.Add(c)
		if err := c.Broadcast(Of(root), Of(root), 1, Int64, 1); err != nil {
			return err
		}
		for i := range layers {
			in[i] = int64(i + c.Rank())
			g.Start()
			if err := c.AllReduce(Of(in[i:i+1]), Of(out[i:i+1]), 1, Int64, Sum); err != nil {
				return err
			}
			if err := g.End(); err != nil {
				return err
			}
			if out[i] != 0 {
				return fmt.Errorf("layer %d ran before the outermost End", i)
			}
		}
		if err := g.End(); err != nil {
			return err
		}
		for i := range layers {
			if want := int64(3*i + 3); out[i] != want {
				return fmt.Errorf("layer %d: %d; want %d", i, out[i], want)
			}
		}
		if root[0] != 77 {
			return fmt.Errorf("broadcast: %d; want 77", root[0])
		}
		// Outside of a group again.
		return c.AllReduce(Of(in), Of(out), layers, Int64, Max)
	})
}

func TestGroupEndWithoutStart(t *testing.T) {
	var g Group
	if err := g.End(); CodeOf(err) != InvalidUsage {
		t.Errorf("End() = %v; want invalid usage", err)
	}
}

// Everyone exchanges with everyone, itself included, several messages each,
// far larger than what fits between two ranks, in whatever order.
func TestGroupSendRecv(t *testing.T) {
	for _, count := range []int{1, 1000, 700_000} {
		withRanks(t, 4, testConfig(), func(c *Comm) error {
			n := c.Size()
			in, out := make([][]uint32, 2*n), make([][]uint32, 2*n)
			var g Group
			g.Start()
			g.Add(c)
			for k := range 2 * n {
				peer := (k + c.Rank()) % n
				in[k], out[k] = make([]uint32, count), make([]uint32, count)
				for i := range in[k] {
					in[k][i] = uint32(c.Rank()<<24 | peer<<16 | k/n<<15 | i&0x7fff)
				}
				if err := c.Send(Of(in[k]), count, Uint32, peer); err != nil {
					return err
				}
				if err := c.Recv(Of(out[k]), count, Uint32, peer); err != nil {
					return err
				}
			}
			if err := g.End(); err != nil {
				return err
			}
			for k := range 2 * n {
				peer := (k + c.Rank()) % n
				for i, got := range out[k] {
					if want := uint32(peer<<24 | c.Rank()<<16 | k/n<<15 | i&0x7fff); got != want {
						return fmt.Errorf("message %d from %d: [%d] = %#x; want %#x", k/n, peer, i, got, want)
					}
				}
			}
			return nil
		})
	}
}

// Outside of a group, Sends and Recvs go in order, with collectives between.
func TestSendRecvAlone(t *testing.T) {
	withRanks(t, 2, testConfig(), func(c *Comm) error {
		for round := range 50 {
			v := []int32{int32(round)}
			var err error
			if c.Rank() == round%2 {
				err = c.Send(Of(v), 1, Int32, 1-c.Rank())
			} else {
				v[0] = -1
				err = c.Recv(Of(v), 1, Int32, 1-c.Rank())
			}
			if err != nil {
				return err
			}
			if v[0] != int32(round) {
				return fmt.Errorf("round %d: received %d", round, v[0])
			}
			if err := c.AllReduce(Of(v), Of(v), 1, Int32, Sum); err != nil {
				return err
			}
		}
		v := []int32{1}
		if err := c.Send(Of(v), 1, Int32, c.Rank()); CodeOf(err) != InvalidUsage {
			return fmt.Errorf("Send to itself, alone: %v; want invalid usage", err)
		}
		return nil
	})
}

func TestSplit(t *testing.T) {
	withRanks(t, 6, testConfig(), func(c *Comm) error {
		color := c.Rank() % 2
		if c.Rank() == 5 {
			color = NoColor
		}
		sub, err := c.Split(context.Background(), color, -c.Rank(), Child{})
		if err != nil {
			return err
		}
		if c.Rank() == 5 {
			if sub != nil {
				return errors.New("a rank without a color got a communicator")
			}
			return nil
		}
		want := [][]int{{4, 2, 0}, {3, 1}}[color]
		if sub.Size() != len(want) || want[sub.Rank()] != c.Rank() {
			return fmt.Errorf("rank %d became %d of %d", c.Rank(), sub.Rank(), sub.Size())
		}
		v := []int32{int32(c.Rank())}
		if err := sub.AllReduce(Of(v), Of(v), 1, Int32, Sum); err != nil {
			return err
		}
		if sum := []int32{6, 4}[color]; v[0] != sum {
			return fmt.Errorf("sum over color %d: %d; want %d", color, v[0], sum)
		}
		return sub.Destroy()
	})
}

// TestDestroyInTurn: one goroutine destroys its ranks one after another. All but the
// last return before the others are there, and touch no stream afterwards; the last
// one has what was found wrong.
func TestDestroyInTurn(t *testing.T) {
	for _, odd := range []bool{false, true} {
		colltest.Watch(t)
		all := fakes(t)
		comms, err := CommInitAll(t.Context(), 3, deviceConfig(3))
		if err != nil {
			t.Fatal(err)
		}
		for r, c := range comms {
			if odd && r == 1 {
				continue
			}
			if err := c.AllReduce(mem(0, 64), mem(1, 64), 16, Float32, Sum); err != nil {
				t.Fatal(err)
			}
		}
		for r, c := range comms[:2] {
			if err := c.Destroy(); err != nil {
				t.Errorf("rank %d: %v", r, err)
			}
			f := of(all, r)
			f.mu.Lock()
			if !f.left || len(f.log) > 1 {
				t.Errorf("rank %d's executor: left %v, heard %q", r, f.left, f.log)
			}
			f.mu.Unlock()
		}
		if err := comms[2].Destroy(); (err != nil) != odd {
			t.Errorf("the last Destroy: %v", err)
		}
		for r := range comms {
			if f := of(all, r); !slices.ContainsFunc(f.log, func(s string) bool { return strings.HasPrefix(s, "close together") }) {
				t.Errorf("rank %d's executor heard %q", r, f.log)
			}
		}
	}
}

// TestTwoGroups: a communicator that belongs to an open group cannot be added to another one, whose
// operations would not run.
func TestTwoGroups(t *testing.T) {
	withRanks(t, 1, testConfig(), func(c *Comm) error {
		var a, b Group
		a.Start()
		a.Add(c)
		b.Start()
		b.Add(c)
		if err := b.End(); CodeOf(err) != InvalidUsage {
			t.Errorf("the second group: %v", err)
		}
		in, out := []int32{5}, []int32{0}
		if err := errors.Join(c.AllReduce(Of(in), Of(out), 1, Int32, Sum), a.End()); err != nil || out[0] != 5 {
			t.Errorf("the first group: %v, %v", err, out)
		}
		return nil
	})
}

// TestGroupFails: of two communicators in a group, with other numbers for the same ranks, each has
// an error that is true of its own ranks.
func TestGroupFails(t *testing.T) {
	comms, err := CommInitAll(t.Context(), 3, testConfig())
	if err != nil {
		t.Fatal(err)
	}
	// A rank that aborts a communicator fails the Split of one that still waits in it.
	var wg, split sync.WaitGroup
	split.Add(len(comms))
	for r, c := range comms {
		wg.Go(func() {
			turned, err := c.Split(t.Context(), 0, -r, Child{})
			split.Done()
			split.Wait()
			if err != nil {
				t.Error(err)
				return
			}
			defer func() { _, _ = turned.Abort(), c.Abort() }()
			var g Group
			g.Start()
			g.Add(c, turned)
			b, n := make([]int32, 8), 4
			if r == 0 { // rank 2 of turned
				n = 2
			}
			_, _ = c.AllReduce(Of(b[:4]), Of(b[:4]), 4, Int32, Sum), turned.AllReduce(Of(b[4:]), Of(b[4:]), n, Int32, Sum)
			first := g.End()
			e, ok := errors.AsType[*Error](c.AsyncError())
			if first == nil || !ok || e.Peer != NoPeer && e.Code != RemoteError {
				t.Errorf("rank %d: %v, and of the communicator that is all right %+v", r, first, e)
			}
			if r > 0 {
				if e, ok := errors.AsType[*Error](turned.AsyncError()); !ok || e.Peer == turned.Rank() || e.Peer == 0 && turned.Rank() == 0 {
					t.Errorf("rank %d of the other: %v", turned.Rank(), turned.AsyncError())
				}
			}
		})
	}
	wg.Wait()
}

// TestRankOutOfRange: the ranks of a call that joins several do not wait for one that cannot join.
// TestGroupAbortedTwice: rank 2 aborts, and rank 1 so its communicator with rank 0, which hears of that
// first: also there the communicator of all says who began.
func TestGroupAbortedTwice(t *testing.T) {
	comms, err := CommInitAll(t.Context(), 3, testConfig())
	if err != nil {
		t.Fatal(err)
	}
	var pair [3]*Comm
	var wg sync.WaitGroup
	for r, c := range comms {
		wg.Go(func() {
			color := 0
			if r == 2 {
				color = NoColor
			}
			var err error
			if pair[r], err = c.Split(t.Context(), color, 0, Child{}); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if t.Failed() {
		t.FailNow()
	}
	ended := make(chan error, 1)
	go func() {
		var g Group
		g.Start()
		g.Add(comms[0], pair[0])
		v := []float32{1, 2}
		_ = comms[0].AllReduce(Of(v[:1]), Of(v[:1]), 1, Float32, Sum)
		_ = pair[0].AllReduce(Of(v[1:]), Of(v[1:]), 1, Float32, Sum)
		ended <- g.End()
	}()
	_ = pair[1].Abort()
	time.Sleep(transport.Late / 5)
	_ = comms[2].Abort()
	if err := <-ended; !errors.Is(err, ErrAborted) {
		t.Errorf("the group: %v", err)
	}
	if err := comms[0].AsyncError(); err == nil || !strings.Contains(err.Error(), "by rank 2") {
		t.Errorf("the communicator of all: %v", err)
	}
	for _, c := range []*Comm{comms[0], comms[1], pair[0]} {
		_ = c.Abort()
	}
}

func TestRankOutOfRange(t *testing.T) {
	id, err := GetUniqueID(testConfig())
	if err != nil {
		t.Fatal(err)
	}
	cfg := testConfig()
	cfg.Knobs.Timeout = time.Hour
	if _, err := CommInitRanks(t.Context(), 3, id, []int{0, 1, 7}, cfg); CodeOf(err) != InvalidArgument || !strings.Contains(err.Error(), "there is no rank 7 of 3") {
		t.Errorf("%v", err)
	}
}
