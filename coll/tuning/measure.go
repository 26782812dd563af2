package tuning

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"

	"github.com/assay-hpc/assay/coll/op"
)

// Measurements are what operations took, to correct the model with: they are
// made by a short run at the start or by "harness coll tune", and kept in a
// file. A measured choice is judged by its measurements; at sizes between and
// beyond them the model's time is multiplied by how wrong it was at the
// nearest ones. They change only by Add, which must not run beside anything
// else.
type Measurements struct {
	Schema  int        `json:"schema"`         // 1
	Machine string     `json:"machine"`        // where they were made, for people and for callers to compare
	Points  []Point    `json:"points"`         // of operations on the processor
	GPUs    []GPUTable `json:"gpus,omitempty"` // what is best on GPUs: no model is there to correct
}

// A Point is one measurement.
type Point struct {
	Collective string  `json:"collective"` // op.Collective's name
	Algorithm  string  `json:"algorithm"`
	Protocol   string  `json:"protocol"`
	Channels   int     `json:"channels"`
	Ranks      int     `json:"ranks"`
	Groups     int     `json:"groups"`
	Local      string  `json:"local"`             // transport within groups
	Net        string  `json:"net,omitempty"`     // and between them
	Crowded    bool    `json:"crowded,omitempty"` // more ranks than processors
	Bytes      int64   `json:"bytes"`
	Micros     float64 `json:"micros"`
}

// PointOf is the point of a choice that was measured.
func PointOf(env Env, c op.Collective, choice Choice, bytes int64, micros float64) Point {
	p := Point{
		Collective: c.String(), Algorithm: choice.Algorithm, Protocol: choice.Protocol.String(), Channels: choice.Channels,
		Ranks: env.Ranks, Groups: max(1, env.Groups), Local: env.Local.Name, Crowded: env.crowded(), Bytes: bytes, Micros: micros,
	}
	if env.Groups > 1 {
		p.Net = env.Net.Name
	}
	return p
}

// same reports whether two points differ in size and time only.
func (p Point) same(q Point) bool {
	p.Bytes, p.Micros = q.Bytes, q.Micros
	return p == q
}

// Add adds a point, in place of one of the same size.
func (m *Measurements) Add(p Point) {
	m.Points = slices.DeleteFunc(m.Points, func(q Point) bool { return p.same(q) && p.Bytes == q.Bytes })
	m.Points = append(m.Points, p)
}

// A series is the points that differ in size and time only, by what they have
// in common (a Point without these two), in the order of sizes.
type series map[Point][]Point

// index sorts the points; m may be nil.
func (m *Measurements) index() series {
	if m == nil {
		return nil
	}
	s := series{}
	for _, p := range m.Points {
		key := p
		key.Bytes, key.Micros = 0, 0
		s[key] = append(s[key], p)
	}
	for _, points := range s {
		slices.SortStableFunc(points, func(a, b Point) int { return cmp.Compare(a.Bytes, b.Bytes) })
	}
	return s
}

// correct returns what an operation takes, in seconds, given what the model
// says.
func (s series) correct(env Env, c op.Collective, choice Choice, bytes int64, model float64) float64 {
	if s == nil {
		return model
	}
	points := s[PointOf(env, c, choice, 0, 0)]
	if len(points) == 0 {
		return model
	}
	bare := Tuner{env: env, over: NoOverrides}
	wrong := func(p Point) float64 { // measured over modelled there
		_, s := bare.cost(bare.form(c, choice.Algorithm), c, choice.Algorithm, choice.Protocol, choice.Channels, p.Bytes)
		return p.Micros * 1e-6 / s
	}
	i, _ := slices.BinarySearchFunc(points, bytes, func(p Point, b int64) int { return cmp.Compare(p.Bytes, b) })
	switch i {
	case 0:
		return model * wrong(points[0])
	case len(points):
		return model * wrong(points[i-1])
	}
	// Between two the factor goes over from one to the other, on logarithms.
	below, above := points[i-1], points[i]
	lo, hi := math.Log(float64(max(1, below.Bytes))), math.Log(float64(above.Bytes))
	x := (math.Log(float64(max(1, bytes))) - lo) / max(hi-lo, 1e-9)
	return model * math.Exp((1-x)*math.Log(wrong(below))+x*math.Log(wrong(above)))
}

