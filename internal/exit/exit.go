// Package exit contains the exit statuses of the programs, which scripts rely on, and errors that
// carry one.
package exit

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"strings"
)

// The exit statuses.
const (
	Pass    = 0
	Fail    = 1 // a check failed
	Usage   = 2 // usage or bad input
	NotDone = 3 // the command could not run
)

// An Error ends the program with a status. Its text is empty if everything has been reported.
type Error struct {
	Status int
	Err    error // may be nil
}

func (e *Error) Error() string {
	if e.Err == nil {
		return ""
	}
	return e.Err.Error()
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// With returns an error with a status. err may be nil: then everything has been reported.
func With(status int, err error) error { return &Error{status, err} }

// Usagef returns an error of a user who can correct it.
func Usagef(format string, a ...any) error { return With(Usage, fmt.Errorf(format, a...)) }

// Of returns an error's status: NotDone for errors that carry none.
func Of(err error) int {
	var e *Error
	switch {
	case err == nil:
		return Pass
	case errors.As(err, &e):
		return e.Status
	}
	return NotDone
}

// ParseFlags parses the flags of a command without operands. done says that help was asked for; it
// has been written to errOut.
func ParseFlags(fs *flag.FlagSet, args []string, errOut io.Writer) (done bool, err error) {
	fs.SetOutput(errOut)
	switch err := fs.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		return true, nil
	case err != nil:
		return false, With(Usage, nil) // already printed
	case fs.NArg() > 0:
		return false, Usagef("%s takes no argument %q", strings.TrimPrefix(fs.Name(), "harness "), fs.Arg(0))
	}
	return false, nil
}
