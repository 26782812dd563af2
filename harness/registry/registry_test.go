package registry

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/remote"

	"github.com/assay-hpc/assay/harness/history"
	"github.com/assay-hpc/assay/internal/attest"
	"github.com/assay-hpc/assay/internal/certificate"
	"github.com/assay-hpc/assay/internal/certificate/certificatetest"
	"github.com/assay-hpc/assay/internal/oci"
	"github.com/assay-hpc/assay/internal/result"
)

// A server is go-containerregistry's registry, which can be disturbed.
type server struct {
	inner http.Handler
	host  string

	mu      sync.Mutex
	before  func(http.ResponseWriter, *http.Request) bool // true: it answered
	changes []string
	reads   []string
}

func serve(t *testing.T, referrersAPI bool) *server {
	t.Helper()
	s := &server{inner: registry.New(registry.Logger(log.New(io.Discard, "", 0)), registry.WithReferrersSupport(referrersAPI))}
	srv := httptest.NewServer(s)
	t.Cleanup(srv.Close)
	s.host = strings.TrimPrefix(srv.URL, "http://")
	return s
}

func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	line := r.Method + " " + r.URL.Path
	if r.Method == http.MethodGet || r.Method == http.MethodHead {
		s.reads = append(s.reads, line)
	} else {
		s.changes = append(s.changes, line)
	}
	before := s.before
	s.mu.Unlock()
	if before == nil || !before(w, r) {
		s.inner.ServeHTTP(w, r)
	}
}

// reset forgets what was seen, and sets what disturbs from now on.
func (s *server) reset(before func(http.ResponseWriter, *http.Request) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.before, s.changes, s.reads = before, nil, nil
}

func (s *server) seen() (changes, reads []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.changes), slices.Clone(s.reads)
}

// quick retries without waiting.
var quick = Options{Retry: oci.Retry{Delay: time.Nanosecond, MaxDelay: time.Microsecond}}

