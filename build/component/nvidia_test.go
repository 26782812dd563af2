package component

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/assay-hpc/assay/build/recipe"
	"github.com/assay-hpc/assay/internal/certificate"
)

// cudaRecipes are the recipes of every image of the matrix on a base of NVIDIA's.
func cudaRecipes(t *testing.T) []*recipe.Recipe {
	t.Helper()
	var out []*recipe.Recipe
	for _, target := range targets(t) {
		if target.CUDA == "" || target.Base.Debootstrap != nil {
			continue
		}
		for _, p := range target.Platforms {
			out = append(out, resolved(t, input(t, target.Name, p, p)))
		}
	}
	return out
}

// packagesOf are the packages that the image's own stage asks for.
func packagesOf(r *recipe.Recipe) []string {
	for _, st := range r.Image().Steps {
		if apt, ok := st.(recipe.Apt); ok {
			return apt.Packages
		}
	}
	return nil
}

// stepOf returns the Run step of that title, wherever in a recipe it is.
func stepOf(t *testing.T, r *recipe.Recipe, title string) recipe.Run {
	t.Helper()
	for _, s := range r.Stages {
		for _, st := range s.Steps {
			if run, ok := st.(recipe.Run); ok && run.Title == title {
				return run
			}
		}
	}
	t.Fatalf("%s has no step %q", r.Target, title)
	return recipe.Run{}
}

// script returns that step's script.
func script(t *testing.T, r *recipe.Recipe, title string) string {
	t.Helper()
	return stepOf(t, r, title).Script
}

// TestBaseRecords: every CUDA image has its own base's records, and no step comes
// after them that could change them.
func TestBaseRecords(t *testing.T) {
	for _, r := range cudaRecipes(t) {
		var copied []string
		for _, st := range r.Image().Steps {
			c, ok := st.(recipe.Copy)
			if !ok || c.From != r.Image().From {
				if text := fmt.Sprint(st); strings.Contains(text, "/opt/assay/base") {
					t.Errorf("%s: %s", r.Target, text)
				}
				continue
			}
			copied = append(copied, c.Src+" "+c.Dst)
		}
		if want := []string{"/var/lib/dpkg/status " + certificate.BaseStatusPath, "/etc/ld.so.cache " + certificate.BaseCachePath}; !slices.Equal(copied, want) {
			t.Errorf("%s %s copies %q from its base; want %q", r.Target, r.Platform, copied, want)
		}
	}
}

// TestXPMEM: UCX has a transport that needs libxpmem. OFED brings that; where there
// is no OFED the image says that it is absent.
func TestXPMEM(t *testing.T) {
	for _, r := range cudaRecipes(t) {
		efa := strings.HasSuffix(r.Target, "-efa")
		absent := slices.ContainsFunc(r.Absent, func(a certificate.Absent) bool { return a.Library == "libxpmem.so.0" })
		if has := slices.Contains(packagesOf(r), "libxpmem0"); has == efa || absent != efa {
			t.Errorf("%s: libxpmem0 is installed: %v, declared absent: %v", r.Target, has, absent)
		}
	}
}

// TestEFAPackages: what the EFA installer's packages depend on is there before it
// runs, as it has no network.
func TestEFAPackages(t *testing.T) {
	found := 0
	for _, r := range cudaRecipes(t) {
		if !strings.HasSuffix(r.Target, "-efa") {
			continue
		}
		found++
		have := packagesOf(r)
		for _, want := range []string{"tcl", "udev", "environment-modules"} {
			if !slices.Contains(have, want) {
				t.Errorf("%s installs no %s", r.Target, want)
			}
		}
		if jammy := strings.Contains(r.Target, "ubuntu22.04"); slices.Contains(have, "lsb-base") != jammy {
			t.Errorf("%s installs lsb-base: %v", r.Target, !jammy)
		}
	}
	if found == 0 {
		t.Error("the matrix has no image with EFA")
	}
}

