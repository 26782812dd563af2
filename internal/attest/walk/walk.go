// Package walk checks images against an [attest.Policy]: it reads an image, in a layout or a
// registry, with all its platforms and all its referrers.
package walk

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/assay-hpc/assay/internal/attest"
	"github.com/assay-hpc/assay/internal/oci"
)

// An Error lists what is inconsistent or missing. The evidence found is returned with it.
type Error struct {
	Reference string
	Problems  []string
}

func (e *Error) Error() string {
	return fmt.Sprintf("%s does not verify: %s", e.Reference, strings.Join(e.Problems, "; "))
}

// Evidence is what was found for an image.
type Evidence struct {
	Reference string
	Root      v1.Descriptor // an index, or an image
	Target    string        // common to all documents; "" if none names one
	Images    []Image
	Attached  []attest.Attachment // to indexes
	Problems  []string
}

// An Image is one platform's manifest.
type Image struct {
	Digest   string
	Platform string // in its configuration
	Bytes    int64  // of its layers, compressed
	Config   *v1.ConfigFile
	Attached []attest.Attachment
}

// Verify reads an image with all its platforms and all documents attached to them, and checks it
// against the policy. It walks indexes completely. It fails closed: if anything is wrong or
// missing, the error is an *Error, and the evidence is returned too; if something could not be
// read, it is another error.
func Verify(ctx context.Context, p attest.Policy, src oci.Source) (*Evidence, error) {
	root, err := src.Resolve(ctx)
	if err != nil {
		return nil, err
	}
	w := &walk{policy: &p, src: src, seen: map[v1.Hash]bool{}, ev: &Evidence{Reference: src.String(), Root: root}}
	w.left.documents, w.left.bytes = maxDocuments, maxBytes
	if p.Digest != "" && root.Digest.String() != p.Digest {
		w.problem("it is %s, not %s", root.Digest, p.Digest)
	}
	if err := w.manifest(ctx, root, 0); err != nil {
		return nil, err
	}
	w.complete()
	if len(w.ev.Problems) > 0 {
		return w.ev, &Error{w.ev.Reference, w.ev.Problems}
	}
	return w.ev, nil
}

// Limits of the walk, beside those of package oci. All certificates of a cluster's nodes may be
// attached to one image.
const (
	enoughDocuments = 1000      // of one manifest; beyond them no more is read than is required
	maxBytes        = 512 << 20 // of documents, together
)

var maxDocuments = 10_000 // of one image with all its platforms; tests have less

type walk struct {
	policy  *attest.Policy
	left    struct{ documents, bytes int } // to read
	src     oci.Source
	seen    map[v1.Hash]bool
	ev      *Evidence
	targets []string // claimed by documents
	unread  int      // referrers of the last manifest
}

func (w *walk) problem(format string, args ...any) {
	w.ev.Problems = append(w.ev.Problems, fmt.Sprintf(format, args...))
}

func (w *walk) manifest(ctx context.Context, d v1.Descriptor, depth int) error {
	if w.seen[d.Digest] {
		w.problem("%s is listed twice", d.Digest)
		return nil
	}
	w.seen[d.Digest] = true
	switch {
	case len(w.seen) > oci.MaxManifests:
		return fmt.Errorf("%s: more than %d manifests", w.ev.Reference, oci.MaxManifests)
	case d.MediaType.IsIndex() && depth >= oci.MaxNesting:
		return fmt.Errorf("%s: indexes are nested deeper than %d levels", w.ev.Reference, oci.MaxNesting)
	case d.MediaType.IsIndex():
		return w.index(ctx, d, depth)
	case d.MediaType.IsImage():
		return w.image(ctx, d)
	}
	w.problem("%s is a %q, neither an image nor an index", d.Digest, d.MediaType)
	return nil
}

// read returns a decoded manifest, and compares its size with the descriptor's.
func (w *walk) read(ctx context.Context, d v1.Descriptor, v any) error {
	raw, err := w.src.Manifest(ctx, d.Digest)
	if err != nil {
		return err
	}
	if d.Size != int64(len(raw)) {
		w.problem("%s has %d bytes, its descriptor says %d", d.Digest, len(raw), d.Size)
	}
	if err := attest.Decode(raw, attest.MaxSize, v); err != nil {
		return fmt.Errorf("manifest %s: %w", d.Digest, err)
	}
	return nil
}

