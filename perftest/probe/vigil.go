package probe

import (
	"fmt"
	"maps"
	"time"

	"github.com/assay-hpc/assay/internal/host/sysfs"
	"github.com/assay-hpc/assay/perftest/probe/wire"
)

// A vigil decides how long a side waits for a peer that measures, which it cannot see: nothing is
// exchanged meanwhile, and a write or read needs no work of this side's processor. The port's
// counters show that something moves. If they stand still for quiet, or if the test has taken longer
// than any such test can, the peer hangs.
type vigil struct {
	counters     func() map[string]uint64 // empty: the device has none
	quiet, most  time.Duration            // most: 0 is no limit
	port         string                   // as shown
	last         map[string]uint64
	began, moved time.Time
	now          func() time.Time
}

// newVigil watches a port from now on.
func newVigil(c *Config, device string, port int, quiet time.Duration) *vigil {
	tree, err := sysfs.Open("/")
	v := &vigil{quiet: quiet, most: c.longest(quiet), port: fmt.Sprintf("%s port %d", device, port), now: time.Now}
	v.counters = func() map[string]uint64 {
		if err != nil {
			return nil
		}
		all, _ := tree.Counters(device, port) // without counters the time decides
		return all
	}
	v.begin()
	return v
}

func (v *vigil) begin() { v.last, v.began, v.moved = v.counters(), v.now(), v.now() }

// vigilSteps is how often a vigil looks within its quiet time.
const vigilSteps = 8

func (v *vigil) step() time.Duration { return max(v.quiet/vigilSteps, 10*time.Millisecond) }

// wire is the vigil as package wire takes it.
func (v *vigil) wire() wire.Vigil { return wire.Vigil{Step: v.step(), Ended: v.ended} }

// ended returns why the peer is given up, or "".
func (v *vigil) ended() string {
	now, counters := v.now(), v.counters()
	if !maps.Equal(counters, v.last) {
		v.last, v.moved = counters, now
	}
	most := v.most
	if len(counters) == 0 && most == 0 {
		most = unwatched
	}
	switch {
	case len(counters) > 0 && now.Sub(v.moved) >= v.quiet:
		return fmt.Sprintf("it is connected and silent, and no counter of %s has changed for %v: it hangs or is stopped (SIGSTOP, a debugger), or the network between the two ports is down (--timeout sets this time)", v.port, v.quiet)
	case most > 0 && now.Sub(v.began) >= most:
		return fmt.Sprintf("it should have ended its measurement after %v at the latest: it hangs, or was started with more messages or a longer time (-n, -D, -s, -q) than this side", most)
	}
	return ""
}

// unwatched limits an endless test where no counter shows whether it goes on.
const unwatched = 24 * time.Hour

// The slowest test that counts as one: a link of 100 Mb/s, and 10 ms for each message.
const (
	slowestRate    = 100e6 / 8
	slowestMessage = 10 * time.Millisecond
)

// longest is the time in which any such test is done, including the time limit of one exchange; 0
// for a test without an end.
func (c *Config) longest(exchange time.Duration) time.Duration {
	switch {
	case c.Endless:
		return 0
	case c.Duration > 0:
		return c.Duration + 2*exchange
	}
	messages := float64(c.Iters()) * float64(c.QPs)
	seconds := 0.0
	for _, size := range c.Sizes(0) {
		seconds += messages * (slowestMessage.Seconds() + float64(size)/slowestRate)
	}
	return exchange + time.Duration(min(seconds, 1e8)*float64(time.Second))
}
