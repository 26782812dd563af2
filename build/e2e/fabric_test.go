package e2e

import (
	"crypto"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/moby/buildkit/client"
	"go.yaml.in/yaml/v3"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/assay-hpc/assay/build/base"
	"github.com/assay-hpc/assay/build/driver"
	"github.com/assay-hpc/assay/build/inspect"
	"github.com/assay-hpc/assay/build/recipe"
	"github.com/assay-hpc/assay/internal/attest"
	"github.com/assay-hpc/assay/internal/certificate"
	"github.com/assay-hpc/assay/internal/oci"
	"github.com/assay-hpc/assay/internal/oci/ocitest"
	"github.com/assay-hpc/assay/internal/result"
)

const fabric = "fabric-debian12"

// built is fabric-debian12, locked and built once for all tests.
var built struct {
	once sync.Once
	w    *driver.Workspace
	out  string
	img  driver.ImageResult
}

// fabricImage locks fabric-debian12 afresh (the archive drops superseded
// packages, so an old lock may have gone stale) and builds it for this
// machine's architecture.
func fabricImage(t *testing.T) (*driver.Workspace, string, driver.ImageResult) {
	t.Helper()
	addr := buildkit(t)
	if err := base.Check(); err != nil {
		t.Skip(err)
	}
	built.once.Do(func() {
		dir := temporary(t)
		w := fabricWorkspace(t, dir)
		built.out = filepath.Join(dir, "out")
		built.img = lockAndBuild(t, w, addr, built.out)
		built.w = w
	})
	if built.w == nil {
		t.Skip("building fabric-debian12 failed, see the test before")
	}
	return built.w, built.out, built.img
}

// lockAndBuild locks a workspace's one target afresh, and builds it.
func lockAndBuild(t *testing.T, w *driver.Workspace, addr, out string) driver.ImageResult {
	t.Helper()
	rep, err := w.LockTargets(t.Context(), w.Targets, driver.BuildOptions{Builders: []string{addr}, Progress: progress()})
	if err != nil {
		t.Fatal(err)
	}
	for key, why := range rep.Unresolved {
		t.Fatalf("%s is unresolved: %s", key, why)
	}
	res, err := w.Build(t.Context(), driver.BuildOptions{OutDir: out, Builders: []string{addr}, Progress: progress()})
	if err != nil {
		t.Fatal(err)
	}
	if res.Failed() {
		t.Fatal(report(res))
	}
	return res.Targets[0].Images[0]
}

// fabricWorkspace opens the real matrix's first image alone.
func fabricWorkspace(t *testing.T, dir string) *driver.Workspace {
	t.Helper()
	platforms := []string{"linux/" + runtime.GOARCH}
	if os.Getenv("ASSAY_TEST_ARM64") != "" {
		platforms = []string{"linux/amd64", "linux/arm64"}
	}
	return imageWorkspace(t, dir, fabric, platforms)
}

// imageWorkspace opens one of the real matrix's images alone, for the platforms.
func imageWorkspace(t *testing.T, dir, name string, platforms []string) *driver.Workspace {
	t.Helper()
	text, err := os.ReadFile("../../matrix.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var doc map[string]any
	if err := yaml.Unmarshal(text, &doc); err != nil {
		t.Fatal(err)
	}
	images := doc["images"].([]any)
	i := slices.IndexFunc(images, func(image any) bool { return image.(map[string]any)["name"] == name })
	if i < 0 {
		t.Fatalf("matrix.yaml has no image %s", name)
	}
	image := images[i].(map[string]any)
	image["platforms"] = platforms
	one := map[string]any{"version": 1, "repository": doc["repository"], "images": []any{image}}
	if image["cuda"] != nil && image["compile"] == nil {
		image["compile"] = []string{"9.0"}
	}
	if text, err = yaml.Marshal(one); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "matrix.yaml")
	if err := os.WriteFile(file, text, 0o644); err != nil {
		t.Fatal(err)
	}
	return open(t, file, nil)
}

