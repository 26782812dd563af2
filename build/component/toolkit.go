package component

import (
	"fmt"
	"slices"
	"strings"

	"github.com/assay-hpc/assay/build/matrix"
	"github.com/assay-hpc/assay/build/recipe"
	"github.com/assay-hpc/assay/internal/certificate"
)

// A cudaKit is a CUDA toolkit in the archive of one release.
type cudaKit struct {
	release, version string   // "13", "12.4"
	compiler         string   // package and program of the newest C++ compiler that nvcc works with
	nvcc             string   // package of nvcc, whose version an image with it has
	stubs            []string // further packages that components are compiled with
	cudart           string   // package of CUDA's runtime, whose version any other image has
	// Packages of each flavour. A runtime image has the shared libraries of NVIDIA's own ones; with
	// those of devel a component can be compiled.
	minimal, runtime, devel []string
	mpiDev                  []string // compilers of the archive's Open MPI
	// scattered is a toolkit that is spread over /usr, and whose packages want a driver. Any other
	// one is in /usr/local/cuda-X.Y, as NVIDIA's packages install it.
	scattered bool
	// lost is an nvcc that asks "gcc" what it is before it looks where its own gcc is. Debian's
	// script of the same name says where, from 12.4 on.
	lost bool
}

// cudaKits are the toolkits in the archives of Debian and Ubuntu. Ubuntu 22.04's is not among them: its
// CUDA 11.5 compiles for nothing newer than 8.7.
var cudaKits = []cudaKit{
	debianKit("13", "12.4", "g++-13", []string{"libopenmpi-dev"}, "libnvfatbin12"),
	debianKit("24.04", "12.0", "g++-12", []string{"libopenmpi-dev"}),
	debianKit("26.04", "12.4", "g++-13", ubuntuMPI, "libnvfatbin12"),
	{
		release: "26.04", version: "13.1",
		compiler: "g++", nvcc: "cuda-nvcc-13-1", stubs: []string{"cuda-nvml-dev-13-1"}, cudart: "cuda-cudart-13-1",
		minimal: []string{"cuda-cudart-13-1", "cuda-nvrtc-13-1"},
		runtime: []string{"cuda-cudart-13-1", "cuda-libraries-13-1"},
		devel:   []string{"cuda-minimal-build-13-1", "cuda-libraries-dev-13-1", "cuda-nvml-dev-13-1", "cuda-command-line-tools-13-1"},
		mpiDev:  ubuntuMPI,
	},
}

// ubuntuMPI is Open MPI of Ubuntu 26.04, with the one that fits g++ of the Fortran compilers that it
// works with.
var ubuntuMPI = []string{"libopenmpi-dev", "gfortran-15"}

// debianKit is a CUDA 12 as Debian packages it, and Ubuntu with it. Some libraries came later than
// others.
func debianKit(release, version, compiler string, mpiDev []string, later ...string) cudaKit {
	nvrtc := []string{"libnvrtc-builtins" + version, "libnvrtc12"}
	runtime := slices.Concat([]string{
		"libcublas12", "libcublaslt12", "libcudart12", "libcufft11", "libcufftw11", "libcupti12", "libcurand10", "libcusolver11",
		"libcusolvermg11", "libcusparse12", "libnppc12", "libnppial12", "libnppicc12", "libnppidei12", "libnppif12", "libnppig12",
		"libnppim12", "libnppist12", "libnppisu12", "libnppitc12", "libnpps12", "libnvblas12", "libnvjitlink12", "libnvjpeg12",
		"libnvtoolsext1",
	}, nvrtc, later)
	slices.Sort(runtime)
	return cudaKit{
		release: release, version: version, compiler: compiler, nvcc: "nvidia-cuda-toolkit", cudart: "libcudart12",
		minimal: append([]string{"libcudart12"}, nvrtc...),
		runtime: runtime, mpiDev: mpiDev, scattered: true, lost: version == "12.0",
	}
}

