package topology

import (
	"bytes"
	"errors"
	"io/fs"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/assay-hpc/assay/internal/golden"
	"github.com/assay-hpc/assay/internal/host/nvml"
	"github.com/assay-hpc/assay/internal/host/sysfs/sysfstest"
)

func matrixText(t testing.TB, s *System, opt MatrixOptions) string {
	t.Helper()
	var b strings.Builder
	if err := s.Matrix(opt).Write(&b, false); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// TestMatrix holds whole machines against goldens.
func TestMatrix(t *testing.T) {
	for _, name := range []string{"a100-8", "pcie-2", "nv2-2", "dgx1-v100", "gb200-4", "h200-vm"} {
		t.Run(name, func(t *testing.T) {
			golden.Check(t, name+".matrix", matrixText(t, load(t, name+".xml"), MatrixOptions{}))
		})
	}
	t.Run("dgx-h100", func(t *testing.T) {
		golden.Check(t, "dgx-h100.matrix", matrixText(t, readH100(t), MatrixOptions{}))
	})
}

// TestMatrixOfDriver580 compares byte for byte with what nvidia-smi of driver
// 580 printed on the machine of the capture.
func TestMatrixOfDriver580(t *testing.T) {
	s := readVM(t, vmDriver())
	const head = "\t\x1b[4mGPU0\tGPU1\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\x1b[0m\n"
	for _, tt := range []struct {
		name string
		opt  MatrixOptions
		want string
		tail string
	}{
		{"-m", MatrixOptions{}, head + "GPU0\t X \tNV18\t0-31\t0\t\tN/A\nGPU1\tNV18\t X \t0-31\t0\t\tN/A\n\nLegend:\n\n  X    = Self\n", "bridge\n  NV#  = Connection traversing a bonded set of # NVLinks\n"},
		{"-mp", MatrixOptions{PCIOnly: true}, head + "GPU0\t X \tPHB\t0-31\t0\t\tN/A\nGPU1\tPHB\t X \t0-31\t0\t\tN/A\n\nLegend:\n\n  X    = Self\n", "at most a single PCIe bridge\n"},
	} {
		var b strings.Builder
		if err := s.Matrix(tt.opt).Write(&b, true); err != nil {
			t.Fatal(err)
		}
		if got := b.String(); !strings.HasPrefix(got, tt.want) || !strings.HasSuffix(got, tt.tail) {
			t.Errorf("%s:\n%q\nwant %q … %q", tt.name, got, tt.want, tt.tail)
		}
	}
}

// TestMatrixOfChapter compares with the tables of the networking chapter that
// the project started from: GPUs, CPU and NUMA affinity.
func TestMatrixOfChapter(t *testing.T) {
	table := func(link string, cpus [2]string) string {
		rows := "GPU0 GPU1 GPU2 GPU3 GPU4 GPU5 GPU6 GPU7 CPU Affinity NUMA Affinity\n"
		for i := range 8 {
			cells := []string{"GPU" + string(rune('0'+i))}
			for j := range 8 {
				if i == j {
					cells = append(cells, "X")
				} else {
					cells = append(cells, link)
				}
			}
			rows += strings.Join(append(cells, cpus[i/4], string(rune('0'+i/4))), " ") + "\n"
		}
		return rows
	}
	two := func(a, b, c, d, cpus string) string {
		return "GPU0 GPU1 CPU Affinity NUMA Affinity\nGPU0 " + a + " " + b + " " + cpus + " 0\nGPU1 " + c + " " + d + " " + cpus + " 0\n"
	}
	for _, tt := range []struct {
		name string
		sys  *System
		want string
	}{
		{"A100", load(t, "a100-8.xml"), table("NV12", [2]string{"0-23", "24-47"})},
		{"H100", readH100(t), table("NV18", [2]string{"0-51", "52-103"})},
		// The chapter's small machines say N/A for the NUMA node, which these files have.
		{"two with NVLink", load(t, "nv2-2.xml"), two("X", "NV2", "NV2", "X", "0-23")},
		{"two without", load(t, "pcie-2.xml"), two("X", "PHB", "PHB", "X", "0-11")},
	} {
		tt.sys.NICs = nil
		if diff := cmp.Diff(tt.want, columns(matrixText(t, tt.sys, MatrixOptions{}))); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.name, diff)
		}
	}
}

