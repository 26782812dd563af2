// Package transport defines the contract between the executor, which runs a schedule, and
// the transports that move its messages: shared memory, sockets, InfiniBand.
//
// An Endpoint is one rank's side of a transport. From the Info of its peers, exchanged by
// the bootstrap, it opens one-directional connections, each a queue of messages: Tx on
// one side, Rx on the other. Messages arrive whole and in order. Every method of Tx and
// Rx returns at once; the executor polls. One goroutine at a time calls a connection's
// methods; none of them allocates.
//
// # Blocking
//
// No method of Tx and Rx waits for a peer. Endpoint.Tx may, until its context is done.
// Close may wait for this rank's pending messages and for the peers' answer to its
// goodbye, but only for some seconds: a peer that is dead, stopped, or in another
// operation does not delay it further.
//
// # Memory ownership
//
// Memory that a caller posts belongs to the connection until Idle or Done reports that it
// is finished with it. If neither does, because a peer is lost or the operation was
// aborted, the memory belongs to the connection until Close of the endpoint returns, and
// no longer: then the caller may free or reuse it at once, whatever the peers are doing.
// A transport keeps that promise for its own threads, for its devices, and for peers that
// read the memory in place: they may then read other bytes, but the read is safe, and
// Release tells them that the message is void.
//
// Memory that Reserve and Peek return belongs to the transport. The caller may access it
// until Commit and Release, also after a Fault, but not after Close of its own endpoint.
//
// # Failures
//
// A connection that breaks reports it once, to the Fault given to the endpoint, and then
// stays silent: nothing more can be sent or received. The executor checks the Fault while
// it waits. Transports within a host may leave the detection of lost peers to the
// bootstrap.
package transport

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/assay-hpc/assay/coll/elem"
	"github.com/assay-hpc/assay/coll/op"
)

// A Header accompanies every message and identifies its operation. The receiver compares
// it with the operation that it is in.
type Header struct {
	Seq  uint32 // the communicator's operation number, from 1
	Sign uint32 // the sender's op.Op.Signature
}

// String is for errors: "operation #12, AllReduce of float with sum".
func (h Header) String() string { return fmt.Sprintf("operation #%d, %s", h.Seq, op.NameOf(h.Sign)) }

// A Tx is the sending end of a connection. There are two ways to send: Reserve a slot,
// write the message there, and Commit it; or Post memory that holds the message.
type Tx interface {
	// Reserve returns n bytes for the next message, or nil if there is no free slot now.
	// Calling it again before Commit returns the same memory.
	Reserve(n int) []byte
	// Commit sends the first n bytes of the memory that Reserve returned. n may be 0.
	Commit(n int, h Header)
	// Post sends p from its place in memory, or returns false if it cannot do so now. p
	// must stay unchanged until Idle, or else until the endpoint's Close has returned;
	// where Direct is false, Post copies.
	Post(p []byte, h Header) bool
	// Idle makes progress on pending messages, and reports whether the transport is
	// finished with all posted memory.
	Idle() bool
	// Direct reports whether Post saves a copy compared with Reserve and Commit.
	Direct() bool
	// MaxMessage is the size of a slot in bytes. Slots is the number of slots, which is
	// how many messages can be sent and not yet received. Reserve and Post panic if asked
	// for more than MaxMessage.
	MaxMessage() int
	Slots() int
}

// A Lazy Tx may hold messages that could not be sent at once until one of its methods is
// called again, although it is not Direct: if Lazy returns true, the executor calls Idle.
// A Tx that is Direct may do so in any case.
type Lazy interface{ Lazy() bool }

// Leaves reports whether t may send messages later, so that Idle has to be called.
func Leaves(t Tx) bool {
	l, ok := t.(Lazy)
	return ok && l.Lazy() || t.Direct()
}

// A Reducer is the connection to a network that reduces. The result of each message
// arrives as one message on the Rx that belongs to it, with the same header.
type Reducer interface {
	Tx
	// As sets what the network does with the messages that are committed from now on. The
	// caller passes only what the network can do. An AllGather has no type and no
	// reduction.
	As(c op.Collective, t elem.Type, red elem.Op)
}

