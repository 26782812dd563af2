//go:build cgo && linux

package probe

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/assay-hpc/assay/internal/verbs"
	"github.com/assay-hpc/assay/perftest/probe/wire"
)

// A runner is one side of one test.
type runner struct {
	c     *Config
	ev    Events
	clock *clock
	e     *endpoint
	conn  *wire.Conn
	cm    *session // nil without rdma_cm

	mu      sync.Mutex
	notices []string // events of the device during the test, and what else may explain a failure
	down    bool     // the last port event is that the link went down

	peerVersion string
}

// Run carries out this side of a test: as the client if c.Host is set, otherwise as the server of
// one client. Lines are sent to ev when they are complete, and are also in the outcome.
//
// Wrong options are a *FlagError, a machine that cannot run the test is a *NotAvailable. Errors of
// the control channel are those of package wire, errors of the device those of package verbs. The
// test ends with an error if the peer ends, if the peer does nothing for c.Timeout, or if ctx ends.
func Run(ctx context.Context, c Config, ev Events) (out *Outcome, err error) {
	if err := c.ready(); err != nil {
		return nil, err
	}
	r := &runner{c: &c, ev: ev}
	// The device is opened first, so that a server that cannot serve reports it at once.
	if r.e, err = openDevice(&c); err != nil {
		return nil, available(err)
	}
	defer func() {
		if err == nil && c.WaitDestroy > 0 {
			wait(ctx, c.WaitDestroy)
		}
		err = errors.Join(err, r.e.close())
		if r.cm != nil {
			err = errors.Join(err, r.cm.close())
		}
	}()
	if err := r.e.ctx.Events(r.notice); err != nil {
		return nil, err
	}
	r.clock = newClock()
	if r.conn, err = r.meetInTime(ctx); err != nil {
		return nil, err
	}
	defer r.conn.Close()
	out, err = r.run(ctx)
	if err != nil {
		err = r.explain(err)
	}
	return out, err
}

func wait(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// notice records events of the port and the QPs.
func (r *runner) notice(e verbs.Event) {
	if e.Established() { // the first message arrived before RTS
		return
	}
	if e.Port == r.c.IBPort {
		r.mu.Lock()
		r.down = e.Down()
		r.mu.Unlock()
	}
	r.remark(fmt.Sprintf("%s: %v at %s", r.e.ctx.Name(), e, time.Now().Format("15:04:05.000")))
}

// remark tells the user something that may explain a failure, and keeps it for that.
func (r *runner) remark(text string) {
	r.mu.Lock()
	r.notices = append(r.notices, text)
	r.mu.Unlock()
	r.ev.TellNote("%s", text)
}

// linkReturns is how long to wait for a link that went down, to report whether it came up again.
// eventComes is how long to wait for the event itself, since a failed request can be noticed before
// it.
const (
	linkReturns = 3 * time.Second
	eventComes  = time.Second
)

// explain adds to an error the preceding events of the device.
func (r *runner) explain(err error) error {
	isDown := func() bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		return r.down
	}
	if errors.Is(err, ErrFailed) {
		for end := time.Now().Add(eventComes); !isDown() && time.Now().Before(end); {
			time.Sleep(20 * time.Millisecond)
		}
	}
	for end := time.Now().Add(linkReturns); isDown() && time.Now().Before(end); {
		time.Sleep(50 * time.Millisecond)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, n := range r.notices {
		err = fmt.Errorf("%w (%s)", err, n)
	}
	return err
}

// meetInTime is meet, which for a server has the time limit of --wait.
func (r *runner) meetInTime(ctx context.Context) (*wire.Conn, error) {
	if r.c.Role() == wire.Server {
		limit := cmp.Or(r.c.Wait, defaultWait)
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, limit, fmt.Errorf("%w within %v: start the client, or set --wait", errNoClient, limit))
		defer cancel()
	}
	return r.meet(ctx)
}

// errNoClient ends a server's wait.
var errNoClient = errors.New("no client connected")

// meet connects to the peer, or waits for it.
func (r *runner) meet(ctx context.Context) (*wire.Conn, error) {
	c := r.c
	o := c.Wire(func(err error) { r.ev.TellNote("%v", err) })
	if c.ControlsByCM() {
		return r.meetCM(ctx, o)
	}
	port := strconv.Itoa(c.Port)
	if c.Role() == wire.Client {
		return wire.Dial(ctx, net.JoinHostPort(c.Host, port), o)
	}
	l, err := wire.Listen(ctx, net.JoinHostPort(c.Source, port), o)
	if err != nil {
		return nil, err
	}
	defer l.Close()
	r.ev.TellWaiting(l.Addr().String())
	return l.Accept(ctx)
}

