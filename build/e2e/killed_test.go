package e2e

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/registry"

	"github.com/assay-hpc/assay/build/base"
	"github.com/assay-hpc/assay/build/daemon"
	"github.com/assay-hpc/assay/build/driver"
)

// small is the matrix of testdata/small.yaml with its lock, made once.
var small struct {
	once sync.Once
	file string
}

func smallMatrix(t *testing.T) string {
	t.Helper()
	addr := buildkit(t)
	if err := base.Check(); err != nil {
		t.Skip(err)
	}
	small.once.Do(func() {
		text, err := os.ReadFile("testdata/small.yaml")
		if err != nil {
			t.Fatal(err)
		}
		file := filepath.Join(temporary(t), "small.yaml")
		if err := os.WriteFile(file, bytes.ReplaceAll(text, []byte("ARCH"), []byte(runtime.GOARCH)), 0o644); err != nil {
			t.Fatal(err)
		}
		w := open(t, file, nil)
		rep, err := w.LockTargets(t.Context(), w.Targets, driver.BuildOptions{Builders: []string{addr}, Progress: progress()})
		if err != nil {
			t.Fatal(err)
		}
		for key, why := range rep.Unresolved {
			t.Fatalf("%s is unresolved: %s", key, why)
		}
		small.file = file
	})
	if small.file == "" {
		t.Skip("locking testdata/small.yaml failed, see the test before")
	}
	return small.file
}

// A phase of a build, as its output shows it.
type phase struct {
	name   string
	begins string // in a line of the output; "" for a request that changes the registry
	daemon bool   // BuildKit works in it
}

var phases = []phase{
	{"fetch", "fetching ", false},
	{"base", "] configure packages", true},
	{"download", "[download] ", true},
	{"run", "] compile the harness", true},
	{"export", "exporting ", true},
	{"gate", "] certify ", true},
	{"push", "", false},
}

// killRegistry is a real registry that tells of the first change.
func killRegistry(t *testing.T) (repo string, changed func(func())) {
	t.Helper()
	reg := registry.New(registry.WithReferrersSupport(true), registry.Logger(log.New(io.Discard, "", 0)))
	var call atomic.Pointer[func()]
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			if f := call.Swap(nil); f != nil {
				(*f)()
			}
		}
		reg.ServeHTTP(w, r)
	}))
	t.Cleanup(srv.Close)
	return strings.TrimPrefix(srv.URL, "http://") + "/assay", func(f func()) { call.Store(&f) }
}

// TestKilled kills assay, and its buildkitd, in each phase of a build. What they
// leave does not stop the next build, which goes on to the next phase, where it
// is killed; the last one passes. Without ASSAY_TEST_COLD fewer are killed.
func TestKilled(t *testing.T) {
	matrix := smallMatrix(t)
	dir := temporary(t)
	state, out := filepath.Join(dir, "state"), filepath.Join(dir, "out")
	repo, changed := killRegistry(t)
	all := os.Getenv("ASSAY_TEST_COLD") != ""

	// build runs until the phase begins and the victim is killed, or to its end.
	build := func(victim string, at phase) error {
		ctx, cancel := context.WithTimeout(t.Context(), 15*time.Minute) // for a build that hangs
		defer cancel()
		cmd := assay(t, "build", "small", "--matrix", matrix, "--out", "oci:"+out, "--progress", "plain", "--push", repo)
		if victim == "" {
			cmd.Args = append(cmd.Args, "--force") // it may be up to date, and then starts no builder
		}
		cmd.Env = append(os.Environ(), "ASSAY_STATE_DIR="+state, "BUILDKIT_HOST=")
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		cmd.Stdout, cmd.Stderr = w, w
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		w.Close()
		defer context.AfterFunc(ctx, func() { _ = cmd.Process.Kill() })()
		killed := false
		kill := sync.OnceFunc(func() {
			killed = true
			pid := cmd.Process.Pid
			if victim == "buildkitd" {
				if pid = buildkitd(state); pid == 0 {
					t.Errorf("%s: no buildkitd runs", at.name)
					return
				}
			}
			if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
				t.Errorf("%s: kill %s: %v", at.name, victim, err)
			}
		})
		if victim != "" && at.begins == "" {
			changed(kill)
		}
		var last []string
		for sc := bufio.NewScanner(r); sc.Scan(); {
			if last = append(last, sc.Text()); len(last) > 200 {
				last = last[1:]
			}
			if victim != "" && at.begins != "" && strings.Contains(sc.Text(), at.begins) {
				kill()
			}
		}
		r.Close()
		err = cmd.Wait()
		switch {
		case ctx.Err() != nil:
			t.Fatalf("%s: after %s was killed, the build did not end:\n%s", at.name, victim, strings.Join(last, "\n"))
		case victim != "" && !killed:
			t.Fatalf("the phase %s did not come (%v):\n%s", at.name, err, strings.Join(last, "\n"))
		case err != nil:
			err = fmt.Errorf("%w:\n%s", err, strings.Join(last, "\n"))
		}
		return err
	}

	for _, p := range phases {
		victims := []string{"assay"}
		if p.daemon && (all || p.name == "run") {
			victims = append(victims, "buildkitd")
		}
		if !all && (p.name == "fetch" || p.name == "download") {
			continue
		}
		for _, victim := range victims {
			err := build(victim, p)
			if err == nil {
				t.Errorf("%s was killed in phase %s, and the build passed", victim, p.name)
			}
			if victim == "assay" && (err == nil || !strings.HasPrefix(err.Error(), "signal: killed")) {
				t.Errorf("assay was to be killed in phase %s: %v", p.name, err)
			}
			gone(t, state, p.name+" "+victim)
		}
	}
	if err := build("", phase{name: "last"}); err != nil {
		t.Fatalf("the build after all that: %v", err)
	}
	if text, err := assay(t, "inspect", "oci:"+out+":small").CombinedOutput(); err != nil {
		t.Errorf("inspect: %v\n%s", err, text)
	}
	left(t, state, out)
	warm = state
}

