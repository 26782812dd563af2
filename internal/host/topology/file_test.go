package topology

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/assay-hpc/assay/internal/host/sysfs"
	"github.com/assay-hpc/assay/internal/host/sysfs/sysfstest"
)

// TestLoadRefuses: mistakes name the line and what is wrong.
func TestLoadRefuses(t *testing.T) {
	in := func(body string) string {
		return "<system version=\"1\">\n<cpu numaid=\"0\">\n" + body + "\n</cpu></system>"
	}
	gpu := `<pci busid="0000:01:00.0"><gpu dev="0"/></pci>`
	for _, tt := range []struct{ name, file, want string }{
		{"nothing", "", "it is empty"},
		{"something else", "hello", "begins with 'h'"},
		{"no system", "<graphs/>", "line 1: no <system>"},
		{"no cpu", "<system/>", "no <cpu>"},
		{"not closed", "<system>\n<cpu>", "line 2: unexpected EOF"},
		{"bus id", in(`<pci busid="x"/>`), `line 3: <pci>: busid: "x" is no PCI address`},
		{"speed", in(`<pci busid="0000:01:00.0" link_speed="fast"/>`), "no link speed"},
		{"number", in(`<pci busid="0000:01:00.0"><gpu dev="first"/></pci>`), `dev="first" is not a number from -1 to 4095`},
		{"links", in(`<pci busid="0000:01:00.0"><gpu dev="0"><nvlink target="0000:02:00.0" count="0"/></gpu></pci>`), `count="0" is not a number from 1 to 1024`},
		{"link's class", in(`<pci busid="0000:01:00.0"><gpu dev="0"><nvlink target="0000:02:00.0" tclass="0x020000"/></gpu></pci>`), "neither a GPU's"},
		{"affinity", "<system><cpu affinity=\"0-3\"/></system>", "not a mask of processors"},
		{"node twice", `<system><cpu numaid="0"/><cpu numaid="0"/></system>`, "numaid 0 is there twice"},
		{"smi", "\tGPU0\tGPU1\nGPU0\t X \tNV18\n", "nvidia-smi topo -m"},
		{"GPU and NIC", in(`<pci busid="0000:01:00.0"><gpu dev="0"/><nic/></pci>`), "at once"},
		{"no name", in(`<nic><net dev="0"/></nic>`), "it has no name"},
		{"latency", in(`<nic><net name="a" latency="soon"/></nic>`), "not a number of microseconds"},
		{"guid", in(`<nic><net name="a" guid="soon"/></nic>`), "no 64-bit number"},
		{"document type", "<!DOCTYPE x [<!ENTITY a \"aaaa\">]>" + in(gpu), "document type"},
		{"entity", in(`<pci busid="&a;"/>`), "entity"},
		{"depth", in(strings.Repeat(`<pci busid="0000:01:00.0">`, 40)), "in one another"},
		{"elements", in(strings.Repeat(`<x/>`, maxElements)), "more than 65536 elements"},
		{"size", in("<!--" + strings.Repeat("x", maxXML) + "-->"), "longer than"},
		{"GPUs", in(numbered(maxGPUs+1, `<pci busid="%04x:01:00.0"><gpu dev="0"/></pci>`)), "129 GPUs, more than 128: the file must describe one machine"},
		{"switches", in(numbered(maxSwitches+1, `<pci busid="%04x:01:00.0" class="0x060400"/>`)), "257 PCI switches, more than 256"},
		{"switches above", in(numbered(maxAbove+1, `<pci busid="%04x:03:00.0">`) + gpu + strings.Repeat(`</pci>`, maxAbove+1)), "9 PCI switches above it, more than 8"},
		{"cards", in(numbered(maxNICs+1, `<nic><net name="e%d"/></nic>`)), "1025 network cards, more than 1024"},
		{"nodes", "<system>" + numbered(maxCPUs+1, `<cpu numaid="%d"/>`) + "</system>", "1025 NUMA nodes, more than 1024"},
		{"many links", in(`<pci busid="0000:01:00.0"><gpu dev="0">` + numbered(maxLinks+1, `<nvlink target="%04x:02:00.0"/>`) + `</gpu></pci>`), "GPU 0000:01:00.0: NVLinks to 65 ends, more than 64"},
		{"JSON with many GPUs", `{"schema": 1, "cpus": [{"id": 0, "cpus": "0"}], "gpus": [` + numbered(maxGPUs, `{"bus_id": "%04x:01:00.0"}, `) + `{"bus_id": "0000:02:00.0"}]}`, "129 GPUs, more than 128"},
		{"JSON", `{"schema": 1, "cpus": 3}`, "no topology in JSON"},
		{"JSON's schema", `{"schema": 2, "cpus": []}`, "schema 2: this version reads schema 1"},
		{"JSON without processors", `{"schema": 1, "gpus": []}`, "no cpus"},
		{"JSON with a link to nowhere", `{"schema": 1, "cpus": [{"id": 0, "cpus": "0"}], "gpus": [{"bus_id": "0000:01:00.0", "nvlinks": [{"target": "0000:02:00.0", "count": 1, "to": "moon"}]}]}`, `to "moon"`},
		{"JSON twice", `{"schema": 1, "cpus": [{"id": 0, "cpus": "0"}], "gpus": [{"bus_id": "0000:01:00.0"}, {"bus_id": "0000:01:00.0"}]}`, "is there twice"},
	} {
		_, err := Load(strings.NewReader(tt.file))
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v; want …%s…", tt.name, err, tt.want)
		}
	}
	for _, tt := range []struct {
		file string
		gpus int
		note string
	}{
		{in(gpu + "\n" + gpu), 1, "line 4: <pci>: busid 0000:01:00.0 is there twice; the second is left out"},
		{in(`<pci busid="0000:09:00.0">` + gpu + `</pci><pci busid="0000:09:00.0"><pci busid="0000:02:00.0"><gpu dev="1"/></pci></pci>`), 2, "what is below both is taken to be below one switch"},
	} {
		sys, err := Load(strings.NewReader(tt.file))
		if err != nil || len(sys.GPUs) != tt.gpus || len(sys.Notes) != 1 || !strings.Contains(sys.Notes[0], tt.note) {
			t.Errorf("%s: %+v, %v; want %d GPUs and %q", tt.file, sys, err, tt.gpus, tt.note)
		}
	}
	var syntax *syntaxError
	if _, err := Load(strings.NewReader(in(`<pci busid="x"/>`))); !errors.As(err, &syntax) || syntax.Line != 3 {
		t.Errorf("%v is no SyntaxError of line 3", err)
	}
}

