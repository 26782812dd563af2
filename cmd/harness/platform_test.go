package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/assay-hpc/assay/internal/exit"
	"github.com/assay-hpc/assay/internal/golden"
	"github.com/assay-hpc/assay/internal/host/sysfs/sysfstest"
	"github.com/assay-hpc/assay/internal/platform"
)

// A sysTree is a machine's /sys that is being written.
type sysTree struct {
	b    strings.Builder
	next int
}

func (m *sysTree) file(name, text string) { fmt.Fprintf(&m.b, "-- %s --\n%s\n", name, text) }

// pci adds a function on a bus of its own and returns where it is.
func (m *sysTree) pci(class, vendor, device, speed string) string {
	m.next++
	id := fmt.Sprintf("0000:%02x:00.0", m.next)
	dir := "sys/devices/pci0000:00/" + id
	m.file("link:sys/bus/pci/devices/"+id, "../../../devices/pci0000:00/"+id)
	for name, text := range map[string]string{"class": class, "vendor": vendor, "device": device, "max_link_speed": speed + " GT/s PCIe", "max_link_width": "16"} {
		m.file(dir+"/"+name, text)
	}
	return dir
}

func (m *sysTree) rdma(name, dir, rate, layer string) {
	own := dir + "/infiniband/" + name
	m.file("link:sys/class/infiniband/"+name, "../../"+strings.TrimPrefix(own, "sys/"))
	m.file("link:"+own+"/device", "../../../"+filepath.Base(dir))
	m.file(own+"/ports/1/rate", rate)
	m.file(own+"/ports/1/state", "4: ACTIVE")
	m.file(own+"/ports/1/link_layer", layer)
}

func (m *sysTree) dmi(vendor, product string) {
	m.file("sys/class/dmi/id/sys_vendor", vendor)
	m.file("sys/class/dmi/id/product_name", product)
}

// TestPlatform: whole machines, as topologies in files and as trees of sysfs.
func TestPlatform(t *testing.T) {
	p5 := &sysTree{}
	p5.dmi("Amazon EC2", "p5.48xlarge")
	p5.file("var/run/secrets/kubernetes.io/serviceaccount/token", "x")
	for i := range 8 {
		p5.pci("0x030200", "0x10de", "0x2330", "32.0")
		for k := range 4 {
			p5.rdma(fmt.Sprintf("rdmap%d", 4*i+k), p5.pci("0x020000", "0x1d0f", "0xefa1", "32.0"), "100 Gb/sec (4X EDR)", "Unspecified")
		}
	}
	a40 := &sysTree{}
	a40.dmi("Supermicro", "SYS-420GP-TNR")
	for range 8 {
		a40.pci("0x030200", "0x10de", "0x2235", "16.0")
	}
	a40.rdma("mlx5_0", a40.pci("0x020700", "0x15b3", "0x101b", "16.0"), "200 Gb/sec (4X HDR)", "InfiniBand")
	none := &sysTree{}
	none.dmi("QEMU", "Standard PC (Q35 + ICH9, 2009)")
	none.file(".dockerenv", "")
	for _, tt := range []struct {
		name string
		args []string
		tree *sysTree
	}{
		{name: "dgx-h100", args: []string{"--topo", "../../internal/host/topology/testdata/dgx-h100.xml"}},
		{name: "gb200-4", args: []string{"--topo", "../../internal/host/topology/testdata/gb200-4.xml"}},
		{name: "hgx-h200-4", args: []string{"--topo", "testdata/platform/hgx-h200-4.xml"}},
		{name: "pcie-2", args: []string{"--topo", "../../internal/host/topology/testdata/pcie-2.xml"}},
		{name: "aws-p5", tree: p5},
		{name: "a40-8", tree: a40},
		{name: "none", tree: none},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if tt.tree != nil {
				tt.tree.file("sys/devices/system/cpu/online", "0-3")
				tt.args = []string{"--root", sysfstest.Dir(t, []byte(tt.tree.b.String()))}
			}
			var out, errOut strings.Builder
			if code := run(append([]string{"harness", "show", "platform"}, tt.args...), &out, &errOut); code != exit.Pass || errOut.Len() > 0 {
				t.Errorf("status %d, %s", code, errOut.String())
			}
			golden.Check(t, "platform/"+tt.name+".txt", out.String())
			checkPlatformJSON(t, tt.args, out.String())
		})
	}
}

// checkPlatformJSON: the document says what the text says, and reads back.
func checkPlatformJSON(t *testing.T, args []string, text string) {
	var out, errOut strings.Builder
	if code := run(append([]string{"harness", "show", "platform", "-o", "json"}, args...), &out, &errOut); code != exit.Pass {
		t.Fatalf("-o json: status %d, %s", code, errOut.String())
	}
	var doc platform.Report
	dec := json.NewDecoder(strings.NewReader(out.String()))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&doc); err != nil || doc.Schema != 1 {
		t.Fatalf("schema %d, %v", doc.Schema, err)
	}
	var again strings.Builder
	if err := doc.WriteText(&again); err != nil || again.String() != text {
		t.Errorf("the JSON makes another text (%v):\n%s", err, again.String())
	}
}

// TestPlatformHere: whatever this machine is, it is told.
func TestPlatformHere(t *testing.T) {
	if _, err := os.Stat("/sys/devices/system/cpu"); err != nil {
		t.Skip("no /sys on this system: ", err)
	}
	var out, errOut strings.Builder
	if code := run([]string{"harness", "show", "platform"}, &out, &errOut); code != exit.Pass || !strings.Contains(out.String(), "\nGPUs ") {
		t.Errorf("status %d, %s\n%s", code, errOut.String(), out.String())
	}
}
