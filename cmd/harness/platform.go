package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"github.com/urfave/cli/v2"

	"github.com/assay-hpc/assay/coll/topology"
	"github.com/assay-hpc/assay/harness/hardware"
	"github.com/assay-hpc/assay/harness/platform"
	"github.com/assay-hpc/assay/harness/sysfs"
	"github.com/assay-hpc/assay/internal/grammar"
)

type platformOptions struct {
	format, topo, root string
	stderr             io.Writer
}

func platformCommand(out, errOut io.Writer) *cli.Command {
	o := platformOptions{stderr: errOut}
	return &cli.Command{
		Name:  "platform",
		Usage: "identify the machine, and show what it should reach",
		Description: "Recognises GPUs, the links between them, RDMA devices and cloud instances, finds the nearest platform of the\n" +
			"hardware data base and how the machine differs from it, and lists what each part should reach: the hardware's\n" +
			"peak, what others measured, and from where on it passes, each with its source. What nobody published is\n" +
			"measured and not judged. docs/platform.md has the rules.",
		Flags: []cli.Flag{
			grammar.Format(&o.format, "text", "json"),
			&cli.StringFlag{Name: "topo", Destination: &o.topo, Usage: "read the machine from `FILE`, written by harness show topology --dump or by NCCL (NCCL_TOPO_DUMP_FILE)"},
			&cli.StringFlag{Name: "root", Value: "/", Destination: &o.root, Usage: "read sys and proc below `DIR`, without asking the driver"},
		},
		Before: noArgs,
		Action: func(c *cli.Context) error {
			if o.topo != "" && c.IsSet("root") {
				return usagef("--topo and --root both say which machine; give one of them")
			}
			return o.run(out, os.Getenv)
		},
	}
}

// The document of harness show platform --format json, schema 1.
type platformDoc struct {
	Schema int           `json:"schema"`
	Node   platform.Node `json:"node"`
	// Skipped is why the driver was not asked; "": it was, or the machine is of a
	// file.
	Skipped string `json:"skipped,omitempty"`
	platform.Expectation
	Sources map[string]hardware.Source `json:"sources"` // of the figures
}

func (o *platformOptions) run(out io.Writer, getenv func(string) string) error {
	db, err := platform.Load()
	if err != nil {
		return err
	}
	doc := platformDoc{Schema: 1}
	if doc.Node, doc.Skipped, err = o.node(getenv); err != nil {
		return err
	}
	doc.Expectation = db.Expect(doc.Node)
	doc.Sources = db.SourcesOf(doc.Figures)
	if o.format == "json" {
		return writeJSON(out, doc)
	}
	return doc.writeText(out)
}

// node is the machine that the options name, and why the driver was not asked.
func (o *platformOptions) node(getenv func(string) string) (platform.Node, string, error) {
	if o.topo != "" {
		sys, err := loadTopology("--topo", o.topo)
		if err != nil {
			return platform.Node{}, "", err
		}
		return describe(sys, asked(sys)), "", nil
	}
	t := topoOptions{root: o.root, stderr: o.stderr}
	sys, err := t.system(getenv)
	if err != nil {
		return platform.Node{}, "", err
	}
	for _, note := range sys.Notes {
		fmt.Fprintln(o.stderr, "harness:", note)
	}
	n := describe(sys, o.root == "/" && t.skipped == nil)
	machine, err := sysfs.Open(o.root)
	if err != nil {
		return n, "", usagef("--root: %w", err)
	}
	if n.DMI, err = machine.DMI(); err != nil && !errors.Is(err, fs.ErrNotExist) {
		fmt.Fprintln(o.stderr, "harness:", err)
	}
	n.Container = machine.Container()
	skipped := ""
	switch {
	case t.skipped != nil:
		skipped = t.skipped.Error()
	case o.root != "/":
		skipped = "--root is another machine's"
	}
	return n, skipped, nil
}

// asked reports whether a topology of a file has what only the driver tells, and
// so the NVLinks, if there are any.
func asked(sys *topology.System) bool {
	for _, g := range sys.GPUs {
		if g.SM > 0 || g.Name != "" || len(g.NVLinks) > 0 {
			return true
		}
	}
	return false
}

// describe takes from a topology what tells platforms apart.
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

// pciNumber is a PCI vendor or device as the data base has it; "" for 0, which
// stands for none.
func pciNumber(v uint16) string {
	if v == 0 {
		return ""
	}
	return fmt.Sprintf("%04x", v)
}
