package component

import "github.com/assay-hpc/assay/internal/certificate"

func init() {
	makers["libfabric"] = debian("libfabric", "GPL-2.0-only OR BSD-2-Clause", "https://ofiwg.github.io/libfabric", debianPart{
		[]string{"libfabric1", "libfabric-bin"},
		func(v string, lib libdir) []certificate.Check {
			return []certificate.Check{
				command("version", `libfabric:`+exact(v), "fi_info", "--version"),
				command("offers TCP", `provider: tcp`, "fi_info", "-p", "tcp"),
				command("has InfiniBand and RoCE", `FI_VERBS_TX_SIZE`, "fi_info", "-e"), // a list of providers omits it without a device
				executable("/usr/bin/fi_pingpong"),
				lib.load("libfabric.so.1"),
			}
		},
	})
}
