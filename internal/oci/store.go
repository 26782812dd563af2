package oci

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/assay-hpc/assay/internal/infile"
)

// maxBlob limits what is read into memory: manifests and statements. The largest real one is the
// SBOM of a CUDA image, a few megabytes.
const maxBlob = 64 << 20

// A BlobError says that a blob is missing or does not match its descriptor.
type BlobError struct {
	Path       string  // of the file, in a layout
	Repository string  // or the registry's repository
	Digest     v1.Hash // expected digest
	Got        string  // its digest, or another problem; "" if missing
}

// Permanent marks an error that a retry does not fix.
func (e *BlobError) Permanent() {}

func (e *BlobError) Error() string {
	switch {
	case e.Repository != "" && e.Got == "":
		return fmt.Sprintf("blob %s is missing from the repository %s; push the image again", e.Digest, e.Repository)
	case e.Repository != "":
		return fmt.Sprintf("blob %s is damaged in the repository %s: it has %s", e.Digest, e.Repository, e.Got)
	case e.Got == "":
		return fmt.Sprintf("blob %s is missing from the layout: no file %s; build the target again", e.Digest, e.Path)
	}
	return fmt.Sprintf("blob %s is damaged: %s has %s; remove the file and build the target again", e.Digest, e.Path, e.Got)
}

func (l *Layout) blobPath(h v1.Hash) string {
	return filepath.Join(l.dir, "blobs", h.Algorithm, h.Hex)
}

// WriteBlob stores r's content and returns its digest and size.
func (l *Layout) WriteBlob(r io.Reader) (v1.Hash, int64, error) {
	dir := filepath.Join(l.dir, "blobs", "sha256")
	sum := sha256.New()
	var size int64
	var h v1.Hash
	err := throughTemp(dir, func(f *os.File) (string, error) {
		n, err := io.Copy(io.MultiWriter(f, sum), r)
		size, h = n, v1.Hash{Algorithm: "sha256", Hex: hex.EncodeToString(sum.Sum(nil))}
		return l.blobPath(h), err
	})
	if err != nil {
		return v1.Hash{}, 0, fmt.Errorf("writing blob: %w", err)
	}
	return h, size, nil
}

// ReadBlob returns a small blob as a whole, verified against its digest.
func (l *Layout) ReadBlob(h v1.Hash) ([]byte, error) {
	rc, err := l.openBlob(h, -1)
	if err != nil {
		return nil, err
	}
	defer rc.Close()
	if st, err := os.Stat(l.blobPath(h)); err == nil && st.Size() > maxBlob {
		return nil, fmt.Errorf("blob %s has %d bytes, more than %d: not a manifest or a statement", h, st.Size(), maxBlob)
	}
	b, err := io.ReadAll(io.LimitReader(rc, maxBlob+1))
	if err == nil && len(b) > maxBlob {
		err = fmt.Errorf("blob %s is larger than %d bytes: not a manifest or a statement", h, maxBlob)
	}
	return b, err
}

// statBlob checks that the blob exists and, if size is not negative, that it has that size.
func (l *Layout) statBlob(h v1.Hash, size int64) error {
	fi, err := os.Stat(l.blobPath(h))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return &BlobError{Path: l.blobPath(h), Digest: h}
	case err != nil:
		return fmt.Errorf("reading layout: %w", err)
	case !fi.Mode().IsRegular():
		return &BlobError{Path: l.blobPath(h), Digest: h, Got: "a " + infile.Kind(fi.Mode()) + " in its place"}
	case size >= 0 && fi.Size() != size:
		return &BlobError{Path: l.blobPath(h), Digest: h, Got: fmt.Sprintf("%d bytes, not %d", fi.Size(), size)}
	}
	return nil
}

// openBlob opens a blob for one sequential read. The reader checks the digest at the end: the last
// Read of a damaged blob returns a BlobError.
func (l *Layout) openBlob(h v1.Hash, size int64) (io.ReadCloser, error) {
	if err := l.statBlob(h, size); err != nil {
		return nil, err
	}
	rc, err := infile.Open(l.blobPath(h))
	if err != nil {
		return nil, fmt.Errorf("reading layout: %w", err)
	}
	return &verifier{ReadCloser: rc, sum: sha256.New(), want: h, path: l.blobPath(h)}, nil
}

type verifier struct {
	io.ReadCloser
	sum  hash.Hash
	want v1.Hash
	path string
}

func (v *verifier) Read(p []byte) (int, error) {
	n, err := v.ReadCloser.Read(p)
	v.sum.Write(p[:n])
	if err == io.EOF {
		if got := hex.EncodeToString(v.sum.Sum(nil)); got != v.want.Hex {
			return n, &BlobError{Path: v.path, Digest: v.want, Got: "digest sha256:" + got}
		}
	}
	return n, err
}

// locked runs f under the layout's lock, which excludes other processes and goroutines.
func (l *Layout) locked(f func() error) error {
	// A link in a layout of somebody else's could lead anywhere, and would be created there.
	lf, err := os.OpenFile(filepath.Join(l.dir, lockFile), os.O_RDWR|os.O_CREATE|syscall.O_NOFOLLOW, 0o644)
	if err != nil {
		return fmt.Errorf("locking layout: %w", err)
	}
	defer lf.Close() // releases the lock
	if err := flock(lf); err != nil {
		return fmt.Errorf("locking %s: %w", lf.Name(), err)
	}
	return f()
}

func flock(f *os.File) error {
	for {
		if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX); err != syscall.EINTR {
			return err
		}
	}
}

func (l *Layout) writeMissing(name string, content []byte) error {
	path := filepath.Join(l.dir, name)
	if _, err := os.Stat(path); err == nil {
		return nil
	}
	return replaceFile(path, content)
}

// replaceFile replaces the content of path atomically: a reader, or a crash, sees all of the old or
// all of the new content.
func replaceFile(path string, content []byte) error {
	return throughTemp(filepath.Dir(path), func(f *os.File) (string, error) {
		_, err := io.Copy(f, bytes.NewReader(content))
		return path, err
	})
}

// throughTemp lets fill write a temporary file in dir, syncs it, and renames it to the path that
// fill returns.
func throughTemp(dir string, fill func(*os.File) (string, error)) (err error) {
	f, err := os.CreateTemp(dir, ".tmp-*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			os.Remove(f.Name())
		}
	}()
	path, err := fill(f)
	err = errors.Join(err, f.Chmod(0o644), f.Sync(), f.Close())
	if err != nil {
		return err
	}
	if err := os.Rename(f.Name(), path); err != nil {
		return err
	}
	return syncDir(dir)
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}
