package e2e

import (
	"archive/tar"
	"bytes"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"

	assayversion "github.com/assay-hpc/assay"
	"github.com/assay-hpc/assay/build/base"
	"github.com/assay-hpc/assay/build/driver"
	"github.com/assay-hpc/assay/build/recipe"
	"github.com/assay-hpc/assay/internal/exit"
)

// broughtMatrix is a matrix of a user with an image as its base.
const broughtMatrix = `version: 1
repository: REGISTRY/site/assay
images:
  - name: site-debian12
    distro: debian
    release: "12"
    base:
      image: REGISTRY/site/base:1
      build: REGISTRY/site/compilers:1
      has: {mpi: /usr/local/mpi, hwloc: 2.9.0}
    platforms: [linux/ARCH]
    tag: "{name}-hwloc{hwloc}-{recipe}"
    moving: ["{name}"]
    components:
      jq: {packages: [jq, tar], needs: {mpi: present, hwloc: ">=2"}, checks: [{name: version, run: [jq, --version], prints: '{version.upstream:exact}'}]}
      agent: ./components/agent
      harness: release
`

// TestBroughtBase locks, builds, publishes and inspects an image on a base from a registry, as a person
// would: what the base has is in the SBOM as the base's, and the gate refuses a path that it has not.
// Its harness is one download.
func TestBroughtBase(t *testing.T) {
	addr := buildkit(t)
	if err := base.Check(); err != nil {
		t.Skip(err)
	}
	reg := httptest.NewServer(registry.New(registry.WithReferrersSupport(true), registry.Logger(log.New(io.Discard, "", 0))))
	defer reg.Close()
	host := strings.TrimPrefix(reg.URL, "http://")
	debian := debootstrapImage(t, addr)
	push(t, host+"/site/base:1", debian, "usr/local/mpi/include/mpi.h", "opt/assay/perftest/ib_write_bw") // the latter is replaced
	push(t, host+"/site/compilers:1", debian, "etc/compilers")

	dir := t.TempDir()
	file, key, public := filepath.Join(dir, "matrix.yaml"), filepath.Join(dir, "key.pem"), filepath.Join(dir, "public.pem")
	writeKeys(t, key, public)
	text := strings.NewReplacer("REGISTRY", host, "ARCH", runtime.GOARCH).Replace(broughtMatrix)
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write(text)
	writeAgent(t, filepath.Join(dir, "components/agent"))
	release := fmt.Sprintf("/assay-hpc/assay/releases/download/v%[1]s/harness_%[1]s_linux_%[2]s.tar.gz", assayversion.Version, runtime.GOARCH)
	writeRelease(t, filepath.Join(dir, "github", release))
	run := func(status int, args ...string) string {
		t.Helper()
		if args[0] != "inspect" {
			args = append(args, "--mirror", "https://github.com="+filepath.Join(dir, "github"))
		}
		cmd := assay(t, args...)
		cmd.Dir, cmd.Env = dir, append(os.Environ(), "ASSAY_STATE_DIR="+stateDir(t))
		out, err := cmd.CombinedOutput()
		if cmd.ProcessState.ExitCode() != status {
			t.Fatalf("assay %s: %v; want status %d\n%s", strings.Join(args, " "), err, status, out)
		}
		return string(out)
	}
	run(exit.Pass, "lock", "--builder", addr)
	locked, err := os.ReadFile(filepath.Join(dir, "matrix.lock"))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{host + "/site/base:1\": {digest: ", host + "/site/compilers:1\": {digest: ", "    installed:\n      tar: ", "/siteagent-1.2.0-py3-none-any.whl", "/sitelib-3.0-py3-none-any.whl", release} {
		if !strings.Contains(string(locked), want) {
			t.Errorf("matrix.lock lacks %q", want)
		}
	}
	if strings.Contains(string(locked), "goproxy:") {
		t.Error("matrix.lock has Go modules")
	}
	run(exit.Pass, "build", "--builder", addr, "--out", "oci:out", "--push", host+"/site/assay", "--sign-key", key, "--progress", progress())
	report := strings.Join(strings.Fields(run(exit.Pass, "inspect", "--key", public, host+"/site/assay:site-debian12")), " ")
	for _, want := range []string{" hwloc 2.9.0 (base) ", " mpi (base) ", " jq 1.", " agent 1.2.0 ", " certificate pass: "} {
		if !strings.Contains(report, want) {
			t.Errorf("assay inspect does not say %q:\n%s", want, report)
		}
	}

	write(strings.Replace(text, "mpi: /usr/local/mpi", "mpi: /usr/local/openmpi", 1))
	refused := run(exit.Fail, "build", "--builder", addr, "--out", "oci:out", "--progress", progress())
	if !strings.Contains(refused, "fail: component/mpi/has-usr-local-openmpi") {
		t.Errorf("the gate does not refuse a path that the base has not:\n%s", refused)
	}
}

// writeRelease packs the harness of "make build" as a release does.
func writeRelease(t *testing.T, file string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	name := strings.TrimSuffix(filepath.Base(file), ".tar.gz")
	if out, err := exec.Command("tar", "-czf", file, "-C", "../../bin", "--transform=s,^,"+name+"/,", "harness").CombinedOutput(); err != nil {
		t.Fatalf("tar: %v\n%s", err, out)
	}
}

// debootstrapImage returns the base that the real lock makes of Debian 12.
func debootstrapImage(t *testing.T, addr string) v1.Image {
	t.Helper()
	on := recipe.Platform{OS: "linux", Arch: runtime.GOARCH}
	w := workspace(t, "../../matrix.yaml", nil)
	w.Lock = realLock(t)
	s, stop, err := w.NewSolver(t.Context(), driver.BuildOptions{OutDir: t.TempDir(), Builders: []string{addr}, Progress: progress()})
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	mk, err := w.Recipe(w.Targets[0], on, on)
	if err != nil {
		t.Fatal(err)
	}
	src := mk.Recipe.Image().From
	if err := s.Provider.Prepare(t.Context(), &recipe.Recipe{Target: "base", Platform: on, Stages: []recipe.Stage{{Name: "base", From: src}}}, on); err != nil {
		t.Fatal(err)
	}
	manifest, err := s.Provider.Layout(src, on)
	if err != nil {
		t.Fatal(err)
	}
	return layoutImage(t, filepath.Join(w.StateDir, "content"), manifest.String())
}

// push pushes an image with more files.
func push(t *testing.T, ref string, img v1.Image, files ...string) {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, file := range files {
		if err := w.WriteHeader(&tar.Header{Name: file, Mode: 0o644, Size: 2}); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write([]byte("x\n")); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(b.Bytes())), nil })
	if err != nil {
		t.Fatal(err)
	}
	if img, err = mutate.AppendLayers(img, layer); err != nil {
		t.Fatal(err)
	}
	to, err := name.ParseReference(ref)
	if err != nil {
		t.Fatal(err)
	}
	if err := remote.Write(to, img); err != nil {
		t.Fatal(err)
	}
}

// writeKeys writes a new private and public key in PEM.
func writeKeys(t *testing.T, private, public string) {
	t.Helper()
	pub, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(private, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
	if der, err = x509.MarshalPKIXPublicKey(pub); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(public, pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}), 0o644); err != nil {
		t.Fatal(err)
	}
}
