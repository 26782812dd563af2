package history

import (
	"cmp"
	"fmt"
	"maps"
	"strings"
	"time"

	"github.com/assay-hpc/assay/internal/certificate"
	"github.com/assay-hpc/assay/internal/result"
)

// Options are for a Collector.
type Options struct {
	Tolerance float64                 // relative; 0 means DefaultTolerance
	Wants     func(check string) bool // nil means all
}

// A Collector accepts certificates in any order and stores only what a History needs of each. It
// must be used by one goroutine at a time.
type Collector struct {
	opts     Options
	machines map[string]*subject
	faults   map[part][]fault
	repeated int
	refused  int
}

// NewCollector returns an empty one.
func NewCollector(o Options) *Collector {
	o.Tolerance = cmp.Or(o.Tolerance, DefaultTolerance)
	return &Collector{opts: o, machines: map[string]*subject{}, faults: map[part][]fault{}}
}

// subject is what is known about one subject.
type subject struct {
	digest string
	parts  []string // that identify it
	seen   map[string]bool
	runs   []certificateRun
	series map[key]*series
}

// certificateRun is one certificate.
type certificateRun struct {
	Run
	name     string
	facts    map[string]string // versions, by component
	parts    map[string]string // UUIDs and GUIDs, by name
	verdicts map[string]judgement
}

type judgement struct {
	verdict result.Verdict
	reason  string
}

// key identifies a series, by ids where there are any, since numbers change.
type key struct{ suite, check, object, peer, quantity, unit string }

// series is a figure while it is being collected.
type series struct {
	thing  Thing
	named  time.Time // finish time of the certificate that thing is from
	order  int       // its position in that certificate
	better result.Better
	limit  *result.Limit
	model  string
	points []Value
}

// Add adds a certificate, unless it was added before. It does not retain it.
func (c *Collector) Add(st *certificate.Statement) {
	name, digest := Subject(st)
	m := c.machines[digest]
	if m == nil {
		m = &subject{digest: digest, seen: map[string]bool{}, series: map[key]*series{}}
		if n := st.Predicate.Node; n != nil {
			m.parts = n.Identity
		}
		c.machines[digest] = m
	}
	p := &st.Predicate
	// Equal if the same certificate comes bare and signed, or from two places.
	id := fmt.Sprint(p.Suite, p.Started.UnixMilli(), p.Finished.UnixMilli(), p.Verdict, len(p.Results))
	if m.seen[id] {
		c.repeated++
		return
	}
	m.seen[id] = true
	r := certificateRun{name: name, facts: facts(p), parts: parts(p), verdicts: map[string]judgement{"": {p.Verdict, ""}}}
	r.Run = Run{p.Finished, p.Finished.Sub(p.Started), p.Suite, p.Verdict, result.Count(p.Results), p.Harness.Version, r.facts["driver"]}
	ids := identities(p)
	for i := range p.Results {
		if res := &p.Results[i]; c.wants(res.ID) {
			r.verdicts[res.ID] = judgement{res.Verdict, res.Reason}
			c.fault(st, res, ids)
		}
	}
	models := models(p)
	for order, f := range figures(st) {
		if c.wants(f.thing.Check) {
			m.add(f, models[f.thing.Object], p.Finished, order)
		}
	}
	m.runs = append(m.runs, r)
}

func (c *Collector) wants(check string) bool { return c.opts.Wants == nil || c.opts.Wants(check) }

// A figure is one measured value of a certificate.
type figure struct {
	thing    Thing
	measured *result.Measurement
	verdict  result.Verdict
}

// figures returns a certificate's figures, in its order. A check's own figure is left out where
// its objects have figures: it repeats one of them.
func figures(st *certificate.Statement) (out []figure) {
	p := &st.Predicate
	ids := identities(p)
	for i := range p.Results {
		res := &p.Results[i]
		own := true
		for j := range res.Objects {
			o := &res.Objects[j]
			if o.Measured == nil {
				continue
			}
			own = false
			out = append(out, figure{
				Thing{p.Suite, res.ID, o.Name, cmp.Or(o.ID, ids[o.Name]), o.Peer, ids[o.Peer], o.Quantity, o.Measured.Unit}, o.Measured, o.Verdict,
			})
		}
		if own && res.Measured != nil {
			out = append(out, figure{Thing{Suite: p.Suite, Check: res.ID, Unit: res.Measured.Unit}, res.Measured, res.Verdict})
		}
	}
	return out
}

// Refuse counts a certificate that was not accepted.
func (c *Collector) Refuse() { c.refused++ }

