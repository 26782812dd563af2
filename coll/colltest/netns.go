package colltest

import (
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"testing"
)

// A Net is two network namespaces with a link between them. Side is 0 or 1.
type Net struct {
	Names     [2]string     // of the namespaces
	V4, V6    [2]netip.Addr // of the link's ends: in 10.x.y.0/24 and fdxx::/64
	Interface string        // the link's name, on both sides
}

// linkName is the name of the link inside the namespaces.
const linkName = "link0"

var nets atomic.Int32

// Veth creates two namespaces with a veth pair between them, which is as fast as the kernel is.
// The test is skipped, with the reason, if that is not possible.
func Veth(t testing.TB) *Net {
	t.Helper()
	n := newNet(t)
	ends := n.endNames()
	ip(t, "link", "add", ends[0], "type", "veth", "peer", "name", ends[1])
	n.adopt(t, ends)
	return n
}

// newNet creates the namespaces, and removes them when the test ends.
func newNet(t testing.TB) *Net {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("network namespaces need root")
	}
	if _, err := exec.LookPath("ip"); err != nil {
		t.Skip("network namespaces need ip, of the package iproute2")
	}
	i := int(nets.Add(1))
	n := &Net{Interface: linkName}
	for side := range 2 {
		n.Names[side] = fmt.Sprintf("colltest-%d-%d%c", os.Getpid(), i, 'a'+side)
		n.V4[side] = netip.AddrFrom4([4]byte{10, 77, byte(i), byte(1 + side)})
		n.V6[side] = netip.MustParseAddr(fmt.Sprintf("fd77:%x::%d", i, 1+side))
		if out, err := exec.Command("ip", "netns", "add", n.Names[side]).CombinedOutput(); err != nil {
			t.Skipf("no network namespaces here: ip netns add: %v: %s", err, out)
		}
		t.Cleanup(func() { exec.Command("ip", "netns", "del", n.Names[side]).Run() })
	}
	return n
}

// endNames returns the names of the link's ends while they are in the host's namespace: at most
// 15 bytes, the kernel's limit.
func (n *Net) endNames() (ends [2]string) {
	for side := range ends {
		ends[side] = fmt.Sprintf("ct%x%c%x", os.Getpid(), 'a'+side, nets.Load())
	}
	return ends
}

// adopt moves the ends of a link into the namespaces and gives them addresses.
func (n *Net) adopt(t testing.TB, ends [2]string) {
	t.Helper()
	for side, end := range ends {
		ns := n.Names[side]
		ip(t, "link", "set", end, "netns", ns, "name", linkName)
		ip(t, "-n", ns, "link", "set", "lo", "up")
		ip(t, "-n", ns, "link", "set", linkName, "up")
		ip(t, "-n", ns, "addr", "add", n.V4[side].String()+"/24", "dev", linkName)
		// The address is unique, so there is no need to wait for duplicate address detection.
		ip(t, "-n", ns, "addr", "add", n.V6[side].String()+"/64", "dev", linkName, "nodad")
	}
}

func ip(t testing.TB, args ...string) {
	t.Helper()
	if out, err := exec.Command("ip", args...).CombinedOutput(); err != nil {
		t.Fatalf("ip %s: %v: %s", strings.Join(args, " "), err, out)
	}
}

// Prefix returns the command that runs another one on a side, for JobOptions.
func (n *Net) Prefix(side int) []string { return []string{"ip", "netns", "exec", n.Names[side]} }

// Command is exec.Command on a side.
func (n *Net) Command(side int, name string, args ...string) *exec.Cmd {
	all := append(n.Prefix(side), append([]string{name}, args...)...)
	return exec.Command(all[0], all[1:]...)
}
