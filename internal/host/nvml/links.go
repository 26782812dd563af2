//go:build nvml && cgo

package nvml

import (
	"encoding/binary"
	"fmt"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/assay-hpc/assay/internal/host/sysfs"
)

// links lists the GPU's NVLinks, up or down.
func (a *asker) links() {
	links, ret := a.linksOf(a.d)
	if ret == nvml.SUCCESS && len(links) == 0 {
		ret = nvml.ERROR_NOT_SUPPORTED
	}
	a.g.Links = fact(links, ret)
}

// linksOf lists a GPU's NVLinks, and returns the first failure.
func (l *Library) linksOf(d nvml.Device) (out []Link, failed nvml.Return) {
	for i := range nvml.NVLINK_MAX_LINKS {
		state, ret := d.GetNvLinkState(i)
		if ret == nvml.ERROR_NOT_SUPPORTED || ret == nvml.ERROR_INVALID_ARGUMENT {
			continue // not a link of this GPU
		}
		if ret != nvml.SUCCESS {
			failed = worse(failed, ret)
			continue
		}
		link := Link{Number: i, Up: state == nvml.FEATURE_ENABLED, Remote: sysfs.OpaqueBusID}
		if link.Up {
			link.To = l.remote(d, i)
			if pci, ret := d.GetNvLinkRemotePciInfo(i); ret == nvml.SUCCESS {
				if id, err := busID(pci); err == nil {
					link.Remote = id
				}
			}
			if v, ret := scoped(d, nvml.FI_DEV_NVLINK_GET_SPEED, uint32(i)); ret == nvml.SUCCESS {
				link.Mbit = int(v)
			}
		}
		out = append(out, link)
	}
	return out, failed
}

func (l *Library) remote(d nvml.Device, link int) string {
	kind, ret := ask(l, "nvmlDeviceGetNvLinkRemoteDeviceType", func() (nvml.IntNvLinkDeviceType, nvml.Return) {
		return d.GetNvLinkRemoteDeviceType(link)
	})
	if ret != nvml.SUCCESS {
		return ""
	}
	return map[nvml.IntNvLinkDeviceType]string{
		nvml.NVLINK_DEVICE_TYPE_GPU: "GPU", nvml.NVLINK_DEVICE_TYPE_IBMNPU: "CPU", nvml.NVLINK_DEVICE_TYPE_SWITCH: "switch",
	}[kind]
}

// fabric uses the newest version of the call that the driver knows.
func (a *asker) fabric() {
	if a.has("nvmlDeviceGetGpuFabricInfoV") {
		h := a.d.GetGpuFabricInfoV()
		if v, ret := h.V3(); ret == nvml.SUCCESS {
			a.g.Fabric = sysfs.Known(fabric(v.State, v.Status, v.HealthMask, v.HealthSummary, v.ClusterUuid, v.CliqueId))
			return
		}
		if v, ret := h.V2(); ret == nvml.SUCCESS {
			a.g.Fabric = sysfs.Known(fabric(v.State, v.Status, v.HealthMask, 0, v.ClusterUuid, v.CliqueId))
			return
		}
	}
	v, ret := ask(a.Library, "nvmlDeviceGetGpuFabricInfo", a.d.GetGpuFabricInfo)
	a.g.Fabric = fact(fabric(v.State, v.Status, 0, 0, v.ClusterUuid, v.CliqueId), ret)
}

func fabric(state uint8, status, mask uint32, summary uint8, cluster [16]uint8, clique uint32) Fabric {
	f := Fabric{State: int(state), Health: mask, Summary: int(summary), Clique: int(clique)}
	// The status is meaningless until the registration is complete.
	if ret := nvml.Return(status); state == nvml.GPU_FABRIC_STATE_COMPLETED && ret != nvml.SUCCESS {
		f.Status = ret.String()
	}
	if cluster != [16]uint8{} {
		f.Cluster = fmt.Sprintf("%x-%x-%x-%x-%x", cluster[:4], cluster[4:6], cluster[6:8], cluster[8:10], cluster[10:])
	}
	return f
}

var p2pStatus = map[nvml.GpuP2PStatus]string{
	nvml.P2P_STATUS_OK: "OK", nvml.P2P_STATUS_CHIPSET_NOT_SUPPORTED: "the chipset does not support it", nvml.P2P_STATUS_GPU_NOT_SUPPORTED: "the GPU does not support it",
	nvml.P2P_STATUS_IOH_TOPOLOGY_NOT_SUPPORTED: "the topology does not support it", nvml.P2P_STATUS_DISABLED_BY_REGKEY: "turned off in the driver's settings",
	nvml.P2P_STATUS_NOT_SUPPORTED: "not supported", nvml.P2P_STATUS_UNKNOWN: "unknown",
}

func (a *asker) peers() {
	n, ret := a.api.DeviceGetCount()
	out := map[int]string{}
	for i := 0; i < n && ret == nvml.SUCCESS; i++ {
		if i == a.g.Index {
			continue
		}
		peer, bad := a.api.DeviceGetHandleByIndex(i)
		if bad != nvml.SUCCESS {
			out[i] = failure(bad).Error()
			continue
		}
		var status nvml.GpuP2PStatus
		if status, ret = a.d.GetP2PStatus(peer, nvml.P2P_CAPS_INDEX_NVLINK); ret == nvml.SUCCESS {
			out[i] = named(p2pStatus, status)
		}
	}
	a.g.Peers = fact(out, ret)
}

// field reads a field of the GPU as a whole.
func (a *asker) field(id uint32) (uint64, nvml.Return) { return scoped(a.d, id, 0) }

