package history

import (
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"testing"
)

// A scenario makes the figures of a node's things, one of which may change.
type scenario struct {
	name    string
	things  int
	n, from int     // certificates; the change is at from
	own     float64 // noise of each thing, relative
	common  float64 // noise of all together
	rho     float64 // correlation of both from one certificate to the next
	step    float64 // of the first thing
	slope   float64 // for each certificate
	tail    bool    // noise is Student's t with three degrees of freedom
	odd     float64 // share of certificates that are 5 to 30 % off
	holes   float64 // share of certificates that lack a thing
	all     float64 // step of all things
	grow    float64 // factor of the noise after from
}

// make returns values for each thing and certificate; NaN for a hole.
func (c *scenario) make(rng *rand.Rand) [][]float64 {
	draw := func() float64 {
		x := rng.NormFloat64()
		if c.tail {
			a, b, d := rng.NormFloat64(), rng.NormFloat64(), rng.NormFloat64()
			x /= math.Sqrt(a*a + b*b + d*d)
		}
		return x
	}
	noise := func() []float64 {
		out := make([]float64, c.n)
		for i := range out {
			out[i] = draw()
			if i > 0 {
				out[i] = c.rho*out[i-1] + math.Sqrt(1-c.rho*c.rho)*out[i]
			}
		}
		return out
	}
	common := noise()
	out := make([][]float64, c.things)
	for t := range out {
		own := noise()
		out[t] = make([]float64, c.n)
		for i := range c.n {
			if i >= c.from && c.grow > 0 {
				own[i] *= c.grow
			}
			y := c.own*own[i] + c.common*common[i]
			if i >= c.from {
				y += c.all
				if t == 0 {
					y += c.step + c.slope*float64(i-c.from+1)
				}
			}
			if rng.Float64() < c.odd {
				y -= 0.05 + 0.25*rng.Float64()
			}
			out[t][i] = 100 * (1 + y)
			if rng.Float64() < c.holes {
				out[t][i] = math.NaN()
			}
		}
	}
	return out
}

// accused says which things drifted for the worse or better, whether all together did, and what is
// said to be visible in the first.
func accused(node [][]float64) (things []bool, common bool, seen float64) {
	var all []*series
	for t, values := range node {
		s := &series{thing: Thing{Check: "c", Object: fmt.Sprint("GPU ", t), Unit: "GB/s"}}
		for i, v := range values {
			if !math.IsNaN(v) {
				s.points = append(s.points, Value{At: begin.AddDate(0, 0, i), Value: v})
			}
		}
		if len(s.points) > 0 {
			all = append(all, s)
		}
	}
	j := &judge{tolerance: DefaultTolerance, pools: map[poolKey]*pool{}}
	g := newGroup(all[0].kind(), all)
	j.learn(g)
	for _, p := range j.pools {
		p.close()
	}
	verdicts := j.group(g)
	for _, t := range g.tracks {
		things = append(things, len(verdicts[t].changes) > 0)
	}
	return things, g.common != nil && len(verdicts[g.common].changes) > 0, verdicts[g.tracks[0]].seen
}

// rates repeats a scenario: how often the first thing is accused, and how many of the others and of
// the common tracks.
func (c *scenario) rates(runs int, seed uint64) (found, false, series int) {
	rng := rand.New(rand.NewPCG(seed, 46))
	for range runs {
		things, common, _ := accused(c.make(rng))
		for t, bad := range things {
			changed := t == 0 && (c.step != 0 || c.slope != 0)
			if changed && bad {
				found++
			}
			if !changed {
				series++
			}
			if !changed && bad {
				false++
			}
		}
		if c.things > minPeers && c.all == 0 {
			series++
			if common {
				false++
			}
		}
	}
	return found, false, series
}

