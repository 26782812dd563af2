package diag

import (
	"cmp"

	"github.com/assay-hpc/assay/internal/platform"
	"github.com/assay-hpc/assay/internal/result"
)

// expectation returns what the machine's GPUs should reach according to the database. If the links
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

// A figure is a measured value of a GPU. A user's rule for it may refer to what is expected.
type figure struct {
	result.Object
	expected platform.Expected
}

func (g GPU) figure(name string, value float64, unit string) figure {
	return figure{Object: result.Object{
		Name: gpuName(g.Index), ID: g.UUID, Bus: g.Bus.String(), Quantity: name,
		Verdict: result.Pass, Measured: &result.Measurement{Value: value, Unit: unit},
	}}
}

// to is the rate of a GPU's copies to or from another one, in GB/s.
func (g GPU) to(peer GPU, name string, rate float64) figure {
	f := g.figure(name, rate, "GB/s")
	f.Peer = gpuName(peer.Index)
	return f
}

// against fills in the expected values with which a figure is compared.
func (f figure) against(e platform.Expected) figure {
	f.expected = e
	if best := cmp.Or(e.Peak, e.Typical); best != nil {
		f.Measured.Expect(best.Value, best.Source)
	}
	if e.Floor != nil {
		f.Measured.AtLeast(e.Floor.Value, e.Floor.Source)
	}
	return f
}

// target fills in a target and the least value that passes, unless they are 0.
func (f figure) target(v, least float64, source string) figure {
	f.Measured.Expect(v, source)
	f.Measured.AtLeast(least, source)
	return f
}

// given fills in a target that the user gave as a parameter, unless it is 0.
func (f figure) given(v float64) figure { return f.target(v, v, "parameter") }

// targetOf returns the target of which a floor is a fraction; 0: not known.
func targetOf(e platform.Expected) (v float64, source string) {
	if e.Floor == nil || e.Floor.Fraction <= 0 {
		return 0, ""
	}
	return e.Floor.Value / e.Floor.Fraction, e.Floor.Source
}