// run does everything after the two sides are connected.
func (r *runner) run(ctx context.Context) (*Outcome, error) {
	if err := r.agree(ctx); err != nil {
		return nil, err
	}
	if err := r.e.build(); err != nil {
		return nil, err
	}
	if err := r.connectQueues(ctx); err != nil {
		return nil, err
	}
	r.e.peers = make([]wire.Address, len(r.e.mine))
	if err := r.introduce(ctx); err != nil {
		return nil, err
	}
	out := &Outcome{Info: r.info()}
	r.ev.TellHeader(out.Info)
	var err error
	switch {
	case r.c.Measure == Latency:
		err = r.measureLatency(ctx, out)
	case r.c.Receives():
		err = r.measureSends(ctx, out)
	case r.c.Bidirectional:
		err = r.measureBoth(ctx, out)
	default:
		err = r.measureOne(ctx, out)
	}
	return out, err
}

// agree makes the handshake before the addresses are exchanged.
func (r *runner) agree(ctx context.Context) error {
	mine := wire.Hello{Version: wire.Version, Cycle: os.Getpagesize(), Line: cacheLine, MTU: r.e.mtu.Bytes()}
	agreed, peer, err := r.conn.Hello(ctx, mine, false)
	if err != nil {
		return err
	}
	r.e.cycle, r.e.line, r.e.mtu = agreed.Cycle, agreed.Line, verbs.MTUOf(agreed.MTU)
	r.peerVersion = peer.Version
	if mine.NeedsParams(peer) {
		theirs, err := r.conn.SwapParams(ctx, r.c.Params(r.e.mtu.Bytes(), int32(r.e.limits.ReadsIn)))
		if err != nil {
			return err
		}
		if n := int(theirs.MaxReads); n > 0 {
			r.e.limits.ReadsIn = min(r.e.limits.ReadsIn, n)
		}
	}
	return nil
}

// The L1 cache line size of all server CPUs.
const cacheLine = 64

// swapAll exchanges the addresses of all QPs.
func (r *runner) swapAll(ctx context.Context) error {
	for i, mine := range r.e.mine {
		theirs, err := r.conn.SwapFor(ctx, "the address of QP "+strconv.Itoa(i), mine)
		if err != nil {
			return err
		}
		if r.e.peers[i] == (wire.Address{}) {
			r.e.peers[i] = theirs
		}
	}
	return nil
}

// meetAt is a barrier: it exchanges the first QP's address again.
func (r *runner) meetAt(ctx context.Context, what string) error {
	_, err := r.conn.SwapFor(ctx, what, r.e.mine[0])
	return err
}

// keep makes the following exchanges wait for a peer that still measures: see vigil.
func (r *runner) keep() (release func()) {
	return r.conn.Keep(newVigil(r.c, r.e.ctx.Name(), r.c.IBPort, r.patience()).wire())
}

// idle is meetAt for a side that waits until the busy peer has finished.
func (r *runner) idle(ctx context.Context, what string) error {
	defer r.keep()()
	return r.meetAt(ctx, what)
}

// introduce exchanges addresses and connects the QPs. The number of exchanges is that of the C
// tools, and depends on the tool.
func (r *runner) introduce(ctx context.Context) error {
	c := r.c
	if c.Measure == Latency && c.Operation != Send {
		if err := r.meetAt(ctx, "the first meeting"); err != nil {
			return err
		}
	}
	if err := r.swapAll(ctx); err != nil {
		return err
	}
	if text := r.e.mine[0].Duplicate(r.e.peers[0], r.conn.SameHost()); text != "" {
		r.remark(text)
	}
	if err := r.e.connect(); err != nil {
		return err
	}
	if c.Operation == Send {
		if err := r.meetAt(ctx, "the meeting of connected QPs"); err != nil {
			return err
		}
		return r.swapAll(ctx)
	}
	if err := r.swapAll(ctx); err != nil {
		return err
	}
	return r.meetAt(ctx, "the meeting of connected QPs")
}

