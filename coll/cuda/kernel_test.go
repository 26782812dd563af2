package cuda

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"io/fs"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/assay-hpc/assay/coll/cuda/kernels"
)

// TestCompiled: the compiled code has the kernels of kernelTable, and no others.
func TestCompiled(t *testing.T) {
	dir, err := fs.Sub(kernels.Files, "ptx")
	if err != nil {
		t.Fatal(err)
	}
	for _, cc := range []int{70, 80, 90, 100} {
		for _, ranks := range []int{2, 8} {
			code, _, err := kernels.Code(dir, cc, ranks)
			if err != nil {
				t.Fatal(err)
			}
			for _, m := range kernels.Modules() {
				var want []string
				for k := noKernel + 1; k < numKernels; k++ {
					if k.in(m.Typed, m.Norm, kernels.Rounds(m.Type, m.Op)) {
						want = append(want, m.Kernel(k.String()))
					}
				}
				slices.Sort(want)
				if got := kernelsIn(t, code[m.Name]); !slices.Equal(got, want) {
					t.Fatalf("%s for %d and %d ranks: only the code has %v, only kernelTable %v; give each kernel a row there and a line in a .cu file, then run: go generate ./coll/cuda/kernels",
						m.Name, cc, ranks, without(got, want), without(want, got))
				}
			}
		}
	}
}

// without is what is in all and not in some.
func without(all, some []string) []string {
	return slices.DeleteFunc(slices.Clone(all), func(s string) bool { return slices.Contains(some, s) })
}

var entry = regexp.MustCompile(`\.visible \.entry (\w+)`)

// kernelsIn are the names of the kernels in PTX or a cubin, sorted.
func kernelsIn(t *testing.T, image []byte) (names []string) {
	t.Helper()
	if !bytes.HasPrefix(image, []byte(elf.ELFMAG)) {
		for _, m := range entry.FindAllSubmatch(image, -1) {
			names = append(names, string(m[1]))
		}
		slices.Sort(names)
		return names
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
	return names
}
