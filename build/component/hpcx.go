package component

import (
	"fmt"

	"github.com/assay-hpc/assay/build/matrix"
	"github.com/assay-hpc/assay/build/recipe"
	"github.com/assay-hpc/assay/internal/certificate"
)

// hpcxURL follows NVIDIA's naming: from 2.24 on there is a directory for each
// CUDA major version.
func hpcxURL(version string, t matrix.Target, p recipe.Platform) (url, dist string) {
	dist = fmt.Sprintf("hpcx-v%s-gcc-doca_ofed-ubuntu%s-cuda%s-%s", version, t.Release, t.CUDAMajor(), p.Machine())
	dir := "v" + version
	if matrix.CompareVersions(version, "2.24") >= 0 {
		dir += "_cuda" + t.CUDAMajor()
	}
	return "https://content.mellanox.com/hpc/hpc-x/" + dir + "/" + dist + ".tbz", dist
}

// pmixDev is the package with the process-management interface that Slurm
// offers on an Ubuntu: 20.04's PMIx is too old for Open MPI, so it is PMI-2
// there.
func pmixDev(t matrix.Target) string {
	if t.Release == "20.04" {
		return "libpmi2-0-dev"
	}
	return "libpmix-dev"
}

func pmixOption(t matrix.Target, p recipe.Platform) string {
	if t.Release == "20.04" {
		return "--with-pmi=/usr --with-pmi-libdir=/usr/lib/" + p.Multiarch()
	}
	return "--with-pmix=/usr/lib/" + p.Multiarch() + "/pmix2"
}

// hpcxStage unpacks HPC-X and rebuilds its Open MPI, because the shipped build supports neither
// Slurm nor an external PMIx. The rebuild needs only CUDA's headers, so each HPC-X is built once
// per Ubuntu and CUDA major version, on the lowest CUDA.
func (b *builder) hpcxStage(t matrix.Target) (recipe.Source, recipe.Source) {
	on := matrix.LowestCUDA(b.All, t, "hpcx")
	version := on.Version("hpcx")
	url, dist := hpcxURL(version, t, b.Platform)
	src := b.download(url)
	built := b.stage(recipe.Stage{
		Name: "hpcx-" + version + "-" + baseName(on), From: b.tools(on),
		Steps: []recipe.Step{
			recipe.Run{
				Title:  "unpack HPC-X",
				Mounts: []recipe.Mount{{Target: "/run/assay/source", From: src}},
				Script: fmt.Sprintf(`mkdir -p /opt/hpcx
tar -xjf /run/assay/source -C /opt/hpcx --strip-components=1 --no-same-owner
# Files remember where they were built.
grep -rlI /build-result/%[1]s /opt/hpcx | while read -r f; do sed -i "s|/build-result/%[1]s|/opt/hpcx|g" "$f"; done
# NCCL loads a plugin of the generic name without being asked: give each its
# own, to be chosen with NCCL_NET_PLUGIN. Newer ones have more names, as links.
for lib in /opt/hpcx/nccl_*_plugin/lib/libnccl-net.so; do
  if [ -e "$lib" ]; then
    name=${lib#/opt/hpcx/nccl_}; name=${name%%%%_plugin/*}; name=${name#rdma_}
    cp -L "$lib" "${lib%%.so}-$name.so.tmp"
    rm -f "$lib"*
    mv "${lib%%.so}-$name.so.tmp" "${lib%%.so}-$name.so"
    find "${lib%%/*}" -xtype l -exec ln -sfn "libnccl-net-$name.so" {} \;
  fi
done
`, dist),
			},
			recipe.Run{
				Title:  "rebuild HPC-X's Open MPI",
				Mounts: []recipe.Mount{b.toolkit(on)},
				Script: fmt.Sprintf(`# Its tests need the shipped MPI's interface alone, which the rebuilt one has.
for d in /opt/hpcx/ompi4/tests /opt/hpcx/ompi/tests; do
  if [ -d "$d" ]; then mv "$d" /opt/hpcx/tests; break; fi
done
rm -rf /opt/hpcx/ompi /opt/hpcx/ompi4 /opt/hpcx/ompi5
if [ -e /opt/hpcx/hpcx-init.sh ]; then sed -i 's|/ompi[45]\b|/ompi|g' /opt/hpcx/hpcx-init.sh; fi
mkdir /tmp/ompi
for f in /opt/hpcx/sources/openmpi4-gitclone.tar.gz /opt/hpcx/sources/openmpi-gitclone.tar.gz; do
  if [ -e "$f" ]; then tar -xzf "$f" -C /tmp/ompi --strip-components=1 --no-same-owner; break; fi
done
cd /tmp/ompi
if [ ! -e autogen.pl ] && [ ! -e configure ]; then echo "HPC-X has no source of Open MPI 4: $(ls /opt/hpcx/sources)" >&2; exit 1; fi
if [ ! -x configure ]; then ./autogen.pl; fi
# HCOLL needs the others' libraries, which the linker does not find by itself.
export LD_LIBRARY_PATH=/opt/hpcx/hcoll/lib:/opt/hpcx/ucx/lib:/opt/hpcx/ucc/lib:/opt/hpcx/sharp/lib
./configure --cache-file=/tmp/ompi/config.cache --prefix=/opt/hpcx/ompi \
  --with-hcoll=/opt/hpcx/hcoll --with-ucx=/opt/hpcx/ucx --with-ucc=/opt/hpcx/ucc \
  --with-platform=contrib/platform/mellanox/optimized \
  --with-slurm --with-hwloc --with-libevent --with-cuda=/run/assay/cuda --without-xpmem %s
make -j"$(nproc)"
make install
if [ -d /opt/hpcx/tests ]; then mv /opt/hpcx/tests /opt/hpcx/ompi/tests; fi
cd /
rm -rf /tmp/ompi /opt/hpcx/sources
`, pmixOption(t, b.Platform)),
			},
		},
	})
	return built, src
}

