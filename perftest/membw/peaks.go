package membw

import (
	"maps"
	"slices"
	"strings"

	"github.com/assay-hpc/assay/harness/platform"
	"github.com/assay-hpc/assay/harness/sysfs"
)

// subject finds out what a GPU should reach: of its model in the data base; of
// its PCIe slot as the driver describes it, if the model is not there.
func subject(g GPU, links map[sysfs.BusID]Links, db *platform.DB) Subject {
	s := Subject{GPU: g}
	if l, ok := links[g.Bus]; ok {
		s.Links = &l
		if s.PCIDevice == "" {
			s.PCIDevice = l.PCIDevice
		}
	}
	if db == nil {
		return s
	}
	key, model := db.GPUByPCI(s.PCIDevice)
	if model == nil {
		key, model = byName(db, g.Name)
	}
	if model != nil {
		s.Model, s.Peaks = key, peaks(model)
	}
	if s.Peaks.PCIe == 0 && s.Links != nil {
		s.Peaks.PCIe = db.Interconnects.PCIe.X16UniGBps[s.Links.MaxGen].Value * float64(s.Links.MaxWidth) / 16
	}
	return s
}

func peaks(g *platform.GPU) Peaks {
	p := Peaks{Memory: g.MemoryGBps.Value}
	if g.PCIe != nil {
		p.PCIe = g.PCIe.UniGBps.Value
	}
	if g.NVLink != nil {
		p.NVLink, p.NVLinks = g.NVLink.UniGBps.Value, int(g.NVLink.Links.Value)
	}
	return p
}

// byName finds the model whose name has the most words of the driver's name for
// a GPU, such as "NVIDIA H200 NVL" or "NVIDIA A100-SXM4-80GB". The first word
// must be there, and the form (PCIe, NVL) be the same. Two that fit equally well
// are none.
func byName(db *platform.DB, name string) (key string, best *platform.GPU) {
	have := words(name)
	most, twice := 0, false
	for _, k := range slices.Sorted(maps.Keys(db.GPUs)) {
		want := words(db.GPUs[k].Name)
		if len(want) == 0 || !slices.Contains(have, want[0]) || form(have) != form(want) {
			continue
		}
		n := 0
		for _, w := range want {
			if slices.Contains(have, w) {
				n++
			}
		}
		if n > most {
			most, key, best, twice = n, k, db.GPUs[k], false
		} else if n == most {
			twice = true
		}
	}
	if twice {
		return "", nil
	}
	return key, best
}

// words of a name, as far as they tell models apart. SXM4 is SXM.
func words(name string) []string {
	var out []string
	for _, w := range strings.FieldsFunc(strings.ToLower(name), func(r rune) bool { return r == ' ' || r == '-' }) {
		switch {
		case w == "nvidia" || w == "tesla" || w == "geforce":
		case strings.HasPrefix(w, "sxm"):
			out = append(out, "sxm")
		default:
			out = append(out, w)
		}
	}
	return out
}

// form is how a model is built, if its name says so in a way that matters.
func form(words []string) string {
	for _, w := range words {
		if w == "pcie" || w == "nvl" {
			return w
		}
	}
	return ""
}

// between is the peak of a pair, one direction.
func between(a, b Subject) float64 {
	nvlink := min(a.Peaks.NVLink, b.Peaks.NVLink)
	if nvlink == 0 || a.Links != nil && a.Links.NVLinks == 0 {
		return min(a.Peaks.PCIe, b.Peaks.PCIe)
	}
	if a.Links == nil || len(a.Links.Peers) == 0 || a.Peaks.NVLinks == 0 {
		return nvlink // through switches: any pair has all links
	}
	direct := a.Links.Peers[b.Bus]
	if direct == 0 {
		return min(a.Peaks.PCIe, b.Peaks.PCIe)
	}
	return nvlink * float64(direct) / float64(a.Peaks.NVLinks)
}

// overPCIe says whether that is so for want of NVLinks.
func overPCIe(a, b Subject) bool {
	peak := between(a, b)
	return peak > 0 && peak == min(a.Peaks.PCIe, b.Peaks.PCIe)
}
