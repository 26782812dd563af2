package diag

import (
	"cmp"

	"github.com/assay-hpc/assay/harness/platform"
)

// expectation is what the data base says that the machine's GPUs should reach.
// Without their links between GPUs nothing is expected where these decide.
func (j *job) expectation() platform.Expectation {
	if j.env.DB == nil {
		return platform.Expectation{}
	}
	links, err := j.env.Links()
	n := platform.Node{LinksKnown: err == nil}
	for _, g := range j.machine.GPUs() {
		l := links[g.Bus]
		n.GPUs = append(n.GPUs, platform.NodeGPU{Name: g.Name, Device: g.PCIDevice, NVLinks: l.NVLinks, Switched: l.NVLinks > 0 && len(l.Peers) == 0})
	}
	return j.env.DB.Expect(n)
}

// expected is the figure of that name for a GPU; zero: nothing is known.
func (j *job) expected(g GPU, name string) platform.Expected {
	if j.env.DB == nil {
		return platform.Expected{}
	}
	key, _ := j.env.DB.IdentifyGPU(g.PCIDevice, g.Name)
	for _, e := range j.expect.Figures {
		if e.Name == name && e.GPU == cmp.Or(key, g.Name) {
			return e
		}
	}
	return platform.Expected{}
}

// against fills in what a measurement is held against.
func (m Measurement) against(e platform.Expected) Measurement {
	m.Peak, m.Typical = e.Peak, e.Typical
	if best := cmp.Or(e.Peak, e.Typical); best != nil {
		m.Reference, m.Source = best.Value, best.Source
	}
	if e.Floor != nil {
		m.Floor, m.FloorSource = e.Floor.Value, e.Floor.Source
	}
	return m
}

// aimed is against a target of which a test chooses the fraction that passes.
func (m Measurement) aimed(e platform.Expected, fraction float64) Measurement {
	m.Peak, m.Typical = e.Peak, e.Typical
	if e.Floor != nil && e.Floor.Fraction > 0 {
		return m.target(e.Floor.Value/e.Floor.Fraction, e.Floor.Source, fraction)
	}
	return m
}

// target fills in a target, and the fraction of it that passes.
func (m Measurement) target(v float64, source string, fraction float64) Measurement {
	m.Reference, m.Source, m.Floor, m.FloorSource = v, source, fraction*v, source
	return m
}

// given is for what somebody gave as a parameter, unless it is 0.
func (m Measurement) given(v, fraction float64) Measurement {
	if v > 0 {
		return m.target(v, "parameter", fraction)
	}
	return m
}

// inTFLOPs turns GFLOP/s, in which DCGM's targets are, into what figures of products are in.
func (m Measurement) inTFLOPs() Measurement {
	m.Value, m.Unit, m.Reference, m.Floor = m.Value/1e3, "TFLOP/s", m.Reference/1e3, m.Floor/1e3
	m.Peak, m.Typical = nil, nil // there are none in this unit
	return m
}
