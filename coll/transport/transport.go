// Package transport is the contract between the executor, which runs a
// schedule, and what moves its messages: shared memory, sockets, InfiniBand.
//
// An Endpoint is one rank's side of one way of moving messages. From what its
// peers said about theirs (Info, exchanged by the bootstrap) it opens
// one-directional connections, each a queue of messages: Tx on one side, Rx
// on the other. Messages arrive whole and in order. Every method of Tx and Rx
// returns at once; the executor polls. All of a connection's methods are
// called by one goroutine at a time, none of them allocates.
//
// # Who waits
//
// No method of Tx and Rx waits for a peer. Endpoint.Tx may, until its context
// is done. Close may wait for what this rank has under way and for the peers'
// answer to its goodbye, but for some seconds only: a peer that is dead,
// stopped, or in another operation does not keep it.
//
// # Whose memory
//
// What a caller posts is the connection's until Idle or Done says that it is
// through with it. When neither comes, because a peer is lost or the operation
// was aborted, it is so until Close of the endpoint has returned, and no
// longer: then the memory may be freed or used for something else at once,
// whatever the peers are doing. A transport keeps that promise for its own
// threads, for its devices, and for peers that look at the memory where it
// lies: what those read may then be other bytes, but reading it is safe, and
// Release tells them that the message is void.
//
// Memory that Reserve and Peek give out is the transport's. It can be looked at
// until Commit and Release, also after a Fault, but not after the Close of its
// own endpoint.
//
// # What breaks
//
// A connection that breaks reports it once, to the Fault given to the
// endpoint, and then stays silent: nothing more can be sent or received. The
// executor looks at the Fault while it waits. Transports within a host may
// leave it to the bootstrap to notice that a peer is lost.
package transport

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/assay-hpc/assay/coll/elem"
	"github.com/assay-hpc/assay/coll/op"
)

// A Header goes with every message: which operation it belongs to. The
// receiver compares it with the operation that it is in.
type Header struct {
	Seq  uint32 // the communicator's operation number, from 1
	Sign uint32 // what the sender takes the operation for: a hash of collective, count, type, reduction and root
}

// A Tx is the sending end of a connection. Two ways of sending: Reserve a slot,
// write the message there, Commit; or Post memory that holds the message.
type Tx interface {
	// Reserve returns n bytes for the next message, or nil when there is no
	// free slot now. Calling it again before Commit returns the same memory.
	Reserve(n int) []byte
	// Commit sends the first n bytes of what Reserve returned. n may be 0.
	Commit(n int, h Header)
	// Post sends p from where it is, or returns false when it cannot now. p
	// must stay unchanged until Idle, or else until the endpoint's Close has
	// returned; where Direct is false Post copies.
	Post(p []byte, h Header) bool
	// Idle pushes on what is under way, and reports whether all that was
	// posted has left its memory.
	Idle() bool
	// Direct reports whether Post spares a copy over Reserve and Commit.
	Direct() bool
	// MaxMessage is the size of a slot in bytes, Slots how many there are:
	// so many messages can be under way unreceived. Reserve and Post panic when
	// they are asked for more.
	MaxMessage() int
	Slots() int
}

// A Lazy Tx may keep messages that could not leave at once until one of its
// methods is called again, though it is not Direct: if Lazy is true, the
// executor calls Idle. Those that are Direct may do so in any case.
type Lazy interface{ Lazy() bool }

// Leaves reports whether messages of t may leave over time, for which Idle has
// to be called.
func Leaves(t Tx) bool {
	l, ok := t.(Lazy)
	return ok && l.Lazy() || t.Direct()
}

// A Reducer is the way to a network that reduces. What comes of each message is
// one on the Rx that belongs to it, with the same header.
type Reducer interface {
	Tx
	// As says what is to be done with the messages that are committed from now
	// on, which the network can do. An AllGather has no type and reduction.
	As(c op.Collective, t elem.Type, red elem.Op)
}

// An Rx is the receiving end of a connection. Two ways of receiving: Peek at
// the next message in its slot, and Release it; or Post memory for it.
type Rx interface {
	// Peek returns the next message where it lies, if it is there. It is valid
	// until Release. While a message is posted for, Peek is not called.
	Peek() (p []byte, h Header, ok bool)
	// Release gives the slot of the message last peeked at back to the sender.
	// false: the sender had left before, and the message may have been other
	// bytes. Nothing must come of it.
	Release() bool
	// Post asks for the next message to be put into p, which has its length. p
	// is the connection's until Done, or else until the endpoint's Close has
	// returned. Only where Direct is true.
	Post(p []byte)
	// Done pushes on a posted receive, and reports its header and that it is
	// complete. n is the length that the sender said: when it is not len(p)
	// nothing but the header is valid.
	Done() (h Header, n int, ok bool)
	// Direct reports whether Post spares a copy over Peek.
	Direct() bool
	MaxMessage() int
}

// An Endpoint opens a rank's connections over one kind of transport.
type Endpoint interface {
	// Name is what logs and NCCL_DEBUG call it: "SHM", "Socket", ….
	Name() string
	// Info is what peers need to know. It does not change.
	Info() []byte
	// Reach says why there can be no connection to the rank with this Info, nil
	// if there can. Both sides must come to the same answer.
	Reach(peer int, info []byte) error
	// Tx opens the connection to a peer, on a channel. The peer need not have
	// opened its Rx yet. It may block, until ctx is done.
	Tx(ctx context.Context, peer int, info []byte, channel int) (Tx, error)
	// Rx opens the other end. It does not wait for the peer.
	Rx(ctx context.Context, peer int, info []byte, channel int) (Rx, error)
	// Close frees everything. Messages that have left their memory (Idle) still
	// arrive; from the others it takes the memory away, as said above. Peers that
	// use a connection after that see it break. Where the transport watches its
	// peers, Close may be called while another goroutine uses a connection,
	// which then sees it silent; transports within a host want none in use.
	Close() error
}

// A PeerError says that a peer is lost, and how it was noticed.
type PeerError struct {
	Rank int           // the lost peer, as the communicator numbers it
	By   int           // the rank that noticed
	What string        // what was noticed: "connection reset", "process 123 is gone", …
	Wait time.Duration // how long it had been silent, when that is what was noticed
}

func (e *PeerError) Error() string {
	s := fmt.Sprintf("rank %d is lost: %s (noticed by rank %d)", e.Rank, e.What, e.By)
	if e.Wait > 0 {
		s += fmt.Sprintf(" after %v", e.Wait.Round(time.Millisecond))
	}
	return s
}

// A Fault holds the first thing that went wrong with a communicator. The zero
// value is ready; it may be used by many goroutines.
type Fault struct {
	err atomic.Pointer[error]
	// Hook, if not nil, is called once, by the first Set. It is set before use.
	Hook func(error)
}

// Set records err, unless something was recorded before, and reports whether
// it was the first.
func (f *Fault) Set(err error) bool {
	if err == nil || !f.err.CompareAndSwap(nil, &err) {
		return false
	}
	if f.Hook != nil {
		f.Hook(err)
	}
	return true
}

// late is how long SetLate waits.
const late = time.Second

// SetLate is Set, a moment later: for what likely is the consequence of a death
// or an abort, of which the bootstrap then tells more.
func (f *Fault) SetLate(err error) { time.AfterFunc(late, func() { f.Set(err) }) }

// Err returns what was recorded first, or nil.
func (f *Fault) Err() error {
	if p := f.err.Load(); p != nil {
		return *p
	}
	return nil
}
