package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/assay-hpc/assay/coll/cuda/kernels"
)

// fakeCompiler makes $NVCC a compiler that copies the source's line into what it
// writes, below what differs from run to run. It starts no other program: it runs
// thousands of times.
func fakeCompiler(t *testing.T, version string) {
	t.Helper()
	script := `#!/bin/sh
if [ "$1" = --version ]; then echo "release 1.2, V` + version + `"; exit; fi
if [ "$1" = --list-gpu-arch ]; then printf 'compute_%s\n' ${KNOWS-70 75 80 86 90}; exit; fi
while [ $# -gt 1 ]; do
	case $1 in
	-o) out=$2; shift ;;
	-D*) defines="$defines $1" ;;
	--cubin) cubin=1 ;;
	-arch=*) arch=$1 ;;
	esac
	shift
done
if [ "$cubin" ]; then
	{
		printf '%s ' "$arch"
		while read -r line; do printf '%s;' "$line"; done < $1
		echo
	} > $out
	exit
fi
read -r source < $1
if [ "$source" = wrong ]; then echo "no such thing" >&2; exit 1; fi
{
	printf '// Build %d\n\n' $$
	printf 'call _ZN43_INTERNAL_%08x_12_reduction_cu_9c0e4fef9load_slow;%s\n%s\n' $$ "$defines" "$source"
} > $out
`
	path := filepath.Join(t.TempDir(), "nvcc")
	if err := os.WriteFile(path, []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("NVCC", path)
}

func put(t *testing.T, dir, name, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// sourceDir has sources, from which gen has run.
func sourceDir(t *testing.T) string {
	t.Helper()
	fakeCompiler(t, "1.2.3")
	dir := t.TempDir()
	put(t, dir, "abi.h", "header\n")
	put(t, dir, "movement.cu", "move\n")
	put(t, dir, "reduction.cu", "reduce\n")
	var stderr bytes.Buffer
	if status := run([]string{"-dir", dir}, &stderr); status != 0 {
		t.Fatalf("status %d: %s", status, &stderr)
	}
	return dir
}

func TestGenerate(t *testing.T) {
	dir := sourceDir(t)
	texts := map[string]string{}
	for _, name := range []string{"compute_90", "compute_90.r4", "sm_70", "sm_70.r4", "sm_80", "sm_80.r4", "sm_90", "sm_90.r4"} {
		open(t, dir, name, texts)
	}
	for name, defines := range map[string]string{
		"compute_90/half_sum.ptx":    " -DASSAY_TYPE=6 -DASSAY_OP=0",
		"compute_90.r4/half_sum.ptx": " -DASSAY_TYPE=6 -DASSAY_OP=0 -DASSAY_RANKS=4",
	} {
		want := "call _ZN43_INTERNAL_00000000_12_reduction_cu_000000009load_slow;" + defines + "\nreduce\n"
		if texts[name] != want {
			t.Errorf("%s is %q; want %q", name, texts[name], want)
		}
		cubin := strings.NewReplacer("compute", "sm", ".ptx", ".cubin").Replace(name)
		if want := "-arch=sm_90 " + strings.ReplaceAll(want, "\n", ";") + "\n"; texts[cubin] != want {
			t.Errorf("%s is %q; want %q", cubin, texts[cubin], want)
		}
	}
	if want := 8 * (1 + 12*4 + 3); len(texts) != want {
		t.Errorf("%d modules; want %d", len(texts), want)
	}
	s, err := readSums(dir)
	if err != nil {
		t.Fatal(err)
	}
	if want := 3 + 8; s.nvcc != "1.2.3" || len(s.files) != want {
		t.Errorf("SUM has version %s and %d files; want 1.2.3 and %d", s.nvcc, len(s.files), want)
	}
}

// open adds what is in an archive, below its name.
func open(t *testing.T, dir, name string, texts map[string]string) {
	t.Helper()
	archive, err := decompress(filepath.Join(dir, "ptx", name+".tar.zst"))
	if err != nil {
		t.Fatal(err)
	}
	files, err := unpack(archive)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		texts[name+"/"+f.name] = string(f.content)
	}
}

// TestTargets: what a compiler knows, and what is compiled.
func TestTargets(t *testing.T) {
	fewTypes(t)
	for knows, want := range map[string]string{
		"70 75 80 86 90":       "compute_90 sm_70 sm_80 sm_90",
		"70 80 90 100 101 120": "compute_90 sm_100 sm_120 sm_70 sm_80 sm_90",
		"75 80 90 100 103 120": "compute_90 sm_100 sm_120 sm_75 sm_80 sm_90",
		"80 90":                "compute_90 sm_80 sm_90",
	} {
		t.Setenv("KNOWS", knows)
		dir := sourceDir(t)
		archives, err := filepath.Glob(filepath.Join(dir, "ptx", "*.r4.tar.zst"))
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, a := range archives {
			got = append(got, strings.TrimSuffix(filepath.Base(a), ".r4.tar.zst"))
		}
		if slices.Sort(got); strings.Join(got, " ") != want {
			t.Errorf("%s: %v; want %s", knows, got, want)
		}
		texts := map[string]string{}
		if strings.Contains(want, "sm_120") {
			open(t, dir, "sm_120", texts)
			if text := texts["sm_120/movement.cubin"]; !strings.HasPrefix(text, "-arch=sm_120 ") {
				t.Errorf("%s: %q", knows, text)
			}
		}
	}
}

// TestStrip: what depends on the directory goes, whatever nvcc's version.
func TestStrip(t *testing.T) {
	for in, want := range map[string]string{
		"call _ZN43_INTERNAL_1234abcd_12_reduction_cu_9c0e4fef9load_slow;\n":          "call _ZN43_INTERNAL_00000000_12_reduction_cu_000000009load_slow;\n",
		"call _ZN50_INTERNAL_1234abcd_12_reduction_cu_reduce_ll_sum_f329load_slow;\n": "call _ZN50_INTERNAL_00000000_12_reduction_cu_reduce_ll_sum_f329load_slow;\n",
		"// Build 7\n\n.version 7.8\nmov.u64 a, 0;\n":                                 ".version 7.8\nmov.u64 a, 0;\n",
	} {
		if got := string(strip([]byte(in))); got != want {
			t.Errorf("%q becomes %q; want %q", in, got, want)
		}
	}
}

// fewTypes makes compilations of all modules quick.
func fewTypes(t *testing.T) {
	all := types
	types = all[:2]
	t.Cleanup(func() { types = all })
}

func TestCheck(t *testing.T) {
	fewTypes(t)
	for name, c := range map[string]struct {
		change func(dir string)
		status int
		says   string
	}{
		"the same":         {func(dir string) {}, 0, ""},
		"another source":   {func(dir string) { put(t, dir, "movement.cu", "more\n") }, exitDiffers, "ptx/sm_80.tar: not what the sources give"},
		"another header":   {func(dir string) { put(t, dir, "abi.h", "more\n") }, exitDiffers, "abi.h: changed"},
		"a source too few": {func(dir string) { os.Remove(filepath.Join(dir, "abi.h")) }, exitDiffers, "abi.h: in SUM, but no more"},
		"another PTX": {func(dir string) { put(t, dir, "ptx/sm_90.tar.zst", string(compress([]byte("x")))) }, exitDiffers,
			"ptx/sm_90.tar.zst: not what SUM says"},
		"no PTX":           {func(dir string) { os.Remove(filepath.Join(dir, "ptx/sm_90.tar.zst")) }, exitDiffers, "sm_90.tar.zst"},
		"no SUM":           {func(dir string) { os.Remove(filepath.Join(dir, sumFile)) }, exitDiffers, "SUM"},
		"a wrong source":   {func(dir string) { put(t, dir, "movement.cu", "wrong\n") }, exitDiffers, "no such thing"},
		"another compiler": {func(dir string) { fakeCompiler(t, "1.2.4") }, exitCompiler, "version 1.2.4; the PTX there is by 1.2.3"},
		"no compiler":      {func(dir string) { t.Setenv("NVCC", filepath.Join(dir, "none")) }, exitCompiler, "no nvcc"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := sourceDir(t)
			c.change(dir)
			before := fmt.Sprint(os.ReadDir(filepath.Join(dir, "ptx")))
			var stderr bytes.Buffer
			if status := run([]string{"-check", "-dir", dir}, &stderr); status != c.status {
				t.Errorf("status %d; want %d", status, c.status)
			}
			if !strings.Contains(stderr.String(), c.says) {
				t.Errorf("it says %q; want %q", &stderr, c.says)
			}
			if fmt.Sprint(os.ReadDir(filepath.Join(dir, "ptx"))) != before {
				t.Error("it wrote files")
			}
		})
	}
}