func TestFabricIsCertified(t *testing.T) {
	_, out, img := fabricImage(t)
	st, err := certificate.Parse(img.Certificate)
	if err != nil {
		t.Fatal(err)
	}
	if err := st.Verify(img.Digest); err != nil {
		t.Error(err)
	}
	wantPass := map[string]bool{"libraries": false, "mpi/ranks": false, "ssh/config": false, "ssh/host-keys": false, "dpkg/declared": false, "component/harness/version": false}
	for _, r := range st.Predicate.Results {
		if _, ok := wantPass[r.ID]; ok && r.Verdict == result.Pass {
			wantPass[r.ID] = true
		}
	}
	for id, ok := range wantPass {
		if !ok {
			t.Errorf("check %s did not pass", id)
		}
	}
	l, err := oci.Open(out)
	if err != nil {
		t.Fatal(err)
	}
	root, err := l.Find(fabric)
	if err != nil {
		t.Fatal(err)
	}
	if err := ocitest.Validate(t.Context(), out, root.Digest); err != nil {
		t.Error(err)
	}
	rep, err := inspectImage(t, "oci:"+out+":"+fabric)
	if err != nil {
		t.Errorf("Inspect: %v", err)
	}
	if rep == nil || len(rep.Images) != 1 {
		t.Fatalf("Inspect: %+v; want one image", rep)
	}
}

// inspectImage verifies an image with all that assay attaches to it.
func inspectImage(t *testing.T, ref string, keys ...crypto.PublicKey) (*inspect.Report, error) {
	t.Helper()
	src, err := oci.OpenSource(ref, oci.Options{Retry: oci.Retry{Attempts: 1}})
	if err != nil {
		return nil, err
	}
	return inspect.Inspect(t.Context(), src, attest.Policy{Keys: keys, Required: inspect.All})
}

// TestFabricIsUpToDate: a build that has nothing to do starts no builder.
func TestFabricIsUpToDate(t *testing.T) {
	w, out, img := fabricImage(t)
	res, err := w.Build(t.Context(), driver.BuildOptions{OutDir: out, Builders: []string{"unix:///nowhere"}, Progress: progress()})
	if err != nil {
		t.Fatal(err)
	}
	if got := res.Targets[0].Images[0]; !got.UpToDate || got.Digest != img.Digest {
		t.Errorf("second build: %+v; want it up to date with digest %s", got, img.Digest)
	}
}

