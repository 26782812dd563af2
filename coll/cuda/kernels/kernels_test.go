package kernels

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/klauspost/compress/zstd"
)

// TestSourceSum: comments and empty lines are left out, and nothing in literals.
func TestSourceSum(t *testing.T) {
	sum := func(text string) string { return SourceSum([]byte(text)) }
	plain := sum("int a = 1;\nchar *b = \"//\", c = '\"';\n")
	if got := sum("// what\n\nint a = 1; /* which\nis one */\n\nchar *b = \"//\", c = '\"'; // \"\n"); got != plain {
		t.Error("a comment changes the sum")
	}
	for _, text := range []string{"int a = 2;\nchar *b = \"//\", c = '\"';\n", "int a = 1;\nchar *b = \"//x\", c = '\"';\n", "int a = 1;\nchar *b = \"/\", c = '\"';\n"} {
		if sum(text) == plain {
			t.Errorf("%q has the sum of another text", text)
		}
	}
}

// TestCurrent fails when the sources were edited and the PTX was not made
// again. It needs no compiler.
func TestCurrent(t *testing.T) {
	text, err := Files.ReadFile("ptx/SUM")
	if err != nil {
		t.Fatal(err)
	}
	said := map[string]string{}
	for line := range strings.Lines(string(text)) {
		if f := strings.Fields(line); len(f) == 2 {
			said[f[1]] = f[0]
		}
	}
	var stale []string
	same := func(name, sum string) {
		if said[name] != sum {
			stale = append(stale, name)
		}
		delete(said, name)
	}
	for _, pattern := range []string{"*.h", "*.cuh", "*.cu"} {
		names, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range names {
			content, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			same(name, SourceSum(content))
		}
	}
	for _, archive := range archives(t) {
		packed, err := Files.ReadFile("ptx/" + archive)
		if err != nil {
			t.Fatal(err)
		}
		plain, err := decoder(t).DecodeAll(packed, nil)
		if err != nil {
			t.Fatal(err)
		}
		same("ptx/"+strings.TrimSuffix(archive, ".zst"), fmt.Sprintf("%x", sha256.Sum256(plain)))
	}
	for name := range said {
		stale = append(stale, name)
	}
	if len(stale) > 0 {
		slices.Sort(stale)
		t.Errorf("not what ptx/SUM says: %v; run: go generate ./coll/cuda/kernels", stale)
	}
}

func decoder(t *testing.T) *zstd.Decoder {
	t.Helper()
	d, err := zstd.NewReader(nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.Close)
	return d
}

func TestCompilers(t *testing.T) {
	dirs := fstest.MapFS{"ptx/SUM": {Data: []byte("# nvcc 11.8.89\nsum  file\n")}}
	if got := compilers(dirs); !slices.Equal(got, []string{"11.8.89"}) {
		t.Errorf("compilers %q", got)
	}
	dirs["ptx/own/SUM"] = &fstest.MapFile{Data: []byte("# nvcc 12.9.86\nsum  file\n")}
	if got := compilers(dirs); !slices.Equal(got, []string{"12.9.86", "11.8.89"}) {
		t.Errorf("compilers %q", got)
	}
}

// archives are the files of ptx that are some.
func archives(t *testing.T) (names []string) {
	t.Helper()
	all, err := fs.Glob(Files, "ptx/*.zst")
	if err != nil || len(all) != 2*4 {
		t.Fatalf("%v: %q", err, all)
	}
	for _, name := range all {
		names = append(names, strings.TrimPrefix(name, "ptx/"))
	}
	return names
}

// TestDamaged: an archive that is cut short or changed is an error, and so is one
// that is missing, or has not all modules.
func TestDamaged(t *testing.T) {
	whole, err := Files.ReadFile("ptx/sm_90.tar.zst")
	if err != nil {
		t.Fatal(err)
	}
	changed := slices.Clone(whole)
	changed[len(changed)/2] ^= 1
	plain, err := decoder(t).DecodeAll(whole, nil)
	if err != nil {
		t.Fatal(err)
	}
	renamed := encode(t, bytes.Replace(plain, []byte("float_max.cubin"), []byte("float_mux.cubin"), 1))
	for name, b := range map[string][]byte{
		"whole": whole, "cut": whole[:len(whole)/2], "changed": changed, "empty": {}, "other": []byte("not zstd"), "a module too few": renamed,
	} {
		code, _, err := Code(fstest.MapFS{"sm_90.tar.zst": {Data: b}}, 90, 8)
		if (err == nil) != (name == "whole") || (len(code) > 0) != (name == "whole") {
			t.Errorf("%s: %d modules, %v", name, len(code), err)
		}
	}
	if _, _, err := Code(fstest.MapFS{}, 90, 8); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("of no archive: %v", err)
	}
}

func encode(t *testing.T, b []byte) []byte {
	t.Helper()
	w, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	return w.EncodeAll(b, nil)
}

// TestCode: each processor gets machine code for its architecture, or PTX that its
// driver can compile.
func TestCode(t *testing.T) {
	dir, err := fs.Sub(Files, "ptx")
	if err != nil {
		t.Fatal(err)
	}
	for cc, arch := range map[int]int{70: 70, 75: 70, 80: 80, 86: 80, 89: 80, 90: 90, 100: 0, 103: 0, 120: 0} {
		for _, ranks := range []int{2, 8} {
			code, compiled, err := Code(dir, cc, ranks)
			if err != nil || compiled != (arch > 0) || len(code) != len(Modules()) {
				t.Errorf("for %d and %d ranks: %d modules, compiled %t, %v", cc, ranks, len(code), compiled, err)
				continue
			}
			for _, m := range Modules() {
				if target := targetOf(code[m.Name]); target != arch {
					t.Errorf("%s for %d is for %d; want %d", m.Name, cc, target, arch)
				}
			}
		}
	}
	if _, _, err := Code(dir, 61, 2); err == nil || !strings.Contains(err.Error(), "6.1 is too old: they need 7.0") || !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("for 61: %v", err)
	}
	// Of the image's own nvcc, for one that knows more.
	own := fstest.MapFS{"sm_75.tar.zst": {}, "sm_90.tar.zst": {}, "sm_100.tar.zst": {}, "sm_120.tar.zst": {}, "compute_90.tar.zst": {}, "sm_100.r4.tar.zst": {}}
	for cc, want := range map[int]string{100: "sm_100", 103: "sm_100", 121: "sm_120", 110: "compute_90", 75: "sm_75", 70: "too old"} {
		if _, _, err := Code(own, cc, 8); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("for %d: %v; want %s", cc, err, want)
		}
	}
}

// targetOf is the compute capability that a cubin is for; 0 for PTX for 9.0, -1 for anything else.
func targetOf(image []byte) int {
	switch {
	case bytes.HasPrefix(image, []byte("\x7fELF")):
		return int(image[48]) // of e_flags
	case bytes.Contains(image, []byte(".target sm_90\n")):
		return 0
	}
	return -1
}

func TestNames(t *testing.T) {
	all := Modules()
	if want := 1 + 12*4 + 3; len(all) != want {
		t.Errorf("%d modules; want %d", len(all), want)
	}
	for module, want := range map[string]string{"movement": "does", "half_sum": "does_f16_sum", "bfloat16_min": "does_bf16_min", "norm_float": "does_f32"} {
		if i := slices.IndexFunc(all, func(m Module) bool { return m.Name == module }); i < 0 || all[i].Kernel("does") != want {
			t.Errorf("no module %s with %s in %v", module, want, all)
		}
	}
}
