//go:build nvml && cgo

package nvml

import (
	"fmt"
	"math/bits"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/assay-hpc/assay/coll/topology"
	"github.com/assay-hpc/assay/harness/sysfs"
)

// A Library is NVML, opened. Its methods may be called from several
// goroutines, until Close.
type Library struct{ api nvml.Interface }

// Open loads the library and starts it. The error wraps ErrUnavailable when
// there is no library, or no driver below it.
func Open() (*Library, error) {
	api := nvml.New()
	if ret := api.Init(); ret != nvml.SUCCESS {
		return nil, fmt.Errorf("%w: %v", ErrUnavailable, ret)
	}
	return &Library{api}, nil
}

// Close lets go of the library.
func (l *Library) Close() error { return check("shutting down", l.api.Shutdown()) }

func check(what string, ret nvml.Return) error {
	if ret == nvml.SUCCESS {
		return nil
	}
	return fmt.Errorf("NVML: %s: %v", what, ret)
}

// GPUs lists the GPUs that the driver has.
func (l *Library) GPUs() ([]topology.NVMLGPU, error) {
	n, ret := l.api.DeviceGetCount()
	if err := check("counting GPUs", ret); err != nil {
		return nil, err
	}
	var out []topology.NVMLGPU
	for i := range n {
		g, err := l.gpu(i)
		if err != nil {
			return nil, fmt.Errorf("GPU %d: %w", i, err)
		}
		out = append(out, g)
	}
	return out, nil
}

// gpu asks for one GPU. Its address must be known; what else the driver does
// not tell stays empty.
func (l *Library) gpu(index int) (g topology.NVMLGPU, err error) {
	d, ret := l.api.DeviceGetHandleByIndex(index)
	if err := check("opening it", ret); err != nil {
		return g, err
	}
	pci, ret := d.GetPciInfo()
	if err := check("its PCI address", ret); err != nil {
		return g, err
	}
	if g.BusID, err = busID(pci); err != nil {
		return g, err
	}
	if name, ret := d.GetName(); ret == nvml.SUCCESS {
		g.Name = name
	}
	if uuid, ret := d.GetUUID(); ret == nvml.SUCCESS {
		g.UUID = uuid
	}
	if major, minor, ret := d.GetCudaComputeCapability(); ret == nvml.SUCCESS {
		g.SM = major*10 + minor
	}
	if node, ret := d.GetNumaNodeId(); ret == nvml.SUCCESS && node >= 0 {
		g.MemoryNode = &node
	}
	if words, ret := d.GetCpuAffinityWithinScope(maxWords, nvml.AFFINITY_SCOPE_NODE); ret == nvml.SUCCESS {
		g.CPUAffinity = set(words)
	}
	if words, ret := d.GetMemoryAffinity(maxWords, nvml.AFFINITY_SCOPE_NODE); ret == nvml.SUCCESS {
		g.NUMAAffinity = set(words)
	}
	g.Links = links(d)
	return g, nil
}

// maxWords is the length of the masks that are asked for: 4,096 processors.
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

// busID reads the address in an answer: text that ends with a 0.
func busID(p nvml.PciInfo) (sysfs.BusID, error) {
	var text []byte
	for _, c := range p.BusId {
		if c == 0 {
			break
		}
		text = append(text, byte(c))
	}
	return sysfs.ParseBusID(string(text))
}

// links lists the NVLinks that are up.
func links(d nvml.Device) []topology.NVMLLink {
	var out []topology.NVMLLink
	for l := range nvml.NVLINK_MAX_LINKS {
		if state, ret := d.GetNvLinkState(l); ret != nvml.SUCCESS || state != nvml.FEATURE_ENABLED {
			continue
		}
		link := topology.NVMLLink{Remote: sysfs.OpaqueBusID, To: topology.ToSwitch}
		if pci, ret := d.GetNvLinkRemotePciInfo(l); ret == nvml.SUCCESS {
			if id, err := busID(pci); err == nil {
				link.Remote = id
			}
		}
		switch kind, ret := d.GetNvLinkRemoteDeviceType(l); {
		case ret != nvml.SUCCESS: // drivers before 450 do not say; GPUs have an address that is shown
		case kind == nvml.NVLINK_DEVICE_TYPE_GPU:
			link.To = topology.ToGPU
		case kind == nvml.NVLINK_DEVICE_TYPE_IBMNPU:
			link.To = topology.ToCPU
		}
		out = append(out, link)
	}
	return out
}
