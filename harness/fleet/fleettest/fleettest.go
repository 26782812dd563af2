// Package fleettest makes certificates of fleets that do not exist, for tests: a real certificate
// with noise, in which faults are planted.
package fleettest

import (
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/assay-hpc/assay/internal/certificate"
	"github.com/assay-hpc/assay/internal/result"
)

// Real reads a certificate of docs/examples; root is the path of the module's root.
func Real(root, example string) (*certificate.Statement, error) {
	b, err := os.ReadFile(filepath.Join(root, "docs", "examples", example, "certificate.json"))
	if err != nil {
		return nil, err
	}
	return certificate.Parse(b)
}

// A Maker makes certificates of machines that are like a real one.
type Maker struct {
	Base *certificate.Statement
	Rand *rand.Rand
	// Machine and Object are the relative noise of a whole machine and of each object.
	Machine, Object float64
	// Heavy draws noise from Student's t with 4 degrees of freedom instead of a normal distribution.
	Heavy bool
	Start time.Time
}

// Name is the name of a machine.
func Name(i int) string { return fmt.Sprintf("node%04d", i) }

// Make returns the certificate of machine i that was finished days after Start.
func (m *Maker) Make(i int, days float64) *certificate.Statement {
	p := m.Base.Predicate
	n := *p.Node
	n.Name, n.Topology = Name(i), nil
	n.GPUs = append([]certificate.GPU(nil), n.GPUs...)
	n.Identity = nil
	ids := map[string]string{}
	for g := range n.GPUs {
		ids[n.GPUs[g].UUID] = fmt.Sprintf("GPU-%08d-0000-0000-0000-%012d", i, g)
		n.GPUs[g].UUID = ids[n.GPUs[g].UUID]
		n.Identity = append(n.Identity, n.GPUs[g].UUID)
	}
	if len(n.GPUs) == 0 {
		n.Identity = []string{fmt.Sprintf("machine-id %032x", i)}
	}
	p.Finished = m.Start.Add(time.Duration(days * 24 * float64(time.Hour))).UTC().Truncate(time.Millisecond)
	p.Started = p.Finished.Add(-5 * time.Minute)
	results := p.Results
	p.Results = nil
	for _, r := range results {
		whole := m.draw(m.Machine)
		r.Measured = m.measured(r.Measured, whole)
		objects := r.Objects
		r.Objects = nil
		for _, o := range objects {
			if id, ok := ids[o.ID]; ok {
				o.ID = id
			}
			o.Measured = m.measured(o.Measured, whole)
			r.Objects = append(r.Objects, o)
		}
		p.Results = append(p.Results, r)
	}
	st := certificate.New(p)
	if err := st.SetNode(&n); err != nil {
		panic(err)
	}
	return st
}

func (m *Maker) draw(noise float64) float64 {
	z := m.Rand.NormFloat64()
	if m.Heavy { // t with 4 degrees of freedom, with the variance of the normal distribution
		var chi float64
		for range 4 {
			x := m.Rand.NormFloat64()
			chi += x * x
		}
		z *= math.Sqrt(4/chi) / math.Sqrt2
	}
	return z * noise
}

func (m *Maker) measured(v *result.Measurement, whole float64) *result.Measurement {
	if v == nil || v.Value == 0 {
		return v
	}
	return Scaled(v, math.Exp(whole+m.draw(m.Object)))
}

// Scaled returns a measurement of which the value, its spread and its ratio are multiplied.
func Scaled(v *result.Measurement, by float64) *result.Measurement {
	out := *v
	out.Value *= by
	if out.Expected != 0 {
		out.Ratio = out.Value / out.Expected
	}
	if s := out.Spread; s != nil {
		scaled := *s
		scaled.Low, scaled.High = s.Low*by, s.High*by
		out.Spread = &scaled
	}
	return &out
}

// Slow multiplies the values of checks whose ids contain a text, of the objects of which the name,
// the peer or the quantity contains another ("" for all).
func Slow(st *certificate.Statement, check, object string, by float64) {
	for i := range st.Predicate.Results {
		r := &st.Predicate.Results[i]
		if !strings.Contains(r.ID, check) {
			continue
		}
		if r.Measured != nil {
			r.Measured = Scaled(r.Measured, by)
		}
		for j := range r.Objects {
			if o := &r.Objects[j]; o.Measured != nil && strings.Contains(o.Name+" "+o.Peer+" "+o.Quantity, object) {
				o.Measured = Scaled(o.Measured, by)
			}
		}
	}
}

// Eight returns a certificate of a machine with four GPUs as one of a machine with eight.
func Eight(st *certificate.Statement) *certificate.Statement {
	out := *st
	n := *st.Predicate.Node
	n.Topology = nil
	for _, g := range st.Predicate.Node.GPUs {
		g.Index += 4
		g.UUID = "GPU-8" + strings.TrimPrefix(g.UUID, "GPU-")[1:]
		n.GPUs = append(n.GPUs[:len(n.GPUs):len(n.GPUs)], g)
		n.Identity = append(n.Identity[:len(n.Identity):len(n.Identity)], g.UUID)
	}
	out.Predicate.Node = &n
	out.Subject = nil
	out.Predicate.Results = nil
	for _, r := range st.Predicate.Results {
		by := map[string][]result.Object{}
		for _, o := range r.Objects {
			by[o.Name+o.Peer] = append(by[o.Name+o.Peer], o)
		}
		objects := r.Objects
		for a := range 8 {
			from := fmt.Sprintf("GPU %d", a)
			for _, o := range by[fmt.Sprintf("GPU %d", a-4)] {
				o.Name, o.ID = from, n.GPUs[a].UUID
				objects = append(objects[:len(objects):len(objects)], o)
			}
			for b := range 8 {
				x, y := a%4, b%4
				if a == b || a < 4 && b < 4 {
					continue
				}
				if x == y {
					y = (x + 1) % 4
				}
				for _, o := range by[fmt.Sprintf("GPU %dGPU %d", x, y)] {
					o.Name, o.Peer = from, fmt.Sprintf("GPU %d", b)
					objects = append(objects[:len(objects):len(objects)], o)
				}
			}
		}
		r.Objects = objects
		out.Predicate.Results = append(out.Predicate.Results, r)
	}
	return &out
}