// detections are scenarios with a change, healthy ones are those without.
var detections = []scenario{
	{name: "-3 % at 1 % noise, alone", things: 1, n: 60, from: 30, own: 0.01, step: -0.03},
	{name: "-3 % at 2 % noise, alone", things: 1, n: 60, from: 30, own: 0.02, step: -0.03},
	{name: "-3 % at 1 % noise, 7 peers", things: 8, n: 60, from: 30, own: 0.01, step: -0.03},
	{name: "-3 % at 2 % noise, 7 peers", things: 8, n: 60, from: 30, own: 0.02, step: -0.03},
	{name: "-3 % at 2 % common noise, 0.5 % own, 7 peers", things: 8, n: 60, from: 30, own: 0.005, common: 0.02, step: -0.03},
	{name: "the same, common noise AR(1) 0.9", things: 8, n: 60, from: 30, own: 0.005, common: 0.02, rho: 0.9, step: -0.03},
	{name: "-3 % at 1 % noise, 8 certificates after it, alone", things: 1, n: 28, from: 20, own: 0.01, step: -0.03},
	{name: "-3 % at 1 % noise, 8 of 60 after it, alone", things: 1, n: 60, from: 52, own: 0.01, step: -0.03},
	{name: "-3 % at 1 % noise, 8 certificates after it, 7 peers", things: 8, n: 28, from: 20, own: 0.01, step: -0.03},
	{name: "-0.5 % a certificate at 1 % noise, 30, alone", things: 1, n: 30, own: 0.01, slope: -0.005},
	{name: "-0.5 % a certificate at 1 % noise, 60, alone", things: 1, n: 60, own: 0.01, slope: -0.005},
	{name: "-0.5 % a certificate at 1 % noise, 30, 7 peers", things: 8, n: 30, own: 0.01, slope: -0.005},
	{name: "-0.5 % a certificate from the 20th of 30 on, alone", things: 1, n: 30, from: 20, own: 0.01, slope: -0.005},
	{name: "-0.5 % a certificate from the 20th of 30 on, 7 peers", things: 8, n: 30, from: 20, own: 0.01, slope: -0.005},
	{name: "-3 % at 1 % noise, 5 % outliers, 7 peers", things: 8, n: 60, from: 30, own: 0.01, step: -0.03, odd: 0.05},
	{name: "-3 % at 1 % noise, 5 % outliers, alone", things: 1, n: 60, from: 30, own: 0.01, step: -0.03, odd: 0.05},
	{name: "-3 % at 1 % noise, 30 % holes, 7 peers", things: 8, n: 60, from: 30, own: 0.01, step: -0.03, holes: 0.3},
	{name: "-3 % at 1 % noise, t with 3 degrees, 7 peers", things: 8, n: 60, from: 30, own: 0.01, step: -0.03, tail: true},
	{name: "-3 % at 1 % noise, AR(1) 0.5, 7 peers", things: 8, n: 60, from: 30, own: 0.01, rho: 0.5, step: -0.03},
}

var healthy = []scenario{
	{name: "normal, 1 %", n: 60, own: 0.01},
	{name: "normal, 2 %", n: 60, own: 0.02},
	{name: "normal, 2 %, 12", n: 12, own: 0.02},
	{name: "common noise of 2 %", n: 60, own: 0.005, common: 0.02},
	{name: "AR(1) 0.5, 2 %", n: 60, own: 0.02, rho: 0.5},
	{name: "AR(1) 0.9, 1 %", n: 60, own: 0.01, rho: 0.9},
	{name: "AR(1) 0.9, 3 %", n: 60, own: 0.03, rho: 0.9},
	{name: "AR(1) 0.7, 3 %, 28", n: 28, own: 0.03, rho: 0.7},
	{name: "AR(1) 0.9, 3 %, 28", n: 28, own: 0.03, rho: 0.9},
	{name: "AR(1) 0.9, 3 %, 12", n: 12, own: 0.03, rho: 0.9},
	{name: "AR(1) 0.9, t with 3 degrees", n: 60, own: 0.02, rho: 0.9, tail: true},
	{name: "t with 3 degrees, 3 %", n: 60, own: 0.03, tail: true},
	{name: "outliers, 5 %", n: 60, own: 0.01, odd: 0.05},
	{name: "outliers, 10 %, holes, 30 %", n: 60, own: 0.01, odd: 0.1, holes: 0.3},
	{name: "holes, 50 %, AR(1) 0.9", n: 60, own: 0.03, rho: 0.9, holes: 0.5},
	{name: "2 certificates", n: 2, own: 0.03},
	{name: "3 certificates", n: 3, own: 0.03},
	{name: "4 certificates", n: 4, own: 0.03},
	{name: "6 certificates", n: 6, own: 0.03},
	{name: "8 certificates, AR(1) 0.9", n: 8, own: 0.03, rho: 0.9},
	{name: "noise that grows threefold", n: 60, from: 30, own: 0.01, grow: 3},
	{name: "all change by -3 %", n: 60, from: 30, own: 0.01, all: -0.03},
	{name: "all change by -10 %, common noise", n: 60, from: 30, own: 0.005, common: 0.01, all: -0.1},
}

