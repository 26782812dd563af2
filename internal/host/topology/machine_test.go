package topology

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/assay-hpc/assay/internal/host/nvml"
	"github.com/assay-hpc/assay/internal/host/sysfs"
	"github.com/assay-hpc/assay/internal/host/sysfs/sysfstest"
)

// load reads a file of testdata.
func load(t testing.TB, name string) *System {
	t.Helper()
	f, err := os.Open(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	s, err := Load(f)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return s
}

func id(s string) sysfs.BusID {
	b, err := sysfs.ParseBusID(s)
	if err != nil {
		panic(err)
	}
	return b
}

// A tree is a machine's /sys and /proc in the making.
type tree struct{ b strings.Builder }

func (m *tree) file(name, content string) { fmt.Fprintf(&m.b, "-- %s --\n%s\n", name, content) }

// pci adds a function; path is its place below /sys/devices.
func (m *tree) pci(path string, attrs map[string]string) {
	name := filepath.Base(path)
	m.file("link:sys/bus/pci/devices/"+name, "../../../devices/"+path)
	for k, v := range attrs {
		m.file("sys/devices/"+path+"/"+k, v)
	}
}

func (m *tree) node(id int, cpus, distance string) {
	dir := fmt.Sprintf("sys/devices/system/node/node%d/", id)
	m.file(dir+"cpulist", cpus)
	m.file(dir+"distance", distance)
}

// h100 is the tree of a DGX H100: under each of eight host bridges a root
// port, a switch with a NIC, and in it a second switch with the GPU. Its
// addresses are the real machine's.
func h100() []byte {
	m := &tree{}
	m.node(0, "0-51", "10 21")
	m.node(1, "52-103", "21 10")
	m.file("sys/devices/system/cpu/online", "0-103")
	m.file("proc/cpuinfo", "vendor_id\t: GenuineIntel\ncpu family\t: 6\nmodel\t\t: 143\nmodel name\t: Intel(R) Xeon(R) Platinum 8480C\n")
	m.file("proc/sys/kernel/hostname", "dgx")
	m.file("proc/sys/kernel/random/boot_id", "8f3f0fb4-5c6d-4a43-9a2f-2f0f6f0d3a11")
	bridge := map[string]string{"class": "0x060400", "vendor": "0x1000", "device": "0xc030", "max_link_speed": "32.0 GT/s PCIe", "max_link_width": "16"}
	for i, root := range []int{0x15, 0x3d, 0x4b, 0x59, 0x97, 0xb7, 0xc7, 0xd7} {
		numa, local := "0", "0-51"
		if i >= 4 {
			numa, local = "1", "52-103"
		}
		with := func(class, vendor, device string) map[string]string {
			return map[string]string{
				"class": class, "vendor": vendor, "device": device, "numa_node": numa, "local_cpulist": local,
				"max_link_speed": "32.0 GT/s PCIe", "max_link_width": "16", "current_link_speed": "2.5 GT/s PCIe", "current_link_width": "16",
			}
		}
		path := fmt.Sprintf("pci0000:%02x", root)
		down := func(format string, bus int) string { return path + fmt.Sprintf("/0000:"+format, bus) }
		path = down("%02x:01.0", root)
		m.pci(path, bridge)
		path = down("%02x:00.0", root+1) // the outer switch's upstream port
		m.pci(path, bridge)
		m.pci(down("%02x:00.0", root+2), bridge)
		nic := down("%02x:00.0", root+2) + fmt.Sprintf("/0000:%02x:00.0", root+3)
		m.pci(nic, with("0x020700", "0x15b3", "0x1021"))
		rdma := fmt.Sprintf("sys/devices/%s/infiniband/mlx5_%d", nic, i)
		m.file("link:sys/class/infiniband/"+filepath.Base(rdma), "../../"+strings.TrimPrefix(rdma, "sys/"))
		m.file("link:"+rdma+"/device", "../../../"+filepath.Base(nic))
		m.file(rdma+"/node_guid", fmt.Sprintf("a088:c203:0000:%04x", i))
		m.file(rdma+"/ports/1/rate", "400 Gb/sec (4X NDR)")
		m.file(rdma+"/ports/1/state", "4: ACTIVE")
		m.file(rdma+"/ports/1/link_layer", "InfiniBand")
		path = down("%02x:01.0", root+2)
		m.pci(path, bridge)
		path = down("%02x:00.0", root+4) // the inner switch's
		m.pci(path, bridge)
		path = down("%02x:00.0", root+5)
		m.pci(path, bridge)
		m.pci(down("%02x:00.0", root+6), with("0x030200", "0x10de", "0x2330"))
	}
	return []byte(m.b.String())
}

// A driver is an NVML that says what a test wants.
type driver struct {
	gpus []nvml.Place
	err  error
}

func (d driver) Places() ([]nvml.Place, error) { return d.gpus, d.err }

// h100Driver has 18 NVLinks a GPU, to four NVSwitches.
func h100Driver(fs sysfs.FS) driver {
	var d driver
	list, _ := fs.PCI()
	for _, p := range list {
		if !p.IsGPU() {
			continue
		}
		g := nvml.Place{BusID: p.BusID, Name: "NVIDIA H100 80GB HBM3", UUID: fmt.Sprintf("GPU-%d", len(d.gpus)), SM: 90}
		for i, n := range []int{4, 5, 5, 4} {
			for range n {
				g.Links = append(g.Links, nvml.Link{Remote: id(fmt.Sprintf("0000:%02x:00.0", 5+i)), To: "switch"})
			}
		}
		d.gpus = append(d.gpus, g)
	}
	return d
}

// h100JSON is the machine as read; laying out its tree takes half a second.
var h100JSON []byte

func readH100(t testing.TB) *System {
	t.Helper()
	if h100JSON == nil {
		fs := sysfstest.Tree(t, h100())
		s, err := Read(Sources{FS: fs, NVML: h100Driver(fs)})
		if err != nil {
			t.Fatal(err)
		}
		var b bytes.Buffer
		if err := s.WriteJSON(&b, nil); err != nil {
			t.Fatal(err)
		}
		h100JSON = b.Bytes()
	}
	s, err := readJSON(bytes.NewReader(h100JSON))
	if err != nil {
		t.Fatal(err)
	}
	if len(s.Notes) > 0 {
		t.Errorf("notes: %v", s.Notes)
	}
	return s
}

// readVM reads the virtual machine that internal/host/sysfs has a capture of.
func readVM(t testing.TB, lib NVML) *System {
	t.Helper()
	b, err := os.ReadFile("../sysfs/testdata/h200-vm.txtar")
	if err != nil {
		t.Fatal(err)
	}
	s, err := Read(Sources{FS: sysfstest.Tree(t, b), NVML: lib})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func vmDriver() driver {
	var d driver
	for _, b := range []string{"00000000:00:06.0", "00000000:00:07.0"} {
		g := nvml.Place{BusID: id(b), Name: "NVIDIA H200", SM: 90}
		for range 18 {
			g.Links = append(g.Links, nvml.Link{Remote: sysfs.OpaqueBusID, To: "switch"})
		}
		d.gpus = append(d.gpus, g)
	}
	return d
}

var errDriver = errors.New("the driver is not loaded")
