package oci

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// putIndex stores an index in a registry and returns its descriptor.
func (r *testRegistry) putIndex(tag string, list ...v1.Descriptor) v1.Descriptor {
	r.t.Helper()
	raw := marshal(v1.IndexManifest{SchemaVersion: 2, MediaType: types.OCIImageIndex, Manifests: list})
	d := descriptor(types.OCIImageIndex, raw)
	if tag == "" {
		tag = d.Digest.String()
	}
	req := httptest.NewRequest(http.MethodPut, "/v2/owner/assay/manifests/"+tag, strings.NewReader(string(raw)))
	req.Header.Set("Content-Type", string(types.OCIImageIndex))
	w := httptest.NewRecorder()
	if r.inner.ServeHTTP(w, req); w.Code != http.StatusCreated {
		r.t.Fatalf("putting an index: %d %s", w.Code, w.Body)
	}
	return d
}

// TestFetchBounded: each manifest is fetched once, and no more of them, nor deeper, than any image
// needs.
func TestFetchBounded(t *testing.T) {
	for _, tt := range []struct {
		name  string
		build func(r *testRegistry)
		want  string
		reads int
	}{
		{"each index lists the one before twice", func(r *testRegistry) {
			d := r.putIndex("")
			for i := range 24 {
				d = r.putIndex("", d, d, r.putIndex("", v1.Descriptor{MediaType: "application/x", Digest: mustHash(t, "sha256:"+strings.Repeat("0", 64)), Size: int64(i)}))
			}
			r.putIndex("bad", d)
		}, "nested deeper than 4 levels", 30},
		{"the same two in four levels", func(r *testRegistry) {
			d := r.putIndex("")
			for range 3 {
				d = r.putIndex("", d, d, d, d, d, d, d, d)
			}
			r.putIndex("bad", d)
		}, "indexes are nested deeper", 12},
		{"three levels of many", func(r *testRegistry) {
			d := r.putIndex("")
			for range 2 {
				d = r.putIndex("", d, d, d, d, d, d, d, d)
			}
			r.putIndex("bad", d)
		}, "", 12},
		{"very many", func(r *testRegistry) {
			var all []v1.Descriptor
			for i := range MaxManifests + 10 {
				all = append(all, r.putIndex("", v1.Descriptor{MediaType: "application/x", Digest: mustHash(t, fmt.Sprintf("sha256:%064x", i)), Size: 1}))
			}
			r.putIndex("bad", all...)
		}, "more than 1000 manifests", MaxManifests + 10},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := newRegistry(t, true)
			tt.build(r)
			l, err := Create(t.TempDir())
			if err != nil {
				t.Fatal(err)
			}
			_, err = l.Fetch(t.Context(), r.repo()+":bad", Options{})
			if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
				t.Errorf("%v; want %q", err, tt.want)
			}
			if r.reads > tt.reads {
				t.Errorf("%d reads; want at most %d", r.reads, tt.reads)
			}
		})
	}
}

