//go:build nvml && cgo

package nvml

import (
	"encoding/binary"
	"fmt"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/assay-hpc/assay/coll/topology"
	"github.com/assay-hpc/assay/harness/sysfs"
)

// LinkStates asks all GPUs about their links.
func (l *Library) LinkStates() ([]LinkState, error) {
	n, ret := l.api.DeviceGetCount()
	if err := check("counting GPUs", ret); err != nil {
		return nil, err
	}
	var out []LinkState
	for i := range n {
		d, ret := l.api.DeviceGetHandleByIndex(i)
		if err := check("opening a GPU", ret); err != nil {
			return nil, fmt.Errorf("GPU %d: %w", i, err)
		}
		s, err := linkState(d)
		if err != nil {
			return nil, fmt.Errorf("GPU %d: %w", i, err)
		}
		out = append(out, s)
	}
	return out, nil
}

// DriverVersion is the driver's, such as "580.65.06"; empty where it is not known.
func (l *Library) DriverVersion() string {
	v, ret := l.api.SystemGetDriverVersion()
	if ret != nvml.SUCCESS {
		return ""
	}
	return v
}

func linkState(d nvml.Device) (s LinkState, err error) {
	pci, ret := d.GetPciInfo()
	if err := check("its PCI address", ret); err != nil {
		return s, err
	}
	if s.BusID, err = busID(pci); err != nil {
		return s, err
	}
	s.PCIDevice = fmt.Sprintf("%04x", pci.PciDeviceId>>16)
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
	s.Peers, s.Errors = map[sysfs.BusID]int{}, map[string]uint64{}
	for _, l := range links(d) {
		s.NVLinks++
		if l.To == topology.ToGPU {
			s.Peers[l.Remote]++
		}
	}
	if v, ret := d.GetPcieReplayCounter(); ret == nvml.SUCCESS {
		s.Errors["pcie_replay"] = uint64(v)
	}
	nvlinkErrors(d, s.Errors)
	return s, nil
}

// nvlinkCounters are the fields that have a counter of all NVLinks together.
var nvlinkCounters = []struct {
	name  string
	field uint32
}{
	{"nvlink_crc_data", nvml.FI_DEV_NVLINK_CRC_DATA_ERROR_COUNT_TOTAL},
	{"nvlink_crc_flit", nvml.FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL},
	{"nvlink_recovery", nvml.FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL},
	{"nvlink_replay", nvml.FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL},
}

// nvlinkErrors adds the counters that the GPU has.
func nvlinkErrors(d nvml.Device, to map[string]uint64) {
	values := make([]nvml.FieldValue, len(nvlinkCounters))
	for i, c := range nvlinkCounters {
		values[i].FieldId = c.field
	}
	if d.GetFieldValues(values) != nvml.SUCCESS {
		return
	}
	for i, c := range nvlinkCounters {
		v := values[i]
		if nvml.Return(v.NvmlReturn) != nvml.SUCCESS {
			continue
		}
		switch nvml.ValueType(v.ValueType) {
		case nvml.VALUE_TYPE_UNSIGNED_INT:
			to[c.name] = uint64(binary.LittleEndian.Uint32(v.Value[:]))
		case nvml.VALUE_TYPE_UNSIGNED_LONG, nvml.VALUE_TYPE_UNSIGNED_LONG_LONG:
			to[c.name] = binary.LittleEndian.Uint64(v.Value[:])
		}
	}
}
