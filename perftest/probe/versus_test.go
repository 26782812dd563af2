//go:build cgo && linux

package probe

import (
	"bytes"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/assay-hpc/assay/internal/verbs"
)

// How TestVersus measures: in turns that are short against the machine's ups
// and downs, many of them, and all by one clock and one counter.
const (
	turns   = 24 // of each program
	turn    = 200 * time.Millisecond
	settle  = 30 * time.Millisecond // before a turn
	still   = 20 * time.Millisecond // without a packet nothing is under way
	tooLong = time.Minute           // until messages flow, or have all gone
	flying  = 256 << 10             // bytes: what is under way is sent before the other's turn
)

// TestVersus measures the harness and perftest with the same flags, both sides
// by the same program, and writes the table of ratios to $OUT/versus.md: make
// bench ONLY=rdma. ASSAY_RDMA_BENCH are the tools, with commas.
//
// Neither program's own figures are used: each has a clock of its own, and that
// of perftest is off in an emulated machine. Both run without an end, one of
// them stopped, and what moves is counted by the device.
func TestVersus(t *testing.T) {
	hosts(t)
	tools := os.Getenv("ASSAY_RDMA_BENCH")
	if tools == "" {
		t.Skip("takes several minutes: make bench ONLY=rdma")
	}
	var b strings.Builder
	b.WriteString("| test | bytes | harness | perftest | ratio | 95 % of its median |\n|---|---|---|---|---|---|\n")
	for _, tool := range strings.Split(tools, ",") {
		for _, size := range []int{2, 16, 128, 1024, 4096, 16384, 65536, 1 << 20} {
			b.WriteString(versus(t, tool, size) + "\n")
			if err := os.WriteFile(filepath.Join(os.Getenv("OUT"), "versus.md"), []byte(b.String()), 0o666); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// versus is one line of the table.
func versus(t *testing.T, tool string, size int) string {
	t.Helper()
	latency := strings.HasSuffix(tool, "lat")
	ours, theirs := begin(t, tool, size, "harness", "ib", tool), begin(t, tool, size, "ib_"+tool)
	defer ours.kill()
	defer theirs.kill()
	var a, c, ratios []float64
	for i := range turns {
		pair := [2]*contender{ours, theirs}
		if i%2 == 1 {
			slices.Reverse(pair[:])
		}
		var rate [2]float64
		for k, p := range pair {
			rate[k] = p.run(t)
		}
		if i%2 == 1 {
			slices.Reverse(rate[:])
		}
		a, c = append(a, rate[0]), append(c, rate[1])
		ratio := rate[0] / rate[1]
		if latency {
			ratio = rate[1] / rate[0]
		}
		ratios = append(ratios, ratio)
	}
	slices.Sort(ratios)
	// The binomial's quantiles, as the normal distribution has them.
	off := int(math.Ceil(0.98 * math.Sqrt(turns)))
	low, high := ratios[turns/2-off], ratios[turns/2-1+off]
	line := fmt.Sprintf("| %s | %d | %s | %s | %.3f | %.3f to %.3f |", tool, size,
		figure(t, tool, size, middle(a)), figure(t, tool, size, middle(c)), middle(ratios), low, high)
	t.Log(line, "retries:", ours.retries, theirs.retries)
	return line
}

// processor is the number of the one that a side is to run on.
func (h host) processor() int {
	n, _ := strconv.Atoi(strings.TrimPrefix(h.device, "rxe"))
	return n
}

func middle(v []float64) float64 {
	v = slices.Sorted(slices.Values(v))
	return (v[(len(v)-1)/2] + v[len(v)/2]) / 2
}

// figure makes packets a second that the client sends what a tool prints.
func figure(t *testing.T, tool string, size int, rate float64) string {
	t.Helper()
	ch, _ := hosts(t)
	ctx, err := verbs.Open(ch.device)
	if err != nil {
		t.Fatal(err)
	}
	defer ctx.Close()
	p, err := ctx.Port(1)
	if err != nil {
		t.Fatal(err)
	}
	mtu := p.MTU.Bytes()
	packets := float64(max(1, (size+mtu-1)/mtu))
	switch tool {
	case "read_bw", "read_lat": // a request
		packets = 1
	case "write_lat", "send_lat": // and the acknowledgement of the peer's message
		packets++
	}
	switch tool {
	case "read_lat":
		return fmt.Sprintf("%.1f µs", 1e6*packets/rate)
	case "write_lat", "send_lat":
		return fmt.Sprintf("%.1f µs", 1e6*packets/rate/2)
	}
	return fmt.Sprintf("%.3f MiB/s", rate/packets*float64(size)/(1<<20))
}

// A contender is both sides of a test, which are stopped unless it is their turn.
type contender struct {
	server, client *exec.Cmd
	output         bytes.Buffer
	retries        int
}

// begin starts a test that does not end, and stops it as soon as messages flow.
func begin(t *testing.T, tool string, size int, program ...string) *contender {
	t.Helper()
	ch, sh := hosts(t)
	n := 100_000_000
	if strings.HasSuffix(tool, "lat") {
		n = 1_000_000 // both programs keep a time stamp of each
	}
	p := strconv.Itoa(port(t))
	c := &contender{}
	start := func(h host, more ...string) *exec.Cmd {
		args := append(slices.Clone(program[1:]), "-d", h.device, "-x", "1", "-F", "-s", strconv.Itoa(size), "-n", strconv.Itoa(n), "-p", p)
		if strings.HasSuffix(tool, "bw") {
			args = append(args, "-t", strconv.Itoa(min(128, max(2, flying/size))))
		}
		// Each side has a processor, if there are two: where a scheduler puts them
		// makes more of a difference than the program.
		args = append([]string{"-c", strconv.Itoa(h.processor() % runtime.NumCPU()), program[0]}, append(args, more...)...)
		cmd := exec.Command("taskset", args...)
		cmd.Dir, cmd.Stderr = t.TempDir(), &c.output
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		return cmd
	}
	t.Cleanup(c.kill)
	c.server = start(sh)
	for deadline := time.Now().Add(tooLong); !listening(t, p); time.Sleep(settle) {
		if time.Now().After(deadline) {
			t.Fatalf("%v: it does not listen after %v\n%s", c.server.Args, tooLong, c.output.String())
		}
	}
	c.client = start(ch, sh.address)
	// A hundred packets, and half a second more.
	from := counter(t, "sent_pkts")
	for deadline := time.Now().Add(tooLong); counter(t, "sent_pkts") < from+100; time.Sleep(settle) {
		if time.Now().After(deadline) {
			t.Fatalf("%v: nothing was sent in %v\n%s", c.client.Args, tooLong, c.output.String())
		}
	}
	time.Sleep(500 * time.Millisecond)
	c.stop(t)
	return c
}

// listening looks whether somebody listens at a port, without connecting: a
// server serves one client.
func listening(t *testing.T, port string) bool {
	t.Helper()
	n, err := strconv.Atoi(port)
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(b)) {
			// The local address is the second field, the state the fourth.
			if f := strings.Fields(line); len(f) > 3 && strings.HasSuffix(f[1], fmt.Sprintf(":%04X", n)) && f[3] == "0A" {
				return true
			}
		}
	}
	return false
}

// run lets it run for a turn, and returns the packets a second that the client
// sent.
func (c *contender) run(t *testing.T) float64 {
	t.Helper()
	c.signal(t, c.server, syscall.SIGCONT)
	c.signal(t, c.client, syscall.SIGCONT)
	time.Sleep(settle)
	retries := counter(t, "rcvd_rnr_err")
	n, from := counter(t, "sent_pkts"), time.Now()
	time.Sleep(turn)
	n, took := counter(t, "sent_pkts")-n, time.Since(from)
	c.retries += counter(t, "rcvd_rnr_err") - retries
	c.stop(t)
	if n == 0 {
		t.Fatalf("%v: nothing was sent in %v\n%s", c.client.Args, took, c.output.String())
	}
	return float64(n) / took.Seconds()
}

// stop stops the client, and the server when nothing is under way any more.
func (c *contender) stop(t *testing.T) {
	t.Helper()
	c.signal(t, c.client, syscall.SIGSTOP)
	deadline := time.Now().Add(tooLong)
	for n, last := counter(t, "sent_pkts"), -1; n != last; n, last = counter(t, "sent_pkts"), n {
		if time.Now().After(deadline) {
			t.Fatalf("%v: the client was stopped, and packets still go out", c.client.Args)
		}
		time.Sleep(still)
	}
	c.signal(t, c.server, syscall.SIGSTOP)
}

func (c *contender) signal(t *testing.T, cmd *exec.Cmd, s syscall.Signal) {
	t.Helper()
	if err := cmd.Process.Signal(s); err != nil {
		t.Fatalf("%v: %v\n%s", cmd.Args, err, c.output.String())
	}
}

func (c *contender) kill() {
	for _, cmd := range []*exec.Cmd{c.client, c.server} {
		if cmd != nil && cmd.ProcessState == nil {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		}
	}
}

// counter reads one of the client's device.
func counter(t *testing.T, name string) int {
	t.Helper()
	ch, _ := hosts(t)
	b, err := os.ReadFile("/sys/class/infiniband/" + ch.device + "/ports/1/hw_counters/" + name)
	if err != nil {
		t.Fatal(err)
	}
	n, err := strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil {
		t.Fatal(err)
	}
	return n
}
