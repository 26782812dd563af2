package component

import (
	"cmp"
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
// Ubuntu: the ABI of Open MPI 4 is stable. With the NCCL or the MPI of a base it compiles them for that
// base alone.
func (b *builder) ncclTestsStage(version string) (recipe.Source, recipe.Source) {
	src := b.download("https://github.com/NVIDIA/nccl-tests/archive/refs/tags/v" + version + ".tar.gz")
	mpi, mpiHome := b.mpiOfBase()
	nccl, script := b.ncclOfBase()
	compiledMPI, compiled := b.built["openmpi"]
	on, ofBase := b.Target, mpi != nil || nccl != nil
	if !ofBase {
		on = b.row("oldest", "own")
	}
	if ofBase || compiled { // what the libraries need, such as UCX, is in the base or in the image
		script += "export NVCC_APPEND_FLAGS='-Xlinker --allow-shlib-undefined'\n"
	}
	if nccl == nil {
		nccl = []recipe.Mount{{Target: "/run/assay/nccl", From: b.built["nccl"], Path: "/out/tree"}}
		script = fmt.Sprintf(`cp -a /run/assay/nccl/usr /tmp/nccl
mkdir -p /tmp/nccl/lib
cp -a /tmp/nccl/lib/%s/* /tmp/nccl/lib/
`, b.Platform.Multiarch()) + script
	}
	if compiled {
		mpiHome = "/usr/local/mpi"
		mpi = []recipe.Mount{{Target: mpiHome, From: compiledMPI, Path: "/out" + mpiHome}}
	} else if b.Target.Version("hpcx") != "" {
		mpiHome = "/opt/hpcx/ompi"
		hpcx, _ := b.hpcxStage(on)
		mpi = []recipe.Mount{{Target: "/opt/hpcx", From: hpcx, Path: "/opt/hpcx"}}
	}
	name := "nccl-tests-" + version + "-nccl-" + cmp.Or(b.Target.Version("nccl"), "of-the-base")
	script += fmt.Sprintf(`export LD_LIBRARY_PATH=/opt/hpcx/ompi/lib:/opt/hpcx/ucx/lib:/opt/hpcx/ucc/lib
make -j"$(nproc)" MPI=1 MPI_HOME=%s CXX=%s CUDA_HOME=/run/assay/cuda NCCL_HOME=/tmp/nccl NVCC_GENCODE=%q
mkdir -p /out/build
cp build/*_perf /out/build/
cp LICENSE.txt README.md /out/ 2>/dev/null || true
`, mpiHome, b.hostCompiler(), gencode(b.Target))
	built := b.compile(name, on, src, recipe.Piece{File: "nccl-tests/build.sh", Text: script}, append(nccl, mpi...)...)
	return built, src
}

// mpiOfBase mounts the base's MPI, if the matrix says that it has one, and returns the directory with
// include and lib: that of the distribution's, if not.
func (b *builder) mpiOfBase() (mounts []recipe.Mount, home string) {
	has := b.Target.Base.Find
	home = has("mpi").Path()
	if home == "" && has("hpcx").Value != "" {
		home = cmp.Or(has("hpcx").Path(), "/opt/hpcx") + "/ompi"
	}
	if home == "" {
		return nil, "/usr/lib/" + b.Platform.Multiarch() + "/openmpi"
	}
	return []recipe.Mount{{Target: home, From: b.baseOf(b.Target, b.Platform), Path: home}}, home
}

// ncclOfBase mounts the base's NCCL, if the matrix says that it has it, and returns the script that
// gathers it in /tmp/nccl. Without a path it is where NVIDIA's packages install it.
func (b *builder) ncclOfBase() (mounts []recipe.Mount, script string) {
	if m, ok := b.ofBase("nccl", "/run/assay/nccl"); ok {
		return []recipe.Mount{m}, "ln -s /run/assay/nccl /tmp/nccl\n"
	}
	if b.Target.Base.Find("nccl").Value == "" {
		return nil, ""
	}
	return []recipe.Mount{{Target: "/run/assay/nccl", From: b.baseOf(b.Target, b.Platform), Path: "/usr"}}, fmt.Sprintf(`mkdir -p /tmp/nccl/include /tmp/nccl/lib
cp -a /run/assay/nccl/include/nccl* /tmp/nccl/include/
cp -a /run/assay/nccl/lib/%s/libnccl* /tmp/nccl/lib/
`, b.Platform.Multiarch())
}
