//go:build cgo && linux

package probe

// #include "loop.h"
import "C"

import "time"

// A clock converts the CPU's cycle counter to time. Its rate is measured, since /proc/cpuinfo shows
// the frequency of a different clock.
type clock struct {
	cycles uint64
	at     time.Time
	rate   float64 // cycles per nanosecond
}

// newClock measures the rate for a short time.
func newClock() *clock {
	c := &clock{cycles: uint64(C.cycles_now()), at: time.Now()}
	time.Sleep(20 * time.Millisecond)
	c.tune()
	return c
}

// tune measures the rate again, over the whole time since the clock was made. A longer time gives a
// better rate.
func (c *clock) tune() {
	c.rate = float64(uint64(C.cycles_now())-c.cycles) / float64(time.Since(c.at))
}

// of returns a time in cycles.
func (c *clock) of(d time.Duration) uint64 { return uint64(float64(d) * c.rate) }

// ns returns cycles in nanoseconds.
func (c *clock) ns(cycles uint64) float64 { return float64(cycles) / c.rate }
