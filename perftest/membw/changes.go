package membw

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/assay-hpc/assay/harness/nvml"
	"github.com/assay-hpc/assay/harness/result"
	"github.com/assay-hpc/assay/harness/sysfs"
)

// changes are what became of the GPUs' links, of those that the driver told of
// both times.
func changes(gpus []Subject, before, after map[sysfs.BusID]nvml.Links) (out []linkChange) {
	for _, g := range gpus {
		b, ok1 := before[g.Bus]
		a, ok2 := after[g.Bus]
		if !ok1 || !ok2 {
			continue
		}
		c := linkChange{GPU: g.Index, Before: b, After: a, Difference: map[string]uint64{}}
		for name, v := range a.Errors {
			if old, ok := b.Errors[name]; ok && v > old {
				c.Difference[name] = v - old
			}
		}
		out = append(out, c)
	}
	return out
}

// linkFindings names links that are slower than they could be. PCIe links rest
// between transfers: it looks at what they were after copies to and from the host.
func (r *Report) linkFindings() (out []Finding) {
	for _, g := range r.GPUs {
		if l := g.Links; l != nil && l.NVLinks < g.Peaks.NVLinks {
			out = append(out, Finding{"", []int{g.Index}, result.Warn, fmt.Sprintf("GPU %d: %d of %d NVLinks are up", g.Index, l.NVLinks, g.Peaks.NVLinks)})
		}
	}
	out = append(out, r.counterFindings()...)
	for _, f := range r.Families {
		if f.Name != "device_to_host" {
			continue
		}
		for _, c := range f.Changes {
			if l := c.After; l.PCIeGen < l.MaxGen || l.PCIeWidth < l.MaxWidth {
				out = append(out, Finding{f.Name, []int{c.GPU}, result.Warn, fmt.Sprintf("GPU %d: its PCIe link is gen %d x%d, and could be gen %d x%d", c.GPU, l.PCIeGen, l.PCIeWidth, l.MaxGen, l.MaxWidth)})
			}
		}
	}
	return out
}

// usualCRC is the number of CRC errors a second of all of a GPU's links that are
// no cause for concern: the link repeats what they hit. DCGM warns from as many
// on; healthy H200s were seen with up to 30 under load.
const usualCRC = 100

// counterFindings are the counters of errors that moved, all families together.
func (r *Report) counterFindings() (out []Finding) {
	var seconds float64
	for _, f := range r.Families {
		seconds += f.Seconds
	}
	for _, g := range r.GPUs {
		up, during := map[string]uint64{}, map[string]int{}
		for _, f := range r.Families {
			for _, c := range f.Changes {
				for name, v := range c.Difference {
					if c.GPU == g.Index {
						up[name] += v
						during[name]++
					}
				}
			}
		}
		for _, name := range sortedKeys(up) {
			if strings.Contains(name, "crc") && float64(up[name]) < usualCRC*seconds {
				continue
			}
			out = append(out, Finding{"", []int{g.Index}, result.Warn, fmt.Sprintf("GPU %d: counter %s went up by %d, during %d of %d kinds of copies", g.Index, name, up[name], during[name], len(r.Families))})
		}
	}
	return out
}

func sortedKeys[K cmp.Ordered, V any](m map[K]V) []K { return slices.Sorted(maps.Keys(m)) }
