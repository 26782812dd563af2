package health

import (
	"errors"
	"maps"
	"testing"
	"time"

	"github.com/assay-hpc/assay/internal/host/nvml"
	"github.com/assay-hpc/assay/internal/host/sysfs"
	"github.com/assay-hpc/assay/internal/platform"
)

// known is a fact, shorter.
func known[T any](v T) sysfs.Fact[T] { return sysfs.Known(v) }

var errOdd = errors.New("NVML: Unknown Error")

// bus is the address of a fake's GPU.
func bus(i int) sysfs.BusID { return sysfs.BusID{Bus: uint8(0x10 + i)} }

// healthy is the GPU of a node in which all is well: an H200 of eight.
func healthy(i int) nvml.GPU {
	var links []nvml.Link
	for l := range 18 {
		links = append(links, nvml.Link{Number: l, Up: true, To: "switch", Mbit: 26562})
	}
	peers := map[int]string{}
	for p := range 8 {
		if p != i {
			peers[p] = "OK"
		}
	}
	return nvml.GPU{
		Index: i, UUID: "GPU-0000000" + string(rune('0'+i)), Bus: bus(i), ID: "2335",
		Name: known("NVIDIA H200"), VBIOS: known("96.00.AB.00.01"), InfoROM: known("G520.0200.00.05"), Board: known("692-2G520-0200-000"), GSP: known("570.86.10"),
		MemoryBytes: known[uint64](150754820096), MaxClockMHz: known[uint64](1980),
		ECC: known(nvml.Modes{Now: true, Pending: true}), Volatile: known[uint64](0), SRAM: known(nvml.ECCCount{}), Exceeded: known(false), DRAM: known(nvml.ECCCount{}),
		Remap: known(nvml.Remap{}), Spent: known(0), Pages: sysfs.Unknown[nvml.Pages](nvml.ErrNotSupported),
		Unfixable: known(false), Repair: known(false), InfoROMOK: known(true), Links: known(links),
		Fabric: known(nvml.Fabric{State: 3, Health: 0x1aa, Summary: 1}), Peers: known(peers),
		PCIe:   known(nvml.PCIe{Generation: 5, Width: 16, MaxGeneration: 5, MaxWidth: 16, OwnGeneration: 5}),
		Clocks: known(nvml.Reasons(1)), Pstate: known(0), Heat: known(30 + i%3), Hottest: known(87), MemoryHeat: known(34), MemoryMax: known(95), Margin: known(56),
		Power: known(nvml.Power{Limit: 700, Default: 700}), Persistence: known(true), MIG: known(nvml.Modes{}), Compute: known("Default"),
		Recovery: known("None"), Processes: known([]int{}),
	}
}

// counters are those of a healthy GPU, at both readings.
func counters() map[string]uint64 {
	return map[string]uint64{
		"nvlink_crc_flit": 12, "nvlink_crc_data": 0, "nvlink_replay": 0, "nvlink_recovery": 0, "nvlink_recovery_failed": 0,
		"pcie_replay": 3, "pcie_correctable": 0, "pcie_nonfatal": 0, "pcie_fatal": 0, "thermal_violation_ns": 7e6, "board_violation_ns": 0,
	}
}

