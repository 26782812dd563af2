//go:build cuda && cgo

package cuda

import (
	"errors"
	"slices"
	"sort"
	"sync/atomic"

	"github.com/assay-hpc/assay/coll/executor"
	"github.com/assay-hpc/assay/coll/op"
	"github.com/assay-hpc/assay/internal/gpu/driver"
)

// An order runs the operations of a rank one after the other, whichever streams they come on.
type order struct {
	rank   int
	dev    *device
	event  driver.Event  // for waits between streams; if not eager, in the end behind the last operation
	stream driver.Stream // of the last operation, or one that waits for it
	call   uint64        // executor.Op.Call of the last operation
	id     uint64        // of the stream; noStream: not known
	busy   bool          // there was an operation
	left   bool          // there will be no more: event is behind the last one
	lost   error         // why event is not behind the last one

	// Set for a communicator of NCCL's API, where callers may destroy a stream as soon as the
	// call of an operation on it has returned: an event of the trail is recorded behind each
	// operation before that.
	eager    bool
	trail    trail
	open     bool        // no event is behind the last operation yet
	capture  uint64      // that the last operation is in; 0: none
	captured atomic.Bool // some operation was captured
	captures captures
}

func newOrder(cfg *executor.Config, dev *device) order {
	several := cfg.Size > 1
	return order{rank: cfg.Rank, dev: dev, eager: cfg.AsNCCL, captures: captures{mixed: several && cfg.GraphMixing, ordered: several && cfg.GraphOrder}}
}

// Stream implements executor.Executor. Where callers may destroy streams, begin changes the
// stream: the event is behind the last operation already.
func (o *order) Stream(stream uintptr) error {
	s := driver.Stream(stream)
	if o.eager || s == o.stream {
		return nil
	}
	if o.busy {
		if err := o.dev.in(func() error { return o.wait(s, o.stream) }); err != nil {
			return err
		}
	}
	o.stream = s
	return nil
}

// follow puts the next operation on stream s, behind the last operation. The last operation's
// stream may have been destroyed, and another stream may have its handle.
func (o *order) follow(s driver.Stream) error {
	capturing, err := s.Capturing()
	if err != nil {
		return err
	}
	if capturing {
		return o.followCaptured(s)
	}
	id, err := s.ID()
	if err != nil {
		id = noStream
	}
	same := s == o.stream && o.capture == 0 && id == o.id && id != noStream
	if same && (o.open || o.captures.serial == 0) {
		return nil
	}
	err = o.mark()
	switch last, ok := o.trail.last(); {
	case err != nil:
	case o.captures.serial != 0:
		err = s.WaitEvent(o.captures.serial)
	case ok:
		err = s.WaitEvent(last)
	}
	o.stream, o.id, o.capture = s, id, 0
	return err
}

func (o *order) followCaptured(s driver.Stream) error {
	defer driver.Relax().Restore()
	id, err := s.Capture()
	if err != nil || s == o.stream && id == o.capture {
		return err
	}
	if err := o.mark(); err != nil {
		return err
	}
	o.stream, o.id, o.capture = s, noStream, id // querying the stream's ID would invalidate the capture
	return o.captures.begin(s, id, &o.trail)
}

// noStream stands for the ID of a stream that is captured, or that has none.
const noStream = ^uint64(0)

// Leave implements executor.Executor.
func (o *order) Leave() {
	if o.left {
		return
	}
	o.left = true
	if o.busy && !o.eager {
		o.lost = o.dev.in(func() error { return o.event.Record(o.stream) })
	}
}

// wait makes stream s wait for the work on another stream. It does nothing if one of them is
// captured, and the other is not in the same capture: captured work belongs to its graph, which
// other streams do not wait for.
func (o *order) wait(s, on driver.Stream) error {
	a, err := s.Capture()
	if err != nil {
		return err
	}
	if b, err := on.Capture(); a != b || err != nil {
		return err
	}
	if err := o.event.Record(on); err != nil {
		return err
	}
	return s.WaitEvent(o.event)
}

// begin puts the next operation on its stream, behind the work on the other streams that it
// was called on.
func (o *order) begin(d *executor.Op) error {
	s := driver.Stream(d.Stream)
	if !o.eager {
		if err := o.Stream(d.Stream); err != nil {
			return err
		}
	} else if err := o.dev.bound(func() error { return o.follow(s) }); err != nil {
		return err
	}
	o.busy, o.open, o.call = true, true, d.Call
	return o.each(d, func(s driver.Stream) error { return o.wait(o.stream, s) })
}

