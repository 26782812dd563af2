//go:build nvml && cgo

package nvml

import (
	"errors"
	"fmt"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/assay-hpc/assay/dcgm/health"
	"github.com/assay-hpc/assay/harness/sysfs"
)

// New returns NVML as a source. The library is loaded when Driver is called,
// and stays so until the program ends: a call that hangs may still be in it.
func New() health.Source { return &source{api: nvml.New()} }

// A source asks NVML, which may be called from several threads.
type source struct{ api nvml.Interface }

// failure makes an error of an answer; nil is success.
func failure(ret nvml.Return) error {
	switch ret {
	case nvml.SUCCESS:
		return nil
	case nvml.ERROR_NOT_SUPPORTED, nvml.ERROR_FUNCTION_NOT_FOUND, nvml.ERROR_VGPU_ECC_NOT_SUPPORTED, nvml.ERROR_ARGUMENT_VERSION_MISMATCH, nvml.ERROR_DEPRECATED:
		return health.ErrNotSupported
	case nvml.ERROR_NO_PERMISSION:
		return health.ErrNoPermission
	case nvml.ERROR_GPU_IS_LOST:
		return health.ErrLost
	case nvml.ERROR_RESET_REQUIRED:
		return health.ErrReset
	}
	return fmt.Errorf("NVML: %v", ret)
}

func fact[T any](v T, ret nvml.Return) health.Fact[T] {
	if err := failure(ret); err != nil {
		return health.Unknown[T](err)
	}
	return health.Known(v)
}

// Driver loads the library and starts it.
func (s *source) Driver() (d health.Driver, err error) {
	switch ret := s.api.Init(); ret {
	case nvml.SUCCESS:
	case nvml.ERROR_LIBRARY_NOT_FOUND, nvml.ERROR_DRIVER_NOT_LOADED:
		return d, fmt.Errorf("%w: %v", health.ErrNoLibrary, ret)
	default:
		return d, fmt.Errorf("NVML does not start: %w", failure(ret))
	}
	var ret nvml.Return
	if d.GPUs, ret = s.api.DeviceGetCount(); ret != nvml.SUCCESS {
		return d, fmt.Errorf("counting GPUs: %w", failure(ret))
	}
	if d.Version, ret = s.api.SystemGetDriverVersion(); ret != nvml.SUCCESS {
		return d, fmt.Errorf("the driver's version: %w", failure(ret))
	}
	if d.CUDA, ret = s.api.SystemGetCudaDriverVersion_v2(); ret != nvml.SUCCESS {
		return d, fmt.Errorf("the driver's CUDA version: %w", failure(ret))
	}
	if v, ret := s.api.SystemGetNVMLVersion(); ret == nvml.SUCCESS {
		d.Library = v
	}
	return d, nil
}

// has reports whether the library has a function. Older drivers lack some, and
// a call of one would end the program.
func (s *source) has(symbol string) bool { return s.api.Extensions().LookupSymbol(symbol) == nil }

// ask calls a function that the library may lack.
func ask[T any](s *source, symbol string, call func() (T, nvml.Return)) (T, nvml.Return) {
	if !s.has(symbol) {
		var none T
		return none, nvml.ERROR_FUNCTION_NOT_FOUND
	}
	return call()
}

// GPU asks one GPU for everything. What fails is in its fact; only a GPU that
// cannot be opened, or has gone, is an error as a whole.
func (s *source) GPU(index int, asking func(string)) (g health.GPU, err error) {
	asking("its handle")
	d, ret := s.api.DeviceGetHandleByIndex(index)
	if ret != nvml.SUCCESS {
		return g, failure(ret)
	}
	g.Index = index
	pci, ret := d.GetPciInfo()
	if ret != nvml.SUCCESS {
		return g, fmt.Errorf("its PCI address: %w", failure(ret))
	}
	if g.Bus, err = busID(pci); err != nil {
		return g, err
	}
	g.ID = fmt.Sprintf("%04x", pci.PciDeviceId>>16)
	if g.UUID, ret = d.GetUUID(); ret == nvml.ERROR_GPU_IS_LOST || ret == nvml.ERROR_RESET_REQUIRED {
		return g, failure(ret)
	}
	a := &asker{source: s, d: d, g: &g}
	for _, part := range []struct {
		what string
		ask  func()
	}{
		{"its identity", a.identity}, {"ECC errors", a.errors}, {"remapped rows and retired pages", a.memory}, {"its InfoROM", a.inforom},
		{"NVLinks", a.links}, {"its fabric", a.fabric}, {"peers", a.peers}, {"its PCIe link", a.pcie}, {"clocks", a.clocks}, {"temperatures", a.heat},
		{"power", a.power}, {"its modes", a.modes}, {"processes", a.processes},
	} {
		asking(part.what)
		part.ask()
	}
	// A GPU that is lost half way answers so to everything.
	if errors.Is(g.Heat.Err, health.ErrLost) || errors.Is(g.Heat.Err, health.ErrReset) {
		return g, g.Heat.Err
	}
	return g, nil
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
