package machine

import (
	"path"
	"slices"
	"strings"

	"github.com/assay-hpc/assay/internal/elf"
	"github.com/assay-hpc/assay/internal/host/netenv"
	"github.com/assay-hpc/assay/internal/ldso"
	"github.com/assay-hpc/assay/internal/rootfs"
)

// pluginDirs are the directories in which installers (AWS's EFA installer, HPC-X) put NCCL's
// network plugins, for images with a loader that does not search them.
var pluginDirs = []string{
	"/opt/amazon/nccl-plugin", "/opt/amazon/ofi-nccl/lib", "/opt/amazon/ofi-nccl/lib64", "/opt/amazon/ofi-nccl/lib/x86_64-linux-gnu", "/opt/amazon/ofi-nccl/lib/aarch64-linux-gnu",
	"/opt/aws-ofi-nccl/lib", "/opt/hpcx/nccl_rdma_sharp_plugin/lib", "/opt/hpcx/nccl_spectrum-x_plugin/lib",
}

// pluginFiles are the plugins' files, each with the name for NCCL_NET_PLUGIN. assay's images give
// HPC-X's plugin its own name, as AWS does with EFA's.
var pluginFiles = []struct{ file, name, kind string }{
	{"libnccl-net.so", "", ""}, // its kind is determined from its content
	{"libnccl-net-ofi.so", "ofi", netenv.PluginOFI},
	{"libnccl-net-sharp.so", "sharp", netenv.PluginSHARP},
	{"libnccl-net-spcx.so", "spcx", netenv.PluginSpectrumX},
}

// plugins finds the network plugins in the order in which the loader searches, followed by those
// where it does not.
func plugins(dir, libraryPath string) []netenv.Plugin {
	out := []netenv.Plugin{}
	root, err := rootfs.Open(dir)
	if err != nil {
		return out
	}
	dirs := ldso.Dirs(root, libraryPath)
	listed := len(dirs)
	seen := map[string]bool{}
	for i, d := range append(dirs, pluginDirs...) {
		for _, f := range pluginFiles {
			name := path.Join(d, f.file)
			real, err := root.Resolve(name)
			if _, statErr := root.Stat(name); err != nil || statErr != nil || !path.IsAbs(d) || seen[f.file+real] {
				continue
			}
			seen[f.file+real] = true
			kind := f.kind
			if kind == "" {
				kind = pluginKind(root, real)
			}
			out = append(out, netenv.Plugin{Path: name, Name: f.name, Kind: kind, Listed: i < listed})
		}
	}
	return out
}

// pluginKind distinguishes plugins by the libraries that they need, or by their path if they look
// these up at run time.
func pluginKind(root rootfs.FS, real string) string {
	needs := ""
	if f, err := root.Open(real); err == nil {
		defer f.Close()
		if lib, err := elf.Parse(f); err == nil {
			needs = strings.Join(lib.Needed, " ")
		}
	}
	has := func(text string, words ...string) bool {
		return slices.ContainsFunc(words, func(w string) bool { return strings.Contains(text, w) })
	}
	switch {
	case has(needs, "libfabric"), has(real, "ofi-nccl", "libnccl-net-ofi"):
		return netenv.PluginOFI
	case has(needs, "libsharp"), has(real, "sharp"):
		return netenv.PluginSHARP
	}
	return netenv.PluginOther
}
