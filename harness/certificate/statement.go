// Package certificate holds what assay says about an image and about a machine:
// the declaration that an image carries ([ImageSpec]), the certificate that the
// harness makes inside it ([Statement]), and the list of its packages ([Inventory]).
//
// A certificate is an in-toto Statement v1, see internal/attest. [New] makes one,
// [Statement.Marshal] writes its only canonical form, [Parse] also reads what newer
// versions have added to. [Kind] is how a policy reads it. The package does no
// checking of its own and imports neither command line nor network.
package certificate

import (
	"cmp"
	"crypto"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/assay-hpc/assay/internal/attest"
)

// PredicateType is that of certificates.
const PredicateType = "https://github.com/assay-hpc/assay/certificate/v1"

// SchemaVersion is the version of the predicate that this package writes.
const SchemaVersion = 1

// A Statement says which checks were made, on an image or a machine, and what
// came out.
type Statement struct {
	attest.Header
	Predicate Predicate `json:"predicate"`
}

// A Subject is an image or a machine, by name and digest.
type Subject = attest.Subject

// A Predicate is the certificate proper.
type Predicate struct {
	Schema      int         `json:"schema"`
	Suite       string      `json:"suite"`
	Verdict     Verdict     `json:"verdict"` // always [Summary] of Results
	Started     time.Time   `json:"started"`
	Finished    time.Time   `json:"finished"`
	Harness     Harness     `json:"harness"`
	Environment Environment `json:"environment"`
	Node        *Node       `json:"node,omitempty"` // of a certificate that is about a machine
	// Machines are those of a certificate that is about several.
	Machines []Machine `json:"machines,omitempty"`
	Results  []Result  `json:"results"`
}

// A Machine is one of a cluster, with the certificate of what it did on its own.
type Machine struct {
	Name string `json:"name"`
	// SHA256 is that of the certificate's canonical form, in hex.
	SHA256 string `json:"sha256"`
	// Certificate is the certificate itself; nil: it is elsewhere.
	Certificate *Statement `json:"certificate,omitempty"`

	raw json.RawMessage // of Certificate as it was read: what SHA256 is of, unknown fields included
}

// Equal reports whether both name the same certificate: by its digest.
func (m Machine) Equal(o Machine) bool {
	return m.Name == o.Name && m.SHA256 == o.SHA256 && (m.Certificate == nil) == (o.Certificate == nil)
}

// UnmarshalJSON keeps the bytes of the certificate inside.
func (m *Machine) UnmarshalJSON(b []byte) error {
	type plain Machine
	var inside struct {
		Certificate json.RawMessage `json:"certificate"`
	}
	if err := errors.Join(json.Unmarshal(b, (*plain)(m)), json.Unmarshal(b, &inside)); err != nil {
		return err
	}
	m.raw = inside.Certificate
	return nil
}

// MarshalJSON writes the certificate inside as it was read.
func (m Machine) MarshalJSON() ([]byte, error) {
	type plain Machine
	if m.raw == nil || m.Certificate == nil {
		return attest.Encode(plain(m))
	}
	return attest.Encode(struct {
		Name        string          `json:"name"`
		SHA256      string          `json:"sha256"`
		Certificate json.RawMessage `json:"certificate"`
	}{m.Name, m.SHA256, m.raw})
}

// Harness says which build of the harness made the certificate.
type Harness struct {
	Version string `json:"version"`
	Commit  string `json:"commit,omitempty"`
	// Origin says where the harness was from in a certificate that assay certify
	// made of somebody's image: [OriginAssay] or [OriginImage].
	Origin string `json:"origin,omitempty"`
}

// Where a harness was from.
const (
	OriginAssay = "assay" // brought into the image
	OriginImage = "image" // the image's own: it is the image that says all of this about itself
)

// Environment says where the checks ran.
type Environment struct {
	Platform string `json:"platform"`         // "linux/amd64"
	Kernel   string `json:"kernel,omitempty"` // uname -sr
	OS       string `json:"os,omitempty"`     // PRETTY_NAME of the image's os-release
	OSID     string `json:"osID,omitempty"`   // ID and VERSION_ID, "debian 12"
	CPU      string `json:"cpu,omitempty"`    // model name
	CPUs     int    `json:"cpus,omitempty"`   // that the harness may use
	Target   string `json:"target,omitempty"` // of the image's declaration
	Recipe   string `json:"recipe,omitempty"` // SHA-256 of the recipe, of the image's declaration
}

