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
	"time"

	"github.com/assay-hpc/assay/harness/result"
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
	Schema      int            `json:"schema"`
	Suite       string         `json:"suite"`
	Verdict     result.Verdict `json:"verdict"` // always [Summary] of Results
	Started     time.Time      `json:"started"`
	Finished    time.Time      `json:"finished"`
	Harness     Harness        `json:"harness"`
	Environment Environment    `json:"environment"`
	Node        *Node          `json:"node,omitempty"` // of a certificate that is about a machine
	// Machines are those of a certificate that is about several.
	Machines []Machine       `json:"machines,omitempty"`
	Results  []result.Result `json:"results"`
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

// New returns a certificate without a subject: inside an image its digest is
// not known. SetSubject adds it.
func New(p Predicate) *Statement {
	p.Schema = SchemaVersion
	p.Verdict = result.Summary(p.Results)
	p.Started, p.Finished = stamp(p.Started), stamp(p.Finished)
	if p.Results == nil {
		p.Results = []result.Result{}
	}
	return &Statement{attest.Header{Type: attest.StatementType, Subject: []Subject{}, PredicateType: PredicateType}, p}
}

// stamp drops what JSON would not bring back.
func stamp(t time.Time) time.Time { return t.UTC().Truncate(time.Millisecond) }

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
	if p.Verdict != result.Pass {
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
		if r.Verdict == result.Fail || r.Verdict == result.Error {
			return ": " + r.ID + ": " + r.Reason
		}
	}
	return ""
}
