// Package attest holds what is said about images and machines in a form that
// can be verified: in-toto Statements v1, their DSSE envelopes, the keys that
// sign them, and the one [Policy] that decides whether an image may be trusted.
//
// Readers are tolerant where in-toto and DSSE want them to be: unknown fields
// are ignored, and documents of other programs are left alone. They are strict
// in what decides: a field that is read must be there once, a statement counts
// only for the digest that it names, and what a policy requires must be found
// and verified, or the answer is no.
//
// The Statement here is not in-toto's generated type: its predicate is a
// protobuf Struct, in which large integers lose digits, and protojson's output
// is not stable, while a signature is over bytes. Tests hold what is written
// against in-toto's own type and its Validate.
package attest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"
)

const (
	// StatementType is the _type of every in-toto Statement v1.
	StatementType = "https://in-toto.io/Statement/v1"
	// TypeStatement is the media type of a statement, and DSSE's payload type for it.
	TypeStatement = "application/vnd.in-toto+json"
	// TypeEnvelope is the media type of a signed statement.
	TypeEnvelope = "application/vnd.dsse.envelope.v1+json"
)

// MaxSize bounds every statement that is read, in bytes.
const MaxSize = 32 << 20

// A Header is what all statements have.
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

// A Statement is an in-toto Statement v1 with any predicate, as it was written.
type Statement struct {
	Header
	Predicate json.RawMessage `json:"predicate"`
}

var hex256 = regexp.MustCompile(`^sha256:([0-9a-f]{64})$`)

// ImageSubject returns the subject that is an image, by its manifest's digest
// ("sha256:…").
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

// New returns the bytes of a statement about one image, one line of JSON that
// depends on the arguments alone.
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

// Encode writes v as one line of JSON without HTML escapes: fields in the order
// of their types, maps sorted, a newline at the end.
func Encode(v any) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	err := enc.Encode(v)
	return b.Bytes(), err
}

// Parse reads a statement with any predicate. Unknown fields are ignored, as
// in-toto's parsing rules have it; a name that stands twice in one object is
// refused, since readers differ in which of the two they take.
func Parse(b []byte) (*Statement, error) {
	var s Statement
	if err := Decode(b, MaxSize, &s); err != nil {
		return nil, fmt.Errorf("statement: %w", err)
	}
	// A subject of others may have no name, or a URI for a digest.
	subjects := make([]map[string]any, len(s.Subject))
	for i, sub := range s.Subject {
		subjects[i] = map[string]any{}
		if sub.Name != "" {
			subjects[i]["name"] = sub.Name
		}
		if sub.Digest != nil {
			subjects[i]["digest"] = sub.Digest
		}
	}
	known, err := Encode(map[string]any{"_type": s.Type, "subject": subjects, "predicateType": s.PredicateType})
	if err == nil {
		err = errors.Join(s.Header.Check(), Covers(b, known))
	}
	if err != nil {
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

// About reports whether a statement is about the image or machine with that
// digest ("sha256:…"), and if not, what it is about.
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

// ErrSubject says that a statement is about something else, or about nothing.
var ErrSubject = errors.New("the document is not about this digest")

// Decode reads one JSON document of at most limit bytes into v. Unknown fields
// are ignored. Refused are text after the document, and an object that has one
// name twice, or two names of the top level that differ in case alone:
// encoding/json takes the last of them, other readers the first.
func Decode(b []byte, limit int, v any) error {
	if len(b) > limit {
		return fmt.Errorf("%d bytes are too many: at most %d are read", len(b), limit)
	}
	if err := unambiguous(b); err != nil {
		return err
	}
	return json.Unmarshal(b, v)
}

// Covers reports whether doc says all that known, the encoding of what was read
// from it, says: every name of known is in doc, in the same spelling and with the
// same value. What doc says besides is ignored. So a field that a reader relies
// on cannot be left out, or come from a name that other readers do not know.
func Covers(doc, known []byte) error {
	var d, k any
	for b, v := range map[*[]byte]*any{&doc: &d, &known: &k} {
		dec := json.NewDecoder(bytes.NewReader(*b))
		dec.UseNumber()
		if err := dec.Decode(v); err != nil {
			return err
		}
	}
	return covers(d, k, "")
}

func covers(doc, known any, at string) error {
	switch k := known.(type) {
	case map[string]any:
		d, ok := doc.(map[string]any)
		if !ok {
			return fmt.Errorf("%s is not an object", at)
		}
		for name, v := range k {
			dv, ok := d[name]
			if !ok {
				return fmt.Errorf("%s.%s is missing", at, name)
			}
			if err := covers(dv, v, at+"."+name); err != nil {
				return err
			}
		}
		return nil
	case []any:
		d, ok := doc.([]any)
		if !ok || len(d) != len(k) {
			return fmt.Errorf("%s is not a list of %d", at, len(k))
		}
		for i := range k {
			if err := covers(d[i], k[i], fmt.Sprintf("%s[%d]", at, i)); err != nil {
				return err
			}
		}
		return nil
	case json.Number:
		if d, ok := doc.(json.Number); ok {
			a, aerr := d.Float64()
			b, berr := k.Float64()
			if aerr == nil && berr == nil && a == b {
				return nil
			}
		}
	default:
		if doc == known {
			return nil
		}
	}
	return fmt.Errorf("%s is %.50q, which is read as %.50q", at, fmt.Sprint(doc), fmt.Sprint(known))
}

// unambiguous walks the document's tokens; it keeps the names of the objects
// that are open.
func unambiguous(b []byte) error {
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.UseNumber()
	type level struct {
		names map[string]bool // nil in an array
		value bool            // in an object: a name was read, its value comes
	}
	var open []*level
	for {
		tok, err := dec.Token()
		if err == io.EOF && len(open) == 0 {
			return nil
		}
		if err != nil {
			if err == io.EOF {
				err = io.ErrUnexpectedEOF
			}
			return err
		}
		var top *level
		if len(open) > 0 {
			top = open[len(open)-1]
		}
		if name, ok := tok.(string); ok && top != nil && top.names != nil && !top.value {
			if len(open) == 1 {
				name = strings.ToLower(name)
			}
			if top.names[name] {
				return fmt.Errorf("the name %.100q stands twice in one object", name)
			}
			top.names[name], top.value = true, true
			continue
		}
		switch tok {
		case json.Delim('}'), json.Delim(']'):
			if open = open[:len(open)-1]; len(open) > 0 {
				open[len(open)-1].value = false
			}
		case json.Delim('{'):
			open = append(open, &level{names: map[string]bool{}})
		case json.Delim('['):
			open = append(open, &level{})
		default:
			if top != nil {
				top.value = false
			}
		}
		if len(open) > maxDepth {
			return fmt.Errorf("it is nested deeper than %d levels", maxDepth)
		}
	}
}

const maxDepth = 200
