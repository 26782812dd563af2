package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/assay-hpc/assay/harness/fabric"
	"github.com/assay-hpc/assay/internal/certificate"
	"github.com/assay-hpc/assay/internal/certificate/certificatetest"
	"github.com/assay-hpc/assay/internal/clustertest"
	"github.com/assay-hpc/assay/internal/exit"
	"github.com/assay-hpc/assay/internal/result"
)

// firstSuite has steps of each kind: machines by themselves, and all together.
const firstSuite = `version: 1
title: machines are fit, and work together
limit: 2m
checks:
  - run: health
    with: {window: 0s, only: [node/hugepages]}
  - run: coll
    id: coll/host
    with: {operations: [all_reduce, alltoall], over: nodes, device: cpu, ranks: 1, max: 64K, factor: 8, min_time: 20ms}
  - run: hunt
    with: {tool: tcp, duration: 30ms, args: [--max-rounds, "3"]}
`

// A firstJob is machines that are processes of this one, which find one another over
// loopback. Each writes to a directory of its own.
type firstJob struct {
	t     *testing.T
	dir   string
	ranks []*clusterRank
	clusterJob
}

// startFirst starts n machines that certify, or what args says.
func startFirst(ctx context.Context, t *testing.T, n int, args func(rank int) []string) *firstJob {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	j := &firstJob{t: t, dir: t.TempDir()}
	j.start = time.Now()
	suite := filepath.Join(j.dir, "fabric.yaml")
	if err := os.WriteFile(suite, []byte(firstSuite), 0o644); err != nil {
		t.Fatal(err)
	}
	if args == nil {
		args = func(rank int) []string {
			return []string{"certify", "--suite", suite, "--out", j.out(rank) + "/", "--wait", "30s", "--silence", "3s"}
		}
	}
	port := freePort(t)
	for i := range n {
		r := &clusterRank{done: make(chan struct{})}
		r.cmd = exec.CommandContext(ctx, self, args(i)...)
		r.cmd.Args[0] = "harness" // see TestMain
		r.cmd.Env = append(os.Environ(), fmt.Sprintf("RANK=%d", i), fmt.Sprintf("WORLD_SIZE=%d", n), "LOCAL_RANK=0", "LOCAL_WORLD_SIZE=1", "MASTER_ADDR=127.0.0.1",
			"MASTER_PORT="+port, "TORCHELASTIC_RUN_ID="+j.dir, "ASSAY_JOB_SECRET=s3cret", "NCCL_SOCKET_IFNAME=lo", fmt.Sprintf("NODE_NAME=node%d", i), "CUDA_VISIBLE_DEVICES=")
		r.cmd.Stdout, r.cmd.Stderr = &r.stdout, &r.stderr
		r.cmd.WaitDelay = time.Second
		if err := r.cmd.Start(); err != nil {
			t.Fatal(err)
		}
		go func() {
			r.err = r.cmd.Wait()
			r.wall = time.Since(j.start)
			close(r.done)
		}()
		j.ranks = append(j.ranks, r)
	}
	j.clusterJob.ranks = j.ranks
	return j
}

func (j *firstJob) out(rank int) string { return filepath.Join(j.dir, fmt.Sprintf("out%d", rank)) }

// certificate returns what a machine wrote; nil: nothing.
func (j *firstJob) certificate(rank int) *certificate.Statement {
	j.t.Helper()
	doc, err := os.ReadFile(filepath.Join(j.out(rank), "certificate.json"))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err == nil {
		err = certificatetest.Validate(doc)
	}
	if err != nil {
		j.t.Fatal(err)
	}
	st, err := certificate.Parse(doc)
	if err != nil {
		j.t.Fatal(err)
	}
	return st
}

func statusOf(err error) int {
	var e *exec.ExitError
	if errors.As(err, &e) {
		return e.ExitCode()
	}
	return map[bool]int{true: 0, false: -2}[err == nil]
}