// Verdict is the outcome of a check.
type Verdict string

const (
	Pass  Verdict = "pass"  // it was done, and all is well
	Warn  Verdict = "warn"  // it was done, something is not as it should be, and work goes on
	Fail  Verdict = "fail"  // it was done, and something is wrong
	Skip  Verdict = "skip"  // it does not apply here, for the given reason
	Error Verdict = "error" // it could not be carried out
)

// Verdicts are all of them, the worst first.
func Verdicts() []Verdict { return []Verdict{Fail, Error, Warn, Pass, Skip} }

// Worst returns the worst of verdicts; Skip where there is none.
func Worst(verdicts ...Verdict) Verdict {
	for _, v := range Verdicts() {
		if slices.Contains(verdicts, v) {
			return v
		}
	}
	return Skip
}

// A Result is one check's entry in a certificate.
type Result struct {
	ID        string  `json:"id"`
	Component string  `json:"component,omitempty"`
	Title     string  `json:"title"`
	Verdict   Verdict `json:"verdict"`
	// Reason is one sentence, and is never missing unless the verdict is pass.
	Reason   string       `json:"reason,omitempty"`
	Remedy   string       `json:"remedy,omitempty"` // one sentence: what to do about it, where the check knows
	Measured *Measurement `json:"measured,omitempty"`
	Seconds  float64      `json:"seconds"`           // how long it took
	Objects  []Object     `json:"objects,omitempty"` // each thing that it looked at, where that is several or has a name
	Curves   []Curve      `json:"curves,omitempty"`
	Output   string       `json:"output,omitempty"` // the end of what it printed
}

// An Object is one thing that a check looked at, or two: a GPU, a port, a pair.
// No two of a result have the same Name, Peer and Quantity.
type Object struct {
	Name string `json:"name"`           // "GPU 3", "mlx5_0/1"
	Peer string `json:"peer,omitempty"` // the other end: from Name to Peer
	ID   string `json:"id,omitempty"`   // that stays when numbers change: a GPU's UUID, a port's GUID
	// Quantity tells several figures of one thing apart: "write", "read".
	Quantity string       `json:"quantity,omitempty"`
	Verdict  Verdict      `json:"verdict"`
	Reason   string       `json:"reason,omitempty"` // what was seen; needed as in Result
	Measured *Measurement `json:"measured,omitempty"`
}

// A Measurement is a value with what it was judged against.
type Measurement struct {
	Value    float64 `json:"value"`
	Unit     string  `json:"unit"`
	Expected float64 `json:"expected,omitempty"`
	Source   string  `json:"source,omitempty"` // of the expected value
	Ratio    float64 `json:"ratio,omitempty"`  // value / expected
	Limit    *Limit  `json:"limit,omitempty"`  // what decides; without it nothing was judged
	Spread   *Spread `json:"spread,omitempty"`
}

// LimitKind is its limit's; "" where it has none.
func (m *Measurement) LimitKind() LimitKind {
	if m.Limit == nil {
		return ""
	}
	return m.Limit.Kind
}

// A Limit is the least or the most that passes.
type Limit struct {
	Value  float64   `json:"value"`
	Kind   LimitKind `json:"kind"`
	Source string    `json:"source"`
}

// LimitKind says on which side of a limit a value passes.
type LimitKind string

// The kinds of limits.
const (
	AtLeast LimitKind = "atLeast"
	AtMost  LimitKind = "atMost"
)

// Passes reports whether a value does; NaN never.
func (l Limit) Passes(v float64) bool {
	if l.Kind == AtMost {
		return v <= l.Value
	}
	return v >= l.Value
}

// A Spread says how certain a value is.
type Spread struct {
	Low     float64    `json:"low"`
	High    float64    `json:"high"`
	Kind    SpreadKind `json:"kind"`
	Samples int        `json:"samples"`
}

// SpreadKind says what lies between a spread's ends.
type SpreadKind string

// The kinds of spreads.
const (
	Range      SpreadKind = "range"      // all samples
	Confidence SpreadKind = "confidence" // the median, with a confidence of 95 %
)

