package verbs

import (
	"strconv"
	"strings"
)

// admits reports whether NCCL_IB_HCA's value allows a port: see Selection.HCA.
func admits(spec, device string, port int) bool {
	if spec == "" {
		return true
	}
	spec, except := strings.CutPrefix(spec, "^")
	spec, whole := strings.CutPrefix(spec, "=")
	for item := range strings.SplitSeq(spec, ",") {
		name, number, numbered := strings.Cut(item, ":")
		if numbered && number != strconv.Itoa(port) {
			continue
		}
		if device == name || !whole && strings.HasPrefix(device, name) {
			return !except
		}
	}
	return except
}