// columns is a matrix's table with single blanks, without the column that the
// chapter's driver did not have yet.
func columns(matrix string) string {
	table, _, _ := strings.Cut(matrix, "\nLegend")
	var out strings.Builder
	for line := range strings.Lines(table) {
		line = strings.TrimSuffix(strings.Join(strings.Fields(line), " "), " GPU NUMA ID")
		out.WriteString(strings.TrimSuffix(line, " N/A") + "\n")
	}
	return out.String()
}

// TestRead looks at what the matrix does not show.
func TestRead(t *testing.T) {
	s := readH100(t)
	g := s.GPUs[0]
	if g.BusID != id("0000:1b:00.0") || g.HostBridge != "pci0000:15" || len(g.Switches) != 2 || g.Switches[0] != id("0000:16:00.0") || g.Switches[1] != id("0000:19:00.0") {
		t.Errorf("GPU0 is at %+v", g.PCI)
	}
	if g.Link.GTs != 32 || g.Link.Width != 16 {
		t.Errorf("GPU0's link = %+v; want the best it can do, not the idle one", g.Link)
	}
	if len(g.NVLinks) != 4 || g.NVLinks[1].Count != 5 {
		t.Errorf("GPU0's NVLinks = %+v; want four bonds", g.NVLinks)
	}
	if n := s.NICs[0]; n.Name != "mlx5_0" || n.Mbit != 400_000 || n.GUID != "0xa088c20300000000" || n.State != "ACTIVE" {
		t.Errorf("NIC0 = %+v", n)
	}
	if s.Host != "dgx" || len(s.Switches) != 16 {
		t.Errorf("host %q, %d switches; want dgx, 16", s.Host, len(s.Switches))
	}
}

// TestReadDegraded: what is missing leaves the rest.
func TestReadDegraded(t *testing.T) {
	s := readVM(t, nil)
	if len(s.GPUs) != 2 || s.Path(0, 1).Label != "PHB" || len(s.NICs) != 1 || s.NICs[0].Name != "eth0" {
		t.Errorf("without NVML: %d GPUs, path %v, NICs %+v", len(s.GPUs), s.Path(0, 1), s.NICs)
	}
	s = readVM(t, driver{err: errDriver})
	if len(s.GPUs) != 2 || len(s.Notes) != 1 || !strings.Contains(s.Notes[0], "driver is not loaded") {
		t.Errorf("NVML fails: %d GPUs, notes %v", len(s.GPUs), s.Notes)
	}
	hidden := vmDriver()
	hidden.gpus = append(hidden.gpus[1:], nvml.Place{BusID: id("0000:09:00.0"), Links: hidden.gpus[0].Links, SM: 90})
	s = readVM(t, hidden)
	if len(s.GPUs) != 2 || s.GPUs[0].BusID != id("0000:00:07.0") || s.GPUs[1].NUMA != -1 || s.Path(0, 1).Label != "NV18" {
		t.Errorf("a GPU that /sys hides: %+v", s.GPUs)
	}
	empty := sysfstest.Tree(t, nil)
	if _, err := Read(Sources{FS: empty}); !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), "is /sys mounted?") {
		t.Errorf("Read of nothing: %v", err)
	}
	bare := sysfstest.Tree(t, []byte("-- sys/devices/system/cpu/online --\n0-7\n"))
	s, err := Read(Sources{FS: bare})
	if err != nil || len(s.CPUs) != 1 || s.CPUs[0].CPUs.Len() != 8 || s.Devices() != 0 || s.Notes != nil {
		t.Errorf("a kernel without NUMA, PCI and network: %+v, %v", s, err)
	}
	broken := sysfstest.Tree(t, []byte("-- sys/devices/system/cpu/online --\n0-7\n-- sys/devices/system/node/node0/cpulist --\nall\n-- sys/bus/pci/devices --\n-- sys/class/net/eth0/device/x --\n-- sys/class/net/eth0/mtu --\nbig\n"))
	s, err = Read(Sources{FS: broken})
	if err != nil || len(s.Notes) != 3 || len(s.NICs) != 1 {
		t.Errorf("a broken tree: notes %q, %d NICs, %v; want 3 notes, 1 NIC", s.Notes, len(s.NICs), err)
	}
}

