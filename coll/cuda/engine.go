//go:build cuda && cgo

package cuda

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/assay-hpc/assay/coll/choose"
	"github.com/assay-hpc/assay/coll/cuda/driver"
	"github.com/assay-hpc/assay/coll/cuda/kernels"
	"github.com/assay-hpc/assay/coll/debug"
	"github.com/assay-hpc/assay/coll/elem"
	"github.com/assay-hpc/assay/coll/executor"
	"github.com/assay-hpc/assay/coll/op"
)

// Factory makes the executors of communicators on NVIDIA GPUs.
var Factory = &executor.Factory{Open: open, Bus: driver.Bus}

// An engine is one rank's side of a communicator whose devices reach one
// another, or at least the same memory of the host.
type engine struct {
	cfg     executor.Config
	dev     *device
	chooser chooser
	comm    commABI
	windows windows
	all     []identity
	copier  copier
	copying bool           // something is done by copy engines
	pinned  *driver.Pinned // the stop word, then the reports
	event   driver.Event   // between streams

	stream   driver.Stream
	busy     bool // something was enqueued on stream
	exchange exchange
	ready    [numTypes][elem.Avg]bool
	untyped  [numKernels]*launch
	typed    [numKernels][numTypes][elem.Avg]*launch
	one      [1]*driver.Launch
	batch    batch
	chosen   choice
	trial    bool // Tune tries choices

	mu      sync.Mutex // Abort against Close
	closed  bool
	stopped atomic.Bool
	told    bool // the watchdog has seen a report
}

const (
	numTypes = int(elem.Float8E5M2) + 1

	reportsAt   = 64 // in pinned
	reportBytes = 16
	pinnedBytes = reportsAt + (packetChannels+chunkChannels)*reportBytes
)

// open makes the executor of a rank: an engine if there can be windows, or
// else a stager. All ranks come to the same.
func open(ctx context.Context, cfg executor.Config) (executor.Executor, error) {
	dev, err := deviceOf(cfg.Device)
	if err != nil {
		return nil, failure(cfg.Rank, "CommInitRank", err)
	}
	for _, module := range [...]string{kernels.Movement, kernels.Module(elem.Float32, elem.Sum)} {
		if err == nil {
			err = dev.load(module, cfg.Size)
		}
	}
	if err != nil {
		return nil, failure(cfg.Rank, "CommInitRank", err)
	}
	rules, err := choose.GPURules(cfg.Env.Tuning.Tables, dev.info.Name, cfg.Size, choiceFor)
	if err != nil {
		return nil, &op.Error{Code: op.InvalidArgument, Rank: cfg.Rank, Op: "CommInitRank", Peer: op.NoPeer, Err: err}
	}
	var a executor.Executor
	err = dev.in(func() error {
		w, all, why, err := openWindows(ctx, cfg, dev, sha256.Sum256([]byte(dev.info.Name)))
		switch {
		case err != nil:
			return err
		case why != "":
			cfg.Log.Infof(debug.Init, "rank %d: device memory is staged: %s", cfg.Rank, why)
			a, err = newStager(ctx, cfg, dev)
		default:
			a, err = newEngine(cfg, dev, w, all, rules)
			if err != nil {
				w.close(&windows{}, nil, true)
			}
		}
		return err
	})
	if err != nil {
		return nil, failure(cfg.Rank, "CommInitRank", err)
	}
	return a, nil
}

func newEngine(cfg executor.Config, dev *device, w windows, all []identity, rules choose.Rules[choice]) (_ *engine, err error) {
	e := &engine{cfg: cfg, dev: dev, windows: w, all: all}
	defer func() {
		if err != nil {
			_ = e.free()
		}
	}()
	e.copier.e = e
	e.chooser = newChooser(cfg.Env, cfg.Size, all, w.hosted)
	if measuredAlike(all) && !w.hosted { // what was measured was on devices
		e.chooser.measured = rules
	}
	if s := cfg.Env.GPUAlgo; s != "" {
		if e.chooser.force, err = parseChoice(s); err != nil {
			return nil, &op.Error{Code: op.InvalidArgument, Rank: cfg.Rank, Op: "CommInitRank", Peer: op.NoPeer, Err: fmt.Errorf("ASSAY_GPU_ALGO: %w", err)}
		}
	}
	e.copying = e.mayCopy()
	e.exchange = exchange{rank: cfg.Rank, chooser: &e.chooser}
	if e.pinned, err = driver.HostAlloc(pinnedBytes); err != nil {
		return nil, err
	}
	if e.event, err = driver.NewEvent(0); err != nil {
		return nil, err
	}
	c := &e.comm
	e.chooser.fill(c)
	for r, p := range w.at {
		c.win[r] = uint64(p)
	}
	c.rank = int32(cfg.Rank)
	c.stop, c.report = uint64(e.pinned.Ptr), uint64(e.pinned.Ptr)+reportsAt
	c.timeout = uint64(cfg.Timeout)
	e.ready[elem.Float32][elem.Sum] = true
	for _, k := range classes {
		if k == copies {
			continue
		}
		if _, err := e.launch(k, 0, 0); err != nil {
			return nil, err
		}
	}
	watch.add(e)
	return e, nil
}