// TestSample: each module is compiled in one of N turns, and the sums alone do not
// make stale code pass.
func TestSample(t *testing.T) {
	fewTypes(t)
	dir := sourceDir(t)
	old, err := readSums(dir)
	if err != nil {
		t.Fatal(err)
	}
	turns := map[string]bool{}
	for i := range 40 {
		text := fmt.Sprintf("more %d\n", i)
		put(t, dir, "abi.h", text)
		old.files["abi.h"] = kernels.SourceSum([]byte(text))
		put(t, dir, sumFile, string(old.text()))
		sources, err := readSources(dir)
		if err != nil {
			t.Fatal(err)
		}
		all := (&compiler{targets: targetsOf([]int{80, 90})}).units()
		turn := sample(all, sources, 3)
		turns[fmt.Sprint(turn[0].module, turn[0].few)] = true
		if want := len(all) / 3; len(turn) < want || len(turn) > want+1 {
			t.Errorf("%d of %d units in a third", len(turn), len(all))
		}
	}
	if len(turns) != 3 {
		t.Errorf("turns begin with %v", turns)
	}
	for _, text := range []string{"move\n", "move twice\n"} {
		put(t, dir, "movement.cu", text)
		put(t, dir, "reduction.cu", strings.Replace(text, "move", "reduce", 1))
		for _, name := range []string{"movement.cu", "reduction.cu"} {
			text, err := os.ReadFile(filepath.Join(dir, name))
			if err != nil {
				t.Fatal(err)
			}
			old.files[name] = kernels.SourceSum(text)
		}
		put(t, dir, sumFile, string(old.text()))
		want := 0
		if text != "move\n" {
			want = exitDiffers
		}
		var stderr bytes.Buffer
		if status := run([]string{"-check", "-one-of", "5", "-dir", dir}, &stderr); status != want {
			t.Errorf("%q: status %d; want %d: %s", text, status, want, &stderr)
		}
	}
	for _, args := range [][]string{{"-one-of", "2", "-dir", dir}, {"-check", "-one-of", "0", "-dir", dir}} {
		if status := run(args, io.Discard); status != exitUsage {
			t.Errorf("%v: status %d", args, status)
		}
	}
}