// validate refuses what would poison the choices.
func (m *Measurements) validate() error {
	if m.Schema != 1 {
		return fmt.Errorf("schema %d; this program reads schema 1", m.Schema)
	}
	for i, p := range m.Points {
		known := false
		for c := range op.NumCollectives {
			known = known || c.String() == p.Collective && forms[c][p.Algorithm] != nil
		}
		switch {
		case !known:
			return fmt.Errorf("point %d: there is no algorithm %q for %q", i+1, p.Algorithm, p.Collective)
		case p.Protocol != LL.String() && p.Protocol != Simple.String():
			return fmt.Errorf("point %d: there is no protocol %q; there are LL and Simple", i+1, p.Protocol)
		case p.Ranks < 1 || p.Groups < 1 || p.Groups > p.Ranks || p.Channels < 1 || p.Bytes < 0:
			return fmt.Errorf("point %d: %d ranks, %d groups, %d channels, %d bytes", i+1, p.Ranks, p.Groups, p.Channels, p.Bytes)
		case !(p.Micros > 0) || p.Micros > 1e12:
			return fmt.Errorf("point %d: %g microseconds", i+1, p.Micros)
		}
	}
	return validateGPUs(m.GPUs)
}

// ReadMeasurements reads what Write wrote. Anything else is an error.
func ReadMeasurements(r io.Reader) (*Measurements, error) {
	dec := json.NewDecoder(r)
	dec.DisallowUnknownFields()
	m := new(Measurements)
	if err := dec.Decode(m); err != nil {
		return nil, fmt.Errorf("tuning measurements: %w", err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("tuning measurements: there is more after the document")
	}
	if err := m.validate(); err != nil {
		return nil, fmt.Errorf("tuning measurements: %w", err)
	}
	return m, nil
}

// Write writes the measurements as JSON, sorted.
func (m *Measurements) Write(w io.Writer) error {
	out := Measurements{Schema: 1, Machine: m.Machine, Points: slices.Clone(m.Points), GPUs: slices.Clone(m.GPUs)}
	slices.SortStableFunc(out.Points, func(a, b Point) int {
		return cmp.Or(cmp.Compare(a.Collective, b.Collective), cmp.Compare(a.Algorithm, b.Algorithm), cmp.Compare(a.Protocol, b.Protocol),
			cmp.Compare(a.Channels, b.Channels), cmp.Compare(a.Ranks, b.Ranks), cmp.Compare(a.Groups, b.Groups),
			cmp.Compare(a.Local, b.Local), cmp.Compare(a.Net, b.Net), cmp.Compare(a.Bytes, b.Bytes))
	})
	slices.SortFunc(out.GPUs, compareGPU)
	if err := out.validate(); err != nil {
		return fmt.Errorf("tuning measurements: %w", err)
	}
	enc := json.NewEncoder(w)
	enc.SetIndent("", " ")
	return enc.Encode(out)
}

// LoadMeasurements reads a file.
func LoadMeasurements(file string) (*Measurements, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, fmt.Errorf("tuning measurements: %w", err)
	}
	defer f.Close()
	m, err := ReadMeasurements(f)
	if err != nil {
		return nil, fmt.Errorf("%s: %w; measure anew or remove the file", file, err)
	}
	return m, nil
}

// Save writes a file in one step: who reads it meanwhile, and who finds it
// after a crash, has the old one or the new one.
func (m *Measurements) Save(file string) (err error) {
	f, err := os.CreateTemp(filepath.Dir(file), "."+filepath.Base(file)+".*")
	if err != nil {
		return fmt.Errorf("tuning measurements: %w", err)
	}
	defer func() {
		if err != nil {
			f.Close()
			os.Remove(f.Name())
			err = fmt.Errorf("tuning measurements: %s: %w", file, err)
		}
	}()
	if err = m.Write(f); err != nil {
		return err
	}
	if err = f.Chmod(0o644); err != nil {
		return err
	}
	if err = f.Sync(); err != nil {
		return err
	}
	if err = f.Close(); err != nil {
		return err
	}
	return os.Rename(f.Name(), file)
}
