package assay_test

import (
	"bytes"
	"errors"
	"go/version"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/mod/modfile"

	assay "github.com/assay-hpc/assay"
	"github.com/assay-hpc/assay/build/component"
	"github.com/assay-hpc/assay/build/lock"
)

// A build is one way in which the harness is compiled in images.
type build struct {
	name, tags, cgo string
	modules         string
	also            []string // packages that it takes besides ./cmd/harness
}

var builds = []build{
	{"without GPUs", "urfave_cli_no_docs", "0", assay.HarnessModules, nil},
	{"for GPUs", "cuda,nvml,urfave_cli_no_docs", "1", assay.CUDAModules, []string{"./coll/cuda/kernels/gen", "./cmd/libnccl"}},
}

// list runs go list on packages, as they are compiled in images.
func (b build) list(t *testing.T, arch, format string, packages ...string) []string {
	t.Helper()
	cmd := exec.Command("go", append([]string{"list", "-tags", b.tags, "-deps", "-f", format}, packages...)...)
	cmd.Env = append(cmd.Environ(), "GOOS=linux", "GOARCH="+arch, "CGO_ENABLED="+b.cgo, "GOFLAGS=-mod=readonly")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %v\n%s", cmd.Args, err, stderr.String())
	}
	var lines []string
	for line := range strings.Lines(string(out)) {
		if line = strings.TrimSpace(line); line != "" {
			lines = append(lines, line)
		}
	}
	slices.Sort(lines)
	return slices.Compact(lines)
}

// all lists ./cmd/harness and what else the build takes.
func (b build) all(t *testing.T, arch, format string) []string {
	t.Helper()
	return b.list(t, arch, format, append(b.also, "./cmd/harness")...)
}

// TestHarnessModules: the list that is fetched, pinned, for compiling the
// harness is what it is compiled from.
func TestHarnessModules(t *testing.T) {
	for _, b := range builds {
		got := strings.Split(strings.TrimSpace(b.modules), "\n")
		slices.Sort(got)
		for _, arch := range []string{"amd64", "arm64"} {
			const format = "{{with .Module}}{{if not .Main}}{{$.ImportPath}}{{end}}{{end}}"
			want := modules(t, b.list(t, arch, format, "./cmd/harness"))
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("modules %s for %s (-want +got; go generate writes the list):\n%s", b.name, arch, diff)
			}
			// What else is compiled gets no modules of its own.
			for _, m := range modules(t, b.all(t, arch, format)) {
				if !slices.Contains(got, m) {
					t.Errorf("%v needs %s, which the harness does not", b.also, m)
				}
			}
		}
		for _, m := range got {
			if !strings.Contains(modFile(t, "go.sum"), m+" h1:") {
				t.Errorf("go.sum does not vouch for %s", m)
			}
		}
	}
}

// modules are those of go.mod in which Go looks for packages: whose path is the
// beginning of a package's.
func modules(t *testing.T, packages []string) []string {
	t.Helper()
	f, err := modfile.Parse("go.mod", []byte(modFile(t, "go.mod")), nil)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, r := range f.Require {
		if slices.ContainsFunc(packages, func(p string) bool { return p == r.Mod.Path || strings.HasPrefix(p, r.Mod.Path+"/") }) {
			out = append(out, r.Mod.Path+" "+r.Mod.Version)
		}
	}
	slices.Sort(out)
	return out
}

