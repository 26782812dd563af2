package component

import (
	"github.com/assay-hpc/assay/build/matrix"
	"github.com/assay-hpc/assay/internal/certificate"
)

func init() { makers["perftest"] = perftest }

// perftest is the distribution's package on an image without CUDA; otherwise it is built with
// CUDA.
func perftest(b *builder, version string) {
	if b.Target.CUDA == "" {
		perftestDebian(b, version)
		return
	}
	perftestCUDA(b, version)
}

// perftestCUDA is built once per CUDA major version, on the highest version: the driver's header
// decides which methods of registering GPU memory are compiled in, the driver itself is opened at
// run time, and the ABI of verbs is stable. configure looks for the driver's function that exports
// memory as a DMA-BUF in the driver's stub.
func perftestCUDA(b *builder, version string) {
	on := b.oldestMajor(func(x, y string) int { return matrix.CompareVersions(y, x) })
	src := b.download("https://github.com/linux-rdma/perftest/archive/refs/tags/" + version + ".tar.gz")
	built := b.compile("perftest-"+version, on, src, `./autogen.sh
./configure --prefix=/usr CUDA_H_PATH=/run/assay/cuda/include/cuda.h LDFLAGS=-L/run/assay/cuda/lib64/stubs
make -j"$(nproc)" NVCC="$NVCC"
make install NVCC="$NVCC" DESTDIR=/out
`)
	b.copy(built, "/out/usr/", "/usr/")
	b.declare(certificate.Component{
		Name: "perftest", Version: version, License: "GPL-2.0-only OR BSD-2-Clause", Homepage: "https://github.com/linux-rdma/perftest",
		Sources: sourcesOf(src),
		Checks: []certificate.Check{
			command("reports a version", `Version: \d+\.\d+`, "/bin/sh", "-c", "ib_write_bw --version || [ $? = 1 ]"),
			command("has CUDA and DMA-BUF", `--use_cuda_dmabuf`, "/bin/sh", "-c", "ib_write_bw --help || true"),
			executable("/usr/bin/ib_read_lat"),
		},
	})
}

var perftestDebian = debian("perftest", "GPL-2.0-only OR BSD-2-Clause", "https://github.com/linux-rdma/perftest", debianPart{
	[]string{"perftest"}, perftestChecks,
})

func perftestChecks(string, libdir) []certificate.Check {
	return []certificate.Check{
		// 4.5 reports a version different from its package's, and exits 1.
		command("reports a version", `Version: \d+\.\d+`, "/bin/sh", "-c", "ib_write_bw --version || [ $? = 1 ]"),
		executable("/usr/bin/ib_read_lat"),
	}
}
