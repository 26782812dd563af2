package kernels

import (
	"cmp"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sync/errgroup"

	"github.com/assay-hpc/assay/coll/elem"
)

// TestEmulator runs random sequences of kernels on emulated GPUs, after the
// emulator has shown that it finds what is wrong. In some ("alone") ranks give up
// and nobody tells the others. ASSAY_EMU_SEED is the first sequence's seed, ASSAY_EMU_SEEDS
// how many there are of each kind.
func TestEmulator(t *testing.T) {
	const runs = 4 // beside one another, where there are processors
	types, each, alone := elem.Types, 100, 500
	if testing.Short() {
		// One that has most to it: pairs, and a wider sum.
		types, each, alone = []elem.Type{elem.BFloat16}, 5, 30
	}
	if n, err := strconv.Atoi(os.Getenv("ASSAY_EMU_SEEDS")); err == nil {
		each, alone = (n+runs-1)/runs, n
	}
	seed, err := strconv.Atoi(cmp.Or(os.Getenv("ASSAY_EMU_SEED"), "1"))
	if err != nil {
		t.Fatal(err)
	}
	dir := buildEmulator(t, types)

	t.Run("selftest", func(t *testing.T) {
		out, err := exec.Command(filepath.Join(dir, "selftest")).CombinedOutput()
		const cases = 20
		if n := strings.Count(string(out), "ok: "); err != nil || n < cases {
			t.Errorf("%v; %d cases passed, of %d at least\n%s", err, n, cases, out)
		}
	})
	drive := func(program, what string, first, each, ranks int) {
		t.Run(fmt.Sprintf("%s, %s, seed %d", program, what, first), func(t *testing.T) {
			t.Parallel()
			out, err := exec.Command(filepath.Join(dir, program), what, strconv.Itoa(first), strconv.Itoa(each), strconv.Itoa(ranks)).CombinedOutput()
			if err != nil {
				t.Fatalf("%v\n%s\nto begin with a seed, set ASSAY_EMU_SEED to it", err, out)
			}
			var ran, grids int
			if _, err := fmt.Sscanf(string(out), "%d sequences, %d grids", &ran, &grids); err != nil || ran != each || grids < ran {
				t.Errorf("%v; want %d sequences:\n%s", err, each, out)
			}
		})
	}
	for i := range runs {
		drive("drive", "all", seed+i*each, each, 8)
	}
	drive("few", "all", seed, each, FewRanks)
	drive("few", "alone", seed, alone, FewRanks)
	drive("drive", "alone", seed+alone, alone/2, 8)
}

// buildEmulator compiles the kernels that move bytes and those of the types,
// and links them into the programs selftest, drive and few, which is drive with
// the variants for few ranks, of the directory.
func buildEmulator(t *testing.T, types []elem.Type) string {
	t.Helper()
	gxx, err := exec.LookPath("g++")
	if err != nil {
		t.Skip("no g++")
	}
	dir := t.TempDir()
	var g errgroup.Group
	g.SetLimit(runtime.NumCPU())
	// Fibers jump from stack to stack, which a fortified longjmp takes for a
	// mistake. Kernels round after each product and each sum.
	flags := []string{"-std=c++17", "-O1", "-U_FORTIFY_SOURCE", "-ffp-contract=off"}
	compile := func(name string, args ...string) string {
		object := filepath.Join(dir, name+".o")
		g.Go(func() error {
			out, err := exec.Command(gxx, append(append(flags[:len(flags):len(flags)], args...), "-o", object)...).CombinedOutput()
			if err != nil {
				return fmt.Errorf("%s: %w\n%s", name, err, out)
			}
			return nil
		})
		return object
	}
	emulator := func(names ...string) (objects []string) {
		for _, name := range names {
			objects = append(objects, compile(name, "-I.", "-c", "emu/"+name+".cpp"))
		}
		return objects
	}
	machine := emulator("machine", "stores", "device")
	selftest := append(emulator("selftest"), machine...)
	drive := append(emulator("drive", "catalogue", "operation", "reference", "world"), machine...)
	few := slices.Clone(drive)
	kernels := func(ranks int) (objects []string) {
		unrolled := fmt.Sprintf("-DASSAY_RANKS=%d", ranks)
		objects = append(objects, compile(fmt.Sprint("movement", ranks), unrolled, "-c", "-x", "c++", "movement.cu"))
		for _, ty := range types {
			objects = append(objects, compile(fmt.Sprint(ty, ranks), unrolled, fmt.Sprintf("-DASSAY_TYPE=%d", ty), "-c", "-x", "c++", "reduction.cu"))
			if ty.Norms() {
				objects = append(objects, compile(fmt.Sprint("norm", ty, ranks), unrolled, fmt.Sprintf("-DASSAY_TYPE=%d", ty), "-c", "-x", "c++", "norm.cu"))
			}
		}
		return objects
	}
	drive = append(drive, kernels(8)...)
	few = append(few, kernels(FewRanks)...)
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	for name, objects := range map[string][]string{"selftest": selftest, "drive": drive, "few": few} {
		if out, err := exec.Command(gxx, append([]string{"-rdynamic", "-o", filepath.Join(dir, name)}, append(objects, "-ldl")...)...).CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", name, err, out)
		}
	}
	return dir
}
