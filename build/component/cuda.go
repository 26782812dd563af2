package component

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/assay-hpc/assay/build/matrix"
	"github.com/assay-hpc/assay/build/recipe"
	"github.com/assay-hpc/assay/harness/certificate"
)

// cudaImage adds what every CUDA image has besides its components.
func (b *builder) cudaImage() {
	if !b.ownToolkit() {
		b.keepBase()
	}
	if b.Target.Version("nccl-tests") != "" {
		b.workDir = "/opt/nccl-tests"
	}
	// The tools that people who build FROM the image, and their job scripts,
	// expect.
	if b.devel() {
		b.install("build-essential", "autoconf", "automake", "libtool", "pkg-config", "wget", "git", "unzip", "environment-modules")
	}
	b.install("ca-certificates", "curl", "iputils-ping", "net-tools", "numactl", "libnuma1", "pciutils")
	for _, lib := range []string{"libcuda.so.1", "libnvidia-ml.so.1"} {
		b.absent = append(b.absent, certificate.Absent{Library: lib, Because: "it is the NVIDIA driver's; the container runtime mounts the host's"})
	}
}

// oldestUbuntu is the member of the matrix on which what depends on the CUDA
// version, but not on the Ubuntu, is built: its C library is the oldest, so
// the result runs on the others too.
func (b *builder) oldestUbuntu() matrix.Target {
	if b.ownToolkit() {
		return b.Target
	}
	return matrix.OldestUbuntu(b.All, b.Target.CUDA)
}

// oldestMajor is where that is built which depends on CUDA's major version
// alone: the oldest Ubuntu, and of that the CUDA that the order puts first.
func (b *builder) oldestMajor(order func(a, b string) int) matrix.Target {
	if b.ownToolkit() {
		return b.Target
	}
	return b.firstOf(func(t matrix.Target) bool { return t.CUDAMajor() == b.Target.CUDAMajor() }, func(x, y matrix.Target) int {
		return cmp.Or(matrix.CompareVersions(x.Release, y.Release), order(x.CUDA, y.CUDA))
	})
}

// reference is the member of the matrix that lends its base to the tools of an
// Ubuntu: the plain one with the lowest CUDA.
func (b *builder) reference(release string) matrix.Target {
	return b.firstOf(func(t matrix.Target) bool { return t.Release == release }, func(x, y matrix.Target) int {
		return matrix.CompareVersions(x.CUDA, y.CUDA)
	})
}

// firstOf returns the plain image on a base of NVIDIA's that an order puts first.
func (b *builder) firstOf(want func(matrix.Target) bool, order func(a, b matrix.Target) int) matrix.Target {
	var best matrix.Target
	for _, t := range b.All {
		if t.CUDA != "" && t.Base.Debootstrap == nil && t.Variant == "" && want(t) && (best.Name == "" || order(t, best) < 0) {
			best = t
		}
	}
	return best
}

// tools is an Ubuntu with everything that components are compiled with but the
// CUDA toolkit, which a step mounts from the base that has the right one: its
// packages are installed once per Ubuntu, not once per CUDA.
func (b *builder) tools(release string) recipe.Source {
	on := b.reference(release)
	if b.ownToolkit() {
		on = b.Target
	}
	name := "tools-" + baseName(on)
	s := recipe.Stage{Name: name}
	if b.ownToolkit() {
		s.From = b.debianCUDA()
	} else {
		s.From, s.Steps = b.baseOf(on, b.Platform), b.ofedRepository(on)
	}
	packages := []string{
		"build-essential", "autoconf", "automake", "libtool", "pkg-config", "bzip2", "python3",
		"devscripts", "debhelper", "fakeroot", // NCCL packages itself
		"libibverbs-dev", "librdmacm-dev", "libibumad-dev", "libpci-dev", "libnuma-dev",
		"libhwloc-dev", "libevent-dev", "libboost-program-options-dev",
	}
	if b.ownToolkit() {
		packages = append(packages, "libopenmpi-dev")
	} else {
		packages = append(packages, pmixDev(on))
	}
	s.Steps = append(s.Steps, b.apt(s, name, false, packages...))
	return b.stage(s)
}

