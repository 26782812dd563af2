package coll

import (
	"os"
	"strings"
	"testing"

	"github.com/assay-hpc/assay/coll/knob"
	"github.com/assay-hpc/assay/coll/transport/verbs"
)

// TestRDMASums: sums over InfiniBand, with devices of their own for ranks. It
// needs RDMA devices: .ci/rdma/test -run RDMA ./coll runs it on soft RoCE.
func TestRDMASums(t *testing.T) {
	n, err := verbs.Find(verbs.Selection{GIDIndex: -1})
	if err != nil {
		if os.Getenv("ASSAY_RDMA_VM") != "" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
	ports := n.Ports()
	n.Close()
	for _, qps := range []int{1, 2} {
		withTransport(t, 3, func(r int, k *knob.Knobs) {
			k.SHMDisable, k.Net = true, verbs.Name
			k.IB.HCA = "=" + ports[r%len(ports)].Device
			k.IB.QPs, k.IB.SplitData = qps, qps > 1
		}, func(c *Comm) error {
			for _, count := range []int{1, 1000, 300_000} {
				if err := sumOnce(c, count); err != nil {
					return err
				}
			}
			return nil
		})
	}
}

// TestIBDisabled: NCCL_IB_DISABLE is why there is no InfiniBand.
func TestIBDisabled(t *testing.T) {
	_, errs := initAll(t, 2, func(_ int, cfg *Config) { cfg.Knobs.Net, cfg.Knobs.IBDisable = "IB", true })
	for r, err := range errs {
		if err == nil || !strings.Contains(err.Error(), "IB: NCCL_IB_DISABLE=1") {
			t.Errorf("rank %d: %v", r, err)
		}
	}
}
