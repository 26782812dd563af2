package probe

import (
	"math"
	"time"

	"github.com/assay-hpc/assay/perftest/probe/wire"
)

// The tools' limits and defaults; those of release 4.5.
const (
	minIterations     = 5
	maxIterations     = 100_000_000
	maxSize           = math.MaxInt32
	sweepTo           = 8 << 20 // -a: the last size
	maxTxDepth        = 15000
	maxRxDepth        = 16384
	maxQPs            = 16384
	maxCQMod          = 1024
	maxInline         = 912
	maxInlineUD       = 884
	maxFlowLabel      = 1<<20 - 1
	maxGIDIndex       = 64
	peakUpTo          = 20000 // iterations: beyond that the peak is not looked for
	bulky             = 8192  // bytes: completions of larger messages are not moderated
	uncountedRx       = 16000 // receives posted by UC and UD at most
	defaultTx         = 128
	defaultRx         = 512
	defaultCQMod      = 100
	defaultAckTimeout = 14
	defaultRetries    = 7
	defaultPeriod     = 5 * time.Second // of reports that never end
)

// Iters is how many messages each queue pair sends, 0 if time decides.
func (c *Config) Iters() uint64 {
	switch {
	case c.Duration > 0 || c.Endless:
		return 0
	case c.Iterations > 0:
		return c.Iterations
	case c.Operation == Write && c.Measure == Bandwidth:
		return 5000
	}
	return 1000
}

// MessageSize is the size of a test of one size. mtu limits what a datagram
// carries; 0 is no limit.
func (c *Config) MessageSize(mtu int) uint64 {
	size := uint64(65536)
	switch {
	case c.Operation == Atomic:
		return 8
	case c.Size > 0:
		return c.Size
	case c.Measure == Latency:
		size = 2
	}
	if c.Connection == UD && mtu > 0 {
		size = min(size, uint64(mtu))
	}
	return size
}

// Sizes are all that are measured, one after another.
func (c *Config) Sizes(mtu int) []uint64 {
	if !c.All {
		return []uint64{c.MessageSize(mtu)}
	}
	var out []uint64
	for s := uint64(2); s <= c.LargestSize(mtu); s *= 2 {
		out = append(out, s)
	}
	return out
}

// LargestSize is the last of Sizes, which buffers are made for.
func (c *Config) LargestSize(mtu int) uint64 {
	switch {
	case !c.All:
		return c.MessageSize(mtu)
	case c.Connection == UD && mtu > 0:
		return min(sweepTo, uint64(mtu))
	}
	return sweepTo
}

// CheckMTU refuses a datagram that is larger than the path's MTU.
func (c *Config) CheckMTU(mtu int) error {
	if c.Connection == UD && !c.All && c.MessageSize(mtu) > uint64(mtu) {
		return flagErrorf("-s", "a UD message has at most the MTU's %d bytes, not %d: give a smaller -s, or -c RC", mtu, c.MessageSize(mtu))
	}
	return nil
}

// SendDepth is how many sends a queue pair has posted at a time.
func (c *Config) SendDepth() int {
	depth := c.TxDepth
	switch {
	case c.Measure == Latency && depth == 0:
		return 1
	case depth == 0:
		depth = max(defaultTx, c.PostList)
	}
	return lowered(depth, c.Iters())
}

// lowered is no more than the iterations, if those are limited.
func lowered(depth int, iterations uint64) int {
	if iterations > 0 && uint64(depth) > iterations {
		return int(iterations)
	}
	return depth
}

// ReceiveDepth is how many receives a queue pair has posted at a time: 1 in
// tests that receive nothing. Unreliable receivers post all they can, since
// what finds none posted is lost.
func (c *Config) ReceiveDepth() int {
	if c.Operation != Send {
		return 1
	}
	depth, n := c.RxDepth, c.Iters()
	switch {
	case depth == 0 && c.Connection != RC && n > 0:
		depth = int(min(n, uncountedRx))
	case depth == 0:
		depth = defaultRx
	}
	depth = lowered(depth, n)
	if depth > 1 && depth%2 == 1 && !c.All {
		depth++
	}
	return depth
}

// eachReceives is how many of them a QP posts: with one queue for all its part.
func (c *Config) eachReceives() int {
	if c.SRQ {
		return c.ReceiveDepth() / max(c.QPs, 1)
	}
	return c.ReceiveDepth()
}

