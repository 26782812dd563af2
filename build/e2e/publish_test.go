package e2e

import (
	"crypto/ed25519"
	"crypto/rand"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"strings"
	"sync/atomic"
	"testing"

	"crypto"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/google/go-containerregistry/pkg/v1/remote"

	"github.com/assay-hpc/assay/build/driver"
	"github.com/assay-hpc/assay/build/standin"
	"github.com/assay-hpc/assay/internal/attest"
	"github.com/assay-hpc/assay/internal/certificate"
	"github.com/assay-hpc/assay/internal/golden"
	"github.com/assay-hpc/assay/internal/result"
)

// flakyRegistry is a real registry that answers 500 on every tenth request.
func flakyRegistry(t *testing.T) (repo string, requests *atomic.Int64) {
	t.Helper()
	requests = &atomic.Int64{}
	reg := registry.New(registry.WithReferrersSupport(true), registry.Logger(log.New(io.Discard, "", 0)))
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if requests.Add(1)%10 == 0 {
			http.Error(w, "every tenth request fails", http.StatusInternalServerError)
			return
		}
		reg.ServeHTTP(w, r)
	}))
	t.Cleanup(srv.Close)
	return strings.TrimPrefix(srv.URL, "http://") + "/assay", requests
}

// TestStandinMatrix builds, certifies, signs and publishes every row of the
// stand-in matrix, and verifies what is in the registry.
func TestStandinMatrix(t *testing.T) {
	long(t)
	addr := buildkit(t)
	u := upstreams(t, standin.Options{})
	w := workspace(t, "testdata/standin.yaml", u.Mirrors())
	lockAll(t, w, u, addr)
	pub, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	repo, _ := flakyRegistry(t)
	opts := driver.BuildOptions{Names: []string{"*"}, OutDir: t.TempDir(), Push: repo, SignKey: key, Builders: []string{addr}, Progress: progress()}
	res, err := w.Build(t.Context(), opts)
	if err != nil {
		t.Fatal(err)
	}
	if res.Failed() {
		t.Fatal(report(res))
	}
	for _, tr := range res.Targets {
		checkPublished(t, repo, tr, pub)
	}
	if golden.Update() { // the record of what was executed
		args := []string{"run", "./build/e2e/upstreams", "-standin", "-layout", opts.OutDir}
		for _, tr := range res.Targets {
			args = append(args, tr.Target)
		}
		record := exec.CommandContext(t.Context(), "go", args...)
		record.Dir = "../.."
		if out, err := record.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	checkBase(t, w, repo, res.Targets[0], addr)

	again, err := w.Build(t.Context(), opts)
	if err != nil {
		t.Fatal(err)
	}
	for _, tr := range again.Targets {
		if tr.Failed || tr.Pushed == nil || tr.Pushed.Blobs+tr.Pushed.Manifests+tr.Pushed.Tags != 0 {
			t.Errorf("second push of %s: failed=%v %+v; want nothing uploaded", tr.Target, tr.Failed, tr.Pushed)
		}
	}
}

func checkPublished(t *testing.T, repo string, tr driver.TargetResult, pub crypto.PublicKey) {
	t.Helper()
	for _, tag := range tr.Tags {
		rep, err := inspectImage(t, repo+":"+tag, pub)
		if err != nil {
			t.Errorf("inspect %s: %v", tag, err)
			continue
		}
		if rep.Digest != tr.Digest {
			t.Errorf("tag %s is %s; want %s", tag, rep.Digest, tr.Digest)
		}
		for _, img := range rep.Images {
			if img.Certificate == nil || img.Certificate.Verdict != result.Pass || img.Packages == 0 || img.Provenance == nil || len(img.Components) < 10 {
				t.Errorf("%s %s: certificate %v, %d packages, provenance %v, %d components", tag, img.Platform, img.Certificate, img.Packages, img.Provenance, len(img.Components))
			}
			checkHistory(t, repo, img.Digest)
			for _, a := range img.Attached {
				if a.Signature != attest.Verified {
					t.Errorf("%s %s: %s is %s", tag, img.Platform, a.Predicate, a.Signature)
				}
			}
		}
	}
}

// checkBase: what the base lacks is set aside where the image itself says what its
// base was, and where nothing of what it says is believed.
func checkBase(t *testing.T, w *driver.Workspace, repo string, tr driver.TargetResult, addr string) {
	t.Helper()
	res, err := w.Certify(t.Context(), repo+":"+tr.Tags[0], driver.CertifyOptions{Target: tr.Target}, driver.BuildOptions{Builders: []string{addr}, Progress: progress()})
	if err != nil {
		t.Fatal(err)
	}
	st, err := certificate.Parse(res[0].Certificate)
	if err != nil {
		t.Fatalf("%v; %s", err, res[0].Error)
	}
	for _, r := range st.Predicate.Results {
		if r.ID == "libraries" && (r.Verdict != result.Pass || !strings.Contains(r.Output, "set aside: libstandin-desktop.so.6 is missing, as in the base, for the base's own nsight-compute-2025.2.1")) {
			t.Errorf("libraries = %s (%s)\n%s; want Nsight Compute's set aside", r.Verdict, r.Reason, r.Output)
		}
	}
	if st.Predicate.Verdict != result.Pass {
		t.Errorf("%s: %s", tr.Target, res[0].Error)
	}
}

// checkHistory: an image says what its base is, not where the base was pulled
// from, which would make another digest elsewhere.
func checkHistory(t *testing.T, repo, digest string) {
	t.Helper()
	ref, err := name.NewDigest(repo + "@" + digest)
	if err != nil {
		t.Fatal(err)
	}
	img, err := remote.Image(ref)
	if err != nil {
		t.Fatal(err)
	}
	cfg, err := img.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	bases := 0
	for _, h := range cfg.History {
		if strings.Contains(h.CreatedBy, "127.0.0.1") || strings.Contains(h.CreatedBy, "localhost") {
			t.Errorf("%s: history has %q", digest, h.CreatedBy)
		}
		if strings.HasPrefix(h.CreatedBy, "pulled from index.docker.io/") {
			bases++
		}
	}
	if bases == 0 {
		t.Errorf("%s: history does not name the base: %v", digest, cfg.History)
	}
}
