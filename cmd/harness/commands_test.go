package main

import (
	"bytes"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/urfave/cli/v2"

	"github.com/assay-hpc/assay/coll/perf"
	"github.com/assay-hpc/assay/harness/explain"
	"github.com/assay-hpc/assay/internal/doctest"
	"github.com/assay-hpc/assay/internal/exit"
	"github.com/assay-hpc/assay/internal/grammar"
	"github.com/assay-hpc/assay/perftest/mesh"
)

// parse reads a command line as the program does, and does nothing.
func parse(args []string) error {
	app := newApp(io.Discard, io.Discard)
	found := false
	var idle func([]*cli.Command)
	idle = func(list []*cli.Command) {
		for _, c := range list {
			idle(c.Subcommands)
			own := c.SkipFlagParsing
			c.Action = func(ctx *cli.Context) error {
				found = true
				if own {
					return parseOwn(ctx.Command.Name, ctx.Args().Slice())
				}
				return nil
			}
		}
	}
	idle(app.Commands)
	if err := app.Run(grammar.Args(app, args, execName)); err != nil {
		return err
	}
	if !found {
		return fmt.Errorf("there is no such command")
	}
	return nil
}

// parseOwn reads the arguments of a command that has its own way with flags. Those
// of GPUs are not read without one.
func parseOwn(command string, args []string) error {
	if len(args) == 0 {
		return nil
	}
	switch op := args[0]; {
	case command == "coll" && !slices.Contains([]string{"tune", "table"}, op):
		if !slices.Contains(perf.Collectives(), op) {
			return fmt.Errorf("there is no operation %q", op)
		}
		_, err := perf.Parse(op, "", args[1:])
		return err
	case command == "ib" && op == "mesh":
		_, err := mesh.Parse(args[1:], platformPorts)
		return err
	case command == "ib" && op != "devices":
		t, ok := ibProgram("ib_" + op)
		if !ok {
			return fmt.Errorf("there is no tool %q", op)
		}
		_, err := t.Parse(args[1:])
		return err
	}
	return nil
}

// harmless are commands that run anywhere, change nothing and end soon.
var harmless = regexp.MustCompile(`^harness (certify --list|health --list|estimate|predict|show environment|show topology -m|show topology -mp|show topology --all|show topology -o json|show platform|version|diag|bandwidth)\b(( --?[a-z-]+)? [^ /]*)*$`)

// wants files, a cluster or GPUs that are not here.
var notHere = regexp.MustCompile(`--peers|--hostfile|--topo|--root|--hosts|-r [234]|-r memory|--versus|--out|table|nv|p2p|test|--hardware hgx-h200$`)

// TestDocumentedCommands: every call of the harness in the documents and examples
// is one that it takes; those that can are carried out.
func TestDocumentedCommands(t *testing.T) {
	root := filepath.Join("..", "..")
	n, carried := 0, 0
	for _, c := range append(doctest.Documents(t, root), doctest.Examples(t, root, "examples")...) {
		for _, call := range c.Calls("harness") {
			n++
			if err := parse(call.Args); err != nil {
				t.Errorf("%s: %v", call, err)
				continue
			}
			line := strings.Join(call.Args, " ")
			if !harmless.MatchString(line) || notHere.MatchString(line) || strings.HasPrefix(call.Where, "examples/") {
				continue
			}
			carried++
			t.Run(line, func(t *testing.T) {
				t.Chdir(t.TempDir())
				var out, errOut bytes.Buffer
				// 1 and 3 are about the machine.
				if status := run(call.Args, &out, &errOut); status == exit.Usage {
					t.Errorf("%s: %s", call, errOut.String())
				}
			})
		}
		if strings.HasPrefix(c.Args[0], "ib_") || strings.HasSuffix(c.Args[0], "_perf") {
			if err := parseProgram(c.Args); err != nil {
				t.Errorf("%s: %v", c, err)
			}
		}
	}
	if n < 100 || carried < 15 {
		t.Errorf("%d calls, %d carried out; want 100 and 15 at least", n, carried)
	}
}

// parseProgram reads what the program gets under another of its names.
func parseProgram(args []string) error {
	if t, ok := ibProgram(args[0]); ok {
		_, err := t.Parse(args[1:])
		return err
	}
	if op, ok := perfProgram(args[0]); ok {
		_, err := perf.Parse(op, "", args[1:])
		return err
	}
	return fmt.Errorf("the harness has no such name")
}

// TestParse: what the tests of documents would find wrong.
func TestParse(t *testing.T) {
	for line, want := range map[string]string{
		"harness certify --suite node":        "",
		"harness certify --sweet node":        "flag provided but not defined: -sweet",
		"harness cretify":                     "no command",
		"harness coll all_reduce -b 8 -e 8G":  "",
		"harness coll all_reduce --begin 8":   "begin",
		"harness coll all_redcue":             "no operation",
		"harness ib write_bw -aF host":        "",
		"harness ib write_bw --no-such":       "no-such",
		"harness ib mesh --html":              "html",
		"harness exec -- harness any --thing": "",
	} {
		err := parse(strings.Fields(line))
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("parse(%s) = %v; want %q", line, err, want)
		}
	}
}

// TestExampleScripts: shellcheck finds nothing in the scripts of examples that are
// not rendered (cmd/assay looks at those).
func TestExampleScripts(t *testing.T) {
	if _, err := exec.LookPath("shellcheck"); err != nil {
		t.Skip("there is no shellcheck: apt-get install shellcheck")
	}
	files, err := filepath.Glob(filepath.Join("..", "..", "examples", "slurm", "*.sh"))
	if err != nil || len(files) < 3 {
		t.Fatalf("%d scripts, %v", len(files), err)
	}
	if out, err := exec.Command("shellcheck", files...).CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// ours are the commands that a text of harness explain names, with their options.
var ours = regexp.MustCompile(`\bharness ((?:show |ib )?[a-z][a-z-]*)((?: (?:--?[a-z][a-z-]*|[A-Z][A-Z0-9_*.]+))*)`)

// TestExplainedCommands: commands of ours in causes and remedies exist, with their options.
func TestExplainedCommands(t *testing.T) {
	rules, err := explain.Load()
	if err != nil {
		t.Fatal(err)
	}
	app, n := newApp(io.Discard, io.Discard), 0
	for _, r := range rules.Rules {
		for _, text := range slices.Concat([]string{r.Cause, r.Verify}, r.Remedy, r.Ask) {
			for _, m := range ours.FindAllStringSubmatch(text, -1) {
				n++
				list, found := app.Commands, (*cli.Command)(nil)
				for _, word := range strings.Fields(m[1]) {
					i := slices.IndexFunc(list, func(c *cli.Command) bool { return c.HasName(word) })
					if found = nil; i < 0 {
						break
					}
					found, list = list[i], list[i].Subcommands
				}
				if found == nil {
					t.Errorf("%s: there is no harness %s: %s", r.ID, m[1], text)
					continue
				}
				for _, word := range strings.Fields(m[2]) {
					name := strings.TrimLeft(word, "-")
					if name != word && !found.SkipFlagParsing && !slices.ContainsFunc(found.Flags, func(f cli.Flag) bool { return slices.Contains(f.Names(), name) }) {
						t.Errorf("%s: harness %s has no %s: %s", r.ID, m[1], word, text)
					}
				}
			}
		}
	}
	if n < 5 {
		t.Errorf("%d commands in the rules; want 5 at least", n)
	}
}
