package platform

import (
	"fmt"
	"math"
	"reflect"
	"testing"

	"github.com/assay-hpc/assay/internal/hardware"
	"github.com/assay-hpc/assay/internal/host/sysfs"
)

// find returns the one figure with a name, or with a name and "/" its nodes and
// algorithm: "all_reduce/1 ring".
func find(t *testing.T, x Expectation, name string) Expected {
	t.Helper()
	var found []Expected
	for _, e := range x.Figures {
		if name == e.Name || name == fmt.Sprintf("%s/%d %s", e.Name, e.Nodes, e.Algorithm) {
			found = append(found, e)
		}
	}
	if len(found) != 1 {
		t.Fatalf("%d figures are %q; want one: %+v", len(found), name, found)
	}
	return found[0]
}

// TestExpect: peak, typical value and floor of a figure; 0 is not known.
func TestExpect(t *testing.T) {
	db := mustLoad(t)
	nodes := map[string]Node{
		"h100":       {GPUs: gpus(8, "2330", 18), NICs: ports(8, "15b3", "1021", 400), DMI: server, LinksKnown: true},
		"h200 x 4":   {GPUs: gpus(4, "2335", 18), DMI: server, LinksKnown: true},
		"h100 x 3":   {GPUs: gpus(3, "2330", 18), DMI: server, LinksKnown: true},
		"h200 azure": {GPUs: gpus(8, "2335", 18), NICs: ports(8, "15b3", "101e", 400), DMI: microsoft, LinksKnown: true},
		"p4d":        {GPUs: gpus(8, "20b0", 12), NICs: ports(4, "1d0f", "efa0", 100), DMI: amazon("p4d.24xlarge"), LinksKnown: true},
		"p5en":       {GPUs: gpus(8, "2335", 18), NICs: ports(16, "1d0f", "efa2", 200), DMI: amazon("p5en.48xlarge"), LinksKnown: true},
		"b200":       {GPUs: gpus(8, "2901", 18), DMI: server, LinksKnown: true},
		"b200 hgx":   {GPUs: gpus(8, "2909", 18), DMI: server, LinksKnown: true},
		"gb300":      {GPUs: gpus(4, "31c2", 18), DMI: server, LinksKnown: true},
		"a40":        {GPUs: gpus(2, "2235", 0), NICs: ports(1, "15b3", "101b", 200), DMI: server, LinksKnown: true},
		"nc a100":    {GPUs: []NodeGPU{{Device: "20b5", NVLinks: 12}, {Device: "20b5", NVLinks: 12}}, DMI: microsoft, LinksKnown: true},
		"unread a40": {GPUs: gpus(8, "2235", 0), DMI: server},
		"a40 pair":   {GPUs: []NodeGPU{{Device: "2235", NVLinks: 4}, {Device: "2235", NVLinks: 4}}, DMI: server, LinksKnown: true},
		"v100 pair":  {GPUs: []NodeGPU{{Device: "1db5", NVLinks: 6}, {Device: "1db5", NVLinks: 6}}, DMI: server, LinksKnown: true},
		"unread":     {GPUs: gpus(8, "2330", 0), DMI: server},
		"unknown":    {GPUs: []NodeGPU{{Device: "2204", Slot: sysfs.PCILink{GTs: 16, Width: 8}}}, NICs: ports(1, "1234", "5678", 0), LinksKnown: true},
	}
	for _, tt := range []struct {
		node, figure         string
		peak, typical, floor float64
		source               string // of the floor
	}{
		{"h100", "memory_bandwidth", 3350, 0, 1905, "dcgm-skus"},
		{"h200 x 4", "memory_bandwidth", 4800, 0, 0.72 * 4800, "mle-net"}, // DCGM's is a mistake
		{"h100", "local_copy", 1675, 0, 0.72 * 1675, "mle-net"},
		{"h100", "h2d", 63, 54.8, 0.76 * 63, "aznhc"},
		{"h100", "d2h", 63, 46.8, 0.87 * 46.8, "aznhc-readme"}, // what passed there must not fail here
		{"h200 azure", "h2d", 63, 55, 48, "aznhc"},
		{"gb300", "h2d", 450, 359, 0.76 * 450, "aznhc"},
		{"unknown", "d2h", 15.5, 0, 0.76 * 15.5, "aznhc"}, // of its slot
		{"h100", "p2p_write", 450, 376, 360, "seed003"},
		{"h200 azure", "p2p_read", 450, 0, 335, "aznhc"},
		{"unread", "p2p_write", 450, 376, 360, "seed003"},
		{"a40", "p2p_write", 0, 0, 0, ""},        // over PCIe
		{"unread a40", "p2p_write", 0, 0, 0, ""}, // perhaps over a bridge
		{"nc a100", "p2p_write", 300, 0, 238, "aznhc"},
		{"a40 pair", "p2p_write", 56.25, 0, 45, "seed003"},
		{"v100 pair", "p2p_write", 150, 0, 0, ""}, // which may have one link of six between them
		{"h100", "nvlinks", 18, 0, 18, "mle-net"},
		{"h100", "pcie_gen", 5, 0, 5, "mle-net"},
		{"h100", "bf16", 989, 794.5, 0.87 * 794.5, "aznhc-readme"},
		{"a40", "bf16", 149.7, 0, 0, ""},
		{"b200", "dcgm_stress", 0, 0, 0.95 * 36949, "dcgm"},
		{"b200 hgx", "dcgm_stress", 0, 0, 0.95 * 33843, "dcgm"},
		{"b200 hgx", "memory_bandwidth", 8000, 0, 4402.5, "dcgm-skus"},
		{"h100", "power", 700, 0, 525, "dcgm"},
		{"h100", "all_reduce/1 ring", 0, 370, 0.87 * 370, "aznhc-readme"},
		{"h100", "all_reduce/8 ", 0, 386.6, 0.87 * 386.6, "aznhc-readme"},
		{"h200 x 4", "all_reduce/1 NVLS", 0, 363.3, 0.87 * 363.3, "aznhc-readme"},
		{"h100 x 3", "all_reduce/1 ring", 450, 0.78 * 450, 0.87 * 0.78 * 450, "aznhc-readme"},
		{"h200 azure", "all_reduce/1 ", 0, 480, 431, "aznhc"},
		{"p4d", "all_reduce/1 ", 0, 0, 200, "aws-hc"},
		{"p4d", "all_reduce/2 ", 0, 78.33, 0.87 * 78.33, "aznhc-readme"}, // a floor of 300 is marked as wrong
		{"a40", "all_reduce", 0, 0, 0, ""},
		{"h100", "nic_bandwidth", 400, 0, 320, "seed003"},
		{"h200 azure", "nic_bandwidth", 400, 400, 360, "aznhc"},
		{"p5en", "nic_bandwidth", 200, 193.72, 160, "seed003"},
		{"a40", "nic_bandwidth", 200, 0, 160, "seed003"}, // the port's own rate
		{"a40", "nic_rate", 200, 0, 0, ""},
		{"a40", "nic_latency", 0, 0.6, 0, ""},
		{"h100", "nic_latency", 0, 0, 0, ""},
		{"unknown", "memory_bandwidth", 0, 0, 0, ""},
		{"unknown", "nic_bandwidth", 0, 0, 0, ""},
	} {
		e := find(t, db.Expect(nodes[tt.node]), tt.figure)
		got := [3]float64{}
		for i, c := range []*Cited{e.Peak, e.Typical} {
			if c != nil {
				got[i] = c.Value
			}
		}
		source := ""
		if e.Floor != nil {
			got[2], source = e.Floor.Value, e.Floor.Source
		}
		want := [3]float64{tt.peak, tt.typical, tt.floor}
		for i := range got {
			if math.Abs(got[i]-want[i]) > 1e-9*want[i] {
				t.Errorf("%s: %s: peak, typical, floor %v; want %v", tt.node, tt.figure, got, want)
				break
			}
		}
		if source != tt.source {
			t.Errorf("%s: %s: the floor is of %q; want %q", tt.node, tt.figure, source, tt.source)
		}
	}
	if n := len(db.Expect(Node{}).Figures); n != 0 {
		t.Errorf("nothing should reach %d figures", n)
	}
}

