package topology

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"

	"github.com/assay-hpc/assay/harness/sysfs"
)

// Schema is the version of the JSON form.
const Schema = 1

// A document is a System in JSON.
type document struct {
	Schema int `json:"schema"`
	*System
	Matrix *Matrix `json:"matrix,omitempty"` // for readers; Load passes it over
}

// WriteJSON writes the System, with its matrix for those who read the file
// without us (nil: without).
func (s *System) WriteJSON(w io.Writer, m *Matrix) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	return enc.Encode(document{Schema: Schema, System: s, Matrix: m})
}

// ReadJSON reads what WriteJSON wrote.
func ReadJSON(r io.Reader) (*System, error) {
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

// check refuses what the code that plans with a System relies on.
func (s *System) check() error {
	if len(s.CPUs) == 0 {
		return fmt.Errorf("there are no cpus in it")
	}
	if len(s.GPUs) > 4096 || len(s.NICs) > 4096 || len(s.Switches) > 4096 {
		return fmt.Errorf("more than 4096 devices of a kind")
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

// Load reads a topology in JSON or in NCCL's XML, whichever it finds.
func Load(r io.Reader) (*System, error) {
	b := bufio.NewReader(r)
	for n := 1; n <= 4096; n++ {
		head, err := b.Peek(n)
		if err != nil {
			break
		}
		switch c := head[n-1]; {
		case c == ' ' || c == '\t' || c == '\r' || c == '\n':
		case c == '<':
			return ReadXML(b)
		case c == '{':
			return ReadJSON(b)
		default:
			return nil, fmt.Errorf("neither a topology in JSON nor one in NCCL's XML: it begins with %q", c)
		}
	}
	return nil, fmt.Errorf("neither a topology in JSON nor one in NCCL's XML: it is empty")
}