// toolkit mounts a target's CUDA toolkit at cudaHome. That of NVIDIA's bases is
// one directory that refers to nothing outside; Debian's is links into /usr, so
// it goes with tools that were installed beside it.
func (b *builder) toolkit(on matrix.Target) recipe.Mount {
	return recipe.Mount{Target: cudaHome, From: b.cudaBase(on, b.Platform), Path: "/usr/local/cuda-" + majorMinor(on.CUDA)}
}

// cudaBase is a system with a target's nvcc and its headers.
func (b *builder) cudaBase(on matrix.Target, p recipe.Platform) recipe.Source {
	if b.ownToolkit() {
		return b.debianCUDA()
	}
	return b.baseOf(on, p)
}

// hostCompiler is the C++ compiler whose objects nvcc's can be linked with.
func (b *builder) hostCompiler() string {
	if b.ownToolkit() {
		return debianToolkits[majorMinor(b.Target.CUDA)].compiler
	}
	return "g++"
}

const cudaHome = "/run/assay/cuda"

// majorMinor returns "12.9" of "12.9.1".
func majorMinor(version string) string {
	return strings.Join(strings.Split(version, ".")[:2], ".")
}

// nvcc puts the toolkit's compiler behind a script that makes it give the same each
// time. By itself it names temporary files after its process, and objects keep the
// names: in their symbols, which build IDs and debug links are made of, and in
// programs that are linked. Relocatable device code without a name of its own is
// named after the process and the time of its source. (There is an option against
// that, -frandom-seed, but not in 12.4.) Makefiles take NVCC from the environment.
const nvcc = `cc -shared -fPIC -o /usr/local/lib/process.so -x c - <<'EOF'
int getpid(void) { return 1; }
EOF
cat > /usr/local/bin/nvcc <<'EOF'
#!/bin/bash
set -eu
dir=/tmp/nvcc/$(printf '%s\0' "$PWD" "$@" | sha256sum | cut -c 1-16)
times=()
restore() {
  local i
  for ((i = 0; i < ${#times[@]}; i += 2)); do touch -d "@${times[i + 1]}" "${times[i]}"; done
  rm -rf "$dir"
}
trap restore EXIT
mkdir -p "$dir"
for arg; do
  case $arg in
  *.cu)
    times+=("$arg" "$(stat -c %.Y "$arg")")
    touch -d "@${SOURCE_DATE_EPOCH:-0}" "$arg"
    ;;
  esac
done
TMPDIR=$dir LD_PRELOAD=/usr/local/lib/process.so ` + cudaHome + `/bin/nvcc --keep --keep-dir "$dir" "$@"
EOF
chmod 755 /usr/local/bin/nvcc
export NVCC=/usr/local/bin/nvcc
`

// compile unpacks a tar archive on the tools of a target's Ubuntu, with the
// target's CUDA, and runs a script in its directory. What the script leaves in
// /out is the result.
func (b *builder) compile(name string, on matrix.Target, src recipe.Source, script string, more ...recipe.Mount) recipe.Source {
	return b.stage(recipe.Stage{
		Name: name + "-" + baseName(on), From: b.tools(on.Release),
		Steps: []recipe.Step{recipe.Run{
			Title:  "compile " + name,
			Mounts: append([]recipe.Mount{{Target: "/run/assay/source", From: src}, b.toolkit(on)}, more...),
			Script: nvcc + "mkdir -p /src /out\ntar -xf /run/assay/source -C /src --strip-components=1 --no-same-owner\ncd /src\n" + script,
		}},
	})
}

// gencode returns nvcc's flags for the target's architectures: a cubin for
// each, and PTX of the last for what comes after it.
func gencode(t matrix.Target) string {
	var flags []string
	last := ""
	for _, c := range t.Capabilities {
		last = strings.ReplaceAll(c, ".", "")
		flags = append(flags, fmt.Sprintf("-gencode=arch=compute_%[1]s,code=sm_%[1]s", last))
	}
	return strings.Join(append(flags, fmt.Sprintf("-gencode=arch=compute_%[1]s,code=compute_%[1]s", last)), " ")
}

// sourcesOf lists downloads for the SBOM.
func sourcesOf(srcs ...recipe.Source) []certificate.Download {
	var out []certificate.Download
	for _, s := range srcs {
		out = append(out, certificate.Download{URL: s.Ref, Digest: s.Digest})
	}
	return out
}
