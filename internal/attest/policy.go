package attest

import (
	"crypto"
	"errors"
	"fmt"
	"slices"
)

// A Kind is a predicate type that a policy evaluates.
type Kind struct {
	Name string // "certificate", as --require and errors call it
	Type string // predicateType
	// Check reads the predicate of a statement. It returns what is wrong with it, or [ErrForeign]
	// if another program wrote it with another meaning.
	Check func(*Statement) (Claims, error)
}

// Claims are what a predicate says about its image in addition to the predicate's own content. An
// empty field makes no claim.
type Claims struct {
	Target   string // of the build matrix
	Platform string // "linux/amd64"
}

// ErrForeign means that a document is from another program. Such a document does not count, neither
// for nor against the image.
var ErrForeign = errors.New("another program's document")

// ErrStatement means that a document cannot be read as a statement at all.
var ErrStatement = errors.New("not an in-toto statement")

// A Policy is what an image, or one document, must fulfil. The zero value only requires that the
// existing documents are consistent.
type Policy struct {
	Target    string             // the image is for this target; "" for any
	Digest    string             // the image is this manifest or index; "" for any
	Platforms []string           // the image is for exactly these, such as "linux/arm64"; nil for any
	Keys      []crypto.PublicKey // one of them signed the required documents; nil: signatures are ignored
	Kinds     []Kind             // kinds to evaluate; statements of other types are ignored
	Required  []string           // names of kinds that every image must have
}

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
	Counts    bool // it is valid, and meets a requirement of its kind
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
	if digest != "" {
		if err := st.About(digest); err != nil {
			return a, err
		}
	}
	if a.Claims, err = kind.Check(st); err != nil {
		return a, err
	}
	return a, p.agrees(a.Claims, platform)
}

// agrees compares the claims of a document with the policy.
func (p *Policy) agrees(c Claims, platform string) error {
	for _, f := range []struct{ what, want, got string }{
		{"target", p.Target, c.Target}, {"platform", platform, c.Platform},
	} {
		if f.want != "" && f.got != "" && f.want != f.got {
			return fmt.Errorf("it is about the %s %s, not %s", f.what, f.got, f.want)
		}
	}
	if p.Target != "" && c.Target == "" {
		return fmt.Errorf("it names no target; want %s", p.Target)
	}
	return nil
}
