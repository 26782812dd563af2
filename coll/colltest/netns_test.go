package colltest

import (
	"net/netip"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"
)

// across runs stream between the sides of a net.
func across(t *testing.T, n *Net, addr netip.Addr) *Job {
	return Start(t, JobOptions{Program: "stream", Ranks: 2, Arg: netip.AddrPortFrom(addr, 7000).String(), Prefix: n.Prefix})
}

func TestVeth(t *testing.T) {
	Watch(t)
	n := Veth(t)
	for _, addr := range []netip.Addr{n.V4[0], n.V6[0]} {
		j := across(t, n, addr)
		j.Await(t, "streamed", 5*time.Minute)
		j.kill()
	}
	// Nothing of the host's network is in there.
	out, err := n.Command(1, "ip", "-o", "link").CombinedOutput()
	if err != nil || strings.Count(string(out), "\n") < 2 || !strings.Contains(string(out), linkName) || strings.Contains(string(out), "eth0") {
		t.Errorf("links on side 1: %v\n%s", err, out)
	}
}

func TestNamespacesAreRemoved(t *testing.T) {
	var names [2]string
	t.Run("net", func(t *testing.T) { names = Veth(t).Names })
	out, err := exec.Command("ip", "netns", "list").Output()
	if err != nil {
		t.Skip(err)
	}
	for _, name := range names {
		if name != "" && strings.Contains(string(out), name) {
			t.Errorf("namespace %s is still there", name)
		}
	}
}

// TestWireCut: a connection is half open, and each side can only tell by
// silence.
func TestWireCut(t *testing.T) {
	Watch(t)
	w := NewWire(t)
	j := across(t, w.Net, w.V6[0])
	j.Await(t, "streamed", 5*time.Minute)
	w.Cut()
	for _, r := range j.Wait(5 * time.Minute) {
		if !slices.Equal(r.Errors(), []string{"silence"}) {
			t.Errorf("want silence: %v", r)
		}
	}
	if w.dropped.Load() == 0 {
		t.Error("nothing was swallowed")
	}
}

// TestWireLossAndDelay: the text arrives all the same.
func TestWireLossAndDelay(t *testing.T) {
	w := NewWire(t)
	w.Loss(0.05)
	w.Delay(10 * time.Millisecond)
	j := across(t, w.Net, w.V4[0])
	j.Await(t, "streamed", 5*time.Minute)
	for range 200 { // heartbeats go on until some are lost
		if w.passed.Load() > 40 && w.dropped.Load() > 0 {
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
	t.Errorf("%d packets arrived, %d were lost; want some of both", w.passed.Load(), w.dropped.Load())
}
