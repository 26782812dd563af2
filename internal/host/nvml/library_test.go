//go:build nvml && cgo

package nvml

import (
	"encoding/binary"
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock"

	"github.com/assay-hpc/assay/internal/host/sysfs"
)

// answers makes every function of a fake that is not set give zeroes, and the
// same answer.
func answers[T any](fake *T, ret nvml.Return) *T {
	v := reflect.ValueOf(fake).Elem()
	for i := range v.NumField() {
		f := v.Field(i)
		if f.Kind() != reflect.Func || !f.CanSet() || !f.IsNil() {
			continue
		}
		f.Set(reflect.MakeFunc(f.Type(), func([]reflect.Value) []reflect.Value {
			var out []reflect.Value
			for o := range f.Type().NumOut() {
				if t := f.Type().Out(o); t == reflect.TypeFor[nvml.Return]() {
					out = append(out, reflect.ValueOf(ret))
				} else {
					out = append(out, reflect.Zero(t))
				}
			}
			return out
		}))
	}
	return fake
}

// one is a library with one GPU. It lacks the newest question about the
// fabric, whose answer a fake cannot give.
func one(d *mock.Device, lacks ...string) *Library {
	d.GetPciInfoFunc = func() (nvml.PciInfo, nvml.Return) {
		p := nvml.PciInfo{PciDeviceId: 0x233510de}
		for i, c := range "00000000:3B:00.0" {
			p.BusId[i] = int8(c)
		}
		return p, nvml.SUCCESS
	}
	lacks = append(lacks, "nvmlDeviceGetGpuFabricInfoV")
	return over(answers(&mock.Interface{
		DeviceGetCountFunc:            func() (int, nvml.Return) { return 1, nvml.SUCCESS },
		DeviceGetHandleByIndexFunc:    func(int) (nvml.Device, nvml.Return) { return d, nvml.SUCCESS },
		DeviceGetHandleByPciBusIdFunc: func(string) (nvml.Device, nvml.Return) { return d, nvml.SUCCESS },
		ExtensionsFunc: func() nvml.ExtendedInterface {
			return &mock.ExtendedInterface{LookupSymbolFunc: func(name string) error {
				for _, l := range lacks {
					if l == name {
						return errors.New("undefined symbol")
					}
				}
				return nil
			}}
		},
	}, nvml.SUCCESS))
}

func quiet(string) {}

