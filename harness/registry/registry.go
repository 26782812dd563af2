// Package registry stores certificates in an OCI registry: those of images as referrers of their
// image, like those that assay build attaches, and those of machines as separate artifacts with a
// tag each. It reads them back from a repository or from an OCI layout, for a history.
// Credentials are docker's.
//
// A machine's certificate has the tag node-NAME-TIME, where TIME is when it was finished
// (20260301T120123.250Z), so that a list of tags is enough to select from thousands of
// certificates. Its manifest repeats these in annotations. Readers trust neither.
package registry

import (
	"fmt"
	"regexp"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/assay-hpc/assay/internal/certificate"
	"github.com/assay-hpc/assay/internal/oci"
)

// Annotations of a certificate's manifest, in addition to the predicate type.
const (
	AnnotationNode     = "io.github.assay-hpc.node"        // the machine's name
	AnnotationDigest   = "io.github.assay-hpc.node.digest" // the digest of its identity
	AnnotationSuite    = "io.github.assay-hpc.suite"
	AnnotationVerdict  = "io.github.assay-hpc.verdict"
	AnnotationFinished = "io.github.assay-hpc.finished" // RFC 3339
)

// Options are for a registry. The zero value is usable.
type Options = oci.Options

// A Repository stores certificates. It may be used from several goroutines.
type Repository struct {
	repo    *oci.Repository
	subject *v1.Hash // the image that certificates are attached to
}

// Open names a repository, REPO, or an image in it by digest, REPO@sha256:…. It
// does not connect yet.
func Open(where string, opts Options) (*Repository, error) {
	if err := oci.CheckUser(where); err != nil {
		return nil, err
	}
	name, digest, byDigest := strings.Cut(where, "@")
	repo, err := oci.OpenRepository(name, opts)
	if err != nil {
		return nil, fmt.Errorf("%w (an image is REPO@sha256:…)", err)
	}
	r := &Repository{repo: repo}
	if byDigest {
		h, err := v1.NewHash(digest)
		if err != nil {
			return nil, fmt.Errorf("%q is not REPO@sha256:…: %w", where, err)
		}
		r.subject = &h
	}
	return r, nil
}

// tagTime is the format of a time in a tag.
const tagTime = "20060102T150405.000Z"

var (
	notInTag = regexp.MustCompile(`[^A-Za-z0-9_.-]+`)
	nodeTag  = regexp.MustCompile(`^node-(.+)-(\d{8}T\d{6}\.\d{3}Z)(?:-[0-9a-f]{12})?$`)
)

// tagName returns a machine's name as used in tags.
func tagName(node string) string {
	const most = 80 // of 128, leaving space for the rest of a tag
	node = notInTag.ReplaceAllString(node, "_")
	return node[:min(len(node), most)]
}

// Tag returns the tag of a machine's certificate.
func Tag(st *certificate.Statement) string {
	return "node-" + tagName(st.Predicate.Node.Name) + "-" + st.Predicate.Finished.UTC().Format(tagTime)
}

// parseTag parses a tag. The machine's name is that of TagName.
func parseTag(tag string) (node string, finished time.Time, ok bool) {
	m := nodeTag.FindStringSubmatch(tag)
	if m == nil {
		return "", time.Time{}, false
	}
	t, err := time.Parse(tagTime, m[2])
	return m[1], t, err == nil
}

// annotations returns the annotations of a certificate's manifest.
func annotations(st *certificate.Statement) map[string]string {
	p := &st.Predicate
	a := map[string]string{
		AnnotationSuite: p.Suite, AnnotationVerdict: string(p.Verdict), AnnotationFinished: p.Finished.UTC().Format(time.RFC3339Nano),
	}
	if n := p.Node; n != nil {
		a[AnnotationNode], a[AnnotationDigest] = n.Name, certificate.NodeDigest(n.Identity)
	}
	return a
}
