package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/assay-hpc/assay/build/driver"
	"github.com/assay-hpc/assay/build/matrix"
	"github.com/assay-hpc/assay/internal/certificate"
)

// TestDocument: the document is what the record and the matrix say.
func TestDocument(t *testing.T) {
	w, err := driver.Open(driver.Options{Matrix: "../../../matrix.yaml", StateDir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	rec, err := read("../../../" + recordFile)
	if err != nil {
		t.Fatal(err)
	}
	have, err := os.ReadFile("../../../" + documentFile)
	if err != nil {
		t.Fatal(err)
	}
	if want := render(rec, w.Targets); string(have) != want {
		t.Errorf("%s is not what the record says; run: go run ./build/e2e/upstreams\n%s", documentFile, cmp.Diff(string(have), want))
	}
}

func TestReadLog(t *testing.T) {
	file := filepath.Join(t.TempDir(), "log")
	digest := strings.Repeat("a", 64)
	text := `#5 [nccl-1-trixie amd64] compile nccl-1
#5 0.1 Compiling x
#6 [gdrcopy-2-trixie amd64] compile gdrcopy-2
#6 CACHED
#5 [nccl-1-trixie amd64] compile nccl-1
#5 DONE 12.5s
#7 [perftest-3-trixie amd64] compile perftest-3
#7 ERROR: exit code: 2
        linux/amd64  sha256:` + digest + ` (certificate: pass)
        index        sha256:` + strings.Repeat("b", 64) + `
`
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	got, passed, err := readLog(file)
	if !cmp.Equal(passed, []string{"sha256:" + digest}) {
		t.Errorf("the images that passed: %v", passed)
	}
	if want := map[string]float64{"[nccl-1-trixie amd64] compile nccl-1": 12.5}; err != nil || !cmp.Equal(got, want) {
		t.Errorf("readLog = %v, %v; want %v", got, err, want)
	}
}

// TestRender: a row without a run, or with one of another version, is not among
// those that were executed; a later run of an image takes the earlier one's place,
// and keeps the time of a step that it took from the cache.
func TestRender(t *testing.T) {
	target := func(name, version string) matrix.Target {
		return matrix.Target{Name: name, Components: []matrix.Component{{Name: "nccl", Version: version}, {Name: "ssh", Version: "distro"}}}
	}
	source := []certificate.Download{{URL: "https://a.example.org/v1.tgz", Digest: "sha256:12"}}
	rec := &Record{}
	rec.add(Run{Date: "2026-01-01", Target: "one", Platform: "linux/amd64", Image: "sha256:aa", Components: []Component{
		{Name: "nccl", Version: "1", Sources: source, Steps: []Step{{"[nccl-1] compile", 60}}}, {Name: "ssh", Version: "1:9"},
	}})
	rec.add(Run{Date: "2026-01-02", Target: "one", Platform: "linux/amd64", Image: "sha256:bb", Components: []Component{
		{Name: "nccl", Version: "1", Sources: source}, {Name: "ssh", Version: "1:9"},
	}})
	rec.add(Run{Date: "2026-01-03", Target: "one", Platform: "linux/amd64", Image: "sha256:cc", Standin: true, Components: []Component{{Name: "nccl", Version: "1"}}})
	got := render(rec, []matrix.Target{target("one", "1"), target("two", "1"), target("one-newer", "2")})
	for _, want := range []string{
		"| one | linux/amd64 | 2026-01-02 | real sources | `sha256:bb` |\n", "| one | linux/amd64 | 2026-01-03 | stand-ins | `sha256:cc` |\n",
		"| nccl | 1 | 2 | one | one | 60 s |\n", "| nccl | 2 | 1 |  | **not executed** |  |\n", "| ssh | distro | 3 | one |  |  |\n",
		"| nccl 1 | https://a.example.org/v1.tgz | `12` |\n",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("the document has no %q:\n%s", want, got)
		}
	}
	if strings.Contains(got, "sha256:aa") {
		t.Errorf("the document has the earlier run:\n%s", got)
	}
}