// mayCopy reports whether anything is done by copy engines, once all choices
// are settled.
func (e *engine) mayCopy() bool {
	ch := &e.chooser
	if ch.hosted {
		return false
	}
	if ch.force.kernel == copies {
		return true
	}
	for _, rules := range ch.measured {
		if slices.ContainsFunc(rules, func(r choose.Rule[choice]) bool { return r.C.kernel == copies }) {
			return true
		}
	}
	return false
}

// newChooser makes what all ranks' devices and settings allow. It is made of
// what the ranks have agreed on and told one another, and of nothing else.
func newChooser(k *choose.Env, ranks int, all []identity, hosted bool) chooser {
	buffer := 0
	if k.BuffSize != choose.DefaultBuffSize {
		buffer = int(k.BuffSize)
	}
	c := chooser{layout: newLayout(ranks, buffer), env: k}
	if hosted {
		c.layout = c.onHost()
	}
	for _, id := range all {
		shared := 0
		for _, other := range all {
			if other.UUID == id.UUID {
				shared++
			}
		}
		blocks := int(id.SMs) / shared
		if c.blocks == 0 || blocks < c.blocks {
			c.blocks = blocks
		}
	}
	return c
}

// A launch is a kernel that is ready to be launched.
type launch struct {
	l    *driver.Launch
	args *argsABI
}

// launch finds the launch of a kernel, or prepares it. The kernel's module is
// loaded.
func (e *engine) launch(k kernel, t elem.Type, op elem.Op) (*launch, error) {
	at := &e.untyped[k]
	if kernelInfo[k].typed {
		at = &e.typed[k][t][op]
	}
	if *at != nil {
		return *at, nil
	}
	f, err := e.dev.function(k, t, op, e.cfg.Size)
	if err != nil {
		return nil, err
	}
	l := driver.NewLaunch(f, int(unsafe.Sizeof(commABI{})), int(unsafe.Sizeof(argsABI{})))
	*(*commABI)(l.Param(0)) = e.comm
	// Chunked kernels fill the device: there is nothing to start early on.
	l.SetDependent(kernelInfo[k].protocol != simple)
	*at = &launch{l, (*argsABI)(l.Param(1))}
	return *at, nil
}

// set gives a launch its shape.
func (e *engine) set(l *launch, c choice) *driver.Launch {
	l.l.SetGrid(c.channels, kernelInfo[c.kernel].roles, 1)
	l.l.SetBlock(c.threads, 1, 1)
	l.l.SetStream(e.stream)
	return l.l
}

// lacks reports whether an operation's kernels have to be loaded: for the first
// time of its type and reduction in the communicator. Then all ranks do so, and
// wait for one another before any of them launches. Loading waits for what runs
// on the device, perhaps for a kernel that waits for this rank's.
func (e *engine) lacks(o *op.Op) bool {
	return o.Coll.Reduces() && !e.ready[o.Type][o.Red]
}

func (e *engine) load(o *op.Op) error {
	if err := e.dev.load(kernels.Module(o.Type, o.Red), e.cfg.Size); err != nil {
		return err
	}
	e.ready[o.Type][o.Red] = true
	return nil
}

// Alloc implements executor.Executor.
func (e *engine) Alloc(n int) (uintptr, error) { return e.dev.alloc(e.cfg.Rank, n) }

// Free implements executor.Executor.
func (e *engine) Free(addr uintptr) error { return e.dev.free(e.cfg.Rank, addr) }

func (d *device) alloc(rank, n int) (uintptr, error) {
	var p driver.Ptr
	err := d.in(func() (err error) {
		if p, err = driver.Malloc(n); err != nil {
			return err
		}
		if err = clearMemory(p, n); err != nil {
			_ = driver.Free(p)
		}
		return err
	})
	if err != nil {
		return 0, failure(rank, "AllocDevice", err)
	}
	return uintptr(p), nil
}

func (d *device) free(rank int, addr uintptr) error {
	if err := d.in(func() error { return driver.Free(driver.Ptr(addr)) }); err != nil {
		return failure(rank, "FreeDevice", err)
	}
	return nil
}

// Chosen implements executor.Executor.
func (e *engine) Chosen() string {
	if e.chosen.kernel == noKernel {
		return "memcpy"
	}
	return fmt.Sprintf("%v/%d", e.chosen.kernel, e.chosen.channels)
}

