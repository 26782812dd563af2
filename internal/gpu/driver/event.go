//go:build cuda && cgo

package driver

import (
	"time"

	"gorgonia.org/cu"
)

// An Event is a point in the work of a stream, a CUevent.
type Event uintptr

func (e Event) cu() cu.Event { return as[cu.Event](uintptr(e)) }

// EventFlags are the features of an event. Without any it only marks a point, which is
// cheapest.
type EventFlags uint8

// The flags.
const (
	Timing   EventFlags = 1 << iota // the event has a time
	Blocking                        // Synchronize sleeps, instead of spinning
)

// NewEvent creates an event in the current context.
func NewEvent(flags EventFlags) (Event, error) {
	var f cu.EventFlags
	if flags&Timing == 0 {
		f |= cu.DisableTiming
	}
	if flags&Blocking != 0 {
		f |= cu.BlockingSyncEvent
	}
	e, err := cu.MakeEvent(f)
	return Event(handle(e)), wrap("cuEventCreate", err)
}

// Destroy frees the event. Work that waits for it continues to wait.
func (e Event) Destroy() error {
	if e == 0 {
		return nil
	}
	t := e.cu()
	return wrap("cuEventDestroy", cu.DestroyEvent(&t))
}

// Record moves the event to the end of the stream, whose context must be that of
// the event.
func (e Event) Record(s Stream) error { return wrap("cuEventRecord", e.cu().Record(s.cu())) }

// Synchronize waits until the work before the event is done.
func (e Event) Synchronize() error { return wrap("cuEventSynchronize", e.cu().Synchronize()) }

// Query reports whether the work before the event is done. For an event that was never
// recorded it returns true.
func (e Event) Query() (bool, error) { return ready(wrap("cuEventQuery", e.cu().Query())) }

// Elapsed returns the time between two events with Timing, both of which must be done. Its
// accuracy is half a microsecond.
func Elapsed(from, to Event) (time.Duration, error) {
	ms, err := from.cu().Elapsed(to.cu())
	return time.Duration(ms * float64(time.Millisecond)), wrap("cuEventElapsedTime", err)
}