// TestFetchHugeLayers: an image that would fill a disk is refused before its layers are fetched.
func TestFetchHugeLayers(t *testing.T) {
	r := newRegistry(t, true)
	config := descriptor(types.OCIConfigJSON, []byte("{}"))
	layer := v1.Descriptor{MediaType: types.OCILayer, Digest: mustHash(t, "sha256:"+strings.Repeat("1", 64)), Size: MaxLayerBytes}
	raw := marshal(v1.Manifest{SchemaVersion: 2, MediaType: types.OCIManifestSchema1, Config: config, Layers: []v1.Descriptor{layer}})
	req := httptest.NewRequest(http.MethodPut, "/v2/owner/assay/manifests/big", strings.NewReader(string(raw)))
	req.Header.Set("Content-Type", string(types.OCIManifestSchema1))
	w := httptest.NewRecorder()
	if r.inner.ServeHTTP(w, req); w.Code != http.StatusCreated {
		t.Fatal(w.Code, w.Body)
	}
	l, err := Create(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := l.Fetch(t.Context(), r.repo()+":big", Options{}); err == nil || !strings.Contains(err.Error(), "larger than 256 GiB") {
		t.Errorf("%v", err)
	}
}

// TestLayoutBounded: a layout's files are regular and of a size that can be read.
func TestLayoutBounded(t *testing.T) {
	l := newTarget(t, "x")
	d, err := l.Find("x")
	if err != nil {
		t.Fatal(err)
	}
	blob := l.blobPath(d.Digest)
	if err := os.Truncate(blob, 3<<30); err != nil {
		t.Fatal(err)
	}
	if _, err := l.ReadBlob(d.Digest); err == nil || !strings.Contains(err.Error(), "not a manifest") {
		t.Errorf("a sparse manifest: %v", err)
	}
	for _, file := range []string{blob, filepath.Join(l.dir, layoutFile), filepath.Join(l.dir, indexFile)} {
		if err := os.Remove(file); err != nil {
			t.Fatal(err)
		}
		if err := syscall.Mkfifo(file, 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := l.Source("x").Manifest(t.Context(), d.Digest)
		if file != blob {
			_, err = Open(l.dir)
		}
		if err == nil || !strings.Contains(err.Error(), filepath.Base(file)) || !strings.Contains(err.Error(), "FIFO (named pipe)") {
			t.Errorf("%s is a FIFO: %v", file, err)
		}
	}
}

// TestLockIsNoLink: the lock of a stranger's layout is not created where a link leads.
func TestLockIsNoLink(t *testing.T) {
	l := newTarget(t, "x")
	elsewhere := filepath.Join(t.TempDir(), "elsewhere")
	if err := errors.Join(os.Remove(filepath.Join(l.dir, lockFile)), os.Symlink(elsewhere, filepath.Join(l.dir, lockFile))); err != nil {
		t.Fatal(err)
	}
	if err := l.locked(func() error { return nil }); err == nil {
		t.Error("locked")
	}
	if _, err := os.Lstat(elsewhere); err == nil {
		t.Error("the lock was created elsewhere")
	}
}

// TestEnlist: of many that attach to one image at once, in a registry without the referrers API,
// all are listed.
func TestEnlist(t *testing.T) {
	const pushers = 16
	for _, api := range []bool{false, true} {
		r := newRegistry(t, api)
		r.before = func(_ int, _ http.ResponseWriter, req *http.Request) bool {
			if strings.Contains(req.URL.Path, "/manifests/sha256-") { // what was read is old when it is written
				time.Sleep(rand.N(20 * time.Millisecond))
			}
			return false
		}
		subject := r.putIndex("image")
		var g sync.WaitGroup
		hashes := make([]v1.Hash, pushers)
		for i := range pushers {
			g.Go(func() {
				p, err := OpenRepository(r.repo(), Options{})
				if err != nil {
					t.Error(err)
					return
				}
				_, hashes[i], err = p.Put(t.Context(), Artifact{Type: "application/x", Data: []byte(fmt.Sprint(i))}, &subject, "")
				if err != nil {
					t.Error(err)
				}
			})
		}
		g.Wait()
		p, err := OpenRepository(r.repo(), Options{})
		if err != nil {
			t.Fatal(err)
		}
		for i, h := range hashes {
			if ok, err := p.lists(t.Context(), subject.Digest, h); err != nil || !ok {
				t.Errorf("referrers API %v: what pusher %d attached is not listed (%v)", api, i, err)
			}
		}
	}
}

// TestEnlistGivesUp: a list that never keeps what is written is an error, after a bounded number
// of attempts.
func TestEnlistGivesUp(t *testing.T) {
	r := newRegistry(t, false)
	subject := r.putIndex("image")
	tag := strings.Replace(subject.Digest.String(), ":", "-", 1)
	r.putIndex(tag)
	r.before = func(_ int, w http.ResponseWriter, req *http.Request) bool {
		if req.Method == http.MethodPut && strings.HasSuffix(req.URL.Path, tag) {
			io.Copy(io.Discard, req.Body)
			w.WriteHeader(http.StatusCreated)
			return true
		}
		return false
	}
	p, err := OpenRepository(r.repo(), Options{})
	if err != nil {
		t.Fatal(err)
	}
	p.settle = time.Microsecond
	if _, _, err := p.Put(t.Context(), Artifact{Type: "application/x", Data: []byte("x")}, &subject, ""); err == nil || !strings.Contains(err.Error(), "was not listed after 60 attempts") {
		t.Errorf("%v", err)
	}
}

// TestLostAnswer: a registry that carries a PUT out, whose answer is lost, and refuses to repeat
// it, has what was pushed.
func TestLostAnswer(t *testing.T) {
	for _, refusal := range []int{http.StatusBadRequest, http.StatusForbidden, http.StatusNotFound, http.StatusConflict, http.StatusPreconditionFailed} {
		r := newRegistry(t, true)
		var mu sync.Mutex
		done := map[string]bool{}
		r.before = func(_ int, w http.ResponseWriter, req *http.Request) bool {
			if req.Method != http.MethodPut {
				return false
			}
			mu.Lock()
			defer mu.Unlock()
			if done[req.URL.String()] {
				w.WriteHeader(refusal)
				return true
			}
			done[req.URL.String()] = true
			r.inner.ServeHTTP(httptest.NewRecorder(), req)
			panic(http.ErrAbortHandler)
		}
		p, err := OpenRepository(r.repo(), Options{Retry: Retry{Delay: time.Millisecond}})
		if err != nil {
			t.Fatal(err)
		}
		if _, _, err := p.Put(t.Context(), Artifact{Type: "application/x", Data: []byte("x")}, nil, "tag"); err != nil {
			t.Errorf("%d: %v", refusal, err)
		}
		l := newTarget(t, "x")
		if _, err := p.Push(t.Context(), l, root(t, l, "x")); err != nil {
			t.Errorf("%d: push: %v", refusal, err)
		}
		if _, err := p.Tag(t.Context(), l, root(t, l, "x"), []string{"y"}); err != nil {
			t.Errorf("%d: tag: %v", refusal, err)
		}
	}
}

// TestReasons: what a registry answers is one line, and says what is missing.
func TestReasons(t *testing.T) {
	page := "<!DOCTYPE html>\n<html>\n" + strings.Repeat("<p>sorry</p>\n", 2000) + "</html>"
	long := strings.Repeat(page, 10) // more than go-containerregistry reads
	for _, tt := range []struct {
		status     int
		mime, body string
		want       []string
		not        string
	}{
		{http.StatusForbidden, "text/html", page, []string{"a page of HTML", "403"}, "sorry"},
		{http.StatusForbidden, "text/html", long, []string{"a page of HTML", "403", "docker login"}, "sorry"},
		{http.StatusServiceUnavailable, "text/html", long, []string{"a page of HTML", "503", "(after 6 attempts)"}, "sorry"},
		{http.StatusForbidden, "application/json", `{"errors":[{"code":"DENIED","message":"no","detail":"` + strings.Repeat("x", 100_000) + `"}]}`, []string{"403", "DENIED", "docker login"}, "exceeds"},
		{http.StatusBadRequest, "text/plain", strings.Repeat("long line ", 500), []string{"long line", "…"}, "\n"},
		{http.StatusBadRequest, "text/plain", "first\nsecond\n", []string{"first …"}, "second"},
		{http.StatusNotFound, "application/json", `{"errors":[{"code":"MANIFEST_UNKNOWN","message":"unknown tag"}]}`, []string{"owner/assay has no such tag or image"}, "does not exist"},
		{http.StatusNotFound, "application/json", `{"errors":[{"code":"NAME_UNKNOWN","message":"unknown name"}]}`, []string{"owner/assay does not exist there"}, "no such tag"},
	} {
		r := newRegistry(t, true)
		r.before = func(_ int, w http.ResponseWriter, req *http.Request) bool {
			if !strings.Contains(req.URL.Path, "/manifests/") {
				return false
			}
			w.Header().Set("Content-Type", tt.mime)
			w.WriteHeader(tt.status)
			io.WriteString(w, tt.body)
			return true
		}
		p, err := OpenRepository(r.repo(), Options{Retry: Retry{Delay: time.Millisecond}})
		if err != nil {
			t.Fatal(err)
		}
		_, _, err = p.Get(t.Context(), "tag")
		text := fmt.Sprint(err)
		for _, want := range tt.want {
			if !strings.Contains(text, want) {
				t.Errorf("%d: %q does not say %q", tt.status, text, want)
			}
		}
		if strings.Contains(text, tt.not) || strings.Contains(text, "\n") || len(text) > 1000 {
			t.Errorf("%d: %q", tt.status, text)
		}
	}
}

// TestDowngrade: a registry's redirect does not leave https.
func TestDowngrade(t *testing.T) {
	var plain atomic.Int64
	open := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { plain.Add(1) }))
	defer open.Close()
	secure := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, open.URL, http.StatusTemporaryRedirect)
	}))
	defer secure.Close()
	client := newClient(Options{Transport: secure.Client().Transport})
	_, err := (&http.Client{Transport: client}).Get(secure.URL)
	if !errors.Is(err, errDowngrade) || Temporary(err) || plain.Load() != 0 {
		t.Errorf("%v, temporary: %v, %d requests by http", err, Temporary(err), plain.Load())
	}
}