// healthyNode is the state of a node of eight H200s and one network card, all
// well.
func healthyNode() *State {
	bridge := sysfs.BusID{Bus: 1}
	nic := sysfs.BusID{Bus: 0x40}
	d := deviceState{
		Errors: map[sysfs.BusID]sysfs.Fact[sysfs.AER]{}, Access: map[sysfs.BusID]sysfs.Fact[sysfs.ACS]{bridge: known(sysfs.ACS(0))},
		Ports: map[string]sysfs.Fact[map[string]uint64]{},
	}
	cpus := sysfs.NewCPUSet(0, 1, 2, 3)
	s := &State{Window: 500 * time.Millisecond, Time: time.Date(2026, 11, 22, 15, 0, 0, 0, time.UTC), Took: 620 * time.Millisecond}
	s.Driver = known(nvml.Driver{GPUs: 8, Version: "580.65.06", Library: "13.580.65.06", CUDA: 13000})
	for i := range 8 {
		s.GPUs = append(s.GPUs, gpuState{GPU: healthy(i), Before: known(counters()), After: known(counters())})
		d.PCI.Value = append(d.PCI.Value, sysfs.PCIDevice{
			BusID: bus(i), Class: 0x030200, Vendor: sysfs.VendorNVIDIA, Device: 0x2335, NUMANode: i / 4, Local: cpus, Driver: "nvidia", Bridges: []sysfs.BusID{bridge},
		})
		d.Errors[bus(i)] = known(sysfs.AER{})
	}
	for i := range 4 {
		d.PCI.Value = append(d.PCI.Value, sysfs.PCIDevice{BusID: sysfs.BusID{Bus: uint8(0x50 + i)}, Class: 0x068000, Vendor: sysfs.VendorNVIDIA, Device: 0x22a3, Driver: "nvidia"})
	}
	d.Errors[nic] = known(sysfs.AER{Correctable: 3})
	d.RDMA.Value = []sysfs.RDMADevice{rdma("mlx5_0", nic), rdma("mlx5_1", sysfs.BusID{Bus: 0x41})}
	for _, name := range []string{"mlx5_0/1", "mlx5_1/1"} {
		d.Ports[name] = known(map[string]uint64{
			"link_downed": 1, "link_error_recovery": 0, "local_link_integrity_errors": 0, "excessive_buffer_overrun_errors": 0, "symbol_error": 4, "rnr_nak_retry_err": 0,
		})
	}
	s.Node.Devices = known(d)
	s.Node.System = known(systemState{
		Host: "node1", Driver: known("NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.65.06  Release Build"),
		Modules: known([]string{"gdrdrv", "nvidia", "nvidia_peermem", "nvidia_uvm"}),
		Limits:  known(map[string]sysfs.Limit{"Max locked memory": {Soft: sysfs.Unlimited, Hard: sysfs.Unlimited}}),
		Memory:  known(map[string]uint64{"MemTotal": 2 << 40, "HardwareCorrupted": 0, "HugePages_Total": 0, "HugePages_Free": 0, "Hugepagesize": 2 << 20}),
		Mounts:  known([]sysfs.Mount{{Dir: "/", Type: "ext4"}, {Dir: "/dev/shm", Type: "tmpfs", Options: []string{"rw"}}}),
		CPUs:    known(sysfs.CPUs{Cores: []sysfs.Core{{ID: 0, Governor: "performance"}, {ID: 1, Governor: "performance"}}}),
		Nodes:   known([]sysfs.NUMANode{{ID: 0}, {ID: 1}}), Allowed: known(cpus),
		Processes: known([]sysfs.Process{{PID: 1, Name: "systemd", State: 'S'}, {PID: 900, Name: "nv-fabricmanage", State: 'S'}, {PID: 30, Name: "kworker/0:1", State: 'D', Kernel: true}}),
		Dev:       []string{"gdrdrv", "infiniband/uverbs0", "infiniband/uverbs1", "nvidia-uvm", "nvidia0", "nvidia1", "nvidia2", "nvidia3", "nvidia4", "nvidia5", "nvidia6", "nvidia7"},
		CUDA:      known("12.9.1"),
	})
	s.Node.Log = known(logState{File: "/dev/kmsg", Uptime: 100 * time.Hour})
	return s
}

func rdma(name string, id sysfs.BusID) sysfs.RDMADevice {
	return sysfs.RDMADevice{
		Name: name, HCAType: "MT4129", Board: "MT_0000000838", Firmware: "28.43.1014", BusID: id, OnPCI: true,
		Ports: []sysfs.RDMAPort{{Number: 1, State: "ACTIVE", PhysState: "LinkUp", LinkLayer: "InfiniBand", Rate: sysfs.RDMARate{Gbit: 400, Lanes: 4, Name: "NDR"}}},
	}
}

// expect is what nobody said anything about.
func expect(t testing.TB) Expect {
	t.Helper()
	rules, err := LoadRules()
	if err != nil {
		t.Fatal(err)
	}
	db, err := platform.Load()
	if err != nil {
		t.Fatal(err)
	}
	return Expect{Since: 2 * time.Hour, DB: db, Rules: rules}
}

func every(string) bool { return true }

// A source is a fake driver: it serves a state's GPUs.
type source struct {
	state *State
	hang  map[int]string // GPUs that never answer, and to what
	never chan struct{}
}

func (s *source) Driver() (nvml.Driver, error) { return s.state.Driver.Value, s.state.Driver.Err }

func (s *source) GPU(i int, asking func(string)) (nvml.GPU, error) {
	if what := s.hang[i]; what != "" {
		asking(what)
		<-s.never
	}
	return s.state.GPUs[i].GPU, s.state.GPUs[i].Err
}

func (s *source) Counters(i int) (map[string]uint64, error) {
	return maps.Clone(s.state.GPUs[i].Before.Value), s.state.GPUs[i].Before.Err
}
