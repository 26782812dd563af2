package component

import (
	"fmt"
	"strings"

	"github.com/assay-hpc/assay/build/matrix"
	"github.com/assay-hpc/assay/build/recipe"
	"github.com/assay-hpc/assay/internal/certificate"
)

// debianToolkits maps a CUDA version to the names of the toolkit's parts in the Debian release
// that contains it.
var debianToolkits = map[string]struct {
	compiler  string   // package and program of the newest C++ compiler that nvcc works with
	libraries []string // shared libraries, the same as in NVIDIA's own runtime images
}{
	"12.4": {"g++-13", []string{
		"libcublas12", "libcublaslt12", "libcudart12", "libcufft11", "libcufftw11", "libcupti12", "libcurand10", "libcusolver11",
		"libcusolvermg11", "libcusparse12", "libnppc12", "libnppial12", "libnppicc12", "libnppidei12", "libnppif12", "libnppig12",
		"libnppim12", "libnppist12", "libnppisu12", "libnppitc12", "libnpps12", "libnvblas12", "libnvfatbin12", "libnvjitlink12",
		"libnvjpeg12", "libnvrtc-builtins12.4", "libnvrtc12", "libnvtoolsext1",
	}},
}

// debianCUDA maps a Debian release to its CUDA, of those in debianToolkits.
var debianCUDA = map[string]string{"13": "12.4"}

// ownToolkit reports whether the image's toolkit is a component, not part of its base.
func (b *builder) ownToolkit() bool { return b.Target.Version("cuda-toolkit") != "" }

// devel reports whether the image has compilers and headers.
func (b *builder) devel() bool { return b.Target.Version("cuda-toolkit") != "runtime" }

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

// cudaHomeScript links the distribution's files, which are spread over /usr, into the directory
// that people and build systems look for. Of the libraries it links only CUDA's: a link to all of
// /usr/lib would put an older NCCL ahead of the user's own. Headers stay where the compiler
// searches anyway: added again under another path, they would no longer be system headers, and
// CUDA's conflict with glibc's.
func cudaHomeScript(cuda string) string {
	return fmt.Sprintf(`home=/usr/local/cuda-%s
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
`, matrix.MajorMinor(cuda))
}

func init() { makers["cuda-toolkit"] = cudaToolkit }

// cudaToolkit is the CUDA toolkit from the distribution's own archive.
func cudaToolkit(b *builder, flavour string) {
	kit := debianToolkits[matrix.MajorMinor(b.Target.CUDA)]
	b.sources = append(b.sources, nonFree)
	first := "libcudart12"
	if flavour == "devel" {
		first = "nvidia-cuda-toolkit"
		b.install(first, kit.compiler)
		b.install("libopenmpi-dev", "libibverbs-dev", "librdmacm-dev", "libibumad-dev", "libhwloc-dev", "libnuma-dev")
		b.absent = append(b.absent, certificate.Absent{Library: "libInterceptorInjectionTarget.so", Because: "compute-sanitizer, whose it is, loads it from its own directory first"})
	}
	b.install(kit.libraries...)
	b.after = append(b.after, recipe.Run{Title: "gather CUDA's files", Script: cudaHomeScript(b.Target.CUDA)})
	// The variables that NVIDIA's container toolkit reads.
	b.setenv("CUDA_VERSION", b.Target.CUDA)
	b.setenv("NVIDIA_REQUIRE_CUDA", "cuda>="+matrix.MajorMinor(b.Target.CUDA))
	b.setenv("NVIDIA_VISIBLE_DEVICES", "all")
	b.setenv("NVIDIA_DRIVER_CAPABILITIES", "compute,utility")
	b.prepend("PATH", "/usr/local/cuda/bin")
	lib := libdir("/usr/lib/" + b.Platform.Multiarch())
	checks := []certificate.Check{lib.load("libcudart.so." + b.Target.CUDAMajor()), lib.load("libnvrtc.so." + b.Target.CUDAMajor())}
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

// debianCUDA is a Debian base with the toolkit and the compiler that nvcc works with. It is used
// instead of NVIDIA's devel images.
func (b *builder) debianCUDA() recipe.Source {
	t := b.Target
	s := recipe.Stage{Name: "cuda-" + baseName(t), From: b.baseOf(t, b.Platform), Steps: []recipe.Step{nonFree}}
	s.Steps = append(s.Steps,
		b.apt(s, s.Name, false, "nvidia-cuda-toolkit", debianToolkits[matrix.MajorMinor(t.CUDA)].compiler),
		recipe.Run{Title: "gather CUDA's files", Script: cudaHomeScript(t.CUDA)})
	return b.stage(s)
}
