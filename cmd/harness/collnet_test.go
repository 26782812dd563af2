package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"github.com/assay-hpc/assay/coll/transport/netplugin/netplugintest"
)

// TestLaunchCollNet: two processes of two ranks, which are told that they are
// on two hosts, sum over a plugin's network that reduces. Types and reductions
// that it has not are done otherwise.
func TestLaunchCollNet(t *testing.T) {
	if testing.Short() {
		t.Skip("compiles the harness")
	}
	plugin := netplugintest.Build(t)
	bin := filepath.Join(t.TempDir(), "harness")
	build := exec.Command("go", "build", "-tags", "urfave_cli_no_docs", "-o", bin, ".")
	build.Env = append(os.Environ(), "CGO_ENABLED=1") // which plugins take
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, tt := range []struct {
		op   string
		args []string
		rows int
	}{
		{"all_reduce", []string{"-o", "all"}, 6 * sweepRows},
		{"all_reduce", []string{"-d", "half"}, sweepRows},
		{"all_gather", nil, sweepRows},
		{"reduce_scatter", []string{"-d", "int32"}, sweepRows},
	} {
		t.Run(fmt.Sprint(tt.op, tt.args), func(t *testing.T) {
			args := append([]string{"coll", tt.op}, append(sweep[2:], append(tt.args, "-t", "2")...)...)
			outs, port := make([]string, 2), freePort(t)
			var wg sync.WaitGroup
			for r := range outs {
				wg.Go(func() {
					cmd := exec.Command(bin, args...)
					cmd.Env = append(os.Environ(), fmt.Sprintf("RANK=%d", r), "WORLD_SIZE=2", "LOCAL_RANK=0", "MASTER_ADDR=127.0.0.1", "MASTER_PORT="+port, "ASSAY_JOB_SECRET=x",
						fmt.Sprintf("NCCL_HOSTID=host%d", r), "NCCL_COLLNET_ENABLE=1", "NCCL_ALGO=CollnetDirect,CollnetChain", "NCCL_NET_PLUGIN="+plugin)
					out, err := cmd.CombinedOutput()
					if outs[r] = string(out); err != nil {
						t.Errorf("rank %d: %v\n%s", r, err, out)
					}
				})
			}
			wg.Wait()
			verified(t, outs[0], 4, tt.rows)
		})
	}
}
