package image

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/assay-hpc/assay/harness/suite"
	"github.com/assay-hpc/assay/internal/certificate"
	"github.com/assay-hpc/assay/internal/confine"
	"github.com/assay-hpc/assay/internal/elf/elftest"
	"github.com/assay-hpc/assay/internal/result"
)

// The tests in this file take the machine that they run on for an image.

func TestMain(m *testing.M) {
	if was, err := Internal(context.Background(), os.Args); was {
		if err != nil {
			os.Stderr.WriteString(err.Error() + "\n")
			os.Exit(3)
		}
		os.Exit(0)
	}
	if len(os.Args) == 2 && os.Args[1] == "rank" { // mpirun started us
		rank, size := os.Getenv("OMPI_COMM_WORLD_RANK"), os.Getenv("OMPI_COMM_WORLD_SIZE")
		os.Stdout.WriteString("assay rank " + rank + " of " + size + "\n")
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func machine(absent ...certificate.Absent) (*state, *suite.Env) {
	env := &suite.Env{Environ: os.Environ(), Platform: "linux/" + runtime.GOARCH}
	s := &state{Config: Config{Spec: &certificate.ImageSpec{Absent: absent}, Runner: confine.Local{}}}
	s.scan = func() (*scan, error) { return newScan(env) } // the machine's own files are not the matter
	return s, env
}

// reachable returns a directory that programs which run as other users can reach.
func reachable(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "assay-image-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	return dir
}

// named is a runner with another path of this program.
type named struct {
	confine.Local
	self string
}

func (n named) Self() string { return n.self }

func expect(t *testing.T, what string, r result.Result, v result.Verdict, text string) {
	t.Helper()
	if r.Verdict != v || !strings.Contains(r.Reason+"\n"+r.Output, text) {
		t.Errorf("%s = %s (%s)\n%s; want %s, …%s…", what, r.Verdict, r.Reason, r.Output, v, text)
	}
}

func TestCommand(t *testing.T) {
	s, env := machine()
	for _, tt := range []struct {
		check   certificate.Check
		verdict result.Verdict
		text    string
	}{
		{certificate.Check{Command: []string{"echo", "version 2.7"}, Match: `version 2\.\d+`}, "pass", "version 2.7"},
		{certificate.Check{Command: []string{"echo", "version 3.7"}, Match: `version 2\.\d+`}, "fail", "nothing that matches"},
		{certificate.Check{Command: []string{"sh", "-c", "echo on stderr >&2; exit 3"}, Match: "on stderr"}, "fail", "exit status 3"},
		{certificate.Check{Command: []string{"sh", "-c", "echo on stderr >&2"}, Match: "on stderr"}, "pass", ""},
		{certificate.Check{Command: []string{"sh", "-c", "kill -9 $$"}}, "fail", "signal 9"},
		{certificate.Check{Command: []string{"no-such-program"}}, "fail", "not in PATH"},
		{certificate.Check{Command: []string{"/no/such/program"}}, "fail", "no such file"},
		{certificate.Check{Command: []string{"sh", "-c", "echo $A"}, Env: []string{"A=from the check"}, Match: "^from the check\n$"}, "pass", ""},
		{certificate.Check{Command: []string{"echo", "$HOME"}, Match: `^\$HOME`}, "pass", ""},
	} {
		tt.check.Kind = certificate.CheckCommand
		expect(t, strings.Join(tt.check.Command, " "), s.component(t.Context(), env, tt.check), tt.verdict, tt.text)
	}
}

// TestCommandIsKilled starts a shell whose child would outlive it.
func TestCommandIsKilled(t *testing.T) {
	s, env := machine()
	pidFile := filepath.Join(reachable(t), "pid")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	done := make(chan result.Result, 1)
	go func() {
		done <- s.component(ctx, env, certificate.Check{
			Kind: certificate.CheckCommand, Command: []string{"sh", "-c", "trap '' TERM; sleep 1000 & echo $! > " + pidFile + ".new; mv " + pidFile + ".new " + pidFile + "; wait"},
		})
	}()
	var pid string
	for pid == "" {
		b, _ := os.ReadFile(pidFile)
		pid = strings.TrimSpace(string(b))
		time.Sleep(time.Millisecond)
	}
	cancel()
	expect(t, "a cancelled command", <-done, result.Fail, "")
	for alive(pid) { // the test's own limit ends this if the child is never killed
		time.Sleep(time.Millisecond)
	}
}

// alive reports whether a process runs; one that nobody waited for does not.
func alive(pid string) bool {
	b, err := os.ReadFile("/proc/" + pid + "/stat")
	return err == nil && !strings.Contains(string(b), ") Z ")
}

func TestLoad(t *testing.T) {
	if runtime.GOARCH != "amd64" {
		t.Skip("the test writes files for amd64")
	}
	// Not libcuda.so.1: some machines have it.
	s, env := machine(certificate.Absent{Library: "libassay-driver.so.1", Because: "the driver brings it"})
	dir := reachable(t)
	write(t, dir, files{
		"driver.so": lib("libassay-driver.so.1"), "both.so": lib("libassay-driver.so.1", "libnone.so"), "text.so": "text",
		"static.so": string(elftest.File{Static: true}.Bytes()), "damaged.so": lib(),
	})
	libm, _ := filepath.Glob("/usr/lib/x86_64-linux-gnu/libm.so.6")
	if len(libm) == 0 {
		t.Skip("no libm.so.6 where Debian has it")
	}
	load := func(p string, v result.Verdict, text string) {
		t.Helper()
		expect(t, p, s.component(t.Context(), env, certificate.Check{Kind: certificate.CheckLoad, Path: p}), v, text)
	}
	load(libm[0], "pass", "libm")
	load(dir+"/driver.so", "skip", "the driver brings it")
	load(dir+"/both.so", "fail", "libnone.so")
	load(dir+"/text.so", "fail", "no shared library")
	load(dir+"/static.so", "fail", "no shared library")
	load(dir+"/damaged.so", "fail", "the loader refuses")
	load(dir+"/none.so", "fail", "no such file")
	// A module of perl's needs symbols of perl's: it cannot be loaded alone.
	if xs, _ := filepath.Glob("/usr/lib/x86_64-linux-gnu/perl-base/auto/*/*/*.so"); len(xs) > 0 {
		load(xs[0], "fail", "undefined symbol")
	}
}

// TestExcuse starts a program that lacks only a library declared absent.
func TestExcuse(t *testing.T) {
	cc, err := exec.LookPath("cc")
	if err != nil {
		t.Skip("no C compiler on this machine")
	}
	dir := reachable(t)
	write(t, dir, files{"l.c": "int f(void) { return 0; }", "p.c": "int f(void); int main(void) { return f(); }"})
	build := func(args ...string) {
		t.Helper()
		cmd := exec.Command(cc, args...)
		cmd.Dir = dir
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Skipf("cc: %v\n%s", err, out)
		}
	}
	build("-shared", "-Wl,-soname,libabsent.so.1", "-o", "libabsent.so", "l.c")
	build("-o", "p", "p.c", "-L.", "-labsent")
	check := certificate.Check{Kind: certificate.CheckCommand, Command: []string{dir + "/p"}}
	s, env := machine()
	expect(t, "undeclared", s.component(t.Context(), env, check), "fail", "127")
	s, env = machine(certificate.Absent{Library: "libabsent.so.1", Because: "it comes later"})
	expect(t, "declared", s.component(t.Context(), env, check), "skip", "it comes later")
}

func TestMPIRanks(t *testing.T) {
	if _, err := exec.LookPath("mpirun"); err != nil {
		t.Skip("no mpirun on this machine")
	}
	s, env := machine()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	program, err := os.ReadFile(self)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(reachable(t), "harness")
	if err := os.WriteFile(file, program, 0o755); err != nil {
		t.Fatal(err)
	}
	s.Runner = named{self: file}
	expect(t, "mpirun", s.mpiRanks(t.Context(), env), "pass", "assay rank 0 of 2, assay rank 1 of 2")
	s.Runner = named{self: "/bin/true"}
	expect(t, "mpirun true", s.mpiRanks(t.Context(), env), "fail", "called themselves []")
}

// TestMPIRanksLie has an mpirun that starts one rank twice.
func TestMPIRanksLie(t *testing.T) {
	dir := reachable(t)
	write(t, dir, files{"mpirun": "x:#!/bin/sh\nprintf 'assay rank 0 of 2\\nassay rank 0 of 2\\n'\n"})
	s, env := machine()
	s.Runner, env.Environ = named{self: "/bin/true"}, []string{"PATH=" + dir + ":/bin"}
	expect(t, "mpirun", s.mpiRanks(t.Context(), env), "fail", "called themselves")
}

func TestSSHConfig(t *testing.T) {
	dir := reachable(t)
	write(t, dir, files{"sshd": "x:#!/bin/sh\nhead -1 \"$3\"\necho 'bad line 7' >&2\nexit 255\n"})
	s, env := machine()
	env.Environ = []string{"PATH=" + dir + ":/bin:/usr/bin"}
	r := s.sshConfig(t.Context(), env)
	expect(t, "sshd", r, "fail", "bad line 7")
	expect(t, "sshd", r, "fail", "BEGIN EC PRIVATE KEY")
}
