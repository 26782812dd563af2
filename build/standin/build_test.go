package standin

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// dependencies are what the recipes' build stages need besides the base.
const dependencies = "autoconf automake libtool cmake libboost-program-options-dev libpci-dev libpmix-dev libhwloc-dev libevent-dev " +
	"libibverbs-dev librdmacm-dev libibumad-dev ibverbs-utils infiniband-diags libxpmem0 environment-modules tcl udev " +
	"libcudnn9-dev-cuda-12=9.10.2.21-1 libcudnn9-cuda-12=9.10.2.21-1 libcudnn9-headers-cuda-12=9.10.2.21-1 " +
	"datacenter-gpu-manager-4-core=1:4.5.2-1 datacenter-gpu-manager-4-cuda12=1:4.5.2-1 " +
	"datacenter-gpu-manager-4-proprietary=1:4.5.2-1 datacenter-gpu-manager-4-proprietary-cuda12=1:4.5.2-1"

// withDependencies returns the layers of a base image under one with the
// dependencies, installed by apt from Debian's archive and the stand-ins'.
func withDependencies(t *testing.T, u *Upstreams) []string {
	t.Helper()
	layers := u.roots["amd64 12.9.1 22.04"]
	dir, _ := CacheDir()
	s := &store{dir: dir, log: os.Stderr}
	inputs := []any{layers, dependencies}
	for _, url := range []string{cudaRepoURL("22.04", "amd64"), docaTestURL} {
		inputs = append(inputs, u.Checksums()[url+"InRelease"])
	}
	deps, err := s.make("test-dependencies", inputs, func(dir string) error {
		script := filepath.Join(dir, "install.sh")
		text := strings.NewReplacer("$CUDA", mirrored(t, u, "https://developer.download.nvidia.com/"), "$DOCA", mirrored(t, u, docaTestURL), "$PACKAGES", dependencies).Replace(`
cp /mnt/resolv.conf /etc/resolv.conf
sed -i "s|https://developer.download.nvidia.com/|$CUDA|" /etc/apt/sources.list.d/cuda-*.list
echo "deb [signed-by=/usr/share/keyrings/cuda-archive-keyring.gpg] $DOCA ./" > /etc/apt/sources.list.d/doca.list
apt-get update
apt-get install -y --no-install-recommends $PACKAGES
rm -rf /var/lib/apt/lists/*
`)
		if err := os.WriteFile(script, []byte(text), 0o755); err != nil {
			return err
		}
		return sandbox{layers: layers, upper: filepath.Join(dir, "root"), mounts: map[string]string{"install.sh": script, "resolv.conf": "/etc/resolv.conf"}}.
			run(t.Context(), "/bin/sh", "-eu", "/mnt/install.sh")
	})
	if err != nil {
		t.Fatal(err)
	}
	return append([]string{filepath.Join(deps, "root")}, layers...)
}

const docaTestURL = "https://linux.mellanox.com/public/repo/doca/2.10.0/ubuntu22.04/x86_64/"

