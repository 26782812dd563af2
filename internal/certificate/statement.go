// Package certificate holds assay's documents about an image and about a machine: the declaration
// that an image carries ([ImageSpec]), the certificate that the harness writes ([Statement]), and
// the list of an image's packages ([Inventory]).
//
// A certificate is an in-toto Statement v1, see internal/attest. [New] creates one,
// [Statement.Marshal] writes its only canonical form, and [Parse] also reads certificates with
// fields of newer versions. Policies read certificates through [Kind]. The package runs no checks
// itself and imports neither command line nor network.
package certificate

import (
	"cmp"
	"crypto"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/assay-hpc/assay/internal/attest"
	"github.com/assay-hpc/assay/internal/result"
)

// PredicateType is the predicate type of certificates.
const PredicateType = "https://github.com/assay-hpc/assay/certificate/v1"

// SchemaVersion is the version of the predicate that this package writes.
const SchemaVersion = 1

// A Statement says which checks were made on an image or a machine, and their results.
type Statement struct {
	attest.Header
	Predicate Predicate `json:"predicate"`
}

// A Subject is an image or a machine, by name and digest.
type Subject = attest.Subject

// A Predicate is the certificate proper.
type Predicate struct {
	Schema      int            `json:"schema"`
	Suite       string         `json:"suite"`
	Verdict     result.Verdict `json:"verdict"` // always [Summary] of Results
	Started     time.Time      `json:"started"`
	Finished    time.Time      `json:"finished"`
	Harness     Harness        `json:"harness"`
	Environment Environment    `json:"environment"`
	Node        *Node          `json:"node,omitempty"` // in a certificate that is about a machine
	// Machines is set in a certificate that is about several machines.
	Machines []Machine `json:"machines,omitempty"`
	Limits   *Limits   `json:"limits,omitempty"` // the site's own; nil: it has none
	// Selected is which checks of the suite were wanted; nil: all.
	Selected *Selected `json:"selected,omitempty"`
	// After is which checks were measured harder than usual, because the machine had failed by them;
	// nil: none.
	After   *After          `json:"after,omitempty"`
	Results []result.Result `json:"results"`
}

// After are checks by which the machine had failed before.
type After struct {
	Checks []string `json:"checks"` // their ids
	Times  int      `json:"times"`  // how often each was run: all runs must pass
}

// String describes them: "diag/memory, 3 times".
func (a *After) String() string {
	if a == nil {
		return ""
	}
	return fmt.Sprintf("%s, %d times", strings.Join(a.Checks, ", "), a.Times)
}

// Selected are patterns of the ids of the checks that were wanted: those that Only covers, or all if
// it is empty, without those that Skip covers.
type Selected struct {
	Only []string `json:"only,omitempty"`
	Skip []string `json:"skip,omitempty"`
}

// String returns the options that select so: "--only health --skip health/node/*".
func (s *Selected) String() string {
	if s == nil {
		return ""
	}
	var out []string
	for _, p := range s.Only {
		out = append(out, "--only "+p)
	}
	for _, p := range s.Skip {
		out = append(out, "--skip "+p)
	}
	return strings.Join(out, " ")
}

// Limits are those of a site, which replace built-in limits of checks without load.
type Limits struct {
	File   string `json:"file"`   // as it was named
	SHA256 string `json:"sha256"` // of its bytes, in hex
	// Checks are the limits that it changes, as they were used, by the checks' ids in harness
	// health.
	Checks map[string]CheckLimit `json:"checks"`
}

// A CheckLimit is how a check judged.
type CheckLimit struct {
	Limit    *float64 `json:"limit,omitempty"` // nil: the check needs no number
	Unit     string   `json:"unit,omitempty"`
	Severity string   `json:"severity"` // fail, warn or info
	Source   string   `json:"source"`
}

// A Machine is one machine of a cluster, with the certificate of its own tests.
type Machine struct {
	Name string `json:"name"`
	// SHA256 is the digest of the certificate's canonical form, in hex.
	SHA256 string `json:"sha256"`
	// Certificate is the certificate itself; nil if it is stored elsewhere.
	Certificate *Statement `json:"certificate,omitempty"`

	raw json.RawMessage // Certificate as it was read, with unknown fields: the input of SHA256
}

// Equal reports whether both name the same certificate, compared by its digest.
func (m Machine) Equal(o Machine) bool {
	return m.Name == o.Name && m.SHA256 == o.SHA256 && (m.Certificate == nil) == (o.Certificate == nil)
}

// UnmarshalJSON also stores the bytes of the embedded certificate.
func (m *Machine) UnmarshalJSON(b []byte) error {
	type plain Machine
	var inside struct {
		Certificate json.RawMessage `json:"certificate,omitempty"`
	}
	if err := cmp.Or(attest.Decode(b, MaxSize, (*plain)(m)), attest.Decode(b, MaxSize, &inside)); err != nil {
		return err
	}
	m.raw = inside.Certificate
	return nil
}

