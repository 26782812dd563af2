//go:build cuda && cgo

package cuda

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/assay-hpc/assay/coll/choose"
	"github.com/assay-hpc/assay/coll/cuda/kernels"
	"github.com/assay-hpc/assay/coll/debug"
	"github.com/assay-hpc/assay/coll/elem"
	"github.com/assay-hpc/assay/coll/executor"
	"github.com/assay-hpc/assay/coll/op"
	"github.com/assay-hpc/assay/internal/gpu/driver"
)

// Factory creates the executors of communicators on NVIDIA GPUs.
var Factory = &executor.Factory{Open: open, Bus: driver.Bus, Failed: driver.Failed}

// An engine is one rank's side of a communicator with devices that reach one another, or at
// least the same host memory.
type engine struct {
	cfg     executor.Config
	chooser chooser
	comm    commABI
	windows windows
	all     []identity
	copier  copier

	registered     []registered
	lastRegistered int
	lsa            lsa
	freedSeen      int64  // blocks that were freed, see freed
	token          uint64 // of the communicator: the same on all ranks

	pinned *loan // the stop word, then the reports

	order
	exchange exchange
	funcs    *functions
	launches [numKernels]*launch
	last     kernel // what was launched last
	sole     bool   // no other rank is on the device
	one      [1]*driver.Launch

	// How many kernels, of those launched last, may be on the GPU while the first of them waits for other
	// ranks, and their blocks.
	waiting, waitingBlocks int

	lib  *library    // nil: the engine does all operations
	gone atomic.Bool // the library has done an operation
	batch
	verify *verifier // nil: nothing is verified
	chosen choice
	trial  bool          // Tune tries choices
	times  *choose.Times // nil: not looked up yet

	mu      sync.Mutex // Abort against Close
	closed  bool
	stopped atomic.Bool
	told    bool     // the watchdog has seen a report
	asked   struct { // by Progress, guarded by mu
		at    time.Time
		waits map[uint32]uint32 // waiting kernels: peer<<16 | channel, and the number of the awaited message
		seen  map[uint32]uint32 // the same, when there were some
		since time.Time         // since when these, or some of them, wait
	}
}

const (
	numTypes = int(elem.Float8E5M2) + 1

	reportsAt   = 64 // in pinned
	reportBytes = 16
	pinnedBytes = reportsAt + (packetChannels+chunkChannels)*reportBytes
)

