package component

import (
	"github.com/assay-hpc/assay/build/matrix"
	"github.com/assay-hpc/assay/build/recipe"
	"github.com/assay-hpc/assay/harness/certificate"
)

// efa is the stack for AWS's fabric, by its installer: libfabric, rdma-core
// and the NCCL plugin. The image keeps one MPI, HPC-X's; the installer's are
// removed. Its own settings for the loader stay out too: on a host without EFA
// they would load EFA's libraries all the same.
func efa(b *builder, version string) {
	// The plugin moved in 1.48.
	plugin := "/opt/amazon/ofi-nccl/lib"
	if matrix.CompareVersions(version, "1.48") < 0 {
		plugin += "/" + b.Platform.Multiarch()
	}
	src := b.download("https://efa-installer.amazonaws.com/aws-efa-installer-" + version + ".tar.gz")
	b.install("pciutils", "environment-modules", "kmod", "libnl-3-dev", "libnl-route-3-dev")
	b.after = append(b.after, recipe.Run{
		Title:  "install the EFA stack",
		Mounts: []recipe.Mount{{Target: "/run/assay/efa.tar.gz", From: src}},
		Script: `mkdir /tmp/efa
tar -xzf /run/assay/efa.tar.gz -C /tmp/efa --strip-components=1 --no-same-owner
cd /tmp/efa
export DEBIAN_FRONTEND=noninteractive
./efa_installer.sh -y --skip-kmod --skip-limit-conf --no-verify
cd /
rm -rf /tmp/efa /opt/amazon/openmpi /opt/amazon/openmpi5 /etc/ld.so.conf.d/000_efa.conf /etc/ld.so.conf.d/100_ofinccl.conf
# The plugin keeps its own name only: NCCL loads the generic one unasked.
rm -f /opt/amazon/ofi-nccl/lib/libnccl-net.so* /opt/amazon/ofi-nccl/lib/*/libnccl-net.so*
` + recipe.Tidy,
	})
	b.prepend("PATH", "/opt/amazon/efa/bin")
	b.prepend("LD_LIBRARY_PATH", "/opt/amazon/efa/lib", plugin)
	b.setenv("NCCL_NET_PLUGIN", "ofi")
	b.declare(certificate.Component{
		Name: "efa", Version: version, License: "GPL-2.0-only OR BSD-2-Clause AND Apache-2.0", Homepage: "https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/efa.html",
		Sources: sourcesOf(src),
		Checks: []certificate.Check{
			command("libfabric runs", `libfabric`, "/opt/amazon/efa/bin/fi_info", "--version"),
			load(plugin + "/libnccl-net-ofi.so"),
			command("is not picked up by accident", "", "/bin/sh", "-c", "! [ -e "+plugin+"/libnccl-net.so ]"),
		},
	})
}