// judge returns how the machines without the first one ended, or what is wrong with that.
// met is whether all had met when it was lost, written whether it had written when they ended.
func (j *firstJob) judge(met, written bool) (end string, err error) {
	var wrote []int
	for rank := 1; rank < len(j.ranks); rank++ {
		if j.certificate(rank) != nil {
			wrote = append(wrote, rank)
		}
	}
	statuses := func(want func(rank int) int) error {
		for rank := 1; rank < len(j.ranks); rank++ {
			if got := statusOf(j.ranks[rank].err); got != want(rank) {
				return fmt.Errorf("rank %d ended with %d; want %d", rank, got, want(rank))
			}
		}
		return nil
	}
	switch {
	case len(wrote) == 0 && written:
		return "rank 0 had written", statuses(func(int) int { return exit.Pass })
	case len(wrote) == 0 && !met:
		for rank := 1; rank < len(j.ranks); rank++ {
			if text := j.ranks[rank].stderr.String(); !strings.Contains(text, "rank 0") {
				return "", fmt.Errorf("rank %d does not name rank 0: %q", rank, text)
			}
		}
		return "had not met", statuses(func(int) int { return exit.NotDone })
	case len(wrote) != 1 || wrote[0] != 1:
		return "", fmt.Errorf("ranks %v wrote a certificate; want rank 1 alone", wrote)
	}
	if err := statuses(func(rank int) int { return map[bool]int{true: exit.NotDone}[rank == 1] }); err != nil {
		return "", err
	}
	st := j.certificate(1)
	if st.Predicate.Verdict != result.Error {
		return "", fmt.Errorf("the verdict is %s", st.Predicate.Verdict)
	}
	got := map[string]result.Result{}
	for _, r := range st.Predicate.Results {
		got[r.ID] = r
	}
	if r := got["node/node0"]; r.Verdict != result.Error || !strings.Contains(r.Reason, "rank 1 took over") {
		return "", fmt.Errorf("of node0 it says %s, %q", r.Verdict, r.Reason)
	}
	for _, id := range []string{"node/node1", "node/node2", "node/node3", "coll/host/all_reduce", "coll/host/alltoall"} {
		if got[id].Verdict != result.Pass {
			return "", fmt.Errorf("%s: %s, %q", id, got[id].Verdict, got[id].Reason)
		}
	}
	if v := got["hunt"].Verdict; v != result.Pass && v != result.Warn && v != result.Fail { // 3 rounds of a busy machine
		return "", fmt.Errorf("hunt: %s, %q", v, got["hunt"].Reason)
	}
	if len(st.Predicate.Machines) != 3 || !strings.Contains(j.ranks[1].stderr.String(), "node0 is lost: ") {
		return "", fmt.Errorf("%d machines inside; it printed %q", len(st.Predicate.Machines), &j.ranks[1].stderr)
	}
	return "rank 1 took over", nil
}

// TestFirstLost kills or stops the first of four machines at a random moment. The others
// end within a minute, and the certificate names it; or all say that they had not met; or it
// had written everything. Each fourth trial's moment is while it writes. ASSAY_FABRIC_TRIALS
// says how often, ASSAY_FABRIC_SEED the first seed.
func TestFirstLost(t *testing.T) {
	count := int(numberOf(t, "ASSAY_FABRIC_TRIALS", 1))
	if count == 0 {
		t.Skip("ASSAY_FABRIC_TRIALS=0")
	}
	seed := numberOf(t, "ASSAY_FABRIC_SEED", uint64(time.Now().UnixNano()))
	ends, longest := map[string]int{}, time.Duration(0)
	for i := range count {
		for _, signal := range []syscall.Signal{syscall.SIGKILL, syscall.SIGSTOP} {
			rng := rand.New(rand.NewPCG(seed+uint64(i), uint64(signal)))
			moment := 50*time.Millisecond + time.Duration(rng.Int64N(int64(4*time.Second)))
			var when func(j *firstJob) bool
			switch {
			case i%4 == 3:
				when = (*firstJob).writing
				moment /= 400
			case count == 1:
				when = (*firstJob).met
				moment /= 8
			}
			end, after, err := firstLost(t, signal, moment, when)
			if longest = max(longest, after); after > time.Minute && err == nil {
				err = errors.New("too late")
			}
			ends[fmt.Sprintf("%v: %s", signal, end)]++
			t.Logf("%d: %v after %v: %s, %v later", i+1, signal, moment, end, after.Round(10*time.Millisecond))
			if err != nil {
				t.Errorf("ASSAY_FABRIC_SEED=%d: %v after %v: %v", seed+uint64(i), signal, moment, err)
			}
		}
	}
	t.Logf("%d trials of each, longest %v: %v", count, longest.Round(10*time.Millisecond), ends)
}

// met reports whether the first machine is at its checks.
func (j *firstJob) met() bool {
	_, err := os.Stat(filepath.Join(j.out(0), ".certify.partial"))
	return err == nil
}