// open creates the executor of a rank: an engine if windows are possible, otherwise the
// library or the host fallback. All ranks get the same kind.
func open(ctx context.Context, cfg executor.Config) (executor.Executor, error) {
	dev, err := deviceOf(cfg.Device)
	if errors.Is(err, errOrdinal) {
		return nil, &op.Error{Code: op.InvalidArgument, Rank: cfg.Rank, Op: "CommInitRank", Peer: op.NoPeer, Err: err}
	}
	if err != nil {
		return nil, err
	}
	funcs, err := dev.functions(cfg.Log, cfg.Size)
	tooOld, old := errors.AsType[*kernels.TooOld](err)
	if err != nil && !old {
		return nil, err
	}
	rules, err := choose.GPURules(cfg.Env.Tuning.Tables, dev.info.Name, cfg.Size, choiceFor)
	if err != nil {
		return nil, &op.Error{Code: op.InvalidArgument, Rank: cfg.Rank, Op: "CommInitRank", Peer: op.NoPeer, Err: err}
	}
	var a executor.Executor
	err = dev.in(func() error {
		dev.arena.enter()
		stays := false
		defer func() {
			if !stays {
				dev.arena.leave()
			}
		}()
		w, all, why, err := openWindows(ctx, cfg, dev, tooOld)
		switch {
		case err != nil:
			return err
		case why != "":
			a, err = openApart(ctx, cfg, dev, funcs, all, tooOld, why)
			_, outside := a.(*outsider) // also if err is not nil
			stays = outside && err == nil
		default:
			a, err = newEngine(ctx, cfg, dev, funcs, w, all, rules)
			stays = err == nil
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return a, nil
}

// openApart creates the executor of a communicator without windows. All ranks get the same
// kind.
func openApart(ctx context.Context, cfg executor.Config, dev *device, funcs *functions, all []identity, tooOld *kernels.TooOld, why string) (executor.Executor, error) {
	if cfg.Env.Verify.Some > 0 && cfg.Rank == 0 {
		cfg.Log.Warnf("ASSAY_CHECK: no operation of this communicator is verified: %s", why)
	}
	lib, err := openLibrary(ctx, cfg, dev, "all operations: "+why)
	if lib != nil {
		return newOutsider(cfg, dev, lib)
	}
	if err != nil {
		return nil, err
	}
	if tooOld != nil {
		return nil, tooOld
	}
	if r := slices.IndexFunc(all, func(id identity) bool { return id.TooOld != 0 }); r >= 0 {
		return nil, fmt.Errorf("there are no kernels for the GPU of rank %d: it is too old", r)
	}
	cfg.Log.Infof(debug.Init, "rank %d: device memory is staged: %s", cfg.Rank, why)
	return newStager(ctx, cfg, dev, funcs.of(stage, 0, 0))
}

func newEngine(ctx context.Context, cfg executor.Config, dev *device, funcs *functions, w windows, all []identity, rules choose.Rules[choice]) (_ *engine, err error) {
	e := &engine{cfg: cfg, order: newOrder(&cfg, dev), funcs: funcs, windows: w, all: all, token: rand.Uint64()}
	if len(all) > 0 {
		e.token = all[0].Token
	}
	defer func() {
		if err != nil {
			e.lib.abort()
			_ = e.free()
			e.giveBack(e.depart(), false)
		}
	}()
	e.copier.part = -1
	e.copier.e = e
	e.chooser = newChooser(cfg.Env, cfg.Size, all, w.hosted)
	if e.chooser.split = cfg.Size > 1 && !w.hosted && !w.linked; e.chooser.split {
		cfg.Log.Infof(debug.Init, "rank %d: LL128 is not used: NVLink does not connect all GPUs, as far as their ranks see", cfg.Rank)
	}
	if measuredAlike(all) && !w.hosted { // rules were measured with windows on devices
		e.chooser.measured = rules
	}
	if s := cfg.Env.GPUAlgo; s != "" {
		if e.chooser.force, err = parseChoice(s); err != nil {
			return nil, &op.Error{Code: op.InvalidArgument, Rank: cfg.Rank, Op: "CommInitRank", Peer: op.NoPeer, Err: fmt.Errorf("ASSAY_GPU_ALGO: %w", err)}
		}
	}
	if e.may(nvidia) {
		if e.lib, err = openLibrary(ctx, cfg, dev, purposes(e.chooser.force, e.chooser.measured)); err != nil {
			return nil, err
		}
		e.chooser.library = e.lib != nil
	}
	if !w.hosted && e.may(copies) {
		if err := e.copier.open(ctx); err != nil {
			return nil, err
		}
	}
	e.exchange = exchange{rank: cfg.Rank, chooser: &e.chooser, copies: e.copier.peerBuffers != nil}
	if e.pinned, err = dev.arena.word(); err != nil {
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
	c.stop, c.report = uint64(e.pinned.ptr), uint64(e.pinned.ptr)+reportsAt
	c.timeout = uint64(cfg.Timeout)
	if e.copier.peerBuffers != nil {
		e.copier.launches()
	}
	e.sole = e.chooser.blocks == dev.info.SMs
	for k := range e.launches[:stage] { // the fallback has its own
		e.launches[k] = newLaunch(e.comm, kernel(k), kernelTable[k].protocol != simple || kernelTable[k].registered && e.sole)
	}
	if e.verify, err = openVerifier(ctx, e); err != nil {
		return nil, err
	}
	if cfg.Timeout > 0 && e.verify == nil { // otherwise no kernel ever gives up
		watch.add(e)
	}
	return e, nil
}

// may reports whether any choice uses k, which is copies or nvidia, once all choices are
// settled.
func (e *engine) may(k kernel) bool {
	ch := &e.chooser
	if e.cfg.Size == 1 {
		return false
	}
	if ch.force.kernel == k {
		return true
	}
	for _, rules := range ch.measured {
		if slices.ContainsFunc(rules, func(r choose.Rule[choice]) bool { return r.C.kernel == k }) {
			return true
		}
	}
	return false
}

// newChooser returns the chooser for the devices and settings of all ranks. It depends only on
// what the ranks have agreed on and told one another.
func newChooser(k *choose.Env, ranks int, all []identity, hosted bool) chooser {
	buffer := 0
	if k.BuffSize != choose.DefaultBuffSize {
		buffer = int(k.BuffSize)
	}
	c := chooser{layout: newLayout(ranks, buffer), env: k, copyBytes: copyBufferBytes}
	if hosted {
		c.layout = c.onHost()
	}
	c.clusters = len(all) > 0
	for _, id := range all {
		shared := 0
		for _, other := range all {
			if other.UUID == id.UUID {
				shared++
			}
		}
		c.clusters = c.clusters && id.Clusters == 1 && shared == 1
		blocks := int(id.SMs) / shared
		if c.blocks == 0 || blocks < c.blocks {
			c.blocks = blocks
		}
	}
	return c
}

// Enqueue implements executor.Executor. For an operation of one kernel it allocates nothing
// and calls the driver once.
func (e *engine) Enqueue(d *executor.Op) error {
	o := &d.Op
	if err := checked(&e.cfg, e.dev, o); err != nil {
		return err
	}
	err := e.begin(d)
	verified := err == nil && e.verify.due(o) // which counts those that all ranks enqueue
	if verified {
		e.verify.before(o)
		err = e.verify.run()
	}
	if err == nil {
		err = e.enqueue(o)
	}
	if err == nil && verified {
		e.verify.after()
		err = e.verify.run()
	}
	if err == nil {
		err = e.end(d)
	}
	if err == nil {
		err = e.done()
	}
	if err != nil && e.trial { // this choice may be impossible, while the next one works
		return &op.Error{Code: op.InvalidArgument, Rank: e.cfg.Rank, Op: o.Coll.String(), Peer: op.NoPeer, Err: err}
	}
	return err
}

// Alloc implements executor.Executor.
func (e *engine) Alloc(n int) (uintptr, error) { return e.dev.alloc(n) }

// Free implements executor.Executor.
func (e *engine) Free(addr uintptr) error { return e.dev.free(addr) }

func (d *device) alloc(n int) (uintptr, error) {
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
	return uintptr(p), err
}

func (d *device) free(addr uintptr) error {
	return d.in(func() error { return driver.Free(driver.Ptr(addr)) })
}

// Estimate implements executor.Executor.
func (e *engine) Estimate(o *op.Op) time.Duration {
	if e.times == nil {
		times := choose.GPUTimes(e.cfg.Env.Tuning.Tables, e.dev.info.Name, e.cfg.Size)
		e.times = &times
	}
	return estimate(o, e.cfg.Size, e.windows.hosted, e.times)
}

// Memory implements executor.Executor.
func (e *engine) Memory() executor.Memory {
	e.mu.Lock()
	defer e.mu.Unlock()
	m := executor.Memory{Shared: e.dev.arena.share() + e.lsa.bytes.Load()}
	if own := e.windows.own; own != nil && own.kind.ofDevice() && !e.closed {
		m.Own = int64(own.offer.Bytes)
		if e.verify != nil {
			m.Own += int64(e.verify.scratch.offer.Bytes)
		}
	}
	return m
}

// Chosen implements executor.Executor.
func (e *engine) Chosen() string {
	switch e.chosen.kernel {
	case noKernel:
		return "memcpy"
	case nvidia:
		return nvidia.String()
	}
	return fmt.Sprintf("%v/%d", e.chosen.kernel, e.chosen.channels)
}

// Abort implements executor.Executor: kernels see the stop word and exit.
func (e *engine) Abort(error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.closed && e.stopped.CompareAndSwap(false, true) {
		go e.lib.abort()
		atomic.StoreUint32(e.stop(), stopLeave)
	}
}

// stop is the stop word, which waiting kernels poll.
func (e *engine) stop() *uint32 { return (*uint32)(unsafe.Pointer(&e.pinned.bytes[0])) }

// Values of the stop word.
const (
	stopLeave = 1
	stopTell  = 3
)

// How long kernels have to report what they wait for, how long their reports stay valid, and
// how long the other kernels have after the first report.
const (
	tellTime   = 300 * time.Millisecond
	toldGood   = 500 * time.Millisecond
	tellOthers = 20 * time.Millisecond
)

// Progress implements executor.Executor. It asks the waiting kernels which ranks they wait
// for: if none answers, no kernel runs.
func (e *engine) Progress() (s executor.State) {
	idle := e.Idle()
	s.Graphs = e.captured.Load()
	e.mu.Lock() // against Close; Abort can wait
	defer e.mu.Unlock()
	switch {
	case idle && !s.Graphs:
		return executor.State{Does: executor.Idle}
	case e.closed || e.stopped.Load() || e.gone.Load(): // the library's kernels do not report
		return executor.State{}
	}
	a := &e.asked
	if time.Since(a.at) > toldGood {
		waits := e.ask()
		if len(waits) > 0 {
			if !sameWait(a.seen, waits) {
				a.since = time.Now()
			}
			a.seen = waits
		}
		a.at, a.waits = time.Now(), waits
	}
	if !idle {
		_ = e.dev.in(func() error { s.Call = e.trail.oldest(); return nil })
	}
	if s.Does = executor.Begun; len(a.waits) == 0 { // copies wait only for such kernels
		s.Does = executor.Behind
		return s
	}
	if s.Since = a.since; idle {
		s.Graph = a.since
	}
	for w := range a.waits {
		if p := int(w >> 16); !slices.Contains(s.Ranks, p) {
			s.Ranks = append(s.Ranks, p)
		}
	}
	slices.Sort(s.Ranks)
	return s
}

// sameWait reports whether kernels may have waited all the time between two polls: those seen
// in both wait for the same messages. A poll may miss some kernels.
func sameWait(before, now map[uint32]uint32) bool {
	both := false
	for w, message := range now {
		m, ok := before[w]
		if ok && m != message {
			return false
		}
		both = both || ok
	}
	return both
}

func (e *engine) ask() map[uint32]uint32 {
	clear(e.pinned.bytes[reportsAt:])
	atomic.StoreUint32(e.stop(), stopTell)
	defer atomic.StoreUint32(e.stop(), 0)
	waits := map[uint32]uint32{}
	until := time.Now().Add(tellTime)
	for wait := time.Millisecond; time.Now().Before(until); wait *= 4 { // most kernels answer at once, or none runs
		time.Sleep(min(wait, time.Until(until)))
		first := len(waits) == 0
		for ch := range packetChannels + chunkChannels {
			if r, ok := e.report(ch); ok && r.who>>24 == stopTell {
				waits[r.who&0xffffff] = r.wanted
			}
		}
		if first && len(waits) > 0 {
			wait, until = tellOthers/4, time.Now().Add(tellOthers)
		}
	}
	return waits
}

// report returns the report that a channel's kernels have left, if there is one.
func (e *engine) report(channel int) (r reportABI, ok bool) {
	b := e.pinned.bytes[reportsAt+channel*reportBytes:][:reportBytes]
	if atomic.LoadUint32((*uint32)(unsafe.Pointer(&b[12]))) == 0 {
		return r, false
	}
	r.who, r.wanted, r.found = binary.LittleEndian.Uint32(b), binary.LittleEndian.Uint32(b[4:]), binary.LittleEndian.Uint32(b[8:])
	return r, true
}

// Check implements executor.Checker.
func (e *engine) Check() { watch.check(e) }

// drainTime is how long kernels may take to exit once they have been told to.
const drainTime = 10 * time.Second

// drain waits until everything enqueued is done, and reports whether nothing runs any more.
// Work that does not end, because its stream no longer exists or its context is lost, is left
// alone. stop reports whether the work was told to end soon; then drain waits at most
// drainTime.
func (o *order) drain(stop func() bool) bool {
	o.Leave()
	if o.lost != nil {
		var lost *driver.Error
		return errors.As(o.lost, &lost) && lost.Lost() // then nothing runs
	}
	var stopped time.Time
	for wait := 10 * time.Microsecond; ; wait = min(2*wait, time.Millisecond) {
		if done, err := o.final().Query(); done || err != nil {
			return true
		}
		switch {
		case !stop():
		case stopped.IsZero():
			stopped = time.Now()
		case time.Since(stopped) > drainTime:
			return false
		}
		time.Sleep(wait)
	}
}

// Close implements executor.Executor.
func (e *engine) Close(tell func(byte) ([]byte, error)) error {
	watch.remove(e)
	if tell == nil {
		e.Abort(nil)
		e.lib.abort()
	}
	err := e.dev.in(func() error {
		drained := e.drain(e.stopped.Load) && e.copier.drain()
		e.mu.Lock()
		e.closed = true
		e.mu.Unlock()
		if !drained {
			return nil // kernels may still use the rest
		}
		err := errors.Join(e.lib.close(), e.free())
		e.giveBack(e.leavePeers(tell))
		e.dev.arena.leave()
		return err
	})
	var lost *driver.Error
	if errors.As(err, &lost) && lost.Lost() {
		return nil // everything is lost with the context
	}
	return err
}

// leavePeers ends the ranks' access to one another's memory. A window must stay until the
// other ranks' kernels have exited: a kernel that writes to unmapped memory loses its context
// with everything in it. If the ranks do not leave together, it stays until all have departed.
// kept: another process still has it mapped.
func (e *engine) leavePeers(tell func(byte) ([]byte, error)) (left *departure, kept bool) {
	if e.cfg.Size == 1 {
		e.endRegistered(tell != nil)
		return left, false
	}
	if tell != nil {
		if _, err := tell(0); err == nil { // no rank's kernels run any more
			e.endRegistered(true)
			unmapped := byte(0)
			if e.dev.arena.unmap() {
				unmapped = 1
			}
			all, err := tell(unmapped)
			return nil, err != nil || slices.Contains(all, 0)
		}
	}
	e.endRegistered(false)
	return e.depart(), false
}

// giveBack returns the engine's loans to the device's arena.
func (e *engine) giveBack(left *departure, kept bool) {
	a := &e.dev.arena
	a.give(e.windows.own, left, kept)
	if e.copier.part >= 0 {
		a.giveCopyPart(e.copier.part, left, kept)
	}
	a.give(e.pinned, nil, false)
}

// free frees what the engine itself owns.
func (e *engine) free() error {
	e.copier.close()
	e.verify.close()
	for _, l := range e.launches {
		if l != nil {
			l.l.Close()
		}
	}
	return e.order.destroy()
}
