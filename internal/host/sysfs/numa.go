package sysfs

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// A NUMANode is an entry of /sys/devices/system/node.
type NUMANode struct {
	ID   int
	CPUs CPUSet // cpulist; empty for a node with only memory, such as a GPU's
	// Distances is the ACPI distance to each node in the order of NUMANodes: 10 to itself, 20 for
	// twice as far. It is nil if not reported.
	Distances []int // distance
	Problems  []error
}

const nodeDir = "/sys/devices/system/node"

// NUMANodes lists the NUMA nodes by number. Kernels without NUMA have none: fs.ErrNotExist.
func (f FS) NUMANodes() ([]NUMANode, error) {
	names, err := f.names(nodeDir)
	if err != nil {
		return nil, err
	}
	var out []NUMANode
	for _, name := range names {
		id, ok := numbered(name, "node")
		if !ok {
			continue
		}
		a := &attrs{fs: f, dir: nodeDir + "/" + name}
		out = append(out, NUMANode{
			ID:        id,
			CPUs:      parsed(a, "cpulist", ParseCPUList),
			Distances: parsed(a, "distance", parseDistances),
			Problems:  a.problems,
		})
	}
	slices.SortFunc(out, func(a, b NUMANode) int { return a.ID - b.ID })
	return out, nil
}

// numbered reads the number in node0 or cpu12.
func numbered(name, prefix string) (int, bool) {
	rest, ok := strings.CutPrefix(name, prefix)
	n, err := strconv.ParseUint(rest, 10, 31)
	return int(n), ok && err == nil
}

// parseDistances parses a distance file: numbers separated by blanks.
func parseDistances(s string) ([]int, error) {
	var out []int
	for field := range strings.FieldsSeq(s) {
		v, err := strconv.ParseUint(field, 10, 16)
		if err != nil || len(out) == 4096 {
			return nil, fmt.Errorf("%.40q is not a list of distances", s)
		}
		out = append(out, int(v))
	}
	return out, nil
}
