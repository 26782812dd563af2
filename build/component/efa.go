package component

import (
	"github.com/assay-hpc/assay/build/recipe"
	"github.com/assay-hpc/assay/internal/certificate"
)

// efaPluginDir is the directory of EFA's NCCL plugin in every image, whatever directory the
// installer's version uses.
const efaPluginDir = "/opt/amazon/nccl-plugin"

// efaPlugin links efaPluginDir to the directory into which the installer has put the plugin.
const efaPlugin = `set -- $(find /opt -name libnccl-net-ofi.so)
if [ $# != 1 ]; then echo "the EFA installer left $# files libnccl-net-ofi.so, not one: $*" >&2; exit 1; fi
ln -s "${1%/*}" ` + efaPluginDir + `
# The plugin keeps its own name only: NCCL loads the generic one unasked.
rm -f ` + efaPluginDir + `/libnccl-net.so*
`

func init() { makers["efa"] = efa }

// efa is the stack for AWS's fabric, installed by AWS's installer: libfabric, rdma-core and the
// NCCL plugin. The image has one MPI, HPC-X's, so the installer's are removed. Its loader
// settings are removed too: on a host without EFA they would still load EFA's libraries.
func efa(b *builder, version string) {
	src := b.download("https://efa-installer.amazonaws.com/aws-efa-installer-" + version + ".tar.gz")
	b.install("pciutils", "environment-modules", "kmod", "libnl-3-dev", "libnl-route-3-dev", "tcl", "udev")
	if b.Target.Release == "22.04" { // from 24.04 on, another package, which every image has, provides it
		b.install("lsb-base")
	}
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
` + efaPlugin + recipe.Tidy,
	})
	b.prepend("PATH", "/opt/amazon/efa/bin")
	b.prepend("LD_LIBRARY_PATH", "/opt/amazon/efa/lib", efaPluginDir)
	b.setenv("NCCL_NET_PLUGIN", "ofi")
	b.declare(certificate.Component{
		Name: "efa", Version: version, License: "GPL-2.0-only OR BSD-2-Clause AND Apache-2.0", Homepage: "https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/efa.html",
		Sources: sourcesOf(src),
		Checks: []certificate.Check{
			command("libfabric runs", `libfabric`, "/opt/amazon/efa/bin/fi_info", "--version"),
			load(efaPluginDir + "/libnccl-net-ofi.so"),
			command("is not picked up by accident", "", "/bin/sh", "-c", "! [ -e "+efaPluginDir+"/libnccl-net.so ]"),
		},
	})
}
