package attest

import (
	"crypto"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// A Kind is a predicate type that a policy evaluates.
type Kind struct {
	Name string // "certificate", as --require and errors call it
	Type string // predicateType
	// Check reads the predicate of a statement. It returns what is wrong with it, or [ErrForeign]
	// if another program wrote it with another meaning. What the predicate's claims are worth is
	// the policy's matter.
	Check func(*Statement) (Claims, error)
}

// Claims are what a predicate says about its subject in addition to the predicate's own content. An
// empty field makes no claim.
type Claims struct {
	Target   string // of the build matrix
	Platform string // "linux/amd64"
	Recipe   string // hash of the target's recipe, hex

	// Of a certificate:
	Suite             string
	Node              string // digest of the identity of the machine that it is about, "sha256:…"; "": of none
	NodeName          string
	Machines          int    // that it is about as a whole; 0: it is not about several
	Origin            string // [GateOrigin] if the image could not write it
	Selected          string // options that left checks of the suite out; "": all were wanted
	Verdict           string // "pass"
	Why               string // it is not a pass
	Started, Finished time.Time
}

// A Use is what a document is to be used for.
type Use int

const (
	// Gate is the use of an image's documents: its certificate is of the suite "image", is not about
	// a machine, was made outside of the image, left no check out, and is a pass.
	Gate Use = iota
	// Passing is a pass about whatever the policy names.
	Passing
	// Admission is the use of a machine's certificate for giving it work, or taking work away:
	// it is about that machine, of a suite that the site allows, and recent. It may be a fail.
	Admission
	// Showing decides nothing: whatever a certificate says is shown.
	Showing
)

// GateSuite is the suite of an image's gate.
const GateSuite = "image"

// GateOrigin is the origin of a certificate whose harness assay ran outside of the image.
const GateOrigin = "assay"

// clockSkew is how far the clocks of the machine that wrote a document and of this one may differ.
const clockSkew = 5 * time.Minute

var (
	// ErrForeign means that a document is from another program. Such a document does not count,
	// neither for nor against the image.
	ErrForeign = errors.New("another program's document")
	// ErrUse means that a certificate is for another use: of another suite, or about something of
	// another kind. It is evidence, and does not count, neither for nor against.
	ErrUse = errors.New("it is for another use")
	// ErrTime means that a document is too old, from the future, or older than what it would undo.
	ErrTime = errors.New("it is not of the right time")
	// ErrStatement means that a document cannot be read as a statement at all.
	ErrStatement = errors.New("not an in-toto statement")
)

// A Policy is what an image, a machine, or one document, must fulfil. The zero value is about an
// image, and only requires that the existing documents are consistent. It is the only judge of
// documents: whoever acts on one calls Verify.
type Policy struct {
	Use       Use
	Target    string             // it is for this target; "" for any
	Recipe    string             // the hash of its recipe begins with these hex digits; "" for any
	Digest    string             // the image is this manifest or index; "" for any
	Platforms []string           // the image is for exactly these, such as "linux/arm64"; nil for any
	Keys      []crypto.PublicKey // one of them signed the required documents; nil: signatures are ignored
	Kinds     []Kind             // kinds to evaluate; statements of other types are ignored
	Required  []string           // names of kinds that every image must have
	Layers    Layers             // what is read of an image's layers

	Node   string        // digest of the machine's identity; Admission needs it
	Suites []string      // of certificates that count; nil: for a Gate the suite "image", else any
	MaxAge time.Duration // of a certificate, since it was finished; 0: any
	Now    time.Time     // zero: now
}

// Layers says what is read of an image's layers. Manifests, configurations and documents are always
// read as a whole, and compared with their digests.
type Layers int

const (
	LayersSized Layers = iota // that each is there, in its size
	LayersBegun               // also its first byte: some registries say they have what they lack
	LayersRead                // all bytes, which are compared with the digest
)

// An Attachment is one referrer of a manifest.
type Attachment struct {
	Digest    string
	Type      string // artifact type
	Predicate string // predicate type of a statement
	Kind      string // name of the policy's kind; "" if the policy does not evaluate it
	Signature Signature
	KeyIDs    []string
	Statement *Statement // nil if the policy does not evaluate it
	Claims    Claims
	Counts    bool   // it is valid, and meets a requirement of its kind
	Aside     string // why it counts neither for nor against, though it is ours: see [ErrUse]
}

// Verify verifies one stored document, bare or in its envelope, as a statement of one of the
// policy's kinds about digest ("" for any). This rule applies to all documents; package walk
// applies it to each document that is attached to an image. platform is the platform of the image,
// "" if not known.
func (p *Policy) Verify(doc []byte, digest, platform string) (Attachment, error) {
	a := Attachment{Signature: Unsigned}
	o, err := Open(doc, p.Keys...)
	if err != nil {
		return a, fmt.Errorf("%w: %w", ErrStatement, err)
	}
	a.Signature, a.KeyIDs = o.Signature, o.KeyIDs
	a.Type = o.Type
	if o.Type != TypeStatement {
		return a, ErrForeign
	}
	st, err := Parse(o.Payload)
	if err != nil {
		return a, fmt.Errorf("%w: %w", ErrStatement, err)
	}
	a.Predicate = st.PredicateType
	i := slices.IndexFunc(p.Kinds, func(k Kind) bool { return k.Type == st.PredicateType })
	if i < 0 {
		return a, ErrForeign
	}
	kind := p.Kinds[i]
	a.Kind = kind.Name
	if len(p.Keys) > 0 && a.Signature != Verified {
		if a.Signature == Unsigned {
			return a, fmt.Errorf("%w: it is not signed", ErrSignature)
		}
		return a, fmt.Errorf("%w with any of the %d given keys: it is %s", ErrSignature, len(p.Keys), a.Signature)
	}
	a.Statement = st
	if a.Claims, err = kind.Check(st); err != nil {
		return a, err
	}
	if err := p.serves(a.Claims); err != nil {
		a.Aside = strings.TrimPrefix(err.Error(), ErrUse.Error()+": ")
		return a, err
	}
	if digest != "" {
		if err := st.About(digest); err != nil {
			return a, err
		}
	}
	return a, p.agrees(a.Claims, platform)
}

// serves reports whether a certificate is for the policy's use.
func (p *Policy) serves(c Claims) error {
	if c.Suite == "" || p.Use == Showing { // another kind of document
		return nil
	}
	suites := p.Suites
	switch {
	case p.Use == Gate && c.Node != "":
		return fmt.Errorf("%w: it is about the machine %s, suite %s", ErrUse, c.NodeName, c.Suite)
	case c.Suite == GateSuite && c.Node != "", p.Use == Passing && p.Target+p.Recipe != "" && c.Node != "":
		return fmt.Errorf("%w: it is about the machine %s, and not an image's", ErrUse, c.NodeName)
	case p.Use == Gate && c.Machines > 0, p.Use == Admission && c.Machines > 0:
		return fmt.Errorf("%w: it is about %d machines, suite %s", ErrUse, c.Machines, c.Suite)
	case p.Use == Admission && (c.Node == "" || c.Suite == GateSuite):
		return fmt.Errorf("%w: it is not about a machine, suite %s", ErrUse, c.Suite)
	case p.Use == Gate && suites == nil:
		suites = []string{GateSuite}
	}
	switch {
	case suites != nil && !slices.Contains(suites, c.Suite):
		return fmt.Errorf("%w: its suite is %s, not %s", ErrUse, c.Suite, strings.Join(suites, " or "))
	case p.Use == Gate && c.Suite == GateSuite && c.Origin != GateOrigin:
		return fmt.Errorf("%w: its harness ran inside of the image, which could have written it; assay certify runs it outside", ErrUse)
	case p.Use == Gate && c.Selected != "":
		return fmt.Errorf("%w: checks were left out by %s", ErrUse, c.Selected)
	}
	return nil
}

// agrees compares the claims of a document with the policy.
func (p *Policy) agrees(c Claims, platform string) error {
	if p.Use == Showing {
		return nil
	}
	if p.Use == Admission && p.Node == "" {
		return fmt.Errorf("%w: which machine it is to be about is not known", ErrSubject)
	}
	if p.Node != "" && c.Node != p.Node {
		return fmt.Errorf("%w: it is about the machine %q with the identity %s, not about the one with %s", ErrSubject, c.NodeName, orNone(c.Node), p.Node)
	}
	for _, f := range []struct{ what, want, got string }{
		{"target", p.Target, c.Target}, {"platform", platform, c.Platform},
	} {
		if f.want != "" && f.got != "" && f.want != f.got {
			return fmt.Errorf("it is about the %s %s, not %s", f.what, f.got, f.want)
		}
	}
	switch {
	case p.Target != "" && c.Target == "":
		return fmt.Errorf("it names no target; want %s", p.Target)
	case p.Recipe != "" && c.Suite != "" && c.Recipe == "":
		return fmt.Errorf("it names no recipe; want one whose hash begins with %s", p.Recipe)
	case p.Recipe != "" && c.Suite != "" && !strings.HasPrefix(c.Recipe, p.Recipe):
		return fmt.Errorf("it is about the recipe %.12s, whose hash does not begin with %s", c.Recipe, p.Recipe)
	}
	if err := p.timely(c); err != nil {
		return err
	}
	if p.Use != Admission && c.Verdict != "" && c.Verdict != "pass" {
		return fmt.Errorf("its verdict is %s%s", c.Verdict, c.Why)
	}
	return nil
}

// timely reports whether a certificate is neither too old nor from the future.
func (p *Policy) timely(c Claims) error {
	if c.Suite == "" {
		return nil
	}
	now := p.Now
	if now.IsZero() {
		now = time.Now()
	}
	stamp := c.Finished.UTC().Format(time.RFC3339)
	switch age := now.Sub(c.Finished); {
	case c.Finished.IsZero() && (p.MaxAge > 0 || p.Use == Admission):
		return fmt.Errorf("%w: it does not say when it was finished", ErrTime)
	case age < -clockSkew || c.Started.Sub(now) > clockSkew:
		return fmt.Errorf("%w: it was finished at %s, which is in the future of this machine's clock (%s)", ErrTime, stamp, now.UTC().Format(time.RFC3339))
	case p.MaxAge > 0 && age > p.MaxAge:
		return fmt.Errorf("%w: it was finished at %s, %v ago; at most %v are allowed", ErrTime, stamp, age.Round(time.Second), p.MaxAge)
	}
	return nil
}

// Supersedes reports whether a certificate may undo what was done at a time: its checks must have
// begun later.
func (c Claims) Supersedes(done time.Time) error {
	if c.Started.Before(done) {
		return fmt.Errorf("%w: its checks began at %s, before %s", ErrTime, c.Started.UTC().Format(time.RFC3339), done.UTC().Format(time.RFC3339))
	}
	return nil
}

func orNone(s string) string {
	if s == "" {
		return "none"
	}
	return s
}