func TestPath(t *testing.T) {
	h100, v100, a100, gb := readH100(t), load(t, "dgx1-v100.xml"), load(t, "a100-8.xml"), load(t, "gb200-4.xml")
	for _, tt := range []struct {
		name string
		sys  *System
		i, j int
		want Path
	}{
		{"itself", h100, 3, 3, Path{Label: "X", Class: LOC, GBps: 5000}},
		{"NVSwitch", h100, 0, 7, Path{Label: "NV18", Class: NVL, Links: 18, GBps: 370.8}},
		{"own NIC", h100, 0, 8, Path{Label: "PXB", Class: PXB, GBps: 48}},
		{"a NIC of the socket, by its GPU", h100, 0, 9, Path{Label: "NODE", Class: PXN, GBps: 48}},
		{"a NIC of the other socket, by its GPU", h100, 0, 15, Path{Label: "SYS", Class: PXN, GBps: 48}},
		{"two NICs of a socket", h100, 8, 9, Path{Label: "NODE", Class: PHB, GBps: 48}},
		{"two NICs of two sockets", h100, 8, 12, Path{Label: "SYS", Class: SYS, GBps: 22}},
		{"one NVLink", v100, 0, 1, Path{Label: "NV1", Class: NVL, Links: 1, GBps: 20}},
		{"a relay", v100, 0, 5, Path{Label: "SYS", Class: NVB, GBps: 20}},
		{"one switch", v100, 0, 8, Path{Label: "PIX", Class: PIX, GBps: 12}},
		{"NVLink to the GPU near the NIC", v100, 0, 9, Path{Label: "PHB", Class: PXN, GBps: 12}},
		{"A100's own NIC", a100, 0, 8, Path{Label: "PIX", Class: PIX, GBps: 24}},
		{"its neighbour's NIC", a100, 0, 9, Path{Label: "PXB", Class: PXB, GBps: 24}},
		{"C2C and PCI", gb, 0, 4, Path{Label: "NODE", Class: P2C, GBps: 48}},
		{"no C2C across sockets", gb, 0, 7, Path{Label: "SYS", Class: SYS, GBps: 6}},
		{"Blackwell", gb, 0, 3, Path{Label: "NV18", Class: NVL, Links: 18, GBps: 721.8}},
	} {
		for _, ij := range [][2]int{{tt.i, tt.j}, {tt.j, tt.i}} {
			got := tt.sys.Path(ij[0], ij[1])
			got.GBps = float64(int(got.GBps*10+0.5)) / 10
			if got != tt.want {
				t.Errorf("%s: Path(%d, %d) = %+v (%v); want %+v (%v)", tt.name, ij[0], ij[1], got, got.Class, tt.want, tt.want.Class)
			}
		}
	}
}

// TestNCCLAgrees holds figures against those in NCCL 2.28's log of the
// captured machine: 370.8 GB/s between the GPUs, 48 to the processor, 1.2 to
// the network.
func TestNCCLAgrees(t *testing.T) {
	s := load(t, "h200-vm.xml")
	if got := s.Path(0, 1); got.Class != NVL || int(got.GBps*10) != 3708 {
		t.Errorf("GPU to GPU = %+v; want NVL, 370.8", got)
	}
	if got := pcieBandwidth(s.GPUs[0].Link); got != 48 {
		t.Errorf("GPU to processor = %v; want 48", got)
	}
	if got := s.NICs[0].GBps(); int(got*10) != 12 {
		t.Errorf("network = %v; want 1.2", got)
	}
}

