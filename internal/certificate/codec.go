package certificate

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/assay-hpc/assay/internal/attest"
	"github.com/assay-hpc/assay/internal/infile"
	"github.com/assay-hpc/assay/internal/result"
)

// MaxSize bounds every document that this package reads.
const MaxSize = attest.MaxSize

// Marshal returns the statement's canonical form: one line of JSON whose bytes
// depend on its content alone.
func (s *Statement) Marshal() ([]byte, error) {
	if err := s.validate(); err != nil {
		return nil, err
	}
	return attest.Encode(s)
}

// Compact returns the bytes of a certificate as it was read, without white space. These bytes are
// signed and stored, so that fields added by a newer version survive.
func Compact(b []byte) ([]byte, error) {
	var out bytes.Buffer
	err := json.Compact(&out, b)
	out.WriteByte('\n')
	return out.Bytes(), err
}

// Parse reads a statement. It ignores unknown fields, as in-toto specifies: newer versions may
// add some. It is an error if an object repeats a name, if a field is missing or spelled
// differently, or if the results do not support the verdict.
func Parse(b []byte) (*Statement, error) {
	st, err := attest.Parse(b)
	if err != nil {
		return nil, fmt.Errorf("certificate: %w", err)
	}
	s, err := Read(st)
	if err != nil {
		return nil, fmt.Errorf("certificate: %w", err)
	}
	return s, nil
}

// Read reads a statement's predicate as a certificate's.
func Read(st *attest.Statement) (*Statement, error) {
	s := Statement{Header: st.Header}
	if s.PredicateType != PredicateType {
		return nil, fmt.Errorf("predicateType is %q; want %q", s.PredicateType, PredicateType)
	}
	err := attest.Decode(st.Predicate, MaxSize, &s.Predicate)
	if v := s.Predicate.Schema; err != nil && v != 0 && v != SchemaVersion {
		return nil, errVersion(v)
	}
	if err == nil {
		err = s.validate()
	}
	if err != nil {
		return nil, err
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

// validate reports the first rule that the statement breaks.
func (s *Statement) validate() error {
	p := &s.Predicate
	if err := s.Header.Check(); err != nil {
		return err
	}
	switch {
	case s.PredicateType != PredicateType:
		return fmt.Errorf("predicateType is %q; want %q", s.PredicateType, PredicateType)
	case p.Schema != SchemaVersion:
		return errVersion(p.Schema)
	case p.Suite == "":
		return errors.New("no suite is named")
	case p.Verdict != result.Summary(p.Results):
		return fmt.Errorf("verdict is %q, but the results make it %q", p.Verdict, result.Summary(p.Results))
	case p.Finished.Before(p.Started):
		return errors.New("it finished before it started")
	case !p.Started.Equal(stamp(p.Started)), !p.Finished.Equal(stamp(p.Finished)):
		return errors.New("a time is finer than a millisecond")
	}
	if err := validateMachines(p.Machines); err != nil {
		return err
	}
	for _, sub := range s.Subject {
		if sub.Name == "" || len(sub.Digest) == 0 {
			return errors.New("a subject lacks name or digest")
		}
	}
	if err := s.validateNode(); err != nil {
		return err
	}
	return errors.Join(validateSubjects(s.Subject), p.Validate())
}

func errVersion(v int) error {
	return fmt.Errorf("schema version %d; this program reads version %d", v, SchemaVersion)
}

// validateMachines compares the embedded certificates with their digests.
func validateMachines(machines []Machine) error {
	for _, m := range machines {
		if sum, err := hex.DecodeString(m.SHA256); err != nil || len(sum) != sha256.Size || m.Name == "" {
			return fmt.Errorf("machine %q lacks its name, or the SHA-256 of its certificate (%q)", m.Name, m.SHA256)
		}
		if m.Certificate == nil {
			continue
		}
		if m.Certificate.Predicate.Machines != nil {
			return fmt.Errorf("the certificate of the machine %s has machines itself", m.Name)
		}
		sum, err := m.sum()
		if err != nil {
			return fmt.Errorf("the certificate of the machine %s: %w", m.Name, err)
		}
		if sum != m.SHA256 {
			return fmt.Errorf("the certificate of the machine %s has the SHA-256 %s, not %s", m.Name, sum, m.SHA256)
		}
	}
	return nil
}

// sum returns the SHA-256 of the embedded certificate: of its bytes as they were read, without
// white space, or else of its canonical form.
func (m *Machine) sum() (string, error) {
	if m.raw == nil {
		return m.Certificate.SHA256()
	}
	if err := m.Certificate.validate(); err != nil {
		return "", err
	}
	b, err := Compact(m.raw)
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:]), nil
}

// SHA256 returns the SHA-256 of the canonical form, in hex.
func (s *Statement) SHA256() (string, error) {
	b, err := s.Marshal()
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:]), nil
}

// ReadFile reads a file that may contain a certificate or an envelope, up to a size that none
// exceeds; "-" is standard input.
func ReadFile(name string) ([]byte, error) {
	return infile.ReadArgument(name, 2*MaxSize)
}
