package choose

import (
	"math"
	"time"
)

// BytesPerSec is a bandwidth. GBps is the unit of the hardware database.
type BytesPerSec float64

// GBps is 1e9 bytes a second.
const GBps BytesPerSec = 1e9

// perByte returns the seconds per byte; a rate of 0 costs nothing.
func (r BytesPerSec) perByte() float64 {
	if r <= 0 {
		return 0
	}
	return 1 / float64(r)
}

// A Protocol is how messages move.
type Protocol uint8

// The protocols. On host memory, Simple posts the caller's memory where that saves the
// transport a copy, in windows that follow one another. LL is for low latency: a message is
// written to a slot and read from it, at the price of a second copy. There is no LL128.
const (
	Simple Protocol = iota
	LL
	LL128
)

var protocols = [...]string{"Simple", "LL", "LL128"}

// String returns NCCL's name.
func (p Protocol) String() string { return protocols[p] }

// A Cost is what messages cost over a transport.
type Cost struct {
	Latency time.Duration // of an empty message, from Commit or Post until the receiver continues
	Message time.Duration // a rank's work for each message
	Rate    BytesPerSec   // of one channel
	Port    BytesPerSec   // of all channels together: of a rank within groups, of a group between groups
}

// A Transport is a kind of transport with its costs.
type Transport struct {
	Name       string // as in transport.Endpoint: "SHM", "Socket", …
	Simple, LL Cost
	Reduce     BytesPerSec // of one core, combining two operands
}

// The default costs. Those of shared memory are rounded from what harness coll tune measured
// with two ranks on two cores of an AMD EPYC of 2024; those of TCP are from loopback on the
// same machine: 42 µs for a round trip, 1.6 GB/s for a stream. They only have to rank the
// algorithms correctly where nothing was measured.
var (
	// SHM is shared memory between processes.
	SHM = Transport{
		Name:   "SHM",
		Simple: Cost{Latency: 150, Message: 60, Rate: 20 * GBps, Port: 40 * GBps},
		LL:     Cost{Latency: 100, Message: 50, Rate: 8 * GBps, Port: 16 * GBps},
		Reduce: 15 * GBps,
	}
	// Socket is TCP.
	Socket = Transport{
		Name:   "Socket",
		Simple: Cost{Latency: 22 * time.Microsecond, Message: 6 * time.Microsecond, Rate: 1.6 * GBps, Port: 4 * GBps},
		LL:     Cost{Latency: 20 * time.Microsecond, Message: 5 * time.Microsecond, Rate: 1.2 * GBps, Port: 3 * GBps},
		Reduce: 8 * GBps,
	}
)

func (t Transport) cost(p Protocol) Cost {
	if p == LL {
		return t.LL
	}
	return t.Simple
}

// plan is one possible execution of an operation, for which the model computes the time.
type plan struct {
	form
	bytes    float64
	channels float64
	window   float64 // bytes of a message at most
	protocol Protocol
}

// time returns how long a plan takes, from latency and bandwidth, in seconds. Ranks share the
// cores that there are: crowded is the number of ranks per core of the busiest machine. All
// ranks must get the same result, whatever CPU and compiler they have. The conversions to
// float64 round products before they are added; without them, some platforms would round here
// and others would not.
func (p plan) time(local, net Transport, crowded float64) float64 {
	t, work := 0.0, 0.0
	add := func(c Cost, reduce BytesPerSec, steps, messages, bytes, reduced float64) {
		// A core can drive several channels, but is not faster for it.
		rate := min(c.Rate*BytesPerSec(max(1, p.channels/max(1, crowded))), c.Port)
		moved := bytes * p.bytes
		windows := messages * p.channels
		if messages > 0 {
			windows = max(windows, moved/p.window)
		}
		if p.pipelined {
			t += float64(steps * min(p.window*p.channels, p.bytes) * rate.perByte())
		}
		t += float64(steps * c.Latency.Seconds())
		work += float64(windows*c.Message.Seconds()) + float64(moved*rate.perByte()) + reduced*p.bytes*reduce.perByte()/p.channels
	}
	add(local.cost(p.protocol), local.Reduce, p.steps, p.messages, p.form.bytes, p.reduced)
	if p.netSteps > 0 {
		add(net.cost(p.protocol), 0, p.netSteps, p.netMessages, p.netBytes, 0)
	}
	return t + float64(work*max(1, crowded))
}

// best returns the size of message that suits a pipeline best: the square root of bytes times
// the cost per message over depth and time per byte, which makes filling and overhead equal.
// Without a pipeline it returns the largest size.
func (p plan) best(local, net Transport, slot float64) float64 {
	if !p.pipelined {
		return slot
	}
	c, steps := local.cost(p.protocol), p.steps
	if p.netSteps > 0 {
		c, steps = net.cost(p.protocol), p.netSteps
	}
	part := p.bytes / p.channels
	w := math.Sqrt(part * c.Message.Seconds() / (max(1, steps) * c.Rate.perByte()))
	return min(slot, max(minWindow, w))
}

// minWindow keeps windows from being so small that the cost per message dominates.
const minWindow = 4 << 10

// ln and exp replace those of package math, which use different instructions on different CPUs
// and therefore round differently.
func ln(x float64) float64 {
	f, e := math.Frexp(x)
	s, sum := (f-1)/(f+1), 0.0
	for k := 41; k > 0; k -= 2 { // of the series of artanh
		sum = float64(sum*s*s) + 1/float64(k)
	}
	return float64(2*s*sum) + float64(float64(e)*math.Ln2)
}

func exp(x float64) float64 {
	n := math.Floor(x/math.Ln2 + 0.5)
	x -= float64(n * math.Ln2)
	sum := 1.0
	for k := 20.0; k > 0; k-- {
		sum = 1 + float64(sum*x)/k
	}
	return math.Ldexp(sum, int(n))
}
