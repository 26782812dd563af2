package health

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/assay-hpc/assay/internal/host/nvml"
	"github.com/assay-hpc/assay/internal/host/sysfs"
	"github.com/assay-hpc/assay/internal/platform"
	"github.com/assay-hpc/assay/internal/result"
)

// An injected fault is something that is put into a healthy node, and what must come of
// it: the one check that finds it, and how.
type injected struct {
	check   string
	verdict result.Verdict
	object  string // name of it
	says    string // in the reason
	inject  func(*fakeNode)
}

// A fakeNode is what faults are put into.
type fakeNode struct {
	t testing.TB
	*State
	g *gpuState // GPU 3
	d *deviceState
	s *systemState
	l *logState
	x *Expect
}

func newNode(t testing.TB) *fakeNode {
	st, x := healthyNode(), expect(t)
	return &fakeNode{t, st, &st.GPUs[3], &st.Node.Devices.Value, &st.Node.System.Value, &st.Node.Log.Value, &x}
}

// grow makes a counter of GPU 3 grow between the readings.
func (n *fakeNode) grow(name string, by uint64) { n.g.After.Value[name] += by }

func (n *fakeNode) port() *sysfs.RDMAPort { return &n.d.RDMA.Value[1].Ports[0] }

func (n *fakeNode) log(age time.Duration, lines ...string) {
	for _, line := range lines {
		at := (n.l.Uptime - age).Microseconds()
		n.l.Messages = append(n.l.Messages, parseLog(fmt.Sprintf("6,1,%d,-;%s\n", at, line), n.Time)...)
	}
}

func count(n int) *int { return &n }