func init() { makers["hpcx"] = hpcx }

// hpcx is NVIDIA's packaging of Open MPI, UCX, UCC, SHARP and HCOLL. Paths and variables are those
// of comparable images: downstream builds rely on them.
func hpcx(b *builder, version string) {
	built, src := b.hpcxStage(b.Target)
	b.install(pmixDev(b.Target), "libhwloc-dev", "libevent-dev") // also brings PMIx's library, the package of which has changed its name
	b.copy(built, "/opt/hpcx/", "/opt/hpcx/")
	if b.Target.Version("ofed") == "" {
		b.absent = append(b.absent, certificate.Absent{Library: "libxpmem.so.0", Because: "it comes with OFED; UCX, one of whose transports needs it, goes without that transport"})
	}
	b.hpcxEnvironment(version)
	checks := []certificate.Check{
		command("Open MPI runs", `Open MPI`, "/opt/hpcx/ompi/bin/ompi_info", "--version"),
		command("mpirun is HPC-X's", `^/opt/hpcx/ompi/bin/mpirun`, "/bin/sh", "-c", "command -v mpirun"),
		command("UCX runs", `\d+\.\d+\.\d+`, "/opt/hpcx/ucx/bin/ucx_info", "-v"),
		command("MPI's tests are where the variables say", "", "/bin/sh", "-c", `test -d "$HPCX_MPI_TESTS_DIR" && test -d "$HPCX_OSU_DIR"`),
		load("/opt/hpcx/ompi/lib/libmpi.so.40"),
	}
	if hasSpectrumX(b.Target) {
		b.prepend("LD_LIBRARY_PATH", spectrumX)
		checks = append(checks,
			load(spectrumX+"/libnccl-net-spcx.so"),
			command("the plugin for Spectrum-X is not picked up by accident", "", "/bin/sh", "-c", "! [ -e "+spectrumX+"/libnccl-net.so ]"))
	}
	b.made(sourcesOf(src), checks...)
}