// numbered repeats a text with the numbers from 0 on.
func numbered(n int, format string) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, format, i)
	}
	return b.String()
}

// TestLargest: machines at the limits have a matrix, where all GPUs have a card
// of their own and reach the others' over NVSwitches, and where they have none.
func TestLargest(t *testing.T) {
	for _, tt := range []struct {
		name                   string
		above                  int // switches
		link                   string
		toGPU, toOwn, toOthers string
	}{
		{"NVSwitches", 1, `<nvlink target="%04x:09:00.0" tclass="0x068000"/>`, "NV64 NVL", "PIX PIX", "PHB PXN"},
		{"links to nowhere", maxAbove, `<nvlink target="%04x:09:00.0" tclass="0x030200"/>`, "PHB PHB", "PIX PIX", "PHB PHB"},
	} {
		var b strings.Builder
		b.WriteString(`<system><cpu numaid="0">`)
		each := max(1, maxGPUs*tt.above/maxSwitches) // GPUs below a row of switches
		for i := range maxGPUs {
			if i%each == 0 {
				for k := range tt.above {
					fmt.Fprintf(&b, `<pci busid="%04x:%02x:00.0" class="0x060400">`, i, 0x10+k)
				}
			}
			fmt.Fprintf(&b, `<pci busid="%04x:01:00.0"><gpu dev="%d" sm="90">%s</gpu></pci>`, i, i, numbered(maxLinks, tt.link))
			fmt.Fprintf(&b, `<pci busid="%04x:02:00.0"><nic>%s</nic></pci>`, i, numbered(maxNICs/maxGPUs, fmt.Sprintf(`<net name="m%d_%%d" port="1"/>`, i)))
			if i%each == each-1 {
				b.WriteString(strings.Repeat(`</pci>`, tt.above))
			}
		}
		b.WriteString(`</cpu></system>`)
		s, err := Load(strings.NewReader(b.String()))
		if err != nil {
			t.Errorf("%s: %v", tt.name, err)
			continue
		}
		m := s.Matrix(MatrixOptions{})
		if n := len(m.Rows); n != maxGPUs+maxNICs {
			t.Fatalf("%s: %d rows; want %d", tt.name, n, maxGPUs+maxNICs)
		}
		paths := m.Rows[0].Paths
		for _, p := range []struct {
			to   int
			want string
		}{{maxGPUs - 1, tt.toGPU}, {maxGPUs, tt.toOwn}, {maxGPUs + maxNICs - 1, tt.toOthers}} {
			if got := paths[p.to].Label + " " + paths[p.to].Class.String(); got != p.want {
				t.Errorf("%s: the path from device 0 to %d is %s; want %s", tt.name, p.to, got, p.want)
			}
		}
	}
}

