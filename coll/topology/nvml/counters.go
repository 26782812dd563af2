package nvml

import "github.com/assay-hpc/assay/harness/sysfs"

// A LinkState is what NVML says of a GPU's links at one time. What the driver
// does not tell is 0, or not in Errors.
type LinkState struct {
	BusID              sysfs.BusID
	PCIDevice          string              // the device number, four hex digits
	PCIeGen, PCIeWidth int                 // now: links rest when there is nothing to do
	MaxGen, MaxWidth   int                 // that GPU and slot can have
	NVLinks            int                 // that are up
	Peers              map[sysfs.BusID]int // NVLinks to a GPU without a switch between
	Errors             map[string]uint64   // counters since the driver was loaded, by name; of all NVLinks together
}
