package coll

import (
	"errors"
	"fmt"
	"io"

	"golang.org/x/sys/unix"

	"github.com/assay-hpc/assay/coll/host"
	"github.com/assay-hpc/assay/coll/op"
	"github.com/assay-hpc/assay/coll/transport"
)

// An Error is an error of an operation or a communicator. A Code is its category, with the values
// of ncclResult_t.
type (
	Error = op.Error
	Code  = op.Code
)

// The categories.
const (
	Success            = op.Success
	UnhandledCudaError = op.UnhandledCudaError
	SystemError        = op.SystemError
	InternalError      = op.InternalError
	InvalidArgument    = op.InvalidArgument
	InvalidUsage       = op.InvalidUsage
	RemoteError        = op.RemoteError
	InProgress         = op.InProgress
	Timeout            = op.Timeout
)

// NoPeer is the value of Error.Peer if no other rank is involved.
const NoPeer = op.NoPeer

// CodeOf returns the category of an error: Success for nil, InternalError for an error that the
// engine did not create.
func CodeOf(err error) Code { return op.CodeOf(err) }

// Errors that callers may look for with errors.Is.
var (
	// ErrAborted: Abort was called, here or at another rank.
	ErrAborted = errors.New("the communicator was aborted")
	// ErrDestroyed: the communicator no longer exists.
	ErrDestroyed = errors.New("the communicator was destroyed")
	// ErrSuspended: Suspend was called, and not yet Resume.
	ErrSuspended = errors.New("the communicator is suspended: call Resume first")
	// ErrBusy: two goroutines use a communicator at the same time.
	ErrBusy = errors.New("another goroutine is using the communicator; each needs one of its own, or a lock")
)

// wrap turns an error of the executor, its driver or a transport into an Error of this rank.
func (r *ranks) wrap(what string, err error) *Error {
	var (
		known    *Error
		peer     *transport.PeerError
		mismatch *host.MismatchError
	)
	e := &Error{Code: SystemError, Rank: r.rank, Op: what, Peer: NoPeer, Err: err}
	switch {
	case errors.As(err, &known):
		e.Code, e.Peer = known.Code, known.Peer
		if known.Rank == r.rank {
			e.Err = known.Err
		}
	case errors.As(err, &peer):
		e.Code, e.Peer = RemoteError, peer.Rank
	case errors.As(err, &mismatch):
		e.Code, e.Peer, e.Err = InvalidUsage, mismatch.Peer, mismatch
	case errors.Is(err, ErrAborted), errors.Is(err, ErrDestroyed), errors.Is(err, ErrBusy):
		e.Code = InvalidUsage
	case r.cfg.gpus != nil && r.cfg.gpus.Failed != nil && r.cfg.gpus.Failed(err):
		e.Code = UnhandledCudaError
	}
	return e
}

// errorOf returns an Error of this rank.
func (r *ranks) errorOf(code Code, what string, format string, a ...any) *Error {
	return &Error{Code: code, Rank: r.rank, Op: what, Peer: NoPeer, Err: fmt.Errorf(format, a...)}
}

// follows reports whether an error may be the consequence of another rank's fault, of which a report
// is under way: the peer has ended, or hung up.
func follows(err error) bool {
	var peer *transport.PeerError
	if errors.As(err, &peer) || errors.Is(err, io.EOF) {
		return true
	}
	for _, errno := range []error{unix.ECONNREFUSED, unix.ECONNRESET, unix.ECONNABORTED, unix.EPIPE, unix.ETIMEDOUT} {
		if errors.Is(err, errno) {
			return true
		}
	}
	return false
}
