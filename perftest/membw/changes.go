package membw

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/assay-hpc/assay/internal/host/nvml"
	"github.com/assay-hpc/assay/internal/host/sysfs"
	"github.com/assay-hpc/assay/internal/result"
)

// A linkChange is the change of a GPU's links during a family.
type linkChange struct {
	family     string
	gpu        int
	after      nvml.Links
	difference map[string]uint64 // of the counters that increased
}

// changes returns the changes of the links of those GPUs that the driver reported both times.
func changes(family string, gpus []Subject, before, after map[sysfs.BusID]nvml.Links) (out []linkChange) {
	for _, g := range gpus {
		b, ok1 := before[g.Bus]
		a, ok2 := after[g.Bus]
		if !ok1 || !ok2 {
			continue
		}
		c := linkChange{family, g.Index, a, map[string]uint64{}}
		for name, v := range a.Errors {
			if old, ok := b.Errors[name]; ok && v > old {
				c.difference[name] = v - old
			}
		}
		out = append(out, c)
	}
	return out
}

// linkResult reports the links that are slower than they could be and the error counters that
// increased.
func (j *job) linkResult() result.Result {
	var objects []result.Object
	warn := func(g *Subject, quantity, format string, a ...any) {
		objects = append(objects, result.Object{Name: gpuName(g.Index), ID: g.UUID, Bus: g.Bus.String(), Quantity: quantity, Verdict: result.Warn, Reason: fmt.Sprintf(format, a...)})
	}
	known, moved := 0, map[string]uint64{}
	for _, c := range j.changes {
		known += len(c.after.Errors)
		for name, n := range c.difference {
			moved[name] += n
		}
	}
	for i := range j.report.GPUs {
		g := &j.report.GPUs[i]
		if l := g.Links; l != nil && l.NVLinks < g.Peaks.NVLinks {
			warn(g, "NVLinks", "%d of %d NVLinks are up", l.NVLinks, g.Peaks.NVLinks)
		}
		j.movedOf(g, func(name, text string) { warn(g, name, "%s", text) })
		for _, c := range j.changes {
			// PCIe links slow down when idle; after copies to the host they should run at full
			// speed.
			if l := c.after; c.gpu == g.Index && c.family == "device_to_host" && (l.PCIeGen < l.MaxGen || l.PCIeWidth < l.MaxWidth) {
				warn(g, "PCIe link", "its PCIe link is gen %d x%d, and could be gen %d x%d", l.PCIeGen, l.PCIeWidth, l.MaxGen, l.MaxWidth)
			}
		}
	}
	if j.unconnected != nil {
		objects = append(objects, result.Object{Name: "all GPUs", Quantity: "peer access", Verdict: result.Fail, Reason: j.unconnected.Error()})
	}
	res := result.Sum(objects)
	switch {
	case len(objects) > 0:
		res.Remedy = Remedy
	case known == 0:
		res = result.Skipped("the error counters of NVLink and PCIe are not known")
	case len(moved) == 0:
		res = result.Passed("no error counter of NVLink and PCIe moved")
	default:
		var all []string
		for _, name := range sortedKeys(moved) {
			all = append(all, fmt.Sprintf("%s by %d", name, moved[name]))
		}
		res = result.Passed("error counters of NVLink and PCIe, all GPUs together, went up as they do on healthy links: %s", strings.Join(all, ", "))
	}
	res.ID, res.Title = linksID, "links are as wide and fast as they can be, and have no errors"
	return res
}

// linksID is the ID of linkResult's result.
const linksID = "links"

// usualCRC is the rate of CRC errors, per second and over all links of a GPU, below which there is
// no cause for concern: the link retransmits the damaged data. DCGM warns from this rate on;
// healthy H200s showed up to 30 under load.
const usualCRC = 100

// movedOf reports the error counters of a GPU that increased, over all families.
func (j *job) movedOf(g *Subject, tell func(name, text string)) {
	up, during, of := map[string]uint64{}, map[string]int{}, 0
	for _, c := range j.changes {
		if c.gpu != g.Index {
			continue
		}
		of++
		for name, v := range c.difference {
			up[name] += v
			during[name]++
		}
	}
	for _, name := range sortedKeys(up) {
		if strings.Contains(name, "crc") && float64(up[name]) < usualCRC*j.seconds {
			continue
		}
		tell(name, fmt.Sprintf("counter %s went up by %d, during %d of %d kinds of copies", name, up[name], during[name], of))
	}
}

func sortedKeys[K cmp.Ordered, V any](m map[K]V) []K { return slices.Sorted(maps.Keys(m)) }