func (w *walk) index(ctx context.Context, d v1.Descriptor, depth int) error {
	var idx v1.IndexManifest
	if err := w.read(ctx, d, &idx); err != nil {
		return err
	}
	if idx.MediaType != "" && idx.MediaType != d.MediaType {
		w.problem("%s calls itself a %q, its descriptor says %q", d.Digest, idx.MediaType, d.MediaType)
	}
	found, _, err := w.attached(ctx, d.Digest, "", "the index")
	if err != nil {
		return err
	}
	w.ev.Attached = append(w.ev.Attached, found...)
	for _, m := range idx.Manifests {
		if attestationManifest(m) {
			continue
		}
		if err := w.manifest(ctx, m, depth+1); err != nil {
			return err
		}
	}
	return nil
}

// attestationManifest reports whether an index's entry is an attachment in BuildKit's form. No
// client runs it, since its platform is unknown/unknown.
func attestationManifest(d v1.Descriptor) bool {
	return d.MediaType.IsImage() && d.Platform != nil && d.Platform.OS == "unknown" && d.Platform.Architecture == "unknown" &&
		d.Annotations["vnd.docker.reference.type"] == "attestation-manifest"
}

func (w *walk) image(ctx context.Context, d v1.Descriptor) error {
	var m v1.Manifest
	if err := w.read(ctx, d, &m); err != nil {
		return err
	}
	if m.MediaType != "" && m.MediaType != d.MediaType {
		w.problem("%s calls itself a %q, its descriptor says %q", d.Digest, m.MediaType, d.MediaType)
	}
	if m.Subject != nil || !m.Config.MediaType.IsConfig() {
		w.problem("%s is not an image: its configuration is a %q", d.Digest, m.Config.MediaType)
		return nil
	}
	raw, err := w.src.Blob(ctx, m.Config.Digest)
	if err != nil {
		return err
	}
	img := Image{Digest: d.Digest.String(), Config: new(v1.ConfigFile)}
	if err := json.Unmarshal(raw, img.Config); err != nil {
		return fmt.Errorf("configuration %s: %w", m.Config.Digest, err)
	}
	platform := img.Config.Platform()
	if platform == nil { // "{}", or null
		w.problem("%s: the image's configuration %s names no platform", d.Digest, m.Config.Digest)
		platform = &v1.Platform{}
	}
	img.Platform = platform.String()
	if d.Platform != nil && d.Platform.String() != img.Platform {
		w.problem("%s: the index says %s, the image's configuration %s", d.Digest, d.Platform, img.Platform)
	}
	for _, l := range m.Layers {
		img.Bytes += l.Size
	}
	var have map[string]bool
	if img.Attached, have, err = w.attached(ctx, d.Digest, img.Platform, img.Platform); err != nil {
		return err
	}
	for _, name := range w.policy.Required {
		if !have[name] {
			w.problem("%s: %s", img.Platform, w.missing(name, img.Attached))
		}
	}
	w.ev.Images = append(w.ev.Images, img)
	return nil
}

// missing returns the reason why an image lacks a required document.
func (w *walk) missing(name string, attached []attest.Attachment) string {
	s := "the image has no " + name
	if i := slices.IndexFunc(attached, func(a attest.Attachment) bool { return a.Kind == name }); i >= 0 {
		s += " that counts: " + attached[i].Digest + " is " + string(attached[i].Signature)
	} else if len(w.policy.Keys) > 0 {
		s += " that one of the given keys signed"
	}
	if w.unread > 0 {
		s += fmt.Sprintf(" (%d more documents are attached; at most %d of %d MiB are read)", w.unread, maxDocuments, maxBytes>>20)
	}
	return s
}

// complete checks the evidence as a whole against the policy.
func (w *walk) complete() {
	if len(w.ev.Images) == 0 {
		w.problem("it holds no image")
	}
	var platforms []string
	for _, img := range w.ev.Images {
		if slices.Contains(platforms, img.Platform) {
			w.problem("two images are for %s", img.Platform)
		}
		platforms = append(platforms, img.Platform)
	}
	if want := w.policy.Platforms; want != nil {
		for _, p := range want {
			if !slices.Contains(platforms, p) {
				w.problem("there is no image for %s", p)
			}
		}
		for _, p := range platforms {
			if !slices.Contains(want, p) {
				w.problem("there is an image for %s, which is not asked for", p)
			}
		}
	}
	slices.Sort(w.targets)
	w.targets = slices.Compact(w.targets)
	switch len(w.targets) {
	case 0:
	case 1:
		w.ev.Target = w.targets[0]
	default:
		w.problem("its documents are about several targets: %s", strings.Join(w.targets, ", "))
	}
}

