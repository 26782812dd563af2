package e2e

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/assay-hpc/assay/build/driver"
	"github.com/assay-hpc/assay/build/standin"
)

// TestHarnessCUDA builds a CUDA image whose nvcc compiles kernels with this
// machine's, so that all of the harness is real: its kernels, its C code, and
// the program, which the gate has checked. Compiling all kernels takes minutes,
// so it runs when ASSAY_TEST_KERNELS is set (make test ONLY=kernels).
func TestHarnessCUDA(t *testing.T) {
	if os.Getenv("ASSAY_TEST_KERNELS") == "" {
		t.Skip("slow: make test ONLY=kernels runs it")
	}
	addr := buildkit(t)
	nvcc, err := standin.Compiler()
	if err != nil {
		t.Skip(err)
	}
	u := upstreams(t, standin.Options{Bases: []standin.Base{{CUDA: "12.9.1", Ubuntu: "22.04"}}, Compiler: true})
	w := workspace(t, "testdata/standin-one.yaml", u.Mirrors())
	lockAll(t, w, u, addr)
	out := t.TempDir()
	res, err := w.Build(t.Context(), driver.BuildOptions{OutDir: out, Builders: []string{addr}, Progress: progress()})
	if err != nil {
		t.Fatal(err)
	}
	if res.Failed() {
		t.Fatal(report(res))
	}
	root := unpack(t, out, res.Targets[0].Images[0].Digest)

	// nvcc's version is what the stand-in for it says of itself.
	for _, c := range []struct {
		command string
		want    []string
	}{
		{"harness version", []string{"\nGPUs: skipped: no NVIDIA driver: ", "\nKernels: by nvcc 12.9.1, for older drivers by 11.8.89\n"}},
		{"harness show topology", []string{"\nGPUs: skipped: "}},
		{"harness coll all_reduce -t 4 -b 8 -e 64K -f 8", []string{"\n# GPUs: skipped: no NVIDIA driver: ", "\n# Out of bounds values : 0 OK\n"}},
	} {
		text := "\n" + runc(t, root, strings.Fields(c.command)...)
		for _, want := range c.want {
			if !strings.Contains(text, want) {
				t.Errorf("%s has no %q:\n%s", c.command, want, text)
			}
		}
	}

	// The compiler that the committed PTX is by gives the same again: the list of
	// its sums, which the harness has too, differs in the version alone.
	committed, err := os.ReadFile("../../coll/cuda/kernels/ptx/SUM")
	if err != nil {
		t.Fatal(err)
	}
	first, sums, _ := bytes.Cut(committed, []byte("\n"))
	pinned := strings.TrimPrefix(string(first), "# nvcc ")
	if text, err := exec.Command(nvcc, "--version").Output(); err != nil || !bytes.Contains(text, []byte("V"+pinned)) {
		t.Skipf("the PTX in the image is not compared: this machine's nvcc is not %s, which the committed PTX is by", pinned)
	}
	program, err := os.ReadFile(filepath.Join(root, "opt/assay/bin/harness"))
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Contains(program, append([]byte("# nvcc 12.9.1\n"), sums...)) {
		t.Error("what was compiled in the image is not what is committed")
	}
}
