package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// These tests need RDMA devices, and the harness on PATH, compiled with cgo:
// make test ONLY=rdma runs them on soft RoCE in a virtual machine, with two devices.
func rdmaHarness(t *testing.T) string {
	t.Helper()
	bin, err := exec.LookPath("harness")
	names, _ := filepath.Glob("/sys/class/infiniband/*")
	switch {
	case os.Getenv("ASSAY_RDMA_VM") != "" && (err != nil || len(names) < 2):
		t.Fatalf("the harness and two devices should be here: %v, %q", err, names)
	case os.Getenv("ASSAY_RDMA_VM") == "":
		t.Skip("make test ONLY=rdma runs this in its virtual machine")
	}
	return bin
}

// overIB keeps ranks off shared memory, and on InfiniBand.
var overIB = []string{"NCCL_NET=IB", "NCCL_SHM_DISABLE=1", "NCCL_DEBUG=INFO", "ASSAY_TIMEOUT=60"}

// TestRDMAThreads: four ranks of one process, by several collectives.
func TestRDMAThreads(t *testing.T) {
	bin := rdmaHarness(t)
	for _, tt := range []struct {
		what string
		env  []string
	}{
		{"all_reduce", nil},
		{"all_gather", nil},
		{"sendrecv", nil},
		{"all_reduce", []string{"NCCL_IB_QPS_PER_CONNECTION=3", "NCCL_IB_SPLIT_DATA_ON_QPS=1", "NCCL_IB_HCA==rxe0:1", "NCCL_IB_ADAPTIVE_ROUTING=1"}},
	} {
		out := output(t, append(tt.env, overIB...), bin, "coll", tt.what, "-t", "4", "-b", "8", "-e", "128K", "-f", "16384", "-n", "2", "-w", "1", "--device", "cpu")
		if tt.what != "sendrecv" { // in place it has no results to compare
			verified(t, out, 4, 2)
		} else if !strings.Contains(out, "# Out of bounds values : 0 OK") {
			t.Errorf("results are wrong:\n%s", out)
		}
		for _, want := range []string{"NET/IB : Using [0]rxe0:1/RoCE GID 1 10.9.0.1 RoCE v2", "Using network IB", "via IB 3 channels"} {
			if !strings.Contains(out, want) {
				t.Errorf("%s %v: there is no %q in\n%s", tt.what, tt.env, want, out)
			}
		}
	}
}

// rdmaRank is the command of one rank of two, with a device of its own.
func rdmaRank(ctx context.Context, bin string, r int, args ...string) (*exec.Cmd, *bytes.Buffer) {
	cmd := exec.CommandContext(ctx, bin, append([]string{"coll"}, args...)...)
	cmd.Env = append(append(os.Environ(), overIB...), fmt.Sprintf("RANK=%d", r), "WORLD_SIZE=2", fmt.Sprintf("LOCAL_RANK=%d", r),
		"MASTER_ADDR=127.0.0.1", "MASTER_PORT=29471", "ASSAY_JOB_SECRET=x", fmt.Sprintf("NCCL_IB_HCA==rxe%d", r))
	out := new(bytes.Buffer)
	cmd.Stdout, cmd.Stderr = out, out
	return cmd, out
}

// TestRDMAProcesses: two processes, each with a device, over the wire between
// them.
func TestRDMAProcesses(t *testing.T) {
	bin := rdmaHarness(t)
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	var outs [2]*bytes.Buffer
	var wg sync.WaitGroup
	for r := range 2 {
		cmd, out := rdmaRank(ctx, bin, r, "all_reduce", "-b", "8", "-e", "128K", "-f", "128", "-n", "2", "-w", "1", "--device", "cpu")
		outs[r] = out
		wg.Go(func() {
			if err := cmd.Run(); err != nil {
				t.Errorf("rank %d: %v\n%s", r, err, out)
			}
		})
	}
	wg.Wait()
	verified(t, outs[0].String(), 2, 3)
	if want := "NET/IB : Using [0]rxe1:1/RoCE"; !strings.Contains(outs[1].String(), want) {
		t.Errorf("there is no %q in\n%s", want, outs[1])
	}
}

