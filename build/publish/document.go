package publish

import (
	"encoding/json"
	"errors"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/secure-systems-lab/go-securesystemslib/dsse"

	"github.com/assay-hpc/assay/build/provenance"
	"github.com/assay-hpc/assay/build/sbom"
	"github.com/assay-hpc/assay/harness/certificate"
)

// A statement is what all in-toto statements have.
type statement struct {
	Type          string                               `json:"_type"`
	Subject       []struct{ Digest map[string]string } `json:"subject"`
	PredicateType string                               `json:"predicateType"`
	Predicate     json.RawMessage                      `json:"predicate"`
}

// document opens one attached statement, signed or not, and takes what it says
// into the findings. What is wrong with it is a problem of the report, never
// the end of the inspection.
func (in *inspector) document(doc []byte, subject v1.Hash, e *AttachedEntry, where string, f *findings) {
	if e.Type == TypeEnvelope {
		payload, err := in.openEnvelope(doc, e)
		if err != nil {
			in.problem("%s: %s: %v", where, e.Digest, err)
			return
		}
		doc = payload
	}
	var s statement
	if err := json.Unmarshal(doc, &s); err != nil {
		in.problem("%s: %s is not a statement: %v", where, e.Digest, err)
		return
	}
	e.Predicate = s.PredicateType
	if !s.about(subject) {
		in.problem("%s: the %s %s is about another image (%s)", where, kind(*e), e.Digest, s.subjects())
		return
	}
	img := f.image
	if img == nil {
		img = new(ImageReport) // nothing of an index to show, but as much to verify
	}
	if err := in.predicate(s, doc, subject, img); err != nil {
		in.problem("%s: the %s %s: %v", where, kind(*e), e.Digest, err)
	}
}

func (s statement) about(h v1.Hash) bool {
	for _, sub := range s.Subject {
		if sub.Digest[h.Algorithm] == h.Hex {
			return true
		}
	}
	return false
}

func (s statement) subjects() string {
	if len(s.Subject) == 0 {
		return "it names none"
	}
	return "sha256:" + s.Subject[0].Digest["sha256"]
}

// openEnvelope returns a DSSE envelope's payload and notes who signed it.
// Without a key that verifies it, the payload is still worth showing.
func (in *inspector) openEnvelope(doc []byte, e *AttachedEntry) ([]byte, error) {
	var env dsse.Envelope
	if err := json.Unmarshal(doc, &env); err != nil {
		return nil, err
	}
	if env.PayloadType != TypeStatement {
		return nil, errors.New("the envelope holds " + env.PayloadType + ", not a statement")
	}
	for _, s := range env.Signatures {
		e.KeyIDs = append(e.KeyIDs, s.KeyID)
	}
	switch {
	case len(env.Signatures) == 0:
	case len(in.keys) == 0:
		e.Signature = Unchecked
	default:
		e.Signature = Unverified
		if payload, _, err := certificate.VerifyDSSE(doc, in.keys...); err == nil {
			e.Signature = Verified
			return payload, nil
		}
	}
	return env.DecodeB64Payload()
}

// predicate reads the statements that assay makes. Others are only listed.
func (in *inspector) predicate(s statement, doc []byte, subject v1.Hash, img *ImageReport) error {
	switch s.PredicateType {
	case certificate.PredicateType:
		return certified(doc, subject, img)
	case sbom.PredicateType:
		sum, err := sbom.Summarize(s.Predicate)
		img.Packages, img.Components = sum.Packages, sum.Components
		return err
	case provenance.PredicateType:
		sum, err := provenance.Summarize(s.Predicate)
		img.Provenance = &sum
		return err
	}
	return nil
}

// certified enters a certificate. Of several, the one that finished last is
// shown, but none may be other than a pass.
func certified(doc []byte, subject v1.Hash, img *ImageReport) error {
	c, err := certificate.Parse(doc)
	if err != nil {
		return err
	}
	if err := c.Verify(subject.String()); err != nil {
		return err
	}
	p := c.Predicate
	finished := p.Finished.UTC().Format(time.RFC3339)
	if img.Certificate == nil || img.Certificate.Finished < finished {
		img.Certificate = &Certified{
			Verdict: p.Verdict, Suite: p.Suite, Harness: p.Harness.Version, Recipe: p.Environment.Recipe,
			Finished: finished, Count: certificate.Count(p.Results), Results: p.Results,
		}
	}
	if p.Verdict != certificate.Pass {
		return errors.New("its verdict is " + string(p.Verdict) + failing(p.Results))
	}
	return nil
}

// failing names the first check that is the reason of a verdict.
func failing(results []certificate.Result) string {
	for _, r := range results {
		if r.Verdict == certificate.Fail || r.Verdict == certificate.Error {
			return ": " + r.ID + ": " + r.Reason
		}
	}
	return ""
}