func db(t testing.TB, key string) *platform.Platform {
	t.Helper()
	p, err := expect(t).DB.Platform(key)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

var faults = []injected{
	{"driver/version", result.Fail, "node", "570.86.15", func(n *fakeNode) { n.Driver.Value.Version = "570.86.15" }},
	{"driver/cuda", result.Fail, "node", "CUDA 14", func(n *fakeNode) { n.s.CUDA = known("14.0") }},
	{"driver/denylist", result.Fail, "node", "nouveau", func(n *fakeNode) { n.s.Modules.Value = append(n.s.Modules.Value, "nouveau") }},
	{"driver/denylist", result.Fail, "node", "0000:12:00.0", func(n *fakeNode) { n.d.PCI.Value[2].Driver = "nouveau" }},
	{"gpu/count", result.Fail, "node", "the driver has 7 GPUs, not 8", func(n *fakeNode) { n.GPUs = n.GPUs[:7]; n.Driver.Value.GPUs = 7 }},
	{"gpu/count", result.Fail, "node", "the driver has 8 GPUs, not 4", func(n *fakeNode) { n.x.Count = count(4) }},
	{"gpu/answers", result.Fail, "GPU 3", "lost", func(n *fakeNode) { n.g.Err = nvml.ErrLost }},
	{"gpu/answers", result.Fail, "GPU 3", "reset", func(n *fakeNode) { n.g.Err = nvml.ErrReset }},
	{"gpu/answers", result.Error, "GPU 3", "Unknown Error", func(n *fakeNode) { n.g.Err = errOdd }},
	{"gpu/same/model", result.Warn, "node", "NVIDIA H100 80GB HBM3 (GPU 3)", func(n *fakeNode) { n.g.Name = known("NVIDIA H100 80GB HBM3") }},
	{"gpu/same/vbios", result.Warn, "node", "96.00.74.00.01", func(n *fakeNode) { n.g.VBIOS = known("96.00.74.00.01") }},
	{"gpu/same/inforom", result.Warn, "node", "G520.0200.00.03", func(n *fakeNode) { n.g.InfoROM = known("G520.0200.00.03") }},
	{"gpu/same/board", result.Warn, "node", "692-2G520-0280-001", func(n *fakeNode) { n.g.Board = known("692-2G520-0280-001") }},
	{"gpu/same/gsp", result.Warn, "node", "off (GPU 3)", func(n *fakeNode) { n.g.GSP = known("off") }},
	{"gpu/same/gsp", result.Warn, "node", "570.86.15 (GPU 3)", func(n *fakeNode) { n.g.GSP = known("570.86.15") }},
	{"gpu/same/memory", result.Warn, "node", "85899345920 B", func(n *fakeNode) { n.g.MemoryBytes = known[uint64](80 << 30) }},
	{"gpu/same/clock", result.Warn, "node", "1755 MHz", func(n *fakeNode) { n.g.MaxClockMHz = known[uint64](1755) }},
	{"gpu/ecc/mode", result.Warn, "GPU 3", "ECC is off", func(n *fakeNode) { n.g.ECC = known(nvml.Modes{}) }},
	{"gpu/ecc/pending", result.Warn, "GPU 3", "off after the next reset", func(n *fakeNode) { n.g.ECC = known(nvml.Modes{Now: true}) }},
	{"gpu/ecc/volatile", result.Fail, "GPU 3", "loaded: 2", func(n *fakeNode) { n.g.Volatile = known[uint64](2) }},
	{"gpu/ecc/sram/uncorrectable", result.Fail, "GPU 3", "uncorrectable SRAM errors over the GPU's life: 1", func(n *fakeNode) { n.g.SRAM.Value.Uncorrectable = 1 }},
	{"gpu/ecc/sram/correctable", result.Warn, "GPU 3", "10001", func(n *fakeNode) { n.g.SRAM.Value.Correctable = 10001 }},
	{"gpu/ecc/sram/threshold", result.Fail, "GPU 3", "threshold", func(n *fakeNode) { n.g.Exceeded = known(true) }},
	{"gpu/ecc/dram/correctable", result.Warn, "GPU 3", "20000001", func(n *fakeNode) { n.g.DRAM.Value.Correctable = 20000001 }},
	{"gpu/row-remap/pending", result.Fail, "GPU 3", "next reset", func(n *fakeNode) { n.g.Remap.Value.Pending = true }},
	{"gpu/row-remap/failed", result.Fail, "GPU 3", "could not be remapped", func(n *fakeNode) { n.g.Remap.Value.Failed = true }},
	{"gpu/row-remap/uncorrectable", result.Fail, "GPU 3", "errors: 512", func(n *fakeNode) { n.g.Remap.Value.Uncorrectable = 512 }},
	{"gpu/row-remap/spares", result.Warn, "GPU 3", "left: 1", func(n *fakeNode) { n.g.Spent = known(1) }},
	{"gpu/pages/pending", result.Fail, "GPU 3", "page of memory", func(n *fakeNode) { n.g.Pages = known(nvml.Pages{Pending: true}) }},
	{"gpu/pages/retired", result.Fail, "GPU 3", "memory: 63", func(n *fakeNode) { n.g.Pages = known(nvml.Pages{SingleBit: 60, DoubleBit: 3}) }},
	{"gpu/memory/repairable", result.Fail, "GPU 3", "cannot be repaired", func(n *fakeNode) { n.g.Unfixable = known(true) }},
	{"gpu/memory/repair", result.Warn, "GPU 3", "waits for a reset", func(n *fakeNode) { n.g.Repair = known(true) }},
	{"gpu/inforom", result.Fail, "GPU 3", "corrupt", func(n *fakeNode) { n.g.InfoROMOK = known(false) }},
	{"gpu/nvlink/links", result.Fail, "GPU 3", "16 of 18 NVLinks are up; down: 4, 9", func(n *fakeNode) { n.g.Links.Value[4].Up, n.g.Links.Value[9].Up = false, false }},
	{"gpu/nvlink/speed", result.Fail, "node", "13281 MB/s (GPU 3)", func(n *fakeNode) { n.g.Links.Value[0].Mbit = 13281 }},
	{"gpu/nvlink/peer", result.Fail, "GPU 3", "some to a GPU", func(n *fakeNode) { n.g.Links.Value[0].To = "GPU" }},
	{"gpu/nvlink/p2p", result.Fail, "GPU 3", "GPU 5: unknown", func(n *fakeNode) { n.g.Peers.Value[5] = "unknown" }},
	{"gpu/nvlink/recovery", result.Fail, "GPU 3", "loaded: 1", func(n *fakeNode) {
		n.g.Before.Value["nvlink_recovery"] = 1
		n.grow("nvlink_recovery", 1)
	}},
	{"gpu/nvlink/recovery-failed", result.Fail, "GPU 3", "failed", func(n *fakeNode) {
		n.g.Before.Value["nvlink_recovery_failed"] = 1
		n.grow("nvlink_recovery_failed", 1)
	}},
	{"gpu/nvlink/crc", result.Fail, "GPU 3", "NVLink CRC errors a second: 100", func(n *fakeNode) { n.grow("nvlink_crc_flit", 50) }},
	{"gpu/nvlink/errors", result.Warn, "GPU 3", "NVLink errors within 500ms: 2", func(n *fakeNode) { n.grow("nvlink_replay", 2) }},
	{"gpu/fabric/state", result.Fail, "GPU 3", "in progress", func(n *fakeNode) { n.g.Fabric.Value.State = 2 }},
	{"gpu/fabric/state", result.Fail, "GPU 3", "ended with", func(n *fakeNode) { n.g.Fabric.Value.Status = "Unknown Error" }},
	{"gpu/fabric/health", result.Fail, "GPU 3", "bandwidth is degraded", func(n *fakeNode) { n.g.Fabric.Value.Health = 0x1a9 }},
	{"gpu/fabric/health", result.Fail, "GPU 3", "too few NVLinks", func(n *fakeNode) { n.g.Fabric.Value.Health = 0x5aa }},
	{"gpu/fabric/health", result.Fail, "GPU 3", "unhealthy", func(n *fakeNode) { n.g.Fabric.Value.Summary = 2 }},
	{"gpu/fabric/limited", result.Warn, "GPU 3", "limited", func(n *fakeNode) { n.g.Fabric.Value.Summary = 3 }},
	{"node/fabric-manager", result.Fail, "node", "4 NVSwitches", func(n *fakeNode) { n.s.Processes.Value = n.s.Processes.Value[:1] }},
	{"gpu/pcie/width", result.Fail, "GPU 3", "8 of 16 lanes", func(n *fakeNode) { n.g.PCIe.Value.Width = 8 }},
	{"gpu/pcie/generation", result.Fail, "GPU 3", "generation 3 of 5", func(n *fakeNode) { n.g.PCIe.Value.Generation = 3 }},
	{"gpu/pcie/slot", result.Warn, "GPU 3", "its slot has 4", func(n *fakeNode) { n.g.PCIe.Value.Generation, n.g.PCIe.Value.MaxGeneration = 4, 4 }},
	{"gpu/pcie/replay", result.Warn, "GPU 3", "PCIe replays within 500ms: 1", func(n *fakeNode) { n.grow("pcie_replay", 1) }},
	{"gpu/pcie/correctable", result.Warn, "GPU 3", "PCIe correctable errors a minute: 120", func(n *fakeNode) { n.grow("pcie_correctable", 1) }},
	{"gpu/pcie/fatal", result.Fail, "GPU 3", "uncorrectable PCIe", func(n *fakeNode) { n.grow("pcie_nonfatal", 1) }},
	{"pci/aer/uncorrectable", result.Fail, "0000:13:00.0", "uncorrectable errors since boot: 1", func(n *fakeNode) { n.d.Errors[bus(3)] = known(sysfs.AER{NonFatal: 1}) }},
	{"pci/aer/correctable", result.Warn, "0000:40:00.0", "correctable errors since boot: 481", func(n *fakeNode) { n.d.Errors[sysfs.BusID{Bus: 0x40}] = known(sysfs.AER{Correctable: 481}) }},
	{"pci/acs", result.Warn, "0000:01:00.0", "root complex", func(n *fakeNode) { n.d.Access[sysfs.BusID{Bus: 1}] = known(sysfs.ACSRequestRedirect) }},
	{"gpu/numa/node", result.Warn, "GPU 3", "2 NUMA nodes", func(n *fakeNode) { n.d.PCI.Value[3].NUMANode = -1 }},
	{"gpu/numa/cpus", result.Warn, "GPU 3", "next to the GPU are 8-9", func(n *fakeNode) { n.d.PCI.Value[3].Local = sysfs.NewCPUSet(8, 9) }},
	{"gpu/clocks/hardware", result.Fail, "GPU 3", "power brake", func(n *fakeNode) { n.g.Clocks = known(nvml.Reasons(0x80)) }},
	{"gpu/clocks/hardware", result.Fail, "GPU 3", "hardware thermal slowdown", func(n *fakeNode) { n.g.Clocks = known(nvml.Reasons(0x48)) }},
	{"gpu/clocks/thermal", result.Warn, "GPU 3", "software thermal", func(n *fakeNode) { n.g.Clocks = known(nvml.Reasons(0x20)) }},
	{"gpu/clocks/violation", result.Warn, "GPU 3", "40 ms", func(n *fakeNode) { n.grow("thermal_violation_ns", 40e6) }},
	{"gpu/temperature/memory", result.Fail, "GPU 3", "95 °C", func(n *fakeNode) { n.g.MemoryHeat = known(95) }},
	{"gpu/temperature/near", result.Warn, "GPU 3", "82 °C", func(n *fakeNode) { n.g.Heat = known(82) }},
	{"gpu/temperature/margin", result.Fail, "GPU 3", "0 °C", func(n *fakeNode) { n.g.Margin = known(0) }},
	{"gpu/recovery", result.Fail, "GPU 3", "GPU reset", func(n *fakeNode) { n.g.Recovery = known("GPU reset") }},
	{"gpu/persistence", result.Warn, "GPU 3", "lets go", func(n *fakeNode) { n.g.Persistence = known(false) }},
	{"gpu/mig", result.Warn, "GPU 3", "MIG", func(n *fakeNode) { n.g.MIG = known(nvml.Modes{Now: true, Pending: true}) }},
	{"gpu/mig", result.Warn, "GPU 3", "next reset", func(n *fakeNode) { n.g.MIG = known(nvml.Modes{Pending: true}) }},
	{"gpu/compute-mode", result.Warn, "GPU 3", "Prohibited", func(n *fakeNode) { n.g.Compute = known("Prohibited") }},
	{"gpu/processes", result.Warn, "GPU 3", "900 (nv-fabricmanage), 4711", func(n *fakeNode) { n.g.Processes = known([]int{900, 4711}) }},
	{"gpu/xid", result.Fail, "GPU 3", "fallen off the bus", func(n *fakeNode) {
		n.log(time.Hour, "NVRM: Xid (PCI:0000:13:00): 79, pid=1, name=python, GPU has fallen off the bus.")
	}},
	{"gpu/xid", result.Warn, "GPU 3", "contained", func(n *fakeNode) {
		n.log(time.Hour, "NVRM: Xid (PCI:0000:13:00): 94, Contained: SM", "NVRM: Xid (PCI:0000:13:00): 45, Ch 1")
	}},
	{"gpu/xid", result.Fail, "GPU 3", "recovery action", func(n *fakeNode) {
		n.log(time.Hour, "NVRM: Xid (PCI:0000:13:00): 154, GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)")
	}},
	{"gpu/init", result.Fail, "0000:19:00.0", "could not start", func(n *fakeNode) {
		n.log(time.Hour, "NVRM: GPU 0000:19:00.0: RmInitAdapter failed! (0x62:0xffff:2433)")
	}},
	{"nic/log", result.Fail, "adapter 0000:5d:00.0", "too little power", func(n *fakeNode) {
		n.log(time.Minute, "mlx5_core 0000:5d:00.0: mlx5_pcie_event:299:(pid 268): Detected insufficient power on the PCIe slot (27W).")
	}},
	{"nic/log", result.Warn, "adapter 0000:5d:00.0", "cable or transceiver", func(n *fakeNode) {
		n.log(time.Minute, "mlx5_core 0000:5d:00.0: Port module event[error]: module 0, Cable error, High Temperature")
	}},
	{"gpu/xid", result.Fail, "0000:19:00.0", "the driver wrote no Xid", func(n *fakeNode) {
		n.log(time.Minute, "NVRM: GPU 0000:19:00.0: GPU has fallen off the bus.")
	}},
	{"gpu/xid", result.Warn, "", "not known", func(n *fakeNode) {
		n.log(time.Minute, "NVRM: Xid (PCI:...): 145, RLW_RXPIPE Nonfatal")
	}},
	{"nvswitch/sxid", result.Fail, "NVSwitch 0000:c1:00.0", "fatal NVSwitch", func(n *fakeNode) {
		n.log(time.Hour, "nvidia-nvswitch0: SXid (PCI:0000:c1:00.0): 20034, Fatal, Link 30 LTSSM Fault Up")
	}},
	{"module/uvm", result.Fail, "node", "nvidia_uvm", func(n *fakeNode) { n.s.Modules.Value = []string{"nvidia", "nvidia_peermem", "gdrdrv"} }},
	{"module/peermem", result.Fail, "node", "not loaded", func(n *fakeNode) {
		n.s.Modules.Value = []string{"gdrdrv", "nvidia", "nvidia_uvm"}
		n.s.Driver = known("NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.65.06")
	}},
	{"module/gdrdrv", result.Warn, "node", "/dev/gdrdrv", func(n *fakeNode) { n.s.Dev = n.s.Dev[1:] }},
	{"port/state", result.Warn, "mlx5_1/1", "DOWN", func(n *fakeNode) { n.port().State, n.port().PhysState = "DOWN", "Polling" }},
	{"port/rate", result.Fail, "mlx5_1/1", "200 Gb/s of 400 Gb/s", func(n *fakeNode) { n.port().Rate.Gbit = 200 }},
	{"port/width", result.Fail, "mlx5_1/1", "1 lanes", func(n *fakeNode) { n.port().Rate.Lanes = 1 }},
	{"port/flaps", result.Warn, "mlx5_1/1", "went down since the counters were cleared: 6", func(n *fakeNode) { n.d.Ports["mlx5_1/1"].Value["link_downed"] = 6 }},
	{"port/recovery", result.Warn, "mlx5_1/1", "cleared: 6", func(n *fakeNode) { n.d.Ports["mlx5_1/1"].Value["link_error_recovery"] = 6 }},
	{"port/integrity", result.Warn, "mlx5_1/1", "physical errors: 1", func(n *fakeNode) { n.d.Ports["mlx5_1/1"].Value["local_link_integrity_errors"] = 1 }},
	{"port/overrun", result.Warn, "mlx5_1/1", "overran: 1", func(n *fakeNode) { n.d.Ports["mlx5_1/1"].Value["excessive_buffer_overrun_errors"] = 1 }},
	{"port/rnr", result.Warn, "mlx5_1/1", "not ready: 1", func(n *fakeNode) { n.d.Ports["mlx5_1/1"].Value["rnr_nak_retry_err"] = 1 }},
	{"port/symbol", result.Warn, "mlx5_1/1", "symbol errors since the counters were cleared: 121", func(n *fakeNode) { n.d.Ports["mlx5_1/1"].Value["symbol_error"] = 121 }},
	{"port/firmware", result.Warn, "MT4129 MT_0000000838", "28.39.1002 (mlx5_1)", func(n *fakeNode) { n.d.RDMA.Value[1].Firmware = "28.39.1002" }},
	{"port/verbs", result.Fail, "node", "2 RDMA devices and 1 files", func(n *fakeNode) {
		n.s.Dev = slices.DeleteFunc(n.s.Dev, func(s string) bool { return s == "infiniband/uverbs1" })
	}},
	{"node/memlock", result.Fail, "node", "64 KiB", func(n *fakeNode) { n.s.Limits.Value["Max locked memory"] = sysfs.Limit{Soft: 65536, Hard: 65536} }},
	{"node/shm", result.Warn, "node", "64 MiB", func(n *fakeNode) { n.s.Mounts.Value[1].Options = []string{"rw", "size=65536k"} }},
	{"node/shm", result.Warn, "node", "nothing is mounted", func(n *fakeNode) { n.s.Mounts.Value = n.s.Mounts.Value[:1] }},
	{"node/memory", result.Warn, "node", "uncorrectable errors 0.01172 MiB", func(n *fakeNode) { n.s.Memory.Value["HardwareCorrupted"] = 12 << 10 }},
	{"node/governor", result.Warn, "node", "powersave on 1", func(n *fakeNode) { n.s.CPUs.Value.Cores[1].Governor = "powersave" }},
	{"node/environment", result.Warn, "node", "CUDA_LAUNCH_BLOCKING", func(n *fakeNode) { n.s.Variables = []string{"CUDA_LAUNCH_BLOCKING"} }},
	{"node/stuck", result.Warn, "node", "4711 (python)", func(n *fakeNode) {
		n.s.Processes.Value = append(n.s.Processes.Value, sysfs.Process{PID: 4711, Name: "python", State: 'D'})
		n.s.Later.Value = append(n.s.Later.Value, sysfs.Process{PID: 4711, Name: "python", State: 'D'})
	}},
}

// A told is what a check says of one object.
type told struct {
	id      string
	object  string
	verdict result.Verdict
	says    string // the reason, or what was measured
	of      *result.Result
}

func (r told) String() string { return fmt.Sprintf("%s %s %s: %s", r.verdict, r.id, r.object, r.says) }

// toldOf is results object by object.
func toldOf(results []result.Result) (out []told) {
	for i := range results {
		r := &results[i]
		objects := r.Objects
		if len(objects) == 0 {
			objects = []result.Object{{Name: theNode, Verdict: r.Verdict, Reason: r.Reason, Measured: r.Measured}}
		}
		for _, o := range objects {
			says := o.Reason
			if m := o.Measured; m != nil {
				says = strings.TrimSpace(says + " " + amount(m.Value, m.Unit))
			}
			out = append(out, told{r.ID, o.Name, o.Verdict, says, r})
		}
	}
	return out
}

// wrong is what is told is neither pass nor skip.
func wrong(results []result.Result) []told {
	return slices.DeleteFunc(toldOf(results), func(r told) bool { return r.verdict == result.Pass || r.verdict == result.Skip })
}

// TestHealthy: nothing is wrong with the node that the faults are put into.
func TestHealthy(t *testing.T) {
	n := newNode(t)
	results := Run(n.State, *n.x, every)
	for _, r := range wrong(results) {
		t.Errorf("%v", r)
	}
	skips := map[string]bool{}
	for _, r := range results {
		if r.Verdict == result.Skip {
			skips[r.ID] = true
		}
		if err := r.Validate(); err != nil || r.Title == "" {
			t.Errorf("%s: title %q, %v", r.ID, r.Title, err)
		}
	}
	for _, id := range []string{"gpu/platform", "gpu/pages/pending", "gpu/pages/retired", "gpu/fabric/clique", "node/imex", "port/count"} {
		if !skips[id] {
			t.Errorf("%s was not skipped", id)
		}
		delete(skips, id)
	}
	if len(skips) > 0 {
		t.Errorf("skipped on a healthy node: %v", skips)
	}
}

// TestFaults: each fault is found, by its check alone, on its object alone.
func TestFaults(t *testing.T) {
	tried := map[string]bool{}
	for _, f := range faults {
		tried[f.check] = true
		t.Run(f.check, func(t *testing.T) {
			n := newNode(t)
			f.inject(n)
			got := wrong(Run(n.State, *n.x, every))
			i := slices.IndexFunc(got, func(r told) bool { return r.id == f.check })
			if i < 0 {
				t.Fatalf("not found; wrong are: %v", got)
			}
			r := got[i]
			if r.verdict != f.verdict || r.object != f.object || !strings.Contains(r.says, f.says) {
				t.Errorf("%v; want %s of %s, and %q in the reason", r, f.verdict, f.object, f.says)
			}
			if bad := r.verdict != result.Error; bad != (r.of.Remedy != "") || bad != (r.of.Wanted != "") || strings.Contains(r.of.Wanted, "%s") {
				t.Errorf("verdict %s, wanted %q, remedy %q", r.verdict, r.of.Wanted, r.of.Remedy)
			}
			for _, r := range got {
				if r.id != f.check && f.check != "gpu/answers" {
					t.Errorf("found besides: %v", r)
				}
			}
		})
	}
	for _, id := range IDs() {
		if !tried[id] && !triedElsewhere[id] {
			t.Errorf("no fault tries %s", id)
		}
	}
}

// triedElsewhere are checks whose faults take more than one, or that only tell.
var triedElsewhere = map[string]bool{
	"driver/nvml": true, "gpu/platform": true, "port/count": true, "gpu/fabric/clique": true, "node/imex": true, // TestSituations
	"gpu/temperature/gpu": true, "gpu/power/cap": true, "gpu/same/power": true, // TestSituations: two checks find them
	"gpu/ecc/dram/uncorrectable": true, "gpu/temperature/spread": true, "node/hugepages": true, // info: TestOverride makes them fail
}
