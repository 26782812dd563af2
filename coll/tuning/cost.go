package tuning

import (
	"math"
	"time"
)

// A Protocol is how the CPU engine moves a message.
type Protocol uint8

// The protocols.
const (
	// Simple posts memory where the transport spares a copy by that, in
	// windows that follow one another.
	Simple Protocol = iota
	// LL is for low latency: a message is written to a slot and read from it,
	// at the price of a second copy.
	LL
)

// String is NCCL's name.
func (p Protocol) String() string {
	if p == LL {
		return "LL"
	}
	return "Simple"
}

// A Cost is what messages cost over a transport.
type Cost struct {
	Latency time.Duration `json:"latency_ns"` // from Commit or Post to the receiver's going on, of an empty message
	Message time.Duration `json:"message_ns"` // a rank's work for each message
	Rate    BytesPerSec   `json:"rate"`       // of one channel
	Port    BytesPerSec   `json:"port"`       // of all channels together: of a rank within a group, of a group between them
}

// A Transport is a kind of transport with its costs.
type Transport struct {
	Name    string      `json:"name"` // as transport.Endpoint has it: "SHM", "Socket", …
	Simple  Cost        `json:"simple"`
	LL      Cost        `json:"ll"`
	Reduce  BytesPerSec `json:"reduce"`  // of one core, combining two operands
	MaxSlot int64       `json:"maxSlot"` // bytes of the largest message; 0: what NCCL_BUFFSIZE makes
}

// The default costs. Those of shared memory are rounded from what harness coll
// tune measured with two ranks on two cores of an AMD EPYC of 2024; those of
// TCP are of loopback there: a round trip 42 µs, a stream 1.6 GB/s. They only
// have to give the order of algorithms where there are no Measurements.
var (
	// InProcess is between goroutines of one process.
	InProcess = Transport{
		Name:   "P2P",
		Simple: Cost{Latency: 150, Message: 60, Rate: 20 * GBps, Port: 40 * GBps},
		LL:     Cost{Latency: 100, Message: 50, Rate: 8 * GBps, Port: 16 * GBps},
		Reduce: 15 * GBps,
	}
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

// Transports returns the default costs of a transport by its name.
func Transports(name string) (Transport, bool) {
	for _, t := range []Transport{InProcess, SHM, Socket} {
		if t.Name == name {
			return t, true
		}
	}
	return Transport{}, false
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
			t += steps * min(p.window*p.channels, p.bytes) * rate.perByte()
		}
		t += steps * c.Latency.Seconds()
		work += windows*c.Message.Seconds() + moved*rate.perByte() + reduced*p.bytes*reduce.perByte()/p.channels
	}
	add(local.cost(p.protocol), local.Reduce, p.steps, p.messages, p.form.bytes, p.reduced)
	if p.netSteps > 0 {
		add(net.cost(p.protocol), 0, p.netSteps, p.netMessages, p.netBytes, 0)
	}
	return t + work*max(1, crowded)
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
const minWindow = 4 * kib
