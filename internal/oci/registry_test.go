package oci

import (
	"bytes"
	"encoding/json"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// A testRegistry is go-containerregistry's registry behind a guard that
// refuses, and reports, any tag that points to something incomplete.
type testRegistry struct {
	t     *testing.T
	inner http.Handler
	host  string

	mu      sync.Mutex
	before  func(n int, w http.ResponseWriter, r *http.Request) bool // true: it answered
	count   int
	changes []string // POST, PATCH and PUT, in order
	reads   int
	tags    []string // in the order in which they were set
}

func newRegistry(t *testing.T, referrersAPI bool) *testRegistry {
	t.Helper()
	r := &testRegistry{t: t, inner: registry.New(registry.Logger(log.New(io.Discard, "", 0)), registry.WithReferrersSupport(referrersAPI))}
	srv := httptest.NewServer(r)
	t.Cleanup(srv.Close)
	r.host = strings.TrimPrefix(srv.URL, "http://")
	return r
}

func (r *testRegistry) repo() string { return r.host + "/owner/assay" }

func (r *testRegistry) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	r.mu.Lock()
	r.count++
	n, before := r.count, r.before
	if req.Method == http.MethodGet || req.Method == http.MethodHead {
		r.reads++
	} else {
		r.changes = append(r.changes, req.Method+" "+req.URL.Path)
	}
	r.mu.Unlock()
	if before != nil && before(n, w, req) {
		return
	}
	if tag, ok := tagOf(req); ok && req.Method == http.MethodPut {
		r.guard(tag, req)
	}
	r.inner.ServeHTTP(w, req)
}

func tagOf(req *http.Request) (string, bool) {
	_, ref, ok := strings.Cut(req.URL.Path, "/manifests/")
	return ref, ok && !strings.HasPrefix(ref, "sha256:")
}

// guard reads the manifest that a tag is about to get and looks for all that
// it leads to.
func (r *testRegistry) guard(tag string, req *http.Request) {
	body, err := io.ReadAll(req.Body)
	if err != nil {
		return // the client was killed; the registry will not see a whole manifest either
	}
	req.Body = io.NopCloser(bytes.NewReader(body))
	r.complete(tag, req.URL.Path[:strings.Index(req.URL.Path, "/manifests/")], body)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.tags = append(r.tags, tag)
}

func (r *testRegistry) complete(tag, base string, body []byte) {
	var m struct {
		Manifests []v1.Descriptor `json:"manifests"`
		Config    *v1.Descriptor  `json:"config"`
		Layers    []v1.Descriptor `json:"layers"`
	}
	if err := json.Unmarshal(body, &m); err != nil {
		r.t.Errorf("tag %s: %v", tag, err)
	}
	if m.Config != nil {
		m.Layers = append(m.Layers, *m.Config)
	}
	for _, d := range m.Layers {
		if w := r.ask(http.MethodHead, base+"/blobs/"+d.Digest.String()); w.Code != http.StatusOK {
			r.t.Errorf("tag %s was set before blob %s was there", tag, d.Digest)
		}
	}
	for _, d := range m.Manifests {
		w := r.ask(http.MethodGet, base+"/manifests/"+d.Digest.String())
		if w.Code != http.StatusOK {
			r.t.Errorf("tag %s was set before manifest %s was there", tag, d.Digest)
			continue
		}
		r.complete(tag, base, w.Body.Bytes())
	}
}

// ask bypasses guard and faults.
func (r *testRegistry) ask(method, path string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	r.inner.ServeHTTP(w, httptest.NewRequest(method, path, nil))
	return w
}

// tagged returns the digest that a tag has, "" for none.
func (r *testRegistry) tagged(tag string) string {
	w := r.ask(http.MethodHead, "/v2/owner/assay/manifests/"+tag)
	return w.Header().Get("Docker-Content-Digest")
}

func (r *testRegistry) intercept(f func(n int, w http.ResponseWriter, req *http.Request) bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.before = f
}

// reset forgets what was counted.
func (r *testRegistry) reset() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.count, r.reads, r.changes, r.tags, r.before = 0, 0, nil, nil, nil
}

func (r *testRegistry) seen() (changes, tags []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.changes), slices.Clone(r.tags)
}

func (r *testRegistry) requests() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.count
}

// quick retries without waiting.
var quick = Options{Retry: Retry{Delay: time.Nanosecond, MaxDelay: time.Microsecond}}

// expectComplete checks that a target is all there, referrers included.
func expectComplete(t *testing.T, r *testRegistry, l *Layout, target string, tags ...string) {
	t.Helper()
	p, err := l.plan(root(t, l, target))
	if err != nil {
		t.Fatal(err)
	}
	for _, tag := range tags {
		if got := r.tagged(tag); got != p.root.desc.Digest.String() {
			t.Errorf("tag %s points to %q; want %s", tag, got, p.root.desc.Digest)
		}
	}
	for _, b := range p.blobs {
		if w := r.ask(http.MethodHead, "/v2/owner/assay/blobs/"+b.Digest.String()); w.Code != http.StatusOK {
			t.Errorf("blob %s is not in the registry", b.Digest)
		}
	}
	for _, m := range p.referrers {
		if !r.refers(m) {
			t.Errorf("the registry does not list referrer %s of %s", m.desc.Digest, m.subject)
		}
	}
}

// refers asks as a client does: the API, or without it the fallback tag.
func (r *testRegistry) refers(m manifest) bool {
	w := r.ask(http.MethodGet, "/v2/owner/assay/referrers/"+m.subject.String())
	if w.Code != http.StatusOK || w.Header().Get("Content-Type") != string(types.OCIImageIndex) {
		w = r.ask(http.MethodGet, "/v2/owner/assay/manifests/"+strings.Replace(m.subject.String(), ":", "-", 1))
	}
	return strings.Contains(w.Body.String(), m.desc.Digest.String())
}