func open(t *testing.T, where string) *Repository {
	t.Helper()
	r, err := Open(where, quick)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// image puts an image into the repository owner/assay.
func (s *server) image(t *testing.T) v1.Hash {
	t.Helper()
	img, err := random.Image(100, 1)
	if err != nil {
		t.Fatal(err)
	}
	h, err := img.Digest()
	if err != nil {
		t.Fatal(err)
	}
	ref, err := name.NewDigest(s.host + "/owner/assay@" + h.String())
	if err != nil {
		t.Fatal(err)
	}
	if err := remote.Write(ref, img); err != nil {
		t.Fatal(err)
	}
	return h
}

func about(t *testing.T, h v1.Hash) (*certificate.Statement, []byte) {
	t.Helper()
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	st := certificate.New(certificate.Predicate{
		Suite: "image", Started: at, Finished: at, Harness: certificate.Harness{Version: "1"}, Environment: certificate.Environment{Platform: "linux/amd64"},
		Results: []result.Result{{ID: "a", Title: "A", Verdict: result.Pass}},
	})
	if err := st.SetSubject("owner/assay", h.String()); err != nil {
		t.Fatal(err)
	}
	return st, marshal(t, st)
}

func marshal(t *testing.T, st *certificate.Statement) []byte {
	t.Helper()
	b, err := st.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// node returns a machine's certificate that finished so much later than the sample.
func node(t *testing.T, later time.Duration) (*certificate.Statement, []byte) {
	t.Helper()
	st := certificatetest.Node(2)
	st.Predicate.Finished = st.Predicate.Finished.Add(later)
	return st, marshal(t, st)
}

func each(t *testing.T, f func(t *testing.T, s *server)) {
	for name, api := range map[string]bool{"referrers API": true, "fallback tag": false} {
		t.Run(name, func(t *testing.T) { f(t, serve(t, api)) })
	}
}

func TestReferrer(t *testing.T) {
	each(t, func(t *testing.T, s *server) {
		h := s.image(t)
		r := open(t, s.host+"/owner/assay@"+h.String())
		if err := r.Check(t.Context()); err != nil {
			t.Fatal(err)
		}
		st, doc := about(t, h)
		ref, err := r.Push(t.Context(), doc, st)
		if err != nil {
			t.Fatal(err)
		}
		s.reset(nil)
		again, err := r.Push(t.Context(), doc, st)
		if changes, _ := s.seen(); err != nil || again != ref || len(changes) != 0 {
			t.Errorf("second push = %s, %v, and sent %q; want %s and nothing sent", again, err, changes, ref)
		}
		docs, err := r.Documents(t.Context(), Filter{})
		if err != nil || len(docs) != 1 || docs[0].Name != ref || string(docs[0].Data) != string(doc) {
			t.Errorf("Documents = %v, %v; want the one that was pushed, %s", docs, err, ref)
		}
		list, err := r.repo.Source(h).Referrers(t.Context(), h)
		if err != nil || len(list) != 1 || list[0].Annotations[AnnotationVerdict] != "pass" {
			t.Errorf("referrers = %+v, %v", list, err)
		}
		other, otherDoc := about(t, v1.Hash{Algorithm: "sha256", Hex: strings.Repeat("0a", 32)})
		if _, err := r.Push(t.Context(), otherDoc, other); !errors.Is(err, attest.ErrSubject) {
			t.Errorf("pushing another image's certificate = %v; want ErrSubject", err)
		}
	})
}

func TestNode(t *testing.T) {
	s := serve(t, true)
	r := open(t, s.host+"/owner/nodes")
	var want []string
	for i := range 3 {
		st, doc := node(t, time.Duration(i)*time.Hour)
		if _, err := r.Push(t.Context(), doc, st); err != nil {
			t.Fatal(err)
		}
		want = append(want, string(doc))
	}
	tags, err := r.repo.Tags(t.Context())
	if wantTags := []string{"node-node07-20260301T120123.250Z", "node-node07-20260301T130123.250Z", "node-node07-20260301T140123.250Z"}; err != nil || !slices.Equal(tags, wantTags) {
		t.Errorf("tags are %q, %v; want %q", tags, err, wantTags)
	}
	_, manifest, err := r.repo.Get(t.Context(), tags[0])
	if err != nil || !strings.Contains(string(manifest), `"io.github.assay-hpc.verdict":"fail"`) || !strings.Contains(string(manifest), `"io.github.assay-hpc.finished":"2026-03-01T12:01:23.25Z"`) {
		t.Errorf("the manifest is %s, %v", manifest, err)
	}
	s.reset(nil)
	st, doc := node(t, 0)
	if _, err := r.Push(t.Context(), doc, st); err != nil {
		t.Fatal(err)
	}
	if changes, _ := s.seen(); len(changes) != 0 {
		t.Errorf("pushing the same again sent %q", changes)
	}
	// The same machine and moment, and yet another document: both stay.
	st.Predicate.Suite = "other"
	if _, err := r.Push(t.Context(), marshal(t, st), st); err != nil {
		t.Fatal(err)
	}
	want = append(want[:1:1], append([]string{string(marshal(t, st))}, want[1:]...)...)
	got, err := r.Documents(t.Context(), Filter{})
	if err != nil || !slices.EqualFunc(got, want, func(d Document, w string) bool { return string(d.Data) == w }) {
		t.Errorf("Documents = %d documents, %v; want %d", len(got), err, len(want))
	}
	for _, tt := range []struct {
		f    Filter
		want int
	}{
		{Filter{Node: "node07"}, 4},
		{Filter{Node: "node08"}, 0},
		{Filter{Since: st.Predicate.Finished.Add(time.Minute)}, 2},
		{Filter{Since: st.Predicate.Finished.Add(3 * time.Hour)}, 0},
	} {
		s.reset(nil)
		got, err := r.Documents(t.Context(), tt.f)
		_, reads := s.seen()
		if err != nil || len(got) != tt.want || len(reads) > 2*tt.want+1 {
			t.Errorf("Documents(%+v) = %d, %v with %d requests; want %d, and none for others", tt.f, len(got), err, len(reads), tt.want)
		}
	}
	if st, doc := about(t, v1.Hash{Algorithm: "sha256", Hex: strings.Repeat("0a", 32)}); !errors.Is(second(r.Push(t.Context(), doc, st)), ErrSubject) {
		t.Error("a certificate that is no machine's was pushed without an image")
	}
}

func second(_ string, err error) error { return err }

func TestTags(t *testing.T) {
	st, _ := node(t, 0)
	for in, want := range map[string]string{"node07": "node07", "a/b:c d": "a_b_c_d", "ä": "_", strings.Repeat("x", 200): strings.Repeat("x", 80)} {
		st.Predicate.Node.Name = in
		tag := Tag(st)
		if _, err := name.NewTag("r.io/x:"+tag, name.StrictValidation); err != nil {
			t.Error(err)
		}
		if node, at, ok := parseTag(tag); !ok || node != want || !at.Equal(st.Predicate.Finished) {
			t.Errorf("parseTag(%q) = %q, %v, %v; want %q, %v", tag, node, at, ok, want, st.Predicate.Finished)
		}
	}
	for _, tag := range []string{"latest", "sha256-0a0a", "node-x-2026", "node--20261399T000000.000Z"} {
		if _, _, ok := parseTag(tag); ok {
			t.Errorf("parseTag(%q) succeeded", tag)
		}
	}
}

// TestBroken cuts the connection at one request after another, with nobody there
// to try again, and has the next push complete the work.
func TestBroken(t *testing.T) {
	each(t, func(t *testing.T, s *server) {
		h := s.image(t)
		for _, where := range []string{"/owner/assay@" + h.String(), "/owner/nodes"} {
			for at := 1; ; at++ {
				fresh := where
				st, doc := about(t, h)
				if !strings.Contains(where, "@") {
					st, doc = node(t, 0)
					fresh = fmt.Sprintf("%s%d", where, at)
				} else {
					st.Predicate.Suite = fmt.Sprint("image", at) // another document each time
					doc = marshal(t, st)
				}
				var n, cut atomic.Int64
				s.reset(func(http.ResponseWriter, *http.Request) bool {
					if n.Add(1) >= int64(at) {
						cut.Add(1)
						panic(http.ErrAbortHandler)
					}
					return false
				})
				once := quick
				once.Retry.Attempts = 1
				r, err := Open(s.host+fresh, once)
				if err != nil {
					t.Fatal(err)
				}
				_, err = r.Push(t.Context(), doc, st)
				if cut.Load() == 0 {
					if err != nil || at < 5 {
						t.Errorf("%s: %d requests, %v", where, at-1, err)
					}
					break
				}
				if err == nil {
					t.Errorf("%s: cut at request %d, and Push = nil", where, at)
				}
				s.reset(nil)
				r = open(t, s.host+fresh)
				ref, err := r.Push(t.Context(), doc, st)
				if err != nil {
					t.Fatalf("%s: the push after one that was cut at request %d: %v", where, at, err)
				}
				docs, err := r.Documents(t.Context(), Filter{})
				if err != nil || !slices.ContainsFunc(docs, func(d Document) bool { return string(d.Data) == string(doc) }) {
					t.Errorf("%s: cut at request %d, pushed again as %s, and not there: %v", where, at, ref, err)
				}
			}
		}
	})
}

// TestFaults has each tenth request fail in some way, which retries survive.
func TestFaults(t *testing.T) {
	for what, fault := range map[string]http.HandlerFunc{
		"500": func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusInternalServerError) },
		"429": func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTooManyRequests) },
		"cut": func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
	} {
		t.Run(what, func(t *testing.T) {
			s := serve(t, false)
			h := s.image(t)
			n, failed := 0, 0
			s.reset(func(w http.ResponseWriter, r *http.Request) bool {
				s.mu.Lock()
				n++
				hit := n%5 == 0
				if hit {
					failed++
				}
				s.mu.Unlock()
				if hit {
					fault(w, r)
				}
				return hit
			})
			r := open(t, s.host+"/owner/assay@"+h.String())
			st, doc := about(t, h)
			if _, err := r.Push(t.Context(), doc, st); err != nil {
				t.Fatal(err)
			}
			if docs, err := r.Documents(t.Context(), Filter{}); err != nil || len(docs) != 1 || failed < 3 {
				t.Errorf("Documents = %d, %v after %d faults; want 1 after 3 or more", len(docs), err, failed)
			}
		})
	}
}