// warm is a state directory in which testdata/small.yaml was built, for tests
// that would need long to fill one of their own.
var warm string

// buildkitd returns the process of the daemon in a state directory, 0 for none.
func buildkitd(state string) int {
	root := filepath.Join(state, "buildkit", "root")
	files, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, f := range files {
		text, err := os.ReadFile(f)
		args := strings.Split(string(text), "\x00")
		if err != nil || filepath.Base(args[0]) != "buildkitd" || !slices.Contains(args, root) {
			continue
		}
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(f)))
		if err == nil {
			return pid
		}
	}
	return 0
}

// gone waits until no process uses the state directory, and wants nothing
// mounted there.
func gone(t *testing.T, state, when string) {
	t.Helper()
	waitFor(t, func() bool { return buildkitd(state) == 0 })
	info, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(info), state) {
		t.Errorf("%s: something is still mounted below %s:\n%s", when, state, info)
	}
}

// left wants nothing half-written in the state directory and the output.
func left(t *testing.T, state, out string) {
	t.Helper()
	for _, pattern := range []string{filepath.Join(state, "work", "*", "*"), state + "/downloads/.part-*", state + "/downloads/*.part", out + "/blobs/sha256/.part-*", out + "/ingest/*", state + "/buildkit/tmp/*"} {
		names, err := filepath.Glob(pattern)
		if err != nil || len(names) > 0 {
			t.Errorf("left behind: %v (%v)", names, err)
		}
	}
}

// TestKilledTest: the daemon that tests share starts again after the test's
// program, or the daemon, was killed.
func TestKilledTest(t *testing.T) {
	connect := func(ctx context.Context, state string) ([]*daemon.Builder, error) {
		binary, err := filepath.Abs("../../bin/buildkitd")
		if err != nil {
			return nil, err
		}
		return daemon.Connect(ctx, daemon.Options{StateDir: filepath.Join(state, "buildkit"), Binary: binary, Log: t.Logf})
	}
	if state := os.Getenv("ASSAY_TEST_KILLED"); state != "" {
		if _, err := connect(t.Context(), state); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(state, "ready"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour)
	}
	buildkit(t) // or skip
	state := t.TempDir()
	for _, victim := range []string{"test", "buildkitd"} {
		ready := filepath.Join(state, "ready")
		_ = os.Remove(ready)
		cmd := exec.Command(os.Args[0], "-test.run=^TestKilledTest$")
		cmd.Env = append(os.Environ(), "ASSAY_TEST_KILLED="+state)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		waitFor(t, func() bool { _, err := os.Stat(ready); return err == nil })
		pid := cmd.Process.Pid
		if victim == "buildkitd" {
			pid = buildkitd(state)
		}
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		if victim == "test" {
			_ = cmd.Wait()
		} else {
			// The one that lost its daemon goes, and with it the lock.
			waitFor(t, func() bool { return buildkitd(state) == 0 })
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		}
		all, err := connect(t.Context(), state)
		if err != nil {
			t.Fatalf("after %s was killed: %v", victim, err)
		}
		for _, b := range all {
			if err := b.Close(); err != nil {
				t.Error(err)
			}
		}
		gone(t, state, victim)
	}
}

// TestTwoBuilds: two builds at once, of images that share most steps, with one
// state directory and one output, with --builder and without.
func TestTwoBuilds(t *testing.T) {
	matrix, addr := smallMatrix(t), buildkit(t)
	for _, name := range []string{"builder", "own"} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			state, out := stateDir(t), filepath.Join(dir, "out")
			args, rounds := []string{"--builder", addr}, 2 // the first fills BuildKit's cache, so that those of the second end almost together
			if name == "own" {
				state = cmp.Or(warm, filepath.Join(dir, "state")) // stateDir's is in use
				args, rounds = nil, 1
			}
			for range rounds {
				var wg sync.WaitGroup
				for _, target := range []string{"small", "small-numactl"} {
					cmd := assay(t, append([]string{"build", target, "--force", "--matrix", matrix, "--out", "oci:" + out, "--progress", "plain"}, args...)...)
					cmd.Env = append(os.Environ(), "ASSAY_STATE_DIR="+state, "BUILDKIT_HOST=")
					wg.Go(func() {
						if text, err := cmd.CombinedOutput(); err != nil {
							t.Errorf("build %s: %v\n%s", target, err, lastLines(string(text), 30))
						}
					})
				}
				wg.Wait()
			}
			for _, target := range []string{"small", "small-numactl"} {
				if text, err := assay(t, "inspect", "oci:"+out+":"+target).CombinedOutput(); err != nil {
					t.Errorf("inspect %s: %v\n%s", target, err, text)
				}
			}
			if name == "own" {
				left(t, state, out)
			}
		})
	}
}

// temporary is a directory that outlives the test, and not the run.
func temporary(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "assay-e2e-")
	if err != nil {
		t.Fatal(err)
	}
	temporaries = append(temporaries, dir)
	return dir
}

var temporaries []string

func removeTemporaries() {
	for _, dir := range temporaries {
		os.RemoveAll(dir)
	}
}
