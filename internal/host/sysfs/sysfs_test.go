package sysfs_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/assay-hpc/assay/internal/host/sysfs"
	"github.com/assay-hpc/assay/internal/host/sysfs/sysfstest"
)

func tree(t *testing.T, name string) sysfs.FS {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return sysfstest.Tree(t, b)
}

func must[T any](t *testing.T) func(T, error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func id(s string) sysfs.BusID {
	b, err := sysfs.ParseBusID(s)
	if err != nil {
		panic(err)
	}
	return b
}

func TestVirtualMachine(t *testing.T) {
	f := tree(t, "h200-vm.txtar")
	pci := must[[]sysfs.PCIDevice](t)(f.PCI())
	if len(pci) != 8 {
		t.Fatalf("PCI: %d devices; want 8", len(pci))
	}
	gpu := sysfs.PCILink{GTs: 32, Width: 16}
	want := sysfs.PCIDevice{
		BusID: id("0000:00:06.0"), HostBridge: "pci0000:00", Bridges: []sysfs.BusID{}, Class: 0x030200, Vendor: 0x10de, Device: 0x2335,
		SubVendor: 0x10de, SubDevice: 0x18bf, Link: gpu, MaxLink: gpu, NUMANode: -1, Local: must[sysfs.CPUSet](t)(sysfs.ParseCPUList("0-31")), Driver: "nvidia",
	}
	if diff := cmp.Diff(want, pci[6]); diff != "" {
		t.Errorf("the first GPU (-want +got):\n%s", diff)
	}
	if !pci[6].IsGPU() || pci[3].IsGPU() {
		t.Errorf("IsGPU of the GPU and the network card = %v, %v", pci[6].IsGPU(), pci[3].IsGPU())
	}
	nodes := must[[]sysfs.NUMANode](t)(f.NUMANodes())
	if len(nodes) != 1 || nodes[0].CPUs.String() != "0-31" || !cmp.Equal(nodes[0].Distances, []int{10}) {
		t.Errorf("NUMANodes = %+v", nodes)
	}
	cpus := must[sysfs.CPUs](t)(f.CPUs())
	if cpus.Model != (sysfs.CPUModel{Vendor: "GenuineIntel", Name: "Intel(R) Xeon(R) Processor", Family: 6, Model: 207}) || cpus.Online.Len() != 32 || len(cpus.Cores) != 2 || cpus.Problems != nil {
		t.Errorf("CPUs = %+v", cpus)
	}
	ifs := must[[]sysfs.Interface](t)(f.Interfaces())
	wantIfs := []sysfs.Interface{
		{Name: "eth0", Index: 2, OperState: "up", MTU: 1500, Type: 1, Address: "06:00:00:00:00:01", BusID: id("0000:00:03.0"), OnPCI: true},
		{Name: "lo", Index: 1, OperState: "unknown", MTU: 65536, Type: 772, Address: "00:00:00:00:00:00", Virtual: true},
	}
	if diff := cmp.Diff(wantIfs, ifs); diff != "" {
		t.Errorf("Interfaces (-want +got):\n%s", diff)
	}
	if rdma, err := f.RDMADevices(); len(rdma) != 0 || err != nil {
		t.Errorf("RDMADevices of an empty class = %v, %v", rdma, err)
	}
	host := must[sysfs.Host](t)(f.Host())
	if host != (sysfs.Host{Name: "vm", BootID: "8f3f0fb4-5c6d-4a43-9a2f-2f0f6f0d3a11"}) {
		t.Errorf("Host = %+v", host)
	}
}

func TestRDMA(t *testing.T) {
	f := tree(t, "rdma.txtar")
	list := must[[]sysfs.RDMADevice](t)(f.RDMADevices())
	var names []string
	for _, d := range list {
		names = append(names, d.Name)
	}
	if got := strings.Join(names, " "); got != "mlx5_2 mlx5_10 rxe0" {
		t.Fatalf("RDMADevices = %s; want them by number", got)
	}
	wantPort := sysfs.RDMAPort{
		Number: 1, State: "ACTIVE", PhysState: "LinkUp", LinkLayer: "InfiniBand", Rate: sysfs.RDMARate{Gbit: 400, Lanes: 4, Name: "NDR"}, LID: 26, SMLID: 1,
	}
	want := sysfs.RDMADevice{
		Name: "mlx5_10", NodeType: "1: CA", HCAType: "MT4129", Firmware: "28.39.1002", Board: "MT_0000000838", NodeGUID: "a088:c203:0012:3456",
		BusID: id("0000:18:00.0"), OnPCI: true, Ports: []sysfs.RDMAPort{wantPort},
	}
	if diff := cmp.Diff(want, list[1]); diff != "" {
		t.Errorf("mlx5_10 (-want +got):\n%s", diff)
	}
	gids := must[[]sysfs.GID](t)(f.GIDs("mlx5_10", 1))
	if diff := cmp.Diff([]sysfs.GID{{Index: 0, GID: "fe80:0000:0000:0000:a088:c203:0012:3456"}}, gids); diff != "" {
		t.Errorf("mlx5_10's GIDs (-want +got):\n%s", diff)
	}
	counters := must[map[string]uint64](t)(f.Counters("mlx5_10", 1))
	if diff := cmp.Diff(map[string]uint64{"port_xmit_data": 1234567890123, "symbol_error": 0, "out_of_sequence": 7}, counters); diff != "" {
		t.Errorf("mlx5_10's counters (-want +got):\n%s", diff)
	}
	if _, err := f.Counters("rxe0", 1); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("counters of a port without any: %v; want not there", err)
	}
	if _, err := f.GIDs("mlx5_10", 2); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("addresses of no port: %v; want not there", err)
	}
	roce := list[0]
	if !cmp.Equal(roce.Netdevs, []string{"ens1f0"}) || len(roce.Problems) != 1 || !strings.HasSuffix(roce.Problems[0].Error(), `mlx5_2/ports/1/lid: strconv.ParseUint: parsing "zero": invalid syntax`) {
		t.Errorf("mlx5_2: netdevs %v, problems %v", roce.Netdevs, roce.Problems)
	}
	wantGIDs := []sysfs.GID{
		{Index: 0, GID: "fe80:0000:0000:0000:a288:c2ff:fe12:3456", Type: "IB/RoCE v1"},
		{Index: 3, GID: "0000:0000:0000:0000:0000:ffff:0a00:0001", Type: "RoCE v2", Netdev: "ens1f0"},
	}
	if diff := cmp.Diff(wantGIDs, must[[]sysfs.GID](t)(f.GIDs("mlx5_2", 1))); diff != "" {
		t.Errorf("mlx5_2's GIDs (-want +got):\n%s", diff)
	}
	if rxe := list[2]; rxe.OnPCI || rxe.Ports[0].Rate.Gbit != 2.5 || len(rxe.Problems) != 1 { // its phys_state has no number
		t.Errorf("rxe0 = %+v", rxe)
	}
}