// writing reports whether the first machine has all certificates, and began to write them.
func (j *firstJob) writing() bool {
	_, err := os.Stat(filepath.Join(j.out(0), "nodes"))
	return err == nil
}

// firstLost makes one trial. It returns how it ended, and how long after the signal. The
// moment counts from the start, or from when something is true.
func firstLost(t *testing.T, signal syscall.Signal, moment time.Duration, when func(*firstJob) bool) (end string, after time.Duration, err error) {
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	defer cancel()
	j := startFirst(ctx, t, 4, nil)
	first := j.ranks[0]
	for when != nil && !when(j) && ctx.Err() == nil {
		time.Sleep(time.Millisecond)
	}
	time.Sleep(moment)
	if err := first.cmd.Process.Signal(signal); errors.Is(err, os.ErrProcessDone) {
		j.wait(-1)
		return "rank 0 had ended", 0, nil
	} else if err != nil {
		return "", 0, err
	}
	begun, all := time.Now(), j.met() || j.writing()
	j.wait(0)
	after = time.Since(begun)
	if ctx.Err() != nil {
		return "", after, fmt.Errorf("not ended within minutes\n%s", j.String())
	}
	before := j.certificate(0)
	if signal == syscall.SIGSTOP {
		if err := first.cmd.Process.Signal(syscall.SIGCONT); err != nil && !errors.Is(err, os.ErrProcessDone) {
			return "", after, err
		}
		<-first.done
		// While it wrote, it had all certificates.
		if st := j.certificate(0); before == nil && all && st != nil && len(st.Predicate.Machines) < len(j.ranks) {
			return "", after, fmt.Errorf("rank 0 was stopped, and wrote a certificate without the others\n%s", j.String())
		}
		if before == nil && !strings.Contains(first.stderr.String(), "was stopped for more than 3s") && all {
			return "", after, fmt.Errorf("rank 0 does not say that it was stopped\n%s", j.String())
		}
	}
	<-first.done
	if end, err = j.judge(all, before != nil); err != nil {
		err = fmt.Errorf("%w\n%s", err, j.String())
	}
	return end, after, err
}

// TestFirstsLost: of two machines the first one is killed, and of four the first two, one after
// the other or at once.
func TestFirstsLost(t *testing.T) {
	for _, tt := range []struct {
		machines, lost int
		between        time.Duration
	}{{2, 1, 0}, {4, 2, 0}, {4, 2, time.Second}} {
		t.Run(fmt.Sprint(tt), func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
			defer cancel()
			j := startFirst(ctx, t, tt.machines, nil)
			for !j.met() && ctx.Err() == nil {
				time.Sleep(time.Millisecond)
			}
			time.Sleep(100 * time.Millisecond) // until all know that
			for rank := range tt.lost {
				if err := j.ranks[rank].cmd.Process.Kill(); err != nil {
					t.Fatal(err)
				}
				time.Sleep(tt.between)
			}
			begun := time.Now()
			j.wait(-1)
			t.Logf("%v later", time.Since(begun))
			st := j.certificate(tt.lost)
			if st == nil || statusOf(j.ranks[tt.lost].err) != exit.NotDone {
				t.Fatalf("rank %d did not take over\n%s", tt.lost, j.String())
			}
			got := map[string]result.Verdict{}
			for _, r := range st.Predicate.Results {
				got[r.ID] = r.Verdict
			}
			for rank := range tt.machines {
				want := result.Pass
				if rank < tt.lost {
					want = result.Error
				}
				if v := got[fmt.Sprintf("node/node%d", rank)]; v != want {
					t.Errorf("node%d: %s; want %s", rank, v, want)
				}
			}
			if v := got["coll/host/alltoall"]; v != map[int]result.Verdict{1: result.Error, 2: result.Pass}[tt.lost] {
				t.Errorf("together: %s", v) // one machine that is left makes nothing together
			}
			if t.Failed() {
				t.Log(j.String())
			}
		})
	}
}

