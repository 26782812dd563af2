// Package slots implements the common part of transports whose networks move messages
// between slots in registered memory. A network adds only its own calls, and needs to
// know nothing else of the ranks.
//
// # Connections
//
// Ranks find each other by a rendezvous.Point. A Tx dials its peer's Point and sends the
// number of the device that it wants, its longest message, and the network's own data
// (Conn.Ask). The receiver uses its own device of that number and answers with its
// network's data, or with the reason why there is no connection (Conn.Answer).
//
// The TCP connection stays open. When it ends without a goodbye, the peer has died, which
// networks notice late or never; and it carries the goodbye, below.
//
// # Messages
//
// Each end has N slots. A slot holds a header (format.go), followed by the memory that
// Reserve returns: the network moves both, whole and in order. Memory that callers Post
// is copied, as it is not registered.
//
// # Goodbye
//
// Networks do not handle the loss of a connection with pending requests well. So the end
// that closes first starts no more requests and says so over TCP, with a number; the
// other end then does the same (Conn.Bye). The network decides what has to happen before
// and after that (End.Settle). If a peer has died or does not answer within seconds, its
// connections are closed as they are.
package slots

import (
	"context"
	"fmt"
	"net/netip"
	"time"

	"github.com/assay-hpc/assay/coll/transport"
)

// N is the number of slots of each end of a connection.
const N = 8

// Options configure an Endpoint. Rank, Key and Fault must be given.
type Options struct {
	Rank  int    // of this process in the communicator
	Comm  []byte // identifies the communicator; connections from other communicators are rejected as strangers
	Key   []byte // secret of the communicator, 16 bytes or more
	Fault *transport.Fault

	// Addrs are this host's addresses for the TCP connections over which ranks set up
	// their connections. None means the loopback address.
	Addrs []netip.Addr

	// First is the device of channel 0; the following channels use the following devices.
	// Ranks of one host have different numbers.
	First int

	MaxMessage int           // bytes; 0: DefaultMaxMessage; two peers use the smaller of their values
	Timeout    time.Duration // how long a peer's host may be silent on TCP; 0: DefaultTimeout

	Logf func(format string, args ...any) // logs strangers, and failures that others report; may be nil
}

// DefaultMaxMessage is the default of Options.MaxMessage, in bytes.
const DefaultMaxMessage = 512 << 10

// DefaultTimeout is the default of Options.Timeout.
const DefaultTimeout = 30 * time.Second

// MostMessage is the length of the longest possible message, in bytes.
const MostMessage = 1 << 29

// Limit limits messages to most bytes.
func (o *Options) Limit(most int) {
	if o.MaxMessage == 0 {
		o.MaxMessage = DefaultMaxMessage
	}
	o.MaxMessage = min(o.MaxMessage, most)
}

// OneLine joins several errors into one with a one-line text. It returns nil for none.
func OneLine(errs []error) (err error) {
	for _, e := range errs {
		if err == nil {
			err = e
			continue
		}
		err = fmt.Errorf("%w; %w", err, e)
	}
	return err
}

// A Network is the part that each transport implements itself.
type Network interface {
	Name() string   // the name in NCCL_NET
	String() string // in errors and logs
	Devices() int   // number of devices, which channels use in turn; at least one
	Tx(*Conn) Sender
	Rx(*Conn) Receiver
	Close() error // called after all connections are freed
}

// An End is a network's part of one end of a connection. Its methods are called with the
// connection's lock held; they do not block and do not allocate.
type End interface {
	// Settle advances the goodbye, which begins when this side closes or the peer has
	// said goodbye: it calls Bye once no pending request prevents it, and does whatever
	// the network needs after that. It is called repeatedly until it reports that this is
	// done, or hopeless, and not called after a failure.
	Settle() bool
	// Free releases the network's resources of the connection. It is called twice if the
	// connection could not be made. After an error the network may still write to the
	// connection's memory, which is then never used again.
	Free() error
}

// A Sender is the sending End.
type Sender interface {
	End
	// Connect sets up the connection. It is called without the lock, and calls Ask,
	// MakeSlots and Watch, and Made at the end.
	Connect(ctx context.Context) error
	// Room reports whether the network is finished with the slot of the next message, and
	// the receiver has a free slot for it.
	Room() bool
	// Send starts to send the message in slot i, of n bytes including its header.
	Send(i uint32, n int)
	// Idle makes progress on pending messages, and reports whether there are none. It is
	// called only where Lazy is true.
	Idle() bool
	// Lazy reports whether messages make progress only during calls.
	Lazy() bool
}

// A Receiver is the receiving End.
type Receiver interface {
	End
	// Accept sets up the connection. It is called without the lock, and calls MakeSlots,
	// Answer and Watch, and Made at the end. asked is the data from the sender's Ask. If
	// Accept fails before Answer, the sender receives the error.
	Accept(ctx context.Context, asked []byte) error
	// Arrived reports whether message Count is in its slot.
	Arrived() bool
	// Release returns the slot of message Count-1 to the sender.
	Release()
}
