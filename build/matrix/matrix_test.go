package matrix

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/assay-hpc/assay/internal/golden"
)

const realFile = "../../matrix.yaml"

func read(t testing.TB, path string) []byte {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// library is assay's own components.
var library = sync.OnceValue(func() *Library {
	lib, err := ReadLibrary("build/component", os.DirFS("../component"))
	if err != nil {
		panic(err)
	}
	return lib
})

// beside finds components in testdata.
func beside(dir string) (fs.FS, error) {
	root, err := os.OpenRoot(filepath.Join("testdata", dir))
	if err != nil {
		return nil, err
	}
	return root.FS(), nil
}

func parse(name string, text []byte) (*File, error) {
	return Parse(name, bytes.NewReader(text), library(), beside)
}

// expand is Parse and Targets.
func expand(name string, text []byte) ([]Target, error) {
	f, err := parse(name, text)
	if err != nil {
		return nil, err
	}
	return f.Targets()
}

func expandReal(t testing.TB) []Target {
	t.Helper()
	targets, err := expand("matrix.yaml", read(t, realFile))
	if err != nil {
		t.Fatal(err)
	}
	return targets
}

// lines prints targets for a golden file.
func lines(targets []Target) string {
	var b strings.Builder
	for _, t := range targets {
		base := t.Base.Image
		if d := t.Base.Debootstrap; d != nil {
			base = "debootstrap " + d.Suite + " " + d.Variant
		}
		fmt.Fprintf(&b, "%s\n\tbase         %s\n\tplatforms    %v\n", t.Name, base, t.Platforms)
		if t.CUDA != "" {
			fmt.Fprintf(&b, "\tcapabilities %s\n", strings.Join(t.Capabilities, " "))
		}
		b.WriteString("\tcomponents  ")
		for _, c := range t.Components {
			fmt.Fprintf(&b, " %s=%s", c.Name, c.Version)
		}
		fmt.Fprintf(&b, "\n\ttag          %s\n\tmoving       %s\n", t.Tag, strings.Join(t.Moving, " "))
	}
	return b.String()
}

func TestPlan(t *testing.T) {
	golden.Check(t, "plan.golden", lines(expandReal(t)))
}

// Every bad file must be refused with its golden text, and every problem in it
// with a place, a value and a remedy.
func TestBadFiles(t *testing.T) {
	files, err := filepath.Glob("testdata/bad/*.yaml")
	if err != nil || len(files) < 20 {
		t.Fatalf("Glob = %d files, %v; want at least 20", len(files), err)
	}
	for _, path := range files {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".yaml"), func(t *testing.T) {
			_, err := expand(filepath.Base(path), read(t, path))
			var all Errors
			if !errors.As(err, &all) {
				t.Fatalf("error = %v (%T); want Errors", err, err)
			}
			var one *Error
			if !errors.As(err, &one) || one != all[0] {
				t.Errorf("errors.As finds %v; want the first of all", one)
			}
			for _, e := range all {
				if !e.Pos.set() || e.Pos.Column < 1 || e.Msg == "" || e.Remedy == "" {
					t.Errorf("%+v lacks a position, a message or a remedy", e)
				}
			}
			golden.File(t, strings.TrimSuffix(path, ".yaml")+".golden", err.Error()+"\n")
		})
	}
}

// The bad files are single edits of this one, which is good.
func TestGoodFile(t *testing.T) {
	if _, err := expand("good.yaml", read(t, "testdata/good.yaml")); err != nil {
		t.Fatal(err)
	}
}

// The tags of the seed's table, without the peer's commit.
func TestSeedRows(t *testing.T) {
	targets := expandReal(t)
	for _, ubuntu := range []string{"20.04", "22.04"} {
		for _, cuda := range []string{"12.2.2", "12.4.1", "12.6.3", "12.8.1", "12.9.1"} {
			want := cuda + "-devel-ubuntu" + ubuntu + "-nccl2.27.6-1-{recipe}"
			i := slices.IndexFunc(targets, func(t Target) bool { return t.Tag == want })
			if i < 0 {
				t.Errorf("no target has the tag %s", want)
				continue
			}
			for component, version := range map[string]string{"hpcx": "2.23", "cudnn": "9.10.2.21-1"} {
				if got := targets[i].Version(component); got != version {
					t.Errorf("%s: Version(%q) = %q; want %q", targets[i].Name, component, got, version)
				}
			}
		}
	}
}

