package audit

import (
	"cmp"
	"errors"
	"regexp"
	"slices"
	"strings"

	"github.com/assay-hpc/assay/internal/dpkg"
	"github.com/assay-hpc/assay/internal/host/libnccl"
	"github.com/assay-hpc/assay/internal/rootfs"
)

// packages are the components that packages of Debian's format contain, by the begin of their names.
var packages = []struct {
	name      *regexp.Regexp
	component string
}{
	{regexp.MustCompile(`^libnccl2$`), "nccl"},
	{regexp.MustCompile(`^(?:libnccl-ofi|aws-ofi-nccl)`), "ofi"},
	{regexp.MustCompile(`^(?:libucx0|ucx)$`), "ucx"},
	{regexp.MustCompile(`^(?:libucc1|ucc)$`), "ucc"},
	{regexp.MustCompile(`^(?:libfabric1|libfabric1?-aws.*)$`), "libfabric"},
	{regexp.MustCompile(`^(?:openmpi-bin|openmpi[45]0-aws)$`), "openmpi"},
	{regexp.MustCompile(`^datacenter-gpu-manager(?:-4-core)?$`), "dcgm"},
	{regexp.MustCompile(`^nvidia-fabricmanager(?:-\d+)?$`), "fabricmanager"},
	{regexp.MustCompile(`^nvidia-container-toolkit$`), "container-toolkit"},
	{regexp.MustCompile(`^(?:libgdrapi\d*|gdrdrv-dkms)$`), "gdrcopy"},
	{regexp.MustCompile(`^perftest$`), "perftest"},
	{regexp.MustCompile(`^libnvshmem3?(?:-cuda-\d+)?$`), "nvshmem"},
	{regexp.MustCompile(`^doca-ofed$`), "doca"},
	{regexp.MustCompile(`^rccl$`), "rccl"},
}

// ncclFiles are where NCCL's library is besides packages: of wheels, and of images that compile it.
var ncclFiles = []string{
	"/usr/lib/*/libnccl.so.2", "/usr/lib/libnccl.so.2", "/usr/local/lib/libnccl.so.2", "/usr/local/nccl*/lib/libnccl.so.2", "/opt/nccl*/lib/libnccl.so.2", "/opt/nccl/build/lib/libnccl.so.2",
	"/usr/local/lib/python3*/*-packages/nvidia/nccl/lib/libnccl.so.2", "/usr/lib/python3*/*-packages/nvidia/nccl/lib/libnccl.so.2",
	"/opt/*/lib/python3*/site-packages/nvidia/nccl/lib/libnccl.so.2", "/opt/*/.venv/lib/python3*/site-packages/nvidia/nccl/lib/libnccl.so.2",
	"/opt/*/envs/*/lib/python3*/site-packages/nvidia/nccl/lib/libnccl.so.2", "/root/.venv/lib/python3*/site-packages/nvidia/nccl/lib/libnccl.so.2",
	"/home/*/*/lib/python3*/site-packages/nvidia/nccl/lib/libnccl.so.2", "/venv/lib/python3*/site-packages/nvidia/nccl/lib/libnccl.so.2",
}

// wheels are the components of Python's packages, by the names of their metadata.
var wheels = regexp.MustCompile(`/(torch)-(\d+(?:\.\d+)+)[^/]*\.dist-info$`)

// maxFile bounds what is read of a text file.
const maxFile = 64 << 10