// TestFirstLostHunt: a hunt whose first machine is killed is made by the others, and its
// report names that machine.
func TestFirstLostHunt(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	defer cancel()
	j := startFirst(ctx, t, 4, func(int) []string {
		return []string{"hunt", "--tool", "tcp", "--duration", "1s", "--max-rounds", "4", "--format", "json", "--wait", "30s", "--silence", "3s"}
	})
	time.Sleep(5 * time.Second) // of 12
	if err := j.ranks[0].cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	j.wait(-1)
	var r fabric.HuntReport
	if err := json.Unmarshal(j.ranks[1].stdout.Bytes(), &r); err != nil {
		t.Fatalf("%v\n%s", err, j.String())
	}
	if len(r.Lost) != 1 || r.Lost[0].Machine != "node0" || !strings.Contains(r.Lost[0].Reason, "rank 1 took over") || statusOf(j.ranks[1].err) == exit.Pass || r.Rounds == 0 {
		t.Errorf("%+v\n%s", r.Lost, j.String())
	}
	for _, rank := range []int{2, 3} {
		if j.ranks[rank].err != nil || j.ranks[rank].stdout.Len() > 0 {
			t.Errorf("rank %d\n%s", rank, j.String())
		}
	}
}

// TestFabricFirst kills, freezes or cuts off the first host of a cluster at a random moment,
// ASSAY_FABRIC_TRIALS times each. All hosts write to one directory.
func TestFabricFirst(t *testing.T) {
	count := int(numberOf(t, "ASSAY_FABRIC_TRIALS", 0))
	if count == 0 {
		t.Skip("ASSAY_FABRIC_TRIALS says how many: make test ONLY=fabric TRIALS=50")
	}
	c := newLabour(t, clustertest.Options{})
	c.file(t, "first.yaml", firstSuite)
	seed := numberOf(t, "ASSAY_FABRIC_SEED", uint64(time.Now().UnixNano()))
	host := c.Hosts[0]
	faults := []struct {
		name string
		do   func() error
	}{{"killed", func() error { host.Kill(); return nil }}, {"frozen", host.Freeze}, {"cut", host.Cut}}
	ends, longest := map[string]int{}, map[string]time.Duration{}
	for i := range count {
		for k, fault := range faults {
			rng := rand.New(rand.NewPCG(seed+uint64(i), uint64(k)))
			moment := 50*time.Millisecond + time.Duration(rng.Int64N(int64(6*time.Second)))
			dir := fmt.Sprintf("first-%d-%s", i, fault.name)
			ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
			j := c.job(ctx, dir, nil, "certify", "--suite", "/shared/first.yaml", "--out", "/shared/"+dir+"/", "--wait", "20s", "--silence", "3s")
			time.Sleep(moment)
			in := filepath.Join(c.Shared, dir)
			_, notMet := os.Stat(filepath.Join(in, ".certify.partial"))
			_, notWritten := os.Stat(filepath.Join(in, "certificate.json"))
			if err := fault.do(); err != nil {
				t.Fatal(err)
			}
			begun := time.Now()
			j.wait(0)
			after := time.Since(begun)
			host.Kill() // a frozen one never ends
			j.wait(-1)
			if ctx.Err() != nil {
				t.Fatalf("%s after %v: the run did not end within minutes\n%s", fault.name, moment, j)
			}
			cancel()
			host.Boot()
			longest[fault.name] = max(longest[fault.name], after)
			_, none := os.Stat(filepath.Join(in, "certificate.json"))
			var end string
			switch {
			case none != nil && notMet != nil:
				end = "had not met"
				for _, r := range j.ranks[1:] {
					if statusOf(r.err) != exit.NotDone || !strings.Contains(r.stderr.String(), "rank 0") {
						t.Errorf("%s after %v\n%s", fault.name, moment, j)
					}
				}
			case none != nil:
				t.Errorf("%s after %v: there is no certificate\n%s", fault.name, moment, j)
				end = "wrong"
			case notWritten == nil:
				end = "rank 0 had written"
			default:
				if st := c.certificate(t, dir+"/certificate.json"); st.Predicate.Verdict == result.Pass && statusOf(j.ranks[1].err) == exit.Pass {
					end = "rank 0 had written" // between looking and the fault
					break
				}
				end = "rank 1 took over"
				c.named(t, dir, 0, j)
				if statusOf(j.ranks[1].err) != exit.NotDone && statusOf(j.ranks[1].err) != exit.Fail {
					t.Errorf("%s after %v: rank 1 ended with %v\n%s", fault.name, moment, j.ranks[1].err, j)
				}
			}
			ends[fault.name+": "+end]++
			t.Logf("%d: %s after %v: %s, %v later", i+1, fault.name, moment.Round(time.Millisecond), end, after.Round(10*time.Millisecond))
			if t.Failed() {
				t.Fatalf("ASSAY_FABRIC_SEED=%d repeats it", seed+uint64(i))
			}
		}
	}
	t.Logf("%d trials of each: %v; longest %v", count, ends, longest)
}
