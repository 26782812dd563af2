package bootstrap

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/assay-hpc/assay/internal/clustertest"
	"github.com/assay-hpc/assay/internal/meet"
)

// shareAll is ShareID of all ranks of a job, and then Join.
func shareAll(t *testing.T, worlds []World, o Options) []error {
	t.Helper()
	errs := make([]error, len(worlds))
	var wg sync.WaitGroup
	for r, w := range worlds {
		wg.Go(func() { errs[r] = childRound(w, o, 0) })
	}
	wg.Wait()
	return errs
}

func torchWorlds(t *testing.T, n int, more ...string) []World {
	t.Helper()
	var out []World
	for r := range n {
		w, err := Detect(env(append([]string{fmt.Sprintf("RANK=%d", r), fmt.Sprintf("WORLD_SIZE=%d", n), "MASTER_ADDR=127.0.0.1",
			"TORCHELASTIC_RUN_ID=" + t.Name() + fmt.Sprint(os.Getpid())}, more...)...))
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, w)
	}
	return out
}

func TestShare(t *testing.T) {
	for _, more := range [][]string{nil, {"ASSAY_JOB_SECRET=s"}} {
		worlds := torchWorlds(t, 5, more...)
		var lines []string
		var mu sync.Mutex
		o := local()
		o.Logf = func(format string, a ...any) {
			mu.Lock()
			defer mu.Unlock()
			lines = append(lines, fmt.Sprintf(format, a...))
		}
		for range 2 { // each call is one more communicator
			if err := errors.Join(shareAll(t, worlds, o)...); err != nil {
				t.Error(err)
			}
		}
		warned := strings.Contains(strings.Join(lines, "\n"), "set ASSAY_JOB_SECRET")
		if warned != (more == nil) {
			t.Errorf("with %v the log has %q", more, lines)
		}
	}
}

// TestShareAmongStrangers: others listen on the first ports: one says nothing,
// one has the same job but another secret, one talks nonsense.
func TestShareAmongStrangers(t *testing.T) {
	t.Parallel()
	worlds := torchWorlds(t, 3, "ASSAY_JOB_SECRET=right")
	ports := portsOf(worlds[1].key(local().withDefaults(), 1))
	nonsense, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", ports[0]))
	if err != nil {
		t.Skipf("a port is taken: %v", err)
	}
	defer nonsense.Close()
	go func() {
		for {
			c, err := nonsense.Accept()
			if err != nil {
				return
			}
			c.Write(make([]byte, 4096))
			c.Close()
		}
	}()
	mute, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", ports[1]))
	if err != nil {
		t.Skipf("a port is taken: %v", err)
	}
	defer mute.Close()
	other := &meet.Gate{Protocol: protocol, Secret: []byte("wrong"), Logf: t.Logf}
	other.Enter = func(c net.Conn, _, _ []byte) { t.Error("a rank entered at a stranger's"); c.Close() }
	if _, err := other.Listen(fmt.Sprintf("127.0.0.1:%d", ports[2])); err != nil {
		t.Skipf("a port is taken: %v", err)
	}
	defer other.Close()
	if err := errors.Join(shareAll(t, worlds, local())...); err != nil {
		t.Error(err)
	}
}

// TestShareNobody: rank 0 does not come.
func TestShareNobody(t *testing.T) {
	t.Parallel()
	o := local()
	o.Timeout = 300 * time.Millisecond
	w := torchWorlds(t, 2)[1]
	if _, _, err := ShareID(context.Background(), w, o); !errors.Is(err, ErrTimeout) || !strings.Contains(err.Error(), "NCCL_COMM_ID") {
		t.Errorf("ShareID = %v", err)
	}
}

// TestShareTells why rank 0 was not found: the name's resolution is not hidden by the refusals of
// other addresses.
func TestShareTells(t *testing.T) {
	t.Parallel()
	o := local()
	o.Timeout = 500 * time.Millisecond
	for _, tt := range []struct{ addr, want string }{
		{"rank0.invalid", "rank0.invalid, where rank 0 should be, does not resolve on this host"},
		{"127.0.0.9", "127.0.0.9 refuses"},
	} {
		w := torchWorlds(t, 2)[1]
		w.hosts = []string{tt.addr}
		_, _, err := ShareID(context.Background(), w, o)
		if !errors.Is(err, ErrTimeout) || !strings.Contains(err.Error(), tt.want) || !strings.Contains(err.Error(), "127.0.0.1 (this host) refuses") {
			t.Errorf("%s: %v", tt.addr, err)
		}
	}
}