// flowLabel is QP i's.
func (c *Config) flowLabel(i int) uint32 {
	if len(c.FlowLabels) == 0 {
		return 0
	}
	return c.FlowLabels[i%len(c.FlowLabels)]
}

// CQMod is after how many messages one asks for a completion.
func (c *Config) CQMod() int {
	switch {
	case c.Measure == Latency:
		return 1
	case c.PostList > 1:
		return c.PostList
	}
	mod := c.CQModeration
	if mod == 0 {
		if c.MessageSize(0) > bulky && !c.All && c.Connection != UD && !c.Events {
			return 1
		}
		mod = defaultCQMod
	}
	mod = min(mod, c.SendDepth())
	if c.Operation == Send {
		mod = min(mod, c.ReceiveDepth())
	}
	return mod
}

// InlineSize is how many bytes a message may have to be put into the work
// request itself. known is set for NICs of NVIDIA, which have a default of
// their own in latency tests.
func (c *Config) InlineSize(known bool) int {
	switch {
	case c.Operation == Read || c.Operation == Atomic || c.OnGPU():
		return 0
	case c.Inline >= 0 && c.Connection == UD:
		return min(c.Inline, maxInlineUD)
	case c.Inline >= 0:
		return c.Inline
	case c.Measure == Bandwidth || !known:
		return 0
	case c.Operation == Write:
		return 220
	case c.Connection == UD:
		return 188
	}
	return 236
}

// OnGPU reports whether the data lies in a GPU's memory.
func (c *Config) OnGPU() bool { return c.GPU >= 0 || c.GPUBusID != "" }

// RelaxedOrdering reports whether memory is registered for relaxed ordering:
// never where the processor waits for the last byte of a write.
func (c *Config) RelaxedOrdering() bool {
	return c.Relaxed && (c.Operation != Write || c.Measure != Latency)
}

// Peak reports whether the peak bandwidth is looked for.
func (c *Config) Peak() bool {
	n := c.Iters()
	return c.Measure == Bandwidth && !c.NoPeak && n > 0 && n <= peakUpTo
}

// Window divides the duration: before what is sampled, as long as behind it, and within.
func (c *Config) Window() (before, sampled time.Duration) {
	m := c.Margin
	if m < 0 {
		m = (c.Duration / 4).Truncate(time.Second)
	}
	return m, c.Duration - 2*m
}

// Period is after how long an endless test reports.
func (c *Config) Period() time.Duration {
	if c.Duration > 0 {
		return c.Duration
	}
	return defaultPeriod
}

// RoundTrips is by how many the time between two messages is divided: writes
// and sends go there and back.
func (c *Config) RoundTrips() int {
	if c.Operation == Write || c.Operation == Send {
		return 2
	}
	return 1
}

// Network is the control channel's.
func (c *Config) Network() string {
	if c.IPv6TCP {
		return "tcp6"
	}
	return "tcp"
}

// Wire are the control channel's options. rejected is told of connections that
// were no client's.
func (c *Config) Wire(rejected func(error)) wire.Options {
	return wire.Options{Network: c.Network(), Source: c.Source, Retry: c.Wait, Timeout: c.Timeout, Rejected: rejected}
}

// Params is the parameter block for a peer of release 26.01.5. maxReads is the
// device's maximum of reads in flight.
func (c *Config) Params(mtu int, maxReads int32) wire.Params {
	p := wire.Params{
		Sizes: "one size", Connection: c.Connection.String(), Verb: c.Operation.String(), Test: "latency", Mode: "iterations", Format: "MiB/s",
		Size: c.LargestSize(mtu), Iterations: c.Iters(), QPs: c.QPs, Duration: int(c.Period() / time.Second), MaxReads: maxReads,
	}
	if c.All {
		p.Sizes = "all sizes"
	}
	if c.Endless {
		p.Sizes = "endless"
	}
	if c.Measure == Bandwidth {
		p.Test = "bandwidth"
	}
	if c.Operation == Atomic && !c.CompareAndSwap {
		p.Atomic = 1
	}
	if c.Duration > 0 || c.Endless {
		p.Mode = "duration"
	}
	if c.ControlsByCM() {
		p.ControlCM = 1
	}
	if c.Gbits {
		p.Format = "Gb/s"
	}
	return p
}