// MarshalJSON writes the embedded certificate as it was read.
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
	// Origin is [OriginAssay] in a gate's certificate of an image. It is empty where the harness
	// of an image or machine made all of these statements itself.
	Origin string `json:"origin,omitempty"`
}

// OriginAssay is the origin of a harness that assay started outside of the image that it certifies.
const OriginAssay = attest.GateOrigin

// Environment says where the checks ran.
type Environment struct {
	Platform string `json:"platform"`         // "linux/amd64"
	Kernel   string `json:"kernel,omitempty"` // uname -sr
	OS       string `json:"os,omitempty"`     // PRETTY_NAME of the image's os-release
	OSID     string `json:"osID,omitempty"`   // ID and VERSION_ID, "debian 12"
	CPU      string `json:"cpu,omitempty"`    // model name
	CPUs     int    `json:"cpus,omitempty"`   // available to the harness
	Target   string `json:"target,omitempty"` // of the image's declaration
	Recipe   string `json:"recipe,omitempty"` // SHA-256 of the recipe, of the image's declaration
}

// New returns a certificate without a subject, since an image's digest is not known inside the
// image. SetSubject adds it.
func New(p Predicate) *Statement {
	p.Schema = SchemaVersion
	p.Verdict = result.Summary(p.Results)
	if p.Finished.Before(p.Started) { // the clock was set back in between
		p.Started = p.Finished
	}
	p.Started, p.Finished = stamp(p.Started), stamp(p.Finished)
	if p.Results == nil {
		p.Results = []result.Result{}
	}
	return &Statement{attest.Header{Type: attest.StatementType, Subject: []Subject{}, PredicateType: PredicateType}, p}
}

// stamp drops the precision that JSON would not preserve.
func stamp(t time.Time) time.Time { return t.UTC().Truncate(time.Millisecond) }

// SetSubject makes the image the certificate's only subject. The digest is written "sha256:…".
func (s *Statement) SetSubject(name, digest string) error {
	s.Subject = []Subject{}
	return s.AddSubject(name, digest)
}

// AddSubject adds another image as a subject: one with the same file system and environment that
// starts a different command.
func (s *Statement) AddSubject(name, digest string) error {
	sub, err := attest.ImageSubject(name, digest)
	if err != nil {
		return err
	}
	s.Subject = append(s.Subject, sub)
	return nil
}

// Verify reports whether the certificate is well-formed and about the image or machine with that
// digest ("sha256:…"). It does not require a pass: read Predicate.Verdict, or use [Accept].
func (s *Statement) Verify(digest string) error {
	if err := s.validate(); err != nil {
		return err
	}
	return s.About(digest)
}

// Kind is how policies read certificates.
var Kind = attest.Kind{Name: "certificate", Type: PredicateType, Check: func(st *attest.Statement) (attest.Claims, error) {
	s, err := Read(st)
	if err != nil {
		return attest.Claims{}, err
	}
	return s.claims(), nil
}}

// claims are what a policy judges.
func (s *Statement) claims() attest.Claims {
	p := &s.Predicate
	c := attest.Claims{
		Target: p.Environment.Target, Recipe: p.Environment.Recipe, Suite: p.Suite, Machines: len(p.Machines), Origin: p.Harness.Origin, Selected: p.Selected.String(),
		Verdict: string(p.Verdict), Why: s.blame(), Started: p.Started, Finished: p.Finished,
	}
	if n := p.Node; n != nil {
		c.Node, c.NodeName = NodeDigest(n.Identity), n.Name
	} else {
		c.Platform = p.Environment.Platform
	}
	return c
}

// Open reads a stored certificate, bare or in its envelope, to show it. With keys, it accepts only
// certificates signed by one of them. Nothing may be decided by it: see [Accept] and [Admit].
func Open(doc []byte, keys ...crypto.PublicKey) (*Statement, attest.Attachment, error) {
	return Accept(doc, "", attest.Policy{Use: attest.Showing, Keys: keys})
}

// Accept reads a stored certificate, bare or in its envelope, about digest ("" for any), if the
// policy allows its use. If only its verdict, subject, time or use is against that, it is returned
// with the error.
func Accept(doc []byte, digest string, p attest.Policy) (*Statement, attest.Attachment, error) {
	var s *Statement // as Kind reads it, once
	kind := Kind
	kind.Check = func(st *attest.Statement) (attest.Claims, error) {
		read, err := Read(st)
		if err != nil {
			return attest.Claims{}, err
		}
		s = read
		return s.claims(), nil
	}
	p.Kinds = []attest.Kind{kind}
	a, err := p.Verify(doc, digest, "")
	if errors.Is(err, attest.ErrForeign) {
		err = fmt.Errorf("it is not a certificate but a %q", cmp.Or(a.Predicate, a.Type))
	}
	if err != nil {
		err = fmt.Errorf("certificate: %w", err)
	}
	return s, a, err
}

// blame names the first check that failed or had an error.
func (s *Statement) blame() string {
	for _, r := range s.Predicate.Results {
		if r.Verdict == result.Fail || r.Verdict == result.Error {
			return ": " + r.ID + ": " + r.Reason
		}
	}
	return ""
}
