package publish

import (
	"cmp"
	"context"
	"crypto"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/assay-hpc/assay/build/provenance"
	"github.com/assay-hpc/assay/build/sbom"
	"github.com/assay-hpc/assay/harness/certificate"
)

// ReportVersion is the version of Report's JSON.
const ReportVersion = 1

// A Report is what is known of a published image.
type Report struct {
	SchemaVersion int             `json:"schemaVersion"`
	Reference     string          `json:"reference"`
	Digest        string          `json:"digest"`
	Images        []ImageReport   `json:"images"`
	Attached      []AttachedEntry `json:"attached,omitempty"` // to the index itself
	// Problems say what does not hold together. Empty means that all was
	// verified that there is, with the keys that were given.
	Problems []string `json:"problems,omitempty"`
}

// An ImageReport is about one platform.
type ImageReport struct {
	Platform    string              `json:"platform"`
	Digest      string              `json:"digest"`
	Bytes       int64               `json:"bytes"` // of its layers, compressed
	Components  []sbom.Component    `json:"components,omitempty"`
	Certificate *Certified          `json:"certificate,omitempty"`
	Packages    int                 `json:"packages,omitempty"` // Debian packages in the SBOM
	Provenance  *provenance.Summary `json:"provenance,omitempty"`
	Attached    []AttachedEntry     `json:"attached,omitempty"`
}

// Certified is the certificate of an image.
type Certified struct {
	Verdict  certificate.Verdict         `json:"verdict"`
	Suite    string                      `json:"suite"`
	Harness  string                      `json:"harness"`
	Recipe   string                      `json:"recipe,omitempty"`
	Finished string                      `json:"finished"`
	Count    map[certificate.Verdict]int `json:"count"`
	Results  []certificate.Result        `json:"results"`
}

// Signature says what is known of who vouches for a document.
type Signature string

const (
	Unsigned   Signature = "unsigned"
	Unchecked  Signature = "signed, not checked" // no keys were given
	Verified   Signature = "verified"
	Unverified Signature = "signed by another key"
)

// An AttachedEntry is one referrer.
type AttachedEntry struct {
	Digest    string    `json:"digest"`
	Type      string    `json:"type"`                // artifact type
	Predicate string    `json:"predicate,omitempty"` // predicate type of a statement
	Signature Signature `json:"signature"`
	KeyIDs    []string  `json:"keyIDs,omitempty"`
}

// A VerifyError says that an image, or what is attached to it, does not hold
// together. The report that comes with it is complete.
type VerifyError struct {
	Reference string
	Problems  []string
}

func (e *VerifyError) Error() string {
	return fmt.Sprintf("%s does not verify: %s", e.Reference, strings.Join(e.Problems, "; "))
}

// Inspect reads an image and all that is attached to it, from a registry
// ("ghcr.io/owner/assay:tag") or a layout ("oci:DIR", "oci:DIR:TARGET",
// "oci:DIR@sha256:…"), and verifies: that all of it has the digest it is called
// by, that each statement is about the manifest that it is attached to, and
// that each certificate is a pass. With keys, every attached document must be
// signed by one of them, and every image must have a certificate: a signature
// that somebody took away must not go unnoticed. The error is a *VerifyError
// when the report could be made but has problems.
func Inspect(ctx context.Context, ref string, keys []crypto.PublicKey, opts Options) (*Report, error) {
	src, err := openSource(ref, opts)
	if err != nil {
		return nil, err
	}
	root, err := src.resolve(ctx)
	if err != nil {
		return nil, err
	}
	in := &inspector{src: src, keys: keys, report: &Report{SchemaVersion: ReportVersion, Reference: ref, Digest: root.Digest.String()}}
	if err := in.root(ctx, root); err != nil {
		return nil, err
	}
	if len(in.report.Problems) > 0 {
		return in.report, &VerifyError{ref, in.report.Problems}
	}
	return in.report, nil
}

type inspector struct {
	src    source
	keys   []crypto.PublicKey
	report *Report
}

func (in *inspector) problem(format string, args ...any) {
	in.report.Problems = append(in.report.Problems, fmt.Sprintf(format, args...))
}

func (in *inspector) root(ctx context.Context, d v1.Descriptor) error {
	if !d.MediaType.IsIndex() {
		return in.image(ctx, d)
	}
	raw, err := in.src.manifest(ctx, d.Digest)
	if err != nil {
		return err
	}
	var idx v1.IndexManifest
	if err := json.Unmarshal(raw, &idx); err != nil {
		return fmt.Errorf("index %s: %w", d.Digest, err)
	}
	var found findings
	if err := in.attached(ctx, d.Digest, "the index", &found); err != nil {
		return err
	}
	in.report.Attached = found.entries
	for _, m := range idx.Manifests {
		if !isImage(m) {
			continue
		}
		if err := in.image(ctx, m); err != nil {
			return err
		}
	}
	return nil
}

