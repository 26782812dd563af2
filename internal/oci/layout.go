package oci

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/assay-hpc/assay/internal/attest"
	"github.com/assay-hpc/assay/internal/infile"
)

// AnnotationRefName is the annotation with the name of an entry in a layout's index.json.
const AnnotationRefName = "org.opencontainers.image.ref.name"

const (
	indexFile  = "index.json"
	layoutFile = "oci-layout"
	lockFile   = "index.lock" // BuildKit removes its index.json.lock while other processes wait for it, so this is a different file
)

// A Layout is an OCI image layout that many targets share. Its methods may be
// used from several goroutines and processes at once.
type Layout struct {
	dir  string
	blob layout.Path
}

// Create opens the layout in dir, and creates it first if there is none.
func Create(dir string) (*Layout, error) {
	if err := os.MkdirAll(filepath.Join(dir, "blobs", "sha256"), 0o755); err != nil {
		return nil, fmt.Errorf("making layout: %w", err)
	}
	l := &Layout{dir: dir, blob: layout.Path(dir)}
	return l, l.locked(func() error {
		if err := l.writeMissing(layoutFile, []byte(`{"imageLayoutVersion":"1.0.0"}`)); err != nil {
			return err
		}
		return l.writeMissing(indexFile, marshal(newIndex()))
	})
}

// Open opens an existing layout.
func Open(dir string) (*Layout, error) {
	l := &Layout{dir: dir, blob: layout.Path(dir)}
	if _, err := l.index(); err != nil {
		return nil, err
	}
	return l, l.version()
}

// Dir returns the layout's directory.
func (l *Layout) Dir() string { return l.dir }

// version checks the layout's version, if it states one.
func (l *Layout) version() error {
	path := filepath.Join(l.dir, layoutFile)
	b, err := infile.Read(path, maxBlob)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("reading layout: %w", err)
	}
	var v struct {
		Version string `json:"imageLayoutVersion"`
	}
	if err = attest.DecodeUnsigned(b, maxBlob, &v); err == nil && v.Version != "1.0.0" {
		err = fmt.Errorf("imageLayoutVersion is %q; this program reads 1.0.0", v.Version)
	}
	return formatError(path, err)
}

func newIndex() *v1.IndexManifest {
	return &v1.IndexManifest{SchemaVersion: 2, MediaType: types.OCIImageIndex, Manifests: []v1.Descriptor{}}
}

// index reads index.json. It needs no lock: writers replace the file atomically.
func (l *Layout) index() (*v1.IndexManifest, error) {
	path := filepath.Join(l.dir, indexFile)
	b, err := infile.Read(path, maxBlob)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%s is not an OCI layout: it has no %s: %w", l.dir, indexFile, err)
	}
	if err != nil {
		return nil, fmt.Errorf("reading layout: %w", err)
	}
	return ParseIndex(path, b, types.OCIImageIndex)
}

// update changes index.json under the lock. The result is sorted, so that it does not depend on the
// order in which targets finish.
func (l *Layout) update(change func(*v1.IndexManifest) error) error {
	return l.locked(func() error {
		idx, err := l.index()
		if err != nil {
			return err
		}
		if err := change(idx); err != nil {
			return err
		}
		slices.SortFunc(idx.Manifests, func(a, b v1.Descriptor) int { return strings.Compare(sortKey(a), sortKey(b)) })
		return replaceFile(filepath.Join(l.dir, indexFile), marshal(idx))
	})
}

// sortKey puts named entries first.
func sortKey(d v1.Descriptor) string {
	if n := refName(d); n != "" {
		return "0" + n
	}
	return "1" + d.Digest.Hex
}

func refName(d v1.Descriptor) string { return d.Annotations[AnnotationRefName] }

// namePattern is the grammar that the image specification defines for
// org.opencontainers.image.ref.name.
var namePattern = regexp.MustCompile(`^[A-Za-z0-9]+((--|[-._:@+])[A-Za-z0-9]+)*(/[A-Za-z0-9]+((--|[-._:@+])[A-Za-z0-9]+)*)*$`)