// TestCurrentRows: what NVIDIA publishes now is there, with the components of
// today: all that the peer builds, and what it leaves out. What is pinned keeps
// what it had.
func TestCurrentRows(t *testing.T) {
	targets := expandReal(t)
	components := map[string]string{"nccl": "2.32.3-1", "hpcx": "2.51", "cudnn": "9.26.0.51-1", "nccl-tests": "2.18.3"}
	want := map[string]bool{}
	for ubuntu, cudas := range map[string]string{
		"22.04": "12.8.2 12.9.2 13.0.3 13.1.2 13.2.1 13.3.1 13.4.2",
		"24.04": "12.8.2 12.9.2 13.0.3 13.1.2 13.2.1 13.3.1 13.4.2",
		"26.04": "13.3.1 13.4.2",
	} {
		for cuda := range strings.FieldsSeq(cudas) {
			want[cuda+"-devel-ubuntu"+ubuntu+"-nccl2.32.3-1-{recipe}"] = true
		}
	}
	want["12.6.3-devel-ubuntu22.04-nccl2.32.3-1-current-{recipe}"] = true
	for _, target := range targets {
		if target.Variant == "efa" || target.CUDA == "" || target.Version("cuda-toolkit") != "" {
			continue
		}
		current := want[target.Tag]
		delete(want, target.Tag)
		for component, version := range components {
			if got := target.Version(component); (got == version) != current {
				t.Errorf("%s: Version(%q) = %q; the current one is %s, and it is a current row: %v", target.Name, component, got, version, current)
			}
		}
	}
	if len(want) > 0 {
		t.Errorf("there is no target with the tag of %v", want)
	}
}

// TestMovingOfVariant: the moving tags without NCCL's version stay with the plain image.
func TestMovingOfVariant(t *testing.T) {
	for _, target := range expandReal(t) {
		if target.Name == "cuda12.6.3-ubuntu22.04-current" {
			if want := []string{"12.6.3-devel-ubuntu22.04-nccl2.32.3-1-current", "12.6.3-devel-ubuntu22.04-current"}; !slices.Equal(target.Moving, want) {
				t.Errorf("Moving = %q; want %q", target.Moving, want)
			}
			return
		}
	}
	t.Error("the variant is not there")
}

func TestEveryTargetHasBothPlatforms(t *testing.T) {
	for _, target := range expandReal(t) {
		if target.Version("cuda-toolkit") != "" || strings.HasPrefix(target.Name, "fabric-ubuntu") { // for amd64 only, so far
			continue
		}
		if got := fmt.Sprint(target.Platforms); got != "[linux/amd64 linux/arm64]" {
			t.Errorf("%s: Platforms = %s; want both", target.Name, got)
		}
	}
}

func TestFirstTargetIsFabric(t *testing.T) {
	if got := expandReal(t)[0].Name; got != "fabric-debian12" {
		t.Errorf("first target = %q; want fabric-debian12", got)
	}
}

func TestRepository(t *testing.T) {
	f, err := parse("good.yaml", read(t, "testdata/good.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	if got, want := f.Repository, "ghcr.io/assay-hpc/assay"; got != want {
		t.Errorf("Repository = %q; want %q", got, want)
	}
}

func TestReadError(t *testing.T) {
	broken := errors.New("the disk is on fire")
	_, err := Parse("matrix.yaml", failingReader{broken}, library(), beside)
	if !errors.Is(err, broken) {
		t.Errorf("Parse = %v; want %v", err, broken)
	}
}

type failingReader struct{ err error }

func (r failingReader) Read([]byte) (int, error) { return 0, r.err }

func TestTooLarge(t *testing.T) {
	_, err := expand("m", bytes.Repeat([]byte("#\n"), MaxSize))
	if err == nil || !strings.Contains(err.Error(), "larger than") {
		t.Errorf("Parse of %d bytes = %v; want an error about the size", 2*MaxSize, err)
	}
}

func BenchmarkPlan(b *testing.B) {
	text := read(b, realFile)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := expand("matrix.yaml", text); err != nil {
			b.Fatal(err)
		}
	}
}