// isImage tells images from BuildKit's attestation manifests, which are listed
// beside them in indexes that assay did not make.
func isImage(d v1.Descriptor) bool {
	return d.MediaType.IsImage() && (d.Platform == nil || d.Platform.OS != "unknown")
}

func (in *inspector) image(ctx context.Context, d v1.Descriptor) error {
	raw, err := in.src.manifest(ctx, d.Digest)
	if err != nil {
		return err
	}
	var m v1.Manifest
	if err := json.Unmarshal(raw, &m); err != nil {
		return fmt.Errorf("manifest %s: %w", d.Digest, err)
	}
	platform, err := in.platform(ctx, m.Config.Digest)
	if err != nil {
		return err
	}
	if d.Platform != nil && d.Platform.String() != platform {
		in.problem("%s: the index says %s, the image's configuration %s", d.Digest, d.Platform, platform)
	}
	r := ImageReport{Platform: platform, Digest: d.Digest.String()}
	for _, l := range m.Layers {
		r.Bytes += l.Size
	}
	found := findings{image: &r}
	if err := in.attached(ctx, d.Digest, platform, &found); err != nil {
		return err
	}
	r.Attached = found.entries
	if r.Certificate == nil && len(in.keys) > 0 {
		in.problem("%s: the image has no certificate", platform)
	}
	in.report.Images = append(in.report.Images, r)
	return nil
}

func (in *inspector) platform(ctx context.Context, config v1.Hash) (string, error) {
	raw, err := in.src.blob(ctx, config)
	if err != nil {
		return "", err
	}
	var cfg v1.ConfigFile
	if err := json.Unmarshal(raw, &cfg); err != nil {
		return "", fmt.Errorf("configuration %s: %w", config, err)
	}
	return cfg.Platform().String(), nil
}

// findings are what the referrers of one manifest say. image is nil for an
// index.
type findings struct {
	image   *ImageReport
	entries []AttachedEntry
}

// attached reads all referrers of subject; where is how problems call it.
func (in *inspector) attached(ctx context.Context, subject v1.Hash, where string, f *findings) error {
	refs, err := in.src.referrers(ctx, subject)
	if err != nil {
		return err
	}
	for _, d := range refs {
		if err := in.referrer(ctx, subject, d, where, f); err != nil {
			return err
		}
	}
	slices.SortFunc(f.entries, func(a, b AttachedEntry) int {
		return cmp.Or(strings.Compare(a.Predicate, b.Predicate), strings.Compare(a.Digest, b.Digest))
	})
	return nil
}

func (in *inspector) referrer(ctx context.Context, subject v1.Hash, d v1.Descriptor, where string, f *findings) error {
	raw, err := in.src.manifest(ctx, d.Digest)
	if err != nil {
		return err
	}
	var m v1.Manifest
	if err := json.Unmarshal(raw, &m); err != nil {
		return fmt.Errorf("referrer %s: %w", d.Digest, err)
	}
	if m.Subject == nil || m.Subject.Digest != subject {
		in.problem("%s: %s is listed as attached, but is about another manifest", where, d.Digest)
		return nil
	}
	e := AttachedEntry{Digest: d.Digest.String(), Type: cmp.Or(m.ArtifactType, string(m.Config.MediaType)), Signature: Unsigned}
	if e.Type == TypeStatement || e.Type == TypeEnvelope {
		if len(m.Layers) != 1 {
			in.problem("%s: %s has %d layers instead of its one document", where, d.Digest, len(m.Layers))
			return nil
		}
		doc, err := in.src.blob(ctx, m.Layers[0].Digest)
		if err != nil {
			return err
		}
		in.document(doc, subject, &e, where, f)
	}
	f.entries = append(f.entries, e)
	if len(in.keys) > 0 && e.Signature != Verified {
		in.problem("%s: %s %s: %s", where, kind(e), e.Digest, e.Signature)
	}
	return nil
}

// kind is what a person calls a referrer.
func kind(e AttachedEntry) string {
	switch e.Predicate {
	case certificate.PredicateType:
		return "certificate"
	case sbom.PredicateType:
		return "SBOM"
	case provenance.PredicateType:
		return "provenance"
	}
	return cmp.Or(e.Predicate, e.Type)
}
