package gputest

import (
	"errors"
	"fmt"
	"testing"
)

// A verdict notes how a test ends.
type verdict struct {
	testing.TB
	got string
}

func (v *verdict) Helper() {}

func (v *verdict) end(how string) {
	if v.got == "" {
		v.got = how
	}
}

func (v *verdict) Fatal(...any)          { v.end("fails") }
func (v *verdict) Fatalf(string, ...any) { v.end("fails") }
func (v *verdict) Skip(...any)           { v.end("is skipped") }
func (v *verdict) Skipf(string, ...any)  { v.end("is skipped") }

func TestNeed(t *testing.T) {
	absent := errors.New("no driver")
	for _, tt := range []struct {
		variable string
		n, have  int
		err      error
		want     string
	}{
		{"", 1, 0, fmt.Errorf("opening: %w", absent), "is skipped"},
		{"", 1, 0, errors.New("the driver is broken"), "fails"},
		{"", 1, 0, nil, "is skipped"},
		{"", 2, 1, nil, "is skipped"},
		{"", 2, 2, nil, ""},
		{"2", 1, 0, absent, "fails"},
		{"2", 1, 0, nil, "fails"},
		{"2", 1, 1, nil, "fails"}, // one of them is lost
		{"2", 2, 2, nil, ""},
		{"2", 4, 2, nil, "is skipped"},
		{"0", 1, 0, absent, "is skipped"},
		{"two", 1, 2, nil, "fails"},
		{"-1", 1, 2, nil, "fails"},
	} {
		t.Setenv(Variable, tt.variable)
		v := &verdict{TB: t}
		Need(v, tt.n, tt.have, tt.err, absent)
		if v.got != tt.want {
			t.Errorf("with %s=%q a test that needs %d GPUs, of which %d are there (%v), %q; want %q", Variable, tt.variable, tt.n, tt.have, tt.err, v.got, tt.want)
		}
	}
}
