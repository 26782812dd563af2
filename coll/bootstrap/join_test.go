package bootstrap

import (
	"context"
	"errors"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/assay-hpc/assay/internal/meet"
)

// TestDisagree: ranks that do not fit together all hear why.
func TestDisagree(t *testing.T) {
	type rank struct{ rank, size int }
	for _, tt := range []struct {
		name  string
		ranks []rank
		kind  error
		want  string
	}{
		{"twice", []rank{{0, 4}, {1, 4}, {1, 4}, {3, 4}}, ErrDisagree, "rank 1 joined twice: process"},
		{"too high", []rank{{0, 3}, {1, 3}, {3, 3}}, ErrDisagree, "is out of range: ranks go from 0 to 2"},
		{"negative", []rank{{0, 3}, {-1, 3}, {2, 3}}, ErrDisagree, "rank -1"},
		{"sizes", []rank{{0, 3}, {1, 4}, {2, 3}}, ErrDisagree, "all must join with one size"},
		{"no ranks", []rank{{0, 0}}, ErrDisagree, "says there are 0 ranks"},
		{"missing", []rank{{0, 5}, {2, 5}}, ErrMissing, "2 of 5 ranks joined within 2s; missing: 1,3-4"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			o := local()
			if tt.kind == ErrMissing {
				o.Timeout = 2 * time.Second
			}
			root := newTestRoot(t, o)
			errs := make([]error, len(tt.ranks))
			var wg sync.WaitGroup
			for i, r := range tt.ranks {
				wg.Go(func() {
					var n *Net
					if n, errs[i] = Join(context.Background(), root.ID(), r.rank, r.size, o); n != nil {
						n.Abort()
					}
				})
			}
			wg.Wait()
			for i, err := range errs {
				if !errors.Is(err, tt.kind) || !strings.Contains(err.Error(), tt.want) {
					t.Errorf("Join(%v) = %v; want %v with %q", tt.ranks[i], err, tt.kind, tt.want)
				}
			}
		})
	}
}

// TestLostWhileJoining: a rank that gives up, and a root that is closed, end
// the waiting of the others at once, not after the timeout.
func TestLostWhileJoining(t *testing.T) {
	for _, tt := range []struct {
		name string
		kind error
		hurt func(cancel func(), r *Root)
	}{
		{"rank gives up", ErrLost, func(cancel func(), r *Root) { cancel() }},
		{"root is closed", ErrClosed, func(cancel func(), r *Root) { r.Close() }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			o := local()
			o.Timeout = time.Hour
			root := newTestRoot(t, o)
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			errs := make([]error, 3)
			var wg sync.WaitGroup
			for r := range 3 {
				wg.Go(func() {
					c := context.Background()
					if r == 2 {
						c = ctx
					}
					_, errs[r] = Join(c, root.ID(), r, 4, o)
				})
			}
			// Rank 3 never comes. Wait until the root knows the others.
			for len(arrived(root)) < 3 {
				time.Sleep(time.Millisecond)
			}
			tt.hurt(cancel, root)
			wg.Wait()
			for r := range 2 {
				if !errors.Is(errs[r], tt.kind) {
					t.Errorf("rank %d: %v; want %v", r, errs[r], tt.kind)
				}
			}
			if tt.kind == ErrLost && !errors.Is(errs[2], context.Canceled) {
				t.Errorf("rank 2: %v; want that it was cancelled", errs[2])
			}
		})
	}
}

