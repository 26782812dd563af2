package topology

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"

	"github.com/assay-hpc/assay/internal/host/sysfs"
)

// Schema is the version of the JSON form.
const Schema = 1

// A systemDocument is a System in JSON.
type systemDocument struct {
	Schema int `json:"schema"`
	*System
	Matrix *Matrix `json:"matrix,omitempty"` // for people; Load ignores it
}

// WriteJSON writes the System, with its matrix for readers without this package (nil: no
// matrix).
func (s *System) WriteJSON(w io.Writer, m *Matrix) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	return enc.Encode(systemDocument{Schema: Schema, System: s, Matrix: m})
}

// readJSON reads the output of WriteJSON.
func readJSON(r io.Reader) (*System, error) {
	data, err := io.ReadAll(io.LimitReader(r, maxXML+1))
	if err != nil {
		return nil, err
	}
	if len(data) > maxXML {
		return nil, fmt.Errorf("the file is longer than %d bytes", maxXML)
	}
	var doc struct {
		Schema int `json:"schema"`
		*System
	}
	dec := json.NewDecoder(bytes.NewReader(data))
	if err := dec.Decode(&doc); err != nil {
		return nil, fmt.Errorf("no topology in JSON: %w", err)
	}
	if doc.Schema != Schema || doc.System == nil {
		return nil, fmt.Errorf("schema %d: this version reads schema %d; write the file anew with --dump", doc.Schema, Schema)
	}
	if err := doc.check(); err != nil {
		return nil, err
	}
	doc.sort()
	return doc.System, nil
}

// Limits of a System in a file: larger than one machine, and small enough for code that
// visits all triples of GPUs, such as the matrix.
const (
	maxCPUs     = 1024 // NUMA nodes, as in Linux
	maxSwitches = 256
	maxAbove    = 8 // switches above a device
	maxGPUs     = 128
	maxNICs     = 1024
	maxLinks    = 64 // far ends of a GPU's NVLinks
)

// limit returns an error if the System is too large.
func (s *System) limit() error {
	for _, k := range []struct {
		what    string
		n, most int
	}{
		{"NUMA nodes", len(s.CPUs), maxCPUs}, {"PCI switches", len(s.Switches), maxSwitches},
		{"GPUs", len(s.GPUs), maxGPUs}, {"network cards", len(s.NICs), maxNICs},
	} {
		if k.n > k.most {
			return fmt.Errorf("%d %s, more than %d: the file must describe one machine", k.n, k.what, k.most)
		}
	}
	for i := range s.Devices() {
		if p := s.pci(i); p != nil && len(p.Switches) > maxAbove {
			return fmt.Errorf("%v: %d PCI switches above it, more than %d", p.BusID, len(p.Switches), maxAbove)
		}
	}
	for _, g := range s.GPUs {
		if len(g.NVLinks) > maxLinks {
			return fmt.Errorf("GPU %v: NVLinks to %d ends, more than %d", g.BusID, len(g.NVLinks), maxLinks)
		}
	}
	return nil
}

// check returns an error if the System violates what planning code relies on.
func (s *System) check() error {
	if len(s.CPUs) == 0 {
		return fmt.Errorf("there are no cpus in it")
	}
	if err := s.limit(); err != nil {
		return err
	}
	seen := map[sysfs.BusID]bool{}
	for _, g := range s.GPUs {
		if seen[g.BusID] {
			return fmt.Errorf("GPU %v is there twice", g.BusID)
		}
		seen[g.BusID] = true
		for _, l := range g.NVLinks {
			if l.Count < 1 || l.Count > 1024 || l.To != ToGPU && l.To != ToSwitch && l.To != ToCPU {
				return fmt.Errorf("GPU %v: NVLink to %v: count %d, to %q", g.BusID, l.Target, l.Count, l.To)
			}
		}
	}
	return nil
}

// Load reads a topology in JSON or in NCCL's XML, whichever it finds; of a file with several hosts the first.
func Load(r io.Reader) (*System, error) { return LoadHost(r, 0) }

// LoadHost is Load for the n-th host of the file, from 1; 0 is the first.
func LoadHost(r io.Reader, host int) (*System, error) {
	b := bufio.NewReader(r)
	head, _ := b.Peek(b.Size()) // an error means that the file is shorter, or occurs again below
	switch head = bytes.TrimLeft(head, " \t\r\n"); {
	case len(head) == 0:
		return nil, fmt.Errorf("neither a topology in JSON nor one in NCCL's XML: it is empty")
	case head[0] == '<':
		return readXML(b, host)
	case head[0] == '{':
		return readJSON(b)
	}
	if bytes.Contains(head, []byte("GPU0")) && bytes.Contains(head, []byte(" X ")) {
		return nil, fmt.Errorf("the text of nvidia-smi topo -m, which does not say what the devices are; harness explain reads it. A topology is what harness show topology --dump and NCCL_TOPO_DUMP_FILE write")
	}
	return nil, fmt.Errorf("neither a topology in JSON nor one in NCCL's XML: it begins with %q", head[0])
}
