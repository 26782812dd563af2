package platform

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"go.yaml.in/yaml/v3"
)

// A Result is a shipped floor, or a measured value.
type Result struct {
	Test           string     `yaml:"test"`
	Tool           string     `yaml:"tool"`
	Nodes          Span       `yaml:"nodes"`
	GPUs           int        `yaml:"gpus"`
	SizeBytes      *int64     `yaml:"size_bytes"` // nil: not stated
	Algorithm      string     `yaml:"algorithm"`
	Transport      string     `yaml:"transport"`
	Note           string     `yaml:"note"`
	Value          Values     `yaml:"value"` // one value, or the ends of a range
	Unit           string     `yaml:"unit"`
	FractionOfPeak float64    `yaml:"fraction_of_peak"`
	InPlace        float64    `yaml:"in_place"`
	AlgBW          float64    `yaml:"algbw"`
	Source         string     `yaml:"source"`
	Confidence     Confidence `yaml:"confidence"`
}

// A Table is a published sweep of one collective over sizes.
type Table struct {
	Title      string     `yaml:"title"`
	Platform   string     `yaml:"platform"` // key of DB.Platforms
	Collective string     `yaml:"collective"`
	Algorithm  string     `yaml:"algorithm"` // "": not stated
	Nodes      int        `yaml:"nodes"`
	GPUs       int        `yaml:"gpus"`             // in total
	PerProcess int        `yaml:"gpus_per_process"` // 0: one, or not stated
	Source     string     `yaml:"source"`
	Confidence Confidence `yaml:"confidence"`
	Note       string     `yaml:"note"`
	Rows       []Row      `yaml:"rows"`
}

// A Row is one line of a Table, out of place unless stated otherwise.
type Row struct {
	Bytes        int64
	Microseconds float64
	AlgBW, BusBW float64 // GB/s
	InPlaceBusBW float64 // 0 if not published
}

// UnmarshalYAML reads [bytes, µs, algbw, busbw] with or without busbw in place.
func (r *Row) UnmarshalYAML(n *yaml.Node) error {
	if n.Kind != yaml.SequenceNode || len(n.Content) < 4 || len(n.Content) > 5 {
		return fmt.Errorf("line %d: a row is [bytes, time in us, algbw, busbw] and perhaps busbw in place", n.Line)
	}
	for i, v := range []any{&r.Bytes, &r.Microseconds, &r.AlgBW, &r.BusBW, &r.InPlaceBusBW}[:len(n.Content)] {
		if err := n.Content[i].Decode(v); err != nil {
			return err
		}
	}
	return nil
}

// MeasuredTables groups the measured rows of the platforms into tables. It uses rows of a
// collective with a size, an exact number of nodes and a bus bandwidth. Rows with different
// algorithm, source or note belong to different runs. The tables are sorted by platform and size.
func (db *DB) MeasuredTables() []*Table {
	type run struct {
		platform, test, algorithm, source, note string
		nodes, gpus                             int
	}
	runs := map[run]*Table{}
	for _, key := range slices.Sorted(maps.Keys(db.Platforms)) {
		for _, r := range db.Platforms[key].Measured {
			if r.SizeBytes == nil || r.Nodes.N == 0 || r.GPUs == 0 || len(r.Value) != 1 || r.Unit != "GB/s busbw" {
				continue
			}
			k := run{key, r.Test, r.Algorithm, r.Source, r.Note, r.Nodes.N, r.GPUs}
			t := runs[k]
			if t == nil {
				t = &Table{
					Title: fmt.Sprintf("%s, %d GPUs", db.Platforms[key].Name, r.GPUs), Platform: key, Collective: r.Test, Algorithm: r.Algorithm,
					Nodes: r.Nodes.N, GPUs: r.GPUs, Source: r.Source, Confidence: r.Confidence, Note: r.Note,
				}
				runs[k] = t
			}
			t.Rows = append(t.Rows, Row{Bytes: *r.SizeBytes, BusBW: r.Value[0]})
		}
	}
	for _, t := range runs {
		slices.SortStableFunc(t.Rows, func(a, b Row) int { return cmp.Compare(a.Bytes, b.Bytes) })
	}
	return slices.SortedFunc(maps.Values(runs), func(a, b *Table) int {
		return cmp.Or(cmp.Compare(a.Platform, b.Platform), cmp.Compare(a.GPUs, b.GPUs), cmp.Compare(a.Collective, b.Collective),
			cmp.Compare(a.Algorithm, b.Algorithm), cmp.Compare(a.Source, b.Source), cmp.Compare(a.Note, b.Note))
	})
}