// kitOf returns the toolkit of a target's CUDA in the archive of its release.
func kitOf(t matrix.Target) (cudaKit, bool) {
	i := slices.IndexFunc(cudaKits, func(k cudaKit) bool { return k.release == t.Release && k.version == matrix.MajorMinor(t.CUDA) })
	if i < 0 {
		return cudaKit{}, false
	}
	return cudaKits[i], true
}

func (b *builder) kit() cudaKit {
	kit, _ := kitOf(b.Target)
	return kit
}

// ownToolkit reports whether the image's toolkit is a component, not part of its base.
func (b *builder) ownToolkit() bool { return b.Target.Version("cuda-toolkit") != "" }

// devel reports whether the image has compilers and headers.
func (b *builder) devel() bool {
	flavour := b.Target.Version("cuda-toolkit")
	return flavour == "" && b.Target.Base.Build == "" || flavour == "devel"
}

// mpiDev returns the packages with the compilers of the archive's Open MPI, none where the image has
// another.
func (b *builder) mpiDev() []string {
	if b.Target.Version("openmpi") != "distro" {
		return nil
	}
	return b.kit().mpiDev
}

// nonFree enables the parts of Debian's archive that contain CUDA, and tells dpkg that the
// driver's libraries are present: packages depend on them, and the container runtime mounts the
// host's. If the archive's driver were installed instead, it would hide the host's.
var nonFree = recipe.Run{
	Title: "set up for CUDA's packages",
	Script: `sed -n 's/ main$/ contrib non-free/p' /etc/apt/sources.list > /etc/apt/sources.list.d/cuda.list
mkdir -p /tmp/driver/DEBIAN
cat > /tmp/driver/DEBIAN/control <<'END'
Package: assay-host-driver
Version: 1
Architecture: all
Maintainer: assay <https://github.com/assay-hpc/assay>
Provides: libcuda1 (= 999), libcuda.so.1 (= 999), libnvidia-ml1 (= 999), libnvidia-ml.so.1 (= 999)
Description: the host's NVIDIA driver, which the container runtime mounts
END
dpkg-deb --build --root-owner-group /tmp/driver /tmp/driver.deb
dpkg -i /tmp/driver.deb
rm -rf /tmp/driver /tmp/driver.deb
` + recipe.Tidy,
}

// homeScript links the distribution's files, which are spread over /usr, into the directory
// that people and build systems look for. Of the libraries it links only CUDA's: a link to all of
// /usr/lib would put an older NCCL ahead of the user's own. Headers stay where the compiler
// searches anyway: added again under another path, they would no longer be system headers, and
// CUDA's conflict with glibc's.
func (k cudaKit) homeScript() string {
	script := fmt.Sprintf(`home=/usr/local/cuda-%s
mkdir -p $home/bin $home/lib64
ln -s /usr/include $home/include
ln -s ${home##*/} /usr/local/cuda
dpkg-query -W -f '${source:Package} ${Package}:${Architecture}\n' | sed -n 's/^\(nvidia-cuda-toolkit\|libcu++\|libcub\|libthrust\|cccl\|libcudacxx\) //p' | sed 's/:all$//' |
while read -r p; do dpkg -L "$p"; done | sort -u > /tmp/files
multiarch=/usr/lib/$(uname -m)-linux-gnu
while read -r f; do
  case "$f" in
  */) ;;
  /usr/bin/*) ln -sf "$f" $home/bin/ ;;
  $multiarch/stubs|$multiarch/lib*.so|$multiarch/lib*.so.*|$multiarch/lib*.a) ln -sfn "$f" $home/lib64/ ;;
  esac
done < /tmp/files
rm /tmp/files
`, k.version)
	if k.lost {
		script += `if [ -e $home/bin/nvcc ]; then
  rm $home/bin/nvcc
  printf '#!/bin/sh\nPATH=/usr/lib/nvidia-cuda-toolkit/bin:$PATH exec /usr/lib/nvidia-cuda-toolkit/bin/nvcc "$@"\n' > $home/bin/nvcc
  chmod 755 $home/bin/nvcc
fi
`
	}
	return script
}

func init() { makers["cuda-toolkit"] = cudaToolkit }

