package diag

import (
	"cmp"

	"github.com/assay-hpc/assay/internal/platform"
)

// expectation returns what the machine's GPUs should reach according to the data base. If the links
// between the GPUs are not known, there are no expected figures that depend on them.
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

// expected is the expected figure with the given name for a GPU; zero: not known.
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

// against fills in the expected values with which a measurement is compared.
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

// aimed is like against, but with a target of which the test chooses the fraction that passes.
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

// given fills in a target that the user gave as a parameter, unless it is 0.
func (m Measurement) given(v, fraction float64) Measurement {
	if v > 0 {
		return m.target(v, "parameter", fraction)
	}
	return m
}

// inTFLOPs converts GFLOP/s, the unit of DCGM's targets, to the unit of the measurements of
// products.
func (m Measurement) inTFLOPs() Measurement {
	m.Value, m.Unit, m.Reference, m.Floor = m.Value/1e3, "TFLOP/s", m.Reference/1e3, m.Floor/1e3
	m.Peak, m.Typical = nil, nil // there are none in this unit
	return m
}