// A Curve is a value over another one: bandwidth over bytes.
type Curve struct {
	Name     string  `json:"name"`
	X        string  `json:"x"` // unit: "B"
	Y        string  `json:"y"` // "GB/s"
	Points   []Point `json:"points"`
	Expected float64 `json:"expected,omitempty"` // of Y, where X is largest
	Source   string  `json:"source,omitempty"`   // of Expected
}

// A Point of a curve: X rises from one to the next.
type Point struct {
	X float64 `json:"x"`
	Y float64 `json:"y"`
}

// New returns a certificate without a subject: inside an image its digest is
// not known. SetSubject adds it.
func New(p Predicate) *Statement {
	p.Schema = SchemaVersion
	p.Verdict = Summary(p.Results)
	p.Started, p.Finished = stamp(p.Started), stamp(p.Finished)
	if p.Results == nil {
		p.Results = []Result{}
	}
	return &Statement{attest.Header{Type: attest.StatementType, Subject: []Subject{}, PredicateType: PredicateType}, p}
}

// stamp drops what JSON would not bring back.
func stamp(t time.Time) time.Time { return t.UTC().Truncate(time.Millisecond) }

// Summary returns the verdict over all results: fail before error before pass,
// where only skips are no pass, since nothing was shown. What only warns has
// been done and does not keep from work: that is a pass.
func Summary(results []Result) Verdict {
	count := Count(results)
	switch {
	case count[Fail] > 0:
		return Fail
	case count[Error] > 0:
		return Error
	case count[Pass]+count[Warn] > 0:
		return Pass
	}
	return Skip
}

// Count returns how many results have each verdict.
func Count(results []Result) map[Verdict]int {
	count := map[Verdict]int{}
	for _, r := range results {
		count[r.Verdict]++
	}
	return count
}

// SetSubject says which image the certificate is about, and no other thing. The
// digest is written "sha256:…".
func (s *Statement) SetSubject(name, digest string) error {
	s.Subject = []Subject{}
	return s.AddSubject(name, digest)
}

// AddSubject says that the certificate is about another image too: one that
// has the same file system and environment, and differs in what it starts.
func (s *Statement) AddSubject(name, digest string) error {
	sub, err := attest.ImageSubject(name, digest)
	if err != nil {
		return err
	}
	s.Subject = append(s.Subject, sub)
	return nil
}

// Verify reports whether the certificate is well-formed and about the image or
// machine with that digest ("sha256:…"). Whether that passed is for the caller
// to read in Predicate.Verdict, or for [Kind] to demand.
func (s *Statement) Verify(digest string) error {
	if err := s.validate(); err != nil {
		return err
	}
	return s.About(digest)
}

// Kind is how policies read certificates: only a pass will do.
var Kind = attest.Kind{Name: "certificate", Type: PredicateType, Check: func(st *attest.Statement) (attest.Claims, error) {
	s, err := Read(st)
	if err != nil {
		return attest.Claims{}, err
	}
	p := &s.Predicate
	c := attest.Claims{Target: p.Environment.Target}
	if p.Node == nil {
		c.Platform = p.Environment.Platform
	}
	if p.Verdict != Pass {
		return c, fmt.Errorf("its verdict is %s%s", p.Verdict, s.blame())
	}
	return c, nil
}}

// readable is how policies read certificates whatever their verdict is.
var readable = attest.Kind{Name: Kind.Name, Type: PredicateType, Check: func(*attest.Statement) (attest.Claims, error) { return attest.Claims{}, nil }}

// Open reads a stored certificate, bare or in its envelope, whatever its verdict
// is. With keys, only what one of them signed will do.
func Open(doc []byte, keys ...crypto.PublicKey) (*Statement, attest.Attachment, error) {
	p := attest.Policy{Keys: keys, Kinds: []attest.Kind{readable}}
	a, err := p.Verify(doc, "", "")
	if errors.Is(err, attest.ErrForeign) {
		err = fmt.Errorf("it is no certificate but a %q", cmp.Or(a.Predicate, a.Type))
	}
	if err != nil {
		return nil, a, fmt.Errorf("certificate: %w", err)
	}
	s, err := Read(a.Statement)
	if err != nil {
		return nil, a, fmt.Errorf("certificate: %w", err)
	}
	return s, a, nil
}

// blame names the first check that is the reason of a verdict.
func (s *Statement) blame() string {
	for _, r := range s.Predicate.Results {
		if r.Verdict == Fail || r.Verdict == Error {
			return ": " + r.ID + ": " + r.Reason
		}
	}
	return ""
}
