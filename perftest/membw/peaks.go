package membw

import (
	"cmp"

	"github.com/assay-hpc/assay/internal/host/nvml"
	"github.com/assay-hpc/assay/internal/host/sysfs"
	"github.com/assay-hpc/assay/internal/platform"
)

// subject determines what a GPU should reach: from its model in the database or, if the model is
// not there, from its PCIe slot as the driver describes it.
func subject(g GPU, links map[sysfs.BusID]nvml.Links, db *platform.DB) Subject {
	s := Subject{GPU: g}
	if l, ok := links[g.Bus]; ok {
		s.Links = &l
		s.PCIDevice = cmp.Or(s.PCIDevice, l.PCIDevice)
	}
	if db == nil {
		return s
	}
	if key, model := db.IdentifyGPU(s.PCIDevice, g.Name); model != nil {
		s.Model, s.Peaks = key, peaks(model)
	}
	if s.Peaks.PCIe == 0 && s.Links != nil {
		s.Peaks.PCIe = db.Interconnects.PCIe.X16UniGBps[s.Links.MaxGen].Value * float64(s.Links.MaxWidth) / 16
	}
	return s
}

func peaks(g *platform.GPU) peakRates {
	p := peakRates{Memory: g.MemoryGBps.Value}
	if g.PCIe != nil {
		p.PCIe = g.PCIe.UniGBps.Value
	}
	if g.NVLink != nil {
		p.NVLink, p.NVLinks = g.NVLink.UniGBps.Value, int(g.NVLink.Links.Value)
	}
	return p
}

// between is the peak of a pair, one direction.
func between(a, b Subject) float64 {
	nvlink := min(a.Peaks.NVLink, b.Peaks.NVLink)
	if nvlink == 0 || a.Links != nil && a.Links.NVLinks == 0 {
		return min(a.Peaks.PCIe, b.Peaks.PCIe)
	}
	if a.Links == nil || len(a.Links.Peers) == 0 {
		return nvlink // through switches: any pair can use all links
	}
	direct := a.Links.Peers[b.Bus]
	switch {
	case direct == 0:
		return min(a.Peaks.PCIe, b.Peaks.PCIe)
	case a.Peaks.NVLinks == 0:
		return nvlink // a bridge has all links
	}
	return nvlink * float64(direct) / float64(a.Peaks.NVLinks)
}

// overPCIe reports whether the pair's peak is that of PCIe, because it has no NVLinks.
func overPCIe(a, b Subject) bool {
	peak := between(a, b)
	return peak > 0 && peak == min(a.Peaks.PCIe, b.Peaks.PCIe)
}