// TestAnswers: there, not there, could not tell.
func TestAnswers(t *testing.T) {
	f := tree(t, "rdma.txtar")
	if _, err := f.NUMANodes(); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("NUMANodes without the class: %v; want not there", err)
	}
	if _, err := f.CPUs(); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("CPUs without the class: %v; want not there", err)
	}
	if _, err := f.Host(); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("Host without /proc: %v; want not there", err)
	}
	pci := must[[]sysfs.PCIDevice](t)(f.PCI())
	if len(pci) != 3 {
		t.Fatalf("PCI: %d devices; want 3", len(pci))
	}
	if len(pci[0].Problems) != 0 || pci[0].MaxLink != (sysfs.PCILink{}) || !cmp.Equal(pci[0].Bridges, []sysfs.BusID{id("0000:15:01.0")}) {
		t.Errorf("a link of unknown speed: %+v", pci[0])
	}
	var bad *sysfs.AttrError
	if p := pci[1].Problems; len(p) != 2 || !errors.As(p[0], &bad) || bad.File != "/sys/bus/pci/devices/0000:19:00.0/max_link_speed" {
		t.Errorf("broken attributes: %v; want max_link_speed and local_cpulist", p)
	}
	if len(pci[2].Problems) == 0 || pci[2].HostBridge != "" {
		t.Errorf("a link that leads nowhere: %+v; want a problem", pci[2])
	}
	ifs := must[[]sysfs.Interface](t)(f.Interfaces())
	if len(ifs) != 1 || ifs[0].Mbit != 200000 || ifs[0].BusID != id("0000:19:00.0") {
		t.Errorf("Interfaces = %+v; bonding_masters is none", ifs)
	}
	if _, err := sysfs.Open(filepath.Join(t.TempDir(), "none")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("Open of nothing: %v", err)
	}
}

// TestThisMachine reads the machine's own files: whatever it is, nothing may
// panic, and it has a processor.
func TestThisMachine(t *testing.T) {
	var f sysfs.FS
	cpus, err := f.CPUs()
	if err != nil || cpus.Online.Len() == 0 {
		t.Skipf("this machine shows no processors in /sys: %v", err)
	}
	for name, list := range map[string]func() error{
		"PCI":         func() error { _, err := f.PCI(); return err },
		"NUMANodes":   func() error { _, err := f.NUMANodes(); return err },
		"Interfaces":  func() error { _, err := f.Interfaces(); return err },
		"RDMADevices": func() error { _, err := f.RDMADevices(); return err },
		"Host":        func() error { _, err := f.Host(); return err },
	} {
		if err := list(); err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
