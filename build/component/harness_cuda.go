package component

import (
	"fmt"
	"slices"
	"strings"

	"github.com/assay-hpc/assay/build/matrix"
	"github.com/assay-hpc/assay/build/recipe"
	"github.com/assay-hpc/assay/internal/certificate"
)

// cudaHarness compiles the harness with its code for GPUs, and assay's libnccl.so.2 from the same
// packages. It uses cgo, so that the result is dynamic. It links only the C library, the oldest one
// of the matrix: the driver and NCCL are loaded at run time. It is compiled once per CUDA version and
// architecture, and once more for minimal images, see ownKernels.
func (b *builder) cudaHarness() recipe.Source {
	name := "harness-cuda" + b.Target.CUDA
	if b.ownToolkit() {
		name += "-" + cudaName(b.Target)
	}
	mounts, ownKernels := []recipe.Mount{b.headers()}, ""
	if b.ownKernels() {
		mounts = append(mounts, recipe.Mount{Target: "/run/assay/ptx", From: b.ptx(), Path: "/out"})
		ownKernels = `cp -r /run/assay/ptx/ptx /src/coll/cuda/kernels/ptx/own
cp -r /run/assay/ptx/membw /src/perftest/membw/ptx/own
cp -r /run/assay/ptx/diag /src/dcgm/diag/ptx/own
`
	} else {
		name += "-minimal"
	}
	return b.stage(recipe.Stage{
		Name: name + "-" + b.Platform.Arch, Native: true, From: b.goStage(),
		Steps: []recipe.Step{b.run(goBuild{
			title: "compile the harness and libnccl.so.2 with CUDA " + b.Target.CUDA + " for " + b.Platform.Arch, platform: b.Platform, cgo: true, tags: "cuda,nvml,urfave_cli_no_docs",
			env: []recipe.Var{
				b.compiler(),
				// go-nvml declares functions that NVML has deprecated.
				{Name: "CGO_CFLAGS", Value: "-O2 -Wno-deprecated-declarations -I/src/internal/gpu/driver/include -I/tmp/include"},
			},
			source: "/run/assay/source", modules: b.Source.CUDAModules,
			mounts: mounts,
			// Of the toolkit's headers only cuda.h: go-nvml has its own nvml.h.
			script: `mkdir /tmp/include
ln -s ` + cudaHome + `/include/cuda.h /tmp/include/
cp -r /run/assay/source /src
` + ownKernels + b.buildHarness() + b.buildLibnccl(),
		})},
	})
}

// ownKernels reports whether the target's nvcc compiles the harness's kernels. In an image with the
// least of CUDA the harness has only those that the repository contains compiled, as a release's
// has: to compile them takes longer than the rest of the image.
func (b *builder) ownKernels() bool {
	return b.Target.Version("cuda-toolkit") != "minimal" && b.Target.Version("harness") != released
}

// buildLibnccl is the script that compiles libnccl.so.2 and its engine. It runs after the script
// of buildHarness and uses its variables.
func (b *builder) buildLibnccl() string {
	return fmt.Sprintf(`bash cmd/libnccl/build /out/lib %s
/usr/local/go/bin/go build -buildmode=c-shared -o /out/lib/libassay-coll.so -ldflags "-s -w -X $pkg.Version=%[1]s -X $pkg.Commit=%s -X $pkg.Date=$date -extldflags -Wl,--version-script=/src/cmd/libnccl/engine.map" ./cmd/libnccl
rm /out/lib/libassay-coll.h
`, b.Source.Version, sourceID(b.Source.Digest))
}

// headers mounts the toolkit with the header for the harness's C code.
func (b *builder) headers() recipe.Mount {
	m := recipe.Mount{Target: cudaHome, From: b.cudaBase(b.row("oldest", "own"), true), Path: cudaPath(b.row("oldest", "own"))}
	if b.ownToolkit() && b.kit().scattered {
		m.Path = "/usr" // the home has a link to its include
	}
	return m
}

// ptx compiles the kernels of the engine, the copy benchmark and the diagnostics with the nvcc of
// the target's CUDA. It is a stage of its own, so that it runs again only when the kernels or
// their compiler have changed. The GPU code is the same on every build architecture.
func (b *builder) ptx() recipe.Source {
	// Mount a program instead of a toolchain and the source: BuildKit compares the files that a
	// step is given.
	gen := b.stage(recipe.Stage{
		Name: "kernel-compiler", Native: true, From: b.goStage(),
		Steps: []recipe.Step{b.run(goBuild{
			title: "compile what compiles the kernels", platform: b.Native, tags: "urfave_cli_no_docs",
			source: "/src", modules: b.Source.CUDAModules,
			script: "cd /src\nmkdir -p /out\n/usr/local/go/bin/go build -o /out/gen -ldflags '-s -w' ./coll/cuda/kernels/gen\n",
		})},
	})
	on := b.row("oldest", "own")
	return b.stage(recipe.Stage{
		Name: "ptx-" + cudaName(on), Native: true, From: b.cudaBase(on, true),
		Steps: []recipe.Step{recipe.Run{
			Title: "compile the kernels with CUDA " + b.Target.CUDA,
			Mounts: []recipe.Mount{
				{Target: "/run/assay/gen", From: gen, Path: "/out"},
				{Target: "/run/assay/kernels", From: b.ownSource(), Path: "/coll/cuda/kernels"},
				{Target: "/run/assay/membw", From: b.ownSource(), Path: "/perftest/membw/ptx"},
				{Target: "/run/assay/diag", From: b.ownSource(), Path: "/dcgm/diag/ptx"},
			},
			Script: fmt.Sprintf(`mkdir -p /src /out/membw /out/diag
cp /run/assay/kernels/*.cu /run/assay/kernels/*.cuh /run/assay/kernels/*.h /src/
export NVCC=%s/bin/nvcc
/run/assay/gen/gen -dir /src
mv /src/ptx /out/
cp /run/assay/membw/kernels.cu /src/
for arch in 80 90; do
	$NVCC --ptx -O3 -std=c++17 -arch=compute_$arch -o /out/membw/kernels.sm_$arch.ptx /src/kernels.cu
done
cd /run/assay/diag
sh ./generate /out/diag
`, cudaPath(on)),
		}},
	})
}

// crossCompilers are the packages of the C compilers for the matrix's other
// architectures. The one for the builder's own comes with a CUDA base.
func (b *builder) crossCompilers() []string {
	var packages []string
	for _, t := range b.All {
		for _, p := range t.Platforms {
			name := "gcc-" + strings.ReplaceAll(p.Multiarch(), "_", "-")
			if p != b.Native && !slices.Contains(packages, name) {
				packages = append(packages, name, "libc6-dev-"+p.Arch+"-cross")
			}
		}
	}
	return packages
}

// cudaHarnessChecks returns checks that need no GPU: a build without the code for GPUs does not
// mention them. The suite itself reports whose each libnccl.so.2 is.
func (b *builder) cudaHarnessChecks() []certificate.Check {
	kernels := command("has kernels", `(?m)^Kernels: by nvcc `, "harness", "version")
	if b.ownKernels() {
		kernels = command("its kernels are by the image's nvcc", `(?m)^Kernels: by nvcc `+strings.ReplaceAll(matrix.MajorMinor(b.Target.CUDA), ".", `\.`)+`\.`, "harness", "version")
	}
	return []certificate.Check{command("has the code for GPUs", `(?m)^GPUs: .+`, "harness", "version"), kernels, load(libncclDir + "/libnccl.so.2")}
}
