package bootstrap

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/assay-hpc/assay/coll/transport"
)

// kill ends a rank as kill -9 does: its connections break without a word.
func (n *Net) kill() {
	n.events.stop()
	n.mu.Lock()
	n.closing = true
	n.mu.Unlock()
	for _, l := range n.links {
		l.conn.(*net.TCPConn).SetLinger(0)
		l.breakOff(errors.New("killed"))
	}
	n.wg.Wait()
}

// deaths collects what OnDeath is told.
type deaths struct {
	mu   sync.Mutex
	seen map[int]map[int][]string // by rank told, rank dead
	more chan struct{}
}

func newDeaths() *deaths {
	return &deaths{seen: map[int]map[int][]string{}, more: make(chan struct{}, 1)}
}

func (d *deaths) watch(rank int, o *Options) {
	o.OnDeath = func(dead int, what string) {
		d.mu.Lock()
		defer d.mu.Unlock()
		if d.seen[rank] == nil {
			d.seen[rank] = map[int][]string{}
		}
		d.seen[rank][dead] = append(d.seen[rank][dead], what)
		select {
		case d.more <- struct{}{}:
		default:
		}
	}
}

// await waits until all ranks have heard of all of dead.
func (d *deaths) await(t *testing.T, ranks, dead []int) {
	t.Helper()
	timeout := time.After(5 * time.Minute)
	for {
		if d.lacking(ranks, dead) == "" {
			return
		}
		select {
		case <-d.more:
		case <-timeout:
			t.Fatalf("not all have heard: %s", d.lacking(ranks, dead))
		}
	}
}

// of is what a rank has heard so far; of other deaths it may hear still.
func (d *deaths) of(rank int) map[int][]string {
	d.mu.Lock()
	defer d.mu.Unlock()
	heard := map[int][]string{}
	for dead, whats := range d.seen[rank] {
		heard[dead] = slices.Clone(whats)
	}
	return heard
}

func (d *deaths) lacking(ranks, dead []int) string {
	d.mu.Lock()
	defer d.mu.Unlock()
	var s []string
	for _, r := range ranks {
		for _, x := range dead {
			if len(d.seen[r][x]) == 0 {
				s = append(s, fmt.Sprintf("rank %d not of %d", r, x))
			}
		}
	}
	return strings.Join(s, ", ")
}

func without(n int, dead []int) (out []int) {
	for r := range n {
		alive := true
		for _, d := range dead {
			alive = alive && d != r
		}
		if alive {
			out = append(out, r)
		}
	}
	return out
}

// TestDeath: whoever dies, all others hear of it once, and their exchanges end
// with it.
func TestDeath(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		ranks int
		dead  []int
	}{
		{2, []int{0}}, {2, []int{1}}, {3, []int{0}}, {5, []int{4}}, {22, []int{0}}, {22, []int{1}}, {22, []int{21}},
		{22, []int{0, 5, 6}}, {64, []int{0, 1, 2, 3, 4}},
	} {
		t.Run(fmt.Sprint(tt.ranks, tt.dead), func(t *testing.T) {
			if testing.Short() && tt.ranks > 22 {
				t.Skip("many ranks")
			}
			d := newDeaths()
			nets := comeUp(t, tt.ranks, local(), d.watch)
			alive := without(tt.ranks, tt.dead)
			var wg sync.WaitGroup
			for _, r := range alive {
				wg.Go(func() {
					err := nets[r].Barrier(context.Background())
					var lost *transport.PeerError
					if !errors.As(err, &lost) {
						t.Errorf("rank %d: Barrier = %v; want a PeerError", r, err)
					}
				})
			}
			for _, r := range tt.dead {
				wg.Go(nets[r].kill)
			}
			wg.Wait()
			d.await(t, alive, tt.dead[:1])
			// Aborting because of it is no further death.
			each(nets, (*Net).Abort)
			for _, r := range alive {
				for x, whats := range d.of(r) {
					if len(whats) != 1 {
						t.Errorf("rank %d heard %d times of rank %d: %q", r, len(whats), x, whats)
					}
					if !contains(tt.dead, x) {
						t.Errorf("rank %d heard of the death of %d (%q), which lives", r, x, whats)
					}
				}
			}
		})
	}
}

func contains(list []int, x int) bool {
	for _, y := range list {
		if x == y {
			return true
		}
	}
	return false
}

// TestPartition: when the graph falls apart each part hears of a death.
func TestPartition(t *testing.T) {
	const ranks = 16 // tree: 0; 1–4; 5–15 under 1, 2, 3
	dead := []int{0, 1, 2, 3, 5, 7, 9, 11, 13, 15}
	d := newDeaths()
	nets := comeUp(t, ranks, local(), d.watch)
	var wg sync.WaitGroup
	for _, r := range dead {
		wg.Go(nets[r].kill)
	}
	wg.Wait()
	for _, r := range without(ranks, dead) {
		select {
		case <-nets[r].failed:
		case <-time.After(5 * time.Minute):
			t.Errorf("rank %d has heard of nothing", r)
		}
	}
	each(nets, (*Net).Abort)
}

