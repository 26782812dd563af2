package socket

import (
	"bufio"
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/assay-hpc/assay/coll/transport"
)

// childEnv holds a job: the test binary is then one rank of two, in a network
// namespace of its own, and no test.
const childEnv = "ASSAY_SOCKET_TEST_JOB"

func TestMain(m *testing.M) {
	if text := os.Getenv(childEnv); text != "" {
		if err := childMain(text); err != nil {
			fmt.Println("error", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// A job is what a child does. It prints its Info, reads its peer's, works,
// and prints what came of it.
type job struct {
	Rank   int
	Addrs  []netip.Addr
	Do     string // a key of jobs
	Size   int    // bytes of a message
	Count  int    // messages
	Millis int    // Options.Timeout

	Threads, PerThread, MaxMessage int
}

// jobs are what a child can do, given both directions.
var jobs = map[string]func(j job, e *Endpoint, tx *Tx, rx *Rx) (string, error){
	"stream":   streamJob,
	"pingpong": pingpongJob,
	"exchange": exchangeJob,
	"wait":     waitJob,
}

func childMain(text string) error {
	var j job
	if err := json.Unmarshal([]byte(text), &j); err != nil {
		return err
	}
	fault := new(transport.Fault)
	e, err := Open(Options{Rank: j.Rank, Key: testKey, Fault: fault, Addrs: j.Addrs, Threads: j.Threads, PerThread: j.PerThread,
		MaxMessage: j.MaxMessage, Timeout: time.Duration(j.Millis) * time.Millisecond,
		Logf: func(f string, a ...any) { fmt.Fprintf(os.Stderr, f+"\n", a...) }})
	if err != nil {
		return err
	}
	defer e.Close()
	fmt.Println("info", hex.EncodeToString(e.Info()))
	in := bufio.NewReader(os.Stdin)
	line, err := in.ReadString('\n')
	if err != nil {
		return err
	}
	info, err := hex.DecodeString(strings.TrimSpace(line))
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	tx, err := e.Tx(ctx, 1-j.Rank, info, 0)
	if err != nil {
		return err
	}
	rx, err := e.Rx(ctx, 1-j.Rank, info, 0)
	if err != nil {
		return err
	}
	result, err := jobs[j.Do](j, e, tx.(*Tx), rx.(*Rx))
	if err != nil {
		return err
	}
	fmt.Println("result", result)
	in.ReadString('\n') // the parent lets both go when both are done
	return nil
}

// spins is how many fruitless tries go before a wait: 1 shows what the work
// alone costs.
var spins = func() int {
	if os.Getenv("ASSAY_BENCH_NOSPIN") != "" {
		return 1
	}
	return 200
}()

// cpu is the processor time that this process has used.
func cpu() float64 {
	var u unix.Rusage
	unix.Getrusage(unix.RUSAGE_SELF, &u)
	return float64(u.Utime.Nano()+u.Stime.Nano()) / 1e9
}

// spin calls f until it reports true, as an executor does: some tries, then a
// wait for the endpoint.
func (e *Endpoint) spin(f func() bool) error {
	for i := 1; !f(); i++ {
		if err := e.opt.Fault.Err(); err != nil {
			return err
		}
		if i%spins == 0 {
			unix.Poll([]unix.PollFd{{Fd: int32(e.Fd()), Events: unix.POLLIN}}, 10)
			e.Drain()
		}
	}
	return nil
}

// streamJob sends Count messages from rank 0 to rank 1, which prints the rate
// in bytes a second. Both print their processor seconds for each GB.
func streamJob(j job, e *Endpoint, tx *Tx, rx *Rx) (string, error) {
	// Several messages' memory: data that is reduced or copied is not all in
	// the cache. (iperf3's is: it sends one buffer again and again.)
	const parts = 4
	buf := make([]byte, parts*j.Size)
	for i := range buf {
		buf[i] = byte(i)
	}
	part := func(i int) []byte { return buf[i%parts*j.Size:][:j.Size] }
	used := cpu()
	if j.Rank == 0 {
		for i := range j.Count {
			if err := e.spin(func() bool { return tx.Post(part(i), transport.Header{Seq: uint32(i)}) }); err != nil {
				return "", err
			}
		}
		if err := e.spin(tx.Idle); err != nil {
			return "", err
		}
		used = (cpu() - used) / float64(j.Count) / float64(j.Size) * 1e9
		err := e.spin(func() bool { _, _, ok := rx.Peek(); return ok })
		return fmt.Sprintf("0 %.3f", used), err
	}
	var start time.Time
	for i := range j.Count {
		rx.Post(part(i))
		if err := e.spin(func() bool { _, _, ok := rx.Done(); return ok }); err != nil {
			return "", err
		}
		if i == j.Count/10 {
			start = time.Now()
		}
	}
	bytes := float64(j.Count-1-j.Count/10) * float64(j.Size)
	rate := bytes / time.Since(start).Seconds()
	used = (cpu() - used) / float64(j.Count) / float64(j.Size) * 1e9
	tx.Reserve(0)
	tx.Commit(0, transport.Header{})
	return fmt.Sprintf("%.0f %.3f", rate, used), e.spin(tx.Idle)
}

// pingpongJob prints the time of half a round in nanoseconds: the best of ten
// runs.
func pingpongJob(j job, e *Endpoint, tx *Tx, rx *Rx) (string, error) {
	buf := make([]byte, j.Size)
	send := func() error {
		if err := e.spin(func() bool { return tx.Post(buf, transport.Header{}) }); err != nil {
			return err
		}
		return e.spin(tx.Idle)
	}
	receive := func() error {
		if j.Size <= small {
			return e.spin(func() bool {
				_, _, ok := rx.Peek()
				if ok {
					rx.Release()
				}
				return ok
			})
		}
		rx.Post(buf)
		return e.spin(func() bool { _, _, ok := rx.Done(); return ok })
	}
	steps := []func() error{send, receive}
	if j.Rank == 1 {
		steps = []func() error{receive, send}
	}
	var best time.Duration
	for range 10 {
		start := time.Now()
		for range j.Count / 10 {
			for _, f := range steps {
				if err := f(); err != nil {
					return "", err
				}
			}
		}
		if d := time.Since(start); best == 0 || d < best {
			best = d
		}
	}
	return fmt.Sprint(best.Nanoseconds() / int64(j.Count/10) / 2), nil
}

// exchangeJob sends Count messages both ways and compares each byte.
func exchangeJob(j job, e *Endpoint, tx *Tx, rx *Rx) (string, error) {
	fill := func(p []byte, rank, i int) {
		for n := range p {
			p[n] = byte(n*7 + n>>8*13 + i*31 + rank)
		}
	}
	out, in, want := make([]byte, j.Size), make([]byte, j.Size), make([]byte, j.Size)
	size := func(i int) int { return (i*7919 + 1) % (j.Size + 1) }
	sent, posted := 0, false
	// trySend sends the next message unless one is under way: out holds one.
	trySend := func() {
		if sent < j.Count && tx.Idle() {
			p := out[:size(sent)]
			fill(p, j.Rank, sent)
			if tx.Post(p, transport.Header{Seq: uint32(sent)}) {
				sent++
			}
		}
	}
	for i := 0; i < j.Count; {
		err := e.spin(func() bool {
			if sent <= i+4 {
				trySend()
			}
			if !posted {
				rx.Post(in[:size(i)])
				posted = true
			}
			_, n, ok := rx.Done()
			return ok && n == size(i)
		})
		if err != nil {
			return "", err
		}
		fill(want[:size(i)], 1-j.Rank, i)
		if string(in[:size(i)]) != string(want[:size(i)]) {
			return "", fmt.Errorf("message %d arrived changed", i)
		}
		posted = false
		i++
	}
	// The peer may have sent all of its own while the last of these waited.
	if err := e.spin(func() bool { trySend(); return sent == j.Count }); err != nil {
		return "", err
	}
	return "right", e.spin(tx.Idle)
}

// waitJob waits for the loss of the peer. Rank 0 has data under way.
func waitJob(j job, e *Endpoint, tx *Tx, rx *Rx) (string, error) {
	for i := 0; ; i++ {
		if j.Rank == 0 {
			if tx.Reserve(100) != nil {
				tx.Commit(100, transport.Header{})
			}
		} else if _, _, ok := rx.Peek(); ok {
			rx.Release()
		}
		if err := e.opt.Fault.Err(); err != nil {
			return err.Error(), nil
		}
		if i == 20 {
			fmt.Println("ready")
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// A child is a running job.
type child struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Scanner
}

// startChild starts a job in a network namespace.
func startChild(t testing.TB, netns string, j job) *child {
	t.Helper()
	text, err := json.Marshal(j)
	if err != nil {
		t.Fatal(err)
	}
	c := &child{cmd: inside(netns, os.Args[0])}
	c.cmd.Env = append(os.Environ(), childEnv+"="+string(text))
	c.cmd.Stderr = os.Stderr
	if c.in, err = c.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	c.out = bufio.NewScanner(out)
	if err := c.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.in.Close(); c.cmd.Process.Kill(); c.cmd.Wait() })
	return c
}

// expect reads the line that begins with a word, and returns the rest.
func (c *child) expect(t testing.TB, word string) string {
	t.Helper()
	if !c.out.Scan() {
		t.Fatalf("the child ends where %q is due: %v", word, c.out.Err())
	}
	rest, ok := strings.CutPrefix(c.out.Text(), word)
	if !ok {
		t.Fatalf("the child says %q; want %q", c.out.Text(), word)
	}
	return strings.TrimSpace(rest)
}

// startPair starts a job on both sides, and introduces them to each other.
func startPair(t testing.TB, n nets, j job) [2]*child {
	t.Helper()
	var c [2]*child
	var info [2]string
	for r := range c {
		j.Rank, j.Addrs = r, n.addrs[r]
		c[r] = startChild(t, n.name[r], j)
		info[r] = c[r].expect(t, "info")
	}
	for r := range c {
		fmt.Fprintln(c[r].in, info[1-r])
	}
	return c
}

// runPair runs a job on both sides and returns their results.
func runPair(t testing.TB, n nets, j job) [2]string {
	t.Helper()
	c := startPair(t, n, j)
	out := [2]string{c[0].expect(t, "result"), c[1].expect(t, "result")}
	for r := range c {
		fmt.Fprintln(c[r].in)
		if err := c[r].cmd.Wait(); err != nil {
			t.Errorf("rank %d: %v", r, err)
		}
	}
	return out
}