// spectrumX is the directory of HPC-X's NCCL plugin for Spectrum-X networks. It is selected with
// NCCL_NET_PLUGIN=spcx.
const spectrumX = "/opt/hpcx/nccl_spectrum-x_plugin/lib"

// hasSpectrumX reports whether an image offers that plugin: HPC-X includes it from 2.26 on, and
// EFA has no Spectrum-X.
func hasSpectrumX(t matrix.Target) bool {
	return t.Version("efa") == "" && matrix.CompareVersions(t.Version("hpcx"), "2.26") >= 0
}

// hpcxEnvironment sets what HPC-X's own hpcx-init.sh sets, with one Open MPI.
func (b *builder) hpcxEnvironment(version string) {
	const d = "/opt/hpcx/"
	// The arm64 archive includes ClusterKit only from 2.51 on.
	hasClusterKit := b.Platform.Arch == "amd64" || matrix.CompareVersions(version, "2.51") >= 0
	for _, n := range []string{"PATH", "LD_LIBRARY_PATH", "LIBRARY_PATH", "CPATH"} {
		b.setenv("OLD_"+n, "${"+n+"}")
	}
	b.setenv("HPCX_DIR", "/opt/hpcx")
	for _, v := range []struct{ name, dir string }{
		{"HPCX_UCX_DIR", "ucx"}, {"HPCX_UCC_DIR", "ucc"}, {"HPCX_SHARP_DIR", "sharp"}, {"HPCX_HCOLL_DIR", "hcoll"},
		{"HPCX_NCCL_RDMA_SHARP_PLUGIN_DIR", "nccl_rdma_sharp_plugin"},
		{"HPCX_MPI_DIR", "ompi"}, {"HPCX_OSHMEM_DIR", "ompi"}, {"OMPI_HOME", "ompi"}, {"MPI_HOME", "ompi"}, {"OSHMEM_HOME", "ompi"}, {"OPAL_PREFIX", "ompi"},
		{"HPCX_MPI_TESTS_DIR", "ompi/tests"}, {"HPCX_OSU_DIR", "ompi/tests/osu-micro-benchmarks"}, {"HPCX_OSU_CUDA_DIR", "ompi/tests/osu-micro-benchmarks-cuda"},
	} {
		b.setenv(v.name, d+v.dir)
	}
	b.setenv("HPCX_IPM_DIR", "") // these releases have no IPM, but hpcx-init.sh sets it anyway
	clusterkit := ""
	if hasClusterKit {
		clusterkit = d + "clusterkit"
	}
	b.setenv("HPCX_CLUSTERKIT_DIR", clusterkit)
	b.prepend("PATH", d+"sharp/bin")
	if hasClusterKit {
		b.prepend("PATH", d+"clusterkit/bin")
	}
	b.prepend("PATH", d+"hcoll/bin", d+"ucc/bin", d+"ucx/bin", d+"ompi/bin")
	b.prepend("LD_LIBRARY_PATH", d+"ucc/lib/ucc", d+"ucc/lib", d+"ucx/lib/ucx", d+"ucx/lib", d+"sharp/lib", d+"hcoll/lib", d+"ompi/lib")
	b.prepend("LIBRARY_PATH", d+"ompi/lib", d+"sharp/lib", d+"ucc/lib", d+"ucx/lib", d+"hcoll/lib")
	b.prepend("CPATH", d+"ompi/include", d+"ucc/include", d+"ucx/include", d+"sharp/include", d+"hcoll/include")
	b.prepend("PKG_CONFIG_PATH", d+"hcoll/lib/pkgconfig", d+"sharp/lib/pkgconfig", d+"ucx/lib/pkgconfig", d+"ompi/lib/pkgconfig")
	b.setenv("UCX_VFS_ENABLE", "no") // its fuse mount fails in a container, with a message for each rank
}
