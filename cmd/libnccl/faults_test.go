package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/assay-hpc/assay/coll/colltest"
	"github.com/assay-hpc/assay/coll/hang"
)

// faults are what goes wrong at one rank of a job, what a verdict may call it, and what it calls
// the operation: numbered is that of the AllReduce in the middle, before that of the Broadcast
// before it.
var faults = []struct {
	kind      string
	causes    []hang.Cause
	operation string
}{
	{"none", nil, ""},
	{"skip", []hang.Cause{hang.NotCalled, hang.Differs}, numbered}, // the rank's next call takes the place of the one that it has skipped
	{"late", []hang.Cause{hang.NotCalled}, numbered},
	{"never", []hang.Cause{hang.NotCalled}, numbered},
	{"count", []hang.Cause{hang.Differs}, numbered},
	{"type", []hang.Cause{hang.Differs}, numbered},
	{"reduction", []hang.Cause{hang.Differs}, numbered},
	{"order", []hang.Cause{hang.Differs}, numbered},
	{"root", []hang.Cause{hang.Differs}, before},
	{"stop", []hang.Cause{hang.Stopped}, numbered},
	{"kill", []hang.Cause{hang.Dead}, numbered},
	{"block", []hang.Cause{hang.Blocked}, numbered},
	{"graph", []hang.Cause{hang.NotCalled}, "CUDA graph"},
	{"recv", []hang.Cause{hang.Unmatched}, "Recv"},
	{"cross", []hang.Cause{hang.Order}, numbered},
	{"leave", []hang.Cause{hang.Differs}, numbered},
	{"cut", []hang.Cause{hang.Cut}, numbered}, // the last rank's host from the others'
}

const numbered, before = "numbered", "before"

// A faultRun is one job.
type faultRun struct {
	kind          string
	causes        []hang.Cause
	operation     string
	ranks, victim int
	middle        int            // rounds before the one in which it happens
	ahead         int            // operations that each rank calls before it synchronizes
	wire          *colltest.Wire // between the last rank's host and that of the others
}

// command is what runs a rank of the job.
func (r faultRun) command(ctx context.Context, rank int, args ...string) *exec.Cmd {
	if r.wire != nil {
		host := 0
		if rank == r.victim {
			host = 1
		}
		name := [...]string{"host-a", "host-b"}[host]
		args = slices.Concat(r.wire.Prefix(host), []string{"env", "NCCL_HOSTID=" + name, "unshare", "--uts", "sh", "-c", `hostname "$0" && exec "$@"`, name}, args)
	}
	return exec.CommandContext(ctx, args[0], args[1:]...)
}

// cut cuts the network when all ranks are in the middle.
func (r faultRun) cut(ctx context.Context, file string) {
	for rank := range r.ranks {
		for ctx.Err() == nil {
			if _, err := os.Stat(fmt.Sprintf("%s.here.%d", file, rank)); err == nil {
				break
			}
			time.Sleep(time.Millisecond)
		}
	}
	r.wire.Cut()
	_ = os.WriteFile(file+".cut", nil, 0o600)
}

// blamed are the ranks that a verdict is to name. Each side of a cut takes the other for
// what is gone.
func (r faultRun) blamed(v hang.Verdict) (ranks []int) {
	for rank := range r.ranks {
		if (rank == r.victim) != (r.kind == "cut" && v.By == r.victim) {
			ranks = append(ranks, rank)
		}
	}
	return ranks
}

// testFaults: in jobs of several processes something goes wrong, and the verdict names the
// rank, the operation and the reason; no stream gives wrong data; where nothing goes wrong
// there is no verdict. ASSAY_FAULTS says how many jobs there are.
func testFaults(t *testing.T, emulator, dir string) {
	p := program(t, dir, "faults", "-ldl")
	n := len(faults)
	if s := os.Getenv("ASSAY_FAULTS"); s != "" {
		var err error
		if n, err = strconv.Atoi(s); err != nil {
			t.Fatal(err)
		}
	}
	random := rand.New(rand.NewPCG(19, 7))
	var g errgroup.Group
	g.SetLimit(2)
	took := make([]time.Duration, n)
	for i := range n {
		f := faults[i%len(faults)]
		r := faultRun{kind: f.kind, causes: f.causes, operation: f.operation, ranks: 3 + random.IntN(2)}
		r.victim = random.IntN(r.ranks)
		r.middle = 2 + random.IntN(30)
		if i >= len(faults) || i%2 == 1 {
			r.ahead = 1 + random.IntN(200)
		}
		switch r.operation {
		case numbered:
			r.operation = fmt.Sprintf("#%d", r.middle+2)
		case before:
			r.operation = fmt.Sprintf("#%d", r.middle+1)
		}
		if r.kind == "root" && r.victim == 0 { // it is the root in any case
			r.victim = 1
		}
		dir := t.TempDir()
		if r.kind == "cut" {
			r.victim = r.ranks - 1
		}
		g.Go(func() error {
			if r.kind == "cut" {
				t.Run("cut", func(t *testing.T) {
					r.wire = colltest.NewWire(t)
					if _, err := r.run(t.Context(), p, emulator, dir); err != nil {
						t.Errorf("job %d: %v", i, err)
					}
				})
				return nil
			}
			d, err := r.run(t.Context(), p, emulator, dir)
			if err != nil {
				t.Errorf("job %d: %s of rank %d of %d after %d rounds, %d calls ahead: %v", i, r.kind, r.victim, r.ranks, r.middle, r.ahead, err)
			}
			took[i] = d
			return nil
		})
	}
	_ = g.Wait()
	took = slices.DeleteFunc(took, func(d time.Duration) bool { return d == 0 })
	slices.Sort(took)
	t.Logf("%d verdicts; from the fault until there was one: median %v, worst %v", len(took), took[len(took)/2].Round(time.Millisecond), took[len(took)-1].Round(time.Millisecond))
}

