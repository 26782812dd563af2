package component

// Checksum is a published SHA-256 of a download.
type Checksum struct {
	SHA256 string // hex
	From   string // the source that published it
}

// Published maps a download's URL to the checksum announced by its publisher, or by a packager
// who verified it. The download can be pinned even if the upstream is unreachable.
var Published = map[string]Checksum{
	"https://efa-installer.amazonaws.com/aws-efa-installer-1.47.0.tar.gz": {
		"2df4201e046833c7dc8160907bee7f52b76ff80ed147376a2d0ed8a0dd66b2db",
		"AWS EC2 user guide",
	},
	"https://github.com/NVIDIA-DOCA/gpunetio/archive/f44728fb023ba61911b705dba289b1650ce2eb28.tar.gz": {
		"c5b747a29bdf943c5031470f514dbb88e3a4eacbd67066d71a78d7cdd8af4d32",
		"git archive of the commit, as the host makes it",
	},
	"https://github.com/NVIDIA/gdrcopy/archive/refs/tags/v2.5.2.tar.gz": {
		"32bc7b2c198dd97ec251de0ff4823252c95e31a4c79a5f843c82514c9af2052b",
		"Spack or EasyBuild package recipe",
	},
	"https://github.com/NVIDIA/nccl-tests/archive/refs/tags/v2.17.6.tar.gz": {
		"38974e70342150ede0e3fb8fd24bfe60ccbde90fa20241716ba8bb338e6b61a0",
		"Spack or EasyBuild package recipe",
	},
	"https://github.com/NVIDIA/nccl-tests/archive/refs/tags/v2.18.3.tar.gz": {
		"9762d714518ea7d0f2f3f7133842b7ce7c48c04972acac1471fe9c226ba2071f",
		"git archive of the tag, as the host makes it",
	},
	"https://github.com/NVIDIA/nccl/archive/refs/tags/v2.27.6-1.tar.gz": {
		"be322d358891c48acf34ac23655e7ebdce27bcfa83d67d09483c335d3b5021cc",
		"Spack or EasyBuild package recipe",
	},
	"https://github.com/NVIDIA/nccl/archive/refs/tags/v2.30.4-1.tar.gz": {
		"fe12cb244a4aea4c802d0a18d1072e10f102fc39c2530a8251c2abdaeea9ecba",
		"Spack or EasyBuild package recipe",
	},
	"https://github.com/NVIDIA/nvbandwidth/archive/refs/tags/v0.8.tar.gz": {
		"b3622945eb7fce2b4e1aea7d13de04f415f4d998db602893201a904320cf2d39",
		"git archive of the tag, as the host makes it",
	},
	"https://github.com/NVIDIA/nvbandwidth/archive/refs/tags/v0.9.tar.gz": {
		"552e7b2595c4b95ab1da86ba002f239185d247b2fb9929ed3cb9dc7f57bcd67c",
		"Spack or EasyBuild package recipe",
	},
	"https://download.open-mpi.org/release/open-mpi/v5.0/openmpi-5.0.10.tar.bz2": {
		"0acecc4fc218e5debdbcb8a41d182c6b0f1d29393015ed763b2a91d5d7374cc6",
		"Spack package recipe",
	},
	"https://github.com/openucx/ucc/archive/refs/tags/v1.8.0.tar.gz": {
		"1fc0b7c5d6e5592ae1efff13705ff5cee2e67eba67914c2c70039e6854310b67",
		"git archive of the tag, as the host makes it",
	},
	"https://github.com/openucx/ucx/archive/refs/tags/v1.22.0.tar.gz": {
		"675ed3c923ca84c5fd2123bd83f9988a23cb617e1b4345266621d3dd1a675c09",
		"git archive of the tag, as the host makes it",
	},
	"https://github.com/linux-rdma/perftest/archive/refs/tags/26.04.17.tar.gz": {
		"18446f0390dbb097e623ab5f100ba163de6867bc5ad4e42669701e3ca3c4a4bf",
		"a public Nix package (base64 there, hex here)",
	},
}
