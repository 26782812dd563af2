// Package suite runs named lists of checks, without knowledge of the checks themselves. It
// guarantees that every check of a list has exactly one result. A check that hangs, panics,
// returns nonsense, is not selected or never got its turn has a result that says so.
//
// A [Suite] creates its checks for an image, since some depend on what the image declares; [Run]
// runs them.
package suite

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/assay-hpc/assay/internal/result"
	"github.com/assay-hpc/assay/internal/rootfs"
)

// A Check shows one thing.
type Check struct {
	ID        string // unique in its suite; slash-separated, from general to specific
	Title     string // for the user: a statement that a pass makes true
	Component string // the component of the image that it is about, if any
	// Needs names checks without which this one is meaningless: it is skipped unless all of them
	// passed.
	Needs []string
	// Uses names resources that must not be shared while in use, such as "gpu": of checks with a
	// common name only one runs at a time.
	Uses    []string
	Timeout time.Duration // 0: the runner's default
	// About is how long it usually takes; 0: next to nothing.
	About time.Duration
	Run   func(context.Context, *Env) result.Result
}

// Env is the input of checks. They share it and must not change it.
type Env struct {
	Root     rootfs.FS // the image's file system
	Environ  []string  // the image's environment, NAME=VALUE
	Platform string    // the image's, "linux/amd64"
}

// Getenv returns a variable of the image's environment.
func (e *Env) Getenv(name string) string {
	for _, kv := range slices.Backward(e.Environ) {
		if v, ok := strings.CutPrefix(kv, name+"="); ok {
			return v
		}
	}
	return ""
}

// A Suite creates a list of checks for an image.
type Suite struct {
	Name   string
	Title  string
	Checks func(context.Context, *Env) ([]Check, error)
}

// Validate reports errors of a list of checks: an id that is missing or used twice, a need that
// does not exist, a cycle of needs.
func Validate(checks []Check) error {
	index := map[string]int{}
	for i, c := range checks {
		if c.ID == "" || c.Run == nil {
			return fmt.Errorf("suite: check %d (%q) lacks its id or its function", i, c.ID)
		}
		if _, ok := index[c.ID]; ok {
			return fmt.Errorf("suite: two checks have the id %q", c.ID)
		}
		index[c.ID] = i
	}
	state := make([]int, len(checks))
	for i := range checks {
		if err := visit(checks, index, state, i); err != nil {
			return err
		}
	}
	return nil
}

// visit walks needs depth first; state is 1 while a check is on the path, and 2 once everything
// below it is known to be good.
func visit(checks []Check, index map[string]int, state []int, i int) error {
	switch state[i] {
	case 1:
		return fmt.Errorf("suite: check %q needs itself, through others", checks[i].ID)
	case 2:
		return nil
	}
	state[i] = 1
	for _, need := range checks[i].Needs {
		j, ok := index[need]
		if !ok {
			return fmt.Errorf("suite: check %q needs %q, which does not exist", checks[i].ID, need)
		}
		if err := visit(checks, index, state, j); err != nil {
			return err
		}
	}
	state[i] = 2
	return nil
}

// errTimeout is the cause of a context that the runner's own time limit ended.
var errTimeout = errors.New("timed out")
