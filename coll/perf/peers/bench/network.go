package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/assay-hpc/assay/internal/stat"

	"github.com/assay-hpc/assay/coll"
)

// Two network namespaces with a veth pair between them.
var (
	namespaces = []string{"assay-bench-a", "assay-bench-b"}
	addresses  = []string{"10.76.54.1", "10.76.54.2"}
)

func joinNamespaces() error {
	removeNamespaces() // of a run that was killed
	script := `set -e
ip netns add assay-bench-a
ip netns add assay-bench-b
ip link add abench0 type veth peer name abench1
ip link set abench0 netns assay-bench-a name link0
ip link set abench1 netns assay-bench-b name link0
for s in a:1 b:2; do
  ns=assay-bench-${s%%:*}
  ip -n $ns link set lo up
  ip -n $ns link set link0 up
  ip -n $ns addr add 10.76.54.${s##*:}/24 dev link0
done`
	if out, err := exec.Command("sh", "-c", script).CombinedOutput(); err != nil {
		removeNamespaces()
		return fmt.Errorf("network namespaces: %w: %s", err, out)
	}
	return nil
}

func removeNamespaces() {
	for _, ns := range namespaces {
		_ = exec.Command("ip", "netns", "del", ns).Run()
	}
}

// bootstrapID returns the communicator's ID. With -network the driver is in neither namespace, so
// rank 0 listens itself, at NCCL_COMM_ID.
func bootstrapID(o options) (coll.UniqueID, error) {
	if o.network {
		return coll.UniqueID{}, nil
	}
	return coll.GetUniqueID(coll.Config{})
}

// acrossNamespaces returns the mpirun command that starts a rank in each namespace: its remote
// shell enters the second one.
func acrossNamespaces(dir string) ([]string, error) {
	agent := filepath.Join(dir, "agent")
	text := "#!/bin/sh\nshift\nexec ip netns exec " + namespaces[1] + " sh -c \"$*\"\n"
	if err := os.WriteFile(agent, []byte(text), 0o700); err != nil {
		return nil, err
	}
	return []string{
		"ip", "netns", "exec", namespaces[0], "mpirun", "--allow-run-as-root", "--host", addresses[0] + ":1," + addresses[1] + ":1",
		"--mca", "plm_rsh_agent", agent, "--mca", "btl", "tcp,self", "--mca", "pml", "ob1", "--bind-to", "none",
		"--mca", "btl_tcp_if_include", "link0", "--mca", "oob_tcp_if_include", "link0",
	}, nil
}

// againstIperf compares what a broadcast moves from rank 0 to rank 1 with what iperf3 moves,
// measured alternately.
func againstIperf(ctx context.Context, s *side, o options) error {
	server := exec.CommandContext(ctx, "ip", "netns", "exec", namespaces[1], "iperf3", "-s", "-p", "5299")
	if err := server.Start(); err != nil {
		return fmt.Errorf("iperf3: %w (apt-get install iperf3)", err)
	}
	defer func() { _ = server.Process.Kill(); _ = server.Wait() }()
	time.Sleep(300 * time.Millisecond)
	size := min(o.max, 64<<20)
	var ours, theirs []float64
	for range o.rounds {
		const iters = 8
		t, err := s.time("broadcast", size, 1, iters)
		if err != nil {
			return err
		}
		ours = append(ours, float64(size)*iters/t/1e9)
		out, err := exec.CommandContext(ctx, "ip", "netns", "exec", namespaces[0], "iperf3", "-c", addresses[1], "-p", "5299", "-t", "1", "-J").Output()
		if err != nil {
			return fmt.Errorf("iperf3: %w: %s", err, out)
		}
		var r struct {
			End struct {
				Received struct {
					BitsPerSecond float64 `json:"bits_per_second"`
				} `json:"sum_received"`
			} `json:"end"`
		}
		if err := json.Unmarshal(out, &r); err != nil {
			return fmt.Errorf("iperf3: %w", err)
		}
		theirs = append(theirs, r.End.Received.BitsPerSecond/8e9)
	}
	a, b := stat.Median(ours), stat.Median(theirs)
	fmt.Printf("# broadcast of %d bytes: %.2f GB/s, iperf3 (one stream): %.2f GB/s, ratio %.2f (%s)\n", size, a, b, a/b, strings.Trim(fmt.Sprintf("%.2f against %.2f", ours, theirs), "[]"))
	return nil
}
