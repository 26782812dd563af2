package component

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/assay-hpc/assay/build/recipe"
)

// TestOwnCUDA: images with the distribution's toolkit take nothing from a
// registry, nothing of the driver, and all that is compiled comes from one base.
func TestOwnCUDA(t *testing.T) {
	seen := 0
	for _, target := range targets(t) {
		flavour := target.Version("cuda-toolkit")
		if flavour == "" {
			continue
		}
		seen++
		r := resolved(t, input(t, target.Name, amd64, amd64))
		for _, s := range r.Stages {
			if s.From.Kind == recipe.FromImage {
				t.Errorf("%s: stage %s starts from %s", target.Name, s.Name, s.From.Ref)
			}
			for _, st := range s.Steps {
				run, ok := st.(recipe.Run)
				if !ok {
					continue
				}
				for _, m := range run.Mounts {
					if m.From.Kind == recipe.FromImage || m.From.Kind == recipe.FromURL && strings.Contains(m.From.Ref, "nvidia.com") {
						t.Errorf("%s: %q takes %s", target.Name, run.Title, m.From.Ref)
					}
				}
			}
		}
		packages := packagesOf(r)
		kit, _ := kitOf(target)
		for _, p := range packages {
			if p == "libcuda1" || strings.HasPrefix(p, "nvidia-driver") {
				t.Errorf("%s installs %s, which is the driver's", target.Name, p)
			}
		}
		if compiler := slices.Contains(packages, kit.nvcc); compiler != (flavour == "devel") || slices.Contains(packages, "build-essential") != compiler {
			t.Errorf("%s (%s) installs %q", target.Name, flavour, packages)
		}
		for _, p := range map[string][]string{"minimal": kit.minimal, "runtime": kit.runtime, "devel": kit.runtime}[flavour] {
			if !slices.Contains(packages, p) {
				t.Errorf("%s lacks %s: %q", target.Name, p, packages)
			}
		}
		if flavour == "minimal" && slices.Contains(packages, kit.runtime[len(kit.runtime)-1]) {
			t.Errorf("%s has all of the runtime: %q", target.Name, packages)
		}
		if !slices.ContainsFunc(r.Config.Env, func(v recipe.Var) bool { return v.Name == "NVIDIA_VISIBLE_DEVICES" && v.Value == "all" }) {
			t.Errorf("%s does not ask for GPUs: %v", target.Name, r.Config.Env)
		}
		if i := slices.IndexFunc(r.Config.Env, func(v recipe.Var) bool { return v.Name == "NVIDIA_REQUIRE_CUDA" }); i < 0 || r.Config.Env[i].Value != "cuda>="+target.CUDAMajor()+".0" {
			t.Errorf("%s wants a driver of another CUDA: %v", target.Name, r.Config.Env)
		}
		// The stand-in for the driver is there before anything depends on it.
		image := r.Image().Steps
		apt := slices.IndexFunc(image, func(s recipe.Step) bool { _, ok := s.(recipe.Apt); return ok })
		if i := slices.IndexFunc(image, func(s recipe.Step) bool { run, ok := s.(recipe.Run); return ok && run.Title == nonFree.Title }); kit.scattered && (i < 0 || i > apt) {
			t.Errorf("%s: the driver is provided in step %d, packages are installed in step %d", target.Name, i, apt)
		}
	}
	if seen < 6 {
		t.Errorf("the matrix has %d such images; want 6 and more", seen)
	}
}

// TestNVCC: objects are the same, whichever processes they were compiled by.
func TestNVCC(t *testing.T) {
	path, err := exec.LookPath("nvcc")
	if err != nil {
		t.Skip("no nvcc on this machine")
	}
	dir := t.TempDir()
	check := func(out []byte, err error) []byte {
		t.Helper()
		if err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		return out
	}
	wrapper := strings.NewReplacer("/usr/local/bin/nvcc", filepath.Join(dir, "nvcc"), "/usr/local/lib/", dir+"/", cudaHome+"/bin/nvcc", path).Replace(nvcc.Text)
	check(exec.Command("sh", "-euc", wrapper).CombinedOutput())
	source := filepath.Join(dir, "k.cu")
	check(nil, os.WriteFile(source, []byte("namespace { __device__ int v; }\nstatic __global__ void k() { v = 1; }\nstatic void f() { k<<<1, 1>>>(); }\n"), 0o644))
	compile := func(nvcc string) string {
		out := filepath.Join(dir, "k.o")
		cmd := exec.Command(nvcc, "-allow-unsupported-compiler", "-rdc=true", "-c", "-o", out, source)
		cmd.Env = append(os.Environ(), "TMPDIR="+t.TempDir())
		check(cmd.CombinedOutput())
		return string(check(os.ReadFile(out)))
	}
	if first := compile(path); compile(path) == first {
		t.Error("nvcc by itself gives the same: this test shows nothing")
	}
	path = filepath.Join(dir, "nvcc")
	var objects []string
	before := time.Unix(1e9, 123456789)
	for range 3 {
		before = before.Add(time.Hour)
		check(nil, os.Chtimes(source, before, before))
		objects = append(objects, compile(path))
		if after, err := os.Stat(source); err != nil || !after.ModTime().Equal(before) {
			t.Errorf("the source's time was %v and is %v, %v", before, after, err)
		}
	}
	if objects[0] != objects[1] || objects[0] != objects[2] {
		t.Error("objects differ")
	}
}
