package certificate

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"strings"
)

// MaxSize bounds every document that this package reads.
const MaxSize = 32 << 20

// Marshal returns the statement's canonical form: one line of JSON whose bytes
// depend on its content alone.
func (s *Statement) Marshal() ([]byte, error) {
	if err := s.validate(); err != nil {
		return nil, err
	}
	return canonical(s)
}

// Parse reads a statement. White space apart, it accepts only what Marshal
// writes: an unknown or repeated field, another spelling of a number, or a
// verdict that the results do not bear out is an error.
func Parse(b []byte) (*Statement, error) {
	var s Statement
	if err := parseCanonical(b, &s); err != nil {
		return nil, fmt.Errorf("certificate: %w", err)
	}
	if err := s.validate(); err != nil {
		return nil, fmt.Errorf("certificate: %w", err)
	}
	return &s, nil
}

// ParseSpec reads an image's declaration. Unknown fields are errors.
func ParseSpec(b []byte) (*ImageSpec, error) {
	if len(b) > MaxSize {
		return nil, fmt.Errorf("image declaration: %d bytes are too many", len(b))
	}
	var spec ImageSpec
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&spec); err != nil {
		return nil, fmt.Errorf("image declaration: %w", err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("image declaration: more text follows the document")
	}
	if spec.Version != SpecVersion {
		return nil, fmt.Errorf("image declaration: version %d; this harness reads version %d", spec.Version, SpecVersion)
	}
	return &spec, nil
}

// canonical encodes v without HTML escapes. The order of fields is that of the
// types, maps are sorted, and times were normalised before.
func canonical(v any) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	err := enc.Encode(v)
	return b.Bytes(), err
}

var errCanonical = errors.New("the document is not in canonical form (a field is unknown, repeated or spelled otherwise)")

// parseCanonical decodes b into v and holds the encoding of v against b. That
// alone refuses everything that encoding/json lets pass.
func parseCanonical(b []byte, v any) error {
	if len(b) > MaxSize {
		return fmt.Errorf("%d bytes are too many", len(b))
	}
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.DisallowUnknownFields() // for the better message
	if err := dec.Decode(v); err != nil {
		return err
	}
	again, err := canonical(v)
	if err != nil {
		return err
	}
	var compact bytes.Buffer
	if err := json.Compact(&compact, b); err != nil {
		return err
	}
	if !bytes.Equal(compact.Bytes(), bytes.TrimSuffix(again, []byte("\n"))) {
		return errCanonical
	}
	return nil
}

// validate reports the first rule that the statement breaks.
func (s *Statement) validate() error {
	p := &s.Predicate
	switch {
	case s.Type != StatementType:
		return fmt.Errorf("_type is %q; want %q", s.Type, StatementType)
	case s.PredicateType != PredicateType:
		return fmt.Errorf("predicateType is %q; want %q", s.PredicateType, PredicateType)
	case p.Schema != SchemaVersion:
		return fmt.Errorf("schema version %d; this program reads version %d", p.Schema, SchemaVersion)
	case p.Suite == "":
		return errors.New("no suite is named")
	case p.Verdict != Summary(p.Results):
		return fmt.Errorf("verdict is %q, but the results make it %q", p.Verdict, Summary(p.Results))
	case p.Finished.Before(p.Started):
		return errors.New("it finished before it started")
	case !p.Started.Equal(stamp(p.Started)), !p.Finished.Equal(stamp(p.Finished)):
		return errors.New("a time is finer than a millisecond")
	}
	for _, sub := range s.Subject {
		if sub.Name == "" || len(sub.Digest) == 0 {
			return errors.New("a subject lacks name or digest")
		}
	}
	seen := map[string]bool{}
	for i := range p.Results {
		r := &p.Results[i]
		if seen[r.ID] {
			return fmt.Errorf("two results have the id %q", r.ID)
		}
		seen[r.ID] = true
		if err := r.Validate(); err != nil {
			return err
		}
	}
	return nil
}

// Validate reports the first rule that the result breaks.
func (r *Result) Validate() error {
	switch {
	case r.ID == "":
		return errors.New("a result has no id")
	case r.Verdict != Pass && r.Verdict != Fail && r.Verdict != Skip && r.Verdict != Error:
		return fmt.Errorf("result %s: verdict %q is none of pass, fail, skip, error", r.ID, r.Verdict)
	case r.Verdict != Pass && strings.TrimSpace(r.Reason) == "":
		return fmt.Errorf("result %s: %s without a reason", r.ID, r.Verdict)
	case !finite(r.Seconds) || r.Seconds < 0:
		return fmt.Errorf("result %s: it took %v seconds", r.ID, r.Seconds)
	case r.Measured == nil:
		return nil
	}
	m := r.Measured
	if !finite(m.Value) || !finite(m.Expected) || !finite(m.Ratio) {
		return fmt.Errorf("result %s: a measured value is not a number", r.ID)
	}
	if m.Unit == "" || (m.Expected != 0 && m.Source == "") {
		return fmt.Errorf("result %s: a measured value needs a unit, an expected one its source", r.ID)
	}
	return nil
}

func finite(f float64) bool { return !math.IsNaN(f) && !math.IsInf(f, 0) }