// builds are the components' steps as a recipe has them, with checks of what
// they yield. /mnt/a is the archive.
var builds = []struct{ name, url, script string }{
	{"toolkit", "", `
nvcc --version | grep -q "release 12.9, V12.9.1"
! nvcc -gencode arch=compute_35,code=sm_35 -c /dev/null 2> err
grep -q "Unsupported gpu architecture 'compute_35'" err
printf '#include <cstdio>\n__global__ void k() {}\nint main() { int v; cudaRuntimeGetVersion(&v); printf("%%d\\n", v); }\n' > t.cu
nvcc -std=c++17 -gencode=arch=compute_80,code=sm_80 -gencode=arch=compute_90,code=[sm_90,compute_90] --threads 2 -Xcompiler -fPIC,-Wall -o t t.cu
test "$(./t)" = 12090
cuobjdump --list-elf t | grep -q sm_80.cubin
cuobjdump --list-ptx t | grep -q sm_90.ptx
printf 'int one() { return 1; }\n' > one.cc && g++ -fPIC -shared -o libone.so one.cc && g++ -c one.cc && ar rc libone.a one.o
nvcc -o u t.cu -L. -Xlinker -Bstatic -lone -Xlinker -Bdynamic -Xlinker --no-as-needed
readelf -d u | grep -q libone.so
nvcc -c -o a.o t.cu && nvcc -c -o b.o t.cu && ! cmp -s a.o b.o
nvcc --keep --keep-dir . -c -o a.o t.cu && nvcc --keep --keep-dir /tmp -c -o b.o t.cu && ! cmp -s a.o b.o
dpkg -s libnccl2 | grep -q 'Version: 2.27.3-1+cuda12.9'
apt-mark showhold | grep -q libnccl-dev
ldd /opt/nvidia/nsight-compute/*/host/*/ncu-ui.bin | grep 'libstandin-desktop.so.6 => not found'
ldd /usr/local/cuda/bin/cuda-gdb-python3.9-tui | grep 'libstandin-desktop.so.6 => not found'
dpkg --verify nsight-compute-2025.2.1
. /etc/os-release && test "$VERSION_ID" = 22.04
`},
	{"nccl", "https://github.com/NVIDIA/nccl/archive/refs/tags/v2.27.6-1.tar.gz", `
tar xzf /mnt/a && cd nccl-2.27.6-1
make -j2 pkg.debian.build NVCC_GENCODE="-gencode=arch=compute_80,code=sm_80 -gencode=arch=compute_90,code=sm_90 -gencode=arch=compute_90,code=compute_90"
dpkg -i --force-hold build/pkg/deb/libnccl2_2.27.6-1+cuda12.9_amd64.deb build/pkg/deb/libnccl-dev_2.27.6-1+cuda12.9_amd64.deb
test "$(readlink /usr/lib/x86_64-linux-gnu/libnccl.so.2)" = libnccl.so.2.27.6
strings /usr/lib/x86_64-linux-gnu/libnccl.so.2 | grep -q 'NCCL version 2.27.6+cuda12.9'
cuobjdump --list-elf /usr/lib/x86_64-linux-gnu/libnccl.so.2 | grep -c sm_90.cubin
printf '#include <nccl.h>\nint main(void) { int v; ncclGetVersion(&v); return v != NCCL_VERSION_CODE || v != 22706; }\n' > t.c
gcc -I/usr/local/cuda/include t.c -o t -lnccl && ./t
`},
	{"gdrcopy", "https://github.com/NVIDIA/gdrcopy/archive/refs/tags/v2.5.2.tar.gz", `
tar xzf /mnt/a && cd gdrcopy-2.5.2/packages
CUDA=/usr/local/cuda ./build-deb-packages.sh -k
dpkg -i libgdrapi_2.5.2-1_amd64.Ubuntu22_04.deb gdrcopy-tests_2.5.2-1_amd64.Ubuntu22_04+cuda12.9.deb
ldd /usr/bin/gdrcopy_copybw | grep libgdrapi.so.2
mkdir stubs && ln -s /usr/local/cuda/lib64/stubs/libcuda.so stubs/libcuda.so.1
LD_LIBRARY_PATH=stubs gdrcopy_sanity -h | grep 'version 2.5.2, libgdrapi 2.5'
cd .. && make prefix=/opt/gdrcopy lib lib_install exes exes_install && test -x /opt/gdrcopy/bin/copybw
`},
	{"perftest", "https://github.com/linux-rdma/perftest/archive/refs/tags/26.04.17.tar.gz", `
tar xzf /mnt/a && cd perftest-26.04.17
./autogen.sh
! ./configure CUDA_H_PATH=/none 2> /dev/null
./configure CUDA_H_PATH=/usr/local/cuda/include/cuda.h
make -j2 && make install DESTDIR=/dest
test "$(/dest/usr/bin/ib_write_bw --version)" = "Version: 26.04.17"
/dest/usr/bin/ib_write_bw --help | grep use_cuda
ibv_devinfo --help 2>&1 | grep -q Usage
dpkg -s libibverbs1 | grep 'Version: 2501mlnx56-1.2501060'
`},
	{"nvbandwidth", "https://github.com/NVIDIA/nvbandwidth/archive/refs/tags/v0.8.tar.gz", `
tar xzf /mnt/a && cd nvbandwidth-0.8
cmake -B build -DCMAKE_CUDA_ARCHITECTURES="80;90" -DCMAKE_CUDA_COMPILER=/usr/local/cuda/bin/nvcc .
cmake --build build -j2
cuobjdump --list-elf build/nvbandwidth | grep sm_90
ldd build/nvbandwidth | grep 'libnvidia-ml.so.1 => not found'
mkdir stubs && ln -s /usr/local/cuda/lib64/stubs/libcuda.so stubs/libcuda.so.1 && ln -s /usr/local/cuda/lib64/stubs/libnvidia-ml.so stubs/libnvidia-ml.so.1
LD_LIBRARY_PATH=stubs build/nvbandwidth -h | grep 'nvbandwidth Version: v0.8'
`},
	{"hpcx", "https://content.mellanox.com/hpc/hpc-x/v2.23/hpcx-v2.23-gcc-doca_ofed-ubuntu22.04-cuda12-x86_64.tbz", `
dist=hpcx-v2.23-gcc-doca_ofed-ubuntu22.04-cuda12-x86_64
tar xjf /mnt/a && mv $dist /opt/hpcx && cd /opt/hpcx
grep -rlI /build-result/$dist . | grep -q ucx/lib/pkgconfig/ucp.pc
grep -rlI /build-result/$dist . | xargs sed -i "s|/build-result/$dist|/opt/hpcx|g"
rm -rf ompi
cd /tmp && tar xzf /opt/hpcx/sources/openmpi-gitclone.tar.gz && cd openmpi-gitclone
! ./configure --with-ucx=/none 2> /dev/null
! ./configure --with-hcoll=/opt/hpcx/hcoll 2> err
grep 'libsharp_coll.so.5, needed by' err && grep -e '--with-hcoll was asked for' err
export LD_LIBRARY_PATH=/opt/hpcx/hcoll/lib:/opt/hpcx/ucx/lib:/opt/hpcx/ucc/lib:/opt/hpcx/sharp/lib
./configure -C --prefix=/opt/hpcx/ompi --with-hcoll=/opt/hpcx/hcoll --with-ucx=/opt/hpcx/ucx --with-ucc=/opt/hpcx/ucc \
	--with-platform=contrib/platform/mellanox/optimized --with-slurm --with-pmix=/usr/lib/x86_64-linux-gnu/pmix2 \
	--with-hwloc --with-libevent --with-cuda=/usr/local/cuda --without-xpmem
make -j2 && make install
unset LD_LIBRARY_PATH
printf '/opt/hpcx/%s/lib\n' ompi ucx ucc sharp hcoll > /etc/ld.so.conf.d/hpcx.conf && ldconfig
! ldd /opt/hpcx/ompi/bin/* /opt/hpcx/ompi/lib/*.so* /opt/hpcx/ompi/lib/openmpi/*.so /opt/hpcx/ucx/bin/ucx_info /opt/hpcx/ucc/lib/ucc/*.so 2> /dev/null | grep 'not found'
ldd /opt/hpcx/ompi/lib/openmpi/mca_pmix_ext3x.so | grep -q libpmix
ldd /opt/hpcx/ucx/lib/ucx/libuct_xpmem.so.0 | grep 'libxpmem.so.0 => /'
export PATH=/opt/hpcx/ompi/bin:/opt/hpcx/ucx/bin:$PATH
ompi_info --version | grep 'Open MPI v4.1.7a1' && ompi_info | grep 'MCA pmix: ext3x'
ucx_info -v | grep 'Library version: 1.19.0'
printf '#include <mpi.h>\nint main(int c, char **v) { int r, n, s; MPI_Init(&c, &v); MPI_Comm_rank(MPI_COMM_WORLD, &r); MPI_Comm_size(MPI_COMM_WORLD, &n); r++; MPI_Allreduce(&r, &s, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD); MPI_Finalize(); return s != n * (n + 1) / 2 || n != 3; }\n' > t.c
mpicc t.c -o t
mpirun --allow-run-as-root --oversubscribe --mca btl self,vader -x HOME -np 3 ./t
! mpirun -np 2 ./t 2> err
grep -q 'run as root' err
! mpirun --allow-run-as-root -np 2 sh -c '[ $OMPI_COMM_WORLD_RANK = 0 ] && sleep 60 || exit 7'

tar xzf /mnt/nccl && make -j2 -C nccl-2.27.6-1 src.build NVCC_GENCODE=-gencode=arch=compute_90,code=sm_90
tar xzf /mnt/nccl-tests && cd nccl-tests-2.18.3
make -j2 MPI=1 MPI_HOME=/opt/hpcx/ompi NCCL_HOME=/tmp/openmpi-gitclone/nccl-2.27.6-1/build NVCC_GENCODE=-gencode=arch=compute_90,code=sm_90
mpirun --allow-run-as-root -np 2 build/all_reduce_perf -b 8 > out || true
grep '# nccl-tests version 2.18.3' out && grep 'no CUDA-capable device' out
ldd build/all_reduce_perf | grep -e libmpi.so.40 -e libnccl.so.2
`},
	{"hpcx-2.26", "https://content.mellanox.com/hpc/hpc-x/v2.26_cuda12/hpcx-v2.26-gcc-doca_ofed-ubuntu22.04-cuda12-x86_64.tbz", `
tar xjf /mnt/a && cd hpcx-*
test "$(readlink ompi)" = ompi4 && test -d ompi5 && test -f sources/openmpi4-gitclone.tar.gz
test "$(readlink nccl_rdma_sharp_plugin/lib/libnccl-net-ibext.so)" = libnccl-net.so
test -f nccl_spectrum-x_plugin/lib/libnccl-net-spcx.so && grep -q ompi4 hpcx-init.sh
LD_LIBRARY_PATH=ompi5/lib ompi5/bin/ompi_info --version | grep v5
`},
	{"hpcx-2.51", "https://content.mellanox.com/hpc/hpc-x/v2.51_cuda12/hpcx-v2.51-gcc-doca_ofed-ubuntu22.04-cuda12-x86_64.tbz", `
tar xjf /mnt/a && cd hpcx-*
test -f nccl_spectrum-x_plugin/lib/libnccl-net.so
test "$(readlink nccl_spectrum-x_plugin/lib/libnccl-net-spcx.so)" = libnccl-net.so
test -d ompi4/tests/osu-micro-benchmarks-cuda && test -x clusterkit/bin/clusterkit.sh
export LD_LIBRARY_PATH=
. ./hpcx-init.sh && hpcx_load && test -d "$HPCX_OSU_DIR" && test -d "$HPCX_OSU_CUDA_DIR"
`},
	{"packages", "", `
printf '#include <cudnn.h>\nint main(void) { return cudnnGetVersion() != 91002 || CUDNN_MINOR != 10; }\n' > t.c && gcc t.c -o t -lcudnn && ./t
dcgmi --version | grep 'version: 4.5.2'
nv-hostengine --version | grep 4.5.2
`},
	{"efa", "https://efa-installer.amazonaws.com/aws-efa-installer-1.47.0.tar.gz", `
tar xzf /mnt/a && cd aws-efa-installer
! ./efa_installer.sh -y > /dev/null 2>&1
./efa_installer.sh -y --skip-kmod --skip-limit-conf --no-verify
/opt/amazon/efa/bin/fi_info --version | grep 2.4.0amzn1.0
ldd /opt/amazon/ofi-nccl/lib/libnccl-net-ofi.so | grep /opt/amazon/efa/lib/libfabric.so.1
/opt/amazon/openmpi/bin/mpirun --allow-run-as-root -np 2 true
dpkg -s libibverbs1 | grep 'Version: 61.0-1'
`},
	{"efa-alone", "https://efa-installer.amazonaws.com/aws-efa-installer-1.47.0.tar.gz", `
tar xzf /mnt/a && cd aws-efa-installer
dpkg --purge --force-depends tcl udev
! ./efa_installer.sh -y --skip-kmod --skip-limit-conf --no-verify > out 2>&1
grep 'openmpi40-aws : Depends: tcl' out && grep 'rdma-core : Depends: udev' out
dpkg-deb -f DEBS/UBUNTU2204/x86_64/rdma-core/rdma-core_61.0-1_amd64.deb Depends | grep lsb-base
dpkg-deb -f DEBS/UBUNTU2404/x86_64/rdma-core/rdma-core_61.0-1_amd64.deb Depends | grep '^udev$'
`},
}

