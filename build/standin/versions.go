package standin

import "strings"

// Components are the names that Options.Faults accepts.
var Components = []string{"nccl", "nccl-tests", "gdrcopy", "perftest", "nvbandwidth", "hpcx", "cudnn", "dcgm", "efa"}

// defaultBases returns the ten rows of the seed's table, the current ones and
// those between.
func defaultBases() []Base {
	var bases []Base
	for _, cuda := range []string{"12.2.2", "12.4.1", "12.6.3", "12.8.1", "12.9.1"} {
		bases = append(bases, Base{cuda, "20.04"}, Base{cuda, "22.04"})
	}
	bases = append(bases, Base{"12.9.1", "24.04"})
	for _, cuda := range []string{"12.8.2", "12.9.2", "13.0.2", "13.0.3", "13.1.1", "13.1.2", "13.2.1", "13.3.1", "13.4.2"} {
		bases = append(bases, Base{cuda, "22.04"}, Base{cuda, "24.04"})
	}
	return append(bases, Base{"13.3.1", "26.04"}, Base{"13.4.2", "26.04"})
}

// ubuntus are the releases that have repositories, with their code names.
var ubuntus = map[string]string{"20.04": "focal", "22.04": "jammy", "24.04": "noble", "26.04": "resolute"}

// baseNCCL is the NCCL version that each CUDA's base image contains, and that recipes replace.
// The versions in the base images of 2026 are not known; here they are older than the recipes'.
var baseNCCL = map[string]string{
	"12.2.2": "2.19.3-1", "12.4.1": "2.21.5-1", "12.6.3": "2.23.4-1", "12.8.1": "2.25.1-1", "12.9.1": "2.27.3-1",
	"13.0.2": "2.28.3-1", "13.1.1": "2.28.9-1", "13.2.1": "2.29.7-1",
	"12.8.2": "2.25.1-1", "12.9.2": "2.27.3-1", "13.0.3": "2.28.3-1", "13.1.2": "2.28.9-1", "13.3.1": "2.30.7-1", "13.4.2": "2.31.2-1",
}

// An archive is one upstream source with a directory of testdata as its stand-in. {v} is the
// version.
type archive struct {
	component, url, top string
	versions            []string
}

var archives = []archive{
	{"nccl", "https://github.com/NVIDIA/nccl/archive/refs/tags/v{v}.tar.gz", "nccl-{v}", []string{"2.27.6-1", "2.27.7-1", "2.30.4-1", "2.32.3-1"}},
	{"nccl-tests", "https://github.com/NVIDIA/nccl-tests/archive/refs/tags/v{v}.tar.gz", "nccl-tests-{v}", []string{"2.13.6", "2.17.6", "2.18.3"}},
	{"gdrcopy", "https://github.com/NVIDIA/gdrcopy/archive/refs/tags/v{v}.tar.gz", "gdrcopy-{v}", []string{"2.4", "2.5.1", "2.5.2"}},
	{"perftest", "https://github.com/linux-rdma/perftest/archive/refs/tags/{v}.tar.gz", "perftest-{v}", []string{"26.04.17"}},
	{"perftest", "https://github.com/linux-rdma/perftest/archive/refs/tags/perftest-{v}.tar.gz", "perftest-perftest-{v}", []string{"26.01.5"}},
	{"nvbandwidth", "https://github.com/NVIDIA/nvbandwidth/archive/refs/tags/v{v}.tar.gz", "nvbandwidth-{v}", []string{"0.8", "0.9"}},
}

// A hpcx is one release of HPC-X and what is in it.
type hpcx struct {
	version, ompi, ucx, url string // url as in archive, with {dist} and {major}
	builds                  []hpcxBuild
}

type hpcxBuild struct{ ubuntu, cudaMajor string }

