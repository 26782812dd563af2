package daemon

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/assay-hpc/assay/build/recipe"
)

var (
	amd64 = recipe.Platform{OS: "linux", Arch: "amd64"}
	arm64 = recipe.Platform{OS: "linux", Arch: "arm64"}
)

func TestFor(t *testing.T) {
	intel := &Builder{Addr: "intel", Native: amd64, Platforms: []recipe.Platform{amd64, arm64}}
	arm := &Builder{Addr: "arm", Native: arm64, Platforms: []recipe.Platform{arm64}}
	small := &Builder{Addr: "small", Native: amd64, Platforms: []recipe.Platform{amd64}}
	for _, tt := range []struct {
		name     string
		builders []*Builder
		p        recipe.Platform
		want     string
	}{
		{"native", []*Builder{intel, arm}, amd64, "intel"},
		{"native before emulated", []*Builder{intel, arm}, arm64, "arm"},
		{"emulated", []*Builder{small, intel}, arm64, "intel"},
		{"the first of two", []*Builder{small, intel}, amd64, "small"},
		{"none", []*Builder{small}, arm64, ""},
		{"no builders", nil, amd64, ""},
	} {
		got, err := For(tt.builders, tt.p)
		if tt.want == "" {
			if err == nil || !strings.Contains(err.Error(), tt.p.String()) || !strings.Contains(err.Error(), "--builder") {
				t.Errorf("%s: For = %v, %v; want an error with the platform and the remedy", tt.name, got, err)
			}
			continue
		}
		if err != nil || got.Addr != tt.want {
			t.Errorf("%s: For = %v, %v; want %s", tt.name, got, err, tt.want)
		}
	}
	if !intel.Supports(arm64) || arm.Supports(amd64) {
		t.Error("Supports does not say what the builder can run")
	}
}

func TestFind(t *testing.T) {
	file := filepath.Join(t.TempDir(), "buildkitd")
	if err := os.WriteFile(file, nil, 0o755); err != nil {
		t.Fatal(err)
	}
	if got, err := Find(file); err != nil || got != file {
		t.Errorf("Find(%q) = %q, %v", file, got, err)
	}
	if got, err := Find(file + "-gone"); !errors.Is(err, ErrCannotStart) || !errors.Is(err, os.ErrNotExist) {
		t.Errorf("Find of nothing = %q, %v; want ErrCannotStart", got, err)
	}
	// Beside the test's own program there is none.
	if got, err := Find(""); !errors.Is(err, ErrCannotStart) || !strings.Contains(err.Error(), "make build") {
		t.Errorf("Find(\"\") = %q, %v; want the remedy", got, err)
	}
}

func TestCheck(t *testing.T) {
	err := Check(filepath.Join(t.TempDir(), "gone"))
	if !errors.Is(err, ErrCannotStart) {
		t.Errorf("Check = %v; want ErrCannotStart", err)
	}
	if os.Geteuid() == 0 {
		t.Setenv("PATH", t.TempDir())
		if err := Check(""); err == nil || !strings.Contains(err.Error(), "apt-get install runc") {
			t.Errorf("Check without runc = %v; want the remedy", err)
		}
	}
}

// TestConnectErrors: an address where nobody answers is named.
func TestConnectErrors(t *testing.T) {
	addr := "unix://" + filepath.Join(t.TempDir(), "nobody.sock")
	ctx, cancel := context.WithCancel(t.Context())
	cancel() // do not wait for somebody
	if _, err := Connect(ctx, Options{Addrs: []string{addr}}); err == nil || !strings.Contains(err.Error(), "builder "+addr) {
		t.Errorf("Connect = %v; want an error that names %s", err, addr)
	}
}

// root skips a test that starts a daemon, in namespaces of its own.
func root(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("a daemon of our own needs root")
	}
}

// started is a daemon in dir whose program is that script.
func started(t *testing.T, dir, script string) *process {
	t.Helper()
	root(t)
	file := filepath.Join(dir, "buildkitd")
	if err := os.WriteFile(file, []byte("#!/bin/sh\n"+script), 0o755); err != nil {
		t.Fatal(err)
	}
	lock, err := os.Create(filepath.Join(dir, "assay.lock"))
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	p, err := spawn(file, dir, lock)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// TestKilledMount: a daemon that was killed, by an assay that let it mount into
// the machine's own namespace, left mounts. The next one starts all the same.
func TestKilledMount(t *testing.T) {
	root(t)
	dir := t.TempDir()
	var points []string
	for _, d := range []string{"tmp/buildkit-mount1", "tmp/buildkit-mount1", "root/runc-overlayfs/executor/x/rootfs"} {
		d = filepath.Join(dir, d)
		if err := os.MkdirAll(d, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := unix.Mount("", d, "tmpfs", 0, ""); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = unix.Unmount(d, unix.MNT_DETACH) })
		points = append(points, d)
	}
	file, err := os.Create(filepath.Join(points[0], "file")) // in use
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	p := started(t, dir, "exit 0\n")
	<-p.done
	info, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil || strings.Contains(string(info), dir) {
		t.Errorf("something is still mounted below %s (%v)", dir, err)
	}
}

