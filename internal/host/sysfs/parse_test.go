package sysfs

import (
	"slices"
	"strings"
	"testing"
)

func TestParseCPUList(t *testing.T) {
	for _, tt := range []struct{ in, list, mask string }{
		{"", "", "00000000"}, {"0", "0", "00000001"}, {"0-3,8", "0-3,8", "0000010f"}, {"3,1,2,1", "1-3", "0000000e"},
		{"0-23,48-71", "0-23,48-71", "000000ff,ffff0000,00ffffff"}, {"96-127,224-255\n", "96-127,224-255", "ffffffff,00000000,00000000,00000000,ffffffff,00000000,00000000,00000000"},
		{"32", "32", "00000001,00000000"},
	} {
		s, err := ParseCPUList(tt.in)
		if err != nil || s.String() != tt.list || s.Mask() != tt.mask {
			t.Errorf("ParseCPUList(%q) = %v, mask %s, %v; want %s, %s", tt.in, s, s.Mask(), err, tt.list, tt.mask)
		}
		back, err := ParseCPUMask(tt.mask)
		if err != nil || !back.Equal(s) || back.Len() != len(s.List()) {
			t.Errorf("ParseCPUMask(%s) = %v, %v; want %v", tt.mask, back, err, s)
		}
	}
	for _, in := range []string{"a", "1-", "-1", "3-1", "0,,1", "0-99999", "16384", "1 2"} {
		if s, err := ParseCPUList(in); err == nil {
			t.Errorf("ParseCPUList(%q) = %v; want an error", in, s)
		}
	}
	for _, in := range []string{"", "x", "123456789", "1,,2", strings.Repeat("0,", 600) + "0"} {
		if s, err := ParseCPUMask(in); err == nil {
			t.Errorf("ParseCPUMask(%q) = %v; want an error", in, s)
		}
	}
}

func TestCPUSetIsAValue(t *testing.T) {
	a := NewCPUSet(1, 70)
	b := a
	b.Add(200)
	c := a
	c.Add(201)
	if a.String() != "1,70" || b.String() != "1,70,200" || c.String() != "1,70,201" {
		t.Errorf("sets share memory: %v %v %v", a, b, c)
	}
	if got := b.Intersect(NewCPUSet(70, 200, 201)); got.String() != "70,200" {
		t.Errorf("Intersect = %v", got)
	}
	if a.Has(-1) || a.Has(1<<20) || !a.Has(70) {
		t.Error("Has is wrong")
	}
}

func TestParseBusID(t *testing.T) {
	for in, want := range map[string]string{
		"0000:1b:00.0": "0000:1b:00.0", "00000000:1B:00.0": "0000:1b:00.0", "1b:00.0": "0000:1b:00.0", "10000:01:1f.7": "10000:01:1f.7",
		"FFFFFFFF:FF:FF.0": "fffffff:ff:ff.0", "fffffff:ff:ff.0": "fffffff:ff:ff.0",
	} {
		got, err := ParseBusID(in)
		if err != nil || got.String() != want {
			t.Errorf("ParseBusID(%q) = %v, %v; want %s", in, got, err, want)
		}
	}
	for _, in := range []string{"", "0000:1b:00", "0000:1b:20.0", "0000:1b:00.8", "x:1b:00.0", "0:0:0:0.0", "0000:1b:00.0.0", "0000:ff:ff.0"} {
		if got, err := ParseBusID(in); err == nil {
			t.Errorf("ParseBusID(%q) = %v; want an error", in, got)
		}
	}
}

func TestParsePCIPath(t *testing.T) {
	for _, tt := range []struct{ in, bridge, functions string }{
		{"/sys/devices/pci0000:15/0000:15:01.0/0000:16:00.0", "pci0000:15", "0000:15:01.0 0000:16:00.0"},
		{"/sys/devices/pci0000:00/0000:00:03.0/virtio2/net/eth0", "pci0000:00", "0000:00:03.0"},
		{"/sys/devices/pci0000:5d/0000:5d:05.5/pci10000:00/10000:00:02.0/10000:01:00.0", "pci10000:00", "10000:00:02.0 10000:01:00.0"},
		{"/sys/devices/LNXSYSTM:00/LNXSYBUS:00/ACPI0004:00/VMBUS:00/47505500-0001/pci0001:00/0001:00:00.0", "pci0001:00", "0001:00:00.0"},
		{"/sys/devices/virtual/net/lo", "", ""}, {"", "", ""}, {"/0000:00:03.0", "", ""},
	} {
		bridge, functions := parsePCIPath(tt.in)
		var got []string
		for _, f := range functions {
			got = append(got, f.String())
		}
		if bridge != tt.bridge || strings.Join(got, " ") != tt.functions {
			t.Errorf("parsePCIPath(%q) = %s, %v; want %s, %s", tt.in, bridge, got, tt.bridge, tt.functions)
		}
	}
}

func TestParseLink(t *testing.T) {
	for in, want := range map[string]float64{"32.0 GT/s PCIe": 32, "8 GT/s": 8, "2.5 GT/s PCIe": 2.5, "Unknown": 0, "Unknown speed": 0, "": 0} {
		if got, err := ParseLinkSpeed(in); got != want || err != nil {
			t.Errorf("ParseLinkSpeed(%q) = %v, %v; want %v", in, got, err, want)
		}
	}
	for _, in := range []string{"8", "8 Gb/s", "x GT/s", "-8 GT/s", "NaN GT/s", "1e9 GT/s"} {
		if got, err := ParseLinkSpeed(in); err == nil {
			t.Errorf("ParseLinkSpeed(%q) = %v; want an error", in, got)
		}
	}
	for in, want := range map[string]int{"16": 16, "255": 0, "0": 0, "63": 0} {
		if got, err := parseLinkWidth(in); got != want || err != nil {
			t.Errorf("parseLinkWidth(%q) = %v, %v; want %v", in, got, err, want)
		}
	}
	if _, err := parseLinkWidth("x16"); err == nil {
		t.Error("parseLinkWidth takes x16")
	}
}

