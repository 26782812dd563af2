package health_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/assay-hpc/assay/dcgm/health"
	"github.com/assay-hpc/assay/harness/nvml"
	"github.com/assay-hpc/assay/harness/platform"
	"github.com/assay-hpc/assay/harness/sysfs"
)

// A fault is something that is put into a healthy node, and what must come of
// it: the one check that finds it, and how.
type fault struct {
	check   string
	verdict health.Verdict
	object  string // name of it
	says    string // in the reason
	inject  func(*node)
}

// A node is what faults are put into.
type node struct {
	t testing.TB
	*health.State
	g *health.Seen // GPU 3
	d *health.Devices
	s *health.System
	l *health.Log
	x *health.Expect
}

func newNode(t testing.TB) *node {
	st, x := healthyNode(), expect(t)
	return &node{t, st, &st.GPUs[3], &st.Node.Devices.Value, &st.Node.System.Value, &st.Node.Log.Value, &x}
}

// grow makes a counter of GPU 3 grow between the readings.
func (n *node) grow(name string, by uint64) { n.g.After.Value[name] += by }

func (n *node) port() *sysfs.RDMAPort { return &n.d.RDMA.Value[1].Ports[0] }

func (n *node) log(age time.Duration, lines ...string) {
	for _, line := range lines {
		at := (n.l.Uptime - age).Microseconds()
		n.l.Messages = append(n.l.Messages, health.ParseLog(fmt.Sprintf("6,1,%d,-;%s\n", at, line), n.Time)...)
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

var faults = []fault{
	{"driver/version", health.Fail, "node", "570.86.15", func(n *node) { n.Driver.Value.Version = "570.86.15" }},
	{"driver/cuda", health.Fail, "node", "CUDA 14", func(n *node) { n.s.CUDA = known("14.0") }},
	{"driver/denylist", health.Fail, "node", "nouveau", func(n *node) { n.s.Modules.Value = append(n.s.Modules.Value, "nouveau") }},
	{"driver/denylist", health.Fail, "node", "0000:12:00.0", func(n *node) { n.d.PCI.Value[2].Driver = "nouveau" }},
	{"gpu/count", health.Fail, "node", "the driver has 7 GPUs, not 8", func(n *node) { n.GPUs = n.GPUs[:7]; n.Driver.Value.GPUs = 7 }},
	{"gpu/count", health.Fail, "node", "the driver has 8 GPUs, not 4", func(n *node) { n.x.Count = count(4) }},
	{"gpu/answers", health.Fail, "GPU 3", "lost", func(n *node) { n.g.Err = nvml.ErrLost }},
	{"gpu/answers", health.Fail, "GPU 3", "reset", func(n *node) { n.g.Err = nvml.ErrReset }},
	{"gpu/answers", health.Error, "GPU 3", "Unknown Error", func(n *node) { n.g.Err = errOdd }},
	{"gpu/same/model", health.Warn, "node", "NVIDIA H100 80GB HBM3 (GPU 3)", func(n *node) { n.g.Name = known("NVIDIA H100 80GB HBM3") }},
	{"gpu/same/vbios", health.Warn, "node", "96.00.74.00.01", func(n *node) { n.g.VBIOS = known("96.00.74.00.01") }},
	{"gpu/same/inforom", health.Warn, "node", "G520.0200.00.03", func(n *node) { n.g.InfoROM = known("G520.0200.00.03") }},
	{"gpu/same/board", health.Warn, "node", "692-2G520-0280-001", func(n *node) { n.g.Board = known("692-2G520-0280-001") }},
	{"gpu/same/gsp", health.Warn, "node", "off (GPU 3)", func(n *node) { n.g.GSP = known("off") }},
	{"gpu/same/gsp", health.Warn, "node", "570.86.15 (GPU 3)", func(n *node) { n.g.GSP = known("570.86.15") }},
	{"gpu/same/memory", health.Warn, "node", "85899345920 B", func(n *node) { n.g.MemoryBytes = known[uint64](80 << 30) }},
	{"gpu/same/clock", health.Warn, "node", "1755 MHz", func(n *node) { n.g.MaxClockMHz = known[uint64](1755) }},
	{"gpu/ecc/mode", health.Warn, "GPU 3", "ECC is off", func(n *node) { n.g.ECC = known(nvml.Modes{}) }},
	{"gpu/ecc/pending", health.Warn, "GPU 3", "off after the next reset", func(n *node) { n.g.ECC = known(nvml.Modes{Now: true}) }},
	{"gpu/ecc/volatile", health.Fail, "GPU 3", "loaded: 2", func(n *node) { n.g.Volatile = known[uint64](2) }},
	{"gpu/ecc/sram/uncorrectable", health.Fail, "GPU 3", "uncorrectable SRAM errors over the GPU's life: 1", func(n *node) { n.g.SRAM.Value.Uncorrectable = 1 }},
	{"gpu/ecc/sram/correctable", health.Warn, "GPU 3", "10001", func(n *node) { n.g.SRAM.Value.Correctable = 10001 }},
	{"gpu/ecc/sram/threshold", health.Fail, "GPU 3", "threshold", func(n *node) { n.g.SRAM.Value.Exceeded = known(true) }},
	{"gpu/ecc/dram/correctable", health.Warn, "GPU 3", "20000001", func(n *node) { n.g.DRAM.Value.Correctable = 20000001 }},
	{"gpu/row-remap/pending", health.Fail, "GPU 3", "next reset", func(n *node) { n.g.Remap.Value.Pending = true }},
	{"gpu/row-remap/failed", health.Fail, "GPU 3", "could not be remapped", func(n *node) { n.g.Remap.Value.Failed = true }},
	{"gpu/row-remap/uncorrectable", health.Fail, "GPU 3", "errors: 512", func(n *node) { n.g.Remap.Value.Uncorrectable = 512 }},
	{"gpu/row-remap/spares", health.Warn, "GPU 3", "left: 1", func(n *node) { n.g.Spent = known(1) }},
	{"gpu/pages/pending", health.Fail, "GPU 3", "page of memory", func(n *node) { n.g.Pages = known(nvml.Pages{Pending: true}) }},
	{"gpu/pages/retired", health.Fail, "GPU 3", "memory: 63", func(n *node) { n.g.Pages = known(nvml.Pages{SingleBit: 60, DoubleBit: 3}) }},
	{"gpu/memory/repairable", health.Fail, "GPU 3", "cannot be repaired", func(n *node) { n.g.Unfixable = known(true) }},
	{"gpu/memory/repair", health.Warn, "GPU 3", "waits for a reset", func(n *node) { n.g.Repair = known(true) }},
	{"gpu/inforom", health.Fail, "GPU 3", "corrupt", func(n *node) { n.g.InfoROMOK = known(false) }},
	{"gpu/nvlink/links", health.Fail, "GPU 3", "16 of 18 NVLinks are up; down: 4, 9", func(n *node) { n.g.Links.Value[4].Up, n.g.Links.Value[9].Up = false, false }},
	{"gpu/nvlink/speed", health.Fail, "node", "13281 MB/s (GPU 3)", func(n *node) { n.g.Links.Value[0].Mbit = 13281 }},
	{"gpu/nvlink/peer", health.Fail, "GPU 3", "some to a GPU", func(n *node) { n.g.Links.Value[0].To = "GPU" }},
	{"gpu/nvlink/p2p", health.Fail, "GPU 3", "GPU 5: unknown", func(n *node) { n.g.Peers.Value[5] = "unknown" }},
	{"gpu/nvlink/recovery", health.Fail, "GPU 3", "loaded: 1", func(n *node) {
		n.g.Before.Value[nvml.NVLinkRecovery] = 1
		n.grow(nvml.NVLinkRecovery, 1)
	}},
	{"gpu/nvlink/recovery-failed", health.Fail, "GPU 3", "failed", func(n *node) {
		n.g.Before.Value[nvml.NVLinkRecoveryFailed] = 1
		n.grow(nvml.NVLinkRecoveryFailed, 1)
	}},
	{"gpu/nvlink/crc", health.Fail, "GPU 3", "NVLink CRC errors a second: 100", func(n *node) { n.grow(nvml.NVLinkCRCFlit, 50) }},
	{"gpu/nvlink/errors", health.Warn, "GPU 3", "NVLink errors within 500ms: 2", func(n *node) { n.grow(nvml.NVLinkReplay, 2) }},
	{"gpu/fabric/state", health.Fail, "GPU 3", "in progress", func(n *node) { n.g.Fabric.Value.State = 2 }},
	{"gpu/fabric/state", health.Fail, "GPU 3", "ended with", func(n *node) { n.g.Fabric.Value.Status = "Unknown Error" }},
	{"gpu/fabric/health", health.Fail, "GPU 3", "bandwidth is degraded", func(n *node) { n.g.Fabric.Value.Health = 0x1a9 }},
	{"gpu/fabric/health", health.Fail, "GPU 3", "too few NVLinks", func(n *node) { n.g.Fabric.Value.Health = 0x5aa }},
	{"gpu/fabric/health", health.Fail, "GPU 3", "unhealthy", func(n *node) { n.g.Fabric.Value.Summary = 2 }},
	{"gpu/fabric/limited", health.Warn, "GPU 3", "limited", func(n *node) { n.g.Fabric.Value.Summary = 3 }},
	{"node/fabric-manager", health.Fail, "node", "4 NVSwitches", func(n *node) { n.s.Processes.Value = n.s.Processes.Value[:1] }},
	{"gpu/pcie/width", health.Fail, "GPU 3", "8 of 16 lanes", func(n *node) { n.g.PCIe.Value.Width = 8 }},
	{"gpu/pcie/generation", health.Fail, "GPU 3", "generation 3 of 5", func(n *node) { n.g.PCIe.Value.Generation = 3 }},
	{"gpu/pcie/slot", health.Warn, "GPU 3", "its slot has 4", func(n *node) { n.g.PCIe.Value.Generation, n.g.PCIe.Value.MaxGeneration = 4, 4 }},
	{"gpu/pcie/replay", health.Warn, "GPU 3", "PCIe replays within 500ms: 1", func(n *node) { n.grow(nvml.PCIeReplay, 1) }},
	{"gpu/pcie/correctable", health.Warn, "GPU 3", "PCIe correctable errors a minute: 120", func(n *node) { n.grow(nvml.PCIeCorrectable, 1) }},
	{"gpu/pcie/fatal", health.Fail, "GPU 3", "uncorrectable PCIe", func(n *node) { n.grow(nvml.PCIeNonFatal, 1) }},
	{"pci/aer/uncorrectable", health.Fail, "0000:13:00.0", "uncorrectable errors since boot: 1", func(n *node) { n.d.Errors[bus(3)] = known(sysfs.AER{NonFatal: 1}) }},
	{"pci/aer/correctable", health.Warn, "0000:40:00.0", "correctable errors since boot: 481", func(n *node) { n.d.Errors[sysfs.BusID{Bus: 0x40}] = known(sysfs.AER{Correctable: 481}) }},
	{"pci/acs", health.Warn, "0000:01:00.0", "root complex", func(n *node) { n.d.Access[sysfs.BusID{Bus: 1}] = known(sysfs.ACSRequestRedirect) }},
	{"gpu/numa/node", health.Warn, "GPU 3", "2 NUMA nodes", func(n *node) { n.d.PCI.Value[3].NUMANode = -1 }},
	{"gpu/numa/cpus", health.Warn, "GPU 3", "next to the GPU are 8-9", func(n *node) { n.d.PCI.Value[3].Local = sysfs.NewCPUSet(8, 9) }},
	{"gpu/clocks/hardware", health.Fail, "GPU 3", "power brake", func(n *node) { n.g.Clocks = known(nvml.Reasons(0x80)) }},
	{"gpu/clocks/hardware", health.Fail, "GPU 3", "hardware thermal slowdown", func(n *node) { n.g.Clocks = known(nvml.Reasons(0x48)) }},
	{"gpu/clocks/thermal", health.Warn, "GPU 3", "software thermal", func(n *node) { n.g.Clocks = known(nvml.Reasons(0x20)) }},
	{"gpu/clocks/violation", health.Warn, "GPU 3", "40 ms", func(n *node) { n.grow(nvml.ThermalViolation, 40e6) }},
	{"gpu/temperature/memory", health.Fail, "GPU 3", "95 °C", func(n *node) { n.g.MemoryHeat = known(95) }},
	{"gpu/temperature/near", health.Warn, "GPU 3", "82 °C", func(n *node) { n.g.Heat = known(82) }},
	{"gpu/temperature/margin", health.Fail, "GPU 3", "0 °C", func(n *node) { n.g.Margin = known(0) }},
	{"gpu/recovery", health.Fail, "GPU 3", "GPU reset", func(n *node) { n.g.Recovery = known("GPU reset") }},
	{"gpu/persistence", health.Warn, "GPU 3", "lets go", func(n *node) { n.g.Persistence = known(false) }},
	{"gpu/mig", health.Warn, "GPU 3", "MIG", func(n *node) { n.g.MIG = known(nvml.Modes{Now: true, Pending: true}) }},
	{"gpu/mig", health.Warn, "GPU 3", "next reset", func(n *node) { n.g.MIG = known(nvml.Modes{Pending: true}) }},
	{"gpu/compute-mode", health.Warn, "GPU 3", "Prohibited", func(n *node) { n.g.Compute = known("Prohibited") }},
	{"gpu/processes", health.Warn, "GPU 3", "900 (nv-fabricmanage), 4711", func(n *node) { n.g.Processes = known([]int{900, 4711}) }},
	{"gpu/xid", health.Fail, "GPU 3", "fallen off the bus", func(n *node) {
		n.log(time.Hour, "NVRM: Xid (PCI:0000:13:00): 79, pid=1, name=python, GPU has fallen off the bus.")
	}},
	{"gpu/xid", health.Warn, "GPU 3", "contained", func(n *node) {
		n.log(time.Hour, "NVRM: Xid (PCI:0000:13:00): 94, Contained: SM", "NVRM: Xid (PCI:0000:13:00): 45, Ch 1")
	}},
	{"gpu/xid", health.Fail, "GPU 3", "recovery action", func(n *node) {
		n.log(time.Hour, "NVRM: Xid (PCI:0000:13:00): 154, GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)")
	}},
	{"gpu/init", health.Fail, "0000:19:00.0", "could not start", func(n *node) { n.log(time.Hour, "NVRM: GPU 0000:19:00.0: RmInitAdapter failed! (0x62:0xffff:2433)") }},
	{"nvswitch/sxid", health.Fail, "NVSwitch 0000:c1:00.0", "fatal NVSwitch", func(n *node) {
		n.log(time.Hour, "nvidia-nvswitch0: SXid (PCI:0000:c1:00.0): 20034, Fatal, Link 30 LTSSM Fault Up")
	}},
	{"module/uvm", health.Fail, "node", "nvidia_uvm", func(n *node) { n.s.Modules.Value = []string{"nvidia", "nvidia_peermem", "gdrdrv"} }},
	{"module/peermem", health.Fail, "node", "not loaded", func(n *node) {
		n.s.Modules.Value = []string{"gdrdrv", "nvidia", "nvidia_uvm"}
		n.s.Driver = known("NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.65.06")
	}},
	{"module/gdrdrv", health.Warn, "node", "/dev/gdrdrv", func(n *node) { n.s.Dev = n.s.Dev[1:] }},
	{"port/state", health.Warn, "mlx5_1/1", "DOWN", func(n *node) { n.port().State, n.port().PhysState = "DOWN", "Polling" }},
	{"port/rate", health.Fail, "mlx5_1/1", "200 Gb/s of 400 Gb/s", func(n *node) { n.port().Rate.Gbit = 200 }},
	{"port/width", health.Fail, "mlx5_1/1", "1 lanes", func(n *node) { n.port().Rate.Lanes = 1 }},
	{"port/flaps", health.Warn, "mlx5_1/1", "went down since the counters were cleared: 6", func(n *node) { n.d.Ports["mlx5_1/1"].Value["link_downed"] = 6 }},
	{"port/recovery", health.Warn, "mlx5_1/1", "cleared: 6", func(n *node) { n.d.Ports["mlx5_1/1"].Value["link_error_recovery"] = 6 }},
	{"port/integrity", health.Warn, "mlx5_1/1", "physical errors: 1", func(n *node) { n.d.Ports["mlx5_1/1"].Value["local_link_integrity_errors"] = 1 }},
	{"port/overrun", health.Warn, "mlx5_1/1", "overran: 1", func(n *node) { n.d.Ports["mlx5_1/1"].Value["excessive_buffer_overrun_errors"] = 1 }},
	{"port/rnr", health.Warn, "mlx5_1/1", "not ready: 1", func(n *node) { n.d.Ports["mlx5_1/1"].Value["rnr_nak_retry_err"] = 1 }},
	{"port/symbol", health.Warn, "mlx5_1/1", "symbol errors since the counters were cleared: 121", func(n *node) { n.d.Ports["mlx5_1/1"].Value["symbol_error"] = 121 }},
	{"port/firmware", health.Warn, "MT4129 MT_0000000838", "28.39.1002 (mlx5_1)", func(n *node) { n.d.RDMA.Value[1].Firmware = "28.39.1002" }},
	{"port/verbs", health.Fail, "node", "2 RDMA devices and 1 files", func(n *node) {
		n.s.Dev = slices.DeleteFunc(n.s.Dev, func(s string) bool { return s == "infiniband/uverbs1" })
	}},
	{"node/memlock", health.Fail, "node", "64 KiB", func(n *node) { n.s.Limits.Value["Max locked memory"] = sysfs.Limit{Soft: 65536, Hard: 65536} }},
	{"node/shm", health.Warn, "node", "64 MiB", func(n *node) { n.s.Mounts.Value[1].Options = []string{"rw", "size=65536k"} }},
	{"node/shm", health.Warn, "node", "nothing is mounted", func(n *node) { n.s.Mounts.Value = n.s.Mounts.Value[:1] }},
	{"node/governor", health.Warn, "node", "powersave on 1", func(n *node) { n.s.CPUs.Value.Cores[1].Governor = "powersave" }},
	{"node/environment", health.Warn, "node", "CUDA_LAUNCH_BLOCKING", func(n *node) { n.s.Variables = []string{"CUDA_LAUNCH_BLOCKING"} }},
	{"node/stuck", health.Warn, "node", "4711 (python)", func(n *node) {
		n.s.Processes.Value = append(n.s.Processes.Value, sysfs.Process{PID: 4711, Name: "python", State: 'D'})
		n.s.Later.Value = append(n.s.Later.Value, sysfs.Process{PID: 4711, Name: "python", State: 'D'})
	}},
}

// rows is how a result is told in a test.
func row(r health.Result) string {
	return fmt.Sprintf("%s %s %s: %s", r.Verdict, r.ID, r.Object.Name, r.Reason)
}

// wrong are the results that are neither pass nor skip.
func wrong(results []health.Result) []health.Result {
	return slices.DeleteFunc(slices.Clone(results), func(r health.Result) bool { return r.Verdict == health.Pass || r.Verdict == health.Skip })
}

// TestHealthy: nothing is wrong with the node that the faults are put into.
func TestHealthy(t *testing.T) {
	n := newNode(t)
	results := health.Run(n.State, *n.x, every)
	for _, r := range wrong(results) {
		t.Errorf("%s", row(r))
	}
	skips := map[string]bool{}
	for _, r := range results {
		if r.Verdict == health.Skip {
			skips[r.ID] = true
		}
		if r.Threshold == "" || r.Source == "" || r.Title == "" || strings.Contains(r.Threshold, "%") {
			t.Errorf("%s: title %q, threshold %q, source %q", r.ID, r.Title, r.Threshold, r.Source)
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
			got := wrong(health.Run(n.State, *n.x, every))
			i := slices.IndexFunc(got, func(r health.Result) bool { return r.ID == f.check })
			if i < 0 {
				t.Fatalf("not found; wrong are: %v", got)
			}
			r := got[i]
			if r.Verdict != f.verdict || r.Object.Name != f.object || !strings.Contains(r.Reason, f.says) {
				t.Errorf("%s; want %s of %s, and %q in the reason", row(r), f.verdict, f.object, f.says)
			}
			if (r.Remedy == "") != (r.Verdict == health.Error) {
				t.Errorf("verdict %s, remedy %q", r.Verdict, r.Remedy)
			}
			for _, r := range got {
				if r.ID != f.check && f.check != "gpu/answers" {
					t.Errorf("found besides: %s", row(r))
				}
			}
		})
	}
	for _, id := range health.IDs() {
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
