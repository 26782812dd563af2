//go:build cgo && linux

package verbs_test

import (
	"fmt"
	"os"
	"testing"

	"github.com/assay-hpc/assay/coll/transport"
	"github.com/assay-hpc/assay/coll/transport/transporttest"
	"github.com/assay-hpc/assay/coll/transport/verbs"
)

// These tests need RDMA devices: make test-rdma runs them on soft RoCE in a
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
	return func(t testing.TB, n int) (ranks []transporttest.Rank) {
		t.Helper()
		for r := range n {
			ranks = append(ranks, openRank(t, r, opt))
		}
		return ranks
	}
}

func openRank(t testing.TB, r int, opt verbs.Options) transporttest.Rank {
	t.Helper()
	opt.Net = find(t, rails()[r%len(rails())])
	if opt.Params == (verbs.Params{}) {
		opt.Params = verbs.DefaultParams()
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

// params are NCCL's defaults, but for.
func params(change func(*verbs.Params)) verbs.Params {
	p := verbs.DefaultParams()
	change(&p)
	return p
}

// TestConformance runs the transports' suite.
func TestConformance(t *testing.T) {
	for _, tt := range []struct {
		name string
		opt  verbs.Options
	}{
		{"plain", verbs.Options{}},
		{"in turn", verbs.Options{Params: params(func(p *verbs.Params) { p.QPs = 3 })}},
		{"split", verbs.Options{Params: params(func(p *verbs.Params) { p.QPs, p.Split = 4, true })}},
		{"adaptive", verbs.Options{MaxMessage: 20_000, Params: params(func(p *verbs.Params) { p.QPs, p.Split, p.Adaptive = 2, true, 8192 })}},
		{"small messages", verbs.Options{MaxMessage: 1000}},
	} {
		t.Run(tt.name, func(t *testing.T) { transporttest.Run(t, opener(tt.opt)) })
	}
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
		fmt.Println(err)
	}
}
