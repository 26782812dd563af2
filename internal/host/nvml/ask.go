//go:build nvml && cgo

package nvml

import (
	"fmt"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/assay-hpc/assay/internal/host/sysfs"
)

// An asker queries one GPU, one part at a time.
type asker struct {
	*Library
	d nvml.Device
	g *GPU
}

func (a *asker) identity() {
	d, g := a.d, a.g
	g.Name = fact(d.GetName())
	g.VBIOS = fact(d.GetVbiosVersion())
	g.InfoROM = fact(d.GetInforomImageVersion())
	g.Board = fact(ask(a.Library, "nvmlDeviceGetBoardPartNumber", d.GetBoardPartNumber))
	g.GSP = fact(ask(a.Library, "nvmlDeviceGetGspFirmwareMode", a.gsp))
	m, ret := d.GetMemoryInfo()
	g.MemoryBytes = fact(m.Total, ret)
	clock, ret := d.GetMaxClockInfo(nvml.CLOCK_SM)
	g.MaxClockMHz = fact(uint64(clock), ret)
}

// gsp returns the version of the running GSP firmware, or "off"; "on" if the driver does not
// report the version.
func (a *asker) gsp() (string, nvml.Return) {
	on, _, ret := a.d.GetGspFirmwareMode()
	if ret != nvml.SUCCESS || !on {
		return "off", ret
	}
	if version, ret := ask(a.Library, "nvmlDeviceGetGspFirmwareVersion", a.d.GetGspFirmwareVersion); ret == nvml.SUCCESS && version != "" {
		return version, nvml.SUCCESS
	}
	return "on", nvml.SUCCESS
}

func (a *asker) errors() {
	d, g := a.d, a.g
	now, pending, ret := d.GetEccMode()
	g.ECC = fact(Modes{Now: now == nvml.FEATURE_ENABLED, Pending: pending == nvml.FEATURE_ENABLED}, ret)
	g.Volatile = fact(d.GetTotalEccErrors(nvml.MEMORY_ERROR_TYPE_UNCORRECTED, nvml.VOLATILE_ECC))

	s, ret := ask(a.Library, "nvmlDeviceGetSramEccErrorStatus", d.GetSramEccErrorStatus)
	g.SRAM = fact(ECCCount{s.AggregateUncParity + s.AggregateUncSecDed, s.AggregateCor}, ret)
	g.Exceeded = fact(s.BThresholdExceeded != 0, ret)
	if ret != nvml.SUCCESS { // drivers before 550 only have the counts
		g.SRAM = a.eccCount(nvml.MEMORY_LOCATION_SRAM)
	}
	g.DRAM = a.eccCount(nvml.MEMORY_LOCATION_DRAM)
}

// eccCount returns the errors of a memory.
func (a *asker) eccCount(at nvml.MemoryLocation) sysfs.Fact[ECCCount] {
	uncorrectable, ret1 := a.d.GetMemoryErrorCounter(nvml.MEMORY_ERROR_TYPE_UNCORRECTED, nvml.AGGREGATE_ECC, at)
	correctable, ret2 := a.d.GetMemoryErrorCounter(nvml.MEMORY_ERROR_TYPE_CORRECTED, nvml.AGGREGATE_ECC, at)
	return fact(ECCCount{uncorrectable, correctable}, worse(ret1, ret2))
}

// worse returns the first failure.
func worse(rets ...nvml.Return) nvml.Return {
	for _, ret := range rets {
		if ret != nvml.SUCCESS {
			return ret
		}
	}
	return nvml.SUCCESS
}

func (a *asker) memory() {
	d, g := a.d, a.g
	_, u, pending, failed, ret := d.GetRemappedRows()
	g.Remap = fact(Remap{Uncorrectable: u, Pending: pending, Failed: failed}, ret)
	h, ret := d.GetRowRemapperHistogram()
	g.Spent = fact(int(h.None), ret)
	single, ret1 := d.GetRetiredPages(nvml.PAGE_RETIREMENT_CAUSE_MULTIPLE_SINGLE_BIT_ECC_ERRORS)
	double, ret2 := d.GetRetiredPages(nvml.PAGE_RETIREMENT_CAUSE_DOUBLE_BIT_ECC_ERROR)
	waiting, ret3 := d.GetRetiredPagesPendingStatus()
	g.Pages = fact(Pages{SingleBit: len(single), DoubleBit: len(double), Pending: waiting == nvml.FEATURE_ENABLED}, worse(ret1, ret2, ret3))
	m, ret := ask(a.Library, "nvmlDeviceGetUnrepairableMemoryFlag_v1", d.GetUnrepairableMemoryFlag_v1)
	g.Unfixable = fact(m.BUnrepairableMemory != 0, ret)
	r, ret := ask(a.Library, "nvmlDeviceGetRepairStatus", d.GetRepairStatus)
	g.Repair = fact(r.BChannelRepairPending != 0 || r.BTpcRepairPending != 0, ret)
}

