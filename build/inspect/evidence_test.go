package inspect

import (
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/assay-hpc/assay/internal/attest"
	"github.com/assay-hpc/assay/internal/certificate"
	"github.com/assay-hpc/assay/internal/oci"
	"github.com/assay-hpc/assay/internal/result"
)

// evidence is a signed certificate about an image, of a suite, and of a machine if it has a name.
func evidence(t *testing.T, img oci.PlatformImage, suite, node string, v result.Verdict) oci.Artifact {
	t.Helper()
	s := certificate.New(certificate.Predicate{
		Suite: suite, Started: epoch, Finished: epoch.Add(time.Minute), Results: []result.Result{{ID: "x", Title: "x", Verdict: v, Reason: "y"}},
		Environment: certificate.Environment{Platform: img.Platform.String(), Target: "fabric", Recipe: strings.Repeat("5", 64)},
		Harness:     certificate.Harness{Origin: certificate.OriginAssay},
	})
	if node != "" {
		if err := s.SetNode(&certificate.Node{Name: node, Identity: []string{"GPU-1"}}); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.AddSubject("fabric", img.Digest); err != nil {
		t.Fatal(err)
	}
	doc, err := s.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	a, err := Artifact(doc, signingKey)
	if err != nil {
		t.Fatal(err)
	}
	a.Predicate = "" // in a layout one of each predicate is kept; in a registry all are
	a.Annotations = map[string]string{"n": suite + node + string(v)}
	return a
}

// TestEvidence: beside an image's gate, certificates of machines and of other suites are listed, and
// count neither for nor against it. A failed gate that the key signed condemns it.
func TestEvidence(t *testing.T) {
	for _, tt := range []struct {
		name, suite, node string
		verdict           result.Verdict
		aside             string // "": it counts
	}{
		{"a machine's fail", "node", "gpu-3", result.Fail, "it is about the machine gpu-3, suite node"},
		{"a machine's pass", "node", "gpu-3", result.Pass, "it is about the machine gpu-3, suite node"},
		{"a machine's, of a suite called image", "image", "gpu-3", result.Pass, "it is about the machine gpu-3, suite image"},
		{"another suite's fail", "quick", "", result.Fail, "its suite is quick, not image"},
		{"another suite's pass", "one-check", "", result.Pass, "its suite is one-check, not image"},
		{"a failed gate", "image", "", result.Fail, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := newStore(t)
			img := s.images[0]
			put(t, s.Layout, img.Digest, evidence(t, img, tt.suite, tt.node, tt.verdict))
			rep, err := s.inspect(s.root.String())
			if tt.aside == "" {
				if !Failed(err) || !strings.Contains(err.Error(), "its verdict is fail") {
					t.Errorf("Inspect = %v; want a failure by its verdict", err)
				}
				return
			}
			if err != nil {
				t.Fatalf("beside the gate: %v", err)
			}
			if c := rep.Images[0].Certificate; c == nil || c.Suite != "image" || c.Verdict != result.Pass {
				t.Errorf("the image's certificate is %+v", c)
			}
			var text strings.Builder
			if err := rep.Text(&text); err != nil || !strings.Contains(text.String(), "certificate, aside ("+tt.aside+"): "+string(tt.verdict)) {
				t.Errorf("the report does not show it: %v\n%s", err, text.String())
			}
			// In the gate's place it is none.
			s.with(img, map[string][]byte{All[1]: s.documents(img)[All[1]], All[2]: s.documents(img)[All[2]]}, func(c *store) {
				put(t, c.Layout, img.Digest, evidence(t, img, tt.suite, tt.node, tt.verdict))
				if _, err := c.inspect(s.root.String()); !Failed(err) || !strings.Contains(err.Error(), "no certificate that counts") {
					t.Errorf("in the gate's place: %v", err)
				}
			})
		})
	}
}

// TestRecipe: a certificate is of the recipe that a tag's digits name.
func TestRecipe(t *testing.T) {
	s := newStore(t)
	for recipe, ok := range map[string]bool{"": true, "5555555": true, strings.Repeat("5", 64): true, "5555556": false, "abcdef0": false, strings.Repeat("5", 65): false} {
		s.policy.Recipe = recipe
		if _, err := s.inspect(s.root.String()); (err == nil) != ok {
			t.Errorf("recipe %q: %v; want ok = %v", recipe, err, ok)
		}
	}
}