func TestCancel(t *testing.T) {
	s := serve(t, true)
	ctx, cancel := context.WithCancel(t.Context())
	s.reset(func(_ http.ResponseWriter, req *http.Request) bool {
		if req.Method != http.MethodPost {
			return false
		}
		cancel()
		<-req.Context().Done() // until the client hangs up
		return true
	})
	st, doc := node(t, 0)
	if _, err := open(t, s.host+"/owner/nodes").Push(ctx, doc, st); !errors.Is(err, context.Canceled) {
		t.Errorf("Push = %v; want context.Canceled", err)
	}
}

// TestCredentials: docker's are used, and no error shows them, whatever the registry
// repeats.
func TestCredentials(t *testing.T) {
	const user, right, wrong = "ada", "right-S3cret", "wr0ng-pass"
	s := serve(t, true)
	s.reset(func(w http.ResponseWriter, req *http.Request) bool {
		u, p, ok := req.BasicAuth()
		if ok && u == user && p == right || req.Method == http.MethodHead {
			return false
		}
		w.Header().Set("WWW-Authenticate", `Basic realm="test"`)
		w.WriteHeader(http.StatusUnauthorized)
		fmt.Fprintf(w, `{"errors":[{"code":"UNAUTHORIZED","message":"no: %s %s"}]}`, req.Header.Get("Authorization"), p)
		return true
	})
	st, doc := node(t, 0)
	for _, password := range []string{wrong, right} { // HEAD is let in: with the right one first, all would be there
		dir := t.TempDir()
		auth := base64.StdEncoding.EncodeToString([]byte(user + ":" + password))
		if err := os.WriteFile(filepath.Join(dir, "config.json"), fmt.Appendf(nil, `{"auths":{%q:{"auth":%q}}}`, s.host, auth), 0o600); err != nil {
			t.Fatal(err)
		}
		t.Setenv("DOCKER_CONFIG", dir)
		r := open(t, s.host+"/owner/nodes")
		_, pushErr := r.Push(t.Context(), doc, st)
		for what, err := range map[string]error{"Push": pushErr, "Check": r.Check(t.Context())} {
			if password == right {
				if err != nil {
					t.Errorf("%s with the right password: %v", what, err)
				}
				continue
			}
			text := fmt.Sprintf("%v %+v", err, err)
			if !strings.Contains(text, "docker login "+s.host) || strings.Contains(text, wrong) || strings.Contains(text, auth) {
				t.Errorf("%s with a wrong password: %s; want a remedy and no credentials", what, text)
			}
		}
	}
}

