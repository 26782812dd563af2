package mesh

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/assay-hpc/assay/harness/result"
	"github.com/assay-hpc/assay/harness/stat"
)

// schema is the version of the Report's JSON: fields are added without a new one,
// and change or go only with one.
const schema = 1

// A Report is what was measured, as JSON: bandwidths in bytes a second,
// latencies in nanoseconds.
type Report struct {
	Schema  int     `json:"schema"`
	Tool    string  `json:"tool"` // "write_bw"
	Pattern Pattern `json:"pattern"`
	Serial  bool    `json:"serial"` // one measurement at a time
	Both    bool    `json:"bidirectional"`
	Bytes   uint64  `json:"bytes"` // of a message
	QPs     int     `json:"qps"`
	Samples int     `json:"samples"` // of each cell
	Unit    string  `json:"unit"`    // of values: "bytes_per_second" or "nanoseconds"
	Typical float64 `json:"typical"` // what the cells are held against; 0: too few
	Rounds  int     `json:"rounds"`

	Hosts    []string       `json:"hosts"`
	Ports    []Port         `json:"ports"`
	Cells    []Cell         `json:"cells"`
	Findings []Finding      `json:"findings"`
	Verdict  result.Verdict `json:"verdict"`
}

// A Port takes part.
type Port struct {
	Host     int     `json:"host"` // index into Report.Hosts
	Rank     int     `json:"rank"` // whose process measures it
	Device   string  `json:"device"`
	Port     int     `json:"port"`
	Rail     int     `json:"rail"` // position among its host's
	LinkType string  `json:"link_type,omitempty"`
	Hardware bool    `json:"hardware"`                 // no soft RoCE
	Expected float64 `json:"expected_gbits,omitempty"` // what its rate should be
	Before   link    `json:"before"`
	After    link    `json:"after"`
	// Counters are what those went up by that tell of errors or congestion, from
	// before the first measurement to after the last.
	Counters map[string]uint64 `json:"counters"`
}

// A link is a port's state.
type link struct {
	State string  `json:"state"` // ACTIVE
	Phys  string  `json:"physical_state,omitempty"`
	Gbit  float64 `json:"gbits"`
	Lanes int     `json:"lanes,omitempty"`
	Speed string  `json:"speed,omitempty"` // NDR
}

func (l link) String() string {
	s := fmt.Sprintf("%g Gb/s", l.Gbit)
	if l.Lanes > 0 {
		s += fmt.Sprintf(" (%dX", l.Lanes)
		if l.Speed != "" {
			s += " " + l.Speed
		}
		s += ")"
	}
	return s
}

// A Cell is what was measured from one port to another.
type Cell struct {
	From      int            `json:"from"` // indices into Report.Ports
	To        int            `json:"to"`
	Round     int            `json:"round"`
	Value     float64        `json:"value"` // median of the samples; 0: none
	Samples   []float64      `json:"samples"`
	Reference float64        `json:"reference,omitempty"` // what the slower port's rate allows, bytes a second
	Verdict   result.Verdict `json:"verdict"`
	Reason    string         `json:"reason,omitempty"`
	Error     string         `json:"error,omitempty"`
	// What the two ports' counters went up by meanwhile.
	FromCounters map[string]uint64 `json:"from_counters,omitempty"`
	ToCounters   map[string]uint64 `json:"to_counters,omitempty"`
}

// A Finding names what is to blame.
type Finding struct {
	Kind    string         `json:"kind"`            // "port", "host", "path", "all", "link" or "counter"
	Ports   []int          `json:"ports,omitempty"` // indices into Report.Ports
	Hosts   []int          `json:"hosts,omitempty"` // indices into Report.Hosts
	Verdict result.Verdict `json:"verdict"`
	Text    string         `json:"text"`
}

// Latency reports whether values are times, of which less is better.
func (r *Report) Latency() bool { return r.Unit == "nanoseconds" }

// Name is a port for a person: "node3 mlx5_0", with its number if it is not 1.
func (r *Report) Name(port int) string {
	p := &r.Ports[port]
	return r.Hosts[p.Host] + " " + p.Short()
}

// Short is a port's name on its host.
func (p *Port) Short() string {
	if p.Port == 1 {
		return p.Device
	}
	return fmt.Sprintf("%s:%d", p.Device, p.Port)
}

// Cell is the one from a port to another; nil if there is none.
func (r *Report) Cell(from, to int) *Cell {
	if i, ok := r.cell(from, to); ok {
		return &r.Cells[i]
	}
	return nil
}

func (r *Report) cell(from, to int) (int, bool) {
	return slices.BinarySearchFunc(r.Cells, flow{from, to}, func(c Cell, f flow) int {
		return cmp.Or(cmp.Compare(c.From, f.From), cmp.Compare(c.To, f.To))
	})
}

// sortCells brings them into the order of rows and columns.
func (r *Report) sortCells() {
	slices.SortFunc(r.Cells, func(a, b Cell) int {
		return cmp.Or(cmp.Compare(a.From, b.From), cmp.Compare(a.To, b.To))
	})
}

// finish works out values, verdicts and findings.
func (r *Report) finish() {
	r.sortCells()
	for i := range r.Cells {
		c := &r.Cells[i]
		if c.Value = 0; len(c.Samples) > 0 {
			c.Value = stat.Median(c.Samples)
		}
	}
	r.judge()
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
