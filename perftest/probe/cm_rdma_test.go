//go:build cgo && linux

package probe

import (
	"context"
	"errors"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/assay-hpc/assay/internal/verbs"
	"github.com/assay-hpc/assay/perftest/probe/wire"
)

// byCM is a test whose queue pairs rdma_cm connects.
func byCM(c Config) Config {
	c.CM = true
	return c
}

// rping is a program that speaks rdma_cm, and not perftest's protocol.
func rping(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "rping", args...)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	return cmd
}

// TestCMNobody: nobody listens by rdma_cm, whether by TCP or not, and an address
// of no RDMA device.
func TestCMNobody(t *testing.T) {
	cc, sc := sides(t, byCM(long(Write, Bandwidth)))
	cc.Wait = 0
	var cm *verbs.CMError
	err := ends(t, running(t.Context(), cc, Events{}))
	if !errors.Is(err, wire.ErrNoServer) || !errors.As(err, &cm) || !cm.Refused() {
		t.Errorf("nobody: %v", err)
	}
	sc.CM = false
	ctx, cancel := context.WithCancel(t.Context())
	waiting := make(chan bool, 1)
	server := running(ctx, sc, Events{Waiting: func(string) { waiting <- true }})
	<-waiting
	err = ends(t, running(t.Context(), cc, Events{}))
	if !errors.Is(err, wire.ErrNoServer) || !strings.Contains(err.Error(), "with -R or -z as on this side") {
		t.Errorf("a server without -R: %v", err)
	}
	cancel()
	<-server
	cc.Host, cc.Source = "127.0.0.1", ""
	err = ends(t, running(t.Context(), cc, Events{}))
	if !errors.Is(err, wire.ErrNoServer) || !strings.Contains(err.Error(), "over no RDMA device") {
		t.Errorf("no RDMA interface: %v", err)
	}
}

// TestCMPortInUse: a second server at a port.
func TestCMPortInUse(t *testing.T) {
	_, sc := sides(t, byCM(long(Write, Bandwidth)))
	ctx, cancel := context.WithCancel(t.Context())
	waiting := make(chan bool, 1)
	first := running(ctx, sc, Events{Waiting: func(string) { waiting <- true }})
	<-waiting
	err := ends(t, running(t.Context(), sc, Events{}))
	if !errors.Is(err, syscall.EADDRNOTAVAIL) || !strings.Contains(err.Error(), "another server runs there") {
		t.Errorf("%v", err)
	}
	cancel()
	if err := ends(t, first); !errors.Is(err, context.Canceled) {
		t.Errorf("the first server: %v", err)
	}
}

// TestCMWrongPeer: a server of another kind, and a client of another kind, which
// the server turns away and goes on.
func TestCMWrongPeer(t *testing.T) {
	cc, sc := sides(t, byCM(long(Write, Bandwidth)))
	cc.Timeout = 5 * time.Second
	rping(t, "-s", "-a", "10.9.0.2", "-p", strconv.Itoa(cc.Port))
	err := ends(t, running(t.Context(), cc, Events{}))
	var e *wire.Error
	if !errors.As(err, &e) {
		t.Errorf("a server of another kind: %v", err)
	}
	t.Log(err)
	sc.Port = port(t)
	ctx, cancel := context.WithCancel(t.Context())
	waiting, notes := make(chan bool, 1), make(chan string, 10)
	server := running(ctx, sc, Events{Waiting: func(string) { waiting <- true }, Note: func(s string) { notes <- s }})
	<-waiting
	rping(t, "-c", "-a", "10.9.0.2", "-p", strconv.Itoa(sc.Port), "-C", "1")
	select {
	case s := <-notes:
		if !strings.Contains(s, wire.ErrGarbage.Error()) {
			t.Errorf("a client of another kind: %s", s)
		}
		t.Log(s)
	case err := <-server:
		t.Fatalf("the server ended: %v", err)
	case <-time.After(5 * time.Minute):
		t.Fatal("the server takes another program for its client")
	}
	cancel()
	if err := ends(t, server); !errors.Is(err, context.Canceled) {
		t.Errorf("the server: %v", err)
	}
}

// TestCMDeadPeer: a server that listens and does nothing more.
func TestCMDeadPeer(t *testing.T) {
	cc, sc := sides(t, byCM(long(Write, Bandwidth)))
	cc.Timeout = 5 * time.Second
	p := rping(t, "-s", "-a", "10.9.0.2", "-p", strconv.Itoa(sc.Port))
	time.Sleep(2 * time.Second)
	if err := p.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	err := ends(t, running(t.Context(), cc, Events{}))
	if !errors.Is(err, wire.ErrNoServer) || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a server that hangs: %v", err)
	}
	t.Log(err)
}
