// Package bootstrap brings the ranks of a communicator together over TCP,
// before there is any transport, and tells them of one another's death
// afterwards. coll builds communicators on it; programs use coll.
//
// # Coming up
//
// One process makes a [Root] and hands its [ID] to all ranks, by any channel
// ([ShareID] is one that needs no MPI). Every rank calls [Join]. It opens a
// listener of its own, tells the root its address, and is told those of its
// neighbours only: the ranks next to it in a ring, and its parent and children
// in a tree of fan-out 4, so no rank has more than 7. When all links
// stand the root says so to all, and is gone. What goes wrong on the way (a
// rank that came twice or not at all, that has another idea of the size,
// cannot reach a neighbour, or dies) the root tells all.
//
// # Afterwards
//
// [Net.AllGather] and [Net.Barrier] go up and down the tree. Each link carries
// heartbeats. A rank whose link breaks without its having left, or from which
// nothing comes for Options.Silence, is dead; who notices floods it over all
// links. When several ranks die at once and the graph falls apart, each part
// still hears of a death, since the part ends at a dead rank.
//
// # A job that goes on
//
// A [Group] is for what is said around communicators: processes that [Await]
// brings together in a star, in which any but the first may die, or never come,
// without an end for the others.
//
// # Who may come in
//
// Both ends of a connection prove that they know the ID's secret, which never
// crosses the wire (internal/meet). Strangers are dropped and logged. Nothing is
// encrypted or signed: this keeps out whoever can connect, not whoever can rewrite
// the packets of others.
package bootstrap

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/assay-hpc/assay/internal/meet"
)

// Options are what Root, Join and ShareID have in common. The zero value is
// ready. All ranks of a communicator should have the same.
type Options struct {
	// Ifname chooses interfaces, as NCCL_SOCKET_IFNAME: "eth,ib" by prefix,
	// "=eth0" by name, "^docker,lo" all but these. Empty is any but loopback,
	// docker and virbr, and those only where there is nothing else.
	Ifname string
	// Family is "AF_INET", "AF_INET6" or empty for both, as NCCL_SOCKET_FAMILY.
	Family string
	// Timeout bounds every wait of joining and exchanging; 0 is 60 s.
	Timeout time.Duration
	// Silence is how long nothing at all may come from a neighbour until it
	// counts as dead; 0 is 10 s. Heartbeats go four times as often.
	Silence time.Duration
	// Logf gets what a person may want to know; nil is silence.
	Logf func(format string, a ...any)
	// OnDeath is called once for each rank that died, one call at a time, from
	// a goroutine of the Net, perhaps before Join has returned. It may call
	// Abort, not Close.
	OnDeath func(rank int, what string)
	// OnReport is called, as OnDeath is, for what another rank reported. The
	// payload is the callee's.
	OnReport func(from int, payload []byte)
}

const (
	defaultTimeout = 60 * time.Second
	defaultSilence = 10 * time.Second
)

func (o Options) withDefaults() Options {
	if o.Timeout <= 0 {
		o.Timeout = defaultTimeout
	}
	if o.Silence <= 0 {
		o.Silence = defaultSilence
	}
	if o.Logf == nil {
		o.Logf = func(string, ...any) {}
	}
	return o
}

// patience bounds how long a rank waits for its root, whose word on what is late is
// better than the rank's own: that gets time.
func (o Options) patience(ctx context.Context, format string, a ...any) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, o.Timeout+o.Timeout/8+time.Second, wrapf(ErrTimeout, format, a...))
}

// What a failed Join wraps, so that callers can tell the user's mistakes from
// the network's.
var (
	// ErrDisagree: the ranks do not fit together: one came twice, is out of
	// range, or has another size.
	ErrDisagree = errors.New("ranks disagree")
	// ErrMissing: not all ranks came in time.
	ErrMissing = errors.New("ranks are missing")
	// ErrLost: a rank went away, or could not be reached, while joining.
	ErrLost = errors.New("a rank is lost")
	// ErrRefused: what listens at the root's address does not know the secret,
	// speaks another protocol, or does not expect this rank.
	ErrRefused = meet.ErrRefused
	// ErrTimeout: an exchange was not completed in time.
	ErrTimeout = errors.New("timed out")
	// ErrClosed: the Net was closed, or its Root, by its owner.
	ErrClosed = errors.New("closed")
)

// failures maps those that the root tells to ranks to bytes on the wire.
var failures = []error{nil, ErrDisagree, ErrMissing, ErrLost, ErrClosed}

func failureCode(err error) byte {
	for i, f := range failures {
		if f != nil && errors.Is(err, f) {
			return byte(i)
		}
	}
	return 0
}

// A remoteError is what the root told, in its words.
type remoteError struct {
	kind error
	text string
}

func (e *remoteError) Error() string { return e.text }
func (e *remoteError) Unwrap() error { return e.kind }

func decodeFailure(p []byte) error {
	if len(p) == 0 {
		return errors.New("the root gave up without a reason")
	}
	e := &remoteError{text: string(p[1:])}
	if int(p[0]) < len(failures) {
		e.kind = failures[p[0]]
	}
	return e
}

func encodeFailure(err error) []byte {
	text := err.Error()
	return append([]byte{failureCode(err)}, text[:min(len(text), maxHello-1)]...)
}

// wrapf is an error with a kind that errors.Is finds but the text does not
// repeat.
func wrapf(kind error, format string, a ...any) error {
	return &remoteError{kind: kind, text: fmt.Sprintf(format, a...)}
}
