package main

import (
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/assay-hpc/assay/harness/sign/signtest"
	"github.com/assay-hpc/assay/internal/certificate"
	"github.com/assay-hpc/assay/internal/certificate/certificatetest"
	"github.com/assay-hpc/assay/internal/exit"
	"github.com/assay-hpc/assay/internal/words"
)

func TestMain(m *testing.M) {
	signtest.Program()
	testscript.Main(m, map[string]func(){
		"harness": main,
	})
}

// TestScript runs the scripts of testdata/script on the real main.
func TestScript(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir: "testdata/script",
		Setup: func(e *testscript.Env) error {
			e.Setenv("CUDA_VISIBLE_DEVICES", "") // ranks are on the processor, whatever there is
			e.Setenv("NODE_NAME", "here")
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"status": status, "certificate": parseCertificate, "mode": mode, "files": files, "connector": connector,
		},
	})
}

// status runs a command and wants an exit status: status 2 harness …
func status(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: status N command …")
	}
	got := "0"
	if err := ts.Exec(args[1], args[2:]...); err != nil {
		got = strings.TrimPrefix(err.Error(), "exit status ")
	}
	if got != args[0] {
		ts.Fatalf("%s: exit status %s; want %s", strings.Join(args[1:], " "), got, args[0])
	}
}

// parseCertificate holds a file against a digest and a verdict; with ! the
// digest must not fit.
func parseCertificate(ts *testscript.TestScript, neg bool, args []string) {
	doc := []byte(ts.ReadFile(args[0]))
	st, err := certificate.Parse(doc)
	ts.Check(err)
	ts.Check(certificatetest.Validate(doc))
	if err := st.Verify(args[1]); (err != nil) != neg {
		ts.Fatalf("Verify(%s) = %v", args[1], err)
	}
	if got := string(st.Predicate.Verdict); got != args[2] {
		ts.Fatalf("verdict %s; want %s", got, args[2])
	}
}

// mode wants a file's permission bits.
func mode(ts *testscript.TestScript, _ bool, args []string) {
	st, err := os.Stat(ts.MkAbs(args[1]))
	ts.Check(err)
	if got := st.Mode().Perm().String(); got != args[0] {
		ts.Fatalf("%s has mode %s; want %s", args[1], got, args[0])
	}
}

// files wants a directory to hold these files and no other.
func files(ts *testscript.TestScript, _ bool, args []string) {
	entries, err := os.ReadDir(ts.MkAbs(args[0]))
	ts.Check(err)
	var got []string
	for _, e := range entries {
		got = append(got, e.Name())
	}
	if !slices.Equal(got, args[1:]) {
		ts.Fatalf("%s has %v; want %v", args[0], got, args[1:])
	}
}

// connector listens on a Unix socket as NVSentinel's platform connector does, and appends each
// message to a file: connector SOCKET FILE.
func connector(ts *testscript.TestScript, _ bool, args []string) {
	listener, err := net.Listen("unix", ts.MkAbs(args[0]))
	ts.Check(err)
	file := ts.MkAbs(args[1])
	ts.Check(os.WriteFile(file, nil, 0o644))
	var protocols http.Protocols
	protocols.SetUnencryptedHTTP2(true)
	server := &http.Server{Protocols: &protocols, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		message, err := io.ReadAll(r.Body)
		code := "0"
		if old, readErr := os.ReadFile(file); errors.Join(err, readErr, os.WriteFile(file, append(append(old, message...), '\n'), 0o644)) != nil {
			code = "13"
		}
		w.Header().Set("Content-Type", "application/grpc")
		w.Header().Set("Grpc-Status", code)
	})}
	go server.Serve(listener)
	ts.Defer(func() { server.Close() })
}

func TestNearest(t *testing.T) {
	names := []string{"certify", "inventory", "version", "completion"}
	for in, want := range map[string]string{"certfy": "certify", "ver": "version", "": "certify", "complet": "completion"} {
		if got := words.Nearest(in, names); got != want {
			t.Errorf("words.Nearest(%q) = %q; want %q", in, got, want)
		}
	}
}

// TestJSONOnStdout keeps the document on stdout readable by Parse.
func TestJSONOnStdout(t *testing.T) {
	var out, errOut strings.Builder
	app := newApp(&out, &errOut)
	err := app.RunContext(t.Context(), []string{"harness", "certify", "--root", t.TempDir(), "-o", "json"})
	if got := exit.Of(err); got != exit.NotDone {
		t.Errorf("an empty root: %v, status %d; want %d", err, got, exit.NotDone)
	}
	if _, err := certificate.Parse([]byte(out.String())); err != nil || !json.Valid([]byte(out.String())) {
		t.Errorf("Parse of stdout = %v\n%s", err, out.String())
	}
	if err := certificatetest.Validate([]byte(out.String())); err != nil {
		t.Error(err)
	}
}