func modFile(t *testing.T, name string) string {
	t.Helper()
	text, err := fs.ReadFile(assay.HarnessSource, name)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestHarnessSource: every file of this module that the harness is compiled
// from, or embeds, is in the source that assay carries.
func TestHarnessSource(t *testing.T) {
	// And no more than it: another directory would make new images of changes
	// that do not touch them.
	want := map[string]bool{}
	for _, b := range builds {
		for _, arch := range []string{"amd64", "arm64"} {
			files := b.all(t, arch, `{{with .Module}}{{if .Main}}{{$dir := $.ImportPath}}{{range $.GoFiles}}{{$dir}}/{{.}}
{{end}}{{range $.CgoFiles}}{{$dir}}/{{.}}
{{end}}{{range $.CFiles}}{{$dir}}/{{.}}
{{end}}{{range $.HFiles}}{{$dir}}/{{.}}
{{end}}{{range $.EmbedFiles}}{{$dir}}/{{.}}
{{end}}{{range $.SFiles}}{{$dir}}/{{.}}
{{end}}{{end}}{{end}}`)
			if len(files) < 20 {
				t.Fatalf("the harness has %d files", len(files))
			}
			for _, f := range files {
				name := strings.TrimPrefix(f, modulePath+"/")
				if _, err := fs.Stat(assay.HarnessSource, name); err != nil {
					t.Errorf("the harness is compiled from %s, which is not embedded (add its directory to the go:embed line): %v", name, err)
				}
			}
			for _, p := range b.all(t, arch, "{{with .Module}}{{if .Main}}{{$.ImportPath}}{{end}}{{end}}") {
				want[strings.TrimPrefix(p, modulePath+"/")] = true
			}
		}
	}
	err := fs.WalkDir(assay.HarnessSource, ".", func(p string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() && d.Name() == "testdata" {
			return fs.SkipDir
		}
		dir := path.Dir(p)
		if err == nil && strings.HasSuffix(p, ".go") && !strings.HasSuffix(p, "_test.go") && !want[dir] && !strings.HasSuffix(dir, "test") {
			t.Errorf("%s is embedded, and the harness does not need it", p)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestKernelSource: what nvcc compiles in CUDA images is there, too. Go knows
// nothing of these files.
func TestKernelSource(t *testing.T) {
	const dir = "coll/cuda/kernels"
	files, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, f := range files {
		switch path.Ext(f.Name()) {
		case ".cu", ".cuh", ".h":
			n++
			if _, err := fs.Stat(assay.HarnessSource, dir+"/"+f.Name()); err != nil {
				t.Error(err)
			}
		}
	}
	if n < 3 {
		t.Errorf("%s has %d files for nvcc", dir, n)
	}
}

// TestLibncclSource: the C side of libnccl.so.2, and what links it, is there, too.
func TestLibncclSource(t *testing.T) {
	files, err := filepath.Glob("cmd/libnccl/front/*")
	if err != nil || len(files) < 8 {
		t.Fatalf("%v, %v", files, err)
	}
	for _, f := range append(files, "cmd/libnccl/build", "cmd/libnccl/engine.map") {
		if _, err := fs.Stat(assay.HarnessSource, f); err != nil {
			t.Error(err)
		}
	}
}

// TestGoVersion: the toolchain that images get compiles this module, and is
// one that this module is tested with.
func TestGoVersion(t *testing.T) {
	m := regexp.MustCompile(`(?m)^go (\S+)$`).FindStringSubmatch(modFile(t, "go.mod"))
	if m == nil {
		t.Fatal("go.mod has no go line")
	}
	ours := "go" + assay.GoVersion
	if !version.IsValid(ours) || version.Compare(ours, "go"+m[1]) < 0 {
		t.Errorf("GoVersion is %s; go.mod asks for %s", assay.GoVersion, m[1])
	}
	if got, want := version.Lang(ours), version.Lang(runtime.Version()); want != "" && version.Compare(got, want) > 0 {
		t.Errorf("GoVersion is %s; this test runs with %s, which is older: nothing here shows that it works", assay.GoVersion, runtime.Version())
	}
}

func TestVersion(t *testing.T) {
	if !regexp.MustCompile(`^\d+\.\d+\.\d+(-[0-9A-Za-z.-]+)?$`).MatchString(assay.Version) {
		t.Errorf("Version is %q; want a semantic version", assay.Version)
	}
}

// TestEmbeddedFiles: the default matrix and its lock can be read.
func TestEmbeddedFiles(t *testing.T) {
	_, _, err := component.Read("matrix.yaml", bytes.NewReader(assay.Matrix), nil)
	_, lockErr := lock.Read("matrix.lock", bytes.NewReader(assay.Lock))
	if err := errors.Join(err, lockErr); err != nil {
		t.Error(err)
	}
}
