package component

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/assay-hpc/assay/build/matrix"
	"github.com/assay-hpc/assay/build/recipe"
	"github.com/assay-hpc/assay/internal/certificate"
)

// cudaImage adds what every CUDA image has besides its components.
func (b *builder) cudaImage() {
	if b.Target.Version("nccl-tests") != "" {
		b.workDir = "/opt/nccl-tests"
	}
	// Tools that people who build FROM the image, and their job scripts, expect.
	if b.devel() {
		b.install("build-essential", "autoconf", "automake", "libtool", "pkg-config", "wget", "git", "unzip", "environment-modules")
	}
	b.install("ca-certificates", "curl", "iputils-ping", "net-tools", "numactl", "libnuma1", "pciutils")
	for _, lib := range []string{"libcuda.so.1", "libnvidia-ml.so.1"} {
		b.absent = append(b.absent, certificate.Absent{Library: lib, Because: "it is the NVIDIA driver's; the container runtime mounts the host's"})
	}
}

// row returns the row of the matrix on whose base a part is compiled: on the release of the target or
// the oldest one, with its CUDA or the lowest or highest of the same major version. What is compiled
// on an older C library also runs with every later one, and rows for which this is the same row share
// the work.
func (b *builder) row(distro, cuda string) matrix.Target {
	t := b.Target
	if !shares(t) {
		return t
	}
	fits := func(o matrix.Target) bool {
		return o.Distro == t.Distro && (distro == "oldest" || o.Release == t.Release) &&
			(o.CUDA == t.CUDA || cuda != "" && cuda != "own" && o.CUDAMajor() == t.CUDAMajor())
	}
	return b.firstOf(fits, func(x, y matrix.Target) int {
		order := matrix.CompareVersions(x.CUDA, y.CUDA)
		if cuda == "highest-of-major" {
			order = -order
		}
		return cmp.Or(matrix.CompareVersions(x.Release, y.Release), order)
	})
}

// shares reports whether parts of the target are compiled on other rows' bases, and theirs on its own.
func shares(t matrix.Target) bool {
	return t.CUDA != "" && t.Base.Debootstrap == nil && !t.Base.Own
}

// reference returns the member of the matrix that provides the base for the tools of a row: the plain
// one of its release with the lowest CUDA.
func (b *builder) reference(on matrix.Target) matrix.Target {
	if !shares(on) {
		return on
	}
	return b.firstOf(func(t matrix.Target) bool { return t.Release == on.Release }, func(x, y matrix.Target) int {
		return matrix.CompareVersions(x.CUDA, y.CUDA)
	})
}

// firstOf returns the wanted row that the order puts first: a plain one if there is one.
func (b *builder) firstOf(want func(matrix.Target) bool, order func(a, b matrix.Target) int) matrix.Target {
	var best matrix.Target
	for _, t := range b.All {
		if !shares(t) || !want(t) {
			continue
		}
		plain, better := t.Variant == "", best.Variant == ""
		if best.Name == "" || plain && !better || plain == better && order(t, best) < 0 {
			best = t
		}
	}
	return best
}

// tools is the system of a row with everything that components are compiled with, except the CUDA
// toolkit. A step mounts that from the base with the right version, so the packages are installed once
// per Ubuntu, not once per CUDA.
func (b *builder) tools(on matrix.Target) recipe.Source {
	on = b.reference(on)
	name := "tools-" + cudaName(on)
	s := recipe.Stage{Name: name}
	if b.ownToolkit() {
		s.From = b.cudaStage(false)
	} else {
		s.From, s.Steps = b.compilersOf(on, b.Platform), b.ofedRepository(on)
	}
	packages := []string{
		"build-essential", "autoconf", "automake", "libtool", "pkg-config", "bzip2", "python3",
		"devscripts", "debhelper", "fakeroot", // NCCL packages itself
		"libibverbs-dev", "librdmacm-dev", "libibumad-dev", "libpci-dev", "libnuma-dev",
		"libhwloc-dev", "libevent-dev", "libboost-program-options-dev",
	}
	if b.ownToolkit() {
		packages = append(packages, b.mpiDev()...)
	} else {
		packages = append(packages, pmixDev(on))
	}
	s.Steps = append(s.Steps, b.apt(s, name, false, packages...))
	return b.stage(s)
}

// toolkit mounts a target's CUDA toolkit at cudaHome. In NVIDIA's bases it is one self-contained
// directory, and in NVIDIA's packages. Debian's consists of links into /usr, so it needs tools that
// were installed together with it.
func (b *builder) toolkit(on matrix.Target) recipe.Mount {
	return recipe.Mount{Target: cudaHome, From: b.cudaBase(on, false), Path: cudaPath(on)}
}

// cudaPath is where a target's base has the CUDA toolkit.
func cudaPath(on matrix.Target) string {
	return cmp.Or(on.Base.Find("cuda").Path(), "/usr/local/cuda-"+matrix.MajorMinor(on.CUDA))
}

// cudaBase is a system with a target's nvcc and its headers, on the image's platform or the
// builder's own.
func (b *builder) cudaBase(on matrix.Target, native bool) recipe.Source {
	if b.ownToolkit() {
		return b.cudaStage(native)
	}
	return b.compilersOf(on, b.platform(native))
}

// hostCompiler is the C++ compiler whose objects nvcc's can be linked with.
func (b *builder) hostCompiler() string {
	if b.ownToolkit() {
		return b.kit().compiler
	}
	return "g++"
}

const cudaHome = "/run/assay/cuda"

// nvcc wraps the toolkit's compiler in a script that makes its output deterministic. nvcc itself
// names temporary files after its process ID, and objects keep the names: in their symbols, from
// which build IDs and debug links are made, and in linked programs. Relocatable device code
// without a name of its own is named after the process and the time of its source. (The option
// -frandom-seed prevents that, but 12.4 lacks it.) Makefiles take NVCC from the environment.
var nvcc = recipe.Piece{File: recipe.CommonDir + "nvcc.sh", Text: `cc -shared -fPIC -o /usr/local/lib/process.so -x c - <<'EOF'
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
`}

// unpack is the beginning of a script that compiles a source archive.
var unpack = recipe.Piece{
	File: recipe.CommonDir + "unpack.sh",
	Text: "mkdir -p /src /out\ntar -xf /run/assay/source -C /src --strip-components=1 --no-same-owner\ncd /src\n",
}

// compile unpacks a tar archive on the tools of a target's Ubuntu, with the target's CUDA, and
// runs a script in the unpacked directory. The result is what the script leaves in /out.
func (b *builder) compile(name string, on matrix.Target, src recipe.Source, script recipe.Piece, more ...recipe.Mount) recipe.Source {
	run := recipe.Run{Title: "compile " + name, Mounts: append([]recipe.Mount{{Target: "/run/assay/source", From: src}, b.toolkit(on)}, more...)}
	run.Add(nvcc, unpack, script)
	return b.stage(recipe.Stage{Name: name + "-" + cudaName(on), From: b.tools(on), Steps: []recipe.Step{run}})
}

// gencode returns nvcc's flags for the target's architectures: a cubin for each, and PTX of the
// last one for newer architectures.
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
