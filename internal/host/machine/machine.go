// Package machine reads a node: its devices and their connections, NVIDIA's driver, the network,
// limits and the machine's identity. Commands and checks read a node through it, so that all of
// them see the same devices.
package machine

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"github.com/assay-hpc/assay/internal/exit"
	"github.com/assay-hpc/assay/internal/host/nvml"
	"github.com/assay-hpc/assay/internal/host/sysfs"
	"github.com/assay-hpc/assay/internal/host/topology"
	"github.com/assay-hpc/assay/internal/infile"
	"github.com/assay-hpc/assay/internal/platform"
)

// Options say which node to read.
type Options struct {
	// Root is the directory that contains sys, proc, dev, etc and opt; "/" is this node.
	Root string
	// File is a file with the topology, which a flag named; "": the topology is read from Root.
	File, Flag string
	// Host is which one of the file's hosts, from 1; 0: the first.
	Host int
	// Places is a file that says where devices are, as NCCL_TOPO_FILE does; it is used if the
	// topology is this node's. "": there is none.
	Places string
	// Driver queries NVIDIA's driver for NVLinks. That only works for this node.
	Driver bool
	// Note reports what could not be read; nil: nothing is reported.
	Note func(text string)
}

// A Machine is one reading of a node.
type Machine struct {
	FS     sysfs.FS
	System *topology.System
	// Skipped is why the driver was not queried; nil: it was, or System is from a file.
	Skipped error

	o Options
}

// Read reads a node. Errors about the options carry an exit status.
func Read(o Options) (*Machine, error) {
	m := &Machine{o: o}
	var err error
	if o.File != "" {
		if m.System, err = load(o.Flag, o.File, o.Host); err != nil {
			return nil, err
		}
	}
	if m.FS, err = sysfs.Open(o.Root); err != nil {
		return nil, exit.Usagef("--root: it cannot be read as a root directory: %w", err)
	}
	if m.System == nil {
		err = m.readSystem()
	}
	if err != nil {
		return nil, err
	}
	for _, text := range m.System.Notes {
		m.note(text)
	}
	if text := m.System.FewLinks(); text != "" {
		m.note(text)
	}
	if o.Places == "" || o.File != "" || o.Root != "/" {
		return m, nil
	}
	file, err := load("NCCL_TOPO_FILE", o.Places, 0)
	if err != nil {
		return nil, err
	}
	m.System.Overlay(file)
	return m, nil
}

// load reads a topology from a file. Errors begin with the flag or variable that names it.
func load(what, name string, host int) (*topology.System, error) {
	f, err := infile.OpenArgument(name)
	if err != nil {
		return nil, exit.Usagef("%s: %w", what, err)
	}
	defer f.Close()
	sys, err := topology.LoadHost(f, host)
	if err != nil {
		return nil, exit.Usagef("%s: %s: %w", what, name, err)
	}
	return sys, nil
}

// readSystem reads the topology.
func (m *Machine) readSystem() error {
	src, closeDriver := topology.Sources{FS: m.FS}, func() error { return nil }
	switch {
	case m.o.Root != "/":
		m.Skipped = errors.New("the root directory is another machine's")
	case m.o.Driver:
		lib, err := nvml.Open()
		if err == nil {
			src.NVML, closeDriver = lib, lib.Close
		} else if m.Skipped = err; PCIGPUs(m.FS) > 0 {
			m.note(fmt.Sprintf("NVLinks are not known, so GPUs are connected over PCI only: %v", err))
		}
	}
	sys, err := topology.Read(src)
	m.System = sys
	return errors.Join(err, closeDriver())
}

// overlay places devices according to a file, as NCCL does with NCCL_TOPO_FILE. The file is below
// Options.Root. If it cannot be read, that is a note.
func (m *Machine) overlay(name string) {
	text, err := m.FS.Text(name)
	if err != nil {
		m.note(fmt.Sprintf("NCCL_TOPO_FILE: %v; it is left out", err))
		return
	}
	file, err := topology.Load(strings.NewReader(text))
	if err != nil {
		m.note(fmt.Sprintf("NCCL_TOPO_FILE: %s: %v; it is left out", name, err))
		return
	}
	m.System.Overlay(file)
}

func (m *Machine) note(text string) {
	if m.o.Note != nil {
		m.o.Note(text)
	}
}

// failed reports an error, except for a file that does not exist.
func (m *Machine) failed(err error) {
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		m.note(err.Error())
	}
}

// PCIGPUs counts the GPUs on PCI, whether or not the driver uses them.
func PCIGPUs(f sysfs.FS) (n int) {
	devices, _ := f.PCI()
	for _, d := range devices {
		if d.IsGPU() {
			n++
		}
	}
	return n
}

// Platform describes the node for the hardware database. DMI and container are read from Root,
// and unknown if the topology is from a file.
func (m *Machine) Platform() platform.Node {
	if m.o.File != "" {
		return describe(m.System, driverAsked(m.System))
	}
	n := describe(m.System, m.Skipped == nil && m.o.Driver)
	var err error
	n.DMI, err = m.FS.DMI()
	m.failed(err)
	n.Container = m.FS.Container()
	return n
}

// driverAsked reports whether a topology from a file contains what only the driver knows. Then it
// contains all NVLinks.
func driverAsked(sys *topology.System) bool {
	return slices.ContainsFunc(sys.GPUs, func(g topology.GPU) bool { return g.SM > 0 || g.Name != "" || len(g.NVLinks) > 0 })
}

// describe extracts what distinguishes platforms.
func describe(sys *topology.System, linksKnown bool) platform.Node {
	n := platform.Node{GPUs: []platform.NodeGPU{}, NICs: []platform.NodeNIC{}, LinksKnown: linksKnown}
	for _, g := range sys.GPUs {
		own := platform.NodeGPU{Name: g.Name, Device: pciNumber(g.Device), Slot: g.Link}
		for _, l := range g.NVLinks {
			if l.To != topology.ToCPU {
				own.NVLinks += l.Count
				own.Switched = own.Switched || l.To == topology.ToSwitch
			}
		}
		n.GPUs = append(n.GPUs, own)
	}
	for i, c := range sys.NICs {
		if c.RDMA {
			n.NICs = append(n.NICs, platform.NodeNIC{
				Name: sys.Label(i), Vendor: pciNumber(c.Vendor), Device: pciNumber(c.Device),
				Gbit: float64(c.Mbit) / 1000, LinkLayer: c.LinkLayer, State: c.State,
			})
		}
	}
	return n
}

// pciNumber formats a PCI vendor or device like the database; "" for 0, which means unknown.
func pciNumber(v uint16) string {
	if v == 0 {
		return ""
	}
	return fmt.Sprintf("%04x", v)
}

// HasDriver reports whether the kernel module of a GPU driver is loaded. Querying the
// rest of the driver takes a second.
func HasDriver(root string) bool {
	files, err := sysfs.Open(root)
	if err != nil {
		return false
	}
	_, err = files.Text("/proc/driver/nvidia/version")
	return err == nil
}