// TestGPU: a GPU's answers are where they belong, in the units of the facts.
func TestGPU(t *testing.T) {
	d := answers(&mock.Device{
		GetNameFunc:                   func() (string, nvml.Return) { return "NVIDIA H200", nvml.SUCCESS },
		GetEccModeFunc:                func() (nvml.EnableState, nvml.EnableState, nvml.Return) { return 1, 0, nvml.SUCCESS },
		GetRemappedRowsFunc:           func() (int, int, bool, bool, nvml.Return) { return 1, 2, true, false, nvml.SUCCESS },
		ValidateInforomFunc:           func() nvml.Return { return nvml.ERROR_CORRUPTED_INFOROM },
		GetEnforcedPowerLimitFunc:     func() (uint32, nvml.Return) { return 700000, nvml.SUCCESS },
		GetMigModeFunc:                func() (int, int, nvml.Return) { return 0, 0, nvml.ERROR_NOT_SUPPORTED },
		GetTotalEnergyConsumptionFunc: func() (uint64, nvml.Return) { return 4287529, nvml.SUCCESS },
		GetRepairStatusFunc:           func() (nvml.RepairStatus, nvml.Return) { panic("the library does not have it") },
		GetComputeRunningProcessesFunc: func() ([]nvml.ProcessInfo, nvml.Return) {
			return []nvml.ProcessInfo{{Pid: 7}}, nvml.SUCCESS
		},
		GetGraphicsRunningProcessesFunc: func() ([]nvml.ProcessInfo, nvml.Return) { return nil, nvml.ERROR_NOT_SUPPORTED },
		GetNvLinkStateFunc: func(l int) (nvml.EnableState, nvml.Return) {
			if l >= 18 {
				return 0, nvml.ERROR_INVALID_ARGUMENT
			}
			return nvml.EnableState(l % 2), nvml.SUCCESS
		},
		GetNvLinkRemoteDeviceTypeFunc: func(int) (nvml.IntNvLinkDeviceType, nvml.Return) {
			return nvml.NVLINK_DEVICE_TYPE_SWITCH, nvml.SUCCESS
		},
		GetGpuFabricInfoFunc: func() (nvml.GpuFabricInfo, nvml.Return) {
			return nvml.GpuFabricInfo{State: nvml.GPU_FABRIC_STATE_COMPLETED, ClusterUuid: [16]uint8{15: 1}, CliqueId: 3}, nvml.SUCCESS
		},
		GetFieldValuesFunc: func(v []nvml.FieldValue) nvml.Return {
			for i := range v {
				v[i].ValueType = uint32(nvml.VALUE_TYPE_UNSIGNED_INT)
				binary.LittleEndian.PutUint32(v[i].Value[:], v[i].FieldId)
			}
			return nvml.SUCCESS
		},
	}, nvml.SUCCESS)
	var asked []string
	g, err := one(d, "nvmlDeviceGetRepairStatus").GPU(0, func(what string) { asked = append(asked, what) })
	if err != nil {
		t.Fatal(err)
	}
	if g.Bus != (sysfs.BusID{Bus: 0x3b}) || g.ID != "2335" || g.Name.Value != "NVIDIA H200" || g.ECC.Value != (Modes{Now: true}) {
		t.Errorf("%+v", g)
	}
	if g.Remap.Value != (Remap{Uncorrectable: 2, Pending: true}) || g.InfoROMOK.Value || g.InfoROMOK.Err != nil || g.Power.Value.Limit != 700 || g.Energy.Value != 4287529 {
		t.Errorf("remap %+v, InfoROM %+v, power %+v, energy %+v", g.Remap, g.InfoROMOK, g.Power, g.Energy)
	}
	if !errors.Is(g.MIG.Err, ErrNotSupported) || !errors.Is(g.Repair.Err, ErrNotSupported) {
		t.Errorf("MIG: %v, repair: %v; want neither supported", g.MIG.Err, g.Repair.Err)
	}
	if l := g.Links.Value; len(l) != 18 || l[0].Up || l[1] != (Link{Number: 1, Up: true, To: "switch", Remote: sysfs.OpaqueBusID, Mbit: nvml.FI_DEV_NVLINK_GET_SPEED}) {
		t.Errorf("links %+v", l)
	}
	if g.Fabric.Value != (Fabric{State: 3, Cluster: "00000000-0000-0000-0000-000000000001", Clique: 3}) || g.Recovery.Value != "230" {
		t.Errorf("fabric %+v, recovery %+v", g.Fabric, g.Recovery)
	}
	if p := g.Processes; p.Err != nil || len(p.Value) != 1 || p.Value[0] != 7 {
		t.Errorf("processes %+v", p)
	}
	if len(asked) < 10 || !strings.Contains(strings.Join(asked, " "), "its fabric") {
		t.Errorf("asked for %v", asked)
	}
	c, err := one(d).Counters(0)
	if err != nil || c["nvlink_replay"] != nvml.FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL || c["nvlink_symbol"] != nvml.NVLINK_MAX_LINKS*nvml.FI_DEV_NVLINK_COUNT_SYMBOL_ERRORS {
		t.Errorf("counters %v, %v", c, err)
	}
}

