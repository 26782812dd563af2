package coll

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/assay-hpc/assay/coll/colltest"
	"github.com/assay-hpc/assay/coll/op"
)

func TestMain(m *testing.M) {
	colltest.Main(m, map[string]func(colltest.Self) error{"endless": endless, "sums": sums, "uneven": uneven, "settled": settled, "reuse": reuse, "abortFree": abortFree, "paused": paused, "lacking": lacking})
}

// joinTime is how long ranks wait for one another in the beginning; one that
// is killed before it has joined is missed only then.
const joinTime = 30 * time.Second

// hostVar says which host a process of a job counts as on.
const hostVar = "ASSAY_TEST_HOST"

// join makes the communicator of a job of processes. The argument "socket"
// keeps them off shared memory.
func join(s colltest.Self, timeout, silence time.Duration) (*Comm, error) {
	cfg := testConfig()
	cfg.Knobs.Timeout = timeout
	cfg.Silence = silence
	cfg.Knobs.SHMDisable = strings.Contains(s.Arg, "socket")
	cfg.Knobs.HostID = os.Getenv(hostVar)
	if strings.Contains(s.Arg, "plugin") {
		usePlugin(cfg.Knobs)
	}
	if strings.Contains(s.Arg, "collnet") {
		onCollNet(os.Getenv(pluginVar), 2)(s.Rank, cfg.Knobs)
	}
	if strings.Contains(s.Arg, "ipv6") {
		cfg.Knobs.SocketFamily = "AF_INET6"
	}
	return joinWith(s, cfg)
}

// joinWith makes the communicator of a job of processes.
func joinWith(s colltest.Self, cfg Config) (*Comm, error) {
	ctx, cancel := context.WithTimeout(context.Background(), joinTime)
	defer cancel()
	var id UniqueID
	if s.Rank == 0 {
		var err error
		if id, err = GetUniqueID(cfg); err != nil {
			return nil, err
		}
		if err := s.Publish("id", id[:]); err != nil {
			return nil, err
		}
	} else {
		b, err := s.Await(ctx, "id")
		if err != nil {
			return nil, err
		}
		copy(id[:], b)
	}
	return CommInitRank(ctx, s.Size, id, s.Rank, cfg)
}

// endless calls collectives of all sizes until one fails.
func endless(s colltest.Self) error {
	c, err := join(s, 15*time.Second, 2*time.Second)
	if err != nil {
		return err
	}
	s.Say("joined")
	rng := rand.New(rand.NewPCG(1, 2)) // the same on all ranks
	a, b := make([]float32, 1<<20), make([]float32, 1<<20)
	for {
		n := 1 << rng.IntN(18)
		switch k := op.Collective(rng.IntN(5)); k {
		case op.AllReduce:
			err = c.AllReduce(Of(a), Of(b), n, Float32, Sum)
		case op.Broadcast:
			err = c.Broadcast(Of(a), Of(b), n, Float32, rng.IntN(s.Size))
		case op.Reduce:
			err = c.Reduce(Of(a), Of(b), n, Float32, Max, rng.IntN(s.Size))
		case op.AllGather:
			err = c.AllGather(Of(a), Of(b), n, Float32)
		default:
			err = c.ReduceScatter(Of(a), Of(b), n, Float32, Sum)
		}
		if err != nil {
			_ = c.Abort()
			return fmt.Errorf("code=%d %w", CodeOf(err), err)
		}
	}
}

// survivor wants a typed error that names the rank that was killed.
func survivor(r colltest.Result, victim int) error {
	errs := r.Errors()
	if len(errs) == 0 {
		return fmt.Errorf("no error; it said %q", r.Stdout)
	}
	for _, code := range []Code{RemoteError, Timeout} {
		if strings.HasPrefix(errs[0], "code="+strconv.Itoa(int(code))) {
			if !strings.Contains(errs[0], fmt.Sprintf("rank %d is lost", victim)) {
				return fmt.Errorf("the error does not name rank %d: %s", victim, errs[0])
			}
			return nil
		}
	}
	// While joining there is no communicator yet, and the error says so; before that
	// rank 0 may not have come to make an ID.
	if strings.Contains(errs[0], "CommInitRank: ") || strings.Contains(errs[0], `waiting for "id" to be published`) {
		return nil
	}
	return fmt.Errorf("error of another kind: %s", errs[0])
}

// killRounds returns how often a test of faults is repeated: n times, a third of that in short tests.
func killRounds(n int) int {
	if k, err := strconv.Atoi(os.Getenv("ASSAY_TEST_KILLS")); err == nil {
		return k
	}
	if testing.Short() {
		return n / 3
	}
	return n
}

// Whichever rank is killed at whatever moment, all others return an error that names it: soon, or if
// it had not come yet, when their patience for joining ends. ASSAY_TEST_KILLS=200 is the long form.
func TestKill(t *testing.T) {
	rounds := killRounds(6)
	for i, how := range []struct{ arg, ready string }{{"shm", ""}, {"socket", ""}, {"shm", "joined"}, {"socket", "joined"}} {
		t.Run(strings.TrimSpace(how.arg+" "+how.ready), func(t *testing.T) {
			slowest := colltest.Chaos{
				Job:    colltest.JobOptions{Program: "endless", Ranks: 4, Arg: how.arg},
				Rounds: (rounds + i) / 4, Ready: how.ready, Moment: 400 * time.Millisecond, Deadline: 5 * time.Minute, Seed: uint64(i + 1),
				Survivor: survivor,
			}.Run(t)
			var worst time.Duration
			for _, d := range slowest {
				worst = max(worst, d)
			}
			t.Logf("%d kills; the last survivor returned at most %v after", len(slowest), worst)
		})
	}
}

