package probe

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"
	"text/tabwriter"

	"github.com/assay-hpc/assay/internal/host/sysfs"
)

// A Device is an RDMA device, with the possible values of -d, -i and -x.
type Device struct {
	Name     string       `json:"name"`
	Type     string       `json:"type"` // MT4129
	Firmware string       `json:"firmware,omitempty"`
	PCI      string       `json:"pci,omitempty"`
	Netdevs  []string     `json:"netdevs,omitempty"`
	Ports    []DevicePort `json:"ports"`
}

// A DevicePort is a port of a Device.
type DevicePort struct {
	Port  int         `json:"port"`
	State string      `json:"state"`
	Phys  string      `json:"physical_state"`
	Link  string      `json:"link"`
	Gbit  float64     `json:"gbits"`
	Speed string      `json:"speed,omitempty"` // 4X NDR
	LID   uint64      `json:"lid"`
	GIDs  []DeviceGID `json:"gids"`
}

// A DeviceGID is an entry of a port's table of GIDs.
type DeviceGID struct {
	Index  int    `json:"index"`
	GID    string `json:"gid"`
	Type   string `json:"type"`
	Netdev string `json:"netdev,omitempty"`
}

// Devices reads this machine's RDMA devices. It leaves out what cannot be read, and calls problem
// for it.
func Devices(tree sysfs.FS, problem func(error)) ([]Device, error) {
	devices, err := tree.RDMADevices()
	if errors.Is(err, fs.ErrNotExist) || err == nil && len(devices) == 0 {
		return nil, errors.New("there is no RDMA device on this machine: /sys/class/infiniband has none")
	}
	if err != nil {
		return nil, err
	}
	list := []Device{}
	for _, d := range devices {
		for _, p := range d.Problems {
			problem(p)
		}
		e := Device{Name: d.Name, Type: d.HCAType, Firmware: d.Firmware, Netdevs: d.Netdevs, Ports: []DevicePort{}}
		if d.OnPCI {
			e.PCI = d.BusID.String()
		}
		for _, p := range d.Ports {
			e.Ports = append(e.Ports, portOf(tree, d.Name, p, problem))
		}
		list = append(list, e)
	}
	return list, nil
}

func portOf(tree sysfs.FS, device string, p sysfs.RDMAPort, problem func(error)) DevicePort {
	e := DevicePort{Port: p.Number, State: p.State, Phys: p.PhysState, Link: p.LinkLayer, Gbit: p.Rate.Gbit, LID: p.LID, GIDs: []DeviceGID{}}
	if p.Rate.Lanes > 0 {
		e.Speed = strings.TrimSpace(fmt.Sprintf("%dX %s", p.Rate.Lanes, p.Rate.Name))
	}
	gids, err := tree.GIDs(device, p.Number)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		problem(err)
	}
	for _, g := range gids {
		e.GIDs = append(e.GIDs, DeviceGID{g.Index, g.GID, g.Type, g.Netdev})
	}
	return e
}

// WriteDevices prints devices as two tables: the ports, and their GIDs.
func WriteDevices(out io.Writer, list []Device) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "DEVICE\tPORT\tSTATE\tLINK\tGb/s\tSPEED\tLID\tTYPE\tFIRMWARE\tPCI\tINTERFACES")
	for _, d := range list {
		for _, p := range d.Ports {
			state := p.State
			if p.Phys != "LinkUp" && p.Phys != "" {
				state += "/" + p.Phys
			}
			fmt.Fprintf(w, "%s\t%d\t%s\t%s\t%g\t%s\t%d\t%s\t%s\t%s\t%s\n", d.Name, p.Port, dash(state), dash(p.Link), p.Gbit, dash(p.Speed), p.LID,
				dash(d.Type), dash(d.Firmware), dash(d.PCI), dash(strings.Join(d.Netdevs, ",")))
		}
	}
	fmt.Fprintln(w, "\nDEVICE\tPORT\tINDEX\tGID\tTYPE\tINTERFACE")
	for _, d := range list {
		for _, p := range d.Ports {
			for _, g := range p.GIDs {
				fmt.Fprintf(w, "%s\t%d\t%d\t%s\t%s\t%s\n", d.Name, p.Port, g.Index, g.GID, dash(g.Type), dash(g.Netdev))
			}
		}
	}
	return w.Flush()
}

// dash replaces an unknown value by "-".
func dash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}