// FuzzLayout: no index or manifest of a stranger's layout ends the program.
func FuzzLayout(f *testing.F) {
	f.Add(`{"manifests":[null]}`, `{"config":null,"layers":[null],"subject":null}`)
	f.Add(`{"manifests":[{"mediaType":"application/vnd.oci.image.index.v1+json","platform":null}]}`, `null`)
	f.Fuzz(func(t *testing.T, index, manifest string) {
		l, err := Create(t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		h, size, err := l.WriteBlob(strings.NewReader(manifest))
		if err != nil {
			t.Fatal(err)
		}
		var idx v1.IndexManifest
		if json.Unmarshal([]byte(index), &idx) == nil {
			for _, mt := range []types.MediaType{types.OCIImageIndex, types.OCIManifestSchema1} {
				idx.Manifests = append(idx.Manifests, v1.Descriptor{MediaType: mt, Digest: h, Size: size})
			}
			index = string(marshal(idx))
		}
		if err := os.WriteFile(filepath.Join(l.dir, indexFile), []byte(index), 0o600); err != nil {
			t.Fatal(err)
		}
		l.Targets()
		l.Find("")
		l.Describe(h)
		l.plan(h)
		l.Referrers(h)
		l.Config(h.String())
		l.Complete(h.String())
		l.Holds("x", []string{h.String()})
		RawConfig(context.Background(), "oci:"+l.dir+"@"+h.String(), amd64, Options{})
	})
}