// TestEveryFigure: of every platform, with every GPU that it is sold with and
// with as many as it may have, what is expected has a source that is listed, and
// no floor is above what is typical or possible.
func TestEveryFigure(t *testing.T) {
	db := mustLoad(t)
	dmi := map[string]sysfs.DMI{"": server, "aws": amazon("x"), "azure": microsoft, "gcp": google, "oci": oracle}
	figures := 0
	for key, p := range db.Platforms {
		for _, model := range append([]string{p.GPU}, p.OtherGPUs...) {
			if model == "" || len(db.GPUs[model].PCIDeviceIDs) == 0 {
				continue
			}
			for count := 1; count <= max(p.GPUsPerNode.Max(), 2); count++ {
				n := Node{GPUs: gpus(count, db.GPUs[model].PCIDeviceIDs[0], 18), NICs: ports(8, "15b3", "1021", 400), LinksKnown: true}
				n.DMI = dmi[p.Cloud]
				x := db.Expect(n)
				sources := db.SourcesOf(x.Figures)
				for _, e := range x.Figures {
					figures++
					checkExpected(t, key, e, sources)
				}
			}
		}
	}
	if figures < 2000 {
		t.Errorf("%d figures; want 2000 and more", figures)
	}
}

func checkExpected(t *testing.T, key string, e Expected, sources map[string]hardware.Source) {
	t.Helper()
	cited := []*Cited{e.Peak, e.Typical}
	if e.Floor != nil {
		cited = append(cited, &e.Floor.Cited)
	}
	for _, c := range cited {
		if c == nil {
			continue
		}
		if _, ok := sources[c.Source]; !ok || !c.Confidence.valid() || !(c.Value > 0) {
			t.Errorf("%s: %s: %+v has no source, no confidence or no value", key, e.Name, *c)
		}
	}
	if e.Floor == nil {
		return
	}
	if e.Typical != nil && e.Floor.Value > e.Typical.Value {
		t.Errorf("%s: %s: a floor of %g is above the typical %g", key, e.Name, e.Floor.Value, e.Typical.Value)
	}
	if e.Peak != nil && e.Floor.Value > e.Peak.Value {
		t.Errorf("%s: %s: a floor of %g is above the peak %g", key, e.Name, e.Floor.Value, e.Peak.Value)
	}
}