func TestSlots(t *testing.T) {
	at := func(bus string, behind bool) PCI {
		return PCI{BusID: id(bus), HostBridge: "pci0000:00", BehindPort: behind}
	}
	for _, tt := range []struct {
		name string
		a, b PCI
		want string
	}{
		{"two functions of a card", at("0000:41:00.0", true), at("0000:41:00.1", true), "PIX"},
		{"virtual functions of a bus behind a port", at("0000:41:00.0", true), at("0000:41:01.3", true), "PIX"},
		{"two devices of the root's bus", at("0000:00:06.0", false), at("0000:00:07.0", false), "PHB"},
		{"two root ports", at("0000:41:00.0", true), at("0000:42:00.0", true), "PHB"},
	} {
		if got := relate(&tt.a, &tt.b); got.Label != tt.want {
			t.Errorf("%s: %s; want %s", tt.name, got.Label, tt.want)
		}
	}
}

// TestUnevenLinks: through switches the GPU with fewer links decides, and one
// whose links are down falls back to PCI.
func TestUnevenLinks(t *testing.T) {
	s := readH100(t)
	s.GPUs[1].NVLinks = s.GPUs[1].NVLinks[:2] // 9 links
	s.GPUs[2].NVLinks = nil
	if got := s.Path(0, 1).Label; got != "NV9" {
		t.Errorf("18 and 9 links: %s; want NV9", got)
	}
	if got := s.Path(0, 2).Label; got != "NODE" {
		t.Errorf("18 links and none: %s; want NODE", got)
	}
	v := load(t, "nv2-2.xml")
	v.GPUs[1].NVLinks = nil
	if got := v.Path(0, 1).Label; got != "NV2" {
		t.Errorf("links listed on one side: %s; want NV2", got)
	}
}

func TestFigures(t *testing.T) {
	for sm, want := range map[int]float64{0: 20, 60: 18, 70: 20, 75: 20, 80: 20, 86: 12, 89: 12, 90: 20.6, 100: 40.1, 120: 40.1} {
		if got := nvlinkBandwidth(sm); got != want {
			t.Errorf("NVLinkGBps(%d) = %v; want %v", sm, got, want)
		}
	}
	intel := func(model int) NUMA { return NUMA{Vendor: "GenuineIntel", Family: 6, Model: model} }
	for want, c := range map[float64]NUMA{
		6: intel(79), 10: intel(106), 22: intel(143), 40: intel(207), 16: {Vendor: "AuthenticAMD"}, 32: {Arch: "ppc64"}, 12: {},
	} {
		if got := socketGBps(c); got != want {
			t.Errorf("socketGBps(%+v) = %v; want %v", c, got, want)
		}
	}
}

// TestJSON: the JSON form loses nothing.
func TestJSON(t *testing.T) {
	node := 2
	for _, name := range []string{"a100-8.xml", "gb200-4.xml", "dgx1-v100.xml"} {
		s := load(t, name)
		s.GPUs[0].MemoryNode = &node
		s.Notes = []string{"a note"}
		var b bytes.Buffer
		if err := s.WriteJSON(&b, s.Matrix(MatrixOptions{})); err != nil {
			t.Fatal(err)
		}
		got, err := Load(&b)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(s, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
		if text := matrixText(t, got, MatrixOptions{}); !strings.Contains(text, "\t\t2\n") {
			t.Errorf("GPU NUMA ID is lost:\n%s", text)
		}
	}
}

// TestXML: NCCL's form keeps what it has room for, and the matrix.
func TestXML(t *testing.T) {
	for _, name := range []string{"a100-8", "pcie-2", "nv2-2", "dgx1-v100", "gb200-4", "h200-vm"} {
		s := load(t, name+".xml")
		got, text := rewrite(t, s)
		if diff := cmp.Diff(s, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s\n%s", name, diff, text)
		}
	}
	s := readH100(t)
	got, text := rewrite(t, s)
	golden.Check(t, "dgx-h100.xml", text)
	if want, got := matrixText(t, s, MatrixOptions{}), matrixText(t, got, MatrixOptions{}); want != got {
		t.Errorf("the matrix after a round trip:\n%s\nwant:\n%s", got, want)
	}
}

func rewrite(t testing.TB, s *System) (*System, string) {
	t.Helper()
	var b strings.Builder
	if err := s.WriteXML(&b); err != nil {
		t.Fatal(err)
	}
	got, err := Load(strings.NewReader(b.String()))
	if err != nil {
		t.Fatalf("%v in\n%s", err, b.String())
	}
	return got, b.String()
}
