package sysfs_test

import (
	"errors"
	"io/fs"
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/assay-hpc/assay/internal/host/sysfs"
	"github.com/assay-hpc/assay/internal/host/sysfs/sysfstest"
)

// routes are tables as a container of Docker's with IPv6 has them, and a route
// that refuses.
const routes = `-- proc/net/route --
Iface	Destination	Gateway 	Flags	RefCnt	Use	Metric	Mask		MTU	Window	IRTT
eth0	00000000	010200C0	0003	0	0	100	00000000	0	0	0
eth0	000200C0	00000000	0001	0	0	0	00FFFFFF	0	0	0
*	000011AC	00000000	0201	0	0	0	0000FFFF	0	0	0
eth1	00000A0A	00000000	0000	0	0	0	0000FFFF	0	0	0
-- proc/net/ipv6_route --
fd000000000000000000000000000000 40 00000000000000000000000000000000 00 00000000000000000000000000000000 00000100 00000001 00000000 00000001     eth0
00000000000000000000000000000000 00 00000000000000000000000000000000 00 fd000000000000000000000000000001 00000400 00000003 00000000 00000003     eth0
00000000000000000000000000000001 80 00000000000000000000000000000000 00 00000000000000000000000000000000 00000000 00000004 00000000 80200001       lo
00000000000000000000000000000000 00 00000000000000000000000000000000 00 00000000000000000000000000000000 ffffffff 00000001 00000000 00200200       lo
-- proc/net/if_inet6 --
fd000000000000000000000000000002 04 40 00 82     eth0
00000000000000000000000000000001 01 80 10 80       lo
-- sys/class/net/bond0.5/uevent --
DEVTYPE=vlan
INTERFACE=bond0.5
-- link:sys/class/net/bond0.5/lower_bond0 --
../bond0
-- sys/class/net/bond0/uevent --
INTERFACE=bond0
DEVTYPE=bond
-- link:sys/class/net/bond0/lower_eth0 --
../eth0
-- sys/class/net/eth0/uevent --
INTERFACE=eth0
-- link:sys/class/net/eth0/master --
../bond0
`

var addrs = cmpopts.EquateComparable(netip.Addr{}, netip.Prefix{})

func TestRoutes(t *testing.T) {
	f := sysfstest.Tree(t, []byte(routes))
	got, err := f.Routes()
	want := []sysfs.Route{
		{To: netip.MustParsePrefix("0.0.0.0/0"), Gateway: netip.MustParseAddr("192.0.2.1"), Dev: "eth0", Metric: 100},
		{To: netip.MustParsePrefix("192.0.2.0/24"), Dev: "eth0"},
		{To: netip.MustParsePrefix("fd00::/64"), Dev: "eth0", Metric: 256},
		{To: netip.MustParsePrefix("::/0"), Gateway: netip.MustParseAddr("fd00::1"), Dev: "eth0", Metric: 1024},
	}
	if diff := cmp.Diff(want, got, addrs); diff != "" || err != nil {
		t.Errorf("Routes: %v (-want +got):\n%s", err, diff)
	}
	six, err := f.Addresses6()
	if len(six) != 2 || six[0] != (sysfs.InterfaceAddr{Dev: "eth0", Prefix: netip.MustParsePrefix("fd00::2/64")}) || err != nil {
		t.Errorf("Addresses6 = %v, %v", six, err)
	}
	ifs, err := f.Interfaces()
	wantIfs := []sysfs.Interface{
		{Name: "bond0", Virtual: true, Kind: "bond", Lower: []string{"eth0"}},
		{Name: "bond0.5", Virtual: true, Kind: "vlan", Lower: []string{"bond0"}},
		{Name: "eth0", Virtual: true, Master: "bond0"},
	}
	if diff := cmp.Diff(wantIfs, ifs); diff != "" || err != nil {
		t.Errorf("Interfaces: %v (-want +got):\n%s", err, diff)
	}
}

func TestNoRoutes(t *testing.T) {
	if got, err := sysfstest.Tree(t, nil).Routes(); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("Routes of nothing = %v, %v", got, err)
	}
	for _, in := range []string{"eth0 1 2", "eth0\t0000000\t0\t1\t0\t0\t0\t0", "eth0\t00000000\t00000000\t0001\t0\t0\t0\t00FF00FF"} {
		if got, err := sysfs.ParseRoutes(in); err == nil {
			t.Errorf("ParseRoutes(%q) = %v; want an error", in, got)
		}
	}
	for _, in := range []string{"x", "fd00 40 0 0 0 0 0 0 1 eth0"} {
		if got, err := sysfs.ParseRoutes6(in); err == nil {
			t.Errorf("ParseRoutes6(%q) = %v; want an error", in, got)
		}
		if got, err := sysfs.ParseAddresses6(in); err == nil {
			t.Errorf("ParseAddresses6(%q) = %v; want an error", in, got)
		}
	}
}

// FuzzRoutes: no parser panics, and what is accepted is valid.
func FuzzRoutes(f *testing.F) {
	f.Add(routes)
	f.Add("eth0\t000200C0\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0\n")
	f.Add("fd000000000000000000000000000002 04 40 00 82 eth0")
	f.Add("00000000000000000000000000000000 00 00000000000000000000000000000000 00 fd000000000000000000000000000001 00000400 00000003 00000000 00000003     eth0\n")
	f.Fuzz(func(t *testing.T, in string) {
		four, _ := sysfs.ParseRoutes(in)
		six, _ := sysfs.ParseRoutes6(in)
		for _, r := range append(four, six...) {
			if !r.To.IsValid() || r.Dev == "" || r.Gateway.IsValid() && r.Gateway.Is4() != r.To.Addr().Is4() {
				t.Errorf("of %q: %+v", in, r)
			}
		}
		all, _ := sysfs.ParseAddresses6(in)
		for _, a := range all {
			if !a.Prefix.IsValid() || a.Dev == "" {
				t.Errorf("of %q: %+v", in, a)
			}
		}
	})
}
