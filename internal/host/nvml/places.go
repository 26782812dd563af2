//go:build nvml && cgo

package nvml

import (
	"fmt"
	"math/bits"
	"slices"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/assay-hpc/assay/internal/host/sysfs"
)

// Places lists the GPUs in the driver's order, with their locations. The address is always set;
// other fields stay empty if the driver does not report them.
func (l *Library) Places() ([]Place, error) {
	var out []Place
	err := l.each(func(d nvml.Device, pci nvml.PciInfo, id sysfs.BusID) {
		out = append(out, l.place(d, id))
	})
	return out, err
}

// each visits all GPUs.
func (l *Library) each(visit func(nvml.Device, nvml.PciInfo, sysfs.BusID)) error {
	if err := l.start(); err != nil {
		return err
	}
	n, ret := l.api.DeviceGetCount()
	if ret != nvml.SUCCESS {
		return fmt.Errorf("counting GPUs: %w", failure(ret))
	}
	for i := range n {
		d, ret := l.api.DeviceGetHandleByIndex(i)
		if ret != nvml.SUCCESS {
			return fmt.Errorf("opening GPU %d: %w", i, failure(ret))
		}
		pci, ret := d.GetPciInfo()
		if ret != nvml.SUCCESS {
			return fmt.Errorf("the PCI address of GPU %d: %w", i, failure(ret))
		}
		id, err := busID(pci)
		if err != nil {
			return fmt.Errorf("GPU %d: %w", i, err)
		}
		visit(d, pci, id)
	}
	return nil
}

func (l *Library) place(d nvml.Device, id sysfs.BusID) Place {
	p := Place{BusID: id}
	if name, ret := d.GetName(); ret == nvml.SUCCESS {
		p.Name = name
	}
	if uuid, ret := d.GetUUID(); ret == nvml.SUCCESS {
		p.UUID = uuid
	}
	if major, minor, ret := d.GetCudaComputeCapability(); ret == nvml.SUCCESS {
		p.SM = major*10 + minor
	}
	if node, ret := ask(l, "nvmlDeviceGetNumaNodeId", d.GetNumaNodeId); ret == nvml.SUCCESS && node >= 0 {
		p.MemoryNode = &node
	}
	if words, ret := d.GetCpuAffinityWithinScope(maxWords, nvml.AFFINITY_SCOPE_NODE); ret == nvml.SUCCESS {
		p.CPUAffinity = set(words)
	}
	if words, ret := d.GetMemoryAffinity(maxWords, nvml.AFFINITY_SCOPE_NODE); ret == nvml.SUCCESS {
		p.NUMAAffinity = set(words)
	}
	p.Links = l.up(d)
	return p
}

// up lists the NVLinks that are up; those that do not answer are left out.
func (l *Library) up(d nvml.Device) []Link {
	links, _ := l.linksOf(d)
	return slices.DeleteFunc(links, func(l Link) bool { return !l.Up })
}

// maxWords is the length of the requested masks: 4,096 processors.
const maxWords = 64

func set(words []uint) sysfs.CPUSet {
	var s sysfs.CPUSet
	for i, w := range words {
		for ; w != 0; w &= w - 1 {
			s.Add(i*bits.UintSize + bits.TrailingZeros(w))
		}
	}
	return s
}

// Links queries the links of all GPUs, by address.
func (l *Library) Links() (map[sysfs.BusID]Links, error) {
	out := map[sysfs.BusID]Links{}
	err := l.each(func(d nvml.Device, pci nvml.PciInfo, id sysfs.BusID) {
		s := Links{PCIDevice: fmt.Sprintf("%04x", pci.PciDeviceId>>16), Peers: map[sysfs.BusID]int{}}
		for _, q := range []struct {
			to  *int
			ask func() (int, nvml.Return)
		}{
			{&s.PCIeGen, d.GetCurrPcieLinkGeneration}, {&s.PCIeWidth, d.GetCurrPcieLinkWidth},
			{&s.MaxGen, d.GetMaxPcieLinkGeneration}, {&s.MaxWidth, d.GetMaxPcieLinkWidth},
		} {
			if v, ret := q.ask(); ret == nvml.SUCCESS {
				*q.to = v
			}
		}
		for _, link := range l.up(d) {
			s.NVLinks++
			if link.To == "GPU" {
				s.Peers[link.Remote]++
			}
		}
		s.Errors, _ = count(d, counters[:nvlinkCounters])
		out[id] = s
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

// Read reads the sensors of the GPU at an address.
func (l *Library) Read(bus sysfs.BusID) (r Reading, err error) {
	if err := l.start(); err != nil {
		return r, err
	}
	d, ret := l.api.DeviceGetHandleByPciBusId(bus.String())
	if ret != nvml.SUCCESS {
		return r, fmt.Errorf("GPU %s: %w", bus, failure(ret))
	}
	if v, ret := d.GetTemperature(nvml.TEMPERATURE_GPU); ret == nvml.SUCCESS {
		r.Celsius = int(v)
	} else if ret == nvml.ERROR_GPU_IS_LOST {
		return r, fmt.Errorf("GPU %s: %w", bus, failure(ret))
	}
	if v, ret := d.GetPowerUsage(); ret == nvml.SUCCESS {
		r.Watts = float64(v) / 1e3
	}
	if v, ret := d.GetEnforcedPowerLimit(); ret == nvml.SUCCESS {
		r.LimitWatts = float64(v) / 1e3
	}
	if v, ret := d.GetClockInfo(nvml.CLOCK_SM); ret == nvml.SUCCESS {
		r.MHz = int(v)
	}
	if v, ret := l.reasons(d); ret == nvml.SUCCESS {
		r.Reasons = Reasons(v)
	}
	if v, ret := d.GetPersistenceMode(); ret == nvml.SUCCESS {
		on := v == nvml.FEATURE_ENABLED
		r.Persistence = &on
	}
	return r, nil
}

// reasons returns the reasons for a GPU's current clocks.
func (l *Library) reasons(d nvml.Device) (uint64, nvml.Return) {
	v, ret := ask(l, "nvmlDeviceGetCurrentClocksEventReasons", d.GetCurrentClocksEventReasons)
	if ret == nvml.ERROR_FUNCTION_NOT_FOUND { // drivers before 535 have an older name for it
		return ask(l, "nvmlDeviceGetCurrentClocksThrottleReasons", d.GetCurrentClocksThrottleReasons)
	}
	return v, ret
}