// TestLostWhileLinking: rank 0 is gone, or not to be reached, when the others
// know of one another.
func TestLostWhileLinking(t *testing.T) {
	for _, tt := range []struct {
		name string
		stay bool
		want string
	}{
		{"gone", false, "rank 0 (process 1 on host) was lost while joining"},
		{"unreachable", true, "cannot reach rank 0 at 127.0.0.1:1: "},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			o := local()
			o.Timeout = time.Hour
			root := newTestRoot(t, o)
			id := root.ID()
			var wg sync.WaitGroup
			wg.Go(func() { // rank 0
				conn, err := id.call(context.Background(), hello{purpose: toRoot, from: 0, to: nobodyRank, size: 3}, o, false)
				if err != nil {
					t.Error(err)
					return
				}
				defer conn.Close()
				here := appendAddrs(nil, []netip.AddrPort{netip.MustParseAddrPort("127.0.0.1:1")})
				meet.WriteFrame(conn, frameHere, append(here, "process 1 on host"...))
				for {
					k, _, err := meet.ReadFrame(conn, maxHello)
					if err != nil || k == frameFailed || k == framePeers && !tt.stay {
						return
					}
				}
			})
			for r := 1; r < 3; r++ {
				wg.Go(func() {
					_, err := Join(context.Background(), id, r, 3, o)
					if !errors.Is(err, ErrLost) || !strings.Contains(err.Error(), tt.want) {
						t.Errorf("rank %d: %v; want %v with %q", r, err, ErrLost, tt.want)
					}
				})
			}
			wg.Wait()
		})
	}
}

func TestJoinWithTheWrongSecret(t *testing.T) {
	root := newTestRoot(t, local())
	id := root.ID()
	id[10] ^= 1
	if _, err := Join(context.Background(), id, 0, 1, local()); !errors.Is(err, ErrRefused) {
		t.Errorf("Join = %v; want %v", err, ErrRefused)
	}
	// A rank's neighbour is no root, and says so.
	ids := root.ID()
	h := hello{purpose: toPeer, from: 1, to: 0, size: 2}
	if conn, err := ids.call(t.Context(), h, local(), false); err == nil {
		conn.Close()
		t.Error("a root lets in who wants a rank")
	} else if !errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), "this is a root") {
		t.Errorf("calling a root for a rank: %v", err)
	}
	if _, err := Join(context.Background(), ID{}, 0, 1, local()); err == nil || !strings.Contains(err.Error(), "NewRoot") {
		t.Errorf("Join with no id = %v", err)
	}
}

// TestJoinWithoutRoot: the root is gone, which shows soon: its port is closed.
func TestJoinWithoutRoot(t *testing.T) {
	t.Parallel()
	root := newTestRoot(t, local())
	root.Close()
	o := local()
	o.Timeout = time.Hour
	if _, err := Join(context.Background(), root.ID(), 0, 1, o); err == nil || !strings.Contains(err.Error(), "refused") {
		t.Errorf("Join = %v; want that the connection was refused", err)
	}
}

func TestRootAt(t *testing.T) {
	// A port that was free a moment ago.
	probe := newTestRoot(t, local())
	addrs, _ := probe.ID().addrs()
	probe.Close()
	addr, secret := addrs[0].String(), []byte("of the job")
	o := local()

	var wg sync.WaitGroup
	for r := range 3 {
		wg.Go(func() {
			if r == 0 {
				time.Sleep(50 * time.Millisecond) // the others wait for it
				root, err := NewRootAt(addr, secret, o)
				if err != nil {
					t.Error(err)
					return
				}
				defer root.Close()
			}
			id, err := IDAt(addr, secret)
			if err != nil {
				t.Error(err)
				return
			}
			n, err := Join(context.Background(), id, r, 3, o)
			if err != nil {
				t.Error(err)
				return
			}
			n.Close()
		})
	}
	wg.Wait()
	for _, bad := range []string{"", "host", "host:", "127.0.0.1:0", "127.0.0.1:99999", "127.0.0.1:http"} {
		if id, err := IDAt(bad, nil); err == nil {
			t.Errorf("IDAt(%q) = %v", bad, id)
		}
	}
}

func TestResolve(t *testing.T) {
	for host, want := range map[string]string{"10.1.2.3": "10.1.2.3", "::ffff:10.1.2.3": "10.1.2.3", "fd00::1": "fd00::1"} {
		if got, err := resolve(host); err != nil || len(got) != 1 || got[0].String() != want {
			t.Errorf("resolve(%q) = %v, %v; want %s", host, got, err, want)
		}
	}
	if got, err := resolve("localhost"); err != nil || len(got) == 0 || !got[0].IsLoopback() {
		t.Errorf("resolve(localhost) = %v, %v", got, err)
	}
	if got, err := resolve("no such host"); err == nil {
		t.Errorf("resolve of nonsense = %v", got)
	}
}