// TestEFAPlugin runs what follows the EFA installer on what its versions leave.
func TestEFAPlugin(t *testing.T) {
	for _, tt := range []struct {
		name  string
		files []string
		want  string // where the plugin is, or the error
	}{
		{"before 1.44", []string{"amazon/ofi-nccl/lib/x86_64-linux-gnu/libnccl-net-ofi.so", "amazon/ofi-nccl/lib/x86_64-linux-gnu/libnccl-net.so"}, "amazon/ofi-nccl/lib/x86_64-linux-gnu"},
		{"later", []string{"amazon/ofi-nccl/lib/libnccl-net-ofi.so", "amazon/ofi-nccl/lib/libnccl-net.so", "amazon/ofi-nccl/lib/libnccl-ofi-tuner.so"}, "amazon/ofi-nccl/lib"},
		{"elsewhere", []string{"aws-ofi-nccl/lib/libnccl-net-ofi.so", "amazon/x"}, "aws-ofi-nccl/lib"},
		{"none", []string{"amazon/efa/lib/libfabric.so"}, "left 0 files"},
		{"two", []string{"amazon/a/libnccl-net-ofi.so", "amazon/b/libnccl-net-ofi.so"}, "left 2 files"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			opt := t.TempDir()
			for _, f := range tt.files {
				write(t, filepath.Join(opt, f), "library")
			}
			all := script(t, resolved(t, input(t, "cuda12.9.1-ubuntu24.04-efa", amd64, amd64)), "install the EFA stack")
			_, after, ok := strings.Cut(all, "100_ofinccl.conf\n")
			end := strings.Index(after, "rm -rf /var/lib/apt")
			if !ok || end < 0 {
				t.Fatalf("where in the step does the plugin get its place?\n%s", all)
			}
			out, err := exec.Command("/bin/sh", "-eu", "-c", strings.ReplaceAll(after[:end], "/opt", opt)).CombinedOutput()
			if strings.HasPrefix(tt.want, "left") {
				if err == nil || !strings.Contains(string(out), tt.want) {
					t.Errorf("%v: %s; want …%s…", err, out, tt.want)
				}
				return
			}
			if err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			if got, err := filepath.EvalSymlinks(filepath.Join(opt, "amazon/nccl-plugin")); err != nil || got != filepath.Join(opt, tt.want) {
				t.Errorf("the link leads to %s, %v; want %s", got, err, tt.want)
			}
			if _, err := os.Stat(filepath.Join(opt, "amazon/nccl-plugin/libnccl-net.so")); err == nil {
				t.Error("the plugin kept its generic name")
			}
		})
	}
}

func write(t *testing.T, name, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// TestHPCXEnvironment: the variables that HPC-X's hpcx-init.sh sets, and those of
// the peers' images, are in the configuration, for both architectures.
func TestHPCXEnvironment(t *testing.T) {
	for _, r := range cudaRecipes(t) {
		env := map[string]string{}
		for _, v := range r.Config.Env {
			env[v.Name] = v.Value
		}
		versions := versionsOf(r)
		current := slices.Contains(versions, "hpcx 2.51")
		clusterkit, commit := "", "v2.17.6"
		if r.Platform == amd64 || current {
			clusterkit = "/opt/hpcx/clusterkit"
		}
		if current {
			commit = "v2.18.3"
		}
		for name, want := range map[string]string{
			"HPCX_MPI_DIR": "/opt/hpcx/ompi", "HPCX_MPI_TESTS_DIR": "/opt/hpcx/ompi/tests",
			"HPCX_OSU_DIR": "/opt/hpcx/ompi/tests/osu-micro-benchmarks", "HPCX_OSU_CUDA_DIR": "/opt/hpcx/ompi/tests/osu-micro-benchmarks-cuda",
			"HPCX_IPM_DIR": "", "HPCX_CLUSTERKIT_DIR": clusterkit, "NCCL_TESTS_COMMITISH": commit,
		} {
			if got, ok := env[name]; !ok || got != want {
				t.Errorf("%s %s: %s=%q, %v; want %q", r.Target, r.Platform, name, got, ok, want)
			}
		}
		if got, want := r.Config.Labels["com.nvidia.cudnn.version"], env["NV_CUDNN_VERSION"]; got != want || want == "" {
			t.Errorf("%s: the label says cuDNN %q, the variable %q", r.Target, got, want)
		}
		spcx := strings.Contains(env["LD_LIBRARY_PATH"], "/opt/hpcx/nccl_spectrum-x_plugin/lib")
		if want := !strings.HasSuffix(r.Target, "-efa") && !slices.Contains(versions, "hpcx 2.23"); spcx != want {
			t.Errorf("%s: LD_LIBRARY_PATH has the plugin for Spectrum-X: %v; want %v", r.Target, spcx, want)
		}
	}
}

// versionsOf are the components of a recipe with their versions.
func versionsOf(r *recipe.Recipe) []string {
	var out []string
	for _, c := range r.Components {
		out = append(out, c.Name+" "+c.Version)
	}
	return out
}

// TestHPCXPlugins unpacks an archive whose plugins have the names that HPC-X's
// have had: each gets a name of its own, and no link is left behind.
func TestHPCXPlugins(t *testing.T) {
	if _, err := exec.LookPath("bzip2"); err != nil {
		t.Skip(err)
	}
	opt, dist := t.TempDir(), filepath.Join(t.TempDir(), "hpcx")
	sharp, spectrum := filepath.Join(dist, "nccl_rdma_sharp_plugin/lib"), filepath.Join(dist, "nccl_spectrum-x_plugin/lib")
	write(t, sharp+"/libnccl-net.so.0.0.0", "SHARP's")
	write(t, spectrum+"/libnccl-net.so", "Spectrum-X's")
	for link, to := range map[string]string{
		sharp + "/libnccl-net.so.0": "libnccl-net.so.0.0.0", sharp + "/libnccl-net.so": "libnccl-net.so.0.0.0", sharp + "/libnccl-net-ibext.so": "libnccl-net.so",
		spectrum + "/libnccl-net-spcx.so": "libnccl-net.so",
	} {
		if err := os.Symlink(to, link); err != nil {
			t.Fatal(err)
		}
	}
	archive := filepath.Join(t.TempDir(), "a.tbz")
	if out, err := exec.Command("tar", "-cjf", archive, "-C", filepath.Dir(dist), "hpcx").CombinedOutput(); err != nil {
		t.Fatalf("tar: %v: %s", err, out)
	}
	all := script(t, resolved(t, input(t, "cuda12.9.1-ubuntu24.04", amd64, amd64)), "unpack HPC-X")
	all = strings.NewReplacer("/opt/hpcx", opt+"/hpcx", "/run/assay/source", archive).Replace(all)
	if out, err := exec.Command("/bin/sh", "-eu", "-c", all).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	got := map[string]string{}
	for _, dir := range []string{"nccl_rdma_sharp_plugin/lib", "nccl_spectrum-x_plugin/lib"} {
		files, err := os.ReadDir(filepath.Join(opt, "hpcx", dir))
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range files {
			text, err := os.ReadFile(filepath.Join(opt, "hpcx", dir, f.Name()))
			if err != nil {
				t.Error(err)
			}
			got[f.Name()] = string(text)
		}
	}
	want := map[string]string{"libnccl-net-sharp.so": "SHARP's", "libnccl-net-ibext.so": "SHARP's", "libnccl-net-spcx.so": "Spectrum-X's", "libnccl-net-spectrum-x.so": "Spectrum-X's"}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("the plugins are %q; want %q", got, want)
	}
}

