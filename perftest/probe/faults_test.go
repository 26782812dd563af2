//go:build cgo && linux

package probe

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// TestFaults stops, kills and disturbs one side of tests at random moments. The other side, which is
// ours, ends by itself with a status that is not 0, and says in its last line what happened. It needs the
// virtual machine, too. ASSAY_FAULTS is how many times, ASSAY_FAULTS_SEED makes the same again.
func TestFaults(t *testing.T) {
	hosts(t)
	if _, err := exec.LookPath("harness"); err != nil {
		t.Skip("no harness on PATH")
	}
	count, seed := setting("ASSAY_FAULTS", 10), setting("ASSAY_FAULTS_SEED", int(time.Now().Unix()))
	start := startTime(t)
	t.Logf("ASSAY_FAULTS_SEED=%d; a process starts in %v", seed, start.Round(10*time.Millisecond))
	random := rand.New(rand.NewPCG(uint64(seed), 1))
	ended := map[string]int{}
	for i := range count {
		f := newFault(t, random, i)
		f.moment = time.Duration(f.when * float64(2*start+2*time.Second)) // while both start, meet and measure
		t.Run(strings.ReplaceAll(fmt.Sprintf("%d/%s", i, f), " ", "_"), func(t *testing.T) {
			status, text, early := f.run(t)
			for ; status == 0 && early; status, text, early = f.run(t) { // a machine that has become faster
				f.moment /= 2
			}
			ended[fmt.Sprintf("%s: status %d", f.kind, status)]++
			t.Logf("status %d: %s", status, text)
			switch {
			case status != 1 && status != 3:
				t.Errorf("status %d", status)
			case !strings.HasPrefix(last(text), "harness: ib "+f.tool+": "):
				t.Errorf("the last line does not say what happened: %q", text)
			}
		})
	}
	for what, n := range ended {
		t.Logf("%d × %s", n, what)
	}
}

// startTime is how long a process of ours takes to start and to open a device, when it is in memory.
func startTime(t *testing.T) (took time.Duration) {
	for range 2 {
		begun := time.Now()
		if out, err := exec.CommandContext(t.Context(), "harness", "ib", "devices").CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		took = time.Since(begun)
	}
	return took
}

// last is the last line: before it a server tells of connections that were no client's.
func last(text string) string {
	text = strings.TrimSpace(text)
	return text[strings.LastIndex(text, "\n")+1:]
}

func setting(name string, without int) int {
	n, err := strconv.Atoi(os.Getenv(name))
	if err != nil {
		return without
	}
	return n
}

// A fault is one of them.
type fault struct {
	tool   string
	flags  []string
	kind   string  // what happens to the peer: killed, stopped; or to the connection: garbage, cut, stalled
	role   string  // ours: client or server
	peer   string  // "harness", or the C tools' directory
	when   float64 // 0 to 1
	moment time.Duration
	bytes  []byte
	cm     bool // -R, whose connection cannot be disturbed
}

func (f *fault) String() string {
	return fmt.Sprintf("%s %s our %s, %s after %v", f.tool, strings.Join(f.flags, ""), f.role, f.kind, f.moment.Round(10*time.Millisecond))
}

func newFault(t *testing.T, random *rand.Rand, i int) *fault {
	pick := func(of ...string) string { return of[random.IntN(len(of))] }
	f := &fault{
		kind: []string{"killed", "stopped", "garbage", "cut", "stalled"}[i%5], role: pick("client", "server"),
		tool: pick("write_bw", "read_bw", "send_bw", "write_lat", "read_lat", "send_lat", "atomic_bw"), peer: "harness",
		when: random.Float64(), bytes: make([]byte, 1+random.IntN(200)),
	}
	for k := range f.bytes {
		f.bytes[k] = byte(random.Uint32())
	}
	if random.IntN(3) == 0 {
		all := releases(t)
		f.peer = all[random.IntN(len(all))].dir
	}
	switch {
	case f.kind == "killed", f.kind == "cut":
		f.flags = []string{"-D60"}
	case f.tool == "write_lat" && f.kind == "stopped":
		f.flags = []string{"-D8"}
	case f.tool == "write_lat": // which reads nothing more once it measures
		f.tool = "send_lat"
		fallthrough
	default:
		f.flags = []string{"-D4"} // nothing is read before the end
	}
	if (f.kind == "killed" || f.kind == "stopped") && f.peer == "harness" && random.IntN(4) == 0 {
		f.flags, f.cm = append(f.flags, "-R"), true
	}
	if strings.HasSuffix(f.tool, "bw") && random.IntN(4) == 0 {
		f.flags = append(f.flags, "-b")
	}
	return f
}

