package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/assay-hpc/assay/coll"
	"github.com/assay-hpc/assay/coll/op"
	"github.com/assay-hpc/assay/internal/host/sysfs"
)

// A side is a set of rank processes that time operations on command.
type side struct {
	name  string
	cmd   []*os.File
	out   []*bufio.Reader
	procs []*exec.Cmd
	log   *bytes.Buffer
}

// pipes creates the named pipes of n ranks in dir.
func pipes(dir string, n int) error {
	if err := os.Mkdir(dir, 0o700); err != nil {
		return err
	}
	for r := range n {
		for _, kind := range []string{"cmd", "out"} {
			if err := unix.Mkfifo(filepath.Join(dir, fmt.Sprintf("%s.%d", kind, r)), 0o600); err != nil {
				return err
			}
		}
	}
	return nil
}

// open opens the ranks' pipes.
func (s *side) open(dir string, n int) error {
	for r := range n {
		// Opened for reading and writing, so that opening does not wait for a rank that died.
		c, err := os.OpenFile(filepath.Join(dir, fmt.Sprintf("cmd.%d", r)), os.O_RDWR, 0)
		if err != nil {
			return err
		}
		o, err := os.OpenFile(filepath.Join(dir, fmt.Sprintf("out.%d", r)), os.O_RDWR, 0)
		if err != nil {
			return err
		}
		s.cmd, s.out = append(s.cmd, c), append(s.out, bufio.NewReader(o))
	}
	return nil
}

// time makes all ranks run an operation, and returns the mean of their times in seconds.
func (s *side) time(op string, size, warmup, iters int) (float64, error) {
	for _, c := range s.cmd {
		if _, err := fmt.Fprintf(c, "%s %d %d %d\n", op, size, warmup, iters); err != nil {
			return 0, err
		}
	}
	sum := 0.0
	for r := range s.out {
		got := make(chan error, 1)
		go func() {
			var t float64
			_, err := fmt.Fscanln(s.out[r], &t)
			sum += t
			got <- err
		}()
		select {
		case err := <-got:
			if err != nil {
				return 0, err
			}
		case <-time.After(2 * time.Minute):
			return 0, fmt.Errorf("%s: rank %d did not answer in two minutes (%s, %d bytes):\n%s", s.name, r, op, size, s.log)
		}
	}
	return sum / float64(len(s.out)), nil
}

func (s *side) stop() {
	for _, c := range s.cmd {
		fmt.Fprintln(c, "quit")
	}
	for _, p := range s.procs {
		t := time.AfterFunc(10*time.Second, func() { _ = p.Process.Kill() })
		_ = p.Wait()
		t.Stop()
	}
}

const rankEnv = "ASSAY_BENCH_RANK"

