package component

import (
	"fmt"

	"github.com/assay-hpc/assay/build/matrix"
	"github.com/assay-hpc/assay/build/recipe"
)

const docaRoot = "https://linux.mellanox.com/public/repo/doca/"

// ofedRepository returns the steps that set up a target's DOCA repository in a stage; none for a
// target without OFED.
func (b *builder) ofedRepository(t matrix.Target) []recipe.Step {
	version := t.Version("ofed")
	if version == "" {
		return nil
	}
	arch := map[string]string{"amd64": "x86_64", "arm64": "arm64-sbsa"}[b.Platform.Arch]
	repo := fmt.Sprintf("%s%s/ubuntu%s/%s/", docaRoot, version, t.Release, arch)
	key := b.download(repo + "doca_keyring.gpg")
	return []recipe.Step{
		recipe.Copy{From: key, Src: "/" + key.Name(), Dst: "/usr/share/keyrings/doca.gpg"},
		recipe.File{Path: "/etc/apt/sources.list.d/doca.list", Mode: 0o644, Content: "deb [signed-by=/usr/share/keyrings/doca.gpg] " + repo + " ./\n"},
	}
}

func init() { makers["ofed"] = ofed }

// ofed is the userspace of the OFED stack, from the DOCA repository. The kernel side belongs to
// the host.
func ofed(b *builder, version string) {
	b.sources = append(b.sources, b.ofedRepository(b.Target)...)
	b.install("libibverbs1", "libibverbs-dev", "ibverbs-providers", "ibverbs-utils", "libibumad3", "libibumad-dev", "librdmacm1", "librdmacm-dev", "rdmacm-utils", "infiniband-diags",
		"libxpmem0") // for a transport of HPC-X's UCX
	lib := libdir("/usr/lib/" + b.Platform.Multiarch())
	b.made(nil,
		command("rdma-core is the vendor's", `mlnx`, "dpkg-query", "-W", "-f", "${Version}", "libibverbs1"),
		executable("/usr/bin/ibv_devinfo"), executable("/usr/sbin/ibstat"),
		lib.load("libibverbs.so.1"), lib.load("librdmacm.so.1"), lib.load("libmlx5.so.1"), lib.load("libxpmem.so.0"),
	)
}
