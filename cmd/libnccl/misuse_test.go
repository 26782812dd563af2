package main

import (
	"context"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// testMisuse: calls in any order, from any thread and with any pointer return a result.
func testMisuse(t *testing.T, emulator, dir string) {
	p := program(t, dir, "misuse", "-ldl")
	run := func(t *testing.T, args ...string) string {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute) // it stands still
		defer cancel()
		cmd := exec.CommandContext(ctx, p, args...)
		cmd.Env = append(os.Environ(), "LD_LIBRARY_PATH="+emulator, "FAKE_DEVICES=2", "ASSAY_HANG_DIR="+t.TempDir())
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Errorf("%v: %v\n%s", args, err, out)
		}
		if args[0] != "panics" && strings.Contains(string(out), "internal error") {
			t.Errorf("%v: a panic:\n%s", args, out)
		}
		return string(out)
	}
	t.Run("nulls", func(t *testing.T) {
		functions := slices.DeleteFunc(exported(t, filepath.Join(dir, "libnccl.so.2")), func(s string) bool { return strings.HasPrefix(s, "p") })
		tried := strings.Fields(run(t, "nulls"))
		slices.Sort(tried)
		if only := differ(functions, slices.Compact(tried)); len(only) > 0 {
			t.Errorf("functions that were not tried, or are not exported: %v", only)
		}
	})
	for _, args := range [][]string{
		{"wild"},
		{"ended"},
		{"written"},
		{"poll", "1", "60"}, // a rank alone
		{"poll", "2", "10"},
		{"stress", "1", "1000"},
		{"stress", "2", "1000"},
		{"fuzz", "1", "2000"},
		{"fuzz", "2", "2000"},
		{"fuzz", "3", "2000"},
	} {
		t.Run(strings.Join(args, " "), func(t *testing.T) { run(t, args...) })
	}
	t.Run("panics", func(t *testing.T) {
		if out := run(t, "panics"); strings.Count(out, "internal error in") < 10 || !strings.Contains(out, "main.go:") {
			t.Errorf("panics are not reported:\n%s", out)
		}
	})
}

// TestGuarded: no function that C calls lets a panic out.
func TestGuarded(t *testing.T) {
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, name := range files {
		f, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range f.Decls {
			fn, ok := d.(*ast.FuncDecl)
			if !ok || fn.Doc == nil || !slices.ContainsFunc(fn.Doc.List, func(c *ast.Comment) bool { return strings.HasPrefix(c.Text, "//export ") }) {
				continue
			}
			if found++; fn.Name.Name != "assay_abi" && !guards(fn) {
				t.Errorf("%s: %s does not defer guard before all else", name, fn.Name.Name)
			}
		}
	}
	if found < 20 {
		t.Errorf("%d exported functions were found", found)
	}
}

// guards reports whether a function defers guard before it calls or reads anything.
func guards(fn *ast.FuncDecl) bool {
	for _, s := range fn.Body.List {
		switch s := s.(type) {
		case *ast.DeferStmt:
			called, ok := s.Call.Fun.(*ast.Ident)
			return ok && called.Name == "guard"
		case *ast.DeclStmt: // a constant
		default:
			return false
		}
	}
	return false
}