// TestKept: what a changed source does not reach is not compiled again, and the rest is.
func TestKept(t *testing.T) {
	fewTypes(t)
	dir := sourceDir(t)
	put(t, dir, "movement.cu", "move\n#include \"abi.h\"\n")
	put(t, dir, "reduction.cu", "reduce\n  # include \"sum.cuh\"\n")
	put(t, dir, "sum.cuh", "sum\n")
	generate := func(args ...string) map[string]string {
		var stderr bytes.Buffer
		if status := run(append(args, "-dir", dir), &stderr); status != 0 {
			t.Fatalf("status %d: %s", status, &stderr)
		}
		texts := map[string]string{}
		for _, name := range []string{"compute_90", "compute_90.r4", "sm_80", "sm_90.r4"} {
			open(t, dir, name, texts)
		}
		return texts
	}
	generate("-all")
	// mark makes the compiler write something else.
	mark := func(word string) {
		path := os.Getenv("NVCC")
		script, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		i := bytes.LastIndex(script, []byte("} > $out"))
		if err := os.WriteFile(path, slices.Concat(script[:i], []byte("echo "+word+"\n"), script[i:]), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		name, source, text string
		args               []string
		movement, sum      bool // are compiled
	}{
		{"nothing", "", "", nil, false, false},
		{"a header of one", "sum.cuh", "sum of\n", nil, false, true},
		{"a source", "movement.cu", "move on\n#include \"abi.h\"\n", nil, true, false},
		{"a header of the other", "abi.h", "more\n", nil, true, false},
		{"a comment", "abi.h", "more // or less\n", nil, false, false},
		{"everything", "", "", []string{"-all"}, true, true},
	} {
		if c.source != "" {
			put(t, dir, c.source, c.text)
		}
		mark(strings.ReplaceAll(c.name, " ", "_"))
		for file, text := range generate(c.args...) {
			want := c.movement
			if strings.Contains(file, "_sum.") || strings.Contains(file, "_prod.") {
				want = c.sum
			} else if !strings.Contains(file, "movement") {
				continue
			}
			if got := strings.Contains(text, strings.ReplaceAll(c.name, " ", "_")); got != want {
				t.Errorf("%s: %s is compiled: %v; want %v", c.name, file, got, want)
			}
		}
	}
	// An archive that is not what SUM says is not taken for what it was.
	put(t, dir, "ptx/sm_90.tar.zst", string(compress([]byte("x"))))
	generate()
	if status := run([]string{"-check", "-dir", dir}, os.Stderr); status != 0 {
		t.Errorf("status %d after a damaged archive", status)
	}
}

func TestStaleFilesGo(t *testing.T) {
	fewTypes(t)
	dir := sourceDir(t)
	put(t, dir, "ptx/sm_60.tar.zst", "")
	if status := run([]string{"-dir", dir}, os.Stderr); status != 0 {
		t.Fatalf("status %d", status)
	}
	if _, err := os.Stat(filepath.Join(dir, "ptx/sm_60.tar.zst")); err == nil {
		t.Error("the PTX of an architecture that is none is still there")
	}
}