// startAssay starts n ranks of this program, each on a processor of its own if there are enough,
// as mpirun does.
func startAssay(ctx context.Context, dir string, n int, o options) (*side, error) {
	if err := pipes(dir, n); err != nil {
		return nil, err
	}
	id, err := bootstrapID(o)
	if err != nil {
		return nil, err
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	s := &side{name: "assay", log: new(bytes.Buffer)}
	var allowed unix.CPUSet
	if err := unix.SchedGetaffinity(0, &allowed); err != nil {
		return nil, err
	}
	var cpus []int
	for i := range 1024 {
		if allowed.IsSet(i) {
			cpus = append(cpus, i)
		}
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	for r := range n {
		args := []string{self}
		env := append(os.Environ(), rankEnv+"="+dir, fmt.Sprintf("ASSAY_BENCH_JOB=%d %d %d %s", r, n, o.max, hex.EncodeToString(id[:])))
		var pin sysfs.CPUSet // children inherit the set of the thread that starts them
		if o.network {
			args = []string{"ip", "netns", "exec", namespaces[r], self}
			env = append(env, "NCCL_SHM_DISABLE=1", "NCCL_COMM_ID="+addresses[0]+":47111")
		} else if n <= len(cpus) {
			pin.Add(cpus[r])
		}
		c := exec.CommandContext(ctx, args[0], args[1:]...)
		c.Env, c.Stderr = env, s.log
		if err := sysfs.Near(pin, c.Start); err != nil {
			return nil, err
		}
		s.procs = append(s.procs, c)
	}
	return s, s.open(dir, n)
}

func startMPI(ctx context.Context, dir string, n int, o options) (*side, error) {
	if err := pipes(dir, n); err != nil {
		return nil, err
	}
	args := strings.Fields(o.wrap)
	if o.network {
		var err error
		if args, err = acrossNamespaces(dir); err != nil {
			return nil, err
		}
	} else if n > runtime.NumCPU() {
		args = append(args, "--oversubscribe")
	}
	args = append(args, "-np", strconv.Itoa(n), o.mpi, dir, strconv.Itoa(o.max))
	c := exec.CommandContext(ctx, args[0], args[1:]...)
	s := &side{name: "OpenMPI", log: new(bytes.Buffer), procs: []*exec.Cmd{c}}
	c.Stderr, c.Stdout = s.log, s.log
	if err := c.Start(); err != nil {
		return nil, fmt.Errorf("starting the peer: %w (apt-get install openmpi-bin libopenmpi-dev)", err)
	}
	return s, s.open(dir, n)
}

// rankMain runs one of assay's ranks.
func rankMain(dir string) error {
	var r, n, maxBytes int
	var hexID string
	if _, err := fmt.Sscanf(os.Getenv("ASSAY_BENCH_JOB"), "%d %d %d %s", &r, &n, &maxBytes, &hexID); err != nil {
		return fmt.Errorf("ASSAY_BENCH_JOB: %w", err)
	}
	var id coll.UniqueID
	if m, err := hex.Decode(id[:], []byte(hexID)); err != nil || m != len(id) {
		return errors.New("ASSAY_BENCH_JOB: no ID")
	}
	in, err := os.Open(filepath.Join(dir, fmt.Sprintf("cmd.%d", r)))
	if err != nil {
		return err
	}
	out, err := os.OpenFile(filepath.Join(dir, fmt.Sprintf("out.%d", r)), os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	ctx := context.Background()
	comm, err := coll.CommInitRank(ctx, n, id, r, coll.Config{})
	if err != nil {
		return err
	}
	b, err := newBuffers(maxBytes)
	if err != nil {
		return err
	}
	lines := bufio.NewScanner(in)
	for lines.Scan() {
		var op string
		var size, warmup, iters int
		if m, _ := fmt.Sscanf(lines.Text(), "%s %d %d %d", &op, &size, &warmup, &iters); m != 4 {
			break // quit
		}
		t, err := b.time(comm, op, size, warmup, iters)
		if err != nil {
			return err
		}
		fmt.Fprintf(out, "%.9f\n", t.Seconds())
	}
	return comm.Destroy()
}

// buffers are a rank's send and receive buffers.
type buffers struct{ send, recv []byte }

func newBuffers(n int) (b buffers, err error) {
	if b.send, err = coll.Alloc(n); err == nil {
		b.recv, err = coll.Alloc(n)
	}
	for i := range b.send {
		b.send[i], b.recv[i] = 1, 1
	}
	return b, err
}

// time times an operation, given by its name in nccl-tests.
func (b *buffers) time(c *coll.Comm, name string, size, warmup, iters int) (time.Duration, error) {
	what, ok := op.OfTest(name)
	if !ok {
		return 0, fmt.Errorf("there is no operation %s", name)
	}
	o := op.Op{Coll: what, Send: b.send, Recv: b.recv, Count: size / 4 / what.Longest(c.Size()), Type: coll.Float32, Red: coll.Sum}
	if what == op.Broadcast { // in place, as MPI_Bcast
		o.Send = b.recv
	}
	if err := c.Barrier(); err != nil {
		return 0, err
	}
	for range warmup {
		if err := c.Do(&o); err != nil {
			return 0, err
		}
	}
	if err := c.Barrier(); err != nil {
		return 0, err
	}
	start := time.Now()
	for range iters {
		if err := c.Do(&o); err != nil {
			return 0, err
		}
	}
	t := time.Since(start)
	return t, c.Barrier()
}
