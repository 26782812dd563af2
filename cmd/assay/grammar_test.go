package main

import (
	"bytes"
	"io"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/assay-hpc/assay/internal/grammar"
)

// TestGrammar holds all flags against the grammar, and the help against a screen of 80×40.
func TestGrammar(t *testing.T) {
	for _, p := range grammar.Check(newApp(io.Discard, io.Discard).Commands) {
		t.Error(p)
	}
	var out bytes.Buffer
	if err := newApp(&out, &out).Run([]string{"assay", "--help"}); err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(out.String(), "\n"); n > 40 {
		t.Errorf("the help has %d lines", n)
	}
	for line := range strings.Lines(out.String()) {
		if utf8.RuneCountInString(line) > 81 {
			t.Errorf("wider than 80: %s", line)
		}
	}
}