// TestSearchOutcome: each address's most telling error, and names that are this host's.
func TestSearchOutcome(t *testing.T) {
	here, there, other := netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.2"), netip.MustParseAddr("10.0.0.3")
	q := &search{s: &share{ports: []uint16{17000}}, asked: []netip.Addr{here, there, other}, unnamed: map[string]error{"b": errors.New("no such host")}, loopback: map[string]netip.Addr{},
		answers: map[netip.Addr]error{here: fmt.Errorf("dial: %w", syscall.ECONNREFUSED), there: fmt.Errorf("dial: %w", syscall.EHOSTUNREACH)}}
	q.resolved("a", []netip.Addr{netip.MustParseAddr("127.0.1.1")})
	q.resolved("c", []netip.Addr{there})
	got := q.outcome([]netip.Addr{here})
	for _, want := range []string{
		"b, where rank 0 should be, does not resolve on this host (no such host)", "a, where rank 0 should be, is 127.0.1.1 on this host, which is this host itself",
		"10.0.0.1 (this host) refuses", "10.0.0.2 is not reachable", "10.0.0.3 is silent",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("%q lacks %q", got, want)
		}
	}
	if strings.Contains(got, "c,") {
		t.Error(got)
	}
}

func TestShareByCommID(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	l.Close()
	worlds := torchWorlds(t, 3, "NCCL_COMM_ID="+addr, "ASSAY_JOB_SECRET=s")
	for range 3 {
		if err := errors.Join(shareAll(t, worlds, local())...); err != nil {
			t.Error(err)
		}
	}
}

func TestSeal(t *testing.T) {
	id := newTestRoot(t, local()).ID()
	key, another := make([]byte, 32), append(make([]byte, 31), 1)
	b := seal(key, id)
	if got, err := unseal(key, b); err != nil || got != id {
		t.Errorf("unseal = %v, %v", got, err)
	}
	if _, err := unseal(another, b); err == nil {
		t.Error("it opens with another key")
	}
	b[5]++
	if _, err := unseal(key, b); err == nil {
		t.Error("it opens after a change")
	}
}

// launch runs this test binary as a job's process by a launcher, and checks
// that all ranks have come up.
func launch(t *testing.T, ranks int, environ []string, name string, args ...string) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, append(args, self)...)
	cmd.Env = append(append(os.Environ(), "BOOTSTRAP_TEST_ROLE=world"), environ...)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s: %v\n%s%s", strings.Join(cmd.Args, " "), err, out, stderr.String())
	}
	seen := map[int]bool{}
	for s := bufio.NewScanner(strings.NewReader(string(out))); s.Scan(); {
		var r, n int
		if _, err := fmt.Sscanf(s.Text(), "ok rank %d of %d", &r, &n); err == nil && n == ranks {
			seen[r] = true
		}
	}
	if len(seen) != ranks {
		t.Errorf("%d of %d ranks came up:\n%s%s", len(seen), ranks, out, stderr.String())
	}
}

func need(t *testing.T, names ...string) {
	t.Helper()
	for _, n := range names {
		if _, err := exec.LookPath(n); err != nil {
			t.Skipf("%s is not installed", n)
		}
	}
}

func TestMpirun(t *testing.T) {
	t.Parallel()
	need(t, "mpirun")
	if out, _ := exec.Command("mpirun", "--version").CombinedOutput(); !strings.Contains(string(out), "Open MPI") {
		t.Skip("mpirun is not Open MPI's")
	}
	sizes := []int{2, 4, 64}
	if testing.Short() {
		sizes = sizes[:1]
	}
	for _, n := range sizes {
		launch(t, n, nil, "mpirun", "--allow-run-as-root", "--oversubscribe", "-np", fmt.Sprint(n))
	}
}

func TestHydra(t *testing.T) {
	t.Parallel()
	need(t, "mpiexec.hydra")
	launch(t, 4, nil, "mpiexec.hydra", "-n", "4")
}

// TestSlurm runs the job on a real cluster of two nodes on this host.
func TestSlurm(t *testing.T) {
	if testing.Short() {
		t.Skip("starting a cluster takes seconds")
	}
	slurm := clustertest.StartSlurm(t, clustertest.SlurmOptions{})
	for _, mpi := range []string{"none", "pmi2", "pmix"} {
		t.Run(mpi, func(t *testing.T) {
			line := slurm.Line("srun", "--mpi="+mpi, "-N", "2", "-n", "4", "--overcommit")
			launch(t, 4, slurm.Env, line[0], line[1:]...)
		})
	}
}