func scoped(d nvml.Device, id, scope uint32) (uint64, nvml.Return) {
	v := []nvml.FieldValue{{FieldId: id, ScopeId: scope}}
	if ret := d.GetFieldValues(v); ret != nvml.SUCCESS {
		return 0, ret
	}
	return value(v[0])
}

// value returns a field's number.
func value(v nvml.FieldValue) (uint64, nvml.Return) {
	if ret := nvml.Return(v.NvmlReturn); ret != nvml.SUCCESS {
		return 0, ret
	}
	switch nvml.ValueType(v.ValueType) {
	case nvml.VALUE_TYPE_UNSIGNED_INT, nvml.VALUE_TYPE_SIGNED_INT:
		return uint64(binary.LittleEndian.Uint32(v.Value[:])), nvml.SUCCESS
	case nvml.VALUE_TYPE_UNSIGNED_LONG, nvml.VALUE_TYPE_UNSIGNED_LONG_LONG, nvml.VALUE_TYPE_SIGNED_LONG_LONG:
		return binary.LittleEndian.Uint64(v.Value[:]), nvml.SUCCESS
	}
	return 0, nvml.ERROR_NOT_SUPPORTED
}

// A counter is a field that counts errors.
type counter struct {
	name string
	id   uint32
}

// counters are fields of the GPU as a whole.
var counters = []counter{
	{"nvlink_crc_flit", nvml.FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL},
	{"nvlink_crc_data", nvml.FI_DEV_NVLINK_CRC_DATA_ERROR_COUNT_TOTAL},
	{"nvlink_replay", nvml.FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL},
	{"nvlink_recovery", nvml.FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL},
	{"pcie_correctable", nvml.FI_DEV_PCIE_COUNT_CORRECTABLE_ERRORS},
	{"pcie_nonfatal", nvml.FI_DEV_PCIE_COUNT_NON_FATAL_ERROR},
	{"pcie_fatal", nvml.FI_DEV_PCIE_COUNT_FATAL_ERROR},
}

// nvlinkCounters is how many of counters, at its start, are totals of all NVLinks.
const nvlinkCounters = 4

// linkCounters are fields of each NVLink of the fifth generation, with the link as their scope.
var linkCounters = []counter{
	{"nvlink_recovery_failed", nvml.FI_DEV_NVLINK_COUNT_LINK_RECOVERY_FAILED_EVENTS},
	{"nvlink_symbol", nvml.FI_DEV_NVLINK_COUNT_SYMBOL_ERRORS},
	{"nvlink_receive", nvml.FI_DEV_NVLINK_COUNT_RCV_ERRORS},
	{"nvlink_integrity", nvml.FI_DEV_NVLINK_COUNT_LOCAL_LINK_INTEGRITY_ERRORS},
}

// policies are the reasons for lower performance for which a GPU counts the time.
var policies = []struct {
	name   string
	policy nvml.PerfPolicyType
}{
	{"thermal_violation_ns", nvml.PERF_POLICY_THERMAL}, {"board_violation_ns", nvml.PERF_POLICY_BOARD_LIMIT}, {"reliability_violation_ns", nvml.PERF_POLICY_RELIABILITY},
}

// ofLinks returns the linkCounters of every possible link.
func ofLinks() []nvml.FieldValue {
	var out []nvml.FieldValue
	for _, c := range linkCounters {
		for l := range nvml.NVLINK_MAX_LINKS {
			out = append(out, nvml.FieldValue{FieldId: c.id, ScopeId: uint32(l)})
		}
	}
	return out
}

// Counters reads the GPU's counters, by the names above: errors, and nanoseconds where the name
// ends in _ns. Counters that the GPU does not have are left out.
func (l *Library) Counters(index int) (map[string]uint64, error) {
	if err := l.start(); err != nil {
		return nil, err
	}
	d, ret := l.api.DeviceGetHandleByIndex(index)
	if ret != nvml.SUCCESS {
		return nil, failure(ret)
	}
	out, ret := count(d, counters)
	if ret != nvml.SUCCESS {
		return nil, failure(ret)
	}
	// Older drivers may refuse the whole request because of one unknown field.
	if links := ofLinks(); d.GetFieldValues(links) == nvml.SUCCESS {
		tally(out, links, linkCounters)
	}
	for _, p := range policies {
		v, ret := ask(l, "nvmlDeviceGetViolationStatus", func() (nvml.ViolationTime, nvml.Return) { return d.GetViolationStatus(p.policy) })
		if ret == nvml.SUCCESS {
			out[p.name] = v.ViolationTime
		}
	}
	return out, nil
}

// count reads fields of the GPU as a whole, and PCIe replays.
func count(d nvml.Device, counters []counter) (map[string]uint64, nvml.Return) {
	out := map[string]uint64{}
	if v, ret := d.GetPcieReplayCounter(); ret == nvml.SUCCESS {
		out["pcie_replay"] = uint64(v)
	}
	values := make([]nvml.FieldValue, len(counters))
	for i, c := range counters {
		values[i].FieldId = c.id
	}
	ret := d.GetFieldValues(values)
	if ret == nvml.SUCCESS {
		tally(out, values, counters)
	}
	return out, ret
}

// tally sums the fields of each name.
func tally(to map[string]uint64, values []nvml.FieldValue, counters []counter) {
	for _, c := range counters {
		for _, v := range values {
			if n, ret := value(v); v.FieldId == c.id && ret == nvml.SUCCESS {
				to[c.name] += n
			}
		}
	}
}
