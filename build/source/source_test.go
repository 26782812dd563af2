package source

import (
	"archive/tar"
	"bytes"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "github.com/google/go-containerregistry/pkg/v1"

	assay "github.com/assay-hpc/assay"
)

func file(text string, mode fs.FileMode, modified time.Time) *fstest.MapFile {
	return &fstest.MapFile{Data: []byte(text), Mode: mode, ModTime: modified}
}

// untar returns a tar's regular files, and their headers in order.
func untar(t *testing.T, data []byte) (map[string]string, []*tar.Header) {
	t.Helper()
	files := map[string]string{}
	var headers []*tar.Header
	for r := tar.NewReader(bytes.NewReader(data)); ; {
		h, err := r.Next()
		if err == io.EOF {
			return files, headers
		}
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		files[h.Name] = string(text)
		headers = append(headers, h)
	}
}

func TestTar(t *testing.T) {
	now := time.Unix(1_767_225_600, 5)
	tree := fstest.MapFS{
		"go.mod":                     file("module x\n", 0o644, now),
		"go.sum":                     file("", 0o600, now),
		"cmd/x/main.go":              file("package main\n", 0o755, now),
		"cmd/x/main_test.go":         file("package main\n", 0o644, now),
		"cmd/x/modules.txt":          file("a v1\n", 0o644, now),
		"cmd/x/README.md":            file("# x\n", 0o644, now),
		"cmd/x/.hidden":              file("x", 0o644, now),
		"cmd/x/testdata/in.go":       file("package in\n", 0o644, now),
		"cmd/x/testdata/deep/in.txt": file("", 0o644, now),
		"a/b.s":                      file("TEXT\n", 0o644, now),
		"a/testing.go":               file("package a\n", 0o644, now),
	}
	data, digest, err := Tar(tree)
	if err != nil {
		t.Fatal(err)
	}
	files, headers := untar(t, data)
	want := map[string]string{"a/b.s": "TEXT\n", "a/testing.go": "package a\n", "cmd/x/main.go": "package main\n", "cmd/x/modules.txt": "a v1\n", "go.mod": "module x\n", "go.sum": ""}
	if diff := cmp.Diff(want, files); diff != "" {
		t.Errorf("files (-want +got):\n%s", diff)
	}
	if !slices.IsSortedFunc(headers, func(a, b *tar.Header) int { return strings.Compare(a.Name, b.Name) }) {
		t.Error("the files are not sorted")
	}
	for _, h := range headers {
		if h.Mode != 0o644 || !h.ModTime.Equal(time.Unix(0, 0)) || h.Uid != 0 || h.Uname != "" {
			t.Errorf("%s has mode %o, time %v, owner %d %q", h.Name, h.Mode, h.ModTime, h.Uid, h.Uname)
		}
	}

	// What is not the source does not show: times, modes, tests.
	for _, f := range tree {
		f.ModTime, f.Mode = now.Add(time.Hour), 0o600
	}
	tree["cmd/x/main_test.go"].Data = []byte("package other\n")
	delete(tree, "cmd/x/testdata/in.go")
	if again, d, err := Tar(tree); err != nil || d != digest || !bytes.Equal(again, data) {
		t.Errorf("another tar of the same source: %s, %v; want %s", d, err, digest)
	}
	// What is, does.
	tree["a/b.s"].Data = []byte("TEXT2\n")
	if _, d, _ := Tar(tree); d == digest {
		t.Error("another source has the same digest")
	}
}

func TestTarError(t *testing.T) {
	if _, _, err := Tar(os.DirFS(filepath.Join(t.TempDir(), "gone"))); err == nil {
		t.Error("Tar of nothing gives no error")
	}
}