// TestHPCXRebuild runs the steps that rebuild Open MPI on archives as HPC-X's have
// been: what was shipped is gone but for its tests, which are where the
// variables say; an archive without the sources is refused by name.
func TestHPCXRebuild(t *testing.T) {
	all := script(t, resolved(t, input(t, "cuda13.4.2-ubuntu26.04", amd64, amd64)), "rebuild HPC-X's Open MPI")
	const configure = "#!/bin/sh\nfor a; do case $a in --prefix=*) p=${a#*=};; esac; done\nprintf 'all:\\ninstall:\\n\\tmkdir -p %s/bin\\n\\techo built > %s/bin/mpirun\\n' $p $p > Makefile\n"
	for _, tt := range []struct {
		name, sources string
		shipped       []string // Open MPIs; the first one has the tests
		want          string
	}{
		{"until 2.25", "openmpi-gitclone", []string{"ompi"}, ""},
		{"since 2.26", "openmpi4-gitclone", []string{"ompi4", "ompi5"}, ""},
		{"no sources", "openmpi5-gitclone", []string{"ompi5"}, "no source of Open MPI 4: openmpi5-gitclone.tar.gz"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			hpcx := filepath.Join(dir, "hpcx")
			for _, mpi := range tt.shipped {
				write(t, filepath.Join(hpcx, mpi, "bin/mpirun"), "shipped")
			}
			write(t, filepath.Join(hpcx, tt.shipped[0], "tests/osu-micro-benchmarks/osu_bw"), "OSU")
			write(t, filepath.Join(dir, tt.sources, "configure"), configure)
			write(t, filepath.Join(hpcx, "hpcx-init.sh"), "export HPCX_MPI_DIR=${HPCX_DIR}/ompi4\n")
			if err := os.Chmod(filepath.Join(dir, tt.sources, "configure"), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.Mkdir(filepath.Join(hpcx, "sources"), 0o755); err != nil {
				t.Fatal(err)
			}
			if out, err := exec.Command("tar", "-czf", filepath.Join(hpcx, "sources", tt.sources+".tar.gz"), "-C", dir, tt.sources).CombinedOutput(); err != nil {
				t.Fatalf("tar: %v: %s", err, out)
			}
			text := strings.NewReplacer("/opt/hpcx", hpcx, "/tmp/ompi", dir+"/ompi").Replace(all)
			out, err := exec.Command("/bin/sh", "-eu", "-c", text).CombinedOutput()
			if tt.want != "" {
				if err == nil || !strings.Contains(string(out), tt.want) {
					t.Errorf("%v: %s; want …%s…", err, out, tt.want)
				}
				return
			}
			if err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			for file, want := range map[string]string{
				"ompi/bin/mpirun": "built\n", "ompi/tests/osu-micro-benchmarks/osu_bw": "OSU", "hpcx-init.sh": "export HPCX_MPI_DIR=${HPCX_DIR}/ompi\n",
			} {
				if got, err := os.ReadFile(filepath.Join(hpcx, file)); err != nil || string(got) != want {
					t.Errorf("%s is %q, %v; want %q", file, got, err, want)
				}
			}
			for _, gone := range []string{"ompi4", "ompi5", "tests", "sources"} {
				if _, err := os.Stat(filepath.Join(hpcx, gone)); err == nil {
					t.Errorf("%s is left", gone)
				}
			}
		})
	}
}

