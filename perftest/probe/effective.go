package probe

import (
	"cmp"
	"math"
	"time"

	"github.com/assay-hpc/assay/perftest/probe/wire"
)

// The limits and defaults of the tools of release 4.5.
const (
	minIterations     = 5
	maxIterations     = 100_000_000
	maxSize           = math.MaxInt32
	sweepTo           = 8 << 20 // -a: the largest size
	maxTxDepth        = 15000
	maxRxDepth        = 16384
	maxQPs            = 16384
	maxCQMod          = 1024
	maxPollBatch      = 65535
	defaultPollBatch  = 16
	maxInline         = 912
	maxInlineUD       = 884
	maxFlowLabel      = 1<<20 - 1
	maxGIDIndex       = 64
	peakUpTo          = 20000 // iterations: with more, the peak is not determined
	bulky             = 8192  // bytes: completions of larger messages are not moderated
	uncountedRx       = 16000 // the largest number of receives that UC and UD post
	defaultTx         = 128
	defaultRx         = 512
	defaultCQMod      = 100
	defaultAckTimeout = 14
	defaultRetries    = 7
	defaultPeriod     = 5 * time.Second // between reports of endless tests
	defaultWait       = time.Hour       // of a server for its client
)

// Iters is the number of messages that each queue pair sends, 0 if time decides.
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

// MessageSize is the size of the messages of a test with a single size. mtu limits the size of a
// datagram; 0 is no limit.
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

// Sizes returns all sizes that are measured, in order.
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

// LargestSize is the last of Sizes, for which buffers are allocated.
func (c *Config) LargestSize(mtu int) uint64 {
	switch {
	case !c.All:
		return c.MessageSize(mtu)
	case c.Connection == UD && mtu > 0:
		return min(sweepTo, uint64(mtu))
	}
	return sweepTo
}

// CheckMTU returns an error for a datagram that is larger than the path's MTU.
func (c *Config) CheckMTU(mtu int) error {
	if c.Connection == UD && !c.All && c.MessageSize(mtu) > uint64(mtu) {
		return flagErrorf("-s", "a UD message has at most the MTU's %d bytes, not %d: give a smaller -s, or -c RC", mtu, c.MessageSize(mtu))
	}
	return nil
}

// SendDepth is the number of sends that a queue pair can have posted.
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

// lowered limits the depth to the iterations, if those are limited.
func lowered(depth int, iterations uint64) int {
	if iterations > 0 && uint64(depth) > iterations {
		return int(iterations)
	}
	return depth
}

// ReceiveDepth is the number of receives that a queue pair can have posted: 1 in tests that receive
// nothing. Unreliable receivers post as many as they can, since a message without a posted receive
// is lost.
func (c *Config) ReceiveDepth() int {
	if !c.Receives() {
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

// eachReceives is the number of receives that a QP posts: its share if the QPs share one queue.
func (c *Config) eachReceives() int {
	if c.SRQ {
		return c.ReceiveDepth() / max(c.QPs, 1)
	}
	return c.ReceiveDepth()
}

// flowLabel is the flow label of QP i.
func (c *Config) flowLabel(i int) uint32 {
	if len(c.FlowLabels) == 0 {
		return 0
	}
	return c.FlowLabels[i%len(c.FlowLabels)]
}

// CQMod is the number of messages per requested completion.
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
	if c.Receives() {
		mod = min(mod, c.ReceiveDepth())
	}
	return mod
}

// InlineSize is the size in bytes up to which a message is put into the work request itself. known
// is set for NVIDIA NICs, which have their own default in latency tests.
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

// OnGPU reports whether the data is in GPU memory.
func (c *Config) OnGPU() bool { return c.GPU >= 0 || c.GPUBusID != "" }

// RelaxedOrdering reports whether memory is registered for relaxed ordering. It never is if the CPU
// waits for the last byte of a write.
func (c *Config) RelaxedOrdering() bool {
	return c.Relaxed && (c.Operation != Write || c.Measure != Latency)
}

// Peak reports whether the peak bandwidth is determined.
func (c *Config) Peak() bool {
	n := c.Iters()
	return c.Measure == Bandwidth && !c.NoPeak && n > 0 && n <= peakUpTo
}

// Window divides the duration into the time before sampling, the sampled time, and a time after it
// that is as long as the one before.
func (c *Config) Window() (before, sampled time.Duration) {
	m := c.Margin
	if m < 0 {
		m = (c.Duration / 4).Truncate(time.Second)
	}
	return m, c.Duration - 2*m
}

// Period is the time between reports of an endless test.
func (c *Config) Period() time.Duration {
	if c.Duration > 0 {
		return c.Duration
	}
	return defaultPeriod
}

// RoundTrips is the divisor for the time between two messages: writes and sends travel in both
// directions.
func (c *Config) RoundTrips() int {
	if c.Operation == Write || c.Operation == Send {
		return 2
	}
	return 1
}

// Network is the network of the control channel.
func (c *Config) Network() string {
	if c.IPv6TCP {
		return "tcp6"
	}
	return "tcp"
}

// Wire returns the options of the control channel. rejected is called for connections that are not
// from a client.
func (c *Config) Wire(rejected func(error)) wire.Options {
	return wire.Options{Network: c.Network(), Source: c.Source, Retry: c.Wait, Timeout: c.Timeout, Rejected: rejected}
}

// burstGap is the time between the bursts of messages of a size that --rate_limit allows; 0: no limit.
func (c *Config) burstGap(size uint64) time.Duration {
	if c.Rate == 0 {
		return 0
	}
	messages := c.Rate
	switch c.RateUnit {
	case "g":
		messages *= 1e9 / 8 / float64(size)
	case "M":
		messages *= (1 << 20) / float64(size)
	}
	return max(1, time.Duration(float64(c.burst())/messages*float64(time.Second)))
}

func (c *Config) burst() int { return cmp.Or(c.Burst, c.SendDepth()) }

// Params is the parameter block for a peer of release 26.01.5 or later. maxReads is the device's maximum of
// outstanding reads.
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
	if c.Immediate {
		p.Verb += " with immediate"
	}
	if c.NoReorder {
		p.NoReorder = 1
	}
	if c.Duration > 0 || c.Endless {
		p.Mode = "duration"
	}
	if c.Endless && c.Duration == 0 { // perftest leaves its default there
		counted := *c
		counted.Endless = false
		p.Iterations = counted.Iters()
	}
	if c.ControlsByCM() {
		p.ControlCM = 1
	}
	if c.Gbits {
		p.Format = "Gb/s"
	}
	return p
}
