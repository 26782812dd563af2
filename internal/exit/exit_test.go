package exit

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"strings"
	"testing"
)

func TestOf(t *testing.T) {
	for _, tt := range []struct {
		err  error
		want int
		text string
	}{
		{nil, Pass, ""},
		{errors.New("no daemon"), NotDone, "no daemon"},
		{Usagef("--n %d: %w", 1, fs.ErrNotExist), Usage, "--n 1: file does not exist"},
		{With(Fail, nil), Fail, ""},
		{fmt.Errorf("build: %w", With(Fail, errors.New("bad"))), Fail, "build: bad"},
		{With(Fail, Usagef("x")), Fail, "x"}, // the outermost counts
	} {
		if got := Of(tt.err); got != tt.want || tt.err != nil && tt.err.Error() != tt.text {
			t.Errorf("Of(%v) = %d; want %d, %q", tt.err, got, tt.want, tt.text)
		}
	}
	if !errors.Is(Usagef("%w", fs.ErrNotExist), fs.ErrNotExist) {
		t.Error("the cause is lost")
	}
}

func TestParseFlags(t *testing.T) {
	for args, want := range map[string]struct {
		done   bool
		status int
		text   string
	}{
		"":       {false, Pass, ""},
		"-n 3":   {false, Pass, ""},
		"--help": {true, Pass, ""},
		"-x":     {false, Usage, ""}, // the text has been written
		"-n 3 y": {false, Usage, `tool takes no argument "y"`},
	} {
		set := flag.NewFlagSet("harness tool", flag.ContinueOnError)
		set.Int("n", 0, "")
		done, err := ParseFlags(set, strings.Fields(args), io.Discard)
		if done != want.done || Of(err) != want.status || err != nil && err.Error() != want.text {
			t.Errorf("%q: %v, %v; want %+v", args, done, err, want)
		}
	}
}
