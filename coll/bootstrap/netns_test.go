package bootstrap

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// A lan is some network namespaces, each with eth0, on one bridge in another.
type lan struct {
	t     *testing.T
	hosts []string
}

// newLan makes namespaces with the addresses that addr gives for host i, from
// 1 on; empty is none but the link-local one.
func newLan(t *testing.T, hosts int, addr func(i int) string) *lan {
	t.Helper()
	if testing.Short() {
		t.Skip("namespaces take seconds")
	}
	if os.Getuid() != 0 {
		t.Skip("making network namespaces needs root")
	}
	need(t, "ip")
	name := fmt.Sprintf("bst%d", os.Getpid()%100000)
	l := &lan{t: t}
	if out, err := exec.Command("ip", "netns", "add", name).CombinedOutput(); err != nil {
		t.Skipf("no network namespaces here: %s", out)
	}
	t.Cleanup(func() { exec.Command("ip", "netns", "del", name).Run() })
	l.ip("-n", name, "link", "add", "name", "bridge0", "type", "bridge")
	l.ip("-n", name, "link", "set", "bridge0", "up")
	for i := 1; i <= hosts; i++ {
		h := fmt.Sprintf("%s-%d", name, i)
		l.ip("netns", "add", h)
		t.Cleanup(func() { exec.Command("ip", "netns", "del", h).Run() })
		l.hosts = append(l.hosts, h)
		l.ip("link", "add", "name", "port", "netns", name, "type", "veth", "peer", "name", "eth0", "netns", h)
		l.ip("-n", name, "link", "set", "port", "name", fmt.Sprintf("p%d", i), "master", "bridge0", "up")
		l.ip("-n", h, "link", "set", "lo", "up")
		// No waiting for duplicate address detection.
		l.ip("netns", "exec", h, "sysctl", "-qw", "net.ipv6.conf.eth0.accept_dad=0")
		l.ip("-n", h, "link", "set", "eth0", "up")
		if a := addr(i); a != "" {
			l.ip("-n", h, "addr", "add", a, "dev", "eth0")
		}
	}
	return l
}

func (l *lan) ip(args ...string) {
	l.t.Helper()
	if out, err := exec.Command("ip", args...).CombinedOutput(); err != nil {
		l.t.Fatalf("ip %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

// start starts rank 0 in the first namespace, which makes the root and prints
// its ID, and the others in the other ones.
func (l *lan) start(silence time.Duration) ([]*victim, ID) {
	l.t.Helper()
	n := len(l.hosts)
	first := startVictim(l.t, ID{}, 0, n, silence, "ip", "netns", "exec", l.hosts[0])
	line := first.expect(l.t, 0, "id ")
	var id ID
	var b []byte
	if _, err := fmt.Sscanf(line, "id %x", &b); err != nil || copy(id[:], b) != len(id) {
		l.t.Fatalf("%q: %v", line, err)
	}
	list := []*victim{first}
	for r := 1; r < n; r++ {
		list = append(list, startVictim(l.t, id, r, n, silence, "ip", "netns", "exec", l.hosts[r]))
	}
	for r, v := range list {
		v.expect(l.t, r, "up")
	}
	return list, id
}

func TestNamespaces(t *testing.T) {
	for _, tt := range []struct {
		name string
		addr func(i int) string
		want string // in the root's addresses
	}{
		{"IPv4", func(i int) string { return fmt.Sprintf("10.99.0.%d/24", i) }, "10.99.0.1"},
		{"IPv6", func(i int) string { return fmt.Sprintf("fd99::%d/64", i) }, "fd99::1"},
		{"link-local", func(int) string { return "" }, "fe80::"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			l := newLan(t, 3, tt.addr)
			list, id := l.start(time.Hour)
			if !strings.Contains(id.String(), tt.want) {
				t.Errorf("%v; want an address %s", id, tt.want)
			}
			endVictims(t, list, -1)
		})
	}
}

// TestBadNetwork: with delay and loss it takes longer, and comes up all the
// same.
func TestBadNetwork(t *testing.T) {
	l := newLan(t, 4, func(i int) string { return fmt.Sprintf("10.99.0.%d/24", i) })
	need(t, "tc")
	for _, h := range l.hosts {
		if out, err := exec.Command("ip", "netns", "exec", h, "tc", "qdisc", "add", "dev", "eth0", "root", "netem", "delay", "50ms", "loss", "2%").CombinedOutput(); err != nil {
			t.Skipf("this kernel has no netem: %s", out)
		}
	}
	list, _ := l.start(time.Hour)
	endVictims(t, list, -1)
}

// TestCableCut: packets are dropped in silence, in both directions; each side
// takes the other for dead.
func TestCableCut(t *testing.T) {
	l := newLan(t, 3, func(i int) string { return fmt.Sprintf("10.99.0.%d/24", i) })
	list, _ := l.start(time.Second)
	bridge := strings.TrimSuffix(l.hosts[0], "-1")
	l.ip("-n", bridge, "link", "set", "p3", "nomaster")
	for r := range 2 {
		list[r].expect(t, r, "dead 2 ")
	}
	list[2].expect(t, 2, "dead ")
}