// TestDropParts: a copy that the daemon left is removed, one that it is writing is
// not; nor is any of a daemon that this program did not start.
func TestDropParts(t *testing.T) {
	b := &Builder{root: t.TempDir(), pid: os.Getpid()}
	ingest := filepath.Join(b.root, "runc-overlayfs", "content", "ingest")
	for _, name := range []string{"left", "written"} {
		if err := os.MkdirAll(filepath.Join(ingest, name), 0o755); err != nil {
			t.Fatal(err)
		}
		f, err := os.Create(filepath.Join(ingest, name, "data"))
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if name == "left" {
			f.Close()
		}
	}
	if (&Builder{}).DropParts() {
		t.Error("dropped something of a daemon that is not ours")
	}
	if !b.DropParts() {
		t.Error("dropped nothing")
	}
	if b.DropParts() {
		t.Error("dropped something twice")
	}
	left, err := os.ReadDir(ingest)
	if err != nil || len(left) != 1 || left[0].Name() != "written" {
		t.Errorf("left are %v (%v); want the one that is written", left, err)
	}
}

// TestSpawnEnds: a daemon that ends at once is reported with its log, and is
// not waited for.
func TestSpawnEnds(t *testing.T) {
	dir := t.TempDir()
	p := started(t, dir, "echo 'no such option: '$1 >&2\nexit 3\n")
	_, err := p.wait(t.Context())
	if !errors.Is(err, ErrCannotStart) || !strings.Contains(err.Error(), "exit status 3") || !strings.Contains(err.Error(), "no such option: --config") {
		t.Errorf("wait = %v; want the status and the log", err)
	}
	p.stop() // of what has ended
}

// TestStop: a daemon is told to end, and is gone when stop returns.
func TestStop(t *testing.T) {
	dir := t.TempDir()
	p := started(t, dir, "trap 'echo stopped > "+dir+"/stopped; exit 0' TERM\necho > "+dir+"/ready\nwhile :; do sleep 0.05; done\n")
	ready := exec.Command("/bin/sh", "-c", "while [ ! -e "+dir+"/ready ]; do sleep 0.02; done")
	if err := ready.Run(); err != nil {
		t.Fatal(err)
	}
	p.stop()
	if _, err := os.Stat(filepath.Join(dir, "stopped")); err != nil {
		t.Errorf("the daemon was not told to end: %v", err)
	}
	if p.cmd.ProcessState == nil {
		t.Error("the daemon still runs")
	}
}

func TestTailBuffer(t *testing.T) {
	var b tailBuffer
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 5000 {
				fmt.Fprintln(&b, "a line of the daemon's log")
			}
		})
	}
	wg.Wait()
	for i := range 20 {
		fmt.Fprintf(&b, "last %d\n", i)
	}
	lines := strings.Split(b.String(), "\n")
	if len(lines) != 15 || lines[0] != "last 5" || lines[14] != "last 19" {
		t.Errorf("the tail is %q; want the last 15 lines", lines)
	}
	if n := b.buf.Len(); n > 64<<10 {
		t.Errorf("it keeps %d bytes", n)
	}
}

// TestPlain: a builder's address may hold a password, and is printed and
// recorded.
func TestPlain(t *testing.T) {
	for in, want := range map[string]string{
		"unix:///run/buildkit/buildkitd.sock":       "unix:///run/buildkit/buildkitd.sock",
		"tcp://builder.example.org:1234":            "tcp://builder.example.org:1234",
		"tcp://robot:hunter2@builder.example.org":   "tcp://builder.example.org",
		"ssh://hunter2@builder.example.org/run/x@y": "ssh://builder.example.org/run/x@y",
		"robot:hunter2@builder.example.org:1234":    "builder.example.org:1234",
		"docker-container://assay":                  "docker-container://assay",
		"tcp://builder.example.org:1?token=hunter2": "tcp://builder.example.org:1?token=***",
		"tcp://b.example.org/x?a=1&token=hunter2#y": "tcp://b.example.org/x?a=***&token=***",
		"kube-pod://builder?context=c&namespace=n":  "kube-pod://builder?context=c&namespace=n",
		"tcp://b.example.org#hunter2":               "tcp://b.example.org",
	} {
		if got := plain(in); got != want {
			t.Errorf("plain(%q) = %q; want %q", in, got, want)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	for _, addr := range []string{"tcp://robot:hunter2@127.0.0.1:1", "ssh://robot:hunter2@127.0.0.1", "robot:hunter2@127.0.0.1:1", "nonsense://robot:hunter2@host", "://robot:hunter2@host",
		"tcp://127.0.0.1:1?token=hunter2", "tcp://127.0.0.1:1/?hunter2", "nonsense://host?a=b&key=hunter2", "tcp://127.0.0.1:1#hunter2", "tcp://127.0.0.1:x?token=hunter2"} {
		if _, err := Connect(ctx, Options{Addrs: []string{addr}}); err == nil || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("Connect(%q) = %v; want an error without the password", addr, err)
		}
	}
}