// TestHCOLLLinks: Open MPI's configure links a program with HCOLL, whose own
// libraries the linker finds by LD_LIBRARY_PATH alone.
func TestHCOLLLinks(t *testing.T) {
	for _, r := range cudaRecipes(t) {
		before, _, ok := strings.Cut(script(t, r, "rebuild HPC-X's Open MPI"), "./configure ")
		if !ok {
			t.Fatalf("%s: no configure", r.Target)
		}
		for _, lib := range []string{"hcoll", "ucx", "ucc", "sharp"} {
			if _, value, _ := strings.Cut(before, "export LD_LIBRARY_PATH="); !strings.Contains(value, "/opt/hpcx/"+lib+"/lib") {
				t.Errorf("%s: LD_LIBRARY_PATH lacks %s when configure runs", r.Target, lib)
			}
		}
	}
}

// TestPerftestKnowsAll: what CUDA's header declares decides which ways of
// registering GPU memory perftest is compiled with, so it is a major's highest
// CUDA, on the oldest Ubuntu.
func TestPerftestKnowsAll(t *testing.T) {
	for _, r := range cudaRecipes(t) {
		want := "docker.io/nvidia/cuda:12.9.1-devel-ubuntu20.04"
		if strings.HasPrefix(r.Target, "cuda13") {
			want = "docker.io/nvidia/cuda:13.4.2-devel-ubuntu22.04"
		}
		run := stepOf(t, r, "compile perftest-26.04.17")
		i := slices.IndexFunc(run.Mounts, func(m recipe.Mount) bool { return m.Target == cudaHome })
		if i < 0 || run.Mounts[i].From.Ref != want {
			t.Errorf("%s: perftest is compiled with %+v; want %s", r.Target, run.Mounts, want)
		}
	}
}

// TestBoostIsInside: nvcc puts all of -Xlinker before the libraries, so -Bstatic
// says nothing of the one behind it, and no image has Boost's shared library.
func TestBoostIsInside(t *testing.T) {
	for _, r := range cudaRecipes(t) {
		text := stepOf(t, r, "compile nvbandwidth-0.9").Script
		if want := `"$LIB/libboost_program_options.a"`; !strings.Contains(text, want) || strings.Contains(text, "-lboost") {
			t.Errorf("%s %s: nvbandwidth is linked by\n%s", r.Target, r.Platform, text)
		}
	}
}

// TestKernelsStandard: CUDA 13's own headers ask for C++17.
func TestKernelsStandard(t *testing.T) {
	for _, r := range cudaRecipes(t) {
		for _, s := range r.Stages {
			if !strings.HasPrefix(s.Name, "ptx-") {
				continue
			}
			if text := s.Steps[0].(recipe.Run).Script; !strings.Contains(text, "-std=c++17") || strings.Contains(text, "c++14") {
				t.Errorf("%s: kernels are compiled by\n%s", r.Target, text)
			}
		}
	}
	for _, file := range []string{"../../coll/cuda/kernels/gen/compile.go", "../../dcgm/diag/ptx/generate"} {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(text), "-std=c++17") || strings.Contains(string(text), "c++14") {
			t.Errorf("%s does not ask for C++17", file)
		}
	}
}
