package component

import (
	"regexp"
	"slices"
	"strings"

	"github.com/assay-hpc/assay/internal/certificate"
)

// debianPart is what a component made of distribution packages consists of.
type debianPart struct {
	packages []string // the first one gives the version
	checks   func(version string, lib libdir) []certificate.Check
}

// renamed maps, by release of Debian or Ubuntu, bookworm's package names to the different names in that
// release.
var renamed = map[string]map[string]string{
	"13":    {"libopenmpi3": "libopenmpi40", "libpmix2": "libpmix2t64"},
	"24.04": {"libopenmpi3": "libopenmpi3t64", "libpmix2": "libpmix2t64", "librdmacm1": "librdmacm1t64"},
	"26.04": {"libopenmpi3": "libopenmpi40", "libpmix2": "libpmix2t64"},
}

// libdir is the directory of the distribution's shared libraries.
type libdir string

// load returns a check that the dynamic loader can load a library of the directory.
func (d libdir) load(name string) certificate.Check { return load(string(d) + "/" + name) }

// debian makes a component from the distribution's own packages.
func debian(name, license, homepage string, p debianPart) maker {
	return func(b *builder, _ string) {
		packages := slices.Clone(p.packages)
		for i, name := range packages {
			if other := renamed[b.Target.Release][name]; other != "" {
				packages[i] = other
			}
		}
		b.install(packages...)
		version := b.locked(packages[0])
		b.declare(certificate.Component{
			Name: name, Version: version, License: license, Homepage: homepage,
			Checks: p.checks(upstream(version), libdir("/usr/lib/"+b.Platform.Multiarch())),
		})
	}
}

func init() {
	makers["openmpi"] = debian("openmpi", "BSD-3-Clause-Open-MPI", "https://www.open-mpi.org", openmpi)
	makers["ucx"] = debian("ucx", "BSD-3-Clause", "https://openucx.org", ucx)
	makers["pmix"] = debian("pmix", "BSD-3-Clause-Open-MPI", "https://openpmix.github.io", pmix)
	makers["rdma-core"] = debian("rdma-core", "GPL-2.0-only OR Linux-OpenIB", "https://github.com/linux-rdma/rdma-core", rdmaCore)
	makers["infiniband-diags"] = debian("infiniband-diags", "GPL-2.0-only OR Linux-OpenIB", "https://github.com/linux-rdma/rdma-core", infinibandDiags)
	makers["hwloc"] = debian("hwloc", "BSD-3-Clause", "https://www.open-mpi.org/projects/hwloc", hwloc)
	makers["numactl"] = debian("numactl", "GPL-2.0-only", "https://github.com/numactl/numactl", numactl)
}

// locked returns a package's version in the target's set, "" while unresolved.
func (b *builder) locked(pkg string) string {
	for _, d := range b.Lock.Debs[b.Target.Name+"/"+b.Platform.Arch].Packages {
		if d.Name == pkg {
			return d.Version
		}
	}
	return ""
}

// upstream returns the part of a Debian version that the program itself
// reports: no epoch, no revision, no repacking suffix. "6.0+really5.0.9-3" is 5.0.9: the archive went
// back to that version.
func upstream(v string) string {
	if _, rest, ok := strings.Cut(v, ":"); ok {
		v = rest
	}
	if _, really, ok := strings.Cut(v, "+really"); ok {
		v = really
	}
	if i := strings.LastIndex(v, "-"); i >= 0 {
		v = v[:i]
	}
	v, _, _ = strings.Cut(v, "+")
	return v
}

// command returns a check that a program runs and that its output matches.
func command(name, match string, argv ...string) certificate.Check {
	return certificate.Check{Name: name, Kind: certificate.CheckCommand, Command: argv, Match: match}
}

func load(path string) certificate.Check {
	return certificate.Check{Name: "loads " + path[strings.LastIndex(path, "/")+1:], Kind: certificate.CheckLoad, Path: path}
}

func executable(path string) certificate.Check {
	return certificate.Check{Name: "has " + path, Kind: certificate.CheckFile, Path: path, Mode: 0o111}
}

// exact returns a pattern for a version that is not part of a longer one: it matches "v4.1.4" and
// "4.1.4rc2" but not "4.1.40".
func exact(version string) string {
	return `(?:^|[^0-9.])` + regexp.QuoteMeta(version) + `(?:[^0-9]|$)`
}

// behind returns a pattern for a version that immediately follows a text.
func behind(text, version string) string {
	return regexp.QuoteMeta(text+version) + `(?:[^0-9]|$)`
}

var (
	openmpi = debianPart{
		[]string{"openmpi-bin", "libopenmpi3", "openmpi-common"},
		func(v string, lib libdir) []certificate.Check {
			return []certificate.Check{
				command("version", `Open MPI `+exact(v), "ompi_info", "--version"),
				command("has the UCX transport", `pml: ucx`, "ompi_info"),
				// Open MPI 4 has a component for PMIx; Open MPI 5 links it.
				command("has PMIx", `MCA pmix: \w+|--with-pmix=external`, "ompi_info"),
				lib.load("libmpi.so.40"),
			}
		},
	}
	ucx = debianPart{
		[]string{"libucx0", "ucx-utils"},
		func(v string, lib libdir) []certificate.Check {
			return []certificate.Check{
				command("version", exact(v), "ucx_info", "-v"),
				command("offers shared memory and TCP", `(?s)Transport: (posix|sysv|tcp)`, "ucx_info", "-d"),
				lib.load("ucx/libuct_ib.so.0"), // its transports of InfiniBand and RoCE
				lib.load("libucp.so.0"),
			}
		},
	}
	pmix = debianPart{
		[]string{"libpmix2", "libpmix-bin"},
		func(v string, lib libdir) []certificate.Check {
			return []certificate.Check{
				command("version", `PMIX:`+exact(v), "pmix_info"),
				lib.load("libpmix.so.2"),
			}
		},
	}
	rdmaCore = debianPart{
		[]string{"rdma-core", "libibverbs1", "librdmacm1", "libibumad3", "ibverbs-providers", "ibverbs-utils", "rdmacm-utils"},
		func(_ string, lib libdir) []certificate.Check {
			return []certificate.Check{
				executable("/usr/bin/ibv_devinfo"), executable("/usr/bin/rping"),
				lib.load("libibverbs.so.1"), lib.load("librdmacm.so.1"), lib.load("libmlx5.so.1"),
			}
		},
	}
	infinibandDiags = debianPart{
		[]string{"infiniband-diags"},
		func(v string, _ libdir) []certificate.Check {
			return []certificate.Check{
				executable("/usr/sbin/ibstat"),
				command("version", exact(v), "ibnetdiscover", "--version"),
			}
		},
	}
	hwloc = debianPart{
		[]string{"hwloc-nox"},
		func(v string, _ libdir) []certificate.Check {
			return []certificate.Check{
				command("version", exact(v), "lstopo-no-graphics", "--version"),
				command("reads the topology", `PU L#0`, "lstopo-no-graphics", "--of", "console"),
			}
		},
	}
	numactl = debianPart{
		[]string{"numactl", "libnuma1"},
		func(_ string, lib libdir) []certificate.Check {
			return []certificate.Check{
				// "numactl --show" fails if the kernel, or an emulator, has no NUMA, but still
				// shows the processors.
				command("shows the processors", `physcpubind:`, "/bin/sh", "-c", "numactl --show || true"),
				lib.load("libnuma.so.1"),
			}
		},
	}
)
