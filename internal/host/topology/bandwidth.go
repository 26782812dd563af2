package topology

import "github.com/assay-hpc/assay/internal/host/sysfs"

// The figures with which NCCL (2.28) compares paths, in GB/s. They are below the nominal
// figures, and closer to what a transfer reaches.
const (
	localGBps   = 5000
	netGBps     = 12 // a network whose speed is not known
	nvlinkGBps  = 20 // an NVLink of a GPU that is not in nvlinkBySM
	pcieDefault = 8  // GT/s where the speed is not known
	pcieLanes   = 16 // where the width is not known
)

// nvlinkBySM lists the bandwidth of an NVLink from each compute capability on.
var nvlinkBySM = []struct {
	sm   int
	gbps float64
}{{100, 40.1}, {90, 20.6}, {87, 12}, {86, 12}, {70, 20}, {60, 18}}

// nvlinkBandwidth returns the bandwidth in GB/s of one NVLink of a GPU with the given compute
// capability (times ten; 0: not known).
func nvlinkBandwidth(sm int) float64 {
	if sm == 80 {
		return 20
	}
	for _, f := range nvlinkBySM {
		if sm >= f.sm {
			return f.gbps
		}
	}
	return nvlinkGBps
}

// pcieBandwidth returns the bandwidth of a PCI link: 0.75 of the signaling rate of its lanes,
// so that 8 GT/s and 16 lanes give 12 GB/s. An unknown speed counts as 8 GT/s, an unknown
// width as 16 lanes.
func pcieBandwidth(l sysfs.PCILink) float64 {
	if l.GTs == 0 {
		l.GTs = pcieDefault
	}
	if l.Width == 0 {
		l.Width = pcieLanes
	}
	return l.GTs * float64(l.Width) / 8 * 0.75
}

// socketGBps returns the bandwidth between a machine's sockets.
func socketGBps(c NUMA) float64 {
	switch {
	case c.Arch == "arm64":
		return 6
	case c.Arch == "ppc64":
		return 32
	case c.Vendor == "AuthenticAMD":
		return 16
	case c.Vendor != "GenuineIntel" || c.Family != 6:
		return 12
	case c.Model >= 207 || c.Model >= 173 && c.Model <= 175: // Emerald Rapids; Granite Rapids, Sierra Forest
		return 40
	case c.Model >= 143: // Sapphire Rapids
		return 22
	case c.Model >= 85: // Skylake
		return 10
	}
	return 6 // Broadwell
}

// GBps returns the NIC's speed; an unknown speed counts as 12.
func (n NIC) GBps() float64 {
	if n.Mbit <= 0 {
		return netGBps
	}
	return float64(n.Mbit) / 8000
}
