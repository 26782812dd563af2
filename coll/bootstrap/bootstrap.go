// Package bootstrap connects the ranks of a communicator over TCP, before there is any
// transport, and afterwards informs them of one another's death. coll builds
// communicators on it; programs use coll.
//
// # Startup
//
// One process creates a [Root] and hands its [ID] to all ranks, by any channel ([ShareID]
// is one that needs no MPI). Every rank calls [Join]. It opens its own listener, sends
// the address to the root, and receives the addresses of its neighbours only: the ranks
// next to it in a ring, and its parent and children in a tree of fan-out 4, so no rank
// has more than 7. When all links are up, the root tells all ranks so, and closes. If
// something goes wrong on the way (a rank joins twice or not at all, reports a different
// size, cannot reach a neighbour, or dies), the root tells all ranks.
//
// # Operation
//
// [Net.AllGather] and [Net.Barrier] go up and down the tree. Each link carries
// heartbeats. A rank is dead if its link breaks before the rank has left, or if its host
// acknowledges none for Options.Silence; the rank that notices floods the death over all
// links. When several ranks die at once and the graph falls apart, each part still learns
// of a death, since the part ends at a dead rank.
//
// # Groups
//
// A [Group] is for the communication around communicators: processes that [Await]
// connects in a star. Any of them except the first may die, or never join, and the others
// continue. When the first one, the root, is lost, [Group.Next] connects the others in a
// new star: with the lowest rank that they reach as root, of the eight deputies that the
// root named when all had joined.
//
// # Authentication
//
// Both ends of a connection prove that they know the ID's secret, which never crosses the
// wire (internal/meet). Strangers are dropped and logged. Nothing is encrypted or signed:
// this keeps out attackers that can connect, not attackers that can rewrite the packets
// of others.
package bootstrap

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/assay-hpc/assay/internal/meet"
)

// Options are the common options of Root, Join and ShareID. The zero value is ready. All
// ranks of a communicator should use the same.
type Options struct {
	// Ifname selects interfaces, as NCCL_SOCKET_IFNAME does: "eth,ib" by prefix, "=eth0"
	// by name, "^docker,lo" all except these. Empty is any except loopback, docker and
	// virbr, which are used only if there is nothing else.
	Ifname string
	// Family is "AF_INET", "AF_INET6" or empty for both, as NCCL_SOCKET_FAMILY.
	Family string
	// Timeout bounds every wait of joining and exchanging; 0 is 60 s. NoLimit bounds none.
	Timeout time.Duration
	// Silence is how long a neighbour may give no sign before it counts as dead; 0 is 10
	// s. Heartbeats are sent four times as often. In a communicator the sign is the
	// kernel's acknowledgement: a process that is stopped may continue. In a Group it is
	// the process's own heartbeat.
	Silence time.Duration
	// Logf receives messages for people; nil discards them.
	Logf func(format string, a ...any)
	// Warnf receives whom a root or an exchange waits for, every half a minute; nil is Logf.
	Warnf func(format string, a ...any)
	// OnDeath is called once for each rank that died, one call at a time, from a
	// goroutine of the Net, perhaps before Join has returned. It may call Abort, but not
	// Close.
	OnDeath func(rank int, what string)
	// OnReport is called, like OnDeath, for each report of another rank. The callee owns
	// the payload.
	OnReport func(from int, payload []byte)
}

const (
	defaultTimeout = 60 * time.Second
	defaultSilence = 10 * time.Second

	// NoLimit is a Timeout that never passes; multiples of it are durations, too.
	NoLimit = time.Duration(1 << 60)

	lateEvery = 30 * time.Second
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
	if o.Warnf == nil {
		o.Warnf = o.Logf
	}
	return o
}

// patience bounds how long a rank waits for its root. It is longer than Timeout, so that
// the root has time to report what is late: the root knows that better than the rank.
func (o Options) patience(ctx context.Context, format string, a ...any) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, o.Timeout+o.Timeout/8+time.Second, wrapf(ErrTimeout, format, a...))
}

// Errors that a failed Join wraps, so that callers can distinguish the user's mistakes
// from network failures.
var (
	// ErrDisagree: the ranks do not fit together: one joined twice, is out of range, or
	// has another size.
	ErrDisagree = errors.New("ranks disagree")
	// ErrMissing: not all ranks joined in time.
	ErrMissing = errors.New("ranks are missing")
	// ErrLost: a rank died, or could not be reached, while joining.
	ErrLost = errors.New("a rank is lost")
	// ErrRefused: the listener at the root's address does not know the secret, speaks
	// another protocol, or does not expect this rank.
	ErrRefused = meet.ErrRefused
	// ErrTimeout: an exchange did not complete in time.
	ErrTimeout = errors.New("timed out")
	// ErrClosed: the Net, or its Root, was closed by its owner.
	ErrClosed = errors.New("closed")
)

// failures maps the errors that the root sends to ranks to bytes on the wire.
var failures = []error{nil, ErrDisagree, ErrMissing, ErrLost, ErrClosed}

func failureCode(err error) byte {
	for i, f := range failures {
		if f != nil && errors.Is(err, f) {
			return byte(i)
		}
	}
	return 0
}

// A remoteError is an error from the root, with the root's text.
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

// wrapf returns an error with a kind that errors.Is finds but the text does not repeat.
func wrapf(kind error, format string, a ...any) error {
	return &remoteError{kind: kind, text: fmt.Sprintf(format, a...)}
}
