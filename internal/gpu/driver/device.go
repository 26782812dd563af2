//go:build cuda && cgo

package driver

import (
	"fmt"

	"gorgonia.org/cu"
)

// DeviceInfo describes a GPU. Devices are numbered as CUDA does in this process,
// which CUDA_VISIBLE_DEVICES and CUDA_DEVICE_ORDER may change.
type DeviceInfo struct {
	Ordinal                    int
	Name                       string
	UUID                       string // "GPU-…", as nvidia-smi prints it
	PCI                        PCI
	ComputeMajor, ComputeMinor int
	SMs                        int
	Memory                     int64 // bytes
	AsyncEngines               int   // copy engines that can work at the same time
	MemSyncDomains             int   // see Launch.SetRemoteDomain
	CanStreamMemOps            bool  // Stream.WaitValue32 and WriteValue32
	CanIPC                     bool  // memory and events can be shared with other processes
	CanCooperate               bool  // Launch.SetCooperative
	CanDMABuf                  bool  // DMABuf
	CanVirtual                 bool  // NewVirtual
	CanShareVirtual            bool  // its memory can be shared with other processes, by file descriptors
	CanRDMAVirtual             bool  // NICs can access its memory
}

// A PCI is a device's address on the PCI bus.
type PCI struct{ Domain, Bus, Device int }

// String is the address as Linux writes it, "0000:1b:00.0".
func (p PCI) String() string { return fmt.Sprintf("%04x:%02x:%02x.0", p.Domain, p.Bus, p.Device) }

// Attributes that CUDA 11.8's header lacks or names differently. The one for stream memory
// operations is that of the _v2 functions, which no module parameter turns off.
const (
	attributeStreamMemOps   cu.DeviceAttribute = 122
	attributeIPCEvents      cu.DeviceAttribute = 125
	attributeMemSyncDomains cu.DeviceAttribute = 126
	attributeCooperative    cu.DeviceAttribute = 95
	attributeDMABuf         cu.DeviceAttribute = 124
	attributeVirtual        cu.DeviceAttribute = 102
	attributeShareVirtual   cu.DeviceAttribute = 103
	attributeRDMAVirtual    cu.DeviceAttribute = 110
)

// Devices lists the GPUs. Without a driver the list is empty, which is not an error: Init
// returns the reason.
func Devices() ([]DeviceInfo, error) {
	if Init() != nil {
		return nil, nil
	}
	n, err := cu.NumDevices()
	if err != nil {
		return nil, wrap("cuDeviceGetCount", err)
	}
	all := make([]DeviceInfo, n)
	for i := range all {
		if all[i], err = inquire(i); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// Present is Devices, but without any the reason is an error: ErrNoDriver or ErrNoDevice.
func Present() ([]DeviceInfo, error) {
	if err := Init(); err != nil {
		return nil, err
	}
	all, err := Devices()
	if err == nil && len(all) == 0 {
		err = ErrNoDevice
	}
	return all, err
}

// Bus returns a GPU's PCI address.
func Bus(ordinal int) (string, error) {
	if err := Init(); err != nil {
		return "", err
	}
	info, err := inquire(ordinal)
	if err != nil {
		return "", err
	}
	return info.PCI.String(), nil
}

func inquire(ordinal int) (DeviceInfo, error) {
	info := DeviceInfo{Ordinal: ordinal}
	dev, err := device(ordinal)
	if err != nil {
		return info, err
	}
	if info.Name, err = dev.Name(); err != nil {
		return info, wrap("cuDeviceGetName", err)
	}
	uuid, err := dev.UUID()
	if err != nil {
		return info, wrap("cuDeviceGetUuid", err)
	}
	info.UUID = "GPU-" + uuid.String()
	if info.Memory, err = dev.TotalMem(); err != nil {
		return info, wrap("cuDeviceTotalMem", err)
	}
	for _, a := range []struct {
		attribute cu.DeviceAttribute
		to        any
	}{
		{cu.PciDomainID, &info.PCI.Domain},
		{cu.PciBusID, &info.PCI.Bus},
		{cu.PciDeviceID, &info.PCI.Device},
		{cu.ComputeCapabilityMajor, &info.ComputeMajor},
		{cu.ComputeCapabilityMinor, &info.ComputeMinor},
		{cu.MultiprocessorCount, &info.SMs},
		{cu.AsyncEngineCount, &info.AsyncEngines},
		{attributeMemSyncDomains, &info.MemSyncDomains},
		{attributeStreamMemOps, &info.CanStreamMemOps},
		{attributeIPCEvents, &info.CanIPC},
		{attributeCooperative, &info.CanCooperate},
		{attributeDMABuf, &info.CanDMABuf},
		{attributeVirtual, &info.CanVirtual},
		{attributeShareVirtual, &info.CanShareVirtual},
		{attributeRDMAVirtual, &info.CanRDMAVirtual},
	} {
		v, err := dev.Attribute(a.attribute)
		if err != nil {
			return info, wrap(fmt.Sprintf("cuDeviceGetAttribute(%d)", int(a.attribute)), err)
		}
		switch to := a.to.(type) {
		case *int:
			*to = v
		case *bool:
			*to = v != 0
		}
	}
	return info, nil
}

// device finds a device by number.
func device(ordinal int) (cu.Device, error) {
	if err := Init(); err != nil {
		return cu.BadDevice, err
	}
	dev, err := cu.GetDevice(ordinal)
	if err != nil {
		if n, err := cu.NumDevices(); err == nil && (ordinal < 0 || ordinal >= n) {
			return cu.BadDevice, fmt.Errorf("%w: number %d of %d", ErrNoDevice, ordinal, n)
		}
		return cu.BadDevice, wrap("cuDeviceGet", err)
	}
	return dev, nil
}
