package choose

import (
	"math"
	"time"
)

// BytesPerSec is a bandwidth. GBps is the unit of the hardware data base.
type BytesPerSec float64

// GBps is 1e9 bytes a second.
const GBps BytesPerSec = 1e9

// perByte is the seconds that a byte takes; a rate of 0 costs nothing.
func (r BytesPerSec) perByte() float64 {
	if r <= 0 {
		return 0
	}
	return 1 / float64(r)
}

// A Protocol is how messages move.
type Protocol uint8

// The protocols. On host memory Simple posts memory where the transport spares a
// copy by that, in windows that follow one another; LL is for low latency: a
// message is written to a slot and read from it, at the price of a second copy;
// there is no LL128.
const (
	Simple Protocol = iota
	LL
	LL128
)

var protocols = [...]string{"Simple", "LL", "LL128"}

// String is NCCL's name.
func (p Protocol) String() string { return protocols[p] }

// A Cost is what messages cost over a transport.
type Cost struct {
	Latency time.Duration // from Commit or Post to the receiver's going on, of an empty message
	Message time.Duration // a rank's work for each message
	Rate    BytesPerSec   // of one channel
	Port    BytesPerSec   // of all channels together: of a rank within a group, of a group between them
}

// A Transport is a kind of transport with its costs.
type Transport struct {
	Name       string // as transport.Endpoint has it: "SHM", "Socket", …
	Simple, LL Cost
	Reduce     BytesPerSec // of one core, combining two operands
}

// The default costs. Those of shared memory are rounded from what harness coll
// tune measured with two ranks on two cores of an AMD EPYC of 2024; those of
// TCP are of loopback there: a round trip 42 µs, a stream 1.6 GB/s. They only
// have to give the order of algorithms where nothing was measured.
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

// plan is one way of running an operation whose time is wanted.
type plan struct {
	form
	bytes    float64
	channels float64
	window   float64 // bytes of a message at most
	protocol Protocol
}

// time is latency and bandwidth of a plan in seconds. Work is done by as many
// cores as there are: crowded is ranks for each core of the busiest machine.
// All ranks must come to the same, whatever processor and compiler they have:
// conversions round products before they are added, which some do and others
// do not otherwise.
func (p plan) time(local, net Transport, crowded float64) float64 {
	t, work := 0.0, 0.0
	add := func(c Cost, reduce BytesPerSec, steps, messages, bytes, reduced float64) {
		// A core can drive more channels than one, but not faster for it.
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

// window is the size of message that suits a pipeline best: the square root of
// bytes times latency over depth and time per byte, which makes filling and
// overhead equal; else the largest that there is.
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

// minWindow keeps windows larger than what a message costs anyway.
const minWindow = 4 << 10

// ln and exp stand in for those of package math, which are made of other
// instructions on other processors, and rounded in other ways.
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
