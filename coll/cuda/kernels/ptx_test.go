package kernels

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/assay-hpc/assay/coll/elem"
)

// TestCurrent fails when the sources were edited and the PTX was not made
// again. It needs no compiler.
func TestCurrent(t *testing.T) {
	text, err := files.ReadFile("ptx/SUM")
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
	for _, module := range Modules() {
		for _, arch := range archs {
			texts, err := PTX(module, arch)
			if err != nil {
				t.Fatal(err)
			}
			same(fmt.Sprintf("ptx/%s.sm_%d.ptx", module, arch), texts[len(texts)-1])
		}
	}
	for name := range said {
		stale = append(stale, name)
	}
	if len(stale) > 0 {
		slices.Sort(stale)
		t.Errorf("not what ptx/SUM says: %v; run: go generate ./coll/cuda/kernels", stale)
	}
}

// TestOwn: what a CUDA image's nvcc made comes before what was committed, and is
// no substitute for it.
func TestOwn(t *testing.T) {
	file := func(text string) *fstest.MapFile {
		var b bytes.Buffer
		w := gzip.NewWriter(&b)
		w.Write([]byte(text))
		w.Close()
		return &fstest.MapFile{Data: b.Bytes()}
	}
	plain := fstest.MapFS{
		"ptx/SUM": {Data: []byte("# nvcc 11.8.89\nsum  file\n")}, "ptx/movement.sm_80.ptx.gz": file("committed 80"), "ptx/movement.sm_90.ptx.gz": file("committed 90"),
	}
	own := maps.Clone(plain)
	own["ptx/own/SUM"] = &fstest.MapFile{Data: []byte("# nvcc 12.9.86\nsum  file\n")}
	own["ptx/own/movement.sm_80.ptx.gz"], own["ptx/own/movement.sm_90.ptx.gz"] = file("own 80"), file("own 90")
	for _, c := range []struct {
		files           fstest.MapFS
		cc              int
		want, compilers string
	}{
		{plain, 80, "committed 80", "11.8.89"},
		{plain, 90, "committed 90", "11.8.89"},
		{own, 89, "own 80, committed 80", "12.9.86, 11.8.89"},
		{own, 120, "own 90, committed 90", "12.9.86, 11.8.89"},
	} {
		texts, err := ptx(c.files, Movement, c.cc)
		if err != nil {
			t.Fatal(err)
		}
		if got := string(bytes.Join(texts, []byte(", "))); got != c.want {
			t.Errorf("PTX for %d: %s; want %s", c.cc, got, c.want)
		}
		if got := strings.Join(compilers(c.files), ", "); got != c.compilers {
			t.Errorf("compilers %s; want %s", got, c.compilers)
		}
	}
	own["ptx/own/movement.sm_90.ptx.gz"].Data = []byte("not gzip")
	if _, err := ptx(own, Movement, 90); err == nil {
		t.Error("damaged PTX passes")
	}
	delete(own, "ptx/movement.sm_80.ptx.gz")
	if _, err := ptx(own, Movement, 80); err == nil {
		t.Error("that the committed PTX is missing passes")
	}
}

var entry = regexp.MustCompile(`\.visible \.entry (\w+)`)

func TestPTX(t *testing.T) {
	for _, module := range Modules() {
		for cc, target := range map[int]string{80: "sm_80", 86: "sm_80", 89: "sm_80", 90: "sm_90", 103: "sm_90", 120: "sm_90"} {
			texts, err := PTX(module, cc)
			if err != nil {
				t.Fatal(err)
			}
			text := texts[len(texts)-1]
			if !strings.Contains(string(text), ".target "+target+"\n") {
				t.Errorf("%s for %d: the target is not %s", module, cc, target)
			}
			var names []string
			for _, m := range entry.FindAllSubmatch(text, -1) {
				names = append(names, string(m[1]))
			}
			slices.Sort(names)
			want := KernelNames(module)
			slices.Sort(want)
			if !slices.Equal(names, want) {
				t.Errorf("%s for %d: kernels %v; want %v", module, cc, names, want)
			}
		}
		if _, err := PTX(module, 75); err == nil || !strings.Contains(err.Error(), "7.5 is too old: they need 8.0") {
			t.Errorf("%s for 75: %v", module, err)
		}
	}
	for _, none := range []string{"float", "float17_sum", "float_avg", ForRanks("float_avg", 2), "float_sum.r3"} {
		if _, err := PTX(none, 90); err == nil {
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
	for _, m := range Modules() {
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
