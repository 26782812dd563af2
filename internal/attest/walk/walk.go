// Package walk checks images against an [attest.Policy]: it reads an image, in a layout or a
// registry, with all its platforms and all its referrers.
package walk

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"golang.org/x/sync/errgroup"

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
	Layers    Layers
	Problems  []string
}

// Layers counts what was looked at of the layers of all images.
type Layers struct {
	Count int   // different ones
	Bytes int64 // of them, compressed
	Read  bool  // all bytes were read; if not, only that they are there in their size
	// Elsewhere counts layers that no registry may distribute: they were not looked at.
	Elsewhere int
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
	w := &walk{policy: &p, src: src, seen: map[v1.Hash]bool{}, layers: map[v1.Hash]v1.Descriptor{}, ev: &Evidence{Reference: src.String()}}
	w.left.documents, w.left.bytes = maxDocuments, maxBytes
	err := w.all(ctx)
	var bad *oci.FormatError
	if errors.As(err, &bad) { // what readers may read differently does not verify
		w.problem("%v", bad)
	} else if err != nil {
		return nil, err
	}
	w.complete()
	if len(w.ev.Problems) > 0 {
		return w.ev, &Error{w.ev.Reference, w.ev.Problems}
	}
	return w.ev, nil
}

// all reads the image, and lists what is wrong with it.
func (w *walk) all(ctx context.Context) error {
	root, err := w.src.Resolve(ctx)
	if err != nil {
		return err
	}
	w.ev.Root = root
	if want := w.policy.Digest; want != "" && root.Digest.String() != want {
		w.problem("it is %s, not %s", root.Digest, want)
	}
	if err := w.manifest(ctx, root, 0); err != nil {
		return err
	}
	return w.checkLayers(ctx)
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
	layers  map[v1.Hash]v1.Descriptor
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

// read returns a manifest, and compares its size with the descriptor's.
func (w *walk) read(ctx context.Context, d v1.Descriptor) ([]byte, error) {
	raw, err := w.src.Manifest(ctx, d.Digest)
	if err == nil && d.Size != int64(len(raw)) {
		w.problem("%s has %d bytes, its descriptor says %d", d.Digest, len(raw), d.Size)
	}
	return raw, err
}

func (w *walk) index(ctx context.Context, d v1.Descriptor, depth int) error {
	raw, err := w.read(ctx, d)
	if err != nil {
		return err
	}
	idx, err := oci.ParseIndex("index "+d.Digest.String(), raw, d.MediaType)
	if err != nil {
		w.problem("%v", err)
		return nil
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
		// Programs that pull an image select its entry by the platform that stands there, in the
		// first index that they read.
		switch {
		case m.MediaType.IsImage() && m.Platform == nil:
			w.problem("%s: the index does not say for which platform it is", m.Digest)
		case m.MediaType.IsIndex() && m.Platform != nil:
			w.problem("%s: the index lists another index as the image for %s", m.Digest, m.Platform)
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
	raw, err := w.read(ctx, d)
	if err != nil {
		return err
	}
	m, err := oci.ParseManifest("manifest "+d.Digest.String(), raw, d.MediaType)
	if err != nil {
		w.problem("%v", err)
		return nil
	}
	if m.Subject != nil || !m.Config.MediaType.IsConfig() {
		w.problem("%s is not an image: its configuration is a %q", d.Digest, m.Config.MediaType)
		return nil
	}
	if raw, err = w.src.Blob(ctx, m.Config.Digest); err != nil {
		return err
	}
	if m.Config.Size != int64(len(raw)) {
		w.problem("the configuration %s has %d bytes, its descriptor says %d", m.Config.Digest, len(raw), m.Config.Size)
	}
	img := Image{Digest: d.Digest.String()}
	if img.Config, err = oci.ParseConfig("configuration "+m.Config.Digest.String(), raw); err != nil {
		w.problem("%v", err)
		return nil
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
		if other, ok := w.layers[l.Digest]; ok && other.Size != l.Size {
			w.problem("the layer %s is listed with %d bytes and with %d", l.Digest, other.Size, l.Size)
		}
		w.layers[l.Digest] = l
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

// lookups is how many layers are looked at at once.
const lookups = 8

// checkLayers looks at each layer, as far as the policy says. A layer that is missing or damaged is
// a problem; one that cannot be read for another reason is an error.
func (w *walk) checkLayers(ctx context.Context) error {
	w.ev.Layers.Read = w.policy.Layers == attest.LayersRead
	var list []v1.Descriptor
	for _, d := range w.layers {
		if !d.MediaType.IsDistributable() {
			w.ev.Layers.Elsewhere++
			continue
		}
		list = append(list, d)
		w.ev.Layers.Count++
		w.ev.Layers.Bytes += d.Size
	}
	slices.SortFunc(list, func(a, b v1.Descriptor) int { return strings.Compare(a.Digest.Hex, b.Digest.Hex) })
	found := make([]error, len(list))
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(lookups)
	for i, d := range list {
		g.Go(func() error {
			err := w.checkLayer(gctx, d)
			var damage *oci.BlobError
			if errors.As(err, &damage) {
				found[i], err = damage, nil
			}
			return err
		})
	}
	err := g.Wait()
	for _, f := range found {
		if f != nil {
			w.problem("a layer: %v", f)
		}
	}
	return err
}

func (w *walk) checkLayer(ctx context.Context, d v1.Descriptor) error {
	if err := w.src.Stat(ctx, d); err != nil || w.policy.Layers == attest.LayersSized {
		return err
	}
	r, err := w.src.Open(ctx, d)
	if err != nil {
		return err
	}
	defer r.Close()
	if w.policy.Layers == attest.LayersRead {
		_, err = io.Copy(io.Discard, r)
		return err
	}
	_, err = io.ReadFull(r, make([]byte, min(1, d.Size)))
	return err
}

// missing returns the reason why an image lacks a required document.
func (w *walk) missing(name string, attached []attest.Attachment) string {
	s := "the image has no " + name
	i := slices.IndexFunc(attached, func(a attest.Attachment) bool { return a.Kind == name })
	switch {
	case i >= 0 && attached[i].Aside != "":
		s += " that counts: " + attached[i].Digest + " does not: " + attached[i].Aside
	case i >= 0:
		s += " that counts: " + attached[i].Digest + " is " + string(attached[i].Signature)
	case len(w.policy.Keys) > 0:
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
	m, err := oci.ParseManifest("the attached manifest "+d.Digest.String(), raw, d.MediaType)
	if err != nil {
		return a, nil // of another program, or of none: it does not count
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
	case errors.Is(err, attest.ErrForeign), errors.Is(err, attest.ErrUse), errors.Is(err, attest.ErrSignature), errors.Is(err, attest.ErrStatement) && got.Signature != attest.Verified:
		// From another program, for another use, or by an unknown signer. It does not count, but
		// does no harm.
	default:
		w.problem("%s: the %s %s: %v", where, cmp.Or(got.Kind, "document"), a.Digest, err)
	}
	return got, nil
}