func TestOpen(t *testing.T) {
	for in, want := range map[string]string{
		"ghcr.io/owner/nodes":                                    "",
		"ghcr.io/owner/x@sha256:" + strings.Repeat("0a", 32):     "",
		"ghcr.io/owner/nodes:latest":                             "names a tag",
		"ghcr.io/owner/nodes@sha256:0a":                          "is not REPO@sha256:",
		"ghcr.io/Owner":                                          "repository: ",
		"ghcr.io/owner/nodes:1@sha256:" + strings.Repeat("0", 4): "names a tag",
	} {
		_, err := Open(in, quick)
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("Open(%q) = %v; want …%s…", in, err, want)
		}
	}
	for _, in := range []string{"ada:hunter2@ghcr.io/owner/nodes", "https://ada:hunter2@ghcr.io/owner/nodes", "ada:hunter2@ghcr.io/owner/nodes:v1"} {
		_, opened := Open(in, quick)
		_, read := Read(t.Context(), in, nil, quick)
		r := Reader{To: history.NewCollector(history.Options{})}
		for what, err := range map[string]error{"Open": opened, "Read": read, "a history": r.Read(t.Context(), in)} {
			if err == nil || strings.Contains(err.Error(), "hunter2") {
				t.Errorf("%s: %v", what, err)
			}
		}
	}
	h := v1.Hash{Algorithm: "sha256", Hex: strings.Repeat("0a", 32)}
	s := serve(t, true)
	st, doc := about(t, h)
	if _, err := open(t, s.host+"/owner/assay@"+h.String()).Push(t.Context(), doc, st); err == nil || !strings.Contains(err.Error(), "image "+h.String()) {
		t.Errorf("Push to an image that is not there = %v", err)
	}
}