// TestAbort: an abort out of the blue is a death to the others.
func TestAbort(t *testing.T) {
	d := newDeaths()
	nets := comeUp(t, 8, local(), d.watch)
	nets[5].Abort()
	d.await(t, without(8, []int{5}), []int{5})
	what := d.of(0)[5][0]
	if !strings.Contains(what, "it aborted") {
		t.Errorf("what = %q", what)
	}
	if err := nets[5].Barrier(context.Background()); !errors.Is(err, ErrClosed) {
		t.Errorf("Barrier after Abort = %v; want %v", err, ErrClosed)
	}
	each(nets, (*Net).Abort)
}

// TestAbortFromCallback: it must not wait for itself.
func TestAbortFromCallback(t *testing.T) {
	var nets [4]*Net
	up := make(chan struct{})
	var wg sync.WaitGroup
	wg.Add(3)
	list := comeUp(t, 4, local(), func(rank int, o *Options) {
		o.OnDeath = func(int, string) {
			<-up
			nets[rank].Abort()
			wg.Done()
		}
	})
	copy(nets[:], list)
	close(up)
	nets[2].kill()
	wg.Wait()
}

// TestLeave: ranks close when they like; it is no death, and nobody hangs.
func TestLeave(t *testing.T) {
	d := newDeaths()
	nets := comeUp(t, 12, local(), d.watch)
	each(nets, func(n *Net) {
		n.Barrier(context.Background())
		time.Sleep(time.Duration(n.Rank()*3) * time.Millisecond)
		n.Close()
		n.Close()
		n.Abort()
	})
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.seen) != 0 {
		t.Errorf("deaths: %v", d.seen)
	}
}

// TestLeaveDuringExchange: who needs a rank that has left is told.
func TestLeaveDuringExchange(t *testing.T) {
	nets := comeUp(t, 2, local(), nil)
	var wg sync.WaitGroup
	wg.Go(func() { nets[0].Close() })
	if err := nets[1].Barrier(context.Background()); err == nil || !strings.Contains(err.Error(), "rank 0 has left") {
		t.Errorf("Barrier = %v; want that rank 0 has left", err)
	}
	nets[1].Close()
	wg.Wait()
}

func TestExchangeErrors(t *testing.T) {
	t.Parallel()
	nets := comeUp(t, 6, local(), nil)
	for _, n := range nets {
		n.o.Timeout = 300 * time.Millisecond
	}
	// Rank 5 does not come.
	each(nets[:5], func(n *Net) {
		if err := n.Barrier(context.Background()); !errors.Is(err, ErrTimeout) {
			t.Errorf("rank %d: %v; want %v", n.Rank(), err, ErrTimeout)
		} else if n.Rank() == 1 && !strings.Contains(err.Error(), "nothing yet from rank 5") {
			t.Errorf("rank 1: %v; want it to name rank 5", err)
		}
	})
	each(nets, (*Net).Abort)

	nets = comeUp(t, 3, local(), nil)
	each(nets, func(n *Net) {
		var err error
		if n.Rank() == 1 {
			err = n.Barrier(context.Background())
		} else {
			_, err = n.AllGather(context.Background(), nil)
		}
		if err == nil {
			t.Errorf("rank %d: a barrier here and an all-gather there went well", n.Rank())
		}
		n.Abort()
	})

	nets = comeUp(t, 1, local(), nil)
	if _, err := nets[0].AllGather(context.Background(), make([]byte, MaxBlock+1)); err == nil {
		t.Error("a block over MaxBlock went well")
	}
	if got, err := nets[0].AllGather(context.Background(), make([]byte, MaxBlock)); err != nil || len(got[0]) != MaxBlock {
		t.Errorf("a block of MaxBlock: %v", err)
	}
	closeAll(t, nets)
}

// TestReports: all get all, in order, once.
func TestReports(t *testing.T) {
	const ranks, each1 = 9, 50
	var mu sync.Mutex
	got := map[[2]int][]string{}
	all := make(chan struct{})
	total := 0
	nets := comeUp(t, ranks, local(), func(rank int, o *Options) {
		o.OnReport = func(from int, p []byte) {
			mu.Lock()
			defer mu.Unlock()
			got[[2]int{rank, from}] = append(got[[2]int{rank, from}], string(p))
			if total++; total == ranks*(ranks-1)*each1 {
				close(all)
			}
		}
	})
	each(nets, func(n *Net) {
		for i := range each1 {
			n.Report(fmt.Appendf(nil, "%d", i))
		}
	})
	select {
	case <-all:
	case <-time.After(5 * time.Minute):
		t.Fatalf("only %d reports came", total)
	}
	closeAll(t, nets)
	for key, list := range got {
		for i, s := range list {
			if s != fmt.Sprint(i) {
				t.Fatalf("rank %d has of %d %q", key[0], key[1], list)
			}
		}
	}
}
