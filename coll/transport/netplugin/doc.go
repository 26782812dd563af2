// Package netplugin is the transport over an NCCL network plugin: a shared library
// libnccl-net.so, loaded at run time, with which vendors add networks that this program
// has no code for, such as EFA. Versions 8 to 12 of the interface are supported; the
// newest that a library has is used.
//
// Without cgo this package contains no transport, and Load returns an error that says so.
//
// # Connections
//
// Package slots does everything that is not specific to the plugin. A plugin connects two
// ranks by a handle: the receiver listens, the sender gets the handle and connects, the
// receiver accepts, and none of these calls blocks. So the receiver's answer to the
// sender's ask is the handle, and both sides repeat their calls until the plugin reports
// that they are connected. Each connection is set up on its own thread (endpoint.go):
// some plugins keep state per thread, some block.
//
// # Messages
//
// A message is one send of the plugin. Its length is in the header, because not every
// plugin's test returns it. The receiver keeps a receive pending for each free slot, so
// that a plugin's own flow control, in which a send waits for a receive, serves as ours.
// All messages of a connection have one tag, and receives are not grouped.
//
// # Goodbye
//
// A sender reports how many messages it has sent, a receiver how many receives it has
// started. Then the sender sends empty messages for surplus receives, or the receiver
// receives surplus messages.
//
// # Reductions in the network
//
// A plugin may have a second table, for a network that reduces, such as SHARP
// (ncclCollNetPlugin_v8 to _v12). A CollNet is that table. Each host's first rank, its
// head, listens; with the handles of all heads, which the communicator's bootstrap
// exchanges, the heads become one group (Heads) in one call, which may block. Each
// message that a head commits is one collective of the group, in its own slot of
// registered memory. There can be as many pending collectives as slots. Headers do not go
// through the network: a head's results have its own headers.
package netplugin

import (
	"errors"
	"fmt"
)

// ErrUnavailable means that there is no plugin: the build has no cgo, no library was
// found, or the library is not a plugin.
var ErrUnavailable = errors.New("no network plugin")

// Limits of the interface.
const (
	HandleSize  = 128 // bytes of the handle that a listener returns and a sender connects to
	MaxRequests = 32  // pending requests of one connection
)

// PtrHost is the bit of Properties.PtrSupport for host memory.
const PtrHost = 1

// Properties describe a network device, as the plugin reports it.
type Properties struct {
	Name       string
	PtrSupport int     // kinds of memory, a bit mask: 1 host, 2 CUDA, 4 DMA-BUF
	Speed      int     // of the port in Mbit/s
	Port       int     // number of the port
	Latency    float32 // in microseconds; 0: unknown
	MaxComms   int     // maximum number of connections
	MaxRecvs   int     // maximum number of receives in a group
	MaxBytes   uint64  // longest message, or collective of a network that reduces
	Offload    int     // 0: the processor moves the data; others need a GPU's kernels
	Parts      int     // number of devices that it consists of
}

// A Line is a line that the plugin logs.
type Line struct {
	Level      Level
	Subsystems uint64 // NCCL's subsystem bits
	Text       string
}

// A Level is the level of a Line, in NCCL's numbering.
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

// Error returns the meaning of the number, with the number.
func (r Result) Error() string {
	text := "unknown error"
	if r > 0 && int(r) < len(results) {
		text = results[r]
	}
	return fmt.Sprintf("%s (%d)", text, int(r))
}
