package bootstrap

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"
)

func TestMain(m *testing.M) {
	if role := os.Getenv("BOOTSTRAP_TEST_ROLE"); role != "" {
		os.Exit(child(role))
	}
	code := m.Run()
	if code == 0 {
		if s := leaked(); s != "" {
			fmt.Fprintln(os.Stderr, "goroutines of this package are left over:\n"+s)
			code = 1
		}
		if n := sockets(); n > 0 {
			fmt.Fprintln(os.Stderr, n, "sockets are left over")
			code = 1
		}
	}
	os.Exit(code)
}

// sockets counts the sockets that this process has open.
func sockets() (n int) {
	list, _ := os.ReadDir("/proc/self/fd")
	for _, e := range list {
		if to, err := os.Readlink("/proc/self/fd/" + e.Name()); err == nil && strings.HasPrefix(to, "socket:") {
			n++
		}
	}
	return n
}

// leaked returns the stacks of this package's goroutines, once they had time
// to end.
func leaked() string {
	for wait := time.Millisecond; ; wait *= 2 {
		buf := make([]byte, 1<<22)
		var left []string
		for g := range strings.SplitSeq(string(buf[:runtime.Stack(buf, true)]), "\n\n") {
			if strings.Contains(g, "coll/bootstrap.") && !strings.Contains(g, "coll/bootstrap.leaked(") && !strings.Contains(g, "testing.tRunner(") {
				left = append(left, g)
			}
		}
		if len(left) == 0 || wait > 10*time.Second {
			return strings.Join(left, "\n\n")
		}
		time.Sleep(wait)
	}
}

// local is what most tests use: loopback, quick to give up.
func local() Options {
	return Options{Ifname: "lo", Family: "AF_INET", Timeout: 2 * time.Minute}
}

func newTestRoot(t testing.TB, o Options) *Root {
	t.Helper()
	r, err := NewRoot(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close() })
	return r
}

// joinAll joins n ranks; opt, if not nil, changes the options of each.
func joinAll(t testing.TB, id ID, n int, o Options, opt func(rank int, o *Options)) ([]*Net, []error) {
	t.Helper()
	nets, errs := make([]*Net, n), make([]error, n)
	var wg sync.WaitGroup
	for r := range n {
		wg.Go(func() {
			o := o
			if opt != nil {
				opt(r, &o)
			}
			nets[r], errs[r] = Join(context.Background(), id, r, n, o)
		})
	}
	wg.Wait()
	return nets, errs
}

// comeUp is n ranks that have joined.
func comeUp(t testing.TB, n int, o Options, opt func(rank int, o *Options)) []*Net {
	t.Helper()
	root := newTestRoot(t, o)
	nets, errs := joinAll(t, root.ID(), n, o, opt)
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	return nets
}

// each runs f for all ranks at once.
func each(nets []*Net, f func(n *Net)) {
	var wg sync.WaitGroup
	for _, n := range nets {
		if n != nil {
			wg.Go(func() { f(n) })
		}
	}
	wg.Wait()
}

func closeAll(t testing.TB, nets []*Net) {
	t.Helper()
	each(nets, func(n *Net) {
		if err := n.Close(); err != nil {
			t.Error(err)
		}
	})
}

// arrived returns where the ranks listen that have come to a root.
func arrived(r *Root) []netip.AddrPort {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []netip.AddrPort
	for _, m := range r.members {
		out = append(out, m.addrs...)
	}
	return out
}
