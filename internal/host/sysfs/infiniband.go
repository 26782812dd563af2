package sysfs

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strconv"
	"strings"
)

// An RDMADevice is an entry of /sys/class/infiniband: an InfiniBand, RoCE,
// iWARP or EFA device.
type RDMADevice struct {
	Name     string
	NodeType string // node_type: "1: CA"
	HCAType  string // hca_type: MT4129
	Firmware string // fw_ver
	Board    string // board_id
	NodeGUID string // node_guid
	BusID    BusID  // the device's PCI function, if OnPCI; soft RoCE has none
	OnPCI    bool
	Netdevs  []string // interfaces of the same function: device/net
	Ports    []RDMAPort
	Problems []error
}

// An RDMAPort is an entry of a device's ports directory.
type RDMAPort struct {
	Number     int
	State      string   // state without its number: ACTIVE, DOWN, INIT, ARMED
	PhysState  string   // phys_state without its number: LinkUp, Polling, …
	LinkLayer  string   // link_layer: InfiniBand or Ethernet
	Rate       RDMARate // rate
	LID, SMLID uint64   // lid, sm_lid; 0 on Ethernet
}

// A GID is an entry of a port's GID table.
type GID struct {
	Index  int
	GID    string // 16 bytes in groups: fe80:0000:…
	Type   string // gid_attrs/types: IB/RoCE v1, RoCE v2; "" if not reported
	Netdev string // gid_attrs/ndevs
}

// An RDMARate is a port's speed.
type RDMARate struct {
	Gbit  float64 // gigabits (1e9) per second, all lanes together
	Lanes int     // 4 of "4X"; 0 if not reported
	Name  string  // HDR, NDR, …; "" if not reported
}

const rdmaDir = "/sys/class/infiniband"

// RDMADevices lists the RDMA devices by name. Without any device the class is usually absent:
// fs.ErrNotExist. GIDs and counters have their own methods, since they are many and the device's
// firmware has to answer for some.
func (f FS) RDMADevices() ([]RDMADevice, error) {
	names, err := f.names(rdmaDir)
	if err != nil {
		return nil, err
	}
	var out []RDMADevice
	for _, name := range names {
		out = append(out, f.rdmaDevice(name))
	}
	slices.SortStableFunc(out, func(a, b RDMADevice) int { return compareNatural(a.Name, b.Name) })
	return out, nil
}

func (f FS) rdmaDevice(name string) RDMADevice {
	a := &attrs{fs: f, dir: rdmaDir + "/" + name}
	d := RDMADevice{
		Name: name, NodeType: a.text("node_type"), HCAType: a.text("hca_type"), Firmware: a.text("fw_ver"),
		Board: a.text("board_id"), NodeGUID: a.text("node_guid"),
	}
	d.BusID, d.OnPCI = f.owner(a.dir)
	d.Netdevs, _ = f.names(a.dir + "/device/net")
	ports, err := f.names(a.dir + "/ports")
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		a.note("ports", err)
	}
	for _, p := range ports {
		if n, ok := numbered(p, ""); ok {
			port, problems := f.rdmaPort(a.dir+"/ports/"+p, n)
			d.Ports = append(d.Ports, port)
			a.problems = append(a.problems, problems...)
		}
	}
	slices.SortFunc(d.Ports, func(a, b RDMAPort) int { return a.Number - b.Number })
	d.Problems = a.problems
	return d
}

func (f FS) rdmaPort(dir string, number int) (RDMAPort, []error) {
	a := &attrs{fs: f, dir: dir}
	p := RDMAPort{
		Number: number, State: parsed(a, "state", parseState), PhysState: parsed(a, "phys_state", parseState),
		LinkLayer: a.text("link_layer"), Rate: parsed(a, "rate", parseRate),
		LID: a.number("lid", 32), SMLID: a.number("sm_lid", 32),
	}
	return p, a.problems
}

func portDir(device string, port int) string {
	return fmt.Sprintf("%s/%s/ports/%d", rdmaDir, device, port)
}

