package health

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/assay-hpc/assay/harness/nvml"
	"github.com/assay-hpc/assay/harness/sysfs"
)

// A State is all that was read of a node.
type State struct {
	Driver sysfs.Fact[nvml.Driver]
	GPUs   []gpuState // one for each that the driver has, by index
	Node   nodeState
	Window time.Duration // between the two readings of counters; 0 for one reading
	Time   time.Time
	Took   time.Duration
}

// A gpuState is a GPU, or why nothing is known of it.
type gpuState struct {
	nvml.GPU
	Err           error
	Before, After sysfs.Fact[map[string]uint64]
}

// ReadOptions say how Read reads.
type ReadOptions struct {
	// Timeout is how long each source may take: the driver as a whole, each
	// GPU, the kernel's files. What took longer is errNoAnswer. Its goroutine
	// stays behind, since a call of a library cannot be ended.
	Timeout time.Duration
	// Window is how long the counters are watched.
	Window time.Duration
	Now    time.Time
	Getenv func(string) string
}

// Read reads a node. GPUs and files are read at the same time.
func Read(ctx context.Context, src Source, f sysfs.FS, opt ReadOptions) *State {
	started := time.Now()
	s := &State{Window: opt.Window, Time: opt.Now}
	var all sync.WaitGroup
	all.Go(func() {
		s.Node.Devices = within(ctx, opt.Timeout, func(func(string)) (deviceState, error) { return readDevices(f), nil })
	})
	all.Go(func() {
		s.Node.System = within(ctx, opt.Timeout, func(func(string)) (systemState, error) { return readSystem(f, opt.Getenv), nil })
		s.Node.System.Value.Later = sysfs.Unknown[[]sysfs.Process](errUnwatched)
		if opt.Window == 0 || s.Node.System.Err != nil {
			return
		}
		select {
		case <-time.After(opt.Window):
		case <-ctx.Done():
			return
		}
		s.Node.System.Value.Later = within(ctx, opt.Timeout, func(func(string)) ([]sysfs.Process, error) { return f.Processes() })
	})
	all.Go(func() {
		s.Node.Log = within(ctx, opt.Timeout, func(func(string)) (logState, error) { return readLog(f, opt.Now) })
	})
	all.Go(func() { s.readGPUs(ctx, src, opt) })
	all.Wait()
	s.Took = time.Since(started)
	return s
}

// errUnwatched says that nothing was read a second time.
var errUnwatched = errors.New("it was read once")

func (s *State) readGPUs(ctx context.Context, src Source, opt ReadOptions) {
	s.Driver = within(ctx, opt.Timeout, func(asking func(string)) (nvml.Driver, error) {
		asking("NVML's start")
		return src.Driver()
	})
	if s.Driver.Err != nil {
		return
	}
	s.GPUs = make([]gpuState, s.Driver.Value.GPUs)
	var all sync.WaitGroup
	for i := range s.GPUs {
		all.Go(func() { s.GPUs[i] = readGPU(ctx, src, i, opt) })
	}
	all.Wait()
}

func readGPU(ctx context.Context, src Source, index int, opt ReadOptions) gpuState {
	counters := func() sysfs.Fact[map[string]uint64] {
		return within(ctx, opt.Timeout, func(asking func(string)) (map[string]uint64, error) {
			asking("error counters")
			return src.Counters(index)
		})
	}
	g := gpuState{GPU: nvml.GPU{Index: index}, Before: counters()}
	if errors.Is(g.Before.Err, errNoAnswer) {
		g.Err = g.Before.Err // what hangs once would take as long again
		return g
	}
	began := time.Now()
	gpu := within(ctx, opt.Timeout, func(asking func(string)) (nvml.GPU, error) { return src.GPU(index, asking) })
	g.GPU, g.Err = gpu.Value, gpu.Err
	g.Index = index
	if opt.Window == 0 || g.Err != nil || g.Before.Err != nil {
		g.After = g.Before
		return g
	}
	select {
	case <-time.After(opt.Window - time.Since(began)):
	case <-ctx.Done():
	}
	g.After = counters()
	return g
}

// within gives a function so much time, in a goroutine of its own: a call of
// the driver may never return. The error says what it was asked for last.
func within[T any](ctx context.Context, timeout time.Duration, do func(asking func(string)) (T, error)) sysfs.Fact[T] {
	var last atomic.Value
	last.Store("")
	done := make(chan sysfs.Fact[T], 1)
	go func() { done <- fact(do(func(what string) { last.Store(what) })) }()
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	select {
	case f := <-done:
		return f
	case <-ctx.Done():
	}
	if what := last.Load().(string); what != "" {
		return sysfs.Unknown[T](fmt.Errorf("%w (%v), asked for %s", errNoAnswer, timeout, what))
	}
	return sysfs.Unknown[T](fmt.Errorf("%w (%v)", errNoAnswer, timeout))
}

// Growth is how much a counter has grown while it was watched. ok is false
// when it was not watched, or the GPU does not have it.
func (g *gpuState) Growth(name string) (grown uint64, ok bool) {
	before, had := g.Before.Value[name]
	after, has := g.After.Value[name]
	if !had || !has || after < before {
		return 0, false
	}
	return after - before, true
}

// Host is the machine's name.
func (s *State) Host() string { return s.Node.System.Value.Host }
