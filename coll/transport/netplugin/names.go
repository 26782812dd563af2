package netplugin

import (
	"slices"
	"strings"
)

// prefix begins the file names of network plugins.
const prefix = "libnccl-net"

// Files returns the file names to try for an entry of NCCL_NET_PLUGIN, in order, in the
// form that dlopen accepts: the entry itself, and unless it is a path or the whole name
// of a library, libnccl-net-ENTRY.so. The empty entry is libnccl-net.so.
func Files(entry string) []string {
	switch {
	case entry == "":
		return []string{prefix + ".so"}
	case strings.Contains(entry, "/"), strings.HasPrefix(entry, "lib") && strings.HasSuffix(entry, ".so"):
		return []string{entry}
	}
	return []string{entry, prefix + "-" + entry + ".so"}
}

// Entries splits NCCL_NET_PLUGIN: names separated by commas, of which the first usable
// one counts. The unset variable stands for libnccl-net.so, "none" for no plugin.
func Entries(setting string) []string {
	if setting == "" {
		return []string{""}
	}
	if strings.EqualFold(setting, "none") {
		return nil
	}
	return slices.DeleteFunc(strings.Split(setting, ","), func(e string) bool { return e == "" })
}
