package diag

import (
	"github.com/assay-hpc/assay/internal/host/sysfs"
	"github.com/assay-hpc/assay/internal/result"
)

// A counter is an error counter of links.
type counter struct {
	name    string // as in Links and aer
	title   string
	allowed string // the parameter with the number allowed during a test; "": none
	free    bool   // any number is allowed
	remedy  string
}

const (
	reseat = "reseat the GPU, look at its riser and retimer"
	relink = "look at the NVLinks' states and error counters (nvidia-smi nvlink -s, -e); reset the GPU; if they return, look at its board and the NVSwitches"
)

var pcieCounters = []counter{
	{name: "pcie_replay", title: "PCIe replays", allowed: "max_pcie_replays", remedy: reseat},
	{name: "aer_correctable", title: "PCIe errors, corrected", allowed: "aer_threshold", remedy: reseat},
	{name: "aer_nonfatal", title: "PCIe errors, not fatal", remedy: reseat},
	{name: "aer_fatal", title: "PCIe errors, fatal", remedy: reseat},
}

// NVLinks replay in normal operation, so the number of replays is only shown.
var nvlinkCounters = []counter{
	{name: "nvlink_crc_flit", title: "NVLink CRC errors, flits", allowed: "max_nvlink_crc", remedy: relink},
	{name: "nvlink_crc_data", title: "NVLink CRC errors, data", allowed: "max_nvlink_crc", remedy: relink},
	{name: "nvlink_recovery", title: "NVLink recoveries", remedy: relink},
	{name: "nvlink_replay", title: "NVLink replays", free: true},
}

// tally reads the error counters of each GPU's links, by its index.
func (j *job) tally() map[int]map[string]uint64 {
	links, err := j.env.Links()
	if err != nil && !j.uncounted {
		j.uncounted = true
		j.findf(noGPU, result.Skip, "", "the driver's counters of link errors were not read: %v", err)
	}
	aer := j.aer()
	out := map[int]map[string]uint64{}
	for _, g := range j.gpus {
		out[g.Index] = map[string]uint64{}
		for _, from := range []map[string]uint64{links[g.Bus].Errors, aer[g.Bus]} {
			for name, n := range from {
				out[g.Index][name] = n
			}
		}
	}
	return out
}

// aer reads the Advanced Error Reporting counters of each GPU and of the port above it, which sees
// the errors of what the GPU sends. There are none if the firmware handles the errors itself, and
// in most virtual machines.
func (j *job) aer() map[sysfs.BusID]map[string]uint64 {
	f, err := sysfs.Open(j.env.Root)
	if err != nil {
		return nil
	}
	devices, err := f.PCI()
	if err != nil {
		return nil
	}
	out := map[sysfs.BusID]map[string]uint64{}
	for _, d := range devices {
		if !d.IsGPU() {
			continue
		}
		ends := []sysfs.BusID{d.BusID}
		if n := len(d.Bridges); n > 0 {
			ends = append(ends, d.Bridges[n-1])
		}
		for _, end := range ends {
			a, err := f.AER(end)
			if err != nil {
				continue
			}
			if out[d.BusID] == nil {
				out[d.BusID] = map[string]uint64{}
			}
			sum := out[d.BusID]
			sum["aer_correctable"] += a.Correctable
			sum["aer_nonfatal"] += a.NonFatal
			sum["aer_fatal"] += a.Fatal
		}
	}
	return out
}

// counted compares the counters with their values before the test.
func (j *job) counted(before map[int]map[string]uint64, counters []counter) {
	after := j.tally()
	for _, g := range j.gpus {
		for _, c := range counters {
			was, ok := before[g.Index][c.name]
			is, still := after[g.Index][c.name]
			if !ok || !still || is < was { // a GPU that was reset has new counters
				continue
			}
			n := float64(is - was)
			j.measure(g.figure(c.title, n, "during the test"), "")
			if most := j.params[c.allowed]; !c.free && n > most {
				j.findf(g.Index, result.Fail, c.remedy, "%s: %.0f during the test; %.0f are allowed", c.title, n, most)
			}
		}
	}
}
