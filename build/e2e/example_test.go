package e2e

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/containerd/containerd/v2/core/content"
	contentlocal "github.com/containerd/containerd/v2/plugins/content/local"
	"github.com/moby/buildkit/client"
	"github.com/moby/buildkit/exporter/containerimage/exptypes"
	"github.com/tonistiigi/fsutil"

	"github.com/assay-hpc/assay/build/dockerfile"
	"github.com/assay-hpc/assay/build/driver"
	"github.com/assay-hpc/assay/build/recipe"
	"github.com/assay-hpc/assay/internal/result"
)

// dockerBuild builds a Dockerfile and returns the image's unpacked root.
func dockerBuild(t *testing.T, addr, dir string, args, contexts, stores map[string]string) string {
	t.Helper()
	out, digest := dockerImage(t, addr, dir, args, contexts, stores)
	return unpack(t, out, digest)
}

// dockerImage builds a Dockerfile with BuildKit's own frontend and returns a
// layout and the image's digest in it. Contexts map a name to "STORE@DIGEST";
// stores to OCI layouts.
func dockerImage(t *testing.T, addr, dir string, args, contexts, stores map[string]string) (out, digest string) {
	t.Helper()
	c, err := client.New(t.Context(), addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	src, err := fsutil.NewFS(dir)
	if err != nil {
		t.Fatal(err)
	}
	opt := client.SolveOpt{
		Frontend: "dockerfile.v0", FrontendAttrs: map[string]string{},
		LocalMounts: map[string]fsutil.FS{"context": src, "dockerfile": src},
		OCIStores:   map[string]content.Store{},
		Exports:     []client.ExportEntry{{Type: client.ExporterOCI, Attrs: map[string]string{"tar": "false"}, OutputDir: t.TempDir()}},
	}
	for k, v := range args {
		opt.FrontendAttrs["build-arg:"+k] = v
	}
	for k, v := range contexts {
		opt.FrontendAttrs["context:"+k] = "oci-layout://" + v
	}
	for name, dir := range stores {
		if opt.OCIStores[name], err = contentlocal.NewStore(dir); err != nil {
			t.Fatal(err)
		}
	}
	res, err := c.Solve(t.Context(), nil, opt, display(t))
	if err != nil {
		t.Fatalf("dockerfile: %v", err)
	}
	return opt.Exports[0].OutputDir, res.ExporterResponse[exptypes.ExporterImageDigestKey]
}

// display keeps the end of a build's log for a test that fails.
func display(t *testing.T) chan *client.SolveStatus {
	ch := make(chan *client.SolveStatus)
	done := make(chan struct{})
	var lines []string
	go func() {
		defer close(done)
		for s := range ch {
			for _, l := range s.Logs {
				lines = append(lines, strings.TrimRight(string(l.Data), "\n"))
			}
		}
	}()
	t.Cleanup(func() {
		<-done
		if t.Failed() {
			t.Log(strings.Join(lines[max(0, len(lines)-30):], "\n"))
		}
	})
	return ch
}

// TestExampleMPI builds examples/mpi on top of the image made here and runs it.
func TestExampleMPI(t *testing.T) {
	_, out, img := fabricImage(t)
	rootfs := dockerBuild(t, buildkit(t), "../../examples/mpi", map[string]string{"BASE": "fabric"},
		map[string]string{"fabric": "out@" + img.Digest}, map[string]string{"out": out})
	text := runc(t, rootfs, "mpirun", "--allow-run-as-root", "--oversubscribe", "-np", "3", "/usr/local/bin/ring")
	if !strings.Contains(text, "3") {
		t.Errorf("ring printed %q", text)
	}
}

// TestBaseImagesDocument builds docs/base-images.md's Dockerfile on top of the image
// made here, and certifies the result against the base's target.
func TestBaseImagesDocument(t *testing.T) {
	w, out, img := fabricImage(t)
	text, err := os.ReadFile("../../docs/base-images.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), "```dockerfile\n")
	file, _, ok := strings.Cut(rest, "```\n")
	if !ok {
		t.Fatal("the document has no Dockerfile")
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "Dockerfile"), []byte(file), 0o644); err != nil {
		t.Fatal(err)
	}
	made, digest := dockerImage(t, buildkit(t), dir, map[string]string{"BASE": "fabric"},
		map[string]string{"fabric": "out@" + img.Digest}, map[string]string{"out": out})
	for _, target := range []string{"", w.Targets[0].Name} {
		res, err := w.Certify(t.Context(), "oci:"+made+"@"+digest, driver.CertifyOptions{Target: target}, driver.BuildOptions{Builders: []string{buildkit(t)}, Progress: progress()})
		if err != nil || len(res) != 1 || res[0].Error != "" || res[0].Verdict != result.Pass {
			t.Errorf("as %q: %+v, %v", target, res, err)
		}
	}
}

// TestDockerfileIsTheSameImage builds the recipe's other forms, a Dockerfile alone and one with files
// beside it, and compares the file trees.
func TestDockerfileIsTheSameImage(t *testing.T) {
	cold(t)
	w, out, img := fabricImage(t)
	p, err := recipe.ParsePlatform(img.Platform)
	if err != nil {
		t.Fatal(err)
	}
	mk, err := w.Recipe(w.Targets[0], p, p)
	if err != nil {
		t.Fatal(err)
	}
	env := dockerfile.Env{Epoch: w.Epoch(), URL: w.Mirror.URL, Image: w.Mirror.Image, Sed: w.Mirror.Sed()}
	text, err := dockerfile.Write(mk.Recipe, env)
	if err != nil {
		t.Fatal(err)
	}
	files, err := dockerfile.Directory(mk.Recipe, env)
	if err != nil {
		t.Fatal(err)
	}
	contexts, store := layouts(t, w, mk.Recipe, p)
	want := unpack(t, out, img.Digest)
	for form, files := range map[string]map[string]string{"alone": {"Dockerfile": text}, "directory": files} {
		t.Run(form, func(t *testing.T) {
			files["Dockerfile"] = strings.Replace(files["Dockerfile"], "# syntax=docker/dockerfile:1\n", "", 1)
			dir := filepath.Join(t.TempDir(), "context")
			if err := driver.WriteDockerfile(dir, files); err != nil {
				t.Fatal(err)
			}
			got := dockerBuild(t, buildkit(t), dir, map[string]string{"SOURCE_DATE_EPOCH": epoch(w)}, contexts, map[string]string{"assay": store})
			compareTrees(t, want, got)
		})
	}
}

// layouts returns the named contexts for what assay itself provides.
func layouts(t *testing.T, w *driver.Workspace, r *recipe.Recipe, p recipe.Platform) (map[string]string, string) {
	t.Helper()
	contexts := map[string]string{}
	s, stop, err := w.NewSolver(context.Background(), driver.BuildOptions{OutDir: t.TempDir(), Builders: []string{buildkit(t)}, Progress: "quiet"})
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	if err := s.Provider.Prepare(t.Context(), r, p); err != nil {
		t.Fatal(err)
	}
	add := func(src recipe.Source) {
		if src.Kind != recipe.FromLayout {
			return
		}
		d, err := s.Provider.Layout(src, p)
		if err != nil {
			t.Fatal(err)
		}
		contexts[src.Ref] = "assay@" + d.String()
	}
	for _, st := range r.Stages {
		add(st.From)
		for _, step := range st.Steps {
			if run, ok := step.(recipe.Run); ok {
				for _, m := range run.Mounts {
					add(m.From)
				}
			}
		}
	}
	return contexts, filepath.Join(w.StateDir, "content")
}