// TestFabricReproduces builds the same lock again with nothing cached: another
// base, every step executed, and the same digest.
func TestFabricReproduces(t *testing.T) {
	long(t)
	first, _, img := fabricImage(t)
	addr := buildkit(t)
	dir := t.TempDir()
	for _, name := range []string{"matrix.yaml", "matrix.lock"} {
		text, err := os.ReadFile(filepath.Join(filepath.Dir(first.LockPath), name))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	prune(t, addr)
	w, err := driver.Open(driver.Options{Matrix: filepath.Join(dir, "matrix.yaml"), StateDir: filepath.Join(dir, "state"), Version: "test", Self: assayBinary(t), Log: t.Logf})
	if err != nil {
		t.Fatal(err)
	}
	res, err := w.Build(t.Context(), driver.BuildOptions{OutDir: filepath.Join(dir, "out"), Builders: []string{addr}, Progress: progress()})
	if err != nil {
		t.Fatal(err)
	}
	if res.Failed() {
		t.Fatal(report(res))
	}
	if got := res.Targets[0].Images[0].Digest; got != img.Digest {
		t.Errorf("the same lock gave %s, then %s: %s", img.Digest, got, difference(t, built.out, img.Digest, filepath.Join(dir, "out"), got))
	}
}

// TestFabricZstd: layers of the other compression hold the same files.
func TestFabricZstd(t *testing.T) {
	w, out, img := fabricImage(t)
	dir := t.TempDir()
	res, err := w.Build(t.Context(), driver.BuildOptions{OutDir: dir, Builders: []string{buildkit(t)}, Zstd: true, Progress: progress()})
	if err != nil {
		t.Fatal(err)
	}
	if res.Failed() {
		t.Fatal(report(res))
	}
	a, b := manifest(t, out, img.Digest), manifest(t, dir, res.Targets[0].Images[0].Digest)
	if len(a.Layers) != len(b.Layers) {
		t.Fatalf("%d layers with gzip, %d with zstd", len(a.Layers), len(b.Layers))
	}
	// The first layer is the base's and stays as it is.
	for i, l := range b.Layers[1:] {
		if l.MediaType != types.OCILayerZStd {
			t.Errorf("layer %d is %s", i+1, l.MediaType)
		}
	}
}

func manifest(t *testing.T, out, digest string) *v1.Manifest {
	t.Helper()
	m, err := layoutImage(t, out, digest).Manifest()
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// layoutImage returns an image of a layout.
func layoutImage(t *testing.T, dir, digest string) v1.Image {
	t.Helper()
	h, err := v1.NewHash(digest)
	if err != nil {
		t.Fatal(err)
	}
	img, err := layout.Path(dir).Image(h)
	if err != nil {
		t.Fatal(err)
	}
	return img
}

// prune empties the builder's cache.
func prune(t *testing.T, addr string) {
	t.Helper()
	c, err := client.New(t.Context(), addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := c.Prune(t.Context(), nil, client.PruneAll); err != nil {
		t.Fatal(err)
	}
}

// unpack extracts an image of a layout into a directory.
func unpack(t *testing.T, out, digest string) string {
	t.Helper()
	img := layoutImage(t, out, digest)
	dir := filepath.Join(t.TempDir(), "rootfs")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	r := mutate.Extract(img)
	defer r.Close()
	cmd := exec.Command("tar", "-x", "-p", "--numeric-owner", "-C", dir)
	cmd.Stdin = r
	if text, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("tar: %v\n%s", err, text)
	}
	return dir
}

// difference names the first files that differ between two images.
func difference(t *testing.T, outA, a, outB, b string) string {
	t.Helper()
	text, _ := exec.Command("diff", "-rq", "--no-dereference", unpack(t, outA, a), unpack(t, outB, b)).CombinedOutput()
	lines := strings.SplitN(string(text), "\n", 11)
	return strings.Join(lines[:min(len(lines), 10)], "\n")
}

// TestFabricRuns starts the image from the layout with runc.
func TestFabricRuns(t *testing.T) {
	_, out, img := fabricImage(t)
	if _, err := exec.LookPath("runc"); err != nil {
		t.Skip(err)
	}
	text := runc(t, unpack(t, out, img.Digest), "mpirun", "--allow-run-as-root", "--oversubscribe", "-np", "2", "harness", "version")
	if n := strings.Count(text, "harness "); n != 2 {
		t.Errorf("mpirun -np 2 harness version printed %q; want two lines", text)
	}
}

// runc runs a command in a root file system, with a network namespace of its
// own, and returns what it printed.
func runc(t *testing.T, rootfs string, args ...string) string {
	t.Helper()
	bundle := filepath.Dir(rootfs)
	file := filepath.Join(bundle, "config.json")
	_ = os.Remove(file) // of a call before
	if text, err := exec.Command("runc", "spec", "--bundle", bundle).CombinedOutput(); err != nil {
		t.Fatalf("runc spec: %v\n%s", err, text)
	}
	raw, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var spec map[string]any
	if err := json.Unmarshal(raw, &spec); err != nil {
		t.Fatal(err)
	}
	process := spec["process"].(map[string]any)
	process["terminal"] = false
	process["args"] = args
	process["env"] = []string{"PATH=/opt/assay/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root"}
	spec["root"] = map[string]any{"path": "rootfs", "readonly": false}
	if raw, err = json.Marshal(spec); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, raw, 0o644); err != nil {
		t.Fatal(err)
	}
	id := "assay-" + filepath.Base(filepath.Dir(bundle)) + "-" + filepath.Base(bundle)
	cmd := exec.CommandContext(t.Context(), "runc", "--root", filepath.Join(bundle, "runc"), "run", "--bundle", bundle, id)
	text, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("runc run %v: %v\n%s", args, err, text)
	}
	return string(text)
}

// TestFabricBothPlatforms builds and certifies the other architecture under
// emulation; it is slow and runs when ASSAY_TEST_ARM64 is set (make
// test ONLY=arm64).
func TestFabricBothPlatforms(t *testing.T) {
	if os.Getenv("ASSAY_TEST_ARM64") == "" {
		t.Skip("slow: make test ONLY=arm64 runs it")
	}
	_, out, _ := fabricImage(t)
	rep, err := inspectImage(t, "oci:"+out+":"+fabric)
	if err != nil {
		t.Fatal(err)
	}
	if len(rep.Images) != 2 {
		t.Fatalf("the index holds %d images; want linux/amd64 and linux/arm64", len(rep.Images))
	}
	for _, img := range rep.Images {
		if _, err := recipe.ParsePlatform(img.Platform); err != nil {
			t.Error(err)
		}
	}
}