// TestRDMAPlugin: a network plugin takes the place of InfiniBand, for four ranks
// of a process and for two processes.
func TestRDMAPlugin(t *testing.T) {
	bin := rdmaHarness(t)
	file := os.Getenv("ASSAY_TEST_NET_PLUGIN")
	if file == "" {
		t.Fatal("ASSAY_TEST_NET_PLUGIN should name the test plugin")
	}
	env := []string{"NCCL_NET_PLUGIN=" + file, "NCCL_SHM_DISABLE=1", "NCCL_DEBUG=INFO", "ASSAY_TIMEOUT=60"}
	args := []string{"coll", "all_reduce", "-b", "8", "-e", "1M", "-f", "16", "-n", "2", "-w", "1", "--device", "cpu"}
	threads := output(t, env, bin, append(args, "-t", "4")...)
	verified(t, threads, 4, 5)
	outs := [2]string{}
	var wg sync.WaitGroup
	for r := range outs {
		wg.Go(func() {
			rank := []string{fmt.Sprintf("RANK=%d", r), "WORLD_SIZE=2", fmt.Sprintf("LOCAL_RANK=%d", r), "MASTER_ADDR=127.0.0.1", "MASTER_PORT=29472", "ASSAY_JOB_SECRET=x"}
			outs[r] = output(t, append(rank, env...), bin, args...)
		})
	}
	wg.Wait()
	verified(t, outs[0], 2, 5)
	for _, out := range []string{threads, outs[0], outs[1]} {
		if want := "Using network assay test"; !strings.Contains(out, want) {
			t.Errorf("there is no %q in\n%s", want, out)
		}
	}
}

// TestRDMAKilled: when a process is killed, the other one ends soon with an
// error that names its rank.
func TestRDMAKilled(t *testing.T) {
	bin := rdmaHarness(t)
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	var cmds [2]*exec.Cmd
	var logs [2]string
	for r := range 2 {
		cmds[r], _ = rdmaRank(ctx, bin, r, "all_reduce", "-b", "64K", "-e", "64K", "-n", "1000000", "-w", "1", "--device", "cpu")
		logs[r] = filepath.Join(t.TempDir(), "log")
		f, err := os.Create(logs[r])
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		cmds[r].Stdout, cmds[r].Stderr = f, f
		if err := cmds[r].Start(); err != nil {
			t.Fatal(err)
		}
	}
	text := func(r int) string {
		b, err := os.ReadFile(logs[r])
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	for !strings.Contains(text(0), "Init COMPLETE") || !strings.Contains(text(1), "Init COMPLETE") {
		if ctx.Err() != nil {
			t.Fatalf("the ranks do not start:\n%s\n%s", text(0), text(1))
		}
		time.Sleep(100 * time.Millisecond)
	}
	time.Sleep(2 * time.Second) // into the operations
	cmds[1].Process.Kill()
	cmds[1].Wait()
	if err := cmds[0].Wait(); err == nil {
		t.Error("the other rank ended well")
	}
	if out := text(0); !strings.Contains(out, "rank 1 is lost") {
		t.Errorf("the other rank does not say what it lost:\n%s", out)
	}
}

// TestRDMAAbsent: NCCL_NET=IB without a device that may be used is an error that
// says why.
func TestRDMAAbsent(t *testing.T) {
	bin := rdmaHarness(t)
	cmd := exec.Command(bin, "coll", "all_reduce", "-t", "2", "-b", "8", "-e", "8", "-n", "1", "--device", "cpu")
	cmd.Env = append(append(os.Environ(), overIB...), "NCCL_IB_HCA=mlx5")
	out, err := cmd.CombinedOutput()
	if want := "rxe0 port 1 is not one of NCCL_IB_HCA=mlx5"; err == nil || !strings.Contains(string(out), want) {
		t.Errorf("%v; there is no %q in\n%s", err, want, out)
	}
}
