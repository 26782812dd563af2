package history

import (
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/assay-hpc/assay/internal/certificate"
	"github.com/assay-hpc/assay/internal/certificate/certificatetest"
	"github.com/assay-hpc/assay/internal/golden"
	"github.com/assay-hpc/assay/internal/result"
)

var begin = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// day returns a certificate of the day-th day, in which each copy and pair has its
// value times what scale says, if that is not nil, and noise.
func day(t testing.TB, rng *rand.Rand, d int, scale func(check, object string) float64) *certificate.Statement {
	t.Helper()
	st := certificatetest.Node(4)
	p := &st.Predicate
	p.Started = begin.AddDate(0, 0, d)
	p.Finished = p.Started.Add(time.Minute)
	for i := range p.Results {
		r := &p.Results[i]
		for j := range r.Objects {
			o := &r.Objects[j]
			if !strings.HasPrefix(r.ID, "bandwidth/") {
				continue
			}
			v := 55.2
			if o.Peer != "" {
				v = 390
			}
			if scale != nil {
				v *= scale(r.ID, o.Name)
			}
			m := *o.Measured
			m.Value = math.Round(v*(1+0.002*rng.NormFloat64())*100) / 100
			m.Spread = &result.Spread{Low: m.Value * 0.999, High: m.Value * 1.001, Kind: result.Confidence, Samples: 16}
			m.Ratio = m.Value / m.Expected
			o.Verdict, o.Reason, o.Measured = result.Pass, "", &m
		}
		if r.ID == "bandwidth/h2d" {
			r.Verdict, r.Reason, r.Remedy = result.Pass, "", ""
			r.Measured = r.Objects[0].Measured
		}
	}
	p.Verdict = result.Summary(p.Results)
	return st
}

func newRand() *rand.Rand { return rand.New(rand.NewPCG(3, 5)) }

// collect makes a history, of certificates in another order than they were made.
func collect(t testing.TB, o Options, all []*certificate.Statement) *History {
	t.Helper()
	c := NewCollector(o)
	for _, i := range newRand().Perm(len(all)) {
		if _, err := all[i].Marshal(); err != nil {
			t.Fatal(err)
		}
		c.Add(all[i])
	}
	return c.History()
}

func days(t testing.TB, n int, scale func(d int, check, object string) float64) (all []*certificate.Statement) {
	t.Helper()
	rng := newRand()
	for d := range n {
		all = append(all, day(t, rng, d, func(check, object string) float64 { return scale(d, check, object) }))
	}
	return all
}

// slow returns 1, but so much for one GPU's copies from some day on.
func slow(from int, to float64) func(d int, check, object string) float64 {
	return func(d int, check, object string) float64 {
		if d >= from && check == "bandwidth/h2d" && object == "GPU 3" {
			return to
		}
		return 1
	}
}

func TestDrifts(t *testing.T) {
	for _, tt := range []struct {
		name  string
		days  int
		scale func(d int, check, object string) float64
		kind  DriftKind // "": none
		from  int       // day
		by    float64
		odd   int // outliers
	}{
		{"nothing", 30, slow(99, 1), "", 0, 0, 0},
		{"a step", 30, slow(20, 0.93), Step, 19, -0.07, 0},
		{"a step three days ago", 30, slow(27, 0.93), Step, 26, -0.07, 0},
		{"two days may be the beginning of a step", 30, slow(28, 0.93), "", 0, 0, 2},
		{"a step after three days", 6, slow(3, 0.93), Step, 2, -0.07, 0},
		{"a step within the tolerance", 30, slow(20, 0.985), "", 0, 0, 0},
		{"one odd day at the end", 30, slow(29, 0.5), "", 0, 0, 1},
		{"one odd day", 30, func(d int, c, o string) float64 {
			if d == 12 {
				return slow(0, 0.5)(d, c, o)
			}
			return 1
		}, "", 0, 0, 1},
		{"bit by bit", 40, func(d int, c, o string) float64 { return slow(0, 1-0.05*float64(d)/39)(d, c, o) }, Slope, 0, -0.05, 0},
		{"for the better", 20, slow(10, 1.1), Step, 9, 0.1, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			h := collect(t, Options{}, days(t, tt.days, tt.scale))
			odd := 0
			for _, s := range h.Machines[0].Series {
				if odd += len(s.Outliers); len(s.Outliers) > 0 && s.Outliers[0].Last != (tt.name != "one odd day") {
					t.Errorf("outlier %+v", s.Outliers[0])
				}
			}
			if odd != tt.odd {
				t.Errorf("%d outliers; want %d", odd, tt.odd)
			}
			got := h.Drifts()
			if tt.kind == "" {
				if len(got) != 0 {
					t.Errorf("drifts: %v; want none", got)
				}
				return
			}
			if len(got) != 1 {
				t.Fatalf("drifts: %v; want one", got)
			}
			d := got[0]
			if d.Kind != tt.kind || d.Object != "GPU 3" || d.Check != "bandwidth/h2d" || d.Peers != 3 || math.Abs(d.Change-tt.by) > 0.005 || d.Better != (tt.by > 0) {
				t.Errorf("drift = %+v; want a %s of %g", d, tt.kind, tt.by)
			}
			if want := begin.AddDate(0, 0, tt.from).Add(time.Minute); !d.From.Equal(want) {
				t.Errorf("it is from %v; want %v", d.From, want)
			}
			if worse := h.Worse(); (worse == 0) != d.Better {
				t.Errorf("Worse = %d of %+v", worse, d)
			}
		})
	}
}

