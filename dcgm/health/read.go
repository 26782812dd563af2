package health

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/assay-hpc/assay/internal/host/nvml"
	"github.com/assay-hpc/assay/internal/host/sysfs"
)

// A State contains everything that was read from a node.
type State struct {
	Driver sysfs.Fact[nvml.Driver]
	GPUs   []gpuState // one per GPU of the driver, by index
	Node   nodeState
	Window time.Duration // time between the two readings of counters; 0: one reading
	Time   time.Time
	Took   time.Duration
}

// A gpuState is the state of a GPU, or the reason why it is not known.
type gpuState struct {
	nvml.GPU
	Err           error
	Before, After sysfs.Fact[map[string]uint64]
}

// ReadOptions configure Read.
type ReadOptions struct {
	// Timeout is the time limit of each source: the driver as a whole, each GPU, the kernel's
	// files. A source that takes longer gives errNoAnswer. Its goroutine remains, since a library
	// call cannot be cancelled.
	Timeout time.Duration
	// Window is how long the counters are watched.
	Window time.Duration
	Now    time.Time
	Getenv func(string) string
}

// Read reads the state of a node. GPUs and files are read at the same time.
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

// errUnwatched means that there was no second reading.
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
		g.Err = g.Before.Err // a second call would take as long again
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

// within runs a function with a time limit, in its own goroutine, since a call of the driver may
// never return. The error of a timeout names the last query.
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

// Growth is the increase of a counter between the two readings. ok is false if it was not read
// twice, or the GPU does not have it.
func (g *gpuState) Growth(name string) (grown uint64, ok bool) {
	before, had := g.Before.Value[name]
	after, has := g.After.Value[name]
	if !had || !has || after < before {
		return 0, false
	}
	return after - before, true
}

// Host is the host name.
func (s *State) Host() string { return s.Node.System.Value.Host }
