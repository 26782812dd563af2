package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/assay-hpc/assay/internal/exit"
	"github.com/assay-hpc/assay/perftest/mesh"
)

// meshProcess runs the harness, and returns what it printed and its status.
func meshProcess(t *testing.T, env []string, args ...string) (out, errOut string, status int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "harness", append([]string{"ib", "mesh"}, args...)...)
	cmd.Env = append(os.Environ(), env...)
	var o, e strings.Builder
	cmd.Stdout, cmd.Stderr = &o, &e
	if err := cmd.Run(); err != nil && cmd.ProcessState == nil {
		t.Error(err)
		return "", "", -1
	}
	return o.String(), e.String(), cmd.ProcessState.ExitCode()
}

// meshRank is the environment of one of two processes, as torchrun sets it.
func meshRank(rank, port int, host string) []string {
	return []string{fmt.Sprintf("RANK=%d", rank), "WORLD_SIZE=2", fmt.Sprintf("LOCAL_RANK=%d", rank), "MASTER_ADDR=127.0.0.1",
		fmt.Sprintf("MASTER_PORT=%d", port), "NCCL_HOSTID=" + host, "NCCL_SOCKET_IFNAME=lo", "ASSAY_JOB_SECRET=x"}
}

func needsRDMA(t *testing.T) {
	t.Helper()
	if os.Getenv("ASSAY_RDMA_VM") == "" {
		t.Skip("not in the virtual machine of make test ONLY=rdma")
	}
}

func meshReport(t *testing.T, text string) *mesh.Report {
	t.Helper()
	r := new(mesh.Report)
	if err := json.Unmarshal([]byte(text), r); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	return r
}

// TestRDMAMesh: soft RoCE's two devices with one another, in one process, and in
// two that share the host, or that pass for two hosts.
func TestRDMAMesh(t *testing.T) {
	needsRDMA(t)
	t.Run("alone", func(t *testing.T) {
		for _, tool := range []string{"read_bw", "send_lat"} {
			began := time.Now()
			out, errOut, status := meshProcess(t, nil, "--tool", tool, "--samples", "2", "-n", "20", "-s", "4096", "--output", "json")
			t.Logf("%s after %v", tool, time.Since(began))
			r := meshReport(t, out)
			if status != 0 || errOut != "" || len(r.Ports) != 2 || len(r.Cells) != 2 || r.Tool != tool {
				t.Errorf("%s: status %d\n%s%s", tool, status, out, errOut)
			}
			for _, o := range r.Results[0].Objects {
				if m := o.Measured; m == nil || m.Value <= 0 || m.Spread.Samples != 2 {
					t.Errorf("%s: %+v", tool, o)
				}
			}
		}
	})
	t.Run("text", func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "m.html")
		out, errOut, status := meshProcess(t, nil, "-n", "20", "-s", "4096", "--samples", "1", "-b", "--report_gbits", "--html", file)
		t.Logf("%s%s", out, errOut)
		if status != 0 || !strings.Contains(out, "0 ") || !strings.Contains(out, "rxe1") {
			t.Errorf("status %d", status)
		}
		if b, err := os.ReadFile(file); err != nil || !strings.Contains(string(b), "rxe0 → ") {
			t.Errorf("%v\n%s", err, b)
		}
	})
	t.Run("self", func(t *testing.T) {
		out, errOut, status := meshProcess(t, nil, "-n", "20", "-s", "4096", "--samples", "1", "--pattern", "self", "-d", "rxe0")
		if status != 0 || !strings.Contains(out, "pass: of 1 measurements 1 passed") {
			t.Errorf("status %d\n%s%s", status, out, errOut)
		}
	})
	for i, hosts := range [][2]string{{"same", "same"}, {"a", "b"}} {
		t.Run("two processes "+hosts[1], func(t *testing.T) {
			var outs, errs [2]string
			var status [2]int
			var wg sync.WaitGroup
			for rank := range 2 {
				wg.Go(func() {
					outs[rank], errs[rank], status[rank] = meshProcess(t, meshRank(rank, 29470+i, hosts[rank]),
						"-n", "20", "-s", "4096", "--samples", "1", "--output", "json", "-d", fmt.Sprintf("rxe%d", rank))
				})
			}
			wg.Wait()
			if status != [2]int{} || outs[1] != "" || errs != [2]string{} {
				t.Fatalf("%v\n%q\n%q", status, outs, errs)
			}
			r := meshReport(t, outs[0])
			if len(r.Ports) != 2 || len(r.Cells) != 2 || r.Ports[1].Rank != 1 || r.Results[0].Objects[0].Measured == nil || r.Results[0].Objects[1].Measured == nil {
				t.Errorf("%s", outs[0])
			}
		})
	}
}

// TestRDMAMeshErrors: a pair that cannot be measured is an error in its cell, and
// a process that dies ends the others.
func TestRDMAMeshErrors(t *testing.T) {
	needsRDMA(t)
	out, errOut, status := meshProcess(t, nil, "-n", "100", "-x", "40", "--samples", "1")
	if status != 1 || !strings.Contains(out, "has no GID at index 40") {
		t.Errorf("status %d\n%s%s", status, out, errOut)
	}
	out, errOut, status = meshProcess(t, nil, "-d", "rxe7")
	if status != 3 || !strings.Contains(errOut, "rxe7") || strings.Count(errOut, "\n") != 1 {
		t.Errorf("status %d\n%s%s", status, out, errOut)
	}

	// Ctrl-C.
	told := exec.Command("harness", "ib", "mesh", "-D", "60")
	var said strings.Builder
	told.Stderr = &said
	if err := told.Start(); err != nil {
		t.Fatal(err)
	}
	stop := time.AfterFunc(5*time.Second, func() { _ = told.Process.Signal(os.Interrupt) }) // it may have ended, which is seen below
	_ = told.Wait()                                                                         // its status is looked at
	stop.Stop()
	if told.ProcessState.ExitCode() != exit.NotDone || said.String() != "harness: ib mesh: interrupted\n" {
		t.Errorf("%v\n%s", told.ProcessState, said.String())
	}

	ctx, kill := context.WithCancel(t.Context())
	defer kill()
	dying := exec.CommandContext(ctx, "harness", "ib", "mesh", "-D", "20", "-d", "rxe1")
	dying.Env = append(os.Environ(), meshRank(1, 29479, "b")...)
	if err := dying.Start(); err != nil {
		t.Fatal(err)
	}
	time.AfterFunc(5*time.Second, kill)
	began := time.Now()
	out, errOut, status = meshProcess(t, meshRank(0, 29479, "a"), "-D", "20", "-d", "rxe0")
	_ = dying.Wait() // it was killed
	if took := time.Since(began); status != 3 || !strings.Contains(errOut, "rank 1") || took > 25*time.Second {
		t.Errorf("status %d after %v\n%s%s", status, took, out, errOut)
	}
}
