// Package inspect verifies an image, with everything that is attached to it, and shows the
// result. "assay inspect" prints it, and publishing depends on it.
//
// Certificate, SBOM and provenance are all in-toto Statements. Their subject is the manifest that
// they are attached to. The SBOM's predicate is the SPDX document (predicate type
// https://spdx.dev/Document/v2.3, as in the in-toto registry of predicates and in GitHub's
// attest-sbom). With one format for all three, one rule verifies them all, and an SBOM that was
// moved to another image is detected, which a bare application/spdx+json does not allow.
package inspect

import (
	"cmp"
	"context"
	"crypto"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/assay-hpc/assay/build/provenance"
	"github.com/assay-hpc/assay/build/sbom"
	"github.com/assay-hpc/assay/internal/attest"
	"github.com/assay-hpc/assay/internal/attest/walk"
	"github.com/assay-hpc/assay/internal/certificate"
	"github.com/assay-hpc/assay/internal/oci"
	"github.com/assay-hpc/assay/internal/result"
)

// Kinds are the documents that assay attaches to images, and the only ones that a policy for
// images can require.
var Kinds = []attest.Kind{certificate.Kind, sbom.Kind, provenance.Kind}

// All are the names of all kinds.
var All = []string{certificate.Kind.Name, sbom.Kind.Name, provenance.Kind.Name}

// Require reads a list of kinds, "certificate,sbom,provenance".
func Require(list []string) ([]string, error) {
	var names []string
	for _, s := range list {
		for name := range strings.SplitSeq(s, ",") {
			if name = strings.TrimSpace(name); !slices.Contains(All, name) {
				return nil, fmt.Errorf("%q is not one of %s", name, strings.Join(All, ", "))
			}
			names = append(names, name)
		}
	}
	return names, nil
}

// Artifact turns a statement into an attachment of an image, signed unless key is nil.
func Artifact(statement []byte, key crypto.Signer) (oci.Artifact, error) {
	st, err := attest.Parse(statement)
	if err != nil {
		return oci.Artifact{}, err
	}
	a := oci.Artifact{Type: attest.TypeStatement, Predicate: st.PredicateType, Data: statement}
	if key != nil {
		a.Type = attest.TypeEnvelope
		if a.Data, err = attest.Sign(attest.TypeStatement, statement, key); err != nil {
			return oci.Artifact{}, fmt.Errorf("signing %s: %w", st.PredicateType, err)
		}
	}
	return a, nil
}

// ReportVersion is the version of Report's JSON.
const ReportVersion = 1

// A Report is what is known about an image.
type Report struct {
	SchemaVersion int             `json:"schemaVersion"`
	Reference     string          `json:"reference"`
	Digest        string          `json:"digest"`
	Target        string          `json:"target,omitempty"` // on which its documents agree
	Images        []Image         `json:"images"`
	Attached      []AttachedEntry `json:"attached,omitempty"` // to the index itself
	Layers        LayersReport    `json:"layers"`
	// Notes say what could not be compared.
	Notes []string `json:"notes,omitempty"`
	// Problems lists what is inconsistent. Empty means that everything present was verified under
	// the given policy.
	Problems []string `json:"problems,omitempty"`

	keys   bool   // signatures were verified
	recipe string // was compared with the certificates'
}

// A LayersReport says what was looked at of the layers of all images.
type LayersReport struct {
	Count     int    `json:"count"`               // different ones
	Bytes     int64  `json:"bytes"`               // compressed
	Verified  string `json:"verified"`            // "size": each is there in its size; "digest": all bytes were read
	Elsewhere int    `json:"elsewhere,omitempty"` // that no registry may distribute, and that were not looked at
}

// An Image is the image of one platform.
type Image struct {
	Platform    string              `json:"platform"`
	Digest      string              `json:"digest"`
	Bytes       int64               `json:"bytes"` // of its layers, compressed
	Components  []sbom.Component    `json:"components,omitempty"`
	Certificate *Certified          `json:"certificate,omitempty"`
	Packages    int                 `json:"packages,omitempty"` // Debian packages in the SBOM
	Provenance  *provenance.Summary `json:"provenance,omitempty"`
	Attached    []AttachedEntry     `json:"attached,omitempty"`
	Sizes       *Sizes              `json:"sizes,omitempty"` // set by Measure
}

