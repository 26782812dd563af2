package session

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"github.com/assay-hpc/assay/internal/meet"
)

// TestAddrs: two ranks that have reached the root by different families have addresses of one family.
func TestAddrs(t *testing.T) {
	on := func(name, addr string) meet.Interface {
		return meet.Interface{Name: name, Addr: netip.MustParseAddr(addr)}
	}
	link := []meet.Interface{on("eth0", "10.0.0.1"), on("eth0", "10.0.0.9"), on("eth0", "fd00::1"), on("eth0", "fe80::1%eth0"), on("eth1", "10.1.0.1"), on("eth1", "fe80::2%eth1")}
	want := []netip.Addr{link[0].Addr, link[4].Addr, link[2].Addr}
	if got := addrs(link); !slices.Equal(got, want) {
		t.Errorf("%v; want %v", got, want)
	}
	six := append([]meet.Interface{link[2]}, link[0], link[4])
	if got, want := addrs(six), []netip.Addr{link[2].Addr, link[4].Addr, link[0].Addr}; !slices.Equal(got, want) {
		t.Errorf("by IPv6: %v; want %v", got, want)
	}
	for i := range 80 {
		link = append(link, on(fmt.Sprintf("br-%d", i), fmt.Sprintf("172.16.%d.1", i)))
	}
	if got := slices.Index(addrs(link), link[2].Addr); got != familiesAfter {
		t.Errorf("the other family is at %d of many; want %d", got, familiesAfter)
	}
	if got := addrs(nil); len(got) != 0 {
		t.Errorf("of none: %v", got)
	}
}
