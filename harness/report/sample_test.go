package report

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/assay-hpc/assay/harness/history"
	"github.com/assay-hpc/assay/internal/certificate"
	"github.com/assay-hpc/assay/internal/certificate/certificatetest"
	"github.com/assay-hpc/assay/internal/result"
	"github.com/assay-hpc/assay/internal/words"
)

func renderTrend(t testing.TB, title string, all []*certificate.Statement) string {
	t.Helper()
	c := history.NewCollector(history.Options{})
	for _, s := range all {
		c.Add(s)
	}
	var b bytes.Buffer
	if err := History(&b, title, c.History()); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// later is the same certificate, made later.
func later(s *certificate.Statement, by time.Duration) *certificate.Statement {
	s.Predicate.Started, s.Predicate.Finished = s.Predicate.Started.Add(by), s.Predicate.Finished.Add(by)
	return s
}

// past has certificates of a machine from five days before its latest one on:
// copies get slower, one pair too.
func past(gpus int) (out []*certificate.Statement) {
	for day := -5; day <= 0; day++ {
		s := later(certificatetest.Node(gpus), time.Duration(day)*24*time.Hour)
		for i := range s.Predicate.Results {
			r := &s.Predicate.Results[i]
			for j := range r.Objects {
				m := r.Objects[j].Measured
				m.Value += float64((5*j+3*day+20)%4) * 0.4
				if r.ID == "bandwidth/h2d" && j == 0 {
					m.Value -= 4 * float64(day)
				}
				if r.ID == "bandwidth/p2p" && j == 1 {
					m.Value -= float64((5 + day) * (5 + day))
				}
			}
		}
		out = append(out, s)
	}
	return out
}

// well is a machine of which nothing is wrong.
func well(gpus int) *certificate.Statement {
	s := certificatetest.Node(gpus)
	p := &s.Predicate
	for i := range p.Results {
		r := &p.Results[i]
		if !worthy(r.Verdict) {
			continue
		}
		r.Verdict, r.Reason, r.Remedy, r.Output = result.Pass, "", "", ""
		for j := range r.Objects {
			o := &r.Objects[j]
			o.Verdict, o.Reason, o.Measured = result.Pass, "", r.Objects[len(r.Objects)-1].Measured
		}
		if len(r.Objects) > 0 {
			r.Measured = r.Objects[0].Measured
		}
	}
	p.Verdict = result.Summary(p.Results)
	return s
}

// crowded is a machine with an adapter for each GPU.
func crowded() *certificate.Statement {
	s := certificatetest.Node(8)
	t := s.Predicate.Node.Topology
	t.Parts = t.Parts[:len(t.Parts)-1]
	for i := range 8 {
		name := fmt.Sprintf("mlx5_%d", i)
		t.Parts = append(t.Parts, certificate.Part{ID: name, Kind: certificate.PartNIC, Label: name, Under: fmt.Sprintf("switch%d", i/2), Link: "PCIe 5 x16"})
	}
	s.Predicate.Results[0].Objects = append(s.Predicate.Results[0].Objects, result.Object{Name: "mlx5_3/1", Verdict: result.Warn, Reason: "87 °C"})
	return s
}

// bridged is a machine whose two GPUs are joined by a bridge, and are at their
// processors by more than PCIe; with several curves, and a pair that is slow.
func bridged() *certificate.Statement {
	s := certificatetest.Node(2)
	n := s.Predicate.Node
	n.Topology = &certificate.Topology{
		Parts: []certificate.Part{
			{ID: "cpu0", Kind: certificate.PartCPU, Label: "NUMA 0"},
			{ID: "gpu0", Kind: certificate.PartGPU, Label: "GPU 0", Under: "cpu0", Link: "PCIe 4 x16"},
			{ID: "cpu1", Kind: certificate.PartCPU, Label: "NUMA 1"},
			{ID: "gpu1", Kind: certificate.PartGPU, Label: "GPU 1", Under: "cpu1", Link: "PCIe 4 x16"},
		},
		Links: []certificate.Link{{A: "gpu0", B: "gpu1", Kind: "NVLink", Count: 4, GBps: 56.25}, {A: "gpu1", B: "cpu1", Kind: "C2C", GBps: 450}, {A: "cpu0", B: "gpu0", Kind: "C2C", GBps: 450}, {A: "cpu1", B: "cpu0", Kind: "UPI", Count: 3}},
	}
	for i := range s.Predicate.Results {
		r := &s.Predicate.Results[i]
		switch r.ID {
		case "bandwidth/p2p":
			r.Verdict, r.Reason = result.Fail, "GPU 1 → GPU 0: 202 GB/s, less than 360"
			o := &r.Objects[1]
			o.Verdict, o.Reason, o.Measured.Value = result.Fail, "202 GB/s, less than 360", 202
			o.Measured.Ratio = 202 / o.Measured.Expected
		case "coll/all_reduce":
			for j := range 7 {
				c := r.Curves[0]
				c.Name = fmt.Sprintf("all_reduce, %d channels", 2<<j)
				c.Points = nil
				for _, p := range r.Curves[0].Points[2:] {
					c.Points = append(c.Points, result.Point{X: p.X, Y: p.Y * float64(j+1) / 8})
				}
				c.Expected = 350
				r.Curves = append(r.Curves, c)
			}
		}
	}
	s.Predicate.Verdict = result.Summary(s.Predicate.Results)
	return s
}

// evil is a text that every format must escape.
const evil = "\x00\x1b[31m </script> \"q\" \\ ' ]]> \uFFFE \u202e <img src=x onerror=alert(1)>\n&"

// hostile has such texts everywhere.
func hostile() *certificate.Statement { return strange(evil, -1e300, 1e308) }

// strange has a text and two numbers everywhere.
func strange(evil string, a, b float64) *certificate.Statement {
	low, high := min(a, b), max(a, b)
	m := &result.Measurement{
		Value: a, Unit: `"widgets"` + "\n", Expected: 1e-300, Source: "<s>", Ratio: -5,
		Limit:  &result.Limit{Value: b, Kind: result.AtMost, Source: evil},
		Spread: &result.Spread{Low: low, High: high, Kind: result.Range, Samples: 1},
	}
	s := certificate.New(certificate.Predicate{
		Suite: `a"b\c`, Environment: certificate.Environment{Platform: "linux/<b>", OS: "Debian \"12\"\n & <script>alert(1)</script>"},
		Results: []result.Result{
			{ID: `x"y\z`, Component: "<c>\n", Title: "]]>", Verdict: result.Fail, Reason: evil, Remedy: "<img src=x onerror=alert(1)>", Output: "]]>\x07</pre>\xff"},
			{ID: "ok", Title: "t", Verdict: result.Pass, Output: "\x08"},
			{ID: "odd", Title: "t", Verdict: result.Pass, Measured: m},
			{ID: "rest", Title: "t", Verdict: result.Skip, Reason: "a\nb"},
			{
				ID: "objects" + evil, Title: evil, Verdict: result.Warn, Reason: evil,
				Objects: []result.Object{
					{Name: evil, ID: evil, Quantity: evil, Verdict: result.Error, Reason: evil, Measured: m},
					{Name: evil, Peer: "b", Verdict: result.Fail, Reason: evil, Measured: m},
					{Name: "b", Peer: evil, Verdict: result.Warn, Reason: evil},
					{Name: "c", Verdict: result.Skip, Reason: evil},
				},
				Curves: []result.Curve{
					{Name: evil, X: evil, Y: evil, Points: []result.Point{{X: low, Y: b}, {X: high, Y: a}}, Expected: b, Source: evil},
					{Name: evil, X: "B", Y: "s", Points: []result.Point{{X: 0, Y: 0}}},
					{Name: evil, X: "B", Y: "one", Points: []result.Point{{X: low, Y: b}}},
					{Name: evil, X: "B", Y: evil, Points: []result.Point{{X: low, Y: b}}},
				},
			},
		},
	})
	if err := s.SetSubject(`evil"name<b>\`, sampleDigest); err != nil {
		panic(err)
	}
	n := &certificate.Node{
		Name: evil, Identity: []string{evil}, Vendor: evil, Product: evil, Cloud: evil, Instance: evil, Container: evil, Platform: evil,
		Differences: []string{evil}, Driver: evil, CUDA: evil, GPUs: []certificate.GPU{{Name: evil, UUID: evil}}, Ports: []certificate.Port{{Name: evil, Device: evil, State: evil}},
		Versions: map[string]string{evil: evil}, Variables: map[string]string{evil: evil},
		Topology: &certificate.Topology{
			Parts: []certificate.Part{{ID: evil, Kind: certificate.PartKind(evil), Label: evil}, {ID: "b", Kind: certificate.PartGPU, Label: evil, Under: evil, Link: evil}, {ID: "c", Kind: certificate.PartNVSwitch}},
			Links: []certificate.Link{{A: evil, B: "b", Kind: evil, Count: -1, GBps: b}, {A: "b", B: "b", Kind: evil}, {A: "b", B: "c", Kind: evil}},
		},
	}
	if err := s.SetNode(n); err != nil {
		panic(err)
	}
	return s
}

func TestClean(t *testing.T) {
	s := hostile()
	c := cleanStatement(s)
	if s.Predicate.Results[0].Reason != evil || s.Predicate.Node.Topology.Parts[0].Label != evil {
		t.Error("clean changed the original")
	}
	if got := c.Predicate.Results[0].Output; got != `]]>\u0007</pre>\xff`+"\n" {
		t.Errorf("output: %q", got)
	}
	for _, got := range []string{c.Predicate.Results[4].Curves[0].Name, c.Predicate.Node.Topology.Parts[0].Label, c.Predicate.Node.Versions[words.Line(evil)], c.Predicate.Results[4].Objects[0].Measured.Limit.Source} {
		if got != words.Line(evil) || strings.ContainsAny(got, "\x00\x1b\n\u202e\ufffe") {
			t.Errorf("a text is %q; want %q", got, words.Line(evil))
		}
	}
	if c.Predicate.Finished != s.Predicate.Finished || c.Predicate.Environment.CPUs != s.Predicate.Environment.CPUs {
		t.Error("what is no text differs")
	}
}
