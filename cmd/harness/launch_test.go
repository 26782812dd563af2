package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/assay-hpc/assay/coll/colltest"
	"github.com/assay-hpc/assay/internal/clustertest"
)

// These tests run the benchmark as its users do, under every launcher that is
// installed. They need the program itself.
func harnessBinary(t *testing.T) string {
	t.Helper()
	if testing.Short() {
		t.Skip("compiles the harness and starts clusters")
	}
	bin := filepath.Join(t.TempDir(), "harness")
	build := exec.Command("go", "build", "-tags", "urfave_cli_no_docs", "-o", bin, ".")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return bin
}

func needs(t *testing.T, program, pkg string) {
	t.Helper()
	if _, err := exec.LookPath(program); err != nil {
		t.Skipf("there is no %s: apt-get install %s", program, pkg)
	}
}

// freePort is one that nobody listens on.
func freePort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	_, port, _ := net.SplitHostPort(l.Addr().String())
	return port
}

// tableRows counts the rows of a table that a run printed: its lines that begin with
// sizes.
func tableRows(out string) (rows int) {
	for line := range strings.Lines(out) {
		if f := strings.Fields(line); len(f) > 0 && '0' <= f[0][0] && f[0][0] <= '9' {
			rows++
		}
	}
	return rows
}

// verified looks at the table that a run printed.
func verified(t *testing.T, out string, ranks, rows int) {
	t.Helper()
	if tableRows(out) != rows || strings.Count(out, "#  Rank ") != ranks {
		t.Errorf("%d rows of %d ranks; want %d of %d\n%s", tableRows(out), strings.Count(out, "#  Rank "), rows, ranks, out)
	}
	if !strings.Contains(out, "# Out of bounds values : 0 OK") {
		t.Errorf("results are wrong:\n%s", out)
	}
	for _, line := range strings.Split(out, "\n") {
		if f := strings.Fields(line); len(f) == 13 && '0' <= f[0][0] && f[0][0] <= '9' && (f[8] != "0" || f[12] != "0") {
			t.Errorf("wrong elements: %s", line)
		}
	}
}

var sweep = []string{"coll", "all_reduce", "-b", "8", "-e", "1M", "-f", "4", "-n", "5"}

const sweepRows = 9

// output runs a command, with a limit that is for what hangs.
func output(t *testing.T, env []string, name string, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env = append(os.Environ(), env...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", cmd, err, out)
	}
	return string(out)
}

func TestLaunchThreads(t *testing.T) {
	bin := harnessBinary(t)
	verified(t, output(t, nil, bin, append(sweep, "-t", "4")...), 4, sweepRows)
}

func TestLaunchMpirun(t *testing.T) {
	bin := harnessBinary(t)
	needs(t, "mpirun", "openmpi-bin")
	args := append([]string{"--allow-run-as-root", "--oversubscribe", "-np", "4", bin}, sweep...)
	verified(t, output(t, nil, "mpirun", args...), 4, sweepRows)
}

func TestLaunchTorchrun(t *testing.T) {
	bin := harnessBinary(t)
	outs, port := make([]string, 2), freePort(t)
	var wg sync.WaitGroup
	for r := range outs {
		wg.Go(func() {
			cmd := exec.Command(bin, append(sweep, "-t", "2")...)
			cmd.Env = append(os.Environ(), fmt.Sprintf("RANK=%d", r), "WORLD_SIZE=2", fmt.Sprintf("LOCAL_RANK=%d", r), "MASTER_ADDR=127.0.0.1", "MASTER_PORT="+port, "ASSAY_JOB_SECRET=x")
			out, err := cmd.CombinedOutput()
			if outs[r] = string(out); err != nil {
				t.Errorf("rank %d: %v\n%s", r, err, out)
			}
		})
	}
	wg.Wait()
	verified(t, outs[0], 4, sweepRows)
}

func TestLaunchSlurm(t *testing.T) {
	bin := harnessBinary(t)
	slurm := clustertest.StartSlurm(t, clustertest.SlurmOptions{})
	for _, mpi := range []string{"none", "pmi2", "pmix"} {
		t.Run(mpi, func(t *testing.T) {
			line := slurm.Line("srun", append([]string{"--mpi=" + mpi, "-N", "2", "-n", "4", "--overcommit", bin}, sweep...)...)
			verified(t, output(t, slurm.Env, line[0], line[1:]...), 4, sweepRows)
		})
	}
}

// Across two network namespaces, as across two hosts: nothing but TCP.
func TestLaunchNamespaces(t *testing.T) {
	bin := harnessBinary(t)
	n := colltest.Veth(t)
	for name, addr := range map[string]string{"IPv4": n.V4[0].String(), "IPv6": "[" + n.V6[0].String() + "]"} {
		t.Run(name, func(t *testing.T) {
			outs := make([]string, 2)
			var wg sync.WaitGroup
			for r := range outs {
				wg.Go(func() {
					cmd := n.Command(r, bin, append(sweep, "-t", "2")...)
					cmd.Env = append(os.Environ(), fmt.Sprintf("RANK=%d", r), "WORLD_SIZE=2", "LOCAL_RANK=0", "NCCL_COMM_ID="+addr+":47222",
						"MASTER_ADDR="+strings.Trim(addr, "[]"), "MASTER_PORT=29462", fmt.Sprintf("NCCL_HOSTID=h%d", r), "ASSAY_JOB_SECRET=x")
					out, err := cmd.CombinedOutput()
					if outs[r] = string(out); err != nil {
						t.Errorf("rank %d: %v\n%s", r, err, out)
					}
				})
			}
			wg.Wait()
			verified(t, outs[0], 4, sweepRows)
		})
	}
}
