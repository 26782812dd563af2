package perf

import (
	"encoding/json"
	"io"
	"math"
)

// jsonDocument writes our own JSON format: one object at the end, for --format json.
type jsonDocument struct {
	silent
	out io.Writer
}

// A Document is what --format json prints. Undefined numbers (a bandwidth over no time) are 0.
type Document struct {
	Schema     int               `json:"schema"` // 1
	Collective string            `json:"collective"`
	Engine     string            `json:"engine"`
	Ranks      int               `json:"ranks"` // in the group of rank 0
	Started    string            `json:"started"`
	Args       []string          `json:"args"`
	Env        []string          `json:"env"`
	Notes      []string          `json:"notes,omitempty"`
	Devices    []introJSON       `json:"devices"`
	Rows       []Row             `json:"rows"`
	Bad        int               `json:"out_of_bounds"`
	AvgBusBW   float64           `json:"avg_busbw_gbs"`
	MinBusBW   float64           `json:"min_busbw_gbs,omitempty"`
	Straggler  *StragglerSummary `json:"straggler,omitempty"`
	Shape      *ShapeResult      `json:"shape,omitempty"`
	Split      *SplitResult      `json:"split,omitempty"`
	Versus     *VersusResult     `json:"versus,omitempty"`
	Rivals     []EngineJSON      `json:"rivals,omitempty"` // of Versus
	Status     Status            `json:"status"`
	Error      string            `json:"error,omitempty"`
}

// EngineJSON names an engine, with its version as NCCL numbers it: 22809.
type EngineJSON struct {
	Engine  string `json:"engine"`
	Version int    `json:"version"`
}

type introJSON struct {
	Rank int `json:"rank"`
	introduction
}

func (d *jsonDocument) footer(r *reporter, res *Result, cause error) error {
	doc := Document{
		Schema: 1, Collective: r.c.Test(), Engine: r.world.Engine, Ranks: r.n, Started: r.started.UTC().Format("2006-01-02T15:04:05Z"),
		Args: r.cfg.Args, Env: reportedEnviron(r.std.Environ), Notes: r.world.Notes, Rows: []Row{}, Bad: res.OutOfBounds, AvgBusBW: finite(res.AvgBusBW),
		MinBusBW: res.MinBusBW, Straggler: res.Straggler, Shape: res.Shape, Split: res.Split, Versus: res.Versus, Status: res.Status,
	}
	for _, a := range r.world.Against {
		doc.Rivals = append(doc.Rivals, EngineJSON{a.Engine, a.Version})
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
