package platform

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/assay-hpc/assay/harness/hardware"
)

// FromNode is the source of what no table has and the node itself says, such as
// the rate of a port whose platform is not known.
const FromNode = "node"

// busbw is the unit of collectives' results.
const busbw = "GB/s busbw"

// cited is a figure of one number; nil when it is not known.
func cited(f Figure) *Cited {
	if !f.Known() {
		return nil
	}
	return &Cited{Value: f.Value, Source: f.Source, Confidence: f.Confidence, Note: f.Note}
}

// cited is a target with its source.
func (t *DCGMTargets) cited(value float64) *Cited {
	return &Cited{Value: value, Source: t.Source, Confidence: Medium}
}

// memory is DCGM's own floor of its bandwidth test; nil without one, or when it
// is an evident mistake.
func (t *DCGMTargets) memory() *Floor {
	if t == nil || slices.Contains(t.Suspect, "membw_mbps") {
		return nil
	}
	return &Floor{Cited: *t.cited(t.MemoryMBps / 1000)}
}

// share is a rule's lower fraction of a value, with both sources; nil when the
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

// one is the platform's result of a test that is no collective: of several the
// lowest, so that none of them is expected to be beaten.
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

// A run is what makes results of collectives comparable.
type run struct {
	test, algorithm string
	nodes, gpus     int
}

// runs gathers results of collectives by run: of each the row of the most bytes,
// and of equal ones the lowest.
func runs(list []Result) map[run]Result {
	out := map[run]Result{}
	for _, r := range list {
		if r.Unit != busbw || len(r.Value) != 1 || r.Nodes.N == 0 || r.GPUs == 0 || r.Confidence == Low || !collective(r.Test) {
			continue
		}
		k := run{r.Test, r.Algorithm, r.Nodes.N, r.GPUs}
		old, ok := out[k]
		if !ok || r.bytes() > old.bytes() || r.bytes() == old.bytes() && r.Value[0] < old.Value[0] {
			out[k] = r
		}
	}
	return out
}

// collective says whether a test is one, of which rows of one size exist.
func collective(test string) bool {
	return test == "all_reduce" || test == "all_gather" || test == "reduce_scatter"
}

func (r Result) bytes() int64 {
	if r.SizeBytes == nil {
		return 0
	}
	return *r.SizeBytes
}

// allReduce adds what all of the node's GPUs should reach together, and as many
// of each of several nodes.
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
		// The fraction is what healthy rings reach, so that a floor must be below it: two
		// H100s have 0.76 by NCCL 2.28.9, and 0.76 to 0.80 by our engine (2 GiB, 2026-11).
		if ring := x.share("ring_over_nvlink_fraction", "peak", e.Peak); ring != nil {
			e.Typical = &ring.Cited
			e.Floor = x.share("measured_fraction", "typical", e.Typical)
		}
	}
	x.Figures = slices.Insert(x.Figures, before, e)
}

// otherCollectives adds what the platform's tables have of others.
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
	order := slices.SortedFunc(maps.Keys(all), func(a, b run) int {
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
			if known && floor.bytes() != r.bytes() { // they are of different messages
				x.add(e)
				e.Typical = nil
			}
			e.Bytes, e.Floor = floor.bytes(), &Floor{Cited: *floor.cited()}
		}
		x.add(e)
	}
}

// SourcesOf are the sources that figures name.
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
