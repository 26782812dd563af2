package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"strings"
	"text/tabwriter"

	"github.com/assay-hpc/assay/harness/sysfs"
)

// An ibDevice is a device in "harness ib devices".
type ibDevice struct {
	Name     string   `json:"name"`
	Type     string   `json:"type"` // MT4129
	Firmware string   `json:"firmware,omitempty"`
	PCI      string   `json:"pci,omitempty"`
	Netdevs  []string `json:"netdevs,omitempty"`
	Ports    []ibPort `json:"ports"`
}

type ibPort struct {
	Port  int     `json:"port"`
	State string  `json:"state"`
	Phys  string  `json:"physical_state"`
	Link  string  `json:"link"`
	Gbit  float64 `json:"gbits"`
	Speed string  `json:"speed,omitempty"` // 4X NDR
	LID   uint64  `json:"lid"`
	GIDs  []ibGID `json:"gids"`
}

type ibGID struct {
	Index  int    `json:"index"`
	GID    string `json:"gid"`
	Type   string `json:"type"`
	Netdev string `json:"netdev,omitempty"`
}

// ibDevices is "harness ib devices": it lists the possible values of -d, -i and -x.
func ibDevices(args []string, out, errOut io.Writer) error {
	set := flag.NewFlagSet("harness ib devices", flag.ContinueOnError)
	set.SetOutput(errOut)
	root := set.String("root", "/", "read sys below `DIR`")
	form := set.String("format", "text", "`FORMAT`: text or json")
	set.StringVar(form, "output", "text", "its earlier name")
	err := set.Parse(args)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return nil
	case err != nil:
		return &statusError{exitUsage, nil} // already printed
	case set.NArg() > 0:
		return usagef("ib devices takes no argument %q", set.Arg(0))
	case *form != "text" && *form != "json":
		return usagef("--format is text or json, not %q", *form)
	}
	tree, err := sysfs.Open(*root)
	if err != nil {
		return usagef("ib devices: --root: %w", err)
	}
	list, err := listIB(tree, errOut)
	switch {
	case err != nil:
		return fmt.Errorf("ib devices: %w", err)
	case *form == "json":
		enc := json.NewEncoder(out)
		enc.SetIndent("", "  ")
		return enc.Encode(list)
	}
	return printIB(list, out)
}

// listIB reads the devices. It reports what cannot be read, and leaves it out.
func listIB(tree sysfs.FS, errOut io.Writer) ([]ibDevice, error) {
	devices, err := tree.RDMADevices()
	if errors.Is(err, fs.ErrNotExist) || err == nil && len(devices) == 0 {
		return nil, errors.New("there is no RDMA device on this machine: /sys/class/infiniband has none")
	}
	if err != nil {
		return nil, err
	}
	list := []ibDevice{}
	for _, d := range devices {
		for _, p := range d.Problems {
			fmt.Fprintf(errOut, "harness: %v\n", p)
		}
		e := ibDevice{Name: d.Name, Type: d.HCAType, Firmware: d.Firmware, Netdevs: d.Netdevs, Ports: []ibPort{}}
		if d.OnPCI {
			e.PCI = d.BusID.String()
		}
		for _, p := range d.Ports {
			e.Ports = append(e.Ports, ibPortOf(tree, d.Name, p, errOut))
		}
		list = append(list, e)
	}
	return list, nil
}

func ibPortOf(tree sysfs.FS, device string, p sysfs.RDMAPort, errOut io.Writer) ibPort {
	e := ibPort{Port: p.Number, State: p.State, Phys: p.PhysState, Link: p.LinkLayer, Gbit: p.Rate.Gbit, LID: p.LID, GIDs: []ibGID{}}
	if p.Rate.Lanes > 0 {
		e.Speed = strings.TrimSpace(fmt.Sprintf("%dX %s", p.Rate.Lanes, p.Rate.Name))
	}
	gids, err := tree.GIDs(device, p.Number)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		fmt.Fprintf(errOut, "harness: %v\n", err)
	}
	for _, g := range gids {
		e.GIDs = append(e.GIDs, ibGID{g.Index, g.GID, g.Type, g.Netdev})
	}
	return e
}

func printIB(list []ibDevice, out io.Writer) error {
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
