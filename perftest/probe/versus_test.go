//go:build cgo && linux

package probe

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// TestVersus measures the harness and perftest in turns, with the same flags,
// both sides by the same program, and writes the table of ratios to
// $OUT/versus.md: make bench-rdma. ASSAY_RDMA_BENCH are the tools, with commas.
func TestVersus(t *testing.T) {
	hosts(t)
	tools := os.Getenv("ASSAY_RDMA_BENCH")
	if tools == "" {
		t.Skip("takes several minutes: make bench-rdma")
	}
	const repeat = 3
	var b strings.Builder
	b.WriteString("| test | bytes | harness | perftest | ratio |\n|---|---|---|---|---|\n")
	for _, tool := range strings.Split(tools, ",") {
		for _, size := range []int{2, 64, 1024, 8192, 65536, 1 << 20} {
			latency := strings.HasSuffix(tool, "lat")
			if latency && size > 65536 {
				continue
			}
			// About a second of each.
			n := min(2000, max(30, 20<<20/max(size, 4096)))
			var ours, theirs []float64
			for range repeat {
				ours = append(ours, once(t, []string{"harness", "ib", tool}, tool, size, n))
				theirs = append(theirs, once(t, []string{"ib_" + tool}, tool, size, n))
			}
			slices.Sort(ours)
			slices.Sort(theirs)
			a, c := ours[repeat/2], theirs[repeat/2]
			ratio, unit := a/c, "MiB/s"
			if latency {
				unit = "µs"
			}
			line := fmt.Sprintf("| %s | %d | %.2f %s | %.2f %s | %.3f |\n", tool, size, a, unit, c, unit, ratio)
			t.Log(strings.TrimSpace(line), ours, theirs)
			b.WriteString(line)
			if err := os.WriteFile(filepath.Join(os.Getenv("OUT"), "versus.md"), []byte(b.String()), 0o666); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// once runs a test with both sides by the same program, and returns the client's
// average: MiB/s, or microseconds.
func once(t *testing.T, program []string, tool string, size, n int) float64 {
	t.Helper()
	ch, sh := hosts(t)
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	args := func(device string, more ...string) []string {
		a := append(slices.Clone(program[1:]), "-d", device, "-x", "1", "-F", "-s", strconv.Itoa(size), "-n", strconv.Itoa(n))
		return append(a, more...)
	}
	p := strconv.Itoa(port(t))
	server := exec.CommandContext(ctx, program[0], args(sh.device, "-p", p)...)
	server.Dir = t.TempDir()
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	defer server.Wait()
	time.Sleep(700 * time.Millisecond)
	what := "bandwidth"
	if strings.HasSuffix(tool, "lat") {
		what = "latency"
	}
	client := exec.CommandContext(ctx, program[0], args(ch.device, "-p", p, "--output="+what, sh.address)...)
	client.Dir = t.TempDir()
	out, err := client.Output()
	if err != nil {
		t.Fatalf("%v: %v\n%s", client.Args, err, out)
	}
	v, err := strconv.ParseFloat(strings.TrimSpace(string(out)), 64)
	if err != nil {
		t.Fatalf("%v: %q", client.Args, out)
	}
	return v
}
