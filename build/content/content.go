// Package content is assay's own store of image content that has no registry:
// bases made with debootstrap and the harness's source. It is an OCI layout in
// assay's state directory; BuildKit reads it through the session.
package content

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/match"
	"github.com/google/go-containerregistry/pkg/v1/partial"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"golang.org/x/sys/unix"
)

// A Store holds images by key. Its methods may be called from many goroutines
// and processes.
type Store struct {
	path layout.Path
	mu   sync.Mutex
}

// Open opens the store in dir, making it if needed.
func Open(dir string) (*Store, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("content store %s: %w", dir, err)
	}
	s := &Store{path: layout.Path(dir)}
	unlock, err := s.lock() // making it must not empty what another process has just made
	if err != nil {
		return nil, fmt.Errorf("content store %s: %w", dir, err)
	}
	defer unlock()
	if _, err = layout.FromPath(dir); errors.Is(err, fs.ErrNotExist) {
		_, err = layout.Write(dir, empty.Index)
	}
	if err != nil {
		return nil, fmt.Errorf("content store %s: %w", dir, err)
	}
	return s, nil
}

// Dir returns the store's directory.
func (s *Store) Dir() string { return string(s.path) }

// Get returns the image of that key; ok is false if there is none.
func (s *Store) Get(key string) (img v1.Image, ok bool, err error) {
	idx, err := s.path.ImageIndex()
	if err != nil {
		return nil, false, err
	}
	m, err := idx.IndexManifest()
	if err != nil {
		return nil, false, err
	}
	for _, d := range m.Manifests {
		if d.Annotations[ocispec.AnnotationRefName] == key {
			img, err := s.path.Image(d.Digest)
			return img, err == nil, err
		}
	}
	return nil, false, nil
}

// Put stores an image under a key, replacing what was there.
func (s *Store) Put(key string, img v1.Image) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	unlock, err := s.lock()
	if err != nil {
		return err
	}
	defer unlock()
	if err := s.path.WriteImage(img); err != nil {
		return err
	}
	desc, err := partial.Descriptor(img)
	if err != nil {
		return err
	}
	desc.Annotations = map[string]string{ocispec.AnnotationRefName: key}
	idx, err := s.path.ImageIndex()
	if err != nil {
		return err
	}
	m, err := idx.IndexManifest()
	if err != nil {
		return err
	}
	m.Manifests = slices.DeleteFunc(m.Manifests, match.Name(key))
	m.Manifests = append(m.Manifests, *desc)
	return s.writeIndex(m)
}

// writeIndex replaces index.json at once: whoever reads it meanwhile, or after
// a crash, finds it whole.
func (s *Store) writeIndex(m *v1.IndexManifest) error {
	data, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return err
	}
	tmp := filepath.Join(string(s.path), "index.json.tmp") // the lock makes it ours
	if err := os.WriteFile(tmp, data, 0o644); err != nil {
		return err
	}
	return os.Rename(tmp, filepath.Join(string(s.path), "index.json"))
}

func (s *Store) lock() (func(), error) {
	f, err := os.OpenFile(filepath.Join(string(s.path), "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX); err != nil {
		f.Close()
		return nil, err
	}
	return func() { f.Close() }, nil
}
