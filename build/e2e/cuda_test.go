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

// TestCUDAOfDebian: of the smallest CUDA image from Debian's archive, the harness has kernels by
// the archive's nvcc.
func TestCUDAOfDebian(t *testing.T) {
	long(t)
	testDistroCUDA(t, "cuda12.4-debian13-minimal", "libcudart.so.12", `(?m)^Kernels: by nvcc 12\.4\.`,
		"component/cuda-toolkit/has-no-compiler", "component/harness/its-kernels-are-by-the-image-s-nvcc")
}

// TestCUDAOfUbuntu: of the smallest CUDA image from Ubuntu's archive, the harness has the kernels
// that are committed.
func TestCUDAOfUbuntu(t *testing.T) {
	long(t)
	testDistroCUDA(t, "cuda13.1-ubuntu26.04-minimal", "libcudart.so.13", `(?m)^Kernels: by nvcc 11\.8\.`,
		"component/cuda-toolkit/has-no-compiler", "component/harness/has-kernels", "component/harness/loads-libnccl.so.2")
}

// testDistroCUDA locks and builds an image whose CUDA toolkit is the distribution's, certifies it, and
// starts it: no driver came along.
func testDistroCUDA(t *testing.T, name, cudart, kernels string, checks ...string) {
	addr := buildkit(t)
	if runtime.GOARCH != "amd64" {
		t.Skip("the matrix has the image for linux/amd64 only")
	}
	if err := base.Check(); err != nil {
		t.Skip(err)
	}
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
	for _, id := range append(checks, "libraries", "mpi/ranks", "dpkg/declared", "component/cuda-toolkit/loads-"+cudart, "component/harness/has-the-code-for-gpus") {
		if !passed[id] {
			t.Errorf("check %s did not pass", id)
		}
	}
	if _, err := inspectImage(t, "oci:"+out+":"+name); err != nil {
		t.Errorf("Inspect: %v", err)
	}
	root := unpack(t, out, img.Digest)
	text := runc(t, root, "/bin/sh", "-c", "harness version; find / -xdev -name 'libcuda.so*' -o -xdev -name 'libnvidia-ml.so*'; ls -L /usr/local/cuda/lib64/"+cudart)
	if !regexp.MustCompile(kernels).MatchString(text) || !strings.Contains(text, "\n/usr/local/cuda/lib64/"+cudart+"\n") {
		t.Errorf("in the image:\n%s", text)
	}
	if regexp.MustCompile(`/lib(cuda|nvidia-ml)\.so`).MatchString(text) {
		t.Errorf("the image has libraries of the driver:\n%s", text)
	}
}