// TestLoadLenient: what NCCL takes is taken: hints without devices, numbers in
// hexadecimal, links without a class, elements of later versions.
func TestLoadLenient(t *testing.T) {
	s, err := Load(strings.NewReader(`<?xml version="1.0"?>
<!-- a file such as clouds ship -->
<system version="1">
  <cpu numaid="0x1" affinity="0000ffff" arch="x86_64">
    <pci busid="ffff:ff:01.0" class="0x060400" link_speed="16 GT/s" link_width="16">
      <pci busid="0001:00:00.0" class="0x030200" link_speed="16 GT/s" link_width="16"/>
      <pci busid="0101:00:00.0" class="0x020700"/>
      <pci busid="0002:00:00.0"><gpu dev="0x1" sm="80"><nvlink target="0003:00:00.0" count="4"/><nvlink target="0009:00:00.0" count="2"/></gpu></pci>
    </pci>
    <pci busid="0003:00:00.0" class=""><gpu dev="0" later="1"/></pci>
    <later/>
  </cpu>
</system>`))
	if err != nil {
		t.Fatal(err)
	}
	if len(s.GPUs) != 3 || s.GPUs[0].BusID != id("0003:00:00.0") || s.GPUs[2].Index != -1 {
		t.Errorf("GPUs = %+v; want those with numbers first, by number", s.GPUs)
	}
	if l := s.GPUs[1].NVLinks; l[0].To != ToGPU || l[1].To != ToSwitch {
		t.Errorf("links without a class: %+v", l)
	}
	if len(s.NICs) != 1 || s.Label(0) != "0101:00:00.0" || !s.NICs[0].RDMA {
		t.Errorf("NICs = %+v", s.NICs)
	}
	if s.Path(2, 3).Label != "PIX" {
		t.Errorf("the GPU and the NIC of the hints: %+v", s.Path(2, 3))
	}
}

func TestPortLabels(t *testing.T) {
	s, err := Load(strings.NewReader(`<system><cpu numaid="0"><pci busid="0000:61:00.0"><nic><net name="mlx5_4" dev="0" port="1"/><net name="mlx5_4" dev="1" port="2"/></nic></pci></cpu></system>`))
	if err != nil {
		t.Fatal(err)
	}
	if s.Label(0) != "mlx5_4:1" || s.Label(1) != "mlx5_4:2" || s.Path(0, 1).Label != "PIX" {
		t.Errorf("two ports: %s, %s, %s", s.Label(0), s.Label(1), s.Path(0, 1).Label)
	}
}

