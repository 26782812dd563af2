package coll

import (
	"errors"
	"fmt"
	"strings"

	"github.com/assay-hpc/assay/coll/debug"
	"github.com/assay-hpc/assay/coll/host"
	"github.com/assay-hpc/assay/coll/transport"
)

// A Code is the category of an error, with the values of ncclResult_t.
type Code int

// The categories.
const (
	Success            Code = 0
	UnhandledCudaError Code = 1 // a call of CUDA failed
	SystemError        Code = 2 // a call of the operating system failed
	InternalError      Code = 3 // a defect of this package, or memory that somebody else damaged
	InvalidArgument    Code = 4 // an argument that can never be right
	InvalidUsage       Code = 5 // ranks that do not fit together, or calls in the wrong order
	RemoteError        Code = 6 // another rank died, left or failed
	InProgress         Code = 7
	Timeout            Code = 8 // nothing moved for too long
)

var codeNames = []string{"success", "unhandled cuda error", "unhandled system error", "internal error", "invalid argument", "invalid usage", "remote error", "in progress", "timeout"}

// String is the text of ncclGetErrorString, in short.
func (c Code) String() string {
	if c < 0 || int(c) >= len(codeNames) {
		return fmt.Sprintf("code %d", int(c))
	}
	return codeNames[c]
}

// NoPeer stands in Error.Peer where no other rank is concerned.
const NoPeer = -1

// An Error is what went wrong with an operation or a communicator.
type Error struct {
	Code Code
	Rank int    // whose call it is
	Op   string // "AllReduce #12", "CommInitRank", …
	Peer int    // the rank that it is about, or NoPeer
	Err  error
}

// errorBytes is how much is shown of what went wrong, which may name a file or
// a value of whatever length.
const errorBytes = 2000

func (e *Error) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "rank %d: %s: %v", e.Rank, e.Op, e.Code)
	if e.Peer != NoPeer {
		fmt.Fprintf(&b, " (rank %d)", e.Peer)
	}
	if e.Err != nil {
		fmt.Fprintf(&b, ": %s", debug.Short(e.Err.Error(), errorBytes))
	}
	return b.String()
}

func (e *Error) Unwrap() error { return e.Err }

// CodeOf is the category of an error; Success for nil, InternalError for what
// this package did not make.
func CodeOf(err error) Code {
	var e *Error
	switch {
	case err == nil:
		return Success
	case errors.As(err, &e):
		return e.Code
	}
	return InternalError
}

// Errors that callers may look for with errors.Is.
var (
	// ErrAborted: Abort was called, here or at another rank.
	ErrAborted = errors.New("the communicator was aborted")
	// ErrDestroyed: the communicator is not there any more.
	ErrDestroyed = errors.New("the communicator was destroyed")
	// ErrBusy: two goroutines use a communicator at the same time.
	ErrBusy = errors.New("another goroutine is using the communicator; each needs one of its own, or a lock")
)

// wrap turns what the executor or a transport reports into an Error of this
// rank.
func (c *Comm) wrap(op string, err error) *Error {
	var (
		known    *Error
		peer     *transport.PeerError
		mismatch *host.MismatchError
		late     *host.TimeoutError
	)
	e := &Error{Code: SystemError, Rank: c.rank, Op: op, Peer: NoPeer, Err: err}
	switch {
	case errors.As(err, &known):
		e.Code, e.Peer = known.Code, known.Peer
		if known.Rank == c.rank {
			e.Err = known.Err
		}
	case errors.As(err, &peer):
		e.Code, e.Peer = RemoteError, peer.Rank
	case errors.As(err, &mismatch):
		e.Code, e.Peer = InvalidUsage, mismatch.Peer
		e.Err = explain(mismatch)
	case errors.As(err, &late):
		e.Code, e.Peer = Timeout, late.Blocked.Peer
	case errors.Is(err, ErrAborted), errors.Is(err, ErrDestroyed), errors.Is(err, ErrBusy):
		e.Code = InvalidUsage
	}
	return e
}

// errorOf is an Error of this rank.
func (c *Comm) errorOf(code Code, op string, format string, a ...any) *Error {
	return &Error{Code: code, Rank: c.rank, Op: op, Peer: NoPeer, Err: fmt.Errorf(format, a...)}
}