func TestParseRDMA(t *testing.T) {
	for in, want := range map[string]RDMARate{
		"400 Gb/sec (4X NDR)": {400, 4, "NDR"}, "2.5 Gb/sec (1X SDR)": {2.5, 1, "SDR"}, "100 Gb/sec": {100, 0, ""}, "800 Gb/sec (8X NDR)": {800, 8, "NDR"}, "10 Gb/sec (4X)": {10, 4, ""},
	} {
		if got, err := parseRate(in); got != want || err != nil {
			t.Errorf("parseRate(%q) = %+v, %v; want %+v", in, got, err, want)
		}
	}
	for _, in := range []string{"", "400", "400 GB/sec", "x Gb/sec", "400 Gb/sec (NDR)", "-1 Gb/sec"} {
		if got, err := parseRate(in); err == nil {
			t.Errorf("parseRate(%q) = %+v; want an error", in, got)
		}
	}
	if got, err := parseState("4: ACTIVE"); got != "ACTIVE" || err != nil {
		t.Errorf("parseState = %q, %v", got, err)
	}
	for _, in := range []string{"ACTIVE", "4:", "x: ACTIVE", ""} {
		if got, err := parseState(in); err == nil {
			t.Errorf("parseState(%q) = %q; want an error", in, got)
		}
	}
}

func TestParseCPUInfo(t *testing.T) {
	arm := "processor\t: 0\nBogoMIPS\t: 2000.00\nCPU implementer\t: 0x41\nCPU architecture: 8\nCPU part\t: 0xd4f\n\nprocessor\t: 1\nCPU implementer\t: 0x43\n"
	if got, want := parseCPUInfo(arm), (CPUModel{Vendor: "0x41", Family: 8, Model: 0xd4f}); got != want {
		t.Errorf("parseCPUInfo of Neoverse V2 = %+v; want %+v", got, want)
	}
	if got := parseCPUInfo("nothing\n\n"); got != (CPUModel{}) {
		t.Errorf("parseCPUInfo of nothing = %+v", got)
	}
}

func TestNaturalOrder(t *testing.T) {
	names := []string{"mlx5_10", "rxe0", "mlx5_2", "bnxt_re0", "mlx5_bond_0", "mlx5_1"}
	slices.SortFunc(names, compareNatural)
	if got := strings.Join(names, " "); got != "bnxt_re0 mlx5_1 mlx5_2 mlx5_10 mlx5_bond_0 rxe0" {
		t.Errorf("order = %s", got)
	}
}

// FuzzParse: no parser panics, and what is accepted is written and read the
// same.
func FuzzParse(f *testing.F) {
	for _, s := range []string{"0-3,8", "0000ffff,ffffffff", "0000:1b:00.0", "FFFFFFFF:FF:FF.0", "16.0 GT/s PCIe", "255", "400 Gb/sec (4X NDR)", "4: ACTIVE", "10 21", "/sys/devices/pci0000:15/0000:15:01.0/net", "vendor_id : x\n\n"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, in string) {
		if s, err := ParseCPUList(in); err == nil {
			again, err := ParseCPUList(s.String())
			mask, err2 := ParseCPUMask(s.Mask())
			if err != nil || err2 != nil || !again.Equal(s) || !mask.Equal(s) {
				t.Errorf("ParseCPUList(%q) = %v, again %v, %v; mask %v, %v", in, s, again, err, mask, err2)
			}
		}
		if s, err := ParseCPUMask(in); err == nil {
			if again, err := ParseCPUMask(s.Mask()); err != nil || !again.Equal(s) {
				t.Errorf("ParseCPUMask(%q) = %v, again %v, %v", in, s, again, err)
			}
		}
		if b, err := ParseBusID(in); err == nil {
			if again, err := ParseBusID(b.String()); err != nil || again != b {
				t.Errorf("ParseBusID(%q) = %v, again %v, %v", in, b, again, err)
			}
		}
		if v, err := ParseLinkSpeed(in); err == nil && (v < 0 || v > 1024 || v != v) {
			t.Errorf("ParseLinkSpeed(%q) = %v", in, v)
		}
		if w, err := parseLinkWidth(in); err == nil && (w < 0 || w > 32) {
			t.Errorf("parseLinkWidth(%q) = %v", in, w)
		}
		if r, err := parseRate(in); err == nil && (r.Gbit < 0 || r.Gbit != r.Gbit || r.Lanes < 0) {
			t.Errorf("parseRate(%q) = %+v", in, r)
		}
		if s, err := parseState(in); err == nil && s == "" {
			t.Errorf("parseState(%q) is empty", in)
		}
		if d, err := parseDistances(in); err == nil && len(d) > len(in) {
			t.Errorf("parseDistances(%q) = %v", in, d)
		}
		if bridge, functions := parsePCIPath(in); bridge == "" && functions != nil {
			t.Errorf("parsePCIPath(%q) = %v without a bridge", in, functions)
		}
		parseCPUInfo(in)
	})
}
