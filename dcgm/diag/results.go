package diag

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/assay-hpc/assay/internal/platform"
	"github.com/assay-hpc/assay/internal/result"
)

// Results converts the report to results of checks: one for each test, with an object for each
// measurement of a GPU or a pair, and one for each engine other than this one. limits are the
// user's rules, by the names of measurements.
func (r *Report) Results(limits map[string]result.Rule) []result.Result {
	var out []result.Result
	for i := range r.Tests {
		out = append(out, r.test(&r.Tests[i], limits))
	}
	for _, e := range r.Engines {
		if e.Name != Assay {
			out = append(out, e.result())
		}
	}
	return out
}

// String describes the GPU for human-readable text.
func (g GPU) String() string {
	return fmt.Sprintf("%s: %s, %s, %.1f GB, %d multiprocessors", gpuName(g.Index), g.Name, g.Bus, float64(g.Bytes)/1e9, g.SMs)
}

func (r *Report) counted() string {
	if len(r.GPUs) == 1 {
		return "1 GPU"
	}
	return fmt.Sprintf("%d GPUs", len(r.GPUs))
}

func (g *GPU) object() result.Object {
	return result.Object{Name: gpuName(g.Index), ID: g.UUID, Bus: g.Bus.String()}
}

func gpuName(i int) string { return fmt.Sprintf("GPU %d", i) }

// result describes another engine and how it ended.
func (e *Engine) result() result.Result {
	res := result.Result{ID: e.Name, Title: "the diagnostics of " + e.Name + " ran", Verdict: result.Pass, Seconds: e.Seconds}
	var is []string
	if e.Version != "" {
		is = append(is, "version "+e.Version)
	}
	if e.Driver != "" {
		is = append(is, "driver "+e.Driver)
	}
	res.Reason = strings.Join(is, ", ")
	if e.Status == result.Skip {
		res.Verdict, res.Reason = result.Skip, cmp.Or(e.Reason, "it skipped all tests")
	}
	return res
}

// test is the result of one test.
func (r *Report) test(t *Result, limits map[string]result.Rule) result.Result {
	objects := make([]result.Object, len(t.Measurements))
	for i, m := range t.Measurements {
		objects[i] = m.object(r.GPUs)
		if rule, ok := limits[m.Name]; ok {
			rule.Judge(m.Name, &objects[i], platform.Expected{Peak: m.Peak, Typical: m.Typical}.Of)
		}
	}
	res := result.Result{
		ID: t.Test, Title: t.Test + " of " + t.Engine, Verdict: t.Status, Seconds: t.Seconds, Output: t.Output,
		Objects: result.Distinct(objects), Measured: result.Speaking("diag/"+t.Test, objects),
	}
	if t.Engine != Assay {
		res.ID = t.Engine + "/" + t.Test
	} else if known, ok := find(t.Test); ok {
		res.Title = Title(known)
	}
	var said []string
	for _, f := range t.Findings {
		if f.Status == t.Status && res.Remedy == "" {
			res.Remedy = f.Remedy
		}
		said = append(said, t.on(f.GPU)+f.Text)
	}
	res.Reason = cmp.Or(t.Reason, strings.Join(said, "; "))
	if own := result.Sum(objects); len(limits) > 0 && t.Status != result.Skip && t.Status != result.Error && result.Worst(own.Verdict, res.Verdict) != res.Verdict {
		res.Verdict, res.Reason = own.Verdict, own.Reason
	}
	if res.Verdict == result.Pass {
		res.Reason = cmp.Or(res.Reason, r.counted())
	}
	return res
}

// Title is the title of a test's result.
func Title(t Test) string { return "GPUs pass the test: " + t.Title }

// on is the prefix that names a finding's GPU.
func (t *Result) on(gpu int) string {
	switch {
	case gpu == NoGPU:
		return ""
	case t.Engine == Assay:
		return gpuName(gpu) + ": "
	}
	return fmt.Sprintf("%s as %s counts: ", gpuName(gpu), t.Engine)
}

// object converts the measurement to an object of a check.
func (m *Measurement) object(gpus []GPU) result.Object {
	o := result.Object{Name: "all GPUs"}
	if m.GPU != NoGPU {
		o.Name = gpuName(m.GPU)
		for _, g := range gpus {
			if g.Index == m.GPU {
				o = g.object()
			}
		}
	}
	if m.Peer != nil {
		o.Peer = gpuName(*m.Peer)
	}
	o.Quantity, o.Verdict, o.Measured = m.Name, result.Pass, &result.Measurement{Value: m.Value, Unit: cmp.Or(m.Unit, "count")}
	if m.Reference > 0 && m.Source != "" {
		o.Measured.Expected, o.Measured.Source, o.Measured.Ratio = m.Reference, m.Source, m.Value/m.Reference
	}
	if m.Floor > 0 && m.FloorSource != "" {
		o.Measured.Limit = &result.Limit{Value: m.Floor, Kind: result.AtLeast, Source: m.FloorSource}
		if m.Value < m.Floor {
			o.Verdict, o.Reason = result.Fail, fmt.Sprintf("%.4g %s, less than %.4g", m.Value, m.Unit, m.Floor)
		}
	}
	return o
}