// Counters reads a port's counters and hw_counters by name, in the units of the files:
// port_xmit_data and port_rcv_data are octets divided by 4. The map contains only counters that the
// device has. The error is fs.ErrNotExist for a port without counters.
func (f FS) Counters(device string, port int) (map[string]uint64, error) {
	a := &attrs{fs: f, dir: portDir(device, port)}
	out := map[string]uint64{}
	var errs []error
	for _, sub := range []string{"counters", "hw_counters"} {
		names, err := f.names(a.dir + "/" + sub)
		if err != nil {
			errs = append(errs, err)
		}
		for _, n := range names {
			text, ok := a.get(sub + "/" + n)
			if v, err := strconv.ParseUint(text, 10, 64); ok && err == nil { // lifespan is not a counter
				out[n] = v
			}
		}
	}
	if len(errs) == 2 {
		return nil, errs[0]
	}
	return out, errors.Join(a.problems...)
}

// GIDs reads a port's GID table by index, without the unused entries, which are all zero. The error
// is fs.ErrNotExist for a port without a table.
func (f FS) GIDs(device string, port int) ([]GID, error) {
	a := &attrs{fs: f, dir: portDir(device, port)}
	names, err := f.names(a.dir + "/gids")
	if err != nil {
		return nil, err
	}
	var out []GID
	for _, n := range names {
		index, ok := numbered(n, "")
		text := a.text("gids/" + n)
		if !ok || strings.Trim(text, "0:") == "" {
			continue
		}
		out = append(out, GID{Index: index, GID: text, Type: a.text("gid_attrs/types/" + n), Netdev: a.text("gid_attrs/ndevs/" + n)})
	}
	slices.SortFunc(out, func(a, b GID) int { return a.Index - b.Index })
	return out, errors.Join(a.problems...)
}

// PartitionKeys reads a port's table of partition keys without the unused entries, sorted: 0xffff is
// the default partition as a full member, 0x7fff as a limited one. The error is fs.ErrNotExist for a
// port without a table.
func (f FS) PartitionKeys(device string, port int) ([]uint16, error) {
	a := &attrs{fs: f, dir: portDir(device, port)}
	names, err := f.names(a.dir + "/pkeys")
	if err != nil {
		return nil, err
	}
	var out []uint16
	for _, n := range names {
		if key := a.number("pkeys/"+n, 16); key&0x7fff != 0 {
			out = append(out, uint16(key))
		}
	}
	slices.Sort(out)
	return slices.Compact(out), errors.Join(a.problems...)
}

// parseState parses state and phys_state: "4: ACTIVE".
func parseState(s string) (string, error) {
	number, name, ok := strings.Cut(s, ":")
	name = strings.TrimSpace(name)
	if _, err := strconv.ParseUint(number, 10, 8); err != nil || !ok || name == "" {
		return "", fmt.Errorf("%.40q is not a state such as 4: ACTIVE", s)
	}
	return name, nil
}

// parseRate parses a port's rate: "400 Gb/sec (4X NDR)", "2.5 Gb/sec (1X
// SDR)", "100 Gb/sec".
func parseRate(s string) (RDMARate, error) {
	bad := func() (RDMARate, error) {
		return RDMARate{}, fmt.Errorf("%.40q is not a rate such as 400 Gb/sec (4X NDR)", s)
	}
	speed, rest, _ := strings.Cut(s, " (")
	number, unit, ok := strings.Cut(speed, " ")
	v, err := strconv.ParseFloat(number, 64)
	if err != nil || !ok || unit != "Gb/sec" || !(v >= 0 && v <= 1e6) {
		return bad()
	}
	r := RDMARate{Gbit: v}
	if rest == "" {
		return r, nil
	}
	lanes, name, _ := strings.Cut(strings.TrimSuffix(rest, ")"), "X")
	n, err := strconv.ParseUint(lanes, 10, 8)
	if err != nil {
		return bad()
	}
	r.Lanes, r.Name = int(n), strings.TrimSpace(name)
	return r, nil
}

// compareNatural orders mlx5_2 before mlx5_10.
func compareNatural(a, b string) int {
	ap, an := splitNumber(a)
	bp, bn := splitNumber(b)
	return cmp.Or(strings.Compare(ap, bp), cmp.Compare(an, bn), strings.Compare(a, b))
}

// splitNumber splits a name before its trailing digits.
func splitNumber(s string) (prefix string, number uint64) {
	prefix = strings.TrimRight(s, "0123456789")
	number, _ = strconv.ParseUint(s[len(prefix):], 10, 64)
	return prefix, number
}
