package e2e

import (
	"io"
	"log"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/google/go-containerregistry/pkg/v1/layout"

	"github.com/assay-hpc/assay/internal/exit"
	"github.com/assay-hpc/assay/internal/oci"
)

// onAssay is a matrix of a user on an image of assay's.
const onAssay = `version: 1
repository: REGISTRY/site/assay
images:
  - name: site-fabric
    distro: debian
    release: "12"
    base: {image: "REGISTRY/assay:fabric-debian12", has: {harness: /opt/assay/bin/harness}}
    platforms: [linux/ARCH]
    tag: "{name}-{recipe}"
    moving: ["{name}"]
    components:
      jq: {packages: [jq], checks: [{name: version, run: [jq, --version], prints: '{version.upstream:exact}'}]}
`

// TestAssayBase: on an image of assay's nothing of it is compiled again; its declaration is carried
// over, and the image is certified as a whole, in the gate and by its own harness. A base without a
// certificate, or with that of another key, is refused.
func TestAssayBase(t *testing.T) {
	w, out, img := fabricImage(t)
	addr := buildkit(t)
	reg := httptest.NewServer(registry.New(registry.WithReferrersSupport(true), registry.Logger(log.New(io.Discard, "", 0))))
	defer reg.Close()
	host := strings.TrimPrefix(reg.URL, "http://")
	dir := t.TempDir()
	key, public := filepath.Join(dir, "key.pem"), filepath.Join(dir, "public.pem")
	writeKeys(t, key, public)
	other := filepath.Join(dir, "other.pem")
	writeKeys(t, filepath.Join(dir, "otherkey.pem"), other)
	if err := os.WriteFile(filepath.Join(dir, "matrix.yaml"), []byte(strings.NewReplacer("REGISTRY", host, "ARCH", runtime.GOARCH).Replace(onAssay)), 0o644); err != nil {
		t.Fatal(err)
	}
	run := func(status int, args ...string) string {
		t.Helper()
		cmd := assay(t, args...)
		cmd.Dir, cmd.Env = dir, append(os.Environ(), "ASSAY_STATE_DIR="+stateDir(t))
		text, _ := cmd.CombinedOutput()
		if cmd.ProcessState.ExitCode() != status {
			t.Fatalf("assay %s: status %d; want %d\n%s", strings.Join(args, " "), cmd.ProcessState.ExitCode(), status, text)
		}
		return string(text)
	}
	// The image alone, without what is attached to it.
	push(t, host+"/assay:fabric-debian12", layoutImage(t, out, img.Digest))
	if text := run(exit.Fail, "lock", "--builder", addr); !strings.Contains(text, "takes "+host+"/assay:fabric-debian12 for an image of assay's") {
		t.Errorf("a base without a certificate: %s", text)
	}
	// It is up to date, and gets signatures.
	signed := filepath.Join(dir, "signed")
	if err := os.CopyFS(signed, os.DirFS(out)); err != nil {
		t.Fatal(err)
	}
	run(exit.Pass, "build", fabric, "--matrix", filepath.Join(filepath.Dir(w.LockPath), "matrix.yaml"), "--builder", addr, "--out", "oci:"+signed, "--sign-key", key, "--push", host+"/assay")
	if text := run(exit.Fail, "lock", "--builder", addr, "--base-key", other); !strings.Contains(text, "is signed by another key") {
		t.Errorf("a base signed by another: %s", text)
	}
	run(exit.Pass, "lock", "--builder", addr, "--base-key", public)
	run(exit.Pass, "build", "--builder", addr, "--out", "oci:out", "--push", host+"/site/assay", "--sign-key", key, "--progress", progress())
	report := strings.Join(strings.Fields(run(exit.Pass, "inspect", "--key", public, host+"/site/assay:site-fabric")), " ")
	for _, want := range []string{" harness 0.1.0 (base) ", " openmpi 4.1.4-", " jq 1.6-", " certificate pass: "} {
		if !strings.Contains(report, want) {
			t.Errorf("assay inspect does not say %q:\n%s", want, report)
		}
	}
	l, err := oci.Open(filepath.Join(dir, "out"))
	if err != nil {
		t.Fatal(err)
	}
	root, err := l.Find("site-fabric")
	if err != nil {
		t.Fatal(err)
	}
	index, err := layout.ImageIndexFromPath(l.Dir())
	if err == nil {
		index, err = index.ImageIndex(root.Digest)
	}
	if err != nil {
		t.Fatal(err)
	}
	images, err := index.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	text := runc(t, unpack(t, l.Dir(), images.Manifests[0].Digest.String()), "harness", "certify", "--suite", "image")
	for _, want := range []string{"component/openmpi/", "component/jq/version", "component/harness/four-ranks-reduce"} {
		if !strings.Contains(text, want) {
			t.Errorf("harness certify does not check %q:\n%s", want, text)
		}
	}
}
