package matrix

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// An Error is one problem in a matrix file.
type Error struct {
	File   string
	Pos    Pos
	Field  string // path of the value: "axes.cuda[2]"; "" for the file as a whole
	Msg    string // what is wrong, with the offending value
	Remedy string // what to write instead
}

func (e *Error) Error() string {
	field := ""
	if e.Field != "" {
		field = e.Field + ": "
	}
	return fmt.Sprintf("%s:%s: %s%s; %s", e.File, e.Pos, field, e.Msg, e.Remedy)
}

// Errors are all problems that one pass over a file found, in the order of
// their positions.
type Errors []*Error

func (e Errors) Error() string {
	lines := make([]string, len(e))
	for i, x := range e {
		lines[i] = x.Error()
	}
	return strings.Join(lines, "\n")
}

// Unwrap lets errors.As find a single *Error.
func (e Errors) Unwrap() []error {
	out := make([]error, len(e))
	for i, x := range e {
		out[i] = x
	}
	return out
}

// A Pos is a position in a matrix file; line and column count from 1.
type Pos struct{ Line, Column int }

func (p Pos) String() string { return fmt.Sprintf("%d:%d", p.Line, p.Column) }

func (p Pos) set() bool { return p.Line > 0 }

// A reporter collects the problems of one file.
type reporter struct {
	file       string
	components []string // that conditions may name
	errs       Errors

	// Of the component that is read:
	builtin bool              // it may have parts that code makes
	vars    []string          // its own variables
	files   map[string]string // beside it; nil for an entry of the matrix, which has none
}

// report adds a problem. The remedy is mandatory: an error that a person cannot act on is
// incomplete.
func (r *reporter) report(at Pos, field, msg, remedy string) {
	r.errs = append(r.errs, &Error{File: r.file, Pos: at, Field: field, Msg: msg, Remedy: remedy})
}

func (r *reporter) failed() bool { return len(r.errs) > 0 }

func (r *reporter) err() error {
	if !r.failed() {
		return nil
	}
	slices.SortStableFunc(r.errs, func(a, b *Error) int {
		return cmp.Or(cmp.Compare(a.Pos.Line, b.Pos.Line), cmp.Compare(a.Pos.Column, b.Pos.Column))
	})
	return r.errs
}