// Stream implements executor.Executor.
func (e *engine) Stream(stream uintptr) error {
	s := driver.Stream(stream)
	if s == e.stream {
		return nil
	}
	err := e.dev.in(func() error { return follow(e.event, e.stream, s, e.busy) })
	if err != nil {
		return failure(e.cfg.Rank, "SetStream", err)
	}
	e.stream, e.busy = s, false
	return nil
}

// follow makes a stream wait for what is on another one. What is captured
// belongs to its graph.
func follow(event driver.Event, from, to driver.Stream, busy bool) error {
	if !busy {
		return nil
	}
	for _, s := range [...]driver.Stream{from, to} {
		if captured, err := s.Capturing(); captured || err != nil {
			return err
		}
	}
	if err := event.Record(from); err != nil {
		return err
	}
	return to.WaitEvent(event)
}

// Abort implements executor.Executor: kernels see the word and leave.
func (e *engine) Abort(error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.closed && e.stopped.CompareAndSwap(false, true) {
		atomic.StoreUint32((*uint32)(unsafe.Pointer(&e.pinned.Bytes[0])), 1)
	}
}

// report is what the kernels of a channel left behind, if anything.
func (e *engine) report(channel int) (r reportABI, ok bool) {
	b := e.pinned.Bytes[reportsAt+channel*reportBytes:][:reportBytes]
	if atomic.LoadUint32((*uint32)(unsafe.Pointer(&b[12]))) == 0 {
		return r, false
	}
	r.who, r.wanted, r.found = binary.LittleEndian.Uint32(b), binary.LittleEndian.Uint32(b[4:]), binary.LittleEndian.Uint32(b[8:])
	return r, true
}

// reasonTimeout is why a kernel gave up that was not told to stop.
const reasonTimeout = 2

// watchReports fails the communicator when a kernel has waited for too long.
func (e *engine) watchReports() {
	if e.told {
		return
	}
	for ch := range packetChannels + chunkChannels {
		r, ok := e.report(ch)
		if !ok || r.who>>24 != reasonTimeout { // else it was told to stop
			continue
		}
		e.told = true
		peer := int(r.who >> 16 & 0xff)
		e.cfg.Host.Fail(&op.Error{
			Code: op.Timeout, Rank: e.cfg.Rank, Op: "asynchronous", Peer: peer,
			Err: fmt.Errorf("a kernel waited %v for rank %d, which has not got as far (message %d of channel %d, seen %d)", e.cfg.Timeout, peer, r.wanted, r.who&0xffff, r.found),
		})
		return
	}
}

// drainTime is how long kernels may take to leave once they have been told.
const drainTime = 10 * time.Second

// drain waits until all that was enqueued is done. What does not end, because
// its stream is not there any more or its context is lost, is left alone.
func (e *engine) drain() bool {
	if err := e.event.Record(e.stream); err != nil {
		var lost *driver.Error
		return errors.As(err, &lost) && lost.Lost() // then nothing runs
	}
	var stopped time.Time
	for wait := 10 * time.Microsecond; ; wait = min(2*wait, time.Millisecond) {
		if done, err := e.event.Query(); done || err != nil {
			return true
		}
		switch {
		case !e.stopped.Load():
		case stopped.IsZero():
			stopped = time.Now()
		case time.Since(stopped) > drainTime:
			return false
		}
		time.Sleep(wait)
	}
}

// Close implements executor.Executor.
func (e *engine) Close(barrier func() error) error {
	watch.remove(e)
	if barrier == nil {
		e.Abort(nil)
	}
	err := e.dev.in(func() error {
		drained := e.drain()
		e.mu.Lock()
		e.closed = true
		e.mu.Unlock()
		e.windows.close(&e.copier.room, barrier, drained)
		if !drained {
			return nil // kernels may still look at the rest
		}
		e.copier.close()
		return e.free()
	})
	var lost *driver.Error
	if errors.As(err, &lost) && lost.Lost() {
		return nil // with the context all is gone
	}
	return err
}

// free gives back what the engine itself has.
func (e *engine) free() error {
	for _, l := range e.untyped {
		if l != nil {
			l.l.Close()
		}
	}
	for k := range e.typed {
		for t := range e.typed[k] {
			for _, l := range e.typed[k][t] {
				if l != nil {
					l.l.Close()
				}
			}
		}
	}
	return errors.Join(e.event.Destroy(), e.pinned.Free())
}

// failure makes an Error of coll's of what the driver reports. What others
// report is coll's to name.
func failure(rank int, what string, err error) error {
	var known *op.Error
	var cu *driver.Error
	if errors.As(err, &known) || !errors.As(err, &cu) {
		return err
	}
	return &op.Error{Code: op.UnhandledCudaError, Rank: rank, Op: what, Peer: op.NoPeer, Err: err}
}