// TestEmbeddedDirectory: what is embedded and what lies in the checkout make
// the same tar.
func TestEmbeddedDirectory(t *testing.T) {
	_, embedded, err := Tar(assay.HarnessSource)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for _, pattern := range embedPatterns(t) {
		names, err := filepath.Glob("../../" + pattern)
		if err != nil || len(names) == 0 {
			t.Fatalf("%s: %v, %v", pattern, names, err)
		}
		at := filepath.Join(dir, filepath.Dir(pattern))
		if err := os.MkdirAll(at, 0o755); err != nil {
			t.Fatal(err)
		}
		if out, err := exec.Command("cp", append(append([]string{"-r"}, names...), at)...).CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	_, checkout, err := Tar(os.DirFS(dir))
	if err != nil || embedded != checkout {
		t.Errorf("the embedded source is %s, the checkout's %s (%v)", embedded, checkout, err)
	}
}

// embedPatterns are those of HarnessSource.
func embedPatterns(t *testing.T) []string {
	text, err := os.ReadFile("../../assay.go")
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for line := range strings.Lines(string(text)) {
		if list, ok := strings.CutPrefix(line, "//go:embed "); ok {
			all = append(all, strings.Fields(list)...)
		}
		if strings.HasPrefix(line, "var HarnessSource") {
			return all[2:] // without the matrix and its lock
		}
	}
	t.Fatal("assay.go has no HarnessSource")
	return nil
}

// TestHarnessSourceBuilds: what assay carries is enough to compile the
// harness, without network, as a build does.
func TestHarnessSourceBuilds(t *testing.T) {
	if testing.Short() {
		t.Skip("compiles the harness")
	}
	data, _, err := Tar(assay.HarnessSource)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	files, _ := untar(t, data)
	for name, text := range files {
		if strings.HasSuffix(name, "_test.go") || strings.Contains(name, "testdata/") {
			t.Errorf("%s is no part of what is compiled", name)
		}
		at := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(at, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, arch := range []string{"amd64", "arm64"} {
		args := []string{"list", "-deps", "./cmd/harness"} // all that is compiled is there
		if arch == runtime.GOARCH {
			args = []string{"build", "-o", filepath.Join(dir, "out"), "./cmd/harness"}
		}
		cmd := exec.Command("go", args...)
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "GOARCH="+arch, "GOOS=linux", "CGO_ENABLED=0", "GOPROXY=off", "GOWORK=off", "GOTOOLCHAIN=local",
			"GOFLAGS=-mod=readonly -trimpath -buildvcs=false -tags=urfave_cli_no_docs")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%s: %v: %v\n%s", arch, cmd.Args, err, out)
		}
	}
}

func digestOf(t *testing.T, img v1.Image) string {
	t.Helper()
	h, err := img.Digest()
	if err != nil {
		t.Fatal(err)
	}
	return h.String()
}

func TestImage(t *testing.T) {
	data, _, err := Tar(fstest.MapFS{"go.mod": file("module x\n", 0o644, time.Time{})})
	if err != nil {
		t.Fatal(err)
	}
	img, err := Image(data, "arm64")
	if err != nil {
		t.Fatal(err)
	}
	again, err := Image(data, "arm64")
	if err != nil || digestOf(t, again) != digestOf(t, img) {
		t.Errorf("the same source makes two images: %s and %s (%v)", digestOf(t, again), digestOf(t, img), err)
	}
	cfg, err := img.ConfigFile()
	if err != nil || cfg.OS != "linux" || cfg.Architecture != "arm64" || cfg.RootFS.Type != "layers" || len(cfg.RootFS.DiffIDs) != 1 || len(cfg.Config.Env) != 0 {
		t.Errorf("the configuration is %+v, %v", cfg, err)
	}
	m, err := img.Manifest()
	if err != nil || m.MediaType != "application/vnd.oci.image.manifest.v1+json" || m.Config.MediaType != "application/vnd.oci.image.config.v1+json" {
		t.Errorf("the manifest is %+v, %v", m, err)
	}
}

func TestFile(t *testing.T) {
	bin := filepath.Join(t.TempDir(), "some-name")
	if err := os.WriteFile(bin, []byte("\x7fELF"), 0o600); err != nil {
		t.Fatal(err)
	}
	img, err := File(bin, "harness", 0o755, "amd64")
	if err != nil {
		t.Fatal(err)
	}
	layers, err := img.Layers()
	if err != nil || len(layers) != 1 {
		t.Fatalf("%d layers, %v", len(layers), err)
	}
	r, err := layers[0].Uncompressed()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	data, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	files, headers := untar(t, data)
	if len(headers) != 1 || headers[0].Mode != 0o755 || files["harness"] != "\x7fELF" {
		t.Errorf("the layer holds %q with mode %o", files, headers[0].Mode)
	}
	if _, err := File(bin+"-gone", "harness", 0o755, "amd64"); err == nil {
		t.Error("a binary that is not there makes an image")
	}
}
