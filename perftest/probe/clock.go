//go:build cgo && linux

package probe

// #include "loop.h"
import "C"

import "time"

// A clock turns the processor's cycle counter into time. Its rate is measured,
// not read from anywhere: what /proc/cpuinfo says is another clock's.
type clock struct {
	cycles uint64
	at     time.Time
	rate   float64 // cycles a nanosecond
}

// newClock takes a moment to measure the rate.
func newClock() *clock {
	c := &clock{cycles: uint64(C.cycles_now()), at: time.Now()}
	time.Sleep(20 * time.Millisecond)
	c.tune()
	return c
}

// tune measures the rate again, over all the time since the clock was made: the
// longer, the better.
func (c *clock) tune() {
	c.rate = float64(uint64(C.cycles_now())-c.cycles) / float64(time.Since(c.at))
}

// of returns a time in cycles.
func (c *clock) of(d time.Duration) uint64 { return uint64(float64(d) * c.rate) }

// ns returns cycles in nanoseconds.
func (c *clock) ns(cycles uint64) float64 { return float64(cycles) / c.rate }
