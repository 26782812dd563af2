package bootstrap

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
)

// block is what rank gives in round: of changing length.
func block(rank, round int) []byte {
	return bytes.Repeat(fmt.Appendf(nil, "%d.%d ", rank, round), (rank*7+round*13)%50)
}

func TestExchange(t *testing.T) {
	t.Parallel()
	sizes := []int{1, 2, 3, 4, 5, 6, 7, 16, 22, 64}
	if testing.Short() {
		sizes = []int{1, 2, 3, 6, 22}
	}
	for _, size := range sizes {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			nets := comeUp(t, size, local(), nil)
			defer closeAll(t, nets)
			each(nets, func(n *Net) {
				for round := range 10 {
					got, err := n.AllGather(context.Background(), block(n.Rank(), round))
					if err != nil {
						t.Error(err)
						return
					}
					for r := range size {
						if !bytes.Equal(got[r], block(r, round)) {
							t.Errorf("round %d: rank %d has %q of rank %d; want %q", round, n.Rank(), got[r], r, block(r, round))
						}
						clear(got[r]) // it is ours
					}
					if round%3 == 0 {
						if err := n.Barrier(context.Background()); err != nil {
							t.Error(err)
							return
						}
					}
				}
			})
		})
	}
}

func TestThousand(t *testing.T) {
	if testing.Short() {
		t.Skip("1,024 ranks take seconds")
	}
	o := local()
	begun := time.Now()
	root := newTestRoot(t, o)
	nets, errs := joinAll(t, root.ID(), 1024, o, nil)
	for _, err := range errs {
		if err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("up after %v", time.Since(begun))
	ends := 0
	for r := range nets {
		ends += len(neighbours(r, len(nets)))
	}
	// Listeners and the root's connections are closed by now, or soon.
	root.Close()
	if got := sockets(); got > ends+50 {
		t.Errorf("%d sockets are open; want about %d, the ends of links", got, ends)
	}
	t.Logf("%d ends of links", ends)
	begun = time.Now()
	each(nets, func(n *Net) {
		got, err := n.AllGather(context.Background(), make([]byte, 256))
		if err != nil || len(got) != 1024 {
			t.Error(err)
		}
	})
	t.Logf("all-gather of 256 bytes: %v", time.Since(begun))
	begun = time.Now()
	each(nets, func(n *Net) { n.Barrier(context.Background()) })
	t.Logf("barrier: %v", time.Since(begun))
	begun = time.Now()
	closeAll(t, nets)
	t.Logf("close: %v", time.Since(begun))
}

// BenchmarkStart is from NewRoot until all ranks, in one process, are up.
func BenchmarkStart(b *testing.B) {
	for _, size := range []int{2, 8, 64, 1024} {
		b.Run(fmt.Sprintf("ranks=%d", size), func(b *testing.B) {
			for b.Loop() {
				nets := comeUp(b, size, local(), nil)
				b.StopTimer()
				closeAll(b, nets)
				b.StartTimer()
			}
		})
	}
}

func BenchmarkAllGather(b *testing.B) {
	for _, size := range []int{2, 8, 64, 1024} {
		nets := comeUp(b, size, local(), nil)
		b.Run(fmt.Sprintf("ranks=%d/bytes=256", size), func(b *testing.B) {
			each(nets, func(n *Net) {
				for range b.N {
					if _, err := n.AllGather(context.Background(), make([]byte, 256)); err != nil {
						b.Error(err)
					}
				}
			})
		})
		closeAll(b, nets)
	}
}

// TestFamily: a rank does not use what it was told not to.
func TestFamily(t *testing.T) {
	root := newTestRoot(t, local()) // IPv4
	o := local()
	o.Family = "AF_INET6"
	if _, err := Join(context.Background(), root.ID(), 0, 1, o); err == nil || !strings.Contains(err.Error(), "AF_INET6") {
		t.Errorf("Join = %v; want that there is no address of AF_INET6", err)
	}
	o.Family = "AF_UNIX"
	if _, err := Join(context.Background(), root.ID(), 0, 1, o); err == nil || !strings.Contains(err.Error(), "AF_UNIX") {
		t.Errorf("Join = %v; want that there is no family AF_UNIX", err)
	}
}

// TestAddr: ranks are where the root is reached from, and list that first.
func TestAddr(t *testing.T) {
	nets := comeUp(t, 3, local(), nil)
	defer closeAll(t, nets)
	for _, n := range nets {
		list := n.Addrs()
		if n.Addr().String() != "127.0.0.1" || list[0].Addr != n.Addr() || list[0].Name != "lo" {
			t.Errorf("rank %d: Addr %v, Addrs %v", n.Rank(), n.Addr(), list)
		}
		if string(n.Key("a")) != string(nets[0].Key("a")) || string(n.Key("a")) == string(n.Key("b")) {
			t.Errorf("rank %d: keys differ among ranks, or not among labels", n.Rank())
		}
	}
}

// TestCanceledFor: an exchange that is canceled says why: what ended a communicator ends the making of its children.
func TestCanceledFor(t *testing.T) {
	why := errors.New("rank 2 aborted the parent")
	nets := comeUp(t, 2, local(), nil)
	defer each(nets, func(n *Net) { _ = n.Close() })
	ctx, cancel := context.WithCancelCause(t.Context())
	time.AfterFunc(10*time.Millisecond, func() { cancel(why) })
	if _, err := nets[0].AllGather(ctx, nil); !errors.Is(err, why) || !strings.Contains(err.Error(), why.Error()) {
		t.Errorf("%v; want %v", err, why)
	}
}

// TestCancelled: an exchange that nobody is missing from may end with its context, too.
func TestCancelled(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for range 40 {
		n := comeUp(t, 1, local(), nil)[0]
		if _, err := n.AllGather(ctx, nil); err != nil && !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	}
}
