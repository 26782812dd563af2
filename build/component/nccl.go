package component

import (
	"fmt"
	"strings"

	"github.com/assay-hpc/assay/build/recipe"
	"github.com/assay-hpc/assay/internal/certificate"
)

// ncclStage compiles NCCL for the target's architectures, once per CUDA version, on the oldest
// Ubuntu. /out/deb contains its packages, /out/tree the files of the packages.
func (b *builder) ncclStage() (recipe.Source, recipe.Source) {
	version := b.Target.Version("nccl")
	src := b.download("https://github.com/NVIDIA/nccl/archive/refs/tags/v" + version + ".tar.gz")
	built := b.compile("nccl-"+version, b.oldestUbuntu(), src, fmt.Sprintf(`make -j"$(nproc)" pkg.debian.build CXX=%s CUDA_HOME=/run/assay/cuda NVCC_GENCODE=%q PKG_TIMESTAMP="$(date -Ru -d "@$SOURCE_DATE_EPOCH")"
mkdir -p /out/deb /out/tree
for p in libnccl2 libnccl-dev; do
  cp build/pkg/deb/${p}_*.deb /out/deb/$p.deb
  dpkg-deb -x /out/deb/$p.deb /out/tree
done
`, b.hostCompiler(), gencode(b.Target)))
	return built, src
}

func init() { makers["nccl"], makers["nccl-tests"] = nccl, ncclTests }

// nccl is built from source for the architecture list. Its files are a layer of their own, which
// all images of one CUDA version share. dpkg registers the packages without unpacking them again,
// so that they replace the base's NCCL and other packages can depend on them.
func nccl(b *builder, version string) {
	built, src := b.ncclStage()
	b.after = append(b.after, recipe.Run{
		Title:  "register NCCL's packages",
		Mounts: []recipe.Mount{{Target: "/run/assay/nccl", From: built, Path: "/out/deb"}},
		Script: "dpkg --path-exclude='/*' --force-depends -i /run/assay/nccl/libnccl2.deb /run/assay/nccl/libnccl-dev.deb\napt-mark hold libnccl2 libnccl-dev >/dev/null\n" + recipe.Tidy,
	})
	b.copy(built, "/out/tree/", "/")
	lib := "/usr/lib/" + b.Platform.Multiarch()
	short, _, _ := strings.Cut(version, "-")
	cuda := majorMinor(b.Target.CUDA)
	b.declare(certificate.Component{
		Name: "nccl", Version: version, License: "Apache-2.0 AND BSD-3-Clause", Homepage: "https://github.com/NVIDIA/nccl",
		Sources: sourcesOf(src),
		Checks: []certificate.Check{
			command("version", `NCCL version `+strings.ReplaceAll(short, ".", `\.`)+`\+cuda`+strings.ReplaceAll(cuda, ".", `\.`), "grep", "-a", "-o", "-m", "1", "NCCL version [0-9.]*+cuda[0-9.]*", lib+"/libnccl.so.2"),
			command("dpkg has it at this version", `^`+strings.ReplaceAll(version, ".", `\.`)+`\+cuda`, "dpkg-query", "-W", "-f", "${Version}", "libnccl2"),
			command("its files are the package's", "", "dpkg", "--verify", "libnccl2", "libnccl-dev"),
			load(lib + "/libnccl.so.2"),
		},
	})
}

// ncclTests are NVIDIA's nccl-tests, at the two paths that users' job scripts expect.
func ncclTests(b *builder, version string) {
	built, src := b.ncclTestsStage(version)
	b.copy(built, "/out/", "/opt/nccl-tests/")
	b.files = append(b.files, recipe.Symlink{Path: "/opt/nccl_tests", Target: "/opt/nccl-tests"})
	b.setenv("NCCL_TESTS_COMMITISH", "v"+version) // as in the images that users migrate from
	b.declare(certificate.Component{
		Name: "nccl-tests", Version: version, License: "BSD-3-Clause", Homepage: "https://github.com/NVIDIA/nccl-tests",
		Sources: sourcesOf(src),
		Checks: []certificate.Check{
			executable("/opt/nccl-tests/build/all_reduce_perf"), executable("/opt/nccl_tests/build/alltoall_perf"),
		},
	})
}

// ncclTestsStage compiles nccl-tests once per CUDA and NCCL version, with the MPI of the oldest
// Ubuntu: the ABI of Open MPI 4 is stable.
func (b *builder) ncclTestsStage(version string) (recipe.Source, recipe.Source) {
	on := b.oldestUbuntu()
	ncclBuilt, _ := b.ncclStage()
	src := b.download("https://github.com/NVIDIA/nccl-tests/archive/refs/tags/v" + version + ".tar.gz")
	mounts := []recipe.Mount{{Target: "/run/assay/nccl", From: ncclBuilt, Path: "/out/tree"}}
	mpiHome := "/usr/lib/" + b.Platform.Multiarch() + "/openmpi"
	if b.Target.Version("hpcx") != "" {
		mpiHome = "/opt/hpcx/ompi"
		mpi, _ := b.hpcxStage(on)
		mounts = append(mounts, recipe.Mount{Target: "/opt/hpcx", From: mpi, Path: "/opt/hpcx"})
	}
	name := "nccl-tests-" + version + "-nccl-" + b.Target.Version("nccl")
	built := b.compile(name, on, src, fmt.Sprintf(`cp -a /run/assay/nccl/usr /tmp/nccl
mkdir -p /tmp/nccl/lib
cp -a /tmp/nccl/lib/%s/* /tmp/nccl/lib/
export LD_LIBRARY_PATH=/opt/hpcx/ompi/lib:/opt/hpcx/ucx/lib:/opt/hpcx/ucc/lib
make -j"$(nproc)" MPI=1 MPI_HOME=%s CXX=%s CUDA_HOME=/run/assay/cuda NCCL_HOME=/tmp/nccl NVCC_GENCODE=%q
mkdir -p /out/build
cp build/*_perf /out/build/
cp LICENSE.txt README.md /out/ 2>/dev/null || true
`, b.Platform.Multiarch(), mpiHome, b.hostCompiler(), gencode(b.Target)), mounts...)
	return built, src
}