// watching calls f with a context that ends when the peer closes. In a test of write latency it
// ends some time later: the side that sees the last write first closes at once, while the other
// side may still wait for its completion.
func (r *runner) watching(ctx context.Context, f func(context.Context) error) error {
	watched, stop := r.conn.Watch(ctx)
	patient := watched
	if r.c.Measure == Latency && r.c.Operation == Write {
		var cancel context.CancelCauseFunc
		patient, cancel = context.WithCancelCause(ctx)
		defer cancel(nil)
		defer context.AfterFunc(watched, func() {
			wait(ctx, lastWrite)
			cancel(context.Cause(watched))
		})()
	}
	err := f(patient)
	gone := stop()
	if err != nil && gone != nil && !errors.Is(err, gone) {
		return fmt.Errorf("%w (%v)", gone, err)
	}
	return err
}

// sizes returns the sizes of the test.
func (r *runner) sizes() []uint64 { return r.c.Sizes(r.e.mtu.Bytes()) }

// measureOne is a test of writes, reads or atomics in one direction, which is the client's.
func (r *runner) measureOne(ctx context.Context, out *Outcome) error {
	var last BandwidthResult
	if r.c.Sends() {
		if err := r.warmUp(ctx); err != nil {
			return err
		}
		var err error
		if last, err = r.sendSizes(ctx, out); err != nil {
			return err
		}
		// An endless test ends successfully when it is cancelled.
		if r.c.Endless {
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeout(context.WithoutCancel(ctx), farewell)
			defer cancel()
		}
	}
	end := r.idle
	if r.c.Sends() { // the peer has nothing to do but to answer
		end = r.meetAt
	}
	if err := end(ctx, "the end of the measurement"); err != nil {
		return err
	}
	if !r.c.Sends() {
		theirs, err := r.swapReport(ctx, BandwidthResult{})
		if err != nil {
			return err
		}
		r.row(out, Row{Bandwidth: &theirs})
		return r.leave(ctx)
	}
	// The report of a C server that only watched the test is meaningless.
	if _, err := r.conn.SwapReport(ctx, last.Report(r.c.Gbits)); err != nil {
		return err
	}
	return r.leave(ctx)
}

// farewell is the time limit for the last exchanges of an endless test.
const farewell = 5 * time.Second

// sendSizes transfers messages of all sizes, or of one size endlessly, and returns the last result.
func (r *runner) sendSizes(ctx context.Context, out *Outcome) (last BandwidthResult, err error) {
	if r.c.Endless {
		return r.sendForever(ctx, out)
	}
	for _, size := range r.sizes() {
		t, err := r.transfer(ctx, size)
		if err != nil {
			return last, err
		}
		last = r.result(size, t)
		own := last
		r.row(out, Row{Bandwidth: &own, Counters: t.counters})
	}
	return last, nil
}

// sendForever writes a line after each period, until ctx ends.
func (r *runner) sendForever(ctx context.Context, out *Outcome) (last BandwidthResult, err error) {
	endless, period := r.c, *r.c
	period.Endless, period.Duration, period.Margin = false, r.c.Period(), 0
	r.c, r.e.c = &period, &period
	defer func() { r.c, r.e.c = endless, endless }()
	size := r.sizes()[0]
	for {
		t, err := r.transfer(ctx, size)
		switch {
		case err != nil && ctx.Err() != nil:
			return last, nil
		case err != nil:
			return last, err
		}
		last = r.result(size, t)
		own := last
		r.row(out, Row{Bandwidth: &own, Counters: t.counters})
	}
}

// warmUp transfers messages for one queue depth that do not count.
func (r *runner) warmUp(ctx context.Context) error {
	if !r.c.WarmUp {
		return nil
	}
	warm, cold := r.c, *r.c
	cold.Duration, cold.Endless, cold.NoPeak = 0, false, true
	cold.Iterations = uint64(roundUp(max(r.c.SendDepth(), minIterations), r.c.PostList))
	r.c, r.e.c = &cold, &cold
	defer func() { r.c, r.e.c = warm, warm }()
	_, err := r.transfer(ctx, r.sizes()[0])
	return err
}

