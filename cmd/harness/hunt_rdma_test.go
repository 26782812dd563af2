package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/assay-hpc/assay/harness/fabric"
	"github.com/assay-hpc/assay/internal/exit"
)

// TestRDMAHunt: a hunt over soft RoCE's ports, by three processes that take
// themselves for machines. They share two devices and two processors, so that none
// is slower than the rest by itself, and no verdict is asked for: that a pair of
// each kind of port was measured in each round, both ways, is.
func TestRDMAHunt(t *testing.T) {
	needsRDMA(t)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Minute)
	defer cancel()
	const n = 3
	out := make([]strings.Builder, n)
	status := make([]int, n)
	var wg sync.WaitGroup
	for rank := range n {
		wg.Go(func() {
			cmd := exec.CommandContext(ctx, "harness", "hunt", "--duration", "2ms", "--max-rounds", "3", "--output", "json", "--seed", "1")
			cmd.Env = append(os.Environ(), fmt.Sprintf("RANK=%d", rank), fmt.Sprintf("WORLD_SIZE=%d", n), "LOCAL_RANK=0", "LOCAL_WORLD_SIZE=1",
				"MASTER_ADDR=127.0.0.1", "MASTER_PORT=29600", "NCCL_SOCKET_IFNAME=lo", "TORCHELASTIC_RUN_ID=hunt", "ASSAY_JOB_SECRET=x", fmt.Sprintf("NODE_NAME=node%d", rank))
			cmd.Stdout, cmd.Stderr = &out[rank], os.Stderr
			if err := cmd.Run(); err != nil && cmd.ProcessState == nil {
				t.Error(err)
				return
			}
			status[rank] = cmd.ProcessState.ExitCode()
		})
	}
	wg.Wait()
	var r fabric.HuntReport
	if err := json.Unmarshal([]byte(out[0].String()), &r); err != nil {
		t.Fatalf("%v\n%s", err, out[0].String())
	}
	t.Logf("%s", out[0].String())
	if r.Tool != fabric.RDMA || len(r.Lost)+len(r.Absent) > 0 || r.Rounds != 3 && r.Outcome == "undecided" {
		t.Errorf("%s with %s, lost %v, absent %v, %d rounds", r.Outcome, r.Tool, r.Lost, r.Absent, r.Rounds)
	}
	if r.Measurements != 2*2*3 || strings.Contains(strings.Join(r.Notes, " "), "failed") {
		t.Errorf("%d measurements; want a pair a round, both ways, of two ports, without a failure; notes %q", r.Measurements, r.Notes)
	}
	if r.Excluded.Lost == 1 {
		t.Error("no packets were counted")
	}
	if status[1] != 0 || status[2] != 0 || status[0] == exit.Usage {
		t.Errorf("statuses %v", status)
	}
}
