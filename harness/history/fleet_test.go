package history

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/assay-hpc/assay/internal/certificate"
	"github.com/assay-hpc/assay/internal/certificate/certificatetest"
	"github.com/assay-hpc/assay/internal/result"
)

// host returns a certificate of one of several machines with eight GPUs, whose copies take what scale
// says and noise.
func host(t testing.TB, rng *rand.Rand, machine, day int, noise float64, scale func(gpu int) float64) *certificate.Statement {
	t.Helper()
	st := certificatetest.Node(8)
	p := &st.Predicate
	p.Started, p.Finished = p.Started.AddDate(0, 0, day), p.Finished.AddDate(0, 0, day)
	n := *p.Node
	n.Name, n.Identity = fmt.Sprintf("n%02d", machine), []string{fmt.Sprintf("serial %d", machine)}
	n.GPUs = slices.Clone(n.GPUs)
	p.Results = slices.DeleteFunc(p.Results, func(r result.Result) bool { return r.ID != "bandwidth/h2d" })
	r := &p.Results[0]
	r.Verdict, r.Reason, r.Remedy, r.Measured = result.Pass, "", "", nil
	for i := range n.GPUs {
		id := fmt.Sprintf("GPU-%d-%d", machine, i)
		n.GPUs[i].UUID = id
		n.Identity = append(n.Identity, id)
		m := *r.Objects[i].Measured
		m.Value = math.Round(5520*scale(i)*(1+noise*rng.NormFloat64())) / 100
		m.Spread, m.Ratio = nil, m.Value/m.Expected
		r.Objects[i].ID, r.Objects[i].Measured, r.Objects[i].Verdict, r.Objects[i].Reason = id, &m, result.Pass, ""
	}
	p.Verdict = result.Summary(p.Results)
	st.Subject = nil
	if err := st.SetNode(&n); err != nil {
		t.Fatal(err)
	}
	return st
}

// TestShared: what a driver does to all GPUs of several machines is one line, also if no machine alone
// has enough certificates to show it; a GPU that is slow is another one.
func TestShared(t *testing.T) {
	for _, tt := range []struct {
		name                  string
		machines, with, after int // with the new driver; certificates after it
		noise, by             float64
		want                  string
	}{
		{"plain", 5, 5, 12, 0.005, 0.96, "bandwidth/h2d: all GPUs fell 4.0 %|on 5 of the 5 machines that got driver 590.1 (was 580.159.04)"},
		{"not all get it", 6, 3, 12, 0.005, 0.96, "on 3 of the 3 machines that got driver 590.1"},
		{"few certificates", 8, 6, 3, 0.01, 0.97, "on 6 of the 6 machines that got driver 590.1"},
		{"for the better", 4, 4, 12, 0.005, 1.05, "bandwidth/h2d: all GPUs rose 4.9 %"},
		{"no effect", 8, 6, 12, 0.005, 1, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			rng := newRand()
			var all []*certificate.Statement
			for m := range tt.machines {
				from := 8 + m // not on one day
				for d := range from + tt.after {
					st := host(t, rng, m, d, tt.noise, func(gpu int) float64 {
						scale := 1.0
						if m < tt.with && d >= from {
							scale *= tt.by
						}
						if m == 1 && gpu == 6 && d >= 4 {
							scale *= 0.9
						}
						return scale
					})
					if m < tt.with && d >= from {
						st.Predicate.Node.Driver = "590.1"
					}
					all = append(all, st)
				}
			}
			h := collect(t, Options{}, all)
			if d := h.Drifts(); len(d) != 1 || d[0].ID != "GPU-1-6" || math.Abs(d[0].Change+0.1) > 0.02 {
				t.Errorf("drifts %v; want that of one GPU by a tenth", d)
			}
			if tt.want == "" {
				if len(h.Shared) != 0 {
					t.Errorf("shared: %v; want none", h.Shared)
				}
				return
			}
			if len(h.Shared) != 1 {
				t.Fatalf("shared: %v; want one", h.Shared)
			}
			for _, want := range strings.Split(tt.want, "|") {
				if got := h.Shared[0].String(); !strings.Contains(got, want) {
					t.Errorf("%s; want %q", got, want)
				}
			}
			if worse := h.Worse(); worse != 1+boolInt(!h.Shared[0].Better) {
				t.Errorf("%d for the worse", worse)
			}
		})
	}
}

// TestTogether: of one machine what all GPUs did is one line, with the version that explains it.
func TestTogether(t *testing.T) {
	rng := newRand()
	var all []*certificate.Statement
	for d := range 24 {
		st := host(t, rng, 0, d, 0.004, func(int) float64 { return 1 - 0.03*float64(boolInt(d >= 12)) })
		if d >= 12 {
			st.Predicate.Node.Driver = "590.1"
		}
		if d >= 5 {
			st.Predicate.Environment.Kernel = "Linux 6.9"
		}
		all = append(all, st)
	}
	h := collect(t, Options{}, all)
	lines := h.Lines()
	if len(lines) != 2 || !strings.HasPrefix(lines[0], "drift   bandwidth/h2d: all 8 GPUs fell 3") || !strings.HasSuffix(lines[0], "; then driver went from 580.159.04 to 590.1") {
		t.Errorf("lines %q; want one of all GPUs with the driver alone, and what was seen", lines)
	}
}

