//go:build cuda && cgo

package cuda

import (
	"slices"

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
	busy   bool          // there was an operation
	left   bool          // there will be none: event is behind the last one
	lost   error         // why it is not
}

// Stream implements executor.Executor.
func (o *order) Stream(stream uintptr) error {
	s := driver.Stream(stream)
	if s == o.stream {
		return nil
	}
	err := o.dev.in(func() error {
		if !o.busy {
			return nil
		}
		return o.wait(s, o.stream)
	})
	if err != nil {
		return failure(o.rank, "SetStream", err)
	}
	o.stream = s
	return nil
}

// Leave implements executor.Executor.
func (o *order) Leave() {
	if o.left {
		return
	}
	o.left = true
	if o.busy {
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
	o.busy = true
	return o.each(d, func(s driver.Stream) error { return o.wait(o.stream, s) })
}

// end makes what comes on the other streams be behind the operation.
func (o *order) end(d *executor.Op) error {
	return o.each(d, func(s driver.Stream) error { return o.wait(s, o.stream) })
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