// TestLayout reads what layouts look like: an image, and beside it
// what is attached.
func TestLayout(t *testing.T) {
	dir := t.TempDir()
	l, err := oci.Create(dir)
	if err != nil {
		t.Fatal(err)
	}
	img, err := random.Image(10, 1)
	if err == nil {
		err = l.Put("image", img)
	}
	if err != nil {
		t.Fatal(err)
	}
	subject, err := img.Digest()
	if err != nil {
		t.Fatal(err)
	}
	_, doc := node(t, 0)
	for _, predicate := range []string{certificate.PredicateType, "https://spdx.dev/Document/v2.3"} {
		if _, err := l.Attach(subject, oci.Artifact{Type: attest.TypeStatement, Predicate: predicate, Data: doc}); err != nil {
			t.Fatal(err)
		}
	}
	layer := sha256.Sum256(doc)
	digest := hex.EncodeToString(layer[:])
	docs, err := Layout(t.Context(), dir)
	if err != nil || len(docs) != 1 || string(docs[0].Data) != string(doc) {
		t.Errorf("Layout = %d documents, %v; want the one certificate", len(docs), err)
	}
	index, err := os.ReadFile(filepath.Join(dir, "index.json"))
	if err != nil {
		t.Fatal(err)
	}
	begin, end, _ := strings.Cut(string(index), `"manifests":[`)
	entry := end[:strings.LastIndex(end, "]")]
	if err := os.WriteFile(filepath.Join(dir, "index.json"), []byte(begin+`"manifests":[`+strings.Repeat(entry+",", 9)+end), 0o644); err != nil {
		t.Fatal(err)
	}
	if docs, err = Layout(t.Context(), dir); err != nil || len(docs) != 1 {
		t.Errorf("of entries that stand there ten times, Layout = %d documents, %v; want 1", len(docs), err)
	}
	defer func(was int64) { maxHeld = was }(maxHeld)
	maxHeld = int64(len(doc)) - 1
	if _, err := Layout(t.Context(), dir); err == nil || !strings.Contains(err.Error(), "which is all that is read") {
		t.Errorf("Layout with more than fits = %v", err)
	}
	maxHeld = int64(len(doc))
	path := filepath.Join(dir, "blobs", "sha256", digest)
	if err := os.WriteFile(path, append(doc, ' '), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := Layout(t.Context(), dir); err == nil || !strings.Contains(err.Error(), digest) {
		t.Errorf("Layout with a changed blob = %v", err)
	}
	if _, err := Layout(t.Context(), t.TempDir()); err == nil {
		t.Error("a directory that is no layout was read as one")
	}
}