// TestLayers: each layer is there in its size, always; with LayersRead its bytes have the digest.
func TestLayers(t *testing.T) {
	s := newStore(t)
	_, layers := s.reachable()
	inner := registry.New(registry.Logger(log.New(io.Discard, "", 0)), registry.WithReferrersSupport(true))
	lacks, flips := "", ""
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		rec := httptest.NewRecorder()
		switch {
		case lacks != "" && strings.HasSuffix(r.URL.Path, lacks) && r.Method == http.MethodGet:
			w.WriteHeader(http.StatusNotFound)
			return
		case flips != "" && strings.HasSuffix(r.URL.Path, flips):
			inner.ServeHTTP(rec, r)
			b := rec.Body.Bytes()
			if len(b) > 0 {
				b[len(b)/2] ^= 1
			}
			for k, v := range rec.Header() {
				w.Header()[k] = v
			}
			w.WriteHeader(rec.Code)
			_, _ = w.Write(b)
			return
		}
		inner.ServeHTTP(w, r)
	}))
	defer srv.Close()
	open := func() oci.Source {
		repo, err := oci.OpenRepository(strings.TrimPrefix(srv.URL, "http://")+"/owner/assay", oci.Options{Retry: oci.Retry{Attempts: 1}})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := repo.Push(t.Context(), s.Layout, s.root); err != nil {
			t.Fatal(err)
		}
		return repo.Source(s.root)
	}
	remote := open()
	inspect := func(src oci.Source, how attest.Layers) error {
		s.policy.Layers = how
		_, err := Inspect(t.Context(), src, s.policy)
		if err != nil && !Failed(err) {
			t.Errorf("%v is no failure of verification", err)
		}
		return err
	}
	for _, how := range []attest.Layers{attest.LayersSized, attest.LayersBegun, attest.LayersRead} {
		for _, src := range []oci.Source{s.Source(s.root.String()), remote} {
			if err := inspect(src, how); err != nil {
				t.Errorf("as it is, %v: %v", src, err)
			}
		}
	}
	for _, h := range layers {
		// A registry says that it has what it lacks, or has something else.
		lacks = h.String()
		if err := inspect(remote, attest.LayersBegun); err == nil || !strings.Contains(err.Error(), "is missing from the repository") {
			t.Errorf("a layer that is not served: %v", err)
		}
		lacks, flips = "", h.String()
		if err := inspect(remote, attest.LayersRead); err == nil || !strings.Contains(err.Error(), "is damaged in the repository") {
			t.Errorf("a layer that is served with another byte: %v", err)
		}
		flips = ""
		// The same in a layout.
		s.damaged(h, func(b []byte) []byte { b[len(b)/2] ^= 1; return b }, func() {
			if err := inspect(s.Source(s.root.String()), attest.LayersSized); err != nil {
				t.Errorf("bytes are not read unless that is asked for: %v", err)
			}
			if err := inspect(s.Source(s.root.String()), attest.LayersRead); err == nil {
				t.Error("a layer with another byte is accepted")
			}
		})
		for what, change := range map[string]func([]byte) []byte{
			"missing": func([]byte) []byte { return nil }, "short": func(b []byte) []byte { return b[:len(b)-1] }, "long": func(b []byte) []byte { return append(b, 0) },
		} {
			s.damaged(h, change, func() {
				if err := inspect(s.Source(s.root.String()), attest.LayersSized); err == nil {
					t.Errorf("a layer that is %s is accepted", what)
				}
			})
		}
	}
}

// damaged runs f while a blob of the layout is changed; nil removes it.
func (s *store) damaged(h v1.Hash, change func([]byte) []byte, f func()) {
	s.t.Helper()
	file := filepath.Join(s.Dir(), "blobs", h.Algorithm, h.Hex)
	good, err := os.ReadFile(file)
	if err != nil {
		s.t.Fatal(err)
	}
	if bad := change(append([]byte(nil), good...)); bad == nil {
		err = os.Remove(file)
	} else {
		err = os.WriteFile(file, bad, 0o644)
	}
	if err != nil {
		s.t.Fatal(err)
	}
	f()
	if err := os.WriteFile(file, good, 0o644); err != nil {
		s.t.Fatal(err)
	}
}