// TestRepaired: a machine whose GPU was replaced is the same one, and the new GPU has a series of its own.
func TestRepaired(t *testing.T) {
	rng := newRand()
	var all []*certificate.Statement
	for d := range 30 {
		st := host(t, rng, 0, d, 0.004, func(gpu int) float64 {
			if gpu == 2 && d < 15 {
				return 0.9
			}
			return 1
		})
		if d >= 15 {
			p := &st.Predicate
			p.Node.GPUs[2].UUID, p.Results[0].Objects[2].ID = "GPU-new", "GPU-new"
			p.Node.Identity[3] = "GPU-new"
			st.Subject = nil
			if err := st.SetNode(p.Node); err != nil {
				t.Fatal(err)
			}
		}
		all = append(all, st)
	}
	h := collect(t, Options{}, all)
	if len(h.Machines) != 1 || h.Machines[0].Certificates != 30 || len(h.Drifts()) != 0 {
		t.Fatalf("%d machines, drifts %v; want one, without any", len(h.Machines), h.Drifts())
	}
	m := h.Machines[0]
	points := map[string]int{}
	for _, s := range m.Series {
		points[s.ID] = s.Points
	}
	if points["GPU-0-2"] != 15 || points["GPU-new"] != 15 || points["GPU-0-3"] != 30 {
		t.Errorf("points %v", points)
	}
	if want := (Change{begin.AddDate(0, 0, 15).Add(83250 * time.Millisecond), "GPU 2", "GPU-0-2", "GPU-new"}); !slices.Contains(m.Changes, want) {
		t.Errorf("changes %v; want %v", m.Changes, want)
	}
}

// TestOffenders: what fails, passes and fails again by the same check is named, also on another machine.
func TestOffenders(t *testing.T) {
	// For each day: the machine, and the index of the GPU that fails there; -1 for none.
	for _, tt := range []struct {
		name string
		runs [][2]int
		move map[int]bool // days from which GPU-0-1 is GPU 5 of the second machine
		want string
	}{
		{"once", [][2]int{{0, -1}, {0, 1}, {0, 1}, {0, -1}}, nil, ""},
		{"still", [][2]int{{0, -1}, {0, 1}, {0, 1}}, nil, ""},
		{"again", [][2]int{{0, 1}, {0, -1}, {0, 1}}, nil, "n00: GPU 1 (GPU-0-1) failed bandwidth/h2d 2 times: until 2026-03-01 12:01, passed at 2026-03-02 12:01, again at 2026-03-03 12:01: slow"},
		{"another one", [][2]int{{0, 1}, {0, -1}, {0, 2}}, nil, ""},
		{"while another fails", [][2]int{{0, 1}, {0, 2}, {0, 1}}, nil, "GPU 1 (GPU-0-1) failed bandwidth/h2d 2 times"},
		{"another machine passes", [][2]int{{0, 1}, {1, -1}, {0, 1}}, nil, ""},
		{"three times", [][2]int{{0, 1}, {0, -1}, {0, 1}, {0, 1}, {0, -1}, {0, 1}}, nil, "3 times"},
		{"moved", [][2]int{{0, 1}, {0, -1}, {1, 5}}, map[int]bool{2: true}, "n01: GPU 5 (GPU-0-1) failed bandwidth/h2d 2 times, before on n00"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var all []*certificate.Statement
			for d, run := range tt.runs {
				st := host(t, newRand(), run[0], d, 0.004, func(int) float64 { return 1 })
				p := &st.Predicate
				if tt.move[d] {
					p.Node.GPUs[5].UUID, p.Results[0].Objects[5].ID = "GPU-0-1", "GPU-0-1"
				}
				if run[1] >= 0 {
					p.Results[0].Verdict, p.Results[0].Reason = result.Fail, "slow"
					p.Results[0].Objects[run[1]].Verdict, p.Results[0].Objects[run[1]].Reason = result.Fail, "slow"
				}
				p.Verdict = result.Summary(p.Results)
				all = append(all, st)
			}
			h := collect(t, Options{}, all)
			if tt.want == "" && len(h.Offenders) != 0 || tt.want != "" && (len(h.Offenders) != 1 || !strings.Contains(h.Offenders[0].String(), tt.want)) {
				t.Errorf("offenders %v; want %q", h.Offenders, tt.want)
			}
		})
	}
}

// TestPairs: all pairs of a GPU are one line.
func TestPairs(t *testing.T) {
	h := collect(t, Options{}, days(t, 24, func(d int, check, object string) float64 {
		if d >= 12 && check == "bandwidth/p2p" && object == "GPU 1" {
			return 0.9
		}
		return 1
	}))
	if lines := h.Lines(); len(h.Drifts()) != 3 || len(lines) != 2 || !strings.HasPrefix(lines[0], "drift   bandwidth/p2p write: GPU 1 (GPU-00000001-1111-2222-3333-444444444444), in 3 pairs, fell 10 %") {
		t.Errorf("%d drifts, lines %q; want three in one line", len(h.Drifts()), lines)
	}
}