// run runs a job, and judges what was said of it. It returns how long after the fault that was.
func (r faultRun) run(ctx context.Context, program, emulator, dir string) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute) // it stands still
	defer cancel()
	runtime.LockOSThread() // whose end would end them, by Pdeathsig
	defer runtime.UnlockOSThread()
	var all []*exec.Cmd
	var out []*bytes.Buffer
	for rank := range r.ranks {
		cmd := r.command(ctx, rank, program, r.kind, strconv.Itoa(r.victim), strconv.Itoa(r.ranks), strconv.Itoa(rank), strconv.Itoa(rank), filepath.Join(dir, "id"))
		cmd.Env = append(os.Environ(), "LD_LIBRARY_PATH="+emulator, fmt.Sprintf("FAKE_DEVICES=%d", r.ranks), "ASSAY_HANG_AFTER=2", "ASSAY_HANG_DIR="+dir, fmt.Sprintf("AHEAD=%d", r.ahead), fmt.Sprintf("MIDDLE=%d", r.middle))
		b := new(bytes.Buffer)
		cmd.Stdout, cmd.Stderr = b, b
		cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} // a test that is cut off leaves none
		if err := cmd.Start(); err != nil {
			return 0, err
		}
		all, out = append(all, cmd), append(out, b)
	}
	if r.wire != nil {
		r.cut(ctx, filepath.Join(dir, "id"))
	}
	ends := r.kind == "none" || r.kind == "late" // by itself
	var v hang.Verdict
	var err error
	if r.kind != "none" {
		v, err = verdict(ctx, dir)
	}
	if err == nil && !ends { // is data read that are wrong?
		time.Sleep(time.Second)
	}
	var text strings.Builder
	for rank, cmd := range all {
		if !ends {
			_ = cmd.Process.Kill()
		}
		if e := cmd.Wait(); ends && e != nil && err == nil {
			err = fmt.Errorf("rank %d: %w", rank, e)
		}
		fmt.Fprintf(&text, "rank %d:\n%s", rank, out[rank])
	}
	files, _ := filepath.Glob(filepath.Join(dir, "assay-hang-*"))
	switch {
	case err != nil:
	case strings.Contains(text.String(), "WRONG DATA"):
		err = fmt.Errorf("wrong data were read")
	case r.kind == "none" && len(files) > 0:
		err = fmt.Errorf("a verdict, and nothing is wrong")
	case r.kind == "none":
		return 0, nil
	case !slices.Contains(r.causes, v.Cause) || !slices.Equal(v.Ranks, r.blamed(v)) || v.Communicator != "dp" && v.Communicator != "tp" || !regexp.MustCompile(r.operation+`\b`).MatchString(v.Text) || !strings.Contains(v.Text, "host "):
		err = fmt.Errorf("the verdict is %+v", v)
	}
	if err != nil {
		return 0, fmt.Errorf("%w\n%s", err, text.String())
	}
	return v.Time.Sub(r.began(out[r.victim].String())), nil
}

// began is when the victim did what is wrong.
func (r faultRun) began(out string) time.Time {
	for line := range strings.Lines(out) {
		if at, ok := strings.CutPrefix(line, "fault at "); ok {
			ns, _ := strconv.ParseInt(strings.TrimSpace(at), 10, 64)
			return time.Unix(0, ns)
		}
	}
	return time.Time{}
}

// verdict waits for the first file that a job writes, of those that name a cause.
func verdict(ctx context.Context, dir string) (v hang.Verdict, err error) {
	for ; ; time.Sleep(20 * time.Millisecond) {
		if ctx.Err() != nil {
			return v, fmt.Errorf("no verdict")
		}
		files, _ := filepath.Glob(filepath.Join(dir, "assay-hang-*.json"))
		for _, f := range files {
			b, err := os.ReadFile(f)
			if err == nil && json.Unmarshal(b, &v) == nil && v.Cause != hang.Elsewhere { // else it is being written, or another one says why
				return v, nil
			}
		}
	}
}