// measureBoth is a test of writes, reads or atomics in both directions.
func (r *runner) measureBoth(ctx context.Context, out *Outcome) error {
	for _, size := range r.sizes() {
		if err := r.meetAt(ctx, "the start"); err != nil {
			return err
		}
		t, err := r.transfer(ctx, size)
		if err != nil {
			return err
		}
		if r.c.All {
			if err := r.idle(ctx, "the end of a size"); err != nil {
				return err
			}
		}
		own := r.result(size, t)
		theirs, err := r.swapReport(ctx, own)
		if err != nil {
			return err
		}
		both := own.Plus(theirs)
		r.row(out, Row{Bandwidth: &both, Local: &own, Remote: &theirs, Counters: t.counters})
	}
	return r.leave(ctx)
}

// measureSends is a test of sends, or of writes with immediate data.
func (r *runner) measureSends(ctx context.Context, out *Outcome) error {
	posted := make([]int, r.c.QPs)
	for _, size := range r.sizes() {
		if err := r.e.requests(size); err != nil {
			return err
		}
		if r.e.receives() {
			if err := r.e.postReceives(posted); err != nil {
				return err
			}
		}
		if err := r.meetAt(ctx, "the start"); err != nil {
			return err
		}
		t, err := r.watched(ctx, size)
		if err != nil {
			return err
		}
		own := r.result(size, t)
		endOfSize := func(due bool) error {
			if !r.c.All || !due {
				return nil
			}
			return r.idle(ctx, "the end of a size")
		}
		// perftest meets before the reports of writes, and after those of sends.
		if err := endOfSize(r.c.Operation == Write); err != nil {
			return err
		}
		if r.c.Bidirectional && r.c.Duration == 0 {
			theirs, err := r.swapReport(ctx, own)
			if err != nil {
				return err
			}
			both := own.Plus(theirs)
			r.row(out, Row{Bandwidth: &both, Local: &own, Remote: &theirs, Counters: t.counters})
		} else {
			r.row(out, Row{Bandwidth: &own, Counters: t.counters})
		}
		if err := endOfSize(r.c.Operation == Send); err != nil {
			return err
		}
	}
	return r.leave(ctx)
}

// transfer makes the requests and runs the bandwidth loop.
func (r *runner) transfer(ctx context.Context, size uint64) (t transfer, err error) {
	if err := r.e.requests(size); err != nil {
		return t, err
	}
	return r.watched(ctx, size)
}

// watched runs the bandwidth loop while the peer is connected, and adds the changes of counters and
// CPU time.
func (r *runner) watched(ctx context.Context, size uint64) (t transfer, err error) {
	before, err := r.readSurroundings()
	if err != nil {
		return t, err
	}
	if err := r.watching(ctx, func(ctx context.Context) (err error) {
		t, err = r.bandwidth(ctx, size)
		return err
	}); err != nil {
		return t, err
	}
	t.counters, t.cpu, err = r.since(before)
	return t, err
}

// measureLatency is a test of round trips.
func (r *runner) measureLatency(ctx context.Context, out *Outcome) error {
	c := r.c
	if !c.Sends() {
		if err := r.idle(ctx, "the end of the measurement"); err != nil {
			return err
		}
		r.conn.Bye()
		return nil
	}
	posted := make([]int, c.QPs)
	for _, size := range r.sizes() {
		if err := r.e.requests(size); err != nil {
			return err
		}
		if c.Receives() {
			if err := r.e.postReceives(posted); err != nil {
				return err
			}
			if err := r.meetAt(ctx, "the start"); err != nil {
				return err
			}
		}
		before, err := r.readSurroundings()
		if err != nil {
			return err
		}
		var l latencies
		if err := r.watching(ctx, func(ctx context.Context) (err error) {
			l, err = r.latency(ctx, size)
			return err
		}); err != nil {
			return err
		}
		counters, _, err := r.since(before)
		if err != nil {
			return err
		}
		result := r.latencyResult(size, l)
		r.row(out, Row{Latency: &result, Counters: counters})
	}
	if c.Operation == Write {
		// The C tools exchange nothing more. The peer may still wait for the last write, which
		// would be lost if the QP were destroyed.
		r.conn.AwaitClose(ctx, lastWrite)
		return nil
	}
	return r.leave(ctx)
}

// lastWrite is how long a QP is kept open so that the peer sees its last write.
const lastWrite = 500 * time.Millisecond

// leave ends all tests except those of write latency.
func (r *runner) leave(ctx context.Context) error {
	if err := r.idle(ctx, "the end"); err != nil {
		return err
	}
	r.conn.Bye()
	return nil
}