// TestSources walks all that was read: no figure, result or table is without a
// source that is listed.
func TestSources(t *testing.T) {
	db := mustLoad(t)
	n := 0
	var walk func(v reflect.Value, where string)
	walk = func(v reflect.Value, where string) {
		switch f := v.Interface().(type) {
		case Figure:
			if f.Text != "" || f.Value != 0 || f.Known() {
				if n++; db.Sources[f.Source] == (hardware.Source{}) {
					t.Errorf("%s: %s has no source", where, f.Text)
				}
			}
			return
		case Result:
			if db.Sources[f.Source] == (hardware.Source{}) {
				t.Errorf("%s: %s has no source", where, f.Test)
			}
			n++
			return
		}
		switch v.Kind() {
		case reflect.Pointer:
			if !v.IsNil() {
				walk(v.Elem(), where)
			}
		case reflect.Map:
			for it := v.MapRange(); it.Next(); {
				walk(it.Value(), fmt.Sprintf("%s.%v", where, it.Key()))
			}
		case reflect.Slice:
			for i := range v.Len() {
				walk(v.Index(i), fmt.Sprintf("%s[%d]", where, i))
			}
		case reflect.Struct:
			for i := range v.NumField() {
				if f := v.Type().Field(i); f.IsExported() {
					walk(v.Field(i), where+"."+f.Name)
				}
			}
		}
	}
	walk(reflect.ValueOf(db).Elem(), "")
	if n < 500 {
		t.Errorf("%d figures and results; want 500 and more", n)
	}
}
