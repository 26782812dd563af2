package component

import (
	"fmt"

	"github.com/assay-hpc/assay/build/recipe"
)

func init() { makers["nccl-tests"] = ncclTests }

// ncclTests are NVIDIA's nccl-tests, at the two paths that users' job scripts expect.
func ncclTests(b *builder, version string) {
	built, src := b.ncclTestsStage(version)
	b.copy(built, "/out/", "/opt/nccl-tests/")
	b.files = append(b.files, recipe.Symlink{Path: "/opt/nccl_tests", Target: "/opt/nccl-tests"})
	b.setenv("NCCL_TESTS_COMMITISH", "v"+version) // as in the images that users migrate from
	b.made(sourcesOf(src), executable("/opt/nccl-tests/build/all_reduce_perf"), executable("/opt/nccl_tests/build/alltoall_perf"))
}

// ncclTestsStage compiles nccl-tests once per CUDA and NCCL version, with the MPI of the oldest
// Ubuntu: the ABI of Open MPI 4 is stable.
func (b *builder) ncclTestsStage(version string) (recipe.Source, recipe.Source) {
	on := b.row("oldest", "own")
	src := b.download("https://github.com/NVIDIA/nccl-tests/archive/refs/tags/v" + version + ".tar.gz")
	mounts := []recipe.Mount{{Target: "/run/assay/nccl", From: b.built["nccl"], Path: "/out/tree"}}
	mpiHome := "/usr/lib/" + b.Platform.Multiarch() + "/openmpi"
	if b.Target.Version("hpcx") != "" {
		mpiHome = "/opt/hpcx/ompi"
		mpi, _ := b.hpcxStage(on)
		mounts = append(mounts, recipe.Mount{Target: "/opt/hpcx", From: mpi, Path: "/opt/hpcx"})
	}
	name := "nccl-tests-" + version + "-nccl-" + b.Target.Version("nccl")
	built := b.compile(name, on, src, recipe.Piece{File: "nccl-tests/build.sh", Text: fmt.Sprintf(`cp -a /run/assay/nccl/usr /tmp/nccl
mkdir -p /tmp/nccl/lib
cp -a /tmp/nccl/lib/%s/* /tmp/nccl/lib/
export LD_LIBRARY_PATH=/opt/hpcx/ompi/lib:/opt/hpcx/ucx/lib:/opt/hpcx/ucc/lib
make -j"$(nproc)" MPI=1 MPI_HOME=%s CXX=%s CUDA_HOME=/run/assay/cuda NCCL_HOME=/tmp/nccl NVCC_GENCODE=%q
mkdir -p /out/build
cp build/*_perf /out/build/
cp LICENSE.txt README.md /out/ 2>/dev/null || true
`, b.Platform.Multiarch(), mpiHome, b.hostCompiler(), gencode(b.Target))}, mounts...)
	return built, src
}