// run returns how our side ended, and whether it did before the fault.
func (f *fault) run(t *testing.T) (status int, text string, early bool) {
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Minute)
	defer cancel()
	ch, sh := hosts(t)
	at := port(t)
	through := at // the client's port
	var w *wiretap
	if f.kind == "garbage" || f.kind == "cut" || f.kind == "stalled" {
		w = tap(t, at)
		through = w.port
	}
	args := func(role, device string, p int) []string {
		a := append([]string{"-d", device, "-x1", "-p", strconv.Itoa(p)}, f.flags...)
		if !strings.HasPrefix(f.tool, "atomic") {
			a = append(a, "-s4096")
		}
		if role == "client" {
			a = append(a, sh.address)
		}
		return a
	}
	ours := func(role string, a []string) *exec.Cmd {
		if role == "server" || f.cm {
			a = append([]string{"--wait=15"}, a...)
		}
		if role == "client" && f.cm {
			a = append([]string{"--bind_source_ip=" + ch.address}, a...)
		}
		return exec.CommandContext(ctx, "harness", append([]string{"ib", f.tool, "--timeout=3"}, a...)...)
	}
	side := func(role string) *exec.Cmd {
		device, p := sh.device, at
		if role == "client" {
			device, p = ch.device, through
		}
		a := args(role, device, p)
		if role != f.role && f.peer != "harness" {
			return exec.CommandContext(ctx, filepath.Join(f.peer, "ib_"+f.tool), append([]string{"-F"}, a...)...)
		}
		return ours(role, a)
	}
	server, client := side("server"), side("client")
	mine, theirs := server, client
	if f.role == "client" {
		mine, theirs = client, server
	}
	var out bytes.Buffer
	mine.Stderr = &out
	for _, c := range []*exec.Cmd{server, client} {
		c.Dir = t.TempDir()
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		if c == server && !f.cm { // a C client and the tap try once
			awaitPort(t, at)
		}
	}
	over := make(chan error, 1)
	go func() { over <- mine.Wait() }()
	var err error
	select {
	case err = <-over:
		early = true
	case <-time.After(f.moment):
	}
	switch f.kind {
	case "killed":
		_ = theirs.Process.Kill()
	case "stopped":
		_ = theirs.Process.Signal(syscall.SIGSTOP)
	default:
		w.disturb(f, f.role == "client")
	}
	if !early {
		err = <-over
	}
	_ = theirs.Process.Kill()
	_ = theirs.Wait()
	if ctx.Err() != nil {
		t.Fatalf("our side still runs after minutes: %s", out.String())
	}
	var e *exec.ExitError
	if err != nil && !errors.As(err, &e) {
		t.Fatal(err)
	}
	return mine.ProcessState.ExitCode(), out.String(), early
}

// awaitPort waits until a process listens, without a connection that its server would take for a
// client's.
func awaitPort(t *testing.T, port int) {
	want := fmt.Sprintf(":%04X ", port)
	for end := time.Now().Add(10 * time.Minute); time.Now().Before(end); {
		for _, name := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
			b, _ := os.ReadFile(name)
			for line := range strings.Lines(string(b)) {
				if f := strings.Fields(line); len(f) > 3 && strings.HasSuffix(f[1]+" ", want) && f[3] == "0A" {
					return
				}
			}
		}
		time.Sleep(20 * time.Millisecond)
	}
	t.Fatal("the server does not listen")
}

// A wiretap is between a client and its server.
type wiretap struct {
	port int
	mu   sync.Mutex
	ends [2]net.Conn // towards the client, towards the server
	stop bool        // it forwards nothing more
	late func()      // what is to happen once there is a connection
}

func tap(t *testing.T, server int) *wiretap {
	l, err := net.Listen("tcp4", ":0")
	if err != nil {
		t.Fatal(err)
	}
	w := &wiretap{port: l.Addr().(*net.TCPAddr).Port}
	t.Cleanup(func() {
		l.Close()
		w.mu.Lock()
		defer w.mu.Unlock()
		for _, c := range w.ends {
			if c != nil {
				c.Close()
			}
		}
	})
	go func() {
		c, err := l.Accept()
		if err != nil {
			return
		}
		s, err := net.Dial("tcp4", fmt.Sprintf("127.0.0.1:%d", server))
		if err != nil {
			c.Close()
			return
		}
		w.mu.Lock()
		w.ends = [2]net.Conn{c, s}
		late := w.late
		w.mu.Unlock()
		if late != nil {
			late()
		}
		go w.forward(c, s)
		w.forward(s, c)
	}()
	return w
}

func (w *wiretap) forward(to, from net.Conn) {
	b := make([]byte, 4096)
	for {
		n, err := from.Read(b)
		w.mu.Lock()
		stop := w.stop
		w.mu.Unlock()
		if n > 0 && !stop {
			_, _ = to.Write(b[:n])
		}
		if err != nil {
			if !stop && err == io.EOF {
				_ = to.(*net.TCPConn).CloseWrite()
			}
			return
		}
	}
}

// disturb does what a fault says, to the client's connection or to the server's.
func (w *wiretap) disturb(f *fault, client bool) {
	do := func() {
		end := w.ends[1]
		if client {
			end = w.ends[0]
		}
		switch f.kind {
		case "garbage":
			_, _ = end.Write(f.bytes)
		case "cut":
			w.ends[0].Close()
			w.ends[1].Close()
		default:
			w.mu.Lock()
			w.stop = true
			w.mu.Unlock()
		}
	}
	w.mu.Lock()
	if w.ends[0] == nil {
		w.late = do
		w.mu.Unlock()
		return
	}
	w.mu.Unlock()
	do()
}