// Read finds the versions of a system below a root: packages, libraries, the kernel and its driver.
func Read(root rootfs.FS) (System, error) {
	var s System
	pkgs, err := dpkg.Read(root)
	if err != nil && !errors.Is(err, dpkg.ErrNoDatabase) {
		return s, err
	}
	for _, p := range pkgs {
		if !p.Installed() {
			continue
		}
		if p.Name == "dpkg" {
			s.Arch = p.Arch
		}
		for _, of := range packages {
			if of.name.MatchString(p.Name) {
				s.add(Version{of.component, p.Version, "package " + p.Name, distribution(p)})
			}
		}
	}
	for _, pattern := range ncclFiles {
		names := glob(root, pattern)
		for _, name := range names {
			s.library(root, name)
		}
	}
	for _, pattern := range []string{"/usr/local/lib/python3*/*-packages/*.dist-info", "/opt/*/lib/python3*/site-packages/*.dist-info", "/opt/*/.venv/lib/python3*/site-packages/*.dist-info"} {
		names := glob(root, pattern)
		for _, name := range names {
			if m := wheels.FindStringSubmatch(name); m != nil {
				s.add(Version{"pytorch", m[2], name, false})
			}
		}
	}
	s.kernel(root)
	return s, nil
}

// distribution says whether a package is of Debian or Ubuntu, and no vendor's.
func distribution(p dpkg.Package) bool {
	m := strings.ToLower(p.Maintainer)
	return strings.Contains(m, "debian") || strings.Contains(m, "ubuntu")
}

// glob returns the names that a pattern with wildcards in any of its elements matches.
func glob(root rootfs.FS, pattern string) []string {
	names := []string{""}
	for element := range strings.SplitSeq(strings.TrimPrefix(pattern, "/"), "/") {
		var next []string
		for _, dir := range names {
			if !strings.ContainsAny(element, "*?[") {
				next = append(next, dir+"/"+element)
				continue
			}
			if !root.IsDir(cmp.Or(dir, "/")) {
				continue
			}
			found, err := root.Glob(dir + "/" + element)
			if err == nil { // a directory that may not be read has nothing for us
				next = append(next, found...)
			}
		}
		names = next
	}
	return slices.DeleteFunc(names, func(name string) bool {
		_, err := root.Stat(name)
		return err != nil
	})
}

func (s *System) add(v Version) {
	if !slices.ContainsFunc(s.Versions, func(o Version) bool { return o.Component == v.Component && o.Version == v.Version }) {
		s.Versions = append(s.Versions, v)
	}
}

// library adds NCCL's library, if it is NVIDIA's.
func (s *System) library(root rootfs.FS, name string) {
	f, err := root.Open(name)
	if err != nil {
		return
	}
	defer f.Close()
	id, err := libnccl.Read(f)
	if err != nil || id.Maker != libnccl.NVIDIA || id.Version == "" {
		return
	}
	number := strings.SplitN(id.Version, "+", 2)[0]
	if !slices.ContainsFunc(s.Versions, func(o Version) bool {
		return o.Component == "nccl" && compare(numbers(o.Version), numbers(number)) == 0
	}) {
		s.add(Version{"nccl", number, name, false})
	}
}

var (
	driverVersion = regexp.MustCompile(`Module\S*(?: for \S+)?\s+(\d+\.\d+(?:\.\d+)?)`)
	gpuModel      = regexp.MustCompile(`(?m)^Model:\s*(.+?)\s*$`)
)

// kernel adds the kernel, its driver and the GPUs that it serves.
func (s *System) kernel(root rootfs.FS) {
	text := func(name string) string {
		b, err := root.ReadFile(name, maxFile)
		if err != nil {
			return ""
		}
		return strings.TrimSpace(string(b))
	}
	if v := text("/proc/sys/kernel/osrelease"); v != "" {
		s.add(Version{"kernel", v, "/proc/sys/kernel/osrelease", true})
	}
	if m := driverVersion.FindStringSubmatch(text("/proc/driver/nvidia/version")); m != nil {
		s.add(Version{"driver", m[1], "/proc/driver/nvidia/version", false})
	} else if v := text("/sys/module/nvidia/version"); v != "" {
		s.add(Version{"driver", v, "/sys/module/nvidia/version", false})
	}
	names := glob(root, "/proc/driver/nvidia/gpus/*/information")
	for _, name := range names {
		if m := gpuModel.FindStringSubmatch(text(name)); m != nil && !slices.Contains(s.GPUs, m[1]) {
			s.GPUs = append(s.GPUs, m[1])
		}
	}
}