// TestOver: a dip that is over is told, and counts as no drift.
func TestOver(t *testing.T) {
	h := collect(t, Options{}, days(t, 60, func(d int, c, o string) float64 {
		if d >= 15 && d < 40 {
			return slow(0, 0.9)(d, c, o)
		}
		return 1
	}))
	got := h.Drifts()
	if len(got) != 1 || got[0].Until == nil || !got[0].Until.Equal(begin.AddDate(0, 0, 40).Add(time.Minute)) || h.Worse() != 0 {
		t.Errorf("drifts: %v, %d for the worse; want one that is over on the 40th day", got, h.Worse())
	}
}

// TestIdentity: a GPU is followed by its UUID when numbers change.
func TestIdentity(t *testing.T) {
	all := days(t, 12, slow(6, 0.9))
	for _, st := range all[8:] { // two GPUs change their numbers
		p := &st.Predicate
		swap := func(s *string) {
			switch *s {
			case "GPU 2":
				*s = "GPU 3"
			case "GPU 3":
				*s = "GPU 2"
			}
		}
		for i := range p.Results {
			for j := range p.Results[i].Objects {
				swap(&p.Results[i].Objects[j].Name)
				swap(&p.Results[i].Objects[j].Peer)
			}
		}
		p.Node.GPUs[2].Index, p.Node.GPUs[3].Index = 3, 2
	}
	h := collect(t, Options{}, all)
	got := h.Drifts()
	if len(got) != 1 || got[0].ID != "GPU-00000003-1111-2222-3333-444444444444" || got[0].Object != "GPU 2" {
		t.Errorf("drifts: %v; want one, of the GPU with the UUID …3…, by its latest name", got)
	}
	for _, s := range h.Machines[0].Series {
		if s.Points != 12 {
			t.Errorf("%+v has %d points; want 12", s.Thing, s.Points)
		}
	}
}

func TestCollector(t *testing.T) {
	all := days(t, 6, slow(3, 0.8))
	for _, st := range all[3:] {
		st.Predicate.Node.Driver = "590.1"
		st.Predicate.Results[2].Verdict, st.Predicate.Results[2].Reason = result.Fail, "GPU 3 is slow"
		st.Predicate.Results[0].Verdict, st.Predicate.Results[0].Reason = result.Skip, "not asked for"
		st.Predicate.Verdict = result.Summary(st.Predicate.Results)
	}
	h := collect(t, Options{Wants: func(id string) bool { return id != "coll/all_reduce" }}, append(all, all[2], all[4]))
	if h.Certificates != 6 || h.Repeated != 2 || len(h.Machines) != 1 {
		t.Fatalf("%d certificates, %d repeated, %d machines; want 6, 2, 1", h.Certificates, h.Repeated, len(h.Machines))
	}
	m := h.Machines[0]
	at := begin.AddDate(0, 0, 3).Add(time.Minute)
	if want := []Change{{at, "driver", "580.159.04", "590.1"}}; !slices.Equal(m.Changes, want) {
		t.Errorf("changes = %+v; want %+v", m.Changes, want)
	}
	if want := []VerdictChange{
		{at, "node", "", result.Error, result.Fail, ""}, {at, "node", "bandwidth/h2d", result.Pass, result.Fail, "GPU 3 is slow"},
	}; !slices.Equal(m.Verdicts, want) {
		t.Errorf("verdicts = %+v; want %+v", m.Verdicts, want)
	}
	if d := h.Drifts(); len(d) != 1 || len(d[0].With) != 0 {
		t.Errorf("drifts = %+v; want one, and not by the driver, which the other GPUs got too", d)
	}
	for _, s := range m.Series {
		if s.Check == "coll/all_reduce" {
			t.Error("a check that was not wanted is there")
		}
	}
	if m.Digest != certificate.NodeDigest(all[0].Predicate.Node.Identity) || m.Name != "node07" {
		t.Errorf("the machine is %s %s", m.Name, m.Digest)
	}
}

