package oci

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// TestEndless: no answer of a registry is read without end.
func TestEndless(t *testing.T) {
	page := func(w http.ResponseWriter, next string) {
		w.Header().Set("Link", fmt.Sprintf(`</v2/a/b/tags/list?last=%s>; rel="next"`, next))
		_, _ = io.WriteString(w, `{"name":"a/b","tags":["x"]}`)
	}
	endless := func(w http.ResponseWriter, begin, more string) {
		_, err := io.WriteString(w, begin)
		for more = strings.Repeat(more, 10_000); err == nil; {
			_, err = io.WriteString(w, more)
		}
	}
	tags := func(r *Repository) error { _, err := r.Tags(t.Context()); return err }
	tag := func(r *Repository) error { _, _, err := r.Get(t.Context(), "x"); return err }
	for name, tt := range map[string]struct {
		answer http.HandlerFunc
		read   func(*Repository) error
		want   string
	}{
		"a page that leads to itself": {func(w http.ResponseWriter, _ *http.Request) { page(w, "x") }, tags, "leads back to a page"},
		"pages in a circle": {func(w http.ResponseWriter, r *http.Request) {
			page(w, map[string]string{"": "1", "1": "2", "2": "1"}[r.FormValue("last")])
		}, tags, "leads back to a page"},
		"too many tags": {func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, `{"tags":[`+strings.Repeat(`"",`, maxTags)+`""]}`)
		}, tags, "more than 1000000"},
		"an endless page": {func(w http.ResponseWriter, _ *http.Request) { endless(w, `{"tags":["x"`, ` `) }, tags, "the answer is longer than 67108864 bytes"},
		"an endless manifest": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", string(types.OCIImageIndex))
			endless(w, "{", " ")
		}, tag, "the answer is longer than 67108864 bytes"},
		"a byte now and then": {func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", string(types.OCIImageIndex))
			for r.Context().Err() == nil {
				_, _ = io.WriteString(w, " ")
				w.(http.Flusher).Flush()
				time.Sleep(time.Millisecond)
			}
		}, tag, "did not send it within 500ms"},
	} {
		t.Run(name, func(t *testing.T) {
			srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path != "/v2/" {
					tt.answer(w, r)
				}
			}))
			defer srv.Close()
			repo, err := OpenRepository(strings.TrimPrefix(srv.URL, "http://")+"/a/b", Options{})
			if err != nil {
				t.Fatal(err)
			}
			if strings.Contains(tt.want, "500ms") {
				repo.patience = 500 * time.Millisecond
			}
			if err := tt.read(repo); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%v; want %q", err, tt.want)
			}
		})
	}
}

// TestHugeConfiguration: a configuration is read into memory, whatever size a manifest gives it.
func TestHugeConfiguration(t *testing.T) {
	config := descriptor(types.OCIConfigJSON, []byte("{}"))
	config.Size = maxBlob + 1
	raw := marshal(v1.Manifest{SchemaVersion: 2, MediaType: types.OCIManifestSchema1, Config: config, Layers: []v1.Descriptor{}})
	if _, err := ParseManifest("manifest", raw, types.OCIManifestSchema1); err == nil || !strings.Contains(err.Error(), "its configuration has 67108865 bytes") {
		t.Errorf("%v", err)
	}
}

// TestReferrersOnce: an attachment that stands in a list many times is read once.
func TestReferrersOnce(t *testing.T) {
	l := newTarget(t, "x")
	subject := root(t, l, "x")
	d := attach(t, l, subject.String(), "https://example.com/a", "application/x")
	err := l.update(func(idx *v1.IndexManifest) error {
		idx.Manifests = append(idx.Manifests, slices.Repeat([]v1.Descriptor{d}, 9)...)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if list, err := l.Referrers(subject); err != nil || len(list) != 1 {
		t.Errorf("%d attachments, %v; want 1", len(list), err)
	}
}

// TestFindAmbiguous: of two entries with one name some readers take the first, others the last.
func TestFindAmbiguous(t *testing.T) {
	l := newTarget(t, "x")
	addTarget(t, l, "y", 2)
	other := root(t, l, "y")
	err := l.update(func(idx *v1.IndexManifest) error {
		for _, d := range idx.Manifests {
			if d.Digest == other {
				idx.Manifests = append(idx.Manifests, named(d, "x"))
				break
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, find := range []func() error{
		func() error { _, err := l.Find("x"); return err },
		func() error { _, _, err := l.Get("x"); return err },
	} {
		if err := find(); err == nil || !strings.Contains(err.Error(), `are both called "x"`) {
			t.Errorf("%v", err)
		}
	}
	if _, err := l.Find("y"); err != nil {
		t.Error(err)
	}
}

// TestOpenEnds: whoever reads a layer of a layout can be told to stop.
func TestOpenEnds(t *testing.T) {
	l := newTarget(t, "x")
	h := aLayer(t, l)
	st, err := os.Stat(l.blobPath(h))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	rc, err := l.Source("x").Open(ctx, v1.Descriptor{Digest: h, Size: st.Size()})
	if err != nil {
		t.Fatal(err)
	}
	defer rc.Close()
	cancel()
	if n, err := io.Copy(io.Discard, rc); !errors.Is(err, context.Canceled) {
		t.Errorf("%d bytes, %v", n, err)
	}
}

// TestBlobOfAnotherKind: a directory or a FIFO in the place of a layer is no layer, whatever its size.
func TestBlobOfAnotherKind(t *testing.T) {
	l := newTarget(t, "x")
	h := mustHash(t, "sha256:"+strings.Repeat("1", 64))
	for kind, make := range map[string]func(string) error{
		"directory": func(p string) error { return os.Mkdir(p, 0o755) },
		"FIFO":      func(p string) error { return syscall.Mkfifo(p, 0o600) },
	} {
		if err := make(l.blobPath(h)); err != nil {
			t.Fatal(err)
		}
		st, err := os.Stat(l.blobPath(h))
		if err != nil {
			t.Fatal(err)
		}
		if err := l.Source("x").Stat(t.Context(), v1.Descriptor{Digest: h, Size: st.Size()}); err == nil || !strings.Contains(err.Error(), kind) {
			t.Errorf("%s: %v", kind, err)
		}
		if err := os.Remove(l.blobPath(h)); err != nil {
			t.Fatal(err)
		}
	}
	version := filepath.Join(l.dir, layoutFile)
	if err := os.Remove(version); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mkfifo(version, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(l.dir); err == nil || !strings.Contains(err.Error(), "FIFO") {
		t.Errorf("%s is a FIFO: %v", layoutFile, err)
	}
}