// cudaToolkit is the CUDA toolkit from the distribution's own archive.
func cudaToolkit(b *builder, flavour string) {
	kit := b.kit()
	lib, first := libdir("/usr/local/cuda/lib64"), kit.cudart
	if kit.scattered {
		lib = libdir("/usr/lib/" + b.Platform.Multiarch())
		b.sources = append(b.sources, nonFree)
		b.after = append(b.after, recipe.Run{Title: "gather CUDA's files", Script: kit.homeScript()})
	}
	switch flavour {
	case "minimal":
		b.install(kit.minimal...)
	case "devel":
		first = kit.nvcc
		b.install(kit.nvcc, kit.compiler, "libibverbs-dev", "librdmacm-dev", "libibumad-dev", "libhwloc-dev", "libnuma-dev")
		b.install(slices.Concat(kit.devel, kit.runtime, b.mpiDev())...)
		b.absent = append(b.absent, certificate.Absent{Library: "libInterceptorInjectionTarget.so", Because: "compute-sanitizer, whose it is, loads it from its own directory first"})
	default:
		b.install(kit.runtime...)
	}
	major := b.Target.CUDAMajor()
	// The variables that NVIDIA's container toolkit reads. A driver of the same major version runs
	// the image's machine code.
	b.setenv("CUDA_VERSION", b.Target.CUDA)
	b.setenv("NVIDIA_REQUIRE_CUDA", "cuda>="+major+".0")
	b.setenv("NVIDIA_VISIBLE_DEVICES", "all")
	b.setenv("NVIDIA_DRIVER_CAPABILITIES", "compute,utility")
	b.prepend("PATH", "/usr/local/cuda/bin")
	checks := []certificate.Check{lib.load("libcudart.so." + major), lib.load("libnvrtc.so." + major)}
	if flavour == "devel" {
		checks = append(checks,
			command("nvcc is of this CUDA", `release `+strings.ReplaceAll(matrix.MajorMinor(b.Target.CUDA), ".", `\.`)+`,`, "/usr/local/cuda/bin/nvcc", "--version"),
			compiles("nvcc compiles and links", "/usr/local/cuda/bin/nvcc -x cu", "#include <cuda.h>\n#include <cuda_runtime.h>\n__global__ void k() {}\nint main() { k<<<1, 1>>>(); }"),
			compiles("mpicc compiles and links", "mpicc -x c", "#include <mpi.h>\n#include <infiniband/verbs.h>\nint main(int c, char **v) { MPI_Init(&c, &v); MPI_Finalize(); }"))
	} else {
		checks = append(checks, command("has no compiler", "", "/bin/sh", "-c", "! command -v nvcc && ! command -v gcc"))
	}
	b.component().Version = b.locked(first)
	b.made(nil, checks...)
}

// compiles returns a check that a compiler builds a program from a source, with the headers and
// libraries of the image.
func compiles(name, compiler, source string) certificate.Check {
	return command(name, "", "/bin/sh", "-c", "d=$(mktemp -d) && printf '%b\n' \"$1\" | "+compiler+" -o \"$d/program\" - && test -x \"$d/program\"; s=$?; rm -rf \"$d\"; exit $s", "-", source)
}

// cudaStage is a base with the distribution's toolkit and the compiler that nvcc works with, on the
// image's platform or the builder's own. It is used instead of NVIDIA's devel images.
func (b *builder) cudaStage(native bool) recipe.Source {
	kit, name := b.kit(), "cuda-"+cudaName(b.Target)
	s := recipe.Stage{Name: name, From: b.baseOf(b.Target, b.platform(native))}
	if native && b.Native != b.Platform {
		s.Name, s.Native = name+"-native", true
	}
	if kit.scattered {
		s.Steps = append(s.Steps, nonFree)
	}
	s.Steps = append(s.Steps, b.apt(s, name, false, slices.Concat([]string{kit.nvcc, kit.compiler}, kit.stubs)...))
	if kit.scattered {
		s.Steps = append(s.Steps, recipe.Run{Title: "gather CUDA's files", Script: kit.homeScript()})
	}
	return b.stage(s)
}