// TestDirection: what says which way is better is what was measured; in an old
// certificate a site's limit may lie on the wrong side.
func TestDirection(t *testing.T) {
	wrong := &result.Limit{Value: 900, Kind: result.AtLeast, Source: "own.yaml:4"}
	right := &result.Limit{Value: 1, Kind: result.AtMost, Source: "own.yaml:4"}
	for _, tt := range []struct {
		name, check, quantity, unit string
		limit                       *result.Limit
		from, to                    float64
		better                      bool
	}{
		{"more bandwidth", "bandwidth/host_to_device", "", "GB/s", nil, 40, 50, true},
		{"less bandwidth", "bandwidth/host_to_device", "", "GB/s", nil, 50, 40, false},
		{"less latency", "bandwidth/host_latency", "", "ns", wrong, 1200, 800, true},
		{"more latency", "bandwidth/host_latency", "", "ns", wrong, 800, 1200, false},
		{"hotter", "diag/sm_stress", "highest temperature", "°C", nil, 70, 90, false},
		{"hotter, as measured twice", "diag/sm_stress", "highest temperature 2", "°C", nil, 70, 90, false},
		{"farther from too hot", "after/gpu/temperature/margin", "", "°C", nil, 20, 40, true},
		{"more processes", "health/gpu/processes", "", "processes", nil, 100, 400, false},
		{"fewer spare rows", "health/gpu/row-remap/spares", "", "banks", nil, 100, 400, false},
		{"a pair's latency", "mesh", "", "us", nil, 100, 400, false},
		{"unknown, by its limit", "x", "y", "z", right, 400, 100, true},
		{"unknown, up", "x", "y", "z", nil, 100, 400, false},
		{"unknown, down", "x", "y", "z", nil, 400, 100, false},
	} {
		one := func(v float64, day int) *certificate.Statement {
			st := certificatetest.Node(2)
			st.Predicate.Finished = st.Predicate.Finished.AddDate(0, 0, day)
			st.Predicate.Results = []result.Result{{ID: tt.check, Verdict: result.Pass, Objects: []result.Object{
				{Name: "GPU 0", Quantity: tt.quantity, Verdict: result.Pass, Measured: &result.Measurement{Value: v, Unit: tt.unit, Limit: tt.limit}},
			}}}
			return st
		}
		if got := Compare(one(tt.from, 0), one(tt.to, 1), 0.05); len(got) != 1 || got[0].Better != tt.better {
			t.Errorf("Compare, %s: %+v; want one drift, for the better: %v", tt.name, got, tt.better)
		}
		c := NewCollector(Options{})
		for day := range 10 {
			v := tt.from
			if day >= 5 {
				v = tt.to
			}
			c.Add(one(v, day))
		}
		h := c.History()
		worse := 1
		if tt.better {
			worse = 0
		}
		if len(h.Drifts()) != 1 || h.Worse() != worse {
			t.Errorf("History, %s: drifts %+v, %d for the worse; want %d", tt.name, h.Drifts(), h.Worse(), worse)
		}
	}
}