// Targets returns the names of the targets in the layout, sorted.
func (l *Layout) Targets() ([]string, error) {
	idx, err := l.index()
	if err != nil {
		return nil, err
	}
	var names []string
	for _, d := range idx.Manifests {
		if n := refName(d); n != "" && d.MediaType.IsIndex() {
			names = append(names, n)
		}
	}
	slices.Sort(names)
	return names, nil
}

// Manifests returns all entries of index.json: targets, their images, and attachments.
func (l *Layout) Manifests() ([]v1.Descriptor, error) {
	idx, err := l.index()
	if err != nil {
		return nil, err
	}
	return idx.Manifests, nil
}

// Find returns the descriptor of a target, of "TARGET/linux/arm64", or of any
// stored manifest by its digest. An empty ref is the layout's only target.
func (l *Layout) Find(ref string) (v1.Descriptor, error) {
	if strings.HasPrefix(ref, "sha256:") {
		h, err := v1.NewHash(ref)
		if err != nil {
			return v1.Descriptor{}, fmt.Errorf("digest %q: %w", ref, err)
		}
		return l.Describe(h)
	}
	idx, err := l.index()
	if err != nil {
		return v1.Descriptor{}, err
	}
	names, err := l.Targets()
	if err != nil {
		return v1.Descriptor{}, err
	}
	if main := withoutCertifiers(names); ref == "" && len(main) == 1 {
		ref = main[0]
	}
	if d, ok, err := called(idx, ref); err != nil || ok {
		return d, err
	}
	return v1.Descriptor{}, &NotFoundError{Dir: l.dir, Ref: ref, Names: names}
}

// called returns the entry with a name. If several have it, some readers take the first, others the
// last.
func called(idx *v1.IndexManifest, name string) (found v1.Descriptor, ok bool, err error) {
	for _, d := range idx.Manifests {
		switch {
		case name == "" || refName(d) != name:
		case ok && d.Digest != found.Digest:
			return found, false, &FormatError{indexFile, fmt.Errorf("%s and %s are both called %.200q: name one of them by its digest", found.Digest, d.Digest, name)}
		default:
			found, ok = d, true
		}
	}
	return found, ok, nil
}

// withoutCertifiers removes each "NAME-certify" for which there is a NAME: it is the same image
// with another entry point.
func withoutCertifiers(names []string) []string {
	return slices.DeleteFunc(slices.Clone(names), func(n string) bool {
		base, ok := strings.CutSuffix(n, "-certify")
		return ok && slices.Contains(names, base)
	})
}

// A NotFoundError says that a layout has no entry with that name.
type NotFoundError struct {
	Dir, Ref string
	Names    []string // existing names
}

func (e *NotFoundError) Error() string {
	has := "it holds no target"
	if len(e.Names) > 0 {
		has = "it holds " + strings.Join(e.Names, ", ")
	}
	if e.Ref == "" {
		return fmt.Sprintf("%s: which target? %s", e.Dir, has)
	}
	return fmt.Sprintf("%s: no target %q; %s", e.Dir, e.Ref, has)
}

// Describe creates a descriptor for a manifest from the blob itself, whether or not index.json
// lists it.
func (l *Layout) Describe(h v1.Hash) (v1.Descriptor, error) {
	raw, err := l.ReadBlob(h)
	if err != nil {
		return v1.Descriptor{}, err
	}
	var m struct {
		MediaType types.MediaType `json:"mediaType"`
		Manifests []any           `json:"manifests"`
	}
	if err := attest.DecodeUnsigned(raw, maxBlob, &m); err != nil {
		return v1.Descriptor{}, &FormatError{h.String() + " is not a manifest", err}
	}
	if m.MediaType == "" { // optional in OCI 1.0
		m.MediaType = types.OCIManifestSchema1
		if m.Manifests != nil {
			m.MediaType = types.OCIImageIndex
		}
	}
	return v1.Descriptor{MediaType: m.MediaType, Digest: h, Size: int64(len(raw))}, nil
}

// marshal encodes plain data, which cannot fail.
func marshal(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic("oci: " + err.Error())
	}
	return b
}

// rename points a name to d, and removes the name's previous entry.
func rename(idx *v1.IndexManifest, name string, d v1.Descriptor) {
	idx.Manifests = slices.DeleteFunc(idx.Manifests, func(e v1.Descriptor) bool { return refName(e) == name })
	idx.Manifests = append(idx.Manifests, named(d, name))
}
