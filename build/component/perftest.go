package component

import (
	"github.com/assay-hpc/assay/harness/certificate"
)

// perftest is the distribution's package on an image without CUDA, and built
// with CUDA otherwise.
func perftest(b *builder, version string) {
	perftestDebian(b, version)
}

var perftestDebian = debian("perftest", "GPL-2.0-only OR BSD-2-Clause", "https://github.com/linux-rdma/perftest", part{
	[]string{"perftest"}, perftestChecks,
})

func perftestChecks(string, libdir) []certificate.Check {
	return []certificate.Check{
		// 4.5 numbers itself otherwise than its package does, and exits 1.
		command("reports a version", `Version: \d+\.\d+`, "/bin/sh", "-c", "ib_write_bw --version || [ $? = 1 ]"),
		executable("/usr/bin/ib_read_lat"),
	}
}