// TestTable prints the table of docs/certificate.md. ASSAY_HISTORY_RUNS says how many series there
// are of each scenario.
func TestTable(t *testing.T) {
	runs, _ := strconv.Atoi(os.Getenv("ASSAY_HISTORY_RUNS"))
	if runs == 0 {
		t.Skip("ASSAY_HISTORY_RUNS is not set; TestFound and TestFalse repeat a part")
	}
	for _, c := range detections {
		r := max(100, runs/10)
		found, false, series := c.rates(r, 1)
		t.Logf("%-58s found %3.0f of 100, false %d of %d", c.name, 100*float64(found)/float64(r), false, series)
	}
	for _, c := range healthy {
		for _, things := range []int{1, 8} {
			if things == 1 && c.all != 0 {
				continue
			}
			c.things = things
			_, false, series := c.rates((runs+things-1)/things, 2)
			t.Logf("%-40s %d things: false %d of %d", c.name, things, false, series)
		}
	}
}

// TestFound and TestFalse repeat scenarios of TestTable, with few series and wide margins.
func TestFound(t *testing.T) {
	for name, want := range map[string]int{
		"-3 % at 1 % noise, alone": 34, "-3 % at 2 % noise, 7 peers": 32, "-3 % at 2 % common noise, 0.5 % own, 7 peers": 39,
		"-3 % at 1 % noise, 8 certificates after it, 7 peers": 34, "-3 % at 1 % noise, 30 % holes, 7 peers": 36,
		"-0.5 % a certificate from the 20th of 30 on, 7 peers": 36,
	} {
		i := slices.IndexFunc(detections, func(c scenario) bool { return c.name == name })
		if found, _, _ := detections[i].rates(40, 7); found < want {
			t.Errorf("%s: found %d of 40; want %d", name, found, want)
		}
	}
}

func TestFalse(t *testing.T) {
	falsely, all := 0, 0
	for _, c := range healthy {
		for _, things := range []int{1, 8} {
			if things == 1 && c.all != 0 {
				continue
			}
			c.things = things
			_, f, n := c.rates(96/things, 11)
			if falsely, all = falsely+f, all+n; f > 2 {
				t.Errorf("%s, %d things: %d of %d series accused", c.name, things, f, n)
			}
		}
	}
	if falsely > 8 {
		t.Errorf("%d of %d series accused; want about one in 1000", falsely, all)
	}
}

// TestSeen: a step as large as a series says it would have shown is found nineteen times in twenty.
func TestSeen(t *testing.T) {
	for _, c := range []scenario{
		{name: "alone", things: 1, n: 40, own: 0.01}, {name: "peers", things: 8, n: 24, own: 0.01}, {name: "ten certificates", things: 8, n: 10, own: 0.005},
		{name: "correlated", things: 8, n: 60, own: 0.01, rho: 0.6},
	} {
		rng := rand.New(rand.NewPCG(1, 46))
		found := 0
		const runs = 60
		for range runs {
			_, _, seen := accused(c.make(rng))
			if seen <= DefaultTolerance || seen > 0.5 {
				t.Fatalf("%s: %v is seen", c.name, seen)
			}
			changed := c
			changed.step, changed.from = -seen, c.n-min(soon, c.n/2)
			if things, _, _ := accused(changed.make(rng)); things[0] {
				found++
			}
		}
		if found < 50 {
			t.Errorf("%s: %d of %d steps as large as what is seen were found; want 57", c.name, found, runs)
		}
	}
}

// TestCommon: what all do is one change, and of four slow things of eight those four are accused.
func TestCommon(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 46))
	c := scenario{things: 8, n: 40, from: 20, own: 0.005, common: 0.005, all: -0.04}
	things, common, _ := accused(c.make(rng))
	if slices.Contains(things, true) || !common {
		t.Errorf("all changed: %v, together %v", things, common)
	}
	c.all = 0
	node := c.make(rng)
	for t := range 4 {
		for i := 20; i < 40; i++ {
			node[t][i] *= 0.95
		}
	}
	if things, _, _ := accused(node); !slices.Equal(things, []bool{true, true, true, true, false, false, false, false}) {
		t.Errorf("four changed: %v", things)
	}
}