var hpcxes = []hpcx{
	{"2.23", "4.1.7a1", "1.19.0", "https://content.mellanox.com/hpc/hpc-x/v{v}/{dist}.tbz",
		[]hpcxBuild{{"20.04", "12"}, {"22.04", "12"}, {"24.04", "12"}}},
	{"2.26", "4.1.9a1", "1.20.0", "https://content.mellanox.com/hpc/hpc-x/v{v}_cuda{major}/{dist}.tbz",
		[]hpcxBuild{{"22.04", "12"}, {"24.04", "12"}, {"22.04", "13"}, {"24.04", "13"}}},
	{"2.51", "4.1.9a1", "1.21.0", "https://content.mellanox.com/hpc/hpc-x/v{v}_cuda{major}/{dist}.tbz",
		[]hpcxBuild{{"22.04", "12"}, {"24.04", "12"}, {"22.04", "13"}, {"24.04", "13"}, {"26.04", "13"}}},
}

// dist is the name of a build's archive and of the directory in it.
func (h hpcx) dist(b hpcxBuild, arch string) string {
	return "hpcx-v" + h.version + "-gcc-doca_ofed-ubuntu" + b.ubuntu + "-cuda" + b.cudaMajor + "-" + gnuMachine(arch)
}

// A cudnn is one cuDNN version, for some CUDA generations and Ubuntu releases.
type cudnn struct {
	version   string
	cudaMajor []string
	since     string // the oldest Ubuntu
	until     string // the newest
}

var cudnns = []cudnn{
	{"9.8.0.87-1", []string{"12"}, "20.04", "24.04"},
	{"9.10.2.21-1", []string{"12"}, "20.04", "24.04"},
	{"9.20.0.48-1", []string{"12", "13"}, "22.04", "24.04"},
	{"9.26.0.51-1", []string{"12", "13"}, "22.04", "26.04"},
}

// dcgms are DCGM's versions with the oldest Ubuntu that has them.
var dcgms = []struct{ version, since string }{
	{"1:3.3.6", "20.04"}, {"1:4.4.2-1", "22.04"}, {"1:4.5.2-1", "22.04"}, {"1:4.5.3-1", "22.04"}, {"1:4.6.0-1", "22.04"},
}

// docas are DOCA releases with the version of their rdma-core packages, and the
// oldest and the newest Ubuntu that they are for.
var docas = []struct{ version, packages, since, until string }{
	{"2.10.0", "2501mlnx56-1.2501060", "20.04", "24.04"}, {"3.2.1", "2510mlnx59-1.2510145", "22.04", "24.04"},
	{"3.2.2", "2510mlnx59-1.2510189", "22.04", "24.04"}, {"3.4.0", "2604mlnx63-1.2604000", "22.04", "26.04"},
}

// An efa is one EFA installer and what it bundles.
type efa struct{ version, ofiNCCL, libfabric, rdmaCore string }

var efas = []efa{
	{"1.47.0", "1.18.0", "2.4.0amzn1.0", "61.0-1"},
	{"1.49.0", "1.20.0", "2.4.0amzn5.0", "63.0-1"},
}

// gnuMachine returns uname -m's name of an OCI architecture, "" for others.
func gnuMachine(arch string) string {
	return map[string]string{"amd64": "x86_64", "arm64": "aarch64"}[arch]
}

// cudaRepoArch returns the name of an architecture in NVIDIA's CUDA repository.
func cudaRepoArch(arch string) string {
	if arch == "arm64" {
		return "sbsa"
	}
	return "x86_64"
}

// docaRepoArch returns the name of an architecture in the DOCA repository.
func docaRepoArch(arch string) string {
	if arch == "arm64" {
		return "arm64-sbsa"
	}
	return "x86_64"
}

// undotted returns "2204" for "22.04".
func undotted(release string) string { return strings.ReplaceAll(release, ".", "") }

// wrong returns another version of the same major release, for WrongVersion.
func wrong(version string) string {
	major, _, _ := strings.Cut(version, ".")
	_, revision, ok := strings.Cut(version, "-")
	if !ok {
		return major + ".0.1"
	}
	return major + ".0.1-" + revision
}
