package kernels

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
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
	for _, arch := range archs {
		packed, err := Files.ReadFile(fmt.Sprintf("ptx/sm_%d.tar.zst", arch))
		if err != nil {
			t.Fatal(err)
		}
		archive, err := decoder(t).DecodeAll(packed, nil)
		if err != nil {
			t.Fatal(err)
		}
		same(fmt.Sprintf("ptx/sm_%d.tar", arch), archive)
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

// TestDamaged: an archive that is cut short or changed is an error, and so is one
// that is missing.
func TestDamaged(t *testing.T) {
	whole, err := Files.ReadFile("ptx/sm_90.tar.zst")
	if err != nil {
		t.Fatal(err)
	}
	changed := slices.Clone(whole)
	changed[len(changed)/2] ^= 1
	last := modules()[len(modules())-1]
	for name, b := range map[string][]byte{"whole": whole, "cut": whole[:len(whole)/2], "changed": changed, "empty": {}, "other": []byte("not zstd")} {
		text, err := PTX(fstest.MapFS{"sm_90.tar.zst": {Data: b}}, last, 90)
		if (err == nil) != (name == "whole") || (len(text) > 0) != (name == "whole") {
			t.Errorf("%s: %d bytes, %v", name, len(text), err)
		}
	}
	if _, err := PTX(fstest.MapFS{}, Movement, 90); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("of no archive: %v", err)
	}
}

var entry = regexp.MustCompile(`\.visible \.entry (\w+)`)

func TestPTX(t *testing.T) {
	dir, err := fs.Sub(Files, "ptx")
	if err != nil {
		t.Fatal(err)
	}
	for cc, target := range map[int]string{80: "sm_80", 86: "sm_80", 89: "sm_80", 90: "sm_90", 103: "sm_90", 120: "sm_90"} {
		if text, err := PTX(dir, Movement, cc); err != nil || !strings.Contains(string(text), ".target "+target+"\n") {
			t.Errorf("for %d: the target is not %s, or %v", cc, target, err)
		}
	}
	if _, err := PTX(dir, Movement, 75); err == nil || !strings.Contains(err.Error(), "7.5 is too old: they need 8.0") {
		t.Errorf("for 75: %v", err)
	}
	for _, arch := range archs {
		archive := fmt.Sprintf("sm_%d.tar.zst", arch)
		packed, err := fs.ReadFile(dir, archive)
		if err != nil {
			t.Fatal(err)
		}
		plain, err := decoder(t).DecodeAll(packed, nil)
		if err != nil {
			t.Fatal(err)
		}
		all := modules()
		for files := tar.NewReader(bytes.NewReader(plain)); ; {
			h, err := files.Next()
			if err == io.EOF {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			text, err := io.ReadAll(files)
			if err != nil {
				t.Fatal(err)
			}
			module := strings.TrimSuffix(h.Name, ".ptx")
			i := slices.Index(all, module)
			if i < 0 {
				t.Errorf("%s has %s, which is no module, or twice", archive, h.Name)
				continue
			}
			all = slices.Delete(all, i, i+1)
			if !strings.Contains(string(text), fmt.Sprintf(".target sm_%d\n", arch)) {
				t.Errorf("%s in %s is for another target", h.Name, archive)
			}
			var names []string
			for _, m := range entry.FindAllSubmatch(text, -1) {
				names = append(names, string(m[1]))
			}
			slices.Sort(names)
			want := KernelNames(module)
			slices.Sort(want)
			if !slices.Equal(names, want) {
				t.Errorf("%s in %s: kernels %v; want %v", module, archive, names, want)
			}
		}
		if len(all) > 0 {
			t.Errorf("%s has not %v", archive, all)
		}
	}
	for _, none := range []string{"float", "float17_sum", "float_avg", ForRanks("float_avg", 2), "float_sum.r3"} {
		if _, err := PTX(dir, none, 90); err == nil {
			t.Errorf("there is PTX of %s", none)
		}
		if n := KernelNames(none); n != nil {
			t.Errorf("%s has kernels %v", none, n)
		}
	}
}

func TestNames(t *testing.T) {
	if got, want := KernelName(AllReduceLL128, elem.BFloat16, elem.Avg), "allreduce_ll128_bf16_sum"; got != want {
		t.Errorf("%s; want %s", got, want)
	}
	if got, want := Module(elem.Float16, elem.Avg), "half_sum"; got != want {
		t.Errorf("%s; want %s", got, want)
	}
	for ranks, want := range map[int]string{1: "movement.r4", 4: "movement.r4", 5: "movement", 8: "movement", 1000: "movement"} {
		if got := ForRanks(Movement, ranks); got != want {
			t.Errorf("of %d ranks: %s; want %s", ranks, got, want)
		}
	}
	seen := map[string]bool{}
	variants := 0
	for _, m := range modules() {
		if strings.HasSuffix(m, ".r4") {
			variants++
			continue
		}
		for _, n := range KernelNames(m) {
			if seen[n] {
				t.Errorf("two kernels are called %s", n)
			}
			seen[n] = true
		}
		if few := KernelNames(ForRanks(m, 2)); !slices.Equal(few, KernelNames(m)) {
			t.Errorf("%s for few ranks has kernels %v", m, few)
		}
	}
	if want := 1 + 12*4; variants != want {
		t.Errorf("%d variants; want %d", variants, want)
	}
	// Four types round: their sums and products have no chain.
	if want := 5 + 12*4*7 - 4*2; len(seen) != want {
		t.Errorf("%d kernels; want %d", len(seen), want)
	}
}

// modules are the names of all modules, Movement and the Module of each element
// type and operation, and of their variants for few ranks.
func modules() []string {
	m := []string{Movement}
	for _, t := range elem.Types {
		for op := elem.Sum; op < elem.Avg; op++ {
			m = append(m, Module(t, op))
		}
	}
	for _, module := range m {
		m = append(m, ForRanks(module, FewRanks))
	}
	return m
}
