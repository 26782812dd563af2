package report

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/assay-hpc/assay/harness/history"
	"github.com/assay-hpc/assay/internal/certificate"
	"github.com/assay-hpc/assay/internal/certificate/certificatetest"
	"github.com/assay-hpc/assay/internal/result"
)

// mesh is a machine of n GPUs, each linked to each other one.
func mesh(n int) *certificate.Topology {
	t := &certificate.Topology{Parts: []certificate.Part{{ID: "cpu", Kind: certificate.PartCPU, Label: "NUMA 0"}}}
	for i := range n {
		id := fmt.Sprintf("gpu%d", i)
		t.Parts = append(t.Parts, certificate.Part{ID: id, Kind: certificate.PartGPU, Label: fmt.Sprintf("GPU %d", i), Under: "cpu"})
		for j := range i {
			t.Links = append(t.Links, certificate.Link{A: fmt.Sprintf("gpu%d", j), B: id, Kind: "NVLink", Count: 2, GBps: 50})
		}
	}
	return t
}

func deep(n int) *certificate.Topology {
	t := new(certificate.Topology)
	for i := range n {
		p := certificate.Part{ID: fmt.Sprint(i), Kind: certificate.PartSwitch, Label: "switch"}
		if i > 0 {
			p.Under = fmt.Sprint(i - 1)
		}
		t.Parts = append(t.Parts, p)
	}
	return t
}

// TestDraw: every part has a box of its own, every link a way, and what cannot be
// drawn is left to the tables, which have everything.
func TestDraw(t *testing.T) {
	switchOfSwitches := &certificate.Topology{
		Parts: []certificate.Part{
			{ID: "n", Kind: certificate.PartNVSwitch, Label: "NVSwitch"}, {ID: "g", Kind: certificate.PartGPU, Label: "GPU 0", Under: "n"},
			{ID: "m", Kind: certificate.PartNVSwitch, Label: "NVSwitch 2"}, {ID: "x", Kind: "dpu", Label: "DPU"},
		},
		Links: []certificate.Link{{A: "g", B: "m", Kind: "NVLink"}, {A: "m", B: "m", Kind: "loop"}},
	}
	for name, tt := range map[string]struct {
		of    *certificate.Topology
		drawn bool
		links int
	}{
		"sample":    {certificatetest.Node(8).Predicate.Node.Topology, true, 9},
		"crowded":   {crowded().Predicate.Node.Topology, true, 9},
		"bridged":   {bridged().Predicate.Node.Topology, true, 4},
		"mesh":      {mesh(8), true, 28},
		"bare GPUs": {&certificate.Topology{Parts: []certificate.Part{{ID: "a", Kind: certificate.PartGPU}, {ID: "b", Kind: certificate.PartGPU}}, Links: []certificate.Link{{A: "a", B: "b"}}}, true, 1},
		"odd":       {switchOfSwitches, true, 1},
		"deep":      {deep(mostDeep + 1), true, 0},
		"too deep":  {deep(mostDeep + 2), false, 0},
		"too many":  {mesh(mostParts), false, 0},
		"no part":   {&certificate.Topology{}, false, 0},
	} {
		d := draw(tt.of, nil)
		if d.Drawn != tt.drawn || len(d.Parts) != len(tt.of.Parts) || len(d.Links) != len(tt.of.Links) {
			t.Errorf("%s: drawn %v with %d parts and %d links; want %v, %d, %d", name, d.Drawn, len(d.Parts), len(d.Links), tt.drawn, len(tt.of.Parts), len(tt.of.Links))
		}
		if !d.Drawn {
			continue
		}
		links := 0
		for _, e := range d.Edges {
			if e.Class == "link" {
				links++
			}
		}
		if len(d.Boxes) != len(tt.of.Parts) || links != tt.links {
			t.Errorf("%s: %d boxes and %d links are drawn; want %d, %d", name, len(d.Boxes), links, len(tt.of.Parts), tt.links)
		}
		for i, a := range d.Boxes {
			if a.X < 0 || a.Y < 0 || a.X+a.W > float64(d.W) || a.Y+a.H > float64(d.H) {
				t.Errorf("%s: %q lies outside the drawing", name, a.Text)
			}
			for _, b := range d.Boxes[i+1:] {
				if a.X < b.X+b.W && b.X < a.X+a.W && a.Y < b.Y+b.H && b.Y < a.Y+a.H {
					t.Errorf("%s: %q lies on %q", name, a.Text, b.Text)
				}
			}
		}
	}
}

func TestDrawSigns(t *testing.T) {
	s := crowded()
	var marked []string
	for _, b := range draw(s.Predicate.Node.Topology, s.Predicate.Results).Boxes {
		if strings.HasSuffix(b.Class, " fail") || strings.HasSuffix(b.Class, " warn") {
			marked = append(marked, b.Text)
		}
	}
	if got := strings.Join(marked, ", "); got != "✗ GPU 0, ⚠ NIC mlx5_3" {
		t.Errorf("marked: %s", got)
	}
}

