package perf

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Streams are the outputs of a run, and the environment that it reads. Only the process with rank
// 0 writes to Out; all processes write errors to Err.
type Streams struct {
	Out, Err io.Writer
	Terminal bool // Err is a terminal: show progress there
	Environ  []string
}

// Run runs the benchmark on the world's ranks, each in a goroutine, and returns when all have
// ended. The error is a *Failure or a *UsageError; wrong data is not an error but a Status. When
// ctx ends the world is aborted.
func Run(ctx context.Context, cfg Config, world World, std Streams) (*Result, error) {
	return newSession(cfg, world, std, thisHost()).run(ctx)
}

// A clock belongs to one rank. Only the time between two readings has a meaning.
type clock func() time.Duration

// A host is what a run uses of the machine.
type host struct {
	name     string
	pid      int
	root     fs.FS
	now      func() time.Time
	newClock func() clock
}

func thisHost() host {
	name, err := os.Hostname()
	if err != nil {
		name = "localhost"
	}
	name, _, _ = strings.Cut(name, ".")
	return host{name: name, pid: os.Getpid(), root: os.DirFS("/"), now: time.Now, newClock: func() clock {
		start := time.Now()
		return func() time.Duration { return time.Since(start) }
	}}
}

// id identifies the host as nccl-tests does: by name and boot.
func (h host) id() uint64 {
	f := fnv.New64a()
	boot, _ := fs.ReadFile(h.root, "proc/sys/kernel/random/boot_id")
	fmt.Fprintf(f, "%s\n%s", h.name, boot)
	return f.Sum64()
}

// A session is the state that a process's ranks share.
type session struct {
	cfg    Config
	c      collective
	world  World
	std    Streams
	host   host
	set    settings
	source source
	common func() introduction // see introduction

	workers []*worker
	report  *reporter // nil except in the process with rank 0
	once    sync.Once
	cause   error // why the run was stopped
	late    atomic.Bool
}

func newSession(cfg Config, world World, std Streams, h host) *session {
	s := &session{cfg: cfg, world: world, std: std, host: h}
	s.common = sync.OnceValue(s.introduction)
	return s
}

func (r *session) run(ctx context.Context) (*Result, error) {
	if err := r.prepare(); err != nil {
		return nil, err
	}
	defer context.AfterFunc(ctx, func() { r.stop(context.Cause(ctx)) })()
	done := make(chan struct{})
	var watchdog sync.WaitGroup
	if r.cfg.Timeout > 0 {
		watchdog.Go(func() { r.watchdog(done) })
	}
	var ranks sync.WaitGroup
	for _, w := range r.workers {
		ranks.Go(func() { r.stop(w.run(ctx)) })
	}
	ranks.Wait()
	close(done)
	watchdog.Wait()
	return r.finish()
}

// prepare checks what Parse could not check.
func (r *session) prepare() error {
	var ok bool
	var err error
	if r.c, ok = findCollective(r.cfg.Collective); !ok {
		return &UsageError{Text: fmt.Sprintf("there is no collective %q: %s", r.cfg.Collective, strings.Join(Collectives(), ", ")), Status: int(InvalidUsage)}
	}
	if r.set, err = readSettings(r.std.Environ); err != nil {
		return &UsageError{Text: err.Error(), Status: int(InvalidUsage)}
	}
	if len(r.world.Comms) == 0 {
		return &Failure{Status: InternalError, Rank: -1, Where: where(1), Err: errors.New("the world has no ranks")}
	}
	if r.set.split.op != 0 && r.world.Split == nil {
		return &Failure{Status: NotImplemented, Rank: -1, Where: where(1), Err: errors.New("NCCL_TESTS_SPLIT: the engine cannot split communicators")}
	}
	if err := r.comparable(); err != nil {
		return err
	}
	for i, c := range r.world.Comms {
		w := &worker{session: r, i: i, world: c, comm: c, now: r.host.newClock(), medium: medium{lane: laneOf(c)}}
		if c.Rank() == 0 {
			r.report = newReporter(r)
			w.report = r.report
		}
		r.workers = append(r.workers, w)
	}
	return nil
}

// stop ends the run. The first error that it is called with is the cause.
func (r *session) stop(err error) {
	if err == nil {
		return
	}
	r.once.Do(func() {
		r.cause = err
		if r.world.Abort != nil {
			r.world.Abort(err)
		}
	})
}

// finish writes the footer, and returns an error with the status to exit with.
func (r *session) finish() (*Result, error) {
	r.once.Do(func() {}) // later errors do not count
	res := &Result{}
	var err error
	if r.report != nil {
		res, err = r.report.finish(r.cause)
	}
	if r.cause != nil {
		err = r.cause
	}
	if err == nil {
		return res, nil
	}
	f, ok := errors.AsType[*Failure](err)
	if !ok {
		f = &Failure{Status: InternalError, Rank: -1, Where: where(1), Err: err}
	}
	if r.late.Load() {
		f.Status = TimedOut
	}
	res.Status = f.Status
	return res, f
}

// watchdog stops the run when a rank completes no operation for too long.
func (r *session) watchdog(done <-chan struct{}) {
	limit := time.Duration(r.cfg.Timeout) * time.Second
	tick := time.NewTicker(limit / 8)
	defer tick.Stop()
	seen := make([]uint64, len(r.workers))
	idle := make([]int, len(r.workers)) // ticks without progress
	for {
		select {
		case <-done:
			return
		case <-tick.C:
		}
		for i, w := range r.workers {
			idle[i]++
			if n := w.pulse.ops.Load(); n != seen[i] || !w.pulse.busy.Load() {
				seen[i], idle[i] = n, 0
			}
			if idle[i] > 8 {
				r.late.Store(true)
				r.stop(&Failure{Status: TimedOut, Rank: w.world.Rank(), Where: where(1), Err: fmt.Errorf("no operation has completed within %v", limit)})
				return
			}
		}
	}
}

// A pulse shows the watchdog that a rank is alive.
type pulse struct {
	ops  atomic.Uint64
	busy atomic.Bool
	_    [48]byte // padding: keeps the pulses of ranks apart
}

// where returns file:line of the skip-th caller, in this package.
func where(skip int) string {
	_, file, line, ok := runtime.Caller(skip)
	if !ok {
		return "?:0"
	}
	return fmt.Sprintf("%s:%d", filepath.Base(file), line)
}