// Certified is the certificate of an image.
type Certified struct {
	Verdict  result.Verdict         `json:"verdict"`
	Suite    string                 `json:"suite"`
	Harness  string                 `json:"harness"`
	Recipe   string                 `json:"recipe,omitempty"`
	Finished string                 `json:"finished"`
	Count    map[result.Verdict]int `json:"count"`
	Results  []result.Result        `json:"results"`
}

// An AttachedEntry is one referrer.
type AttachedEntry struct {
	Digest    string           `json:"digest"`
	Type      string           `json:"type"`                // artifact type
	Predicate string           `json:"predicate,omitempty"` // predicate type of a statement
	Kind      string           `json:"kind,omitempty"`      // certificate, sbom, provenance; empty for other programs' documents
	Signature attest.Signature `json:"signature"`
	KeyIDs    []string         `json:"keyIDs,omitempty"`
	Aside     string           `json:"aside,omitempty"`   // why it counts neither for nor against the image, though it is assay's
	Verdict   string           `json:"verdict,omitempty"` // of a certificate that stands aside
}

// Inspect verifies an image under a policy. The policy's Kinds may be left out. The error is a
// *walk.Error if the report could be made but has problems.
func Inspect(ctx context.Context, src oci.Source, policy attest.Policy) (*Report, error) {
	policy.Kinds = Kinds
	ev, err := walk.Verify(ctx, policy, src)
	if ev == nil {
		return nil, err
	}
	r := &Report{
		SchemaVersion: ReportVersion, Reference: ev.Reference, Digest: ev.Root.Digest.String(), Target: ev.Target,
		Attached: entries(ev.Attached), Problems: ev.Problems, keys: len(policy.Keys) > 0, recipe: policy.Recipe,
		Layers: LayersReport{Count: ev.Layers.Count, Bytes: ev.Layers.Bytes, Verified: "size", Elsewhere: ev.Layers.Elsewhere},
	}
	if ev.Root.Digest.Hex == "" {
		r.Digest = ""
	}
	if ev.Layers.Read {
		r.Layers.Verified = "digest"
	}
	for _, img := range ev.Images {
		r.Images = append(r.Images, image(img))
	}
	return r, err
}

func entries(list []attest.Attachment) []AttachedEntry {
	var out []AttachedEntry
	for _, a := range list {
		e := AttachedEntry{Digest: a.Digest, Type: a.Type, Predicate: a.Predicate, Kind: a.Kind, Signature: a.Signature, KeyIDs: a.KeyIDs, Aside: a.Aside}
		if e.Aside != "" {
			e.Verdict = a.Claims.Verdict
		}
		out = append(out, e)
	}
	return out
}

// image summarizes an image's documents, including those that do not count: a failed certificate
// is worth showing.
func image(img walk.Image) Image {
	out := Image{Platform: img.Platform, Digest: img.Digest, Bytes: img.Bytes, Attached: entries(img.Attached)}
	for _, a := range img.Attached {
		if a.Statement == nil || a.Aside != "" {
			continue
		}
		switch a.Kind {
		case certificate.Kind.Name:
			out.Certificate = newest(out.Certificate, a.Statement)
		case sbom.Kind.Name:
			if sum, err := sbom.Summarize(a.Statement.Predicate); err == nil {
				out.Packages, out.Components = sum.Packages, sum.Components
			}
		case provenance.Kind.Name:
			if sum, err := provenance.Summarize(a.Statement.Predicate); err == nil {
				out.Provenance = &sum
			}
		}
	}
	return out
}

// newest returns the certificate that finished last.
func newest(shown *Certified, st *attest.Statement) *Certified {
	c, err := certificate.Read(st)
	if err != nil {
		return shown
	}
	p := c.Predicate
	finished := p.Finished.UTC().Format(time.RFC3339)
	if shown != nil && shown.Finished >= finished {
		return shown
	}
	return &Certified{
		Verdict: p.Verdict, Suite: p.Suite, Harness: p.Harness.Version, Recipe: p.Environment.Recipe,
		Finished: finished, Count: result.Count(p.Results), Results: p.Results,
	}
}

// title is the display name of a referrer.
func (e AttachedEntry) title() string {
	switch {
	case e.Aside != "":
		return fmt.Sprintf("%s, aside (%s): %s", e.Kind, e.Aside, e.Verdict)
	case e.Kind == sbom.Kind.Name:
		return "SBOM"
	}
	return cmp.Or(e.Kind, e.Predicate, e.Type)
}

// Failed reports whether an error says that an image failed verification, as opposed to being
// unreadable.
func Failed(err error) bool {
	var v *walk.Error
	return errors.As(err, &v)
}