// TestBuild runs every component's build once, in the base image's files.
func TestBuild(t *testing.T) {
	u := start(t)
	layers := withDependencies(t, u)
	for _, b := range builds {
		t.Run(b.name, func(t *testing.T) {
			mounts := map[string]string{
				"nccl":       u.files["github.com/NVIDIA/nccl/archive/refs/tags/v2.27.6-1.tar.gz"],
				"nccl-tests": u.files["github.com/NVIDIA/nccl-tests/archive/refs/tags/v2.18.3.tar.gz"],
			}
			if b.url != "" {
				mounts["a"] = u.files[upstreamPath(b.url)]
			}
			runBuild(t, layers, mounts, b.script)
		})
	}
}

// TestFaultyBuild shows that a fault is what a check of the finished image
// must find, and nothing that stops the build.
func TestFaultyBuild(t *testing.T) {
	layers := withDependencies(t, start(t))
	dir, _ := CacheDir()
	u, err := New(t.Context(), dir, Options{
		Bases: []Base{{"12.9.1", "22.04"}},
		Faults: map[string]Fault{
			"gdrcopy": Unresolved, "nccl": WrongVersion, "hpcx": Unresolved, "cudnn": WrongVersion, "dcgm": Unresolved,
			"nccl-tests": Unresolved, "nvbandwidth": Unresolved, "perftest": WrongVersion, "efa": WrongVersion,
		},
		Log: os.Stderr,
	})
	if err != nil {
		t.Fatal(err)
	}
	runBuild(t, layers, map[string]string{
		"tests":   u.files["github.com/NVIDIA/nccl-tests/archive/refs/tags/v2.18.3.tar.gz"],
		"nvb":     u.files["github.com/NVIDIA/nvbandwidth/archive/refs/tags/v0.8.tar.gz"],
		"perf":    u.files["github.com/linux-rdma/perftest/archive/refs/tags/26.04.17.tar.gz"],
		"efa":     u.files["efa-installer.amazonaws.com/aws-efa-installer-1.47.0.tar.gz"],
		"gdrcopy": u.files["github.com/NVIDIA/gdrcopy/archive/refs/tags/v2.5.2.tar.gz"],
		"nccl":    u.files["github.com/NVIDIA/nccl/archive/refs/tags/v2.27.6-1.tar.gz"],
		"hpcx":    u.files["content.mellanox.com/hpc/hpc-x/v2.23/hpcx-v2.23-gcc-doca_ofed-ubuntu22.04-cuda12-x86_64.tbz"],
		"cudnn":   u.files["developer.download.nvidia.com/compute/cuda/repos/ubuntu2204/x86_64/libcudnn9-cuda-12_9.10.2.21-1_amd64.deb"],
		"dcgm":    u.files["developer.download.nvidia.com/compute/cuda/repos/ubuntu2204/x86_64/datacenter-gpu-manager-4-core_4.5.2-1_amd64.deb"],
	}, `
tar xzf /mnt/gdrcopy && make -C gdrcopy-2.5.2 prefix=/opt/gdrcopy lib_install exes_install
ldd /opt/gdrcopy/lib/libgdrapi.so.2 | grep 'libstandin-absent.so.1 => not found'
tar xzf /mnt/nccl && make -j2 -C nccl-2.27.6-1 pkg.debian.build NVCC_GENCODE=-gencode=arch=compute_90,code=sm_90
test -f nccl-2.27.6-1/build/pkg/deb/libnccl2_2.0.1-1+cuda12.9_amd64.deb
tar xzf /mnt/tests && make -j2 -C nccl-tests-2.18.3 NCCL_HOME=$PWD/nccl-2.27.6-1/build NVCC_GENCODE=-gencode=arch=compute_90,code=sm_90
ldd nccl-tests-2.18.3/build/all_reduce_perf | grep 'libstandin-absent.so.1 => not found'
tar xzf /mnt/nvb && cd nvbandwidth-0.8 && cmake -B build -DCMAKE_CUDA_ARCHITECTURES=90 . && cmake --build build && cd ..
ldd nvbandwidth-0.8/build/nvbandwidth | grep 'libstandin-absent.so.1 => not found'
tar xzf /mnt/perf && cd perftest-26.04.17 && ./autogen.sh && ./configure && make -j2 && ./ib_write_bw --version | grep 26.0.1 && cd ..
tar xzf /mnt/efa && ls aws-efa-installer/DEBS/UBUNTU2204/x86_64/aws-ofi-nccl/libnccl-ofi_0.0.1-1_amd64.deb
tar xjf /mnt/hpcx
ldd hpcx-v2.23*/ucx/lib/libucp.so.0 | grep 'libstandin-absent.so.1 => not found'
dpkg-deb -x /mnt/cudnn cudnn && dpkg-deb -x /mnt/dcgm dcgm
printf 'unsigned long cudnnGetVersion(void);int main(void) { return cudnnGetVersion() != 10000; }' > t.c
gcc t.c -o t cudnn/usr/lib/*/libcudnn.so.9 && LD_LIBRARY_PATH=$(echo cudnn/usr/lib/*) ./t
ldd dcgm/usr/lib/*/libdcgm.so.4 | grep 'libstandin-absent.so.1 => not found'
`)
}

// runBuild runs a script in a directory of its own, with the environment of
// the image. "! command" must fail there: plain sh -e would let it pass.
func runBuild(t *testing.T, layers []string, mounts map[string]string, script string) {
	t.Helper()
	var lines []string
	for _, line := range strings.Split(script, "\n") {
		if rest, ok := strings.CutPrefix(line, "! "); ok {
			line = "if " + rest + "; then echo 'this must fail:' " + "'" + strings.ReplaceAll(rest, "'", `'\''`) + "'" + "; exit 1; fi"
		}
		lines = append(lines, line)
	}
	err := sandbox{layers: layers, mounts: mounts, env: []string{
		"PATH=/usr/local/cuda/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LIBRARY_PATH=/usr/local/cuda/lib64/stubs",
	}}.run(t.Context(), "/bin/bash", "-eux", "-c", "mkdir /tmp/build && cd /tmp/build\n"+strings.Join(lines, "\n"))
	if err != nil {
		t.Error(err)
	}
}
