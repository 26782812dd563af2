package topology

import (
	"cmp"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// A Matrix is the table of nvidia-smi topo -m: the paths between the GPUs and
// the NICs, and the GPUs' affinities.
type Matrix struct {
	Rows      []MatrixRow `json:"rows"`
	NICLegend []string    `json:"nic_legend,omitempty"` // the name of NIC0, NIC1, …
	nvlink    bool        // the legend explains NV#
}

// A MatrixRow is a device of the matrix.
type MatrixRow struct {
	Name  string `json:"name"`  // GPU0, NIC0
	Paths []Path `json:"paths"` // to each row's device
	// For GPUs, as nvidia-smi prints them: N/A where there is none.
	CPUAffinity  string `json:"cpu_affinity,omitempty"`
	NUMAAffinity string `json:"numa_affinity,omitempty"`
	GPUNUMAID    string `json:"gpu_numa_id,omitempty"`
}

// MatrixOptions select the contents of a Matrix.
type MatrixOptions struct {
	PCIOnly bool // no NVLinks: nvidia-smi topo -mp
	// AllNICs adds plain network interfaces to the RDMA devices; nvidia-smi lists only
	// RDMA devices. Without GPUs, plain interfaces are always included.
	AllNICs bool
}

// Matrix returns the paths between GPUs and NICs.
func (s *System) Matrix(opt MatrixOptions) *Matrix {
	var devices []int
	m := &Matrix{nvlink: !opt.PCIOnly}
	var names []string
	for i := range s.GPUs {
		devices, names = append(devices, i), append(names, "GPU"+strconv.Itoa(s.number(i)))
	}
	for i, n := range s.NICs {
		if n.RDMA || opt.AllNICs || len(s.GPUs) == 0 {
			devices, names = append(devices, len(s.GPUs)+i), append(names, "NIC"+strconv.Itoa(len(m.NICLegend)))
			m.NICLegend = append(m.NICLegend, s.Label(i))
		}
	}
	path := s.Path
	if opt.PCIOnly {
		path = s.PCIPath
	}
	for k, i := range devices {
		row := MatrixRow{Name: names[k]}
		for _, j := range devices {
			row.Paths = append(row.Paths, path(i, j))
		}
		if i < len(s.GPUs) {
			row.affinity(s.GPUs[i])
		}
		m.Rows = append(m.Rows, row)
	}
	return m
}

// number returns a GPU's number for its name.
func (s *System) number(gpu int) int {
	if i := s.GPUs[gpu].Index; i >= 0 {
		return i
	}
	return gpu
}

func (r *MatrixRow) affinity(g GPU) {
	r.CPUAffinity, r.NUMAAffinity, r.GPUNUMAID = cmp.Or(g.CPUAffinity.String(), "N/A"), cmp.Or(g.NUMAAffinity.String(), "N/A"), "N/A"
	if g.MemoryNode != nil {
		r.GPUNUMAID = strconv.Itoa(*g.MemoryNode)
	}
}

// legend explains the labels, in nvidia-smi's words: scripts and people search for them.
const legend = `
Legend:

  X    = Self
  SYS  = Connection traversing PCIe as well as the SMP interconnect between NUMA nodes (e.g., QPI/UPI)
  NODE = Connection traversing PCIe as well as the interconnect between PCIe Host Bridges within a NUMA node
  PHB  = Connection traversing PCIe as well as a PCIe Host Bridge (typically the CPU)
  PXB  = Connection traversing multiple PCIe bridges (without traversing the PCIe Host Bridge)
  PIX  = Connection traversing at most a single PCIe bridge
`

const legendNVLink = "  NV#  = Connection traversing a bonded set of # NVLinks\n"

// Write prints the matrix as nvidia-smi of driver 580 does, tab for tab: an empty column
// before GPU NUMA ID, trailing tabs on the rows of NICs, an empty line after the NIC
// legend. nvidia-smi always underlines the header; Write does so only if underline is
// set, because a file needs no escape sequences and parsers remove them.
func (m *Matrix) Write(w io.Writer, underline bool) error {
	var b strings.Builder
	b.WriteByte('\t')
	if underline {
		b.WriteString("\x1b[4m")
	}
	for _, r := range m.Rows {
		b.WriteString(r.Name + "\t")
	}
	b.WriteString("CPU Affinity\tNUMA Affinity\tGPU NUMA ID")
	if underline {
		b.WriteString("\x1b[0m")
	}
	b.WriteByte('\n')
	for _, r := range m.Rows {
		b.WriteString(r.Name + "\t")
		for _, p := range r.Paths {
			if p.Class == LOC {
				b.WriteString(" X \t")
			} else {
				b.WriteString(p.Label + "\t")
			}
		}
		fmt.Fprintf(&b, "%s\t%s\t\t%s\n", r.CPUAffinity, r.NUMAAffinity, r.GPUNUMAID)
	}
	b.WriteString(legend)
	if m.nvlink {
		b.WriteString(legendNVLink)
	}
	if len(m.NICLegend) > 0 {
		b.WriteString("\nNIC Legend:\n\n")
		for i, n := range m.NICLegend {
			fmt.Fprintf(&b, "  NIC%d: %s\n", i, n)
		}
		b.WriteByte('\n')
	}
	_, err := io.WriteString(w, b.String())
	return err
}
