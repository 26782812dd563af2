package sysfs

import (
	"path"
	"strings"
)

// An Interface is a network interface of /sys/class/net.
type Interface struct {
	Name      string
	Index     int    // ifindex
	OperState string // operstate: up, down, unknown (virtual ones), …
	Mbit      int    // speed in Mb/s; 0 if not known (down, virtual)
	MTU       int    // mtu in bytes
	Type      int    // type: 1 Ethernet, 32 InfiniBand, 772 loopback (linux/if_arp.h)
	Address   string // address: the hardware address

	Virtual  bool     // no device is below it: lo, bridges, veth
	Kind     string   // uevent's DEVTYPE: bridge, bond, vlan, vxlan, wlan; "" for plain interfaces
	Master   string   // master: the bridge or bond to which it belongs
	Lower    []string // lower_*: the members of a bridge or bond, or the interface below a VLAN
	BusID    BusID    // the device's PCI function, if OnPCI
	OnPCI    bool
	Problems []error
}

const netDir = "/sys/class/net"

// Interfaces lists the network interfaces by name.
func (f FS) Interfaces() ([]Interface, error) {
	names, err := f.names(netDir)
	if err != nil {
		return nil, err
	}
	var out []Interface
	for _, name := range names {
		dir := netDir + "/" + name
		if !f.root.IsDir(dir) {
			continue // bonding_masters
		}
		a := &attrs{fs: f, dir: dir}
		i := Interface{
			Name:      name,
			Index:     a.integer("ifindex", 0),
			OperState: a.text("operstate"),
			Mbit:      max(a.integer("speed", 0), 0), // virtual interfaces report -1
			MTU:       a.integer("mtu", 0),
			Type:      a.integer("type", 0),
			Address:   a.text("address"),
			Virtual:   !f.root.IsDir(dir + "/device"),
		}
		i.Kind = deviceType(a.text("uevent"))
		if master, err := f.root.Resolve(dir + "/master"); err == nil && f.root.IsDir(dir+"/master") {
			i.Master = path.Base(master)
		}
		entries, err := f.names(dir)
		if err != nil {
			a.note("", err)
		}
		for _, e := range entries {
			if lower, ok := strings.CutPrefix(e, "lower_"); ok {
				i.Lower = append(i.Lower, lower)
			}
		}
		i.BusID, i.OnPCI = f.owner(dir)
		i.Problems = a.problems
		out = append(out, i)
	}
	return out, nil
}

// deviceType returns the DEVTYPE of a uevent file, which consists of KEY=VALUE lines.
func deviceType(uevent string) string {
	for line := range strings.Lines(uevent) {
		if v, ok := strings.CutPrefix(strings.TrimSpace(line), "DEVTYPE="); ok {
			return v
		}
	}
	return ""
}
