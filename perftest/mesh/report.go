package mesh

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/assay-hpc/assay/internal/result"
	"github.com/assay-hpc/assay/internal/stat"
)

// A Report contains the measurements: one result, with an object for each cell, in the order of the
// cells.
type Report struct {
	result.Report
	Tool    string  `json:"tool"` // "write_bw"
	Pattern Pattern `json:"pattern"`
	Serial  bool    `json:"serial"` // one measurement at a time
	Both    bool    `json:"bidirectional"`
	Bytes   uint64  `json:"bytes"` // per message
	QPs     int     `json:"qps"`
	Samples int     `json:"samples"` // per cell
	Latency bool    `json:"latency"` // values are times, for which less is better
	Typical float64 `json:"-"`       // with which the cells are compared; 0: too few values
	Rounds  int     `json:"rounds"`

	Hosts    []string  `json:"hosts"`
	Ports    []Port    `json:"ports"`
	Cells    []Cell    `json:"cells"`
	Findings []Finding `json:"findings"`
}

// A Port is a port that takes part.
type Port struct {
	Host     int     `json:"host"` // index into Report.Hosts
	Rank     int     `json:"rank"` // of the process that measures it
	Device   string  `json:"device"`
	Port     int     `json:"port"`
	Rail     int     `json:"rail"` // position among the ports of its host
	LinkType string  `json:"link_type,omitempty"`
	Hardware bool    `json:"hardware"`                 // not Soft RoCE
	Expected float64 `json:"expected_gbits,omitempty"` // its expected rate
	Before   link    `json:"before"`
	After    link    `json:"after"`
	// Counters contains the increases of the counters of errors or congestion, from before the
	// first measurement to after the last.
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

// A Cell contains what was measured from one port to another: bytes per second, or nanoseconds.
type Cell struct {
	From      int            `json:"from"` // indices into Report.Ports
	To        int            `json:"to"`
	Round     int            `json:"round"`
	Value     float64        `json:"-"` // median of the samples; 0: none
	Samples   []float64      `json:"-"`
	Reference float64        `json:"-"` // what the slower port's rate allows, bytes per second
	Verdict   result.Verdict `json:"-"`
	Reason    string         `json:"-"`
	Error     string         `json:"-"`
	// How much the counters of the two ports increased meanwhile.
	FromCounters map[string]uint64 `json:"from_counters,omitempty"`
	ToCounters   map[string]uint64 `json:"to_counters,omitempty"`
}

// A Finding names what is at fault.
type Finding struct {
	Kind    string         `json:"kind"`            // "port", "host", "path", "all", "link" or "counter"
	Ports   []int          `json:"ports,omitempty"` // indices into Report.Ports
	Hosts   []int          `json:"hosts,omitempty"` // indices into Report.Hosts
	Verdict result.Verdict `json:"verdict"`
	Text    string         `json:"text"`
}

// Name is a port for human-readable text: "node3 mlx5_0", with its number if it is not 1.
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

// Cell returns the cell from one port to another, or nil if there is none.
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

// sortCells sorts the cells by row and column.
func (r *Report) sortCells() {
	slices.SortFunc(r.Cells, func(a, b Cell) int {
		return cmp.Or(cmp.Compare(a.From, b.From), cmp.Compare(a.To, b.To))
	})
}

// finish calculates values, verdicts and findings.
func (r *Report) finish() {
	r.sortCells()
	for i := range r.Cells {
		c := &r.Cells[i]
		if c.Value = 0; len(c.Samples) > 0 {
			c.Value = stat.Median(c.Samples)
		}
	}
	r.judge()
	r.Kind, r.Results = "ib mesh", []result.Result{r.result()}
	r.Sum()
}

// remedy is the advice for findings.
const remedy = "look at the port's counters and cable (harness ib devices, harness health)"

// ResultID is the ID of a report's result.
const ResultID = "mesh"

// worst is the overall verdict.
func (r *Report) worst() result.Verdict { return r.Of(ResultID).Verdict }

// result combines the findings, with an object for each cell.
func (r *Report) result() result.Result {
	objects := make([]result.Object, len(r.Cells))
	for i := range r.Cells {
		objects[i] = r.object(&r.Cells[i])
	}
	res := result.Sum(objects)
	var said []string
	verdicts := []result.Verdict{res.Verdict}
	for _, f := range r.Findings {
		verdicts, said = append(verdicts, f.Verdict), append(said, f.Text)
	}
	res.Verdict = result.Worst(verdicts...)
	switch {
	case res.Verdict == result.Pass:
		res.Reason = result.Values(objects)
	case len(said) > 0:
		res.Reason, res.Remedy = strings.Join(said, "; "), remedy
	}
	res.ID, res.Title, res.Measured = ResultID, "RDMA between ports is as fast as they are", result.Speaking(ResultID, objects)
	return res
}

// object converts a cell, in Gb/s or µs.
func (r *Report) object(c *Cell) result.Object {
	name := func(i int) string {
		s := fmt.Sprintf("%s/%d", r.Ports[i].Device, r.Ports[i].Port)
		if len(r.Hosts) > 1 {
			s = r.Hosts[r.Ports[i].Host] + " " + s
		}
		return s
	}
	o := result.Object{Name: name(c.From), Peer: name(c.To), Verdict: c.Verdict, Reason: c.Reason}
	if c.Error != "" {
		o.Verdict, o.Reason = result.Error, c.Error
	}
	if c.Value == 0 {
		return o
	}
	unit, size := "Gb/s", 1e9/8
	if r.Latency {
		unit, size = "us", 1e3
	}
	m := &result.Measurement{Value: c.Value / size, Unit: unit}
	if c.Reference > 0 {
		m.Expected, m.Source, m.Ratio = c.Reference/size, "the slower port's rate", c.Value/c.Reference
	}
	if n := len(c.Samples); n > 1 {
		m.Spread = &result.Spread{Low: slices.Min(c.Samples) / size, High: slices.Max(c.Samples) / size, Kind: result.Range, Samples: n}
	}
	o.Measured = m
	return o
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
