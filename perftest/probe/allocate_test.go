//go:build cgo && linux

package probe

import (
	"bytes"
	"context"
	"errors"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/assay-hpc/assay/internal/verbs"
)

// gpu stands in for one: its memory is the host's.
type gpu struct {
	mu     sync.Mutex
	all    [][]byte // what was allocated
	closed int
	fill   byte
	dmabuf int
}

func (g *gpu) allocate(_ *Config, n int) (*Memory, error) {
	b, err := verbs.Alloc(n, false)
	if err != nil {
		return nil, err
	}
	for i := range b {
		b[i] = g.fill
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.all = append(g.all, b)
	return &Memory{Address: uint64(verbs.Address(b)), DMABuf: g.dmabuf, Close: func() error {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.closed++
		return nil // the test looks at it afterwards
	}}, nil
}

// TestOtherMemory: data lie where the allocator says, and arrive there.
func TestOtherMemory(t *testing.T) {
	for _, op := range []Operation{Write, Read, Send} {
		t.Run(op.String(), func(t *testing.T) {
			c := Default(op, Bandwidth)
			c.GPU, c.Size, c.Iterations = 0, 65536, 20
			cc, sc := sides(t, c)
			mine, theirs := &gpu{fill: 1, dmabuf: -1}, &gpu{fill: 2, dmabuf: -1}
			cc.Allocate, sc.Allocate = mine.allocate, theirs.allocate
			server := running(t.Context(), sc, Events{})
			if _, err := Run(t.Context(), cc, Events{}); err != nil {
				t.Fatal(err)
			}
			if err := <-server; err != nil {
				t.Fatal(err)
			}
			for _, g := range []*gpu{mine, theirs} {
				// A page to try, and the test's.
				if len(g.all) != 2 || g.closed != 2 {
					t.Fatalf("%d regions, %d of them closed; want 2", len(g.all), g.closed)
				}
			}
			// A read's data come to where a write's would start.
			to, from, first := theirs.all[1], mine.all[1], 65536
			if op == Read {
				to, from, first = mine.all[1], theirs.all[1], 0
			}
			if !bytes.Equal(to[first:first+65536], from[:65536]) {
				t.Errorf("what came is %d…, not %d…", to[first], from[0])
			}
			if n := len(slices.DeleteFunc(slices.Clone(to), func(b byte) bool { return b != from[0] })); n != 65536 {
				t.Errorf("%d bytes came", n)
			}
		})
	}
}

// TestNoDMABuf: a descriptor of another file is refused, before a peer is met.
func TestNoDMABuf(t *testing.T) {
	c := Default(Write, Bandwidth)
	c.GPU, c.DMABuf = 0, true
	cc, _ := sides(t, c)
	f, err := os.Open("/dev/null")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	g := &gpu{dmabuf: int(f.Fd())}
	cc.Allocate = g.allocate
	_, err = Run(context.Background(), cc, Events{})
	var none *NotAvailable
	if !errors.As(err, &none) || !strings.Contains(err.Error(), "ibv_reg_dmabuf_mr on rxe0, 4096 bytes: ") {
		t.Errorf("%v", err)
	}
	if g.closed != 1 {
		t.Errorf("%d regions closed; want 1", g.closed)
	}
}

// TestNoCUDA: without code for GPUs the test is not to be had.
func TestNoCUDA(t *testing.T) {
	c := Default(Write, Bandwidth)
	c.GPU = 0
	_, err := Run(context.Background(), c, Events{})
	var none *NotAvailable
	if !errors.As(err, &none) || err.Error() != "--use_cuda: this harness was built without CUDA" {
		t.Errorf("%v", err)
	}
}