// checkStreams checks that all streams of a group are captured in one graph, or none is.
func (o *order) checkStreams(d *executor.Op) error {
	return o.dev.bound(func() error {
		id, err := driver.Stream(d.Stream).Capture()
		if err != nil {
			return err
		}
		for _, s := range d.Also {
			if other, err := driver.Stream(s).Capture(); err != nil {
				return err
			} else if other != id {
				return &op.Error{Code: op.InvalidUsage, Rank: o.rank, Op: d.Coll.String(), Peer: op.NoPeer, Err: errors.New("of the streams of a group, all are captured in one graph or none is")}
			}
		}
		return nil
	})
}

// end makes later work on the other streams wait for the operation.
func (o *order) end(d *executor.Op) error {
	return o.each(d, func(s driver.Stream) error { return o.wait(s, o.stream) })
}

// done is called after everything of a call is enqueued, when the call is about to return.
func (o *order) done() error {
	if !o.eager {
		return nil
	}
	return o.dev.bound(o.mark)
}

// mark records an event behind the last operation, which is for other graphs only if it is
// captured.
func (o *order) mark() error {
	if !o.open {
		return nil
	}
	o.open = false
	if o.capture != 0 {
		o.captured.Store(true)
		defer driver.Relax().Restore()
		return o.captures.end(o.stream, o.capture)
	}
	err := o.trail.record(o.stream, o.call)
	if err == nil && o.captures.serial != 0 {
		err = o.captures.serial.Record(o.stream)
	}
	return err
}

// destroy destroys the events, except one that graphs of the program may contain.
func (o *order) destroy() error { return errors.Join(o.event.Destroy(), o.trail.destroy()) }

// final is the event behind the last operation, once there will be no more.
func (o *order) final() driver.Event {
	if e, ok := o.trail.last(); ok {
		return e
	}
	return o.event
}

// A trail says which of the last calls have ended. One goroutine records, any may ask.
type trail struct {
	events [trailLength]driver.Event // created when they are needed first
	calls  [trailLength]atomic.Uint64
	n      atomic.Uint64 // events recorded so far
}

// trailLength is how many calls a trail remembers.
const trailLength = 256

// record puts an event behind the call with a number, on its stream.
func (t *trail) record(s driver.Stream, call uint64) (err error) {
	n := t.n.Load()
	e := &t.events[n%trailLength]
	if *e == 0 {
		if *e, err = driver.NewEvent(0); err != nil {
			return err
		}
	}
	if err := e.Record(s); err != nil {
		return err
	}
	t.calls[n%trailLength].Store(call)
	t.n.Store(n + 1)
	return nil
}

// last is the event behind the last call.
func (t *trail) last() (driver.Event, bool) {
	n := t.n.Load()
	if n == 0 {
		return 0, false
	}
	return t.events[(n-1)%trailLength], true
}

// oldest returns the number of the first call that has not ended; 0 if it is not known, because
// too many have not, or more are recorded meanwhile. The calls end one after the other.
func (t *trail) oldest() uint64 {
	const spare = 8 // events that may be recorded while it looks
	n := t.n.Load()
	low := n - min(n, trailLength-spare)
	at := low + uint64(sort.Search(int(n-low), func(i int) bool {
		done, err := t.events[(low+uint64(i))%trailLength].Query()
		return err != nil || !done
	}))
	var call uint64
	if at > low {
		call = t.calls[(at-1)%trailLength].Load()
	}
	if at == n || at == low && low > 0 || t.n.Load() > n+spare {
		return 0
	}
	return call + 1
}

func (t *trail) destroy() error {
	var errs []error
	for _, e := range t.events {
		if e != 0 {
			errs = append(errs, e.Destroy())
		}
	}
	return errors.Join(errs...)
}

// Idle implements executor.Executor.
func (o *order) Idle() bool {
	idle := true
	last, ok := o.trail.last()
	if !ok {
		return idle
	}
	_ = o.dev.in(func() error {
		done, err := last.Query()
		idle = done || err != nil
		return nil
	})
	return idle
}

func (o *order) each(d *executor.Op, f func(driver.Stream) error) error {
	if len(d.Also) == 0 {
		return nil
	}
	return o.dev.in(func() error {
		for i, s := range d.Also {
			if s == d.Stream || slices.Contains(d.Also[:i], s) {
				continue
			}
			if err := f(driver.Stream(s)); err != nil {
				return err
			}
		}
		return nil
	})
}
