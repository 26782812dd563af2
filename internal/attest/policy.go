package attest

import (
	"crypto"
	"errors"
	"fmt"
	"slices"
)

// A Kind is a predicate type that a policy reads.
type Kind struct {
	Name string // "certificate", as --require and errors call it
	Type string // predicateType
	// Check reads the predicate of a statement and reports what is wrong with it,
	// or [ErrForeign] where another program made it and it means something else.
	Check func(*Statement) (Claims, error)
}

// Claims are what a predicate says of its image besides what it is about. An
// empty field says nothing.
type Claims struct {
	Target   string // of the matrix
	Platform string // "linux/amd64"
}

// ErrForeign says that a document is another program's: it is neither counted
// nor held against the image.
var ErrForeign = errors.New("another program's document")

// ErrStatement says that a document cannot be read as a statement at all.
var ErrStatement = errors.New("not an in-toto statement")

// A Policy says what an image, or one document, must be. The zero value asks
// for nothing but that what is there holds together.
type Policy struct {
	Target    string             // the image is of this target; "" for any
	Digest    string             // and is this manifest or index; "" for any
	Platforms []string           // it is for exactly these, such as "linux/arm64"; nil for any
	Keys      []crypto.PublicKey // one of them signed what is required; nil: signatures are not looked at
	Kinds     []Kind             // what is read; statements of other types are left alone
	Required  []string           // names of kinds that every image must have
}

// An Attachment is one referrer of a manifest.
type Attachment struct {
	Digest    string
	Type      string // artifact type
	Predicate string // predicate type of a statement
	Kind      string // name of the policy's kind, "" for what the policy does not read
	Signature Signature
	KeyIDs    []string
	Statement *Statement // nil where the policy does not read it
	Claims    Claims
	Counts    bool // it is valid, and fulfils a requirement of its kind
}

// Verify verifies one stored document, bare or in its envelope, as a
// statement of one of the policy's kinds about digest ("" for any). It is the rule for all
// documents; package walk applies it to each that is attached to an image.
// Platform is that of the image, "" where nothing is known of it.
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

// agrees holds what a document claims against what the policy wants.
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
