// Package slots is the base of transports whose networks move messages between
// slots in registered memory, and know nothing else of each other's ranks: it
// has all of them but the network's own calls.
//
// # Connections
//
// Ranks find each other by a rendezvous.Point. A Tx dials its peer's, and says
// which of its devices it would like, the longest message, and what its
// network has to add (Conn.Ask); the receiver takes its device of the same
// number and answers with what its network has to add, or why there is no
// connection (Conn.Answer).
//
// The TCP connection stays. Its end says that a peer has died, which networks
// notice late or never; and it carries the goodbye, below.
//
// # Messages
//
// Each end has N slots. A message is a header (format.go) and what Reserve gave
// out, behind it: the network moves both, whole and in order. Memory that
// callers Post is copied, as it is not registered.
//
// # Goodbye
//
// No network likes to lose a connection with requests under way. So whichever
// end closes first begins nothing any more and says so over TCP, with a number;
// the other end does the same (Conn.Bye). What has to be done before and after
// that is the network's (End.Settle). When a peer has died or does not answer
// within seconds, connections are closed as they are.
package slots

import (
	"context"
	"fmt"
	"net/netip"
	"time"

	"github.com/assay-hpc/assay/coll/transport"
)

// N is how many messages each end of a connection has room for.
const N = 8

// Options say how an Endpoint is to be. Rank, Key and Fault must be given.
type Options struct {
	Rank  int    // of this process in the communicator
	Comm  []byte // names the communicator: those of another one are strangers
	Key   []byte // secret of the communicator, 16 bytes or more
	Fault *transport.Fault

	// Addrs are this host's addresses for the TCP connections over which ranks
	// arrange theirs. None means the loopback address.
	Addrs []netip.Addr

	// First is the device of channel 0; the next ones take the next ones. Ranks
	// of one host have different numbers.
	First int

	MaxMessage int           // bytes; 0: DefaultMaxMessage; the smaller one of two peers' holds
	Timeout    time.Duration // how long a peer's host may be silent on TCP; 0: DefaultTimeout

	Logf func(format string, args ...any) // strangers, and failures that others report; may be nil
}

// DefaultMaxMessage is for Options.MaxMessage, in bytes.
const DefaultMaxMessage = 512 << 10

// DefaultTimeout is for Options.Timeout.
const DefaultTimeout = 30 * time.Second

// MostMessage is the longest message there can be, in bytes.
const MostMessage = 1 << 29

// Limit makes messages no longer than most bytes.
func (o *Options) Limit(most int) {
	if o.MaxMessage == 0 {
		o.MaxMessage = DefaultMaxMessage
	}
	o.MaxMessage = min(o.MaxMessage, most)
}

// OneLine makes one error of several, whose text is one line; nil of none.
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

// A Network is what a transport's endpoints are made of.
type Network interface {
	Name() string   // as NCCL_NET calls it
	String() string // in errors and logs
	Devices() int   // that connections take in turn; at least one
	Tx(*Conn) Sender
	Rx(*Conn) Receiver
	Close() error // comes after the ends of all connections
}

// An End is a network's part of one end of a connection. Its methods are called
// with the connection's lock, do not block and do not allocate.
type End interface {
	// Settle goes on with taking leave, which begins when this side closes or
	// the peer has left: Bye, once nothing is under way that hinders it, and
	// whatever the network needs after that. It is repeated until it reports
	// that this is done, or hopeless, and not called where something has failed.
	Settle() bool
	// Free takes down what the network has of the connection. It is called
	// twice where the connection could not be made. After an error the network
	// may still write to the connection's memory, which is never used again.
	Free() error
}

// A Sender is the sending one.
type Sender interface {
	End
	// Connect makes the connection, without the lock: with Ask, MakeSlots and
	// Watch, and Made at the end.
	Connect(ctx context.Context) error
	// Room reports whether the network is done with the next message's slot,
	// and the receiver has one for it.
	Room() bool
	// Send begins to send the message in slot i, of n bytes with its header.
	Send(i uint32, n int)
	// Idle pushes on what is under way, and reports whether nothing is. Only
	// where Lazy is true.
	Idle() bool
	// Lazy reports whether messages leave only while something is called.
	Lazy() bool
}

// A Receiver is the receiving one.
type Receiver interface {
	End
	// Accept makes the connection, without the lock: with MakeSlots, Answer and
	// Watch, and Made at the end. asked is what the sender's Ask said. When
	// it fails before Answer, the sender gets the error.
	Accept(ctx context.Context, asked []byte) error
	// Arrived reports whether message Count is in its slot.
	Arrived() bool
	// Release gives the slot of the message before Count back to the sender.
	Release()
}