func (a *asker) inforom() {
	switch ret := a.d.ValidateInforom(); ret {
	case nvml.SUCCESS, nvml.ERROR_CORRUPTED_INFOROM:
		a.g.InfoROMOK = sysfs.Known(ret == nvml.SUCCESS)
	default:
		a.g.InfoROMOK = fact(false, ret)
	}
}

func (a *asker) pcie() {
	d := a.d
	gen, ret1 := d.GetCurrPcieLinkGeneration()
	width, ret2 := d.GetCurrPcieLinkWidth()
	maxGen, ret3 := d.GetMaxPcieLinkGeneration()
	maxWidth, ret4 := d.GetMaxPcieLinkWidth()
	own, ret := ask(a.Library, "nvmlDeviceGetGpuMaxPcieLinkGeneration", d.GetGpuMaxPcieLinkGeneration)
	if ret != nvml.SUCCESS {
		own = 0
	}
	a.g.PCIe = fact(PCIe{Generation: gen, Width: width, MaxGeneration: maxGen, MaxWidth: maxWidth, OwnGeneration: own}, worse(ret1, ret2, ret3, ret4))
}

func (a *asker) clocks() {
	reasons, ret := a.reasons(a.d)
	a.g.Clocks = fact(Reasons(reasons), ret)
	state, ret := a.d.GetPerformanceState()
	a.g.Pstate = fact(int(state), ret)
}

func (a *asker) heat() {
	d, g := a.d, a.g
	t, ret := d.GetTemperature(nvml.TEMPERATURE_GPU)
	g.Heat = fact(int(t), ret)
	t, ret = d.GetTemperatureThreshold(nvml.TEMPERATURE_THRESHOLD_GPU_MAX)
	if ret != nvml.SUCCESS { // newer GPUs only have the slowdown threshold
		t, ret = d.GetTemperatureThreshold(nvml.TEMPERATURE_THRESHOLD_SLOWDOWN)
	}
	g.Hottest = fact(int(t), ret)
	t, ret = d.GetTemperatureThreshold(nvml.TEMPERATURE_THRESHOLD_MEM_MAX)
	g.MemoryMax = fact(int(t), ret)
	v, ret := a.field(nvml.FI_DEV_MEMORY_TEMP)
	g.MemoryHeat = fact(int(v), ret)
	m, ret := ask(a.Library, "nvmlDeviceGetMarginTemperature", d.GetMarginTemperature)
	g.Margin = fact(int(m.MarginTemperature), ret)
}

func (a *asker) power() {
	d := a.d
	limit, ret1 := d.GetEnforcedPowerLimit() // milliwatts
	normal, ret2 := d.GetPowerManagementDefaultLimit()
	a.g.Power = fact(Power{Limit: float64(limit) / 1e3, Default: float64(normal) / 1e3}, worse(ret1, ret2))
	a.g.Energy = fact(d.GetTotalEnergyConsumption())
}

// Names of NVML's modes and recovery actions.
var (
	computeModes = map[nvml.ComputeMode]string{
		nvml.COMPUTEMODE_DEFAULT: "Default", nvml.COMPUTEMODE_EXCLUSIVE_THREAD: "Exclusive_Thread",
		nvml.COMPUTEMODE_PROHIBITED: "Prohibited", nvml.COMPUTEMODE_EXCLUSIVE_PROCESS: "Exclusive_Process",
	}
	recoveries = map[uint64]string{
		0: "None", 1: "GPU reset", 2: "node reboot", 3: "drain peer-to-peer traffic", 4: "drain and reset", 5: "recovery of the IMEX domain",
	}
)

func (a *asker) modes() {
	d, g := a.d, a.g
	on, ret := d.GetPersistenceMode()
	g.Persistence = fact(on == nvml.FEATURE_ENABLED, ret)
	now, pending, ret := d.GetMigMode()
	g.MIG = fact(Modes{Now: now == nvml.DEVICE_MIG_ENABLE, Pending: pending == nvml.DEVICE_MIG_ENABLE}, ret)
	mode, ret := d.GetComputeMode()
	g.Compute = fact(named(computeModes, mode), ret)
	action, ret := a.field(nvml.FI_DEV_GET_GPU_RECOVERY_ACTION)
	g.Recovery = fact(named(recoveries, action), ret)
}

func named[K comparable](names map[K]string, k K) string {
	if n, ok := names[k]; ok {
		return n
	}
	return fmt.Sprint(k)
}

func (a *asker) processes() {
	compute, ret1 := a.d.GetComputeRunningProcesses()
	graphics, ret2 := a.d.GetGraphicsRunningProcesses()
	if ret2 == nvml.ERROR_NOT_SUPPORTED {
		ret2 = nvml.SUCCESS // GPUs without graphics have no such processes
	}
	pids := []int{}
	for _, p := range append(compute, graphics...) {
		pids = append(pids, int(p.Pid))
	}
	a.g.Processes = fact(pids, worse(ret1, ret2))
}
