package perf

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"runtime"
	"strings"
)

// document is our own JSON: one object at the end, for --output json.
type document struct{ out io.Writer }

// A Document is what --output json prints. Numbers that are none (a bandwidth
// over no time) are 0.
type Document struct {
	Schema     int          `json:"schema"` // 1
	Collective string       `json:"collective"`
	Engine     string       `json:"engine"`
	Ranks      int          `json:"ranks"` // in the group of rank 0
	Started    string       `json:"started"`
	Args       []string     `json:"args"`
	Env        []string     `json:"env"`
	Devices    []introJSON  `json:"devices"`
	Rows       []Row        `json:"rows"`
	Bad        int          `json:"out_of_bounds"`
	AvgBusBW   float64      `json:"avg_busbw_gbs"`
	MinBusBW   float64      `json:"min_busbw_gbs,omitempty"`
	Straggler  *Tardy       `json:"straggler,omitempty"`
	Shape      *ShapeResult `json:"shape,omitempty"`
	Split      *SplitResult `json:"split,omitempty"`
	Status     Status       `json:"status"`
	Error      string       `json:"error,omitempty"`
}

type introJSON struct {
	Rank int `json:"rank"`
	introduction
}

func (d *document) header(*reporter) error    { return nil }
func (d *document) row(*reporter, *Row) error { return nil }

func (d *document) footer(r *reporter, res *Result, cause error) error {
	doc := Document{
		Schema: 1, Collective: r.c.name, Engine: r.world.Engine, Ranks: r.n, Started: r.started.UTC().Format("2006-01-02T15:04:05Z"),
		Args: r.cfg.Args, Env: reportedEnviron(r.std.Environ), Rows: []Row{}, Bad: res.OutOfBounds, AvgBusBW: finite(res.AvgBusBW),
		MinBusBW: res.MinBusBW, Straggler: res.Straggler, Shape: res.Shape, Split: res.Split, Status: res.Status,
	}
	for i, x := range r.ranks {
		doc.Devices = append(doc.Devices, introJSON{i, x})
	}
	for _, row := range res.Rows {
		for _, p := range []*Placement{&row.OutOfPlace, &row.InPlace} {
			p.AlgBW, p.BusBW = finite(p.AlgBW), finite(p.BusBW)
		}
		doc.Rows = append(doc.Rows, row)
	}
	if cause != nil {
		doc.Error = cause.Error()
		doc.Status = InternalError
	}
	e := json.NewEncoder(d.out)
	e.SetIndent("", "  ")
	return e.Encode(doc)
}

func finite(v float64) float64 {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return 0
	}
	return v
}

// benchSink writes Go benchmark lines, for benchstat.
type benchSink struct{ out io.Writer }

func (s *benchSink) header(r *reporter) error {
	_, err := fmt.Fprintf(s.out, "goos: linux\ngoarch: %s\npkg: github.com/assay-hpc/assay/coll/perf\ncpu: %s\nUnit algGB/s better=higher\nUnit busGB/s better=higher\n", runtime.GOARCH, r.ranks[0].Name)
	return err
}

func (s *benchSink) row(r *reporter, row *Row) error {
	engine := strings.ReplaceAll(r.world.Engine, " ", "-")
	if engine == "" {
		engine = "unknown"
	}
	for i, p := range []*Placement{&row.OutOfPlace, &row.InPlace} {
		_, err := fmt.Fprintf(s.out, "Benchmark%s/ranks=%d/bytes=%d/type=%s/redop=%s/root=%d/inplace=%d/engine=%s %d %.1f ns/op %.6g algGB/s %.6g busGB/s\n",
			camel(r.c.name), r.n, row.Bytes, row.Type, row.Redop, row.Root, i, engine, row.Iterations, p.Time*1e3, finite(p.AlgBW), finite(p.BusBW))
		if err != nil {
			return err
		}
	}
	return nil
}

func (s *benchSink) footer(*reporter, *Result, error) error { return nil }

// camel makes AllReduce of all_reduce, and AllToAll of alltoall.
func camel(name string) string {
	switch name {
	case "alltoall":
		return "AllToAll"
	case "sendrecv":
		return "SendRecv"
	}
	var b strings.Builder
	for part := range strings.SplitSeq(name, "_") {
		b.WriteString(strings.ToUpper(part[:1]) + part[1:])
	}
	return b.String()
}
