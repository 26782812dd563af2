package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/urfave/cli/v2"

	"github.com/assay-hpc/assay/internal/doctest"
	"github.com/assay-hpc/assay/internal/grammar"
)

// parse reads a command line as the program does, and does nothing.
func parse(args []string) error {
	app := newApp(io.Discard, io.Discard)
	found := false
	var idle func([]*cli.Command)
	idle = func(list []*cli.Command) {
		for _, c := range list {
			if idle(c.Subcommands); len(c.Subcommands) == 0 {
				c.Action = func(*cli.Context) error { found = true; return nil }
			}
		}
	}
	idle(app.Commands)
	if err := app.Run(grammar.Args(app, args)); err != nil {
		return err
	}
	if !found {
		return fmt.Errorf("there is no such command")
	}
	return nil
}

// harmless are commands that run anywhere, change nothing and end at once.
var harmless = regexp.MustCompile(`^assay (jobs (list|render)|plan|schema|version)\b`)

// TestDocumentedCommands: every call of assay in the documents is one that it
// takes; those that can are carried out.
func TestDocumentedCommands(t *testing.T) {
	root := filepath.Join("..", "..")
	carried := 0
	for _, c := range append(doctest.Documents(t, root), doctest.Examples(t, root, "examples")...) {
		if c.Args[0] == "make" {
			makes(t, c)
		}
		for _, call := range c.Calls("assay") {
			if err := parse(call.Args); err != nil {
				t.Errorf("%s: %v", call, err)
				continue
			}
			if !harmless.MatchString(strings.Join(call.Args, " ")) {
				continue
			}
			carried++
			t.Run(strings.Join(call.Args[1:], " "), func(t *testing.T) {
				t.Chdir(t.TempDir())
				var out, errOut bytes.Buffer
				if status := run(context.Background(), call.Args, &out, &errOut); status != 0 {
					t.Errorf("%s: status %d, %s", call, status, errOut.String())
				}
			})
		}
	}
	if carried < 4 {
		t.Errorf("%d commands were carried out; want 4 and more", carried)
	}
}

// makes holds a call of make against the Makefile.
func makes(t *testing.T, c doctest.Command) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "Makefile"))
	if err != nil {
		t.Fatal(err)
	}
	for _, target := range c.Args[1:] {
		if !strings.Contains(target, "=") && !bytes.Contains(text, []byte("\n"+target+": ")) {
			t.Errorf("%s: the Makefile has no target %q", c, target)
		}
	}
}

// TestParse: what the tests of documents would find wrong.
func TestParse(t *testing.T) {
	for line, want := range map[string]string{
		"assay jobs render h200-8x --nodes 8":           "",
		"assay jobs render --profile h200-8x --nodes 8": "flag provided but not defined: -profile",
		"assay jobs rendre h200-8x":                     `jobs has no command "rendre"`,
		"assay biuld":                                   "there is no command",
		"assay build x --jobs many":                     "invalid value",
	} {
		err := parse(strings.Fields(line))
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("parse(%s) = %v; want %q", line, err, want)
		}
	}
}

// TestCacheFlags: a cache's attributes, which commas separate, stay together.
func TestCacheFlags(t *testing.T) {
	const to, from = "type=registry,ref=r.example.org/cache:x,mode=max", "type=registry,ref=r.example.org/cache:y"
	app := newApp(io.Discard, io.Discard)
	var got []string
	app.Command("build").Action = func(c *cli.Context) error {
		got = append(c.StringSlice("cache-to"), c.StringSlice("cache-from")...)
		return nil
	}
	if err := app.Run(grammar.Args(app, []string{"assay", "build", "--cache-to", to, "--cache-from", from, "--cache-from", to})); err != nil {
		t.Fatal(err)
	}
	if want := []string{to, from, to}; !slices.Equal(got, want) {
		t.Errorf("caches %q; want %q", got, want)
	}
}
