// Package attest contains verifiable statements about images and machines: in-toto Statements v1,
// their DSSE envelopes, the keys that sign them, and the single [Policy] that decides whether an
// image can be trusted.
//
// Readers are tolerant where in-toto and DSSE require it: they ignore unknown fields and documents
// of other programs. They are strict where it matters for the decision: a field that is read must
// occur exactly once, a statement counts only for the digest that it names and for the use that its
// suite and its subject are for, and what a policy requires must be found and verified, or the
// answer is no. JSON that nobody signed is read by [DecodeUnsigned].
//
// The Statement here is not in-toto's generated type: its predicate is a protobuf Struct, in which
// large integers lose digits, and protojson's output is not stable, while a signature covers bytes.
// Tests compare the output with in-toto's own type and its Validate.
package attest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
)

const (
	// StatementType is the _type of every in-toto Statement v1.
	StatementType = "https://in-toto.io/Statement/v1"
	// TypeStatement is the media type of a statement, and DSSE's payload type for it.
	TypeStatement = "application/vnd.in-toto+json"
	// TypeEnvelope is the media type of a signed statement.
	TypeEnvelope = "application/vnd.dsse.envelope.v1+json"
)

// MaxSize limits the size of statements, in bytes.
const MaxSize = 32 << 20

// A Header contains the fields that all statements have.
type Header struct {
	Type          string    `json:"_type"`
	Subject       []Subject `json:"subject"`
	PredicateType string    `json:"predicateType"`
}

// A Subject is an image or a machine, by name and digest.
type Subject struct {
	Name   string            `json:"name"`
	Digest map[string]string `json:"digest"` // algorithm → hex
}

// A Statement is an in-toto Statement v1 with any predicate, in its original form.
type Statement struct {
	Header
	Predicate json.RawMessage `json:"predicate"`
}

var hex256 = regexp.MustCompile(`^sha256:([0-9a-f]{64})$`)

// ImageSubject returns the subject for an image with the given manifest digest ("sha256:…").
func ImageSubject(name, digest string) (Subject, error) {
	m := hex256.FindStringSubmatch(digest)
	if m == nil {
		return Subject{}, fmt.Errorf("digest %q is not sha256: and 64 hex digits in lower case", digest)
	}
	if name == "" {
		return Subject{}, errors.New("a subject needs a name")
	}
	return Subject{Name: name, Digest: map[string]string{"sha256": m[1]}}, nil
}

// New returns the bytes of a statement about one image: one line of JSON that depends only on the
// arguments.
func New(predicateType, name, digest string, predicate any) ([]byte, error) {
	sub, err := ImageSubject(name, digest)
	if err != nil {
		return nil, err
	}
	raw, err := Encode(predicate)
	if err != nil {
		return nil, err
	}
	b, err := Encode(Statement{Header{StatementType, []Subject{sub}, predicateType}, raw})
	return bytes.TrimSpace(b), err
}

// Encode writes v as one line of JSON without HTML escapes: fields in the order of their types,
// sorted maps, a newline at the end.
func Encode(v any) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	err := enc.Encode(v)
	return b.Bytes(), err
}

// Parse reads a statement with any predicate. It ignores unknown fields, as in-toto's parsing rules
// require. It rejects duplicate names in an object, since readers differ in which of the two they
// use.
func Parse(b []byte) (*Statement, error) {
	type subject struct { // another program's may have no name, or a URI instead of a digest
		Name   string            `json:"name,omitempty"`
		Digest map[string]string `json:"digest,omitempty"`
	}
	type statement struct {
		Type          string          `json:"_type"`
		Subject       []subject       `json:"subject"`
		PredicateType string          `json:"predicateType"`
		Predicate     json.RawMessage `json:"predicate,omitempty"`
	}
	var doc statement
	if err := Decode(b, MaxSize, &doc); err != nil {
		return nil, fmt.Errorf("statement: %w", err)
	}
	s := Statement{Header{doc.Type, make([]Subject, len(doc.Subject)), doc.PredicateType}, doc.Predicate}
	for i, sub := range doc.Subject {
		s.Subject[i] = Subject(sub)
	}
	if err := s.Header.Check(); err != nil {
		return nil, err
	}
	return &s, nil
}

// Check reports whether the header is that of a usable Statement v1.
func (h *Header) Check() error {
	switch {
	case h.Type != StatementType:
		return fmt.Errorf("_type is %q; want %q", h.Type, StatementType)
	case h.PredicateType == "":
		return errors.New("the statement has no predicateType")
	}
	return nil
}

// About reports whether a statement is about the image or machine with the given digest
// ("sha256:…"). If it is not, the error says what it is about.
func (h *Header) About(digest string) error {
	m := hex256.FindStringSubmatch(digest)
	if m == nil {
		return fmt.Errorf("digest %q is not sha256: and 64 hex digits in lower case", digest)
	}
	for _, sub := range h.Subject {
		if sub.Digest["sha256"] == m[1] {
			return nil
		}
	}
	if len(h.Subject) == 0 {
		return fmt.Errorf("%w: it names no subject", ErrSubject)
	}
	return fmt.Errorf("%w: its subject is %s@sha256:%s, not %s", ErrSubject, h.Subject[0].Name, h.Subject[0].Digest["sha256"], digest)
}

// ErrSubject means that a statement is about something else, or about nothing.
var ErrSubject = errors.New("the document is not about this digest")