func TestCompare(t *testing.T) {
	one := func(value, spread float64, unit string) *certificate.Statement {
		st := certificatetest.Node(2)
		m := &result.Measurement{Value: value, Unit: unit}
		if spread > 0 {
			m.Spread = &result.Spread{Low: value - spread, High: value + spread, Kind: result.Confidence, Samples: 9}
		}
		st.Predicate.Results = []result.Result{{ID: "a", Verdict: result.Pass, Objects: []result.Object{
			{Name: "GPU 1", ID: "GPU-x", Verdict: result.Pass, Measured: m},
		}}}
		return st
	}
	for _, tt := range []struct {
		name        string
		before, now *certificate.Statement
		want        string
	}{
		{"the same", one(100, 0, "GB/s"), one(100, 0, "GB/s"), ""},
		{"within the tolerance", one(100, 0, "GB/s"), one(95, 0, "GB/s"), ""},
		{"worse", one(100, 1, "GB/s"), one(93, 1, "GB/s"), "compared -0.07 worse"},
		{"better", one(100, 1, "GB/s"), one(110, 1, "GB/s"), "compared 0.10 better"},
		{"a time that grew", one(100, 1, "µs"), one(110, 1, "µs"), "compared 0.10 worse"},
		{"within the spreads together", one(100, 6, "GB/s"), one(93, 6, "GB/s"), ""},
		{"outside of the only spread", one(100, 6, "GB/s"), one(93, 0, "GB/s"), "compared -0.07 worse"},
		{"from nothing", one(0, 0, "errors"), one(3, 0, "errors"), "compared 0.00 worse"},
		{"another unit", one(100, 0, "GB/s"), one(50, 0, "MB/s"), ""},
	} {
		got := ""
		for _, d := range Compare(tt.before, tt.now, 0.05) {
			got = fmt.Sprintf("%s %.2f %s", d.Kind, d.Change, map[bool]string{true: "better", false: "worse"}[d.Better])
		}
		if got != tt.want {
			t.Errorf("%s: %q; want %q", tt.name, got, tt.want)
		}
	}
	moved := one(90, 0, "GB/s")
	moved.Predicate.Results[0].Objects[0].Name = "GPU 0"
	if d := Compare(one(100, 0, "GB/s"), moved, 0.05); len(d) != 1 || d[0].Object != "GPU 0" {
		t.Errorf("a GPU with another number: %v; want its drift", d)
	}
	other := one(90, 0, "GB/s")
	other.Predicate.Results[0].Objects[0].ID = "GPU-y"
	if d := Compare(one(100, 0, "GB/s"), other, 0.05); len(d) != 0 {
		t.Errorf("another GPU of the same number: %v; want none", d)
	}
}

func TestGolden(t *testing.T) {
	all := days(t, 24, slow(12, 0.93))
	for _, st := range all[12:] {
		st.Predicate.Node.Driver = "590.1"
	}
	h := collect(t, Options{}, all)
	var b strings.Builder
	if err := h.WriteText(&b, TextOptions{}); err != nil {
		t.Fatal(err)
	}
	golden.Check(t, "history.txt", b.String())
	for line := range strings.Lines(b.String()) {
		if strings.HasPrefix(line, "  ") && len([]rune(line)) > 100 {
			t.Errorf("a line of the table is too long: %s", line)
		}
	}
	b.Reset()
	if err := h.WriteText(&b, TextOptions{Verbose: true}); err != nil || strings.Count(b.String(), " to GPU ") < 12 {
		t.Errorf("verbose: %v\n%s", err, b.String())
	}
	doc, err := json.MarshalIndent(h, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	golden.Check(t, "history.json", string(doc)+"\n")
}

func BenchmarkHistory(b *testing.B) {
	all := days(b, 1000, slow(500, 0.93))
	b.ResetTimer()
	for range b.N {
		if h := collect(b, Options{}, all); len(h.Drifts()) != 1 {
			b.Fatalf("%d drifts", len(h.Drifts()))
		}
	}
}

// TestSuites: what one suite measures is another series than what the next one does, with
// other parameters, and a verdict changes from a suite's certificate to its next.
func TestSuites(t *testing.T) {
	c := NewCollector(Options{})
	for day := range 12 {
		st := certificatetest.Node(2)
		v := 359.0
		st.Predicate.Suite, st.Predicate.Verdict = "node", result.Pass
		if day%2 == 1 {
			st.Predicate.Suite, st.Predicate.Verdict, v = "quick", result.Warn, 300
		}
		if day > 5 {
			v *= 0.9
		}
		st.Predicate.Finished = st.Predicate.Finished.AddDate(0, 0, day)
		st.Predicate.Results = []result.Result{{ID: "coll/all_reduce", Verdict: result.Pass, Measured: &result.Measurement{Value: v, Unit: "GB/s"}}}
		c.Add(st)
	}
	h := c.History()
	if n := len(h.Machines[0].Series); n != 2 || len(h.Drifts()) != 2 || len(h.Machines[0].Verdicts) != 0 {
		t.Errorf("%d series, drifts %v, verdicts %+v; want two, two, and no change", n, h.Drifts(), h.Machines[0].Verdicts)
	}
	var b strings.Builder
	if err := h.WriteText(&b, TextOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"coll/all_reduce, suite node", "coll/all_reduce, suite quick", "drift   coll/all_reduce fell"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("the text lacks %q:\n%s", want, &b)
		}
	}
}
