// Package netplugin is the transport over a network plugin of NCCL's: a shared
// library libnccl-net.so, looked up when the program runs, by which vendors
// bring networks that we have no code for, such as EFA's. Versions 8 to 12 of
// the interface are supported, the newest that a library has is used.
//
// Without cgo there is no code here, and Load says so.
//
// # Connections
//
// Package slots has all that is not the plugin's. A plugin connects two ranks
// by a handle: the receiver listens, the sender gets the handle and connects,
// the receiver accepts, and none of these calls blocks. So the receiver's answer
// to a sender that asks is the handle, and both sides go on until the plugin
// says that they are connected. Each connection is made on a thread of its own
// (endpoint.go): some plugins keep state by thread, some block.
//
// # Messages
//
// A message is one send of the plugin's. Its length is in the header, for not
// every plugin's test tells it. The receiver keeps a receive under way for each
// slot that is free, so that a plugin's own flow control, which lets a send wait
// for a receive, is ours as well. All messages of a connection have one tag, and
// receives are not grouped.
//
// # Goodbye
//
// A sender says how many messages it has sent, a receiver how many receives it
// has begun. Then the sender sends empty messages for receives that are too
// many, or the receiver takes messages that are.
//
// # Reductions in the network
//
// A plugin may have a second table, for a network that reduces, such as SHARP's
// (ncclCollNetPlugin_v8 to _v12). A CollNet is that table. Each host's first
// rank, its head, listens; with the handles of all, which the communicator's
// bootstrap exchanges, the heads become one group (Heads) in one call, which may
// block. What a head commits is one collective of the group, in its own slot of
// registered memory. As many as there are slots are under way at once. Headers
// do not go through the network: a head sees its own again.
package netplugin

import (
	"errors"
	"fmt"
)

// ErrUnavailable is why there is no plugin: the build has no cgo, no library
// was found, or it is none.
var ErrUnavailable = errors.New("no network plugin")

// Limits of the interface.
const (
	HandleSize  = 128 // bytes of what a listener gives and a sender connects to
	MaxRequests = 32  // of one connection, under way at once
)

// PtrHost is the bit of Properties.PtrSupport for memory of the processor.
const PtrHost = 1

// Properties are those of a network device, as the plugin says them.
type Properties struct {
	Name        string
	PCIPath     string // of the device in /sys; "" for a virtual one
	GUID        uint64
	PtrSupport  int     // kinds of memory: 1 the processor's, 2 CUDA's, 4 by DMA-BUF, added up
	RegIsGlobal bool    // registered memory serves all connections
	Speed       int     // of the port in Mbit/s
	Port        int     // number of the port
	Latency     float32 // in microseconds; 0: the plugin does not say
	MaxComms    int     // so many connections can be made
	MaxRecvs    int     // so many receives can be grouped
	MaxBytes    uint64  // longest message, or collective of a network that reduces
	Offload     int     // 0: the processor moves the data; others need a GPU's kernels
	Parts       int     // devices that it consists of
}

// A Line is one that the plugin logs.
type Line struct {
	Level      Level
	Subsystems uint64 // NCCL's bits, of what it is about
	Text       string
}

// A Level is a plugin's line's, by NCCL's numbers.
type Level int

// The levels that plugins log at.
const (
	Warn  Level = 2
	Info  Level = 3
	Trace Level = 5
)

// A Result is an ncclResult_t that is an error.
type Result int

var results = [...]string{1: "unhandled CUDA error", "system error", "internal error", "invalid argument", "invalid usage", "remote error", "in progress", "timeout"}

// Error is what the number stands for, with the number.
func (r Result) Error() string {
	text := "unknown error"
	if r > 0 && int(r) < len(results) {
		text = results[r]
	}
	return fmt.Sprintf("%s (%d)", text, int(r))
}