func TestHostID(t *testing.T) {
	env := func(id string) func(string) string {
		return func(name string) string {
			if name == "NCCL_HOSTID" {
				return id
			}
			return ""
		}
	}
	host := func(name, boot string) sysfs.FS {
		return sysfstest.Tree(t, []byte("-- proc/sys/kernel/hostname --\n"+name+"\n-- proc/sys/kernel/random/boot_id --\n"+boot+"\n"))
	}
	get := func(id string, fs sysfs.FS) uint64 {
		v, err := HostID(env(id), fs)
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	a := get("", host("a", "1"))
	if a != get("", host("a", "1")) {
		t.Error("the same host has two IDs")
	}
	if a == get("", host("b", "1")) || a == get("", host("a", "2")) || a == get("", host("a1", "")) {
		t.Error("two hosts have one ID")
	}
	if get("rack1", host("a", "1")) != get("rack1", host("b", "2")) || get("rack1", host("a", "1")) == get("rack2", host("a", "1")) {
		t.Error("NCCL_HOSTID does not decide")
	}
	if _, err := HostID(env(""), sysfstest.Tree(t, nil)); err == nil {
		t.Error("HostID without /proc succeeds")
	}
}

// FuzzXML: what is accepted is written and read back the same, and everything
// that is asked of it answers.
func FuzzXML(f *testing.F) {
	files, _ := filepath.Glob("testdata/*.xml")
	for _, name := range files {
		b, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Add([]byte(`<system><cpu><pci busid="0:0.0"><gpu/></pci></cpu></system>`))
	f.Add([]byte(`<system><cpu numaid="-1"><nic><net name="a&lt;&#x9;"/></nic><pci busid="0:0.0" host_bridge="x" class="0x030000"/></cpu></system>`))
	f.Fuzz(func(t *testing.T, data []byte) {
		s, err := readXML(bytes.NewReader(data), 0)
		if err != nil || s.Devices() > 64 {
			return
		}
		got, text := rewrite(t, s)
		if diff := cmp.Diff(s, got); diff != "" {
			t.Errorf("(-want +got):\n%s\n%s", diff, text)
		}
		s.Matrix(MatrixOptions{AllNICs: true})
		s.Rings()
		s.Rails()
	})
}

// FuzzJSON: nothing that is accepted makes the rest panic.
func FuzzJSON(f *testing.F) {
	var b bytes.Buffer
	s := load(f, "gb200-4.xml")
	if err := s.WriteJSON(&b, nil); err != nil {
		f.Fatal(err)
	}
	f.Add(b.Bytes())
	f.Add([]byte(`{"schema":1,"cpus":[{"id":0,"cpus":"0-3"}],"gpus":[{"bus_id":"0000:01:00.0","index":-5,"sm":-1}],"nics":[{"name":""}]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		s, err := readJSON(bytes.NewReader(data))
		if err != nil || s.Devices() > 64 {
			return
		}
		s.Matrix(MatrixOptions{AllNICs: true})
		s.Rings()
		s.Rails()
		var out bytes.Buffer
		if err := s.WriteXML(&out); err != nil {
			t.Fatal(err)
		}
	})
}

// TestOverlay: a cloud's file tells a virtual machine where its GPUs sit.
func TestOverlay(t *testing.T) {
	s := readVM(t, vmDriver())
	file, err := Load(strings.NewReader(`<system version="1">
  <cpu numaid="0" affinity="0000ffff"><pci busid="ffff:ff:01.0" class="0x060400">
    <pci busid="0000:00:06.0" class="0x030200" link_speed="16 GT/s" link_width="16"/><pci busid="0000:00:03.0" class="0x020000"/>
  </pci></cpu>
  <cpu numaid="1" affinity="ffff0000"><pci busid="0000:00:07.0" class="0x030200"/><pci busid="0000:00:17.0" class="0x030200"/></cpu>
</system>`))
	if err != nil {
		t.Fatal(err)
	}
	s.Overlay(file)
	if len(s.GPUs) != 2 || s.Path(0, 1).Label != "NV18" || s.PCIPath(0, 1).Label != "SYS" || s.PCIPath(0, 2).Label != "PIX" {
		t.Errorf("%d GPUs; paths %+v, %+v, %+v", len(s.GPUs), s.Path(0, 1), s.PCIPath(0, 1), s.PCIPath(0, 2))
	}
	if g := s.GPUs[1]; g.CPUAffinity.String() != "16-31" || g.NUMAAffinity.String() != "1" || g.Name != "NVIDIA H200" || g.Link.GTs != 32 {
		t.Errorf("GPU1 = %+v", g)
	}
	if s.GPUs[0].Link.GTs != 16 || len(s.CPUs) != 2 || len(s.Switches) != 1 {
		t.Errorf("GPU0's link %+v, %d nodes, %d switches", s.GPUs[0].Link, len(s.CPUs), len(s.Switches))
	}
}

// TestHosts: of a file with several hosts one is read, and what is odd about it is said.
func TestHosts(t *testing.T) {
	const file = `<system>
	<cpu host_hash="0x1" numaid="0"><pci busid="1:0.0" class="0x030200"><gpu dev="0"><nvlink target="fffffff:ff:ff.0" count="18"/></gpu></pci><pci busid="2:0.0" class="0x030200"><gpu dev="1"/></pci></cpu>
	<cpu host_hash="0x2" numaid="0"><pci busid="1:0.0" class="0x030200"><gpu dev="0" mlopart="0"/><gpu dev="0" mlopart="1"/></pci></cpu>
	</system>`
	for host, want := range map[int]struct {
		gpus        int
		notes, link string
	}{0: {2, "holds 2 hosts; this is host 1", "NVLinks: GPU1 has 0, and others have 18"}, 2: {1, "divided into 2 parts", ""}} {
		s, err := LoadHost(strings.NewReader(file), host)
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(s.Notes, "; "); len(s.GPUs) != want.gpus || !strings.Contains(got, want.notes) || s.FewLinks() != want.link {
			t.Errorf("host %d: %d GPUs, %q, %q", host, len(s.GPUs), got, s.FewLinks())
		}
	}
	if _, err := LoadHost(strings.NewReader(file), 3); err == nil || !strings.Contains(err.Error(), "no host 3") {
		t.Errorf("host 3: %v", err)
	}
}
