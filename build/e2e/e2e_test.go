// Package e2e runs assay's main job for real: a real buildkitd with runc, a
// real registry, real package installations, and images that are executed.
// The tests need root; they skip with the reason where they cannot run.
package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/containerd/log"

	"github.com/assay-hpc/assay/build/daemon"
	"github.com/assay-hpc/assay/build/driver"
	"github.com/assay-hpc/assay/build/solve"
	"github.com/assay-hpc/assay/build/standin"
)

// builder is the one buildkitd that all tests of a run share.
var builder struct {
	once sync.Once
	all  []*daemon.Builder
	err  error
}

func TestMain(m *testing.M) {
	_ = log.SetLevel("fatal")
	code := m.Run()
	for _, b := range builder.all {
		b.Close()
	}
	removeTemporaries()
	os.Exit(code)
}

// stateDir outlives the run: what a test downloads or makes once is
// there for the next. ASSAY_TEST_STATE moves it.
func stateDir(t *testing.T) string {
	t.Helper()
	if dir := os.Getenv("ASSAY_TEST_STATE"); dir != "" {
		return dir
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Join(cache, "assay", "test")
}

// long skips a test that takes minutes, but for "make test ONLY=all".
func long(t *testing.T) {
	t.Helper()
	if os.Getenv("ASSAY_TEST_ALL") == "" {
		t.Skip("it takes minutes: make test ONLY=all runs it (ASSAY_TEST_ALL=1)")
	}
}

// cold skips a test that compiles with nothing cached, but for "make test ONLY=cold".
func cold(t *testing.T) {
	t.Helper()
	if os.Getenv("ASSAY_TEST_COLD") == "" {
		t.Skip("it compiles the harness anew, for minutes: make test ONLY=cold runs it (ASSAY_TEST_COLD=1)")
	}
}

// buildkit returns the address of the shared builder.
func buildkit(t *testing.T) string {
	t.Helper()
	if testing.Short() {
		t.Skip("-short: end-to-end tests build images")
	}
	binary, err := filepath.Abs("../../bin/buildkitd")
	if err != nil {
		t.Fatal(err)
	}
	if err := daemon.Check(binary); err != nil {
		t.Skip(err)
	}
	builder.once.Do(func() {
		builder.all, builder.err = daemon.Connect(context.Background(), daemon.Options{
			StateDir: filepath.Join(stateDir(t), "buildkit"), Binary: binary, Log: t.Logf,
		})
		if builder.err == nil {
			builder.all[0].DropParts() // of a run that was killed; tests use the builder by its address, which cannot do it
		}
	})
	if builder.err != nil {
		t.Fatal(builder.err)
	}
	return builder.all[0].Addr
}

// workspace opens a matrix that is copied to a directory of the test's own, so
// that it has a lock of its own.
func workspace(t *testing.T, matrixFile string, mirrors map[string]string) *driver.Workspace {
	t.Helper()
	text, err := os.ReadFile(matrixFile)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "matrix.yaml")
	if err := os.WriteFile(file, text, 0o644); err != nil {
		t.Fatal(err)
	}
	return open(t, file, mirrors)
}

func open(t *testing.T, file string, mirrors map[string]string) *driver.Workspace {
	t.Helper()
	var rules []string
	for from, to := range mirrors {
		rules = append(rules, from+"="+to)
	}
	w, err := driver.Open(driver.Options{Matrix: file, Mirrors: rules, StateDir: stateDir(t), Version: "test", Self: assayBinary(t), Log: t.Logf})
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// lockAll resolves what the targets need from the sources as they are. Unlike
// "assay lock" it does not start from the checksums that publishers have
// announced: a stand-in has others, and other keys.
func lockAll(t *testing.T, w *driver.Workspace, u *standin.Upstreams, addr string) {
	t.Helper()
	keyring, err := os.ReadFile(u.KeyFile())
	if err != nil {
		t.Fatal(err)
	}
	if w.Publishers, err = solve.SignedWith(keyring); err != nil {
		t.Fatal(err)
	}
	s, stop, err := w.NewSolver(t.Context(), driver.BuildOptions{OutDir: t.TempDir(), Builders: []string{addr}, Progress: progress()})
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	rep, err := w.Resolve(t.Context(), s, w.Targets, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	for key, why := range rep.Unresolved {
		t.Errorf("%s is unresolved: %s", key, why)
	}
	if t.Failed() {
		t.FailNow()
	}
}

// progress is quiet unless ASSAY_TEST_PROGRESS asks for a display.
func progress() string {
	if p := os.Getenv("ASSAY_TEST_PROGRESS"); p != "" {
		return p
	}
	return "quiet"
}

func report(res *driver.BuildResult) string {
	s := ""
	for _, tr := range res.Targets {
		s += fmt.Sprintf("%s failed=%v %s\n%s\n", tr.Target, tr.Failed, tr.Digest, tr.Error)
	}
	return s
}
