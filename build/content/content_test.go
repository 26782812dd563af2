package content

import (
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/validate"
)

func open(t *testing.T, dir string) *Store {
	t.Helper()
	s, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func image(t *testing.T) v1.Image {
	t.Helper()
	img, err := random.Image(512, 2)
	if err != nil {
		t.Fatal(err)
	}
	return img
}

func digest(t *testing.T, img v1.Image) v1.Hash {
	t.Helper()
	h, err := img.Digest()
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// want fails unless the store holds the image, whole, under the key.
func want(t *testing.T, s *Store, key string, img v1.Image) {
	t.Helper()
	got, ok, err := s.Get(key)
	if err != nil || !ok {
		t.Errorf("Get(%q) = %v, %v; want an image", key, ok, err)
		return
	}
	if digest(t, got) != digest(t, img) {
		t.Errorf("Get(%q) = %v; want %v", key, digest(t, got), digest(t, img))
	}
	if err := validate.Image(got); err != nil {
		t.Errorf("Get(%q): %v", key, err)
	}
}

func TestPutGetReplace(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "deep", "content")
	s := open(t, dir)
	if s.Dir() != dir {
		t.Errorf("Dir() = %q; want %q", s.Dir(), dir)
	}
	const key = "base-bookworm-minbase@sha256:12/amd64@1700000000"
	if _, ok, err := s.Get(key); ok || err != nil {
		t.Errorf("Get from an empty store = %v, %v; want neither", ok, err)
	}
	a, b, other := image(t), image(t), image(t)
	for _, put := range []struct {
		key string
		img v1.Image
	}{{key, a}, {"other", other}, {key, b}} {
		if err := s.Put(put.key, put.img); err != nil {
			t.Fatal(err)
		}
		want(t, s, put.key, put.img)
	}
	want(t, s, "other", other)
	// A key is a name, not a prefix.
	if _, ok, err := s.Get(key + "1"); ok || err != nil {
		t.Errorf("Get of a longer key = %v, %v; want neither", ok, err)
	}
	idx, err := s.path.ImageIndex()
	if err != nil {
		t.Fatal(err)
	}
	m, err := idx.IndexManifest()
	if err != nil || len(m.Manifests) != 2 {
		t.Errorf("the index has %d entries (%v); want one a key", len(m.Manifests), err)
	}
	want(t, open(t, dir), key, b)
}

// TestSameImage: two keys may have one image.
func TestSameImage(t *testing.T) {
	s := open(t, t.TempDir())
	img := image(t)
	for _, key := range []string{"a", "b", "a"} {
		if err := s.Put(key, img); err != nil {
			t.Fatal(err)
		}
	}
	want(t, s, "a", img)
	want(t, s, "b", img)
}

// TestConcurrent: several stores on one directory, as several processes have
// them, each with several goroutines that write and read.
func TestConcurrent(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "content")
	const stores, images = 3, 4
	imgs := make([][]v1.Image, stores)
	for i := range imgs {
		for range images {
			imgs[i] = append(imgs[i], image(t))
		}
	}
	var wg sync.WaitGroup
	for i := range stores {
		wg.Go(func() {
			s, err := Open(dir) // nobody has made the directory before
			if err != nil {
				t.Error(err)
				return
			}
			for j, img := range imgs[i] {
				wg.Go(func() {
					key := fmt.Sprintf("%d/%d", i, j)
					if err := s.Put(key, img); err != nil {
						t.Errorf("Put(%s): %v", key, err)
					}
					want(t, s, key, img)
				})
			}
		})
	}
	wg.Wait()
	s := open(t, dir)
	for i := range stores {
		for j, img := range imgs[i] {
			want(t, s, fmt.Sprintf("%d/%d", i, j), img)
		}
	}
}

// TestReadWhileWriting: whoever reads never sees a half-written index, nor
// one without what was put before.
func TestReadWhileWriting(t *testing.T) {
	dir := t.TempDir()
	writer, reader := open(t, dir), open(t, dir)
	img := image(t)
	if err := writer.Put("there", img); err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for i := range 60 {
			if err := writer.Put(fmt.Sprint("more ", i), img); err != nil {
				t.Error(err)
			}
		}
	}()
	for n := 0; ; n++ {
		if _, ok, err := reader.Get("there"); !ok || err != nil {
			t.Fatalf("Get number %d = %v, %v; want an image", n, ok, err)
		}
		select {
		case <-done:
			return
		default:
		}
	}
}

// TestOpenWhileWriting: opening a store does not empty it.
func TestOpenWhileWriting(t *testing.T) {
	img := image(t)
	for range 8 {
		dir := filepath.Join(t.TempDir(), "content")
		var wg sync.WaitGroup
		for i := range 4 {
			wg.Go(func() {
				s, err := Open(dir)
				if err != nil {
					t.Error(err)
					return
				}
				if err := s.Put(fmt.Sprint(i), img); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		s := open(t, dir)
		for i := range 4 {
			if _, ok, err := s.Get(fmt.Sprint(i)); !ok || err != nil {
				t.Fatalf("Get(%d) = %v, %v; want an image", i, ok, err)
			}
		}
	}
}

func TestOpenErrors(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if s, err := Open(file); err == nil {
		t.Errorf("Open of a file = %v; want an error", s.Dir())
	}
	dir := t.TempDir()
	for name, text := range map[string]string{"oci-layout": `{"imageLayoutVersion":"1.0.0"}`, "index.json": `{"schemaVersion"`} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if s, err := Open(dir); err == nil {
		if _, _, err := s.Get("x"); err == nil {
			t.Error("a damaged index.json is taken for an empty store")
		}
	}
}