func (m *subject) add(f figure, model string, at time.Time, order int) {
	t, v := f.thing, f.measured
	k := keyOf(t)
	s := m.series[k]
	if s == nil {
		s = new(series)
		m.series[k] = s
	}
	if !at.Before(s.named) {
		s.thing, s.named, s.order, s.better, s.limit, s.model = t, at, order, better(t, v), v.Limit, model
	}
	s.points = append(s.points, Value{at, v.Value, f.verdict, halfSpread(v)})
}

func keyOf(t Thing) key {
	return key{t.Suite, t.Check, cmp.Or(t.ID, t.Object), cmp.Or(t.PeerID, t.Peer), t.Quantity, t.Unit}
}

// halfSpread returns the uncertainty of a value according to its own certificate; 0 if that
// states none.
func halfSpread(v *result.Measurement) float64 {
	if v.Spread == nil {
		return 0
	}
	return (v.Spread.High - v.Spread.Low) / 2
}

func better(t Thing, v *result.Measurement) result.Better {
	return result.BetterOf(t.Check, t.Quantity, t.Unit, v.LimitKind())
}

// improved reports whether a change is an improvement. It is false if the better direction is not
// known.
func improved(before, after float64, b result.Better) bool {
	return b == result.Lower && after < before || b == result.Higher && after > before
}

// Subject returns the subject of a certificate: its machine, or else its first image.
func Subject(st *certificate.Statement) (name, digest string) {
	if n := st.Predicate.Node; n != nil {
		return n.Name, certificate.NodeDigest(n.Identity)
	}
	for _, s := range st.Subject {
		return s.Name, "sha256:" + s.Digest["sha256"]
	}
	return "", ""
}

// identities maps each name to a permanent id: a GPU's UUID, a port's GUID.
func identities(p *certificate.Predicate) map[string]string {
	ids := parts(p)
	for i := range p.Results {
		for _, o := range p.Results[i].Objects {
			if o.ID != "" {
				ids[o.Name] = o.ID
			}
		}
	}
	return ids
}

// parts maps the names of GPUs and ports to their UUIDs and GUIDs.
func parts(p *certificate.Predicate) map[string]string {
	ids := map[string]string{}
	if n := p.Node; n != nil {
		for _, g := range n.GPUs {
			ids[fmt.Sprintf("GPU %d", g.Index)] = g.UUID
		}
		for _, port := range n.Ports {
			ids[port.Name] = port.GUID
		}
	}
	maps.DeleteFunc(ids, func(_, id string) bool { return id == "" })
	return ids
}

// models maps the names of GPUs to their models.
func models(p *certificate.Predicate) map[string]string {
	out := map[string]string{}
	if p.Node != nil {
		for _, g := range p.Node.GPUs {
			out[fmt.Sprintf("GPU %d", g.Index)] = g.Name
		}
	}
	return out
}

// facts returns the versions and settings that may change between certificates of one machine.
func facts(p *certificate.Predicate) map[string]string {
	f := map[string]string{
		"harness": strings.TrimSpace(p.Harness.Version + " " + p.Harness.Commit),
		"kernel":  p.Environment.Kernel, "system": p.Environment.OS, "image": p.Environment.Target,
	}
	if n := p.Node; n != nil {
		f["driver"], f["CUDA"], f["name"] = n.Driver, n.CUDA, n.Name
		for _, g := range n.GPUs {
			f["VBIOS of "+cmp.Or(g.UUID, fmt.Sprintf("GPU %d", g.Index))] = g.VBIOS
		}
		for _, port := range n.Ports {
			f["firmware of "+port.Name] = port.Firmware
		}
		for k, v := range n.Versions {
			f[k] = v
		}
		for k, v := range n.Variables {
			f["$"+k] = v
		}
	}
	maps.DeleteFunc(f, func(_, v string) bool { return v == "" })
	return f
}

// History returns what was collected so far.
func (c *Collector) History() *History {
	h := &History{Version: Version, Tolerance: c.opts.Tolerance, Repeated: c.repeated, Refused: c.refused, Machines: []Machine{}, Shared: []Shared{}}
	j := &judge{tolerance: c.opts.Tolerance, pools: map[poolKey]*pool{}}
	subjects := c.subjects()
	groups := make([][]*group, len(subjects))
	for i, m := range subjects {
		groups[i] = m.groups()
		for _, g := range groups[i] {
			j.learn(g)
		}
	}
	for _, p := range j.pools {
		p.close()
	}
	for i, m := range subjects {
		out := m.finish(j, groups[i])
		h.Certificates += out.Certificates
		h.Machines = append(h.Machines, out)
	}
	h.share(groups)
	h.Offenders = c.offenders(subjects)
	return h
}
