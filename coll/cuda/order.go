//go:build cuda && cgo

package cuda

import (
	"slices"
	"sync/atomic"

	"github.com/assay-hpc/assay/coll/cuda/driver"
	"github.com/assay-hpc/assay/coll/executor"
)

// An order keeps the operations of a rank one behind the other, whichever streams
// they come on.
type order struct {
	rank   int
	dev    *device
	event  driver.Event
	stream driver.Stream // of the last operation, or one that waits for it
	id     uint64        // of the stream
	busy   bool          // there was an operation
	left   bool          // there will be none: event is behind the last one
	lost   error         // why it is not

	// Of a communicator for NCCL's API, whose callers may destroy a stream as soon as
	// the operation on it was called: event is behind each when its call returns.
	eager    bool
	marked   atomic.Bool // there was such an operation
	open     bool        // the last one has no event behind it yet
	captured bool        // one of them was captured
}

// Stream implements executor.Executor.
func (o *order) Stream(stream uintptr) error {
	s := driver.Stream(stream)
	if s == o.stream && o.there() {
		return nil
	}
	err := o.dev.in(func() error {
		switch {
		case !o.busy:
			return nil
		case o.eager:
			return o.behind(s)
		}
		return o.wait(s, o.stream)
	})
	if err != nil {
		return failure(o.rank, "SetStream", err)
	}
	o.stream = s
	if o.eager {
		o.id, _ = s.ID()
	}
	return nil
}

// there reports whether the stream is the last operation's: where callers destroy
// streams, another one may have its handle.
func (o *order) there() bool {
	if !o.eager || !o.busy {
		return true
	}
	id, err := o.stream.ID()
	return err == nil && id == o.id
}

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

// wait makes a stream wait for what is on another one. What is captured belongs to
// its graph, which other streams do not wait for.
func (o *order) wait(s, on driver.Stream) error {
	for _, one := range [...]driver.Stream{s, on} {
		if captured, err := one.Capturing(); captured || err != nil {
			return err
		}
	}
	if err := o.event.Record(on); err != nil {
		return err
	}
	return s.WaitEvent(o.event)
}

// begin makes the operation that is enqueued next be on its stream, behind what is on
// the others that it was called on.
func (o *order) begin(d *executor.Op) error {
	if err := o.Stream(d.Stream); err != nil {
		return err
	}
	o.busy, o.open = true, true
	return o.each(d, func(s driver.Stream) error { return o.wait(o.stream, s) })
}

// end makes what comes on the other streams be behind the operation.
func (o *order) end(d *executor.Op) error {
	return o.each(d, func(s driver.Stream) error { return o.wait(s, o.stream) })
}

// done comes behind what was enqueued, when its call is about to return.
func (o *order) done() error {
	if !o.eager {
		return nil
	}
	return o.dev.in(o.mark)
}

// mark puts the event behind the last operation. What is captured is left out, as it
// is by wait.
func (o *order) mark() error {
	if !o.open {
		return nil
	}
	o.open = false
	if captured, err := o.stream.Capturing(); captured || err != nil {
		o.captured = o.captured || captured
		return err
	}
	if err := o.event.Record(o.stream); err != nil {
		return err
	}
	o.marked.Store(true)
	return nil
}

// Idle implements executor.Executor.
func (o *order) Idle() bool {
	idle := true
	if !o.marked.Load() {
		return idle
	}
	_ = o.dev.in(func() error {
		done, err := o.event.Query()
		idle = done || err != nil
		return nil
	})
	return idle
}

// behind makes a stream wait for the last operation, whose own may be gone.
func (o *order) behind(s driver.Stream) error {
	if err := o.mark(); err != nil || !o.marked.Load() {
		return err
	}
	if captured, err := s.Capturing(); captured || err != nil {
		return err
	}
	return s.WaitEvent(o.event)
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