// An Rx is the receiving end of a connection. There are two ways to receive: Peek at the
// next message in its slot and Release it; or Post memory for it.
type Rx interface {
	// Peek returns the next message in its place in memory, if it has arrived. It is
	// valid until Release. While a receive is posted, Peek is not called.
	Peek() (p []byte, h Header, ok bool)
	// Release returns the slot of the last peeked message to the sender. It returns false
	// if the sender had closed before, so that the bytes may not have been the message:
	// the caller must discard everything derived from them.
	Release() bool
	// Post receives the next message into p, which has the length that the caller
	// expects. p belongs to the connection until Done, or else until the endpoint's Close
	// has returned. Only where Direct is true.
	Post(p []byte)
	// Done makes progress on a posted receive; ok means that it is complete, and h is its
	// header. n is the length that the sender announced: if it is not len(p), only the
	// header is valid.
	Done() (h Header, n int, ok bool)
	// Direct reports whether Post saves a copy compared with Peek.
	Direct() bool
	MaxMessage() int
}

// An Endpoint opens a rank's connections over one kind of transport.
type Endpoint interface {
	// Name is the name in logs and NCCL_DEBUG output: "SHM", "Socket", ….
	Name() string
	// Info returns the description that peers need. It does not change.
	Info() []byte
	// Reach returns why there can be no connection to the rank with this Info, or nil if
	// there can. Both sides must reach the same answer.
	Reach(peer int, info []byte) error
	// Tx opens the connection to a peer, on a channel. The peer need not have
	// opened its Rx yet. It may block, until ctx is done.
	Tx(ctx context.Context, peer int, info []byte, channel int) (Tx, error)
	// Rx opens the receiving end. It does not wait for the peer.
	Rx(ctx context.Context, peer int, info []byte, channel int) (Rx, error)
	// Close frees everything. Messages that are no longer in posted memory (Idle) still
	// arrive; for the others, Close ends the use of the memory, as described above. Peers
	// that use a connection afterwards see it break. Where the transport watches its
	// peers, Close may be called while another goroutine uses a connection, which then
	// falls silent; with transports within a host no connection may be in use.
	Close() error
}

// A PeerError reports that a peer is lost, and how this was detected.
type PeerError struct {
	Rank int           // the lost peer's rank in the communicator
	By   int           // the rank that noticed
	What string        // the symptom: "connection reset", "process 123 is gone", …
	Wait time.Duration // how long the peer had been silent, if that is the symptom
	Told bool          // all ranks know it already, and What says who noticed
}

func (e *PeerError) Error() string {
	s := fmt.Sprintf("rank %d is lost: %s", e.Rank, e.What)
	if !e.Told { // else What says so
		s += fmt.Sprintf(" (noticed by rank %d)", e.By)
	}
	if e.Wait > 0 {
		s += fmt.Sprintf(" after %v", e.Wait.Round(time.Millisecond))
	}
	return s
}

// Lack returns what this process has too little of, if that is what an error is about: file
// descriptors, memory or buffers. It is then no fault of the peer that the process wanted to reach.
func Lack(err error) error {
	for _, lack := range []error{syscall.EMFILE, syscall.ENFILE, syscall.ENOMEM, syscall.ENOBUFS, syscall.ENOSPC} {
		if errors.Is(err, lack) {
			return lack
		}
	}
	return nil
}

// A Fault holds the first thing that went wrong with a communicator. The zero
// value is ready; it may be used by many goroutines.
type Fault struct {
	err atomic.Pointer[error]
	// Hook, if not nil, is called once, by the first Set. It is set before use.
	Hook func(error)
	over atomic.Bool // the hook has returned
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
	f.over.Store(true)
	return true
}

// Settle waits until the hook of what was recorded has returned, but no longer than Late: the hook
// may be what calls.
func (f *Fault) Settle() {
	for end := time.Now().Add(Late); f.Err() != nil && !f.over.Load() && time.Now().Before(end); {
		time.Sleep(50 * time.Microsecond)
	}
}

// Late is how long an error waits that is probably the consequence of another one.
const Late = 500 * time.Millisecond

// SetLate is Set after a delay. It is for errors that are probably the consequence of a
// death or an abort, about which the bootstrap then reports more.
func (f *Fault) SetLate(err error) { time.AfterFunc(Late, func() { f.Set(err) }) }

// Await returns when something has been recorded, or after d.
func (f *Fault) Await(d time.Duration) {
	for end := time.Now().Add(d); f.Err() == nil && time.Now().Before(end); {
		time.Sleep(50 * time.Microsecond)
	}
}

// Err returns what was recorded first, or nil.
func (f *Fault) Err() error {
	if p := f.err.Load(); p != nil {
		return *p
	}
	return nil
}
