//go:build cgo && linux

package verbs_test

import (
	"fmt"
	"os"
	"testing"

	"github.com/assay-hpc/assay/coll/transport"
	"github.com/assay-hpc/assay/coll/transport/slots"
	"github.com/assay-hpc/assay/coll/transport/transporttest"
	"github.com/assay-hpc/assay/coll/transport/verbs"
)

// These tests need RDMA devices: make test ONLY=rdma runs them on soft RoCE in a
// virtual machine.

var testKey = []byte("the key of the tests, 32 bytes..")

// find opens ports, or skips the test where there are none.
func find(t testing.TB, hca string) *verbs.Net {
	t.Helper()
	n, err := verbs.Find(verbs.Selection{HCA: hca, GIDIndex: -1})
	switch {
	case err != nil && os.Getenv("ASSAY_RDMA_VM") != "":
		t.Fatalf("two devices should be here: %v", err)
	case err != nil:
		t.Skip(err)
	}
	return n
}

// rails are the devices that ranks have, in turn. In the virtual machine two
// that are connected by a wire; else whatever there is, each device its own.
func rails() []string {
	if os.Getenv("ASSAY_RDMA_VM") != "" {
		return []string{"=rxe0:1", "=rxe1:1"}
	}
	return []string{""}
}

// opener opens ranks with options that begin as opt.
func opener(opt verbs.Options) transporttest.Opener {
	return transporttest.Each(func(t testing.TB, r int) transporttest.Rank { return openRank(t, r, opt) })
}

func openRank(t testing.TB, r int, opt verbs.Options) transporttest.Rank {
	t.Helper()
	if opt.Net == nil {
		opt.Net = find(t, rails()[r%len(rails())])
	}
	if opt.Params == (verbs.Params{}) {
		opt.Params = defaultParams()
	}
	opt.Rank, opt.Key, opt.Comm, opt.Fault = r, testKey, []byte("test"), new(transport.Fault)
	if opt.Logf == nil {
		opt.Logf = t.Logf
	}
	e, err := verbs.Open(opt)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.Close() })
	return transporttest.Rank{Endpoint: e, Fault: opt.Fault}
}

// defaultParams are NCCL's.
func defaultParams() verbs.Params {
	return verbs.Params{Timeout: 20, Retries: 7, QPs: 1, Adaptive: -1, AdaptiveAbove: 8 << 10}
}

// params are NCCL's defaults, but for.
func params(change func(*verbs.Params)) verbs.Params {
	p := defaultParams()
	change(&p)
	return p
}

// TestConformance runs the transports' suite.
func TestConformance(t *testing.T) {
	transporttest.Run(t, opener(verbs.Options{}))
}

// TestParams moves messages in each of the ways that there are.
func TestParams(t *testing.T) {
	for _, tt := range []struct {
		name string
		opt  verbs.Options
	}{
		{"in turn", verbs.Options{Params: params(func(p *verbs.Params) { p.QPs = 3 })}},
		{"split", verbs.Options{Params: params(func(p *verbs.Params) { p.QPs, p.Split = 4, true })}},
		{"adaptive", verbs.Options{Params: params(func(p *verbs.Params) { p.QPs, p.Split, p.Adaptive = 2, true, 1 })}},
		{"most", verbs.Options{Options: slots.Options{MaxMessage: 100_000}, Params: params(func(p *verbs.Params) { p.QPs, p.Split, p.TrafficClass = 16, true, 106 })}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			ranks := opener(tt.opt)(t, 2)
			tx, rx := transporttest.Connect(t, ranks, 0, 1, 0)
			back, xr := transporttest.Connect(t, ranks, 1, 0, 0)
			for i := range 3 {
				for _, size := range []int{0, 1, 8191, 16<<10 - 33, 16<<10 - 32, 16<<10 + 1, 99_999, tx.MaxMessage()} {
					stream(t, ranks, tx, rx, size, 3+i*4)
					stream(t, ranks, back, xr, size, 1)
				}
			}
			for r := range ranks {
				if err := ranks[r].Close(); err != nil {
					t.Error(err)
				}
			}
		})
	}
}

// stream sends n messages and receives them, as many under way as there can be.
func stream(t testing.TB, ranks []transporttest.Rank, tx transport.Tx, rx transport.Rx, size, n int) {
	t.Helper()
	word := func(i, at int) byte { return byte(i*31 + at*7 + at>>8) }
	sent, got := 0, 0
	transporttest.Until(t, ranks, fmt.Sprintf("messages of %d bytes", size), func() bool {
		if sent < n {
			if p := tx.Reserve(size); p != nil {
				for at := range p {
					p[at] = word(sent, at)
				}
				tx.Commit(size, transport.Header{Seq: uint32(sent), Sign: uint32(size)})
				sent++
			}
		}
		p, h, ok := rx.Peek()
		if !ok {
			return false
		}
		if len(p) != size || h != (transport.Header{Seq: uint32(got), Sign: uint32(size)}) {
			t.Fatalf("message %d of %d bytes: %d bytes, %v", got, size, len(p), h)
		}
		for at := range p {
			if p[at] != word(got, at) {
				t.Fatalf("message %d of %d bytes: byte %d is %d, want %d", got, size, at, p[at], word(got, at))
			}
		}
		rx.Release()
		got++
		return got == n
	})
}

func TestPorts(t *testing.T) {
	n := find(t, "")
	defer n.Close()
	for _, p := range n.Ports() {
		t.Logf("%+v", p)
		if p.Device == "" || p.Port < 1 || p.MTU < 256 || p.GID == "" || p.Layer == "" {
			t.Errorf("%+v", p)
		}
	}
	if _, err := verbs.Find(verbs.Selection{HCA: "mlx5_99", GIDIndex: -1}); err == nil {
		t.Error("a device that is not there was found")
	} else {
		t.Log(err)
	}
}
