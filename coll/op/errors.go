package op

import (
	"errors"
	"fmt"
	"strings"

	"github.com/assay-hpc/assay/coll/debug"
)

// A Code is the category of an error, with the values of ncclResult_t.
type Code int

// The categories.
const (
	Success            Code = 0
	UnhandledCudaError Code = 1 // a call of CUDA failed, or there is no driver or no device
	SystemError        Code = 2 // a call of the operating system failed
	InternalError      Code = 3 // a defect of the engine, or memory that the program damaged
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

// NoPeer is the value of Error.Peer if no other rank is involved.
const NoPeer = -1

// An Error is an error of an operation or a communicator.
type Error struct {
	Code Code
	Rank int    // rank that made the call
	Op   string // "AllReduce #12", "CommInitRank", …
	Peer int    // the other rank involved, or NoPeer
	Err  error
}

// errorBytes limits how much of an error is shown, because it may quote a file name or a value of
// any length.
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

// CodeOf returns the category of an error: Success for nil, InternalError for an error that the
// engine did not create.
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