// TestFailures: kinds of failure are told apart.
func TestFailures(t *testing.T) {
	for ret, want := range map[nvml.Return]error{
		nvml.SUCCESS: nil, nvml.ERROR_NOT_SUPPORTED: ErrNotSupported, nvml.ERROR_FUNCTION_NOT_FOUND: ErrNotSupported,
		nvml.ERROR_NO_PERMISSION: ErrNoPermission, nvml.ERROR_GPU_IS_LOST: ErrLost, nvml.ERROR_RESET_REQUIRED: ErrReset,
	} {
		if got := failure(ret); !errors.Is(got, want) {
			t.Errorf("failure(%d) = %v; want %v", ret, got, want)
		}
	}
	if err := failure(nvml.ERROR_UNKNOWN); err == nil || errors.Is(err, ErrNotSupported) {
		t.Errorf("failure(unknown) = %v", err)
	}
	for _, ret := range []nvml.Return{nvml.ERROR_GPU_IS_LOST, nvml.ERROR_RESET_REQUIRED} {
		if _, err := one(answers(&mock.Device{}, ret)).GPU(0, quiet); !errors.Is(err, failure(ret)) {
			t.Errorf("a GPU that answers %d to everything: %v", ret, err)
		}
		later := &mock.Device{GetUUIDFunc: func() (string, nvml.Return) { return "GPU-1", nvml.SUCCESS }}
		if _, err := one(answers(later, ret)).GPU(0, quiet); !errors.Is(err, failure(ret)) {
			t.Errorf("a GPU that answers %d after a while: %v", ret, err)
		}
	}
	g, err := one(answers(&mock.Device{}, nvml.ERROR_NOT_SUPPORTED)).GPU(0, quiet)
	if err != nil {
		t.Fatal(err)
	}
	for name, err := range map[string]error{
		"ECC": g.ECC.Err, "SRAM": g.SRAM.Err, "remap": g.Remap.Err, "InfoROM": g.InfoROMOK.Err, "links": g.Links.Err, "fabric": g.Fabric.Err,
		"PCIe": g.PCIe.Err, "clocks": g.Clocks.Err, "heat": g.Heat.Err, "power": g.Power.Err, "recovery": g.Recovery.Err,
	} {
		if !errors.Is(err, ErrNotSupported) {
			t.Errorf("%s of a GPU that supports nothing: %v", name, err)
		}
	}
}

// TestDriver: without a driver there is a reason, and no crash.
func TestDriver(t *testing.T) {
	for ret, want := range map[nvml.Return]struct {
		kind error
		text string
	}{
		nvml.ERROR_LIBRARY_NOT_FOUND: {ErrNoLibrary, "NVML cannot be used: libnvidia-ml.so.1 cannot be loaded"},
		nvml.ERROR_DRIVER_NOT_LOADED: {ErrNoLibrary, "NVML cannot be used: libnvidia-ml.so.1 is there, the kernel's driver is not loaded"},
		nvml.ERROR_NO_PERMISSION:     {ErrNoPermission, "nvmlInit: no permission"},
	} {
		s := over(answers(&mock.Interface{}, ret))
		if _, err := s.Driver(); !errors.Is(err, want.kind) || err.Error() != want.text {
			t.Errorf("a library that answers %d: %v; want %q", ret, err, want.text)
		}
	}
	if d, err := New().Driver(); err == nil {
		t.Logf("this machine's driver: %+v", d)
	} else if !errors.Is(err, ErrNoLibrary) {
		t.Errorf("this machine: %v; want a driver, or that there is none", err)
	}
}

