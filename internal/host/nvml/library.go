//go:build nvml && cgo

package nvml

import (
	"errors"
	"fmt"
	"sync"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/assay-hpc/assay/internal/host/sysfs"
)

// A Library is NVML. It may be called from several goroutines.
type Library struct {
	api   nvml.Interface
	start func() error // once
}

// New returns NVML. The first call of a method loads and starts it; like any other call, that one
// may never return.
func New() *Library { return over(nvml.New()) }

func over(api nvml.Interface) *Library {
	return &Library{api, sync.OnceValue(func() error {
		switch ret := api.Init(); ret {
		case nvml.SUCCESS:
			return nil
		case nvml.ERROR_LIBRARY_NOT_FOUND:
			return fmt.Errorf("%w: libnvidia-ml.so.1 cannot be loaded", ErrNoLibrary)
		case nvml.ERROR_DRIVER_NOT_LOADED:
			return fmt.Errorf("%w: libnvidia-ml.so.1 is there, the kernel's driver is not loaded", ErrNoLibrary)
		default:
			return fmt.Errorf("nvmlInit: %w", failure(ret))
		}
	})}
}

// Open loads the library and starts it. The error wraps ErrNoLibrary if the library or the driver
// is missing.
func Open() (*Library, error) {
	l := New()
	return l, l.start()
}

// Close releases the library.
func (l *Library) Close() error {
	if l.start() != nil {
		return nil
	}
	return failure(l.api.Shutdown())
}

// failure converts a return code to an error; nil is success.
func failure(ret nvml.Return) error {
	switch ret {
	case nvml.SUCCESS:
		return nil
	case nvml.ERROR_NOT_SUPPORTED, nvml.ERROR_FUNCTION_NOT_FOUND, nvml.ERROR_VGPU_ECC_NOT_SUPPORTED, nvml.ERROR_ARGUMENT_VERSION_MISMATCH, nvml.ERROR_DEPRECATED:
		return ErrNotSupported
	case nvml.ERROR_NO_PERMISSION:
		return ErrNoPermission
	case nvml.ERROR_GPU_IS_LOST:
		return ErrLost
	case nvml.ERROR_RESET_REQUIRED:
		return ErrReset
	}
	return fmt.Errorf("NVML: %v", ret)
}

func fact[T any](v T, ret nvml.Return) sysfs.Fact[T] {
	if err := failure(ret); err != nil {
		return sysfs.Unknown[T](err)
	}
	return sysfs.Known(v)
}

// Driver describes the driver.
func (l *Library) Driver() (d Driver, err error) {
	if err := l.start(); err != nil {
		return d, err
	}
	var ret nvml.Return
	if d.GPUs, ret = l.api.DeviceGetCount(); ret != nvml.SUCCESS {
		return d, fmt.Errorf("counting GPUs: %w", failure(ret))
	}
	if d.Version, ret = l.api.SystemGetDriverVersion(); ret != nvml.SUCCESS {
		return d, fmt.Errorf("the driver's version: %w", failure(ret))
	}
	if d.CUDA, ret = l.api.SystemGetCudaDriverVersion_v2(); ret != nvml.SUCCESS {
		return d, fmt.Errorf("the driver's CUDA version: %w", failure(ret))
	}
	if v, ret := l.api.SystemGetNVMLVersion(); ret == nvml.SUCCESS {
		d.Library = v
	}
	return d, nil
}

// has reports whether the library has a function. Older drivers lack some, and calling one of
// these would end the program.
func (l *Library) has(symbol string) bool { return l.api.Extensions().LookupSymbol(symbol) == nil }

// ask calls a function that may be missing in the library.
func ask[T any](l *Library, symbol string, call func() (T, nvml.Return)) (T, nvml.Return) {
	if !l.has(symbol) {
		var none T
		return none, nvml.ERROR_FUNCTION_NOT_FOUND
	}
	return call()
}

// GPU queries everything about one GPU, numbered from 0. It announces each query through asking:
// if a call never returns, the last announcement says which. A query that fails is recorded in
// its fact. Only a GPU that cannot be opened, or is lost, is an error as a whole.
func (l *Library) GPU(index int, asking func(string)) (g GPU, err error) {
	if err := l.start(); err != nil {
		return g, err
	}
	asking("its handle")
	d, ret := l.api.DeviceGetHandleByIndex(index)
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
	a := &asker{Library: l, d: d, g: &g}
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
	// A GPU that is lost during the queries answers all further ones with that.
	if errors.Is(g.Heat.Err, ErrLost) || errors.Is(g.Heat.Err, ErrReset) {
		return g, g.Heat.Err
	}
	return g, nil
}

// busID reads the NUL-terminated address in an answer.
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
