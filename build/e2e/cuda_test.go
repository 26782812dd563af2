package e2e

import (
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"

	"github.com/assay-hpc/assay/build/base"
	"github.com/assay-hpc/assay/internal/certificate"
	"github.com/assay-hpc/assay/internal/result"
)

// TestCUDAOfDebian builds the smallest CUDA image from Debian's archive alone,
// certifies it, and starts it: the toolkit is the archive's, the harness has
// kernels by its nvcc, and no driver came along.
func TestCUDAOfDebian(t *testing.T) {
	long(t)
	addr := buildkit(t)
	if runtime.GOARCH != "amd64" {
		t.Skip("the matrix has the image for linux/amd64 only")
	}
	if err := base.Check(); err != nil {
		t.Skip(err)
	}
	const name = "cuda12.4-debian13-minimal"
	dir := temporary(t)
	out := filepath.Join(dir, "out")
	img := lockAndBuild(t, imageWorkspace(t, dir, name, []string{"linux/amd64"}), addr, out)

	st, err := certificate.Parse(img.Certificate)
	if err != nil {
		t.Fatal(err)
	}
	if st.Predicate.Verdict != result.Pass {
		t.Errorf("the verdict is %s", st.Predicate.Verdict)
	}
	passed := map[string]bool{}
	for _, r := range st.Predicate.Results {
		passed[r.ID] = r.Verdict == result.Pass
	}
	for _, id := range []string{
		"libraries", "mpi/ranks", "dpkg/declared", "component/cuda-toolkit/loads-libcudart.so.12", "component/cuda-toolkit/has-no-compiler",
		"component/harness/has-the-code-for-gpus", "component/harness/its-kernels-are-by-the-image-s-nvcc",
	} {
		if !passed[id] {
			t.Errorf("check %s did not pass", id)
		}
	}
	if _, err := inspectImage(t, "oci:"+out+":"+name); err != nil {
		t.Errorf("Inspect: %v", err)
	}
	root := unpack(t, out, img.Digest)
	text := runc(t, root, "/bin/sh", "-c", "harness version; find / -xdev -name 'libcuda.so*' -o -xdev -name 'libnvidia-ml.so*'; ls -L /usr/local/cuda/lib64/libcudart.so.12")
	if !regexp.MustCompile(`(?m)^Kernels: by nvcc 12\.4\.`).MatchString(text) || !strings.Contains(text, "\n/usr/local/cuda/lib64/libcudart.so.12\n") {
		t.Errorf("in the image:\n%s", text)
	}
	if regexp.MustCompile(`/lib(cuda|nvidia-ml)\.so`).MatchString(text) {
		t.Errorf("the image has libraries of the driver:\n%s", text)
	}
}
