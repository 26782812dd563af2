//go:build cuda && cgo

package nccl

// #include "library.h"
import "C"

import (
	"errors"
	"fmt"
)

// ErrAborted is what a Comm's operations return after Abort or Destroy.
var ErrAborted = errors.New("the NCCL communicator was aborted or destroyed")

// A Result is an ncclResult_t.
type Result int

// The results that are not errors.
const (
	Success    Result = 0
	InProgress Result = 7
)

// An Error is a failed call of NCCL.
type Error struct {
	Call   string // "ncclAllReduce"
	Result Result
	Text   string // NCCL's text for the result
	Last   string // what NCCL logged last; often the cause
}

func (e *Error) Error() string {
	s := fmt.Sprintf("%s: %s (%d)", e.Call, e.Text, e.Result)
	if e.Last != "" {
		s += ": " + e.Last
	}
	return s
}

// check returns the error for a call's result.
func (l *Library) check(call string, r C.int) error {
	if Result(r) == Success {
		return nil
	}
	return &Error{
		Call: call, Result: Result(r),
		Text: C.GoString(C.nccl_error_string(l.c, r)),
		Last: C.GoString(C.nccl_last_error(l.c, nil)),
	}
}