func TestHeatMaps(t *testing.T) {
	s := bridged()
	maps := heatMaps(&s.Predicate.Results[3])
	if len(maps) != 1 || maps[0].Of != "the best, 393" || maps[0].Limit != "at least 360 GB/s (Azure)" {
		t.Fatalf("%+v", maps)
	}
	if c := maps[0].Rows[1].Cells[0]; c.Class != "heat heat-1" || c.Sign != "✗" || c.Text != "202" {
		t.Errorf("slow pair: %+v", c)
	}
	latency := &result.Measurement{Value: 4, Unit: "µs", Limit: &result.Limit{Value: 5, Kind: result.AtMost, Source: "x"}}
	quick := *latency
	quick.Value = 1
	maps = heatMaps(&result.Result{ID: "lat", Objects: []result.Object{
		{Name: "GPU 0", Peer: "mlx5_0", Verdict: result.Pass, Measured: latency},
		{Name: "GPU 1", Peer: "mlx5_0", Verdict: result.Pass, Measured: &quick},
		{Name: "GPU 2", Peer: "mlx5_0", Verdict: result.Error, Reason: "no path"},
		{Name: "GPU 0", Verdict: result.Pass, Measured: latency},
	}})
	if len(maps) != 1 || len(maps[0].Rows) != 3 || len(maps[0].Columns) != 1 {
		t.Fatalf("%+v", maps)
	}
	var got []string
	for _, r := range maps[0].Rows {
		got = append(got, r.Cells[0].Class+" "+r.Cells[0].Sign+r.Cells[0].Text)
	}
	if want := []string{"heat heat-0 4", "heat heat-5 1", "heat !"}; !slices.Equal(got, want) {
		t.Errorf("cells %q; want %q", got, want)
	}
}

// TestHistory: only what is about the same machine, in the order of time, and
// what is there twice once.
func TestHistory(t *testing.T) {
	other := certificatetest.Node(8)
	other.Predicate.Node.Identity = []string{"other"}
	other.Subject = nil
	if err := other.SetNode(other.Predicate.Node); err != nil {
		t.Fatal(err)
	}
	suite := later(certificatetest.Node(8), time.Hour)
	suite.Predicate.Suite = "image"
	days := past(8)
	now := days[len(days)-1]
	slices.Reverse(days)
	page := render(t, now, Page{History: append(days, now, later(other, time.Minute), suite)})
	for want, n := range map[string]int{"<svg class=\"plot\"": 5, "2026-02-24T12:01:23Z</th><td><span": 1, "2026-03-01T12:01:23Z</th><td><span": 1, "12:02:23Z": 0, "13:01:23Z": 0} {
		if got := strings.Count(page, want); got != n {
			t.Errorf("%q is there %d times; want %d", want, got, n)
		}
	}
	if !strings.Contains(page, "worst at last: GPU 0, 31.2 GB/s; dashed: the limit, at least 48 GB/s (Azure)") {
		t.Error("the page does not say which GPU is worst")
	}
	if page := render(t, now, Page{History: []*certificate.Statement{now, other}}); strings.Contains(page, `id="history"`) {
		t.Error("a certificate alone is no history")
	}
}

// TestTrend: a plot for each check and, of links, for each GPU that they begin
// at; the worst line is the one that the limit says.
func TestTrend(t *testing.T) {
	var got []string
	c := history.NewCollector(history.Options{})
	for _, s := range past(8) {
		c.Add(s)
	}
	h := c.History()
	if len(h.Machines) != 1 {
		t.Fatalf("%d machines; want 1", len(h.Machines))
	}
	for _, p := range storyOf(&h.Machines[0], false).Plots {
		got = append(got, fmt.Sprintf("%s: %d", p.Title, len(p.Lines)))
	}
	want := []string{"health/gpu/temperature: 8", "bandwidth/h2d: 8"}
	for i := range 8 {
		want = append(want, fmt.Sprintf("bandwidth/p2p, write, GPU %d to others: 7", i))
	}
	if want = append(want, "coll/all_reduce: 1"); !slices.Equal(got, want) {
		t.Errorf("plots %q; want %q", got, want)
	}
	for lower, worst := range map[bool]string{false: "a", true: "b"} {
		tr := &trend{lines: map[string]*trendLine{}, lower: lower}
		for name, v := range map[string]float64{"a": 1, "b": 2} {
			tr.add(name, name, []history.Value{{At: time.Unix(0, 0), Value: v}})
		}
		tr.date()
		if got, _ := tr.worst(); got != worst {
			t.Errorf("lower is better: %v: the worst is %s; want %s", lower, got, worst)
		}
	}
}

func TestAxes(t *testing.T) {
	labels := func(a axis) string {
		var out []string
		for _, tick := range a.ticks {
			out = append(out, fmt.Sprintf("%s@%.0f", tick.Label, tick.At))
		}
		return strings.Join(out, " ")
	}
	for want, a := range map[string]axis{
		"0@0 100@25 200@50 300@75 400@100":   fromZero([]float64{371, 12}, 0, 100, 6),
		"360@0 370@25 380@50 390@75 400@100": rounded(361, 394, 0, 100, 4),
		"-1.5@0 -1@33 -0.5@67 0@100":         fromZero([]float64{-1.5}, 0, 100, 3),
		"0@0 0.5@50 1@100":                   fromZero(nil, 0, 100, 3),
		"1 KiB@0 16 KiB@40 256 KiB@80":       logarithmic(1024, 1<<20, 0, 100, "B", 3),
		"1@0 10@50 100@100":                  logarithmic(1, 100, 0, 100, "ranks", 6),
		"3@50":                               logarithmic(3, 3, 0, 100, "ranks", 6),
		"2026-01-01@0 2026-01-11@100":        calendar(1767225600, 1768089600, 0, 100),
		"01-01 00:00@0 01-01 01:00@100":      calendar(1767225600, 1767229200, 0, 100),
	} {
		if got := labels(a); got != want {
			t.Errorf("ticks %s; want %s", got, want)
		}
	}
}