// sums does some reductions, checks them, and says so.
func sums(s colltest.Self) error {
	c, err := join(s, 60*time.Second, 30*time.Second)
	if err != nil {
		return err
	}
	counts := []int{1, 1000, 100_000, 1_000_000}
	if strings.Contains(s.Arg, "small") {
		counts = counts[:3]
	}
	for _, count := range counts {
		for range 3 {
			if err := sumOnce(c, count); err != nil {
				return err
			}
		}
	}
	s.Say("sums are right")
	return c.Destroy()
}

// Ranks in two network namespaces, over IPv4 and IPv6.
func TestNamespaces(t *testing.T) {
	for _, family := range []string{"ipv4", "ipv6"} {
		t.Run(family, func(t *testing.T) {
			n := colltest.Veth(t)
			job := colltest.Start(t, colltest.JobOptions{
				Program: "sums", Ranks: 4, Arg: "socket " + family,
				Prefix: func(r int) []string { return n.Prefix(r % 2) },
			})
			for _, r := range job.Wait(5 * time.Minute) {
				if err := r.Clean(); err != nil {
					t.Error(err)
				}
			}
		})
	}
}

// A network that loses one packet in a hundred and takes 50 ms changes no
// result.
func TestBadNetwork(t *testing.T) {
	if testing.Short() {
		t.Skip("takes half a minute")
	}
	w := colltest.NewWire(t)
	w.Loss(0.01)
	w.Delay(50 * time.Millisecond)
	job := colltest.Start(t, colltest.JobOptions{
		Program: "sums", Ranks: 2, Arg: "socket small",
		Prefix: func(r int) []string { return w.Prefix(r % 2) },
	})
	for _, r := range job.Wait(3 * time.Minute) {
		if err := r.Clean(); err != nil {
			t.Error(err)
		}
	}
}

// A peer behind a network that swallows everything is noticed.
func TestHalfOpen(t *testing.T) {
	w := colltest.NewWire(t)
	job := colltest.Start(t, colltest.JobOptions{
		Program: "endless", Ranks: 2, Arg: "socket",
		Prefix: func(r int) []string { return w.Prefix(r % 2) },
	})
	job.Await(t, "joined", 5*time.Minute)
	time.Sleep(100 * time.Millisecond)
	cut := time.Now()
	w.Cut()
	for _, r := range job.Wait(5 * time.Minute) {
		if err := survivor(r, 1-r.Rank); r.TimedOut || err != nil {
			t.Errorf("%v: %v", err, r)
		}
		t.Logf("rank %d noticed after %v: %v", r.Rank, r.End.Sub(cut).Round(time.Millisecond), r.Errors())
	}
}

// TestApart: ranks of one host that cannot share memory use the network: in other namespaces, or of
// another user.
func TestApart(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("other namespaces and users need root")
	}
	for name, prefix := range map[string][]string{
		"pid namespace":  {"unshare", "--pid", "--fork", "--kill-child"},
		"user namespace": {"unshare", "--user"},
		"user":           {"setpriv", "--reuid=65534", "--clear-groups"},
		"/dev/shm":       {"unshare", "--mount", "sh", "-c", `mount -t tmpfs none /dev/shm && exec "$@"`, "sh"},
		"no /proc":       {"unshare", "--mount", "sh", "-c", `mount -t tmpfs none /proc && exec "$@"`, "sh"},
		"container":      {"unshare", "--user", "--map-root-user", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "--ipc", "--uts", "--cgroup"},
	} {
		t.Run(name, func(t *testing.T) {
			self, err := os.Executable()
			if err != nil {
				t.Fatal(err)
			}
			if out, err := exec.Command(prefix[0], append(prefix[1:], self, "-test.list=^$")...).CombinedOutput(); err != nil {
				t.Skipf("%v: %v: %s", prefix, err, out)
			}
			job := colltest.Start(t, colltest.JobOptions{Program: "sums", Ranks: 3, Arg: "small", Prefix: func(r int) []string {
				if r != 1 {
					return nil
				}
				return prefix
			}})
			for _, r := range job.Wait(5 * time.Minute) {
				if err := r.Clean(); err != nil {
					t.Error(err)
				}
			}
		})
	}
}

// paused does sums until it is told to end.
func paused(s colltest.Self) error {
	c, err := join(s, time.Minute, 500*time.Millisecond)
	if err != nil {
		return err
	}
	s.Say("joined")
	for end := time.Now().Add(4 * time.Second); ; {
		var more [1]int32
		if s.Rank == 0 && time.Now().Before(end) {
			more[0] = 1
		}
		if err := c.Broadcast(Of(more[:]), Of(more[:]), 1, Int32, 0); err != nil {
			return err
		}
		if err := sumOnce(c, 1000); err != nil || more[0] == 0 {
			return errors.Join(err, c.Destroy())
		}
	}
}

// TestPaused: a process that is stopped for longer than its host may be silent continues.
func TestPaused(t *testing.T) {
	for _, arg := range []string{"shm", "socket"} {
		t.Run(arg, func(t *testing.T) {
			job := colltest.Start(t, colltest.JobOptions{Program: "paused", Ranks: 3, Arg: arg})
			job.Await(t, "joined", 5*time.Minute)
			job.Ranks[1].Signal(syscall.SIGSTOP)
			time.Sleep(2 * time.Second)
			job.Ranks[1].Signal(syscall.SIGCONT)
			for _, r := range job.Wait(5 * time.Minute) {
				if err := r.Clean(); err != nil {
					t.Error(err)
				}
			}
		})
	}
}
