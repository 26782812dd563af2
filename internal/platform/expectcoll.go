package platform

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/assay-hpc/assay/internal/hardware"
)

// FromNode is the source of a value that no table has and the node itself reports, such as the rate
// of a port on an unknown platform.
const FromNode = "node"

// busbw is the unit of collectives' results.
const busbw = "GB/s busbw"

// cited converts a figure with one number; nil if it is not known.
func cited(f Figure) *Cited {
	if !f.Known() {
		return nil
	}
	return &Cited{Value: f.Value, Source: f.Source, Confidence: f.Confidence, Note: f.Note}
}

// cited converts a target.
func (t *DCGMTargets) cited(value float64) *Cited {
	return &Cited{Value: value, Source: t.Source, Confidence: Medium}
}

// memory returns the floor of DCGM's own bandwidth test; nil if there is none, or if it is an
// evident mistake.
func (t *DCGMTargets) memory() *Floor {
	if t == nil || slices.Contains(t.Suspect, "membw_mbps") {
		return nil
	}
	return &Floor{Cited: *t.cited(t.MemoryMBps / 1000)}
}

// share returns the lower fraction of a rule, applied to a value, with both sources; nil if the
// value is not known.
func (x *expecting) share(rule, of string, c *Cited) *Floor {
	r, ok := x.db.Rules[rule]
	if c == nil || !ok {
		return nil
	}
	f := &Floor{Cited: *c, Fraction: r.Low, Of: of}
	f.Value *= r.Low
	f.Source, f.Note = r.Source, fmt.Sprintf("%s of the %s %g (%s)", rule, of, c.Value, c.Source)
	return f
}

// one returns the platform's result of a test that is not a collective. If there are several, it
// returns the lowest, so that no result is expected to be exceeded.
func one(list []Result, test string) *Cited {
	var out *Cited
	for _, r := range list {
		if r.Test == test && len(r.Value) == 1 && r.Confidence != Low && (out == nil || r.Value[0] < out.Value) {
			out = r.cited()
		}
	}
	return out
}

func (r Result) cited() *Cited {
	note := r.Tool
	if note != "" && r.Note != "" {
		note += "; "
	}
	return &Cited{Value: r.Value[0], Source: r.Source, Confidence: r.Confidence, Note: note + r.Note}
}

func (x *expecting) measured(test string) *Cited {
	if x.platform == nil {
		return nil
	}
	return one(x.platform.Measured, test)
}

func (x *expecting) shipped(test string) *Floor {
	if x.platform == nil {
		return nil
	}
	if c := one(x.platform.Floors, test); c != nil {
		return &Floor{Cited: *c}
	}
	return nil
}

// A collKey is the key by which results of collectives are comparable.
type collKey struct {
	test, algorithm string
	nodes, gpus     int
}

// runs groups results of collectives by run. For each it keeps the result with the largest message,
// and of equal sizes the lowest.
func runs(list []Result) map[collKey]Result {
	out := map[collKey]Result{}
	for _, r := range list {
		if r.Unit != busbw || len(r.Value) != 1 || r.Nodes.N == 0 || r.GPUs == 0 || r.Confidence == Low || !collective(r.Test) {
			continue
		}
		k := collKey{r.Test, r.Algorithm, r.Nodes.N, r.GPUs}
		old, ok := out[k]
		if !ok || r.bytes() > old.bytes() || r.bytes() == old.bytes() && r.Value[0] < old.Value[0] {
			out[k] = r
		}
	}
	return out
}

// collective reports whether a test is a collective for which results by size exist.
func collective(test string) bool {
	return test == "all_reduce" || test == "all_gather" || test == "reduce_scatter"
}

func (r Result) bytes() int64 {
	if r.SizeBytes == nil {
		return 0
	}
	return *r.SizeBytes
}

// allReduce adds the expected bandwidth for all GPUs of the node, and for several such nodes.
func (x *expecting) allReduce() {
	before := len(x.Figures)
	x.collectives("all_reduce")
	for _, e := range x.Figures[before:] {
		if e.Nodes == 1 {
			return
		}
	}
	e := Expected{Name: "all_reduce", Title: "all_reduce, bus bandwidth", Unit: "GB/s", Nodes: 1, GPUs: len(x.node.GPUs)}
	m := x.db.GPUs[x.Recognition.model()]
	if m != nil && m.NVLink != nil && m.NVLink.Links.Known() && (x.Recognition.Fabric.Kind == "NVSwitch" || x.Recognition.Fabric.Kind == "unknown") {
		e.Algorithm, e.Peak = "ring", cited(m.NVLink.UniGBps)
		// The fraction is what healthy rings reach, so a floor must be lower: two H100s reach 0.76
		// with NCCL 2.28.9, and 0.76 to 0.80 with our engine (2 GiB, 2026-11).
		if ring := x.share("ring_over_nvlink_fraction", "peak", e.Peak); ring != nil {
			e.Typical = &ring.Cited
			e.Floor = x.share("measured_fraction", "typical", e.Typical)
		}
	}
	x.Figures = slices.Insert(x.Figures, before, e)
}

// otherCollectives adds the platform's results of other collectives.
func (x *expecting) otherCollectives() {
	x.collectives("all_gather")
	x.collectives("reduce_scatter")
}

func (x *expecting) collectives(test string) {
	if x.platform == nil {
		return
	}
	measured, floors := runs(x.platform.Measured), runs(x.platform.Floors)
	all := maps.Clone(measured)
	maps.Copy(all, floors)
	order := slices.SortedFunc(maps.Keys(all), func(a, b collKey) int {
		return cmp.Or(cmp.Compare(a.nodes, b.nodes), cmp.Compare(a.algorithm, b.algorithm))
	})
	for _, k := range order {
		if k.test != test || k.gpus != k.nodes*len(x.node.GPUs) {
			continue
		}
		floor, shipped := floors[k]
		r, known := measured[k]
		e := Expected{Name: test, Title: test + ", bus bandwidth", Unit: "GB/s", Nodes: k.nodes, GPUs: k.gpus, Algorithm: k.algorithm}
		if known {
			e.Bytes, e.Typical = r.bytes(), r.cited()
			e.Floor = x.share("measured_fraction", "typical", e.Typical)
		}
		if shipped {
			if known && floor.bytes() != r.bytes() { // they are for different message sizes
				x.add(e)
				e.Typical = nil
			}
			e.Bytes, e.Floor = floor.bytes(), &Floor{Cited: *floor.cited()}
		}
		x.add(e)
	}
}

// SourcesOf returns the sources of figures.
func (db *DB) SourcesOf(figures []Expected) map[string]hardware.Source {
	out := map[string]hardware.Source{FromNode: {What: "the node itself"}}
	used := map[string]bool{}
	for _, e := range figures {
		for _, c := range []*Cited{e.Peak, e.Typical} {
			if c != nil {
				used[c.Source] = true
			}
		}
		if e.Floor != nil {
			used[e.Floor.Source] = true
		}
	}
	for key := range used {
		if s, ok := db.Sources[key]; ok {
			out[key] = s
		}
	}
	if !used[FromNode] {
		delete(out, FromNode)
	}
	return out
}
