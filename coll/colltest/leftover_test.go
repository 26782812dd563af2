package colltest

import (
	"net"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// TestLook: each kind of thing that can be left behind is seen, and is gone
// when it is put away.
func TestLook(t *testing.T) {
	wakePoller(t)
	for _, c := range []struct {
		want string
		make func(t *testing.T) (away func())
	}{
		{"TestLook", func(*testing.T) func() {
			stop, gone := make(chan struct{}), make(chan struct{})
			go func() { <-stop; close(gone) }()
			return func() { close(stop); <-gone }
		}},
		{"is socket:", func(t *testing.T) func() {
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			return func() { l.Close() }
		}},
		{"memfd:left", func(t *testing.T) func() {
			fd, err := unix.MemfdCreate("left", unix.MFD_CLOEXEC)
			if err != nil {
				t.Fatal(err)
			}
			return func() { unix.Close(fd) }
		}},
		{"mapping", func(t *testing.T) func() {
			fd, err := unix.MemfdCreate("mapped", unix.MFD_CLOEXEC)
			if err != nil {
				t.Fatal(err)
			}
			defer unix.Close(fd)
			if err := unix.Ftruncate(fd, 4096); err != nil {
				t.Fatal(err)
			}
			m, err := unix.Mmap(fd, 0, 4096, unix.PROT_READ, unix.MAP_SHARED)
			if err != nil {
				t.Fatal(err)
			}
			return func() { unix.Munmap(m) }
		}},
		{"child process", func(t *testing.T) func() {
			cmd := exec.Command("sleep", "1000")
			cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			return func() { cmd.Process.Kill(); cmd.Wait() }
		}},
		{"unused file /dev/shm/colltest-left", func(t *testing.T) func() {
			f, err := os.CreateTemp("/dev/shm", "colltest-left-*")
			if err != nil {
				t.Fatal(err)
			}
			f.Close()
			return func() { os.Remove(f.Name()) }
		}},
	} {
		before := takeState()
		away := c.make(t)
		left := strings.Join(takeState().minus(before), "\n")
		away()
		if !strings.Contains(left, c.want) {
			t.Errorf("left behind %q; want %q", left, c.want)
		}
		if again := strings.Join(takeState().minus(before), "\n"); strings.Contains(again, c.want) {
			t.Errorf("put away and still there: %s", again)
		}
	}
}

// recorder is a test that keeps what it is told.
type recorder struct {
	testing.TB
	cleanup func()
	errors  int
}

func (r *recorder) Helper()               {}
func (r *recorder) Failed() bool          { return false }
func (r *recorder) Cleanup(f func())      { r.cleanup = f }
func (r *recorder) Errorf(string, ...any) { r.errors++ }

func TestWatch(t *testing.T) {
	r := &recorder{TB: t}
	Watch(r)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	if r.cleanup(); r.errors != 0 {
		t.Error("nothing was left behind, and yet the test fails")
	}
	if testing.Short() {
		return // the rest waits for things to settle
	}
	if l, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	if r.cleanup(); r.errors != 1 {
		t.Errorf("a socket was left behind: %d errors; want 1", r.errors)
	}
	l.Close()
}
