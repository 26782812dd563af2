// Package content is assay's own store of image content that has no registry:
// bases made with debootstrap and the harness's source. It is an OCI layout in
// assay's state directory; BuildKit reads it through the session.
package content

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/match"
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
	p, err := layout.FromPath(dir)
	if errors.Is(err, fs.ErrNotExist) {
		p, err = layout.Write(dir, empty.Index)
	}
	if err != nil {
		return nil, fmt.Errorf("content store %s: %w", dir, err)
	}
	return &Store{path: p}, nil
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
	return s.path.ReplaceImage(img, match.Name(key), layout.WithAnnotations(map[string]string{ocispec.AnnotationRefName: key}))
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