// TestPlaces: where a GPU is, what its links have and what its sensors say are in
// the units of the types, and what the driver does not tell stays empty.
func TestPlaces(t *testing.T) {
	d := answers(&mock.Device{
		GetNameFunc:                  func() (string, nvml.Return) { return "NVIDIA H200", nvml.SUCCESS },
		GetCudaComputeCapabilityFunc: func() (int, int, nvml.Return) { return 9, 0, nvml.SUCCESS },
		GetNumaNodeIdFunc:            func() (int, nvml.Return) { panic("the library does not have it") },
		GetCpuAffinityWithinScopeFunc: func(int, nvml.AffinityScope) ([]uint, nvml.Return) {
			return []uint{1 << 3, 1}, nvml.SUCCESS
		},
		GetMemoryAffinityFunc: func(int, nvml.AffinityScope) ([]uint, nvml.Return) { return nil, nvml.ERROR_NOT_SUPPORTED },
		GetNvLinkStateFunc: func(l int) (nvml.EnableState, nvml.Return) {
			switch {
			case l == 3:
				return 0, nvml.ERROR_UNKNOWN
			case l > 3:
				return 0, nvml.ERROR_INVALID_ARGUMENT
			}
			return nvml.EnableState(min(l, 1)), nvml.SUCCESS
		},
		GetNvLinkRemoteDeviceTypeFunc: func(l int) (nvml.IntNvLinkDeviceType, nvml.Return) {
			return map[int]nvml.IntNvLinkDeviceType{1: nvml.NVLINK_DEVICE_TYPE_GPU, 2: nvml.NVLINK_DEVICE_TYPE_SWITCH}[l], nvml.SUCCESS
		},
		GetNvLinkRemotePciInfoFunc: func(l int) (p nvml.PciInfo, ret nvml.Return) {
			for i, c := range "0000:43:00.0" {
				p.BusId[i] = int8(c)
			}
			return p, map[int]nvml.Return{2: nvml.ERROR_NOT_SUPPORTED}[l]
		},
		GetCurrPcieLinkGenerationFunc: func() (int, nvml.Return) { return 1, nvml.SUCCESS },
		GetMaxPcieLinkGenerationFunc:  func() (int, nvml.Return) { return 5, nvml.SUCCESS },
		GetMaxPcieLinkWidthFunc:       func() (int, nvml.Return) { return 16, nvml.ERROR_NOT_SUPPORTED },
		GetPcieReplayCounterFunc:      func() (int, nvml.Return) { return 7, nvml.SUCCESS },
		GetFieldValuesFunc: func(v []nvml.FieldValue) nvml.Return {
			for i := range v {
				v[i].ValueType = uint32(nvml.VALUE_TYPE_UNSIGNED_LONG_LONG)
				binary.LittleEndian.PutUint64(v[i].Value[:], 5)
				if v[i].FieldId == nvml.FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL {
					v[i].NvmlReturn = uint32(nvml.ERROR_NOT_SUPPORTED)
				}
			}
			return nvml.SUCCESS
		},
		GetTemperatureFunc:                  func(nvml.TemperatureSensors) (uint32, nvml.Return) { return 60, nvml.SUCCESS },
		GetPowerUsageFunc:                   func() (uint32, nvml.Return) { return 680500, nvml.SUCCESS },
		GetCurrentClocksEventReasonsFunc:    func() (uint64, nvml.Return) { panic("the library does not have it") },
		GetCurrentClocksThrottleReasonsFunc: func() (uint64, nvml.Return) { return 0x48, nvml.SUCCESS },
		GetPersistenceModeFunc:              func() (nvml.EnableState, nvml.Return) { return 0, nvml.ERROR_NOT_SUPPORTED },
	}, nvml.SUCCESS)
	lib := one(d, "nvmlDeviceGetNumaNodeId", "nvmlDeviceGetCurrentClocksEventReasons")
	bus, peer := sysfs.BusID{Bus: 0x3b}, sysfs.BusID{Bus: 0x43}

	places, err := lib.Places()
	want := []Place{{
		BusID: bus, Name: "NVIDIA H200", SM: 90, CPUAffinity: sysfs.NewCPUSet(3, 64),
		Links: []Link{{Number: 1, Up: true, To: "GPU", Remote: peer, Mbit: 5}, {Number: 2, Up: true, To: "switch", Remote: sysfs.OpaqueBusID, Mbit: 5}},
	}}
	if err != nil || !reflect.DeepEqual(places, want) {
		t.Errorf("places %+v, %v; want %+v", places, err, want)
	}

	links, err := lib.Links()
	wantLinks := map[sysfs.BusID]Links{bus: {
		PCIDevice: "2335", PCIeGen: 1, MaxGen: 5, NVLinks: 2, Peers: map[sysfs.BusID]int{peer: 1},
		Errors: map[string]uint64{"pcie_replay": 7, "nvlink_crc_flit": 5, "nvlink_crc_data": 5, "nvlink_recovery": 5},
	}}
	if err != nil || !reflect.DeepEqual(links, wantLinks) {
		t.Errorf("links %+v, %v; want %+v", links, err, wantLinks)
	}

	r, err := lib.Read(bus)
	if wantR := (Reading{Celsius: 60, Watts: 680.5, Reasons: 0x48}); err != nil || r != wantR {
		t.Errorf("reading %+v, %v; want %+v", r, err, wantR)
	}
	d.GetTemperatureFunc = func(nvml.TemperatureSensors) (uint32, nvml.Return) { return 0, nvml.ERROR_GPU_IS_LOST }
	if _, err := lib.Read(bus); !errors.Is(err, ErrLost) {
		t.Errorf("the sensors of a lost GPU: %v; want %v", err, ErrLost)
	}
	d.GetPciInfoFunc = func() (nvml.PciInfo, nvml.Return) { return nvml.PciInfo{}, nvml.ERROR_GPU_IS_LOST }
	if links, err := lib.Links(); links != nil || !errors.Is(err, ErrLost) {
		t.Errorf("links of a lost GPU: %v, %v; want %v", links, err, ErrLost)
	}
}
