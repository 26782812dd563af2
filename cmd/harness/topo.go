package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/assay-hpc/assay/coll/debug"
	"github.com/assay-hpc/assay/coll/knob"
	"github.com/assay-hpc/assay/coll/session"
	"github.com/assay-hpc/assay/internal/exit"
	"github.com/assay-hpc/assay/internal/grammar"
	"github.com/assay-hpc/assay/internal/host/machine"
	"github.com/assay-hpc/assay/internal/host/topology"
	"github.com/assay-hpc/assay/internal/outfile"
)

type topoOptions struct {
	format, load, dump, root string
	host                     int
	pci, all, rings, gdr     bool
	stdout, stderr           io.Writer
}

func topologyCommand(out, errOut io.Writer) *cli.Command {
	o := topoOptions{stdout: out, stderr: errOut}
	return &cli.Command{
		Name:  "topology",
		Usage: "show how GPUs, NICs and processors are connected",
		Description: "Prints the matrix of nvidia-smi topo -m. NVLinks are asked of NVIDIA's driver; the rest is read from\n" +
			"/sys. NCCL_TOPO_FILE, when it is set, says where the machine's devices sit, as it does for NCCL.",
		Flags: []cli.Flag{
			&cli.BoolFlag{Name: "matrix", Aliases: []string{"m"}, Usage: "show the matrix (always; for nvidia-smi's users)"},
			&cli.BoolFlag{Name: "pci", Aliases: []string{"mp"}, Destination: &o.pci, Usage: "show PCI paths only, without NVLink"},
			&cli.BoolFlag{Name: "all", Destination: &o.all, Usage: "also list network interfaces without RDMA"},
			&cli.BoolFlag{Name: "rings", Destination: &o.rings, Usage: "show the rings through the GPUs that work at the same time"},
			&cli.BoolFlag{Name: "gdr", Destination: &o.gdr, Usage: "show each GPU's network card, and whether GPUDirect RDMA suits them by NCCL_NET_GDR_LEVEL, _READ and _C2C"},
			grammar.Format(&o.format, "text", "json"),
			&cli.StringFlag{Name: "load", Destination: &o.load, Usage: "show the machine in `FILE`: our JSON, or NCCL's XML (NCCL_TOPO_DUMP_FILE)"},
			&cli.IntFlag{Name: "host", Destination: &o.host, Usage: "of a file with several hosts, as dumps of an NVLink domain are: the `N`th, from 1"},
			&cli.StringFlag{Name: "dump", Destination: &o.dump, Usage: "also write the topology to `FILE`: NCCL's XML if its name ends in .xml, otherwise JSON"},
			&cli.StringFlag{Name: "root", Value: "/", Destination: &o.root, Usage: "read sys and proc below `DIR`, without asking the driver"},
		},
		Before: grammar.NoArgs,
		Action: func(c *cli.Context) error {
			if o.load != "" && c.IsSet("root") {
				return exit.Usagef("--load and --root both say which machine; give one of them")
			}
			return o.run(os.Getenv)
		},
	}
}

func (o *topoOptions) run(getenv func(string) string) error {
	m, err := machine.Read(machine.Options{Root: o.root, File: o.load, Flag: "--load", Host: o.host, Places: getenv("NCCL_TOPO_FILE"), Driver: true, Note: noting(o.stderr)})
	if err != nil {
		return err
	}
	sys := m.System
	if o.dump != "" {
		if err := o.write(sys); err != nil {
			return err
		}
	}
	matrix := sys.Matrix(topology.MatrixOptions{PCIOnly: o.pci, AllNICs: o.all})
	if o.format == "json" {
		return sys.WriteJSON(o.stdout, matrix)
	}
	if len(sys.GPUs) == 0 {
		skipped := m.Skipped
		if o.root != "/" {
			skipped = nil // the driver is this machine's
		}
		if err := sys.WriteProcessors(o.stdout, skipped); err != nil {
			return err
		}
	}
	if err := o.writeMatrix(matrix); err != nil {
		return err
	}
	if o.rings {
		if err := sys.WriteRings(o.stdout); err != nil {
			return err
		}
	}
	if o.gdr {
		k, warnings, err := knob.Load(os.Environ(), nil)
		if err != nil {
			return exit.Usagef("%w", err)
		}
		for _, w := range warnings {
			if w.Level == debug.Warn {
				noting(o.stderr)(w.Message)
			}
		}
		return sys.WriteGDR(o.stdout, session.GDROptions(k))
	}
	return nil
}

// writeMatrix prints the matrix, on a terminal with an underlined header as nvidia-smi
// does. Names in it may be from a file, so they are escaped.
func (o *topoOptions) writeMatrix(m *topology.Matrix) error {
	var b strings.Builder
	if err := m.Write(&b, colored(o.stdout)); err != nil {
		return err
	}
	header, rest, _ := strings.Cut(b.String(), "\n")
	if _, err := fmt.Fprintln(painted(o.stdout), header); err != nil { // it contains only names that harness show topology assigns
		return err
	}
	_, err := io.WriteString(o.stdout, rest)
	return err
}

// noting returns a function that prints notes about a machine.
func noting(stderr io.Writer) func(text string) {
	return func(text string) { fmt.Fprintln(stderr, "harness:", text) }
}

func (o *topoOptions) write(sys *topology.System) error {
	var b bytes.Buffer
	var err error
	if strings.HasSuffix(strings.ToLower(o.dump), ".xml") {
		err = sys.WriteXML(&b)
	} else {
		err = sys.WriteJSON(&b, nil)
	}
	if err != nil {
		return err
	}
	return outfile.Write(o.dump, b.Bytes())
}