// attached reads all referrers of a manifest; where names the manifest in problems. It returns the
// referrers in order, and the kinds that count.
func (w *walk) attached(ctx context.Context, subject v1.Hash, platform, where string) ([]attest.Attachment, map[string]bool, error) {
	w.unread = 0
	refs, err := w.src.Referrers(ctx, subject)
	if err != nil {
		return nil, nil, err
	}
	slices.SortStableFunc(refs, func(a, b v1.Descriptor) int { return cmp.Compare(w.rank(a), w.rank(b)) })
	var found []attest.Attachment
	have := map[string]bool{}
	for i, d := range refs {
		if i >= enoughDocuments && w.complies(have) || w.left.documents == 0 || w.left.bytes <= 0 {
			w.unread = len(refs) - i
			break
		}
		w.left.documents--
		a, err := w.referrer(ctx, subject, d, platform, where)
		if err != nil {
			return nil, nil, err
		}
		found = append(found, a)
		if a.Counts {
			have[a.Kind] = true
		}
	}
	slices.SortFunc(found, func(a, b attest.Attachment) int {
		return cmp.Or(strings.Compare(a.Predicate, b.Predicate), strings.Compare(a.Digest, b.Digest))
	})
	return found, have, nil
}

// rank orders referrers, so that those that count are read first if there are too many: statements
// of the kinds that the policy evaluates, statements, what does not say what it is, and the rest.
// What a list says of them decides about nothing else.
func (w *walk) rank(d v1.Descriptor) int {
	predicate := d.Annotations[oci.AnnotationPredicate]
	switch {
	case d.ArtifactType == "":
		return 2
	case d.ArtifactType != attest.TypeStatement && d.ArtifactType != attest.TypeEnvelope:
		return 3
	case slices.ContainsFunc(w.policy.Kinds, func(k attest.Kind) bool { return k.Type == predicate }):
		return 0
	}
	return 1
}

// complies reports whether everything that the policy requires was found.
func (w *walk) complies(have map[string]bool) bool {
	return !slices.ContainsFunc(w.policy.Required, func(name string) bool { return !have[name] })
}

// referrer reads one referrer. Attachments of other programs are listed, but not evaluated.
func (w *walk) referrer(ctx context.Context, subject v1.Hash, d v1.Descriptor, platform, where string) (attest.Attachment, error) {
	a := attest.Attachment{Digest: d.Digest.String(), Type: d.ArtifactType, Signature: attest.Unsigned}
	raw, err := w.src.Manifest(ctx, d.Digest)
	if err != nil {
		return a, err
	}
	var m v1.Manifest
	if attest.Decode(raw, attest.MaxSize, &m) != nil {
		return a, nil
	}
	a.Type = cmp.Or(m.ArtifactType, string(m.Config.MediaType))
	if a.Type != attest.TypeStatement && a.Type != attest.TypeEnvelope {
		return a, nil
	}
	if m.Subject == nil || m.Subject.Digest != subject {
		w.problem("%s: %s is listed as attached, but is about another manifest", where, d.Digest)
		return a, nil
	}
	if len(m.Layers) != 1 {
		return a, nil // other programs store several envelopes in one manifest
	}
	doc, err := w.src.Blob(ctx, m.Layers[0].Digest)
	if err != nil {
		return a, err
	}
	w.left.bytes -= len(doc)
	got, err := w.policy.Verify(doc, subject.String(), platform)
	got.Digest, got.Type = a.Digest, a.Type
	switch {
	case err == nil:
		got.Counts = true
		if t := got.Claims.Target; t != "" {
			w.targets = append(w.targets, t)
		}
	case errors.Is(err, attest.ErrForeign), errors.Is(err, attest.ErrSignature), errors.Is(err, attest.ErrStatement) && got.Signature != attest.Verified:
		// From another program, or by an unknown signer. It does not count, but does no harm.
	default:
		w.problem("%s: the %s %s: %v", where, cmp.Or(got.Kind, "document"), a.Digest, err)
	}
	return got, nil
}
