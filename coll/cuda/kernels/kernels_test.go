package kernels

import (
	"bytes"
	"crypto/sha256"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/klauspost/compress/zstd"

	"github.com/assay-hpc/assay/coll/elem"
)

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
	same := func(name string, content []byte) {
		if said[name] != fmt.Sprintf("%x", sha256.Sum256(content)) {
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
			same(name, content)
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
		same("ptx/"+strings.TrimSuffix(archive, ".zst"), plain)
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

var entry = regexp.MustCompile(`\.visible \.entry (\w+)`)

// TestCode: each processor gets machine code for its architecture, or PTX that its
// driver can compile, of all kernels and of none else.
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
			for _, module := range Modules() {
				names, target := kernelsIn(t, code[module])
				want := kernelNames(module)
				slices.Sort(want)
				if !slices.Equal(names, want) || target != arch {
					t.Errorf("%s for %d: kernels %v for %d; want %v", module, cc, names, target, want)
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
	for _, none := range []string{"float", "float17_sum", "float_avg"} {
		if n := kernelNames(none); n != nil {
			t.Errorf("%s has kernels %v", none, n)
		}
	}
}

// kernelNames are the names of all kernels of a module; none if there is no such
// module.
func kernelNames(module string) []string {
	if module == Movement {
		return []string{"exchange_ll", "exchange_ll128", "exchange_simple", "exchange_direct", "relay_simple", "chain_simple"}
	}
	var names []string
	for _, t := range elem.Types {
		if t.Norms() && NormModule(t) == module {
			for _, base := range []string{"norm_ll", "norm_local"} {
				names = append(names, NormName(base, t))
			}
		}
		for op := elem.Sum; op < elem.Avg; op++ {
			if Module(t, op) != module {
				continue
			}
			for _, base := range []string{"reduce_ll", "reduce_ll128", "allreduce_ll", "allreduce_ll128", "allreduce_simple", "combine", "copy_ring"} {
				names = append(names, KernelName(base, t, op))
			}
			if !Rounds(t, op) {
				names = append(names, KernelName("reduce_chain", t, op))
			}
		}
	}
	return names
}

// kernelsIn are the names of the kernels in PTX (target 0) or a cubin, sorted, and
// the compute capability that the latter is for.
func kernelsIn(t *testing.T, image []byte) (names []string, target int) {
	t.Helper()
	if !bytes.HasPrefix(image, []byte("\x7fELF")) {
		if !bytes.Contains(image, []byte(".target sm_90\n")) {
			t.Errorf("neither a cubin nor PTX for 9.0: %.60q", image)
		}
		for _, m := range entry.FindAllSubmatch(image, -1) {
			names = append(names, string(m[1]))
		}
		slices.Sort(names)
		return names, 0
	}
	image = slices.Clone(image)
	binary.LittleEndian.PutUint32(image[20:], uint32(elf.EV_CURRENT)) // the compiler's own numbers are there
	f, err := elf.NewFile(bytes.NewReader(image))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for _, s := range f.Sections {
		if name, ok := strings.CutPrefix(s.Name, ".nv.info."); ok {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names, int(binary.LittleEndian.Uint32(image[48:]) & 0xff) // e_flags
}

func TestNames(t *testing.T) {
	if got, want := KernelName("allreduce_ll128", elem.BFloat16, elem.Avg), "allreduce_ll128_bf16_sum"; got != want {
		t.Errorf("%s; want %s", got, want)
	}
	if got, want := Module(elem.Float16, elem.Avg), "half_sum"; got != want {
		t.Errorf("%s; want %s", got, want)
	}
	seen := map[string]bool{}
	for _, m := range Modules() {
		for _, n := range kernelNames(m) {
			if seen[n] {
				t.Errorf("two kernels are called %s", n)
			}
			seen[n] = true
		}
	}
	if want := 1 + 12*4 + 3; len(Modules()) != want {
		t.Errorf("%d modules; want %d", len(Modules()), want)
	}
	// Four types round: their sums and products have no chain.
	if want := 6 + 12*4*8 - 4*2 + 3*2; len(seen) != want {
		t.Errorf("%d kernels; want %d", len(seen), want)
	}
}
