package platform

import (
	"io/fs"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/assay-hpc/assay/internal/hardware"
	"github.com/assay-hpc/assay/internal/hardware/hardwaretest"
)

func TestLoad(t *testing.T) {
	db, err := Load()
	if err != nil {
		t.Fatal(err)
	}
	if g, err := db.GPU("h100-sxm"); err != nil || g.NVLink.UniGBps.Value != 450 || g.NVLink.Links.Value != 18 || g.ComputeCapability.Text != "9.0" {
		t.Errorf("GPU(h100-sxm) = %+v, %v", g, err)
	}
	if key, g := db.GPUByPCI("0x2330"); key != "h100-sxm" || g == nil {
		t.Errorf("GPUByPCI(0x2330) = %q, %v", key, g)
	}
	if key, _ := db.GPUByPCI("dead"); key != "" {
		t.Errorf("GPUByPCI(dead) = %q; want none", key)
	}
	if p, err := db.Platform("gb200-nvl72"); err != nil || p.GPUsPerDomain != 72 || p.GPUsPerNode.Max() != 4 || p.NICs != nil {
		t.Errorf("Platform(gb200-nvl72) = %+v, %v", p, err)
	}
	if f := db.GPUs["l40"].TDPWatts; f.Known() || f.String() != "not known" {
		t.Errorf("a null figure = %v; want not known", f)
	}
	if f := db.GPUs["v100-sxm"].MemoryGB; len(f.Values) != 2 || f.Value != 16 {
		t.Errorf("alternatives = %+v; want 16 and 32", f)
	}
	if got, want := db.Interconnects.NVLink["4"].UniGBps.String(), "450 (mle-net, high)"; got != want {
		t.Errorf("NVLink 4 = %q; want %q", got, want)
	}
	if r := db.Rules["ring_over_nvlink_fraction"]; r.Low != 0.78 || r.High != 0.82 || r.Source != "mle-net" {
		t.Errorf("rule = %+v", r)
	}
	if n := db.Platforms["nvsentinel-preflight"].Floors[2].Nodes; n.N != 0 || n.Text != "2 or more" {
		t.Errorf("nodes = %+v; want a text", n)
	}
}

// TestTables: the published sweeps are all there.
func TestTables(t *testing.T) {
	db, err := Load()
	if err != nil {
		t.Fatal(err)
	}
	for key, want := range map[string]struct {
		rows, gpus int
		last       Row
	}{
		"gb200-1-rack":   {5, 72, Row{8 << 30, 20299, 423.16, 834.57, 846.82}},
		"gb200-2-racks":  {6, 144, Row{16 << 30, 42067, 408.40, 810.41, 820.36}},
		"gb200-20-racks": {6, 1440, Row{16 << 30, 84625, 203.01, 405.74, 404.77}},
		"a100-8":         {20, 8, Row{16 << 30, 127997, 134.22, 234.89, 0}},
		"h100-64":        {5, 64, Row{8 << 30, 43980, 195.31, 386.56, 385.56}},
		"modal-h100-16":  {1, 16, Row{4e9, 16684.6, 239.742, 449.515, 0}},
	} {
		got, err := db.Table(key)
		if err != nil {
			t.Error(err)
		} else if len(got.Rows) != want.rows || got.GPUs != want.gpus || got.Rows[want.rows-1] != want.last {
			t.Errorf("Table(%s): %d rows, %d GPUs, last %+v; want %+v", key, len(got.Rows), got.GPUs, got.Rows[len(got.Rows)-1], want)
		}
	}
	n := 0
	for _, m := range db.MeasuredTables() {
		n += len(m.Rows)
	}
	if n < 80 {
		t.Errorf("MeasuredTables have %d rows; want 80 and more", n)
	}
}

func TestUnknown(t *testing.T) {
	db, err := Load()
	if err != nil {
		t.Fatal(err)
	}
	for name, says := range map[string]string{"gb20": "gb200-nvl72", "h100": "hgx-h100-ndr400", "hgx-h201": "hgx-h200", "": "there are: a40-node", "zzz": "there are: a40-node"} {
		if _, err := db.Platform(name); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("Platform(%s) = %v", name, err)
		}
	}
	for name, key := range map[string]string{"GB200 NVL72": "gb200-nvl72", "p5.48xlarge": "aws-p5", "a3-megagpu-8g": "gcp-a3-mega", "h100-8x": "hgx-h100-ndr400"} {
		if got, err := db.Key(name); got != key {
			t.Errorf("Key(%s) = %q, %v", name, got, err)
		}
	}
	if _, err := db.GPU("h100"); err == nil || !strings.Contains(err.Error(), "h100-sxm") {
		t.Errorf("GPU(h100) = %v", err)
	}
	if _, err := db.Table(""); err == nil || !strings.Contains(err.Error(), "a100-8") {
		t.Errorf("Table() = %v", err)
	}
}

// TestParseErrors: each fault of a file is named.
func TestParseErrors(t *testing.T) {
	for _, tt := range []struct{ old, new, want string }{
		{"schema: 1\n", "schema: 2\n", "schema 2"},
		{"schema: 1\n", "schema: 1\nshema: 1\n", "field shema not found"},
		{"gpu: gb200\n", "gpu: gb201\n", `no GPU "gb201"`},
		{"[450, mle-net, high]", "[450, mle-nett, high]", `no source "mle-nett"`},
		{"[450, mle-net, high]", "[450, mle-net, sure]", `confidence "sure"`},
		{"[450, mle-net, high]", "[450, mle-net]", "a figure is"},
		{"[450, mle-net, high]", "450", "a figure is"},
		{"[450, mle-net, high]", "[{}, mle-net, high]", "a figure's value"},
		{"[450, mle-net, high]", "[[x], mle-net, high]", "alternatives"},
		{"[450, mle-net, high]", "[450, [], high]", "are texts"},
		{"[32768, 43.83, 0.75, 1.31]", "[32768, 43.83, 0.95, 1.31]", "0.75 GB/s, not 0.95"},
		{"[32768, 43.83, 0.75, 1.31]", "[32768, 43.83, 0.75]", "a row is"},
		{"[65536, 46.8, 1.4, 2.45]", "[32768, 23.4, 1.4, 2.45]", "sizes must grow"},
		{"platform: dgx-a100\n", "platform: dgx-a101\n", `no platform "dgx-a101"`},
		{"gpus_per_node: 8\n", "gpus_per_node: 0\n", "at least 1"},
		{"gpus_per_node: 8\n", "gpus_per_node: many\n", "want a number"},
		{"[0.8, 0.9, seed003,", "[0.8, seed003,", "a rule is"},
		{"tables:\n", "tables: {}\n---\ntables:\n", "tables.yaml: more than one"},
		{"platforms:\n  aws-p5:\n", "platforms:\n  aws-p4d: {}\n  aws-p5:\n", "platforms/aws-p5.yaml: platforms.aws-p4d is in another file, too"},
		{"membw_mbps: 2333, suspect: [membw_mbps]", "membw_mbps: 2333", "list it in suspect"},
		{"suspect: [membw_mbps]", "suspect: [power_w]", `gpus.a100-sxm-40`},
		{"membw_mbps: 607500, source: dcgm-skus", "membw_mbps: 607500", "without a source"},
		{"power_w: 299, stress_gflops: 4250", "power_w: 299, stress_gflops: 0", "more than 0"},
		{"memory_gbps: [3350, mle-acc, high]", "memory_gbps: [3.35, mle-acc, high]", "gpus.h100-sxm: memory_gbps is 3.35; it must be from"},
		{"bf16_measured_max_tflops: [271.2, mle-acc, high]", "bf16_measured_max_tflops: [371.2, mle-acc, high]", "bf16_measured_max_tflops is 371.2"},
		{"gen: [2, mle-net, high]", "gen: [20, mle-net, high]", "nvlink.gen is 20"},
		{"width: [16, sysrq, medium]", "width: [160, sysrq, medium]", "pcie.width is 160"},
		{"arch: volta\n", "arch: ''\n", "no arch"},
		{"pci_device_ids: ['2330']", "pci_device_ids: ['2331']", "PCI device 2331 is gpus.h100-pcie's, too"},
		{"pci_device_ids: ['2330']", "pci_device_ids: [2330x]", "no PCI device number"},
		{"      '2909': {power_w", "      '2908': {power_w", "dcgm_by_pci"},
		{"c2c: c2c-grace\n", "c2c: c2c-hopper\n", `no "c2c-hopper"`},
		{"vendor: 15b3, pci_device_ids: ['1021']", "vendor: mlx, pci_device_ids: ['1021']", "nics.connectx-7: it needs name, vendor"},
		{"pci_device_ids: ['1021']", "pci_device_ids: ['1023']", "PCI device 1023 is nics.connectx-7's, too"},
		{"max_gbit: [800, doca-cx8,", "max_gbit: [800000, doca-cx8,", "max_gbit is 800000"},
		{"sys_vendor: Amazon EC2, source", "source", "clouds.aws: it needs"},
		{"cloud: azure\n", "cloud: azur\n", `no cloud "azur"`},
		{"other_gpus: [a100-sxm-40]", "other_gpus: [a100-sxm-41]", `no GPU "a100-sxm-41"`},
		{"products_source: dmi-seen\n", "products_source: dmi\n", `no source "dmi"`},
		{"    products_source: dmi-seen\n", "", "go together"},
		{"    reference: true\n    gpus_per_node: 8\n    nics: null", "    gpus_per_node: 8\n    nics: null", "must be a reference"},
		{"unit: GB/s busbw, source: seed003", "unit: GB, source: seed003", "platforms.dgx-a100: result 1 (all_reduce)"},
		{"value: 171.5, unit", "value: -171.5, unit", "platforms.dgx-a100: result 1 (all_reduce)"},
		{"gbit_each: [200, seed003, medium]", "gbit_each: [2, seed003, medium]", "nics.gbit_each is 2"},
		{"host_copy_fraction: [0.76, 0.88", "host_copy_fraction: [76, 88", "rules.host_copy_fraction"},
	} {
		if _, err := Parse(hardwaretest.Changed(t, tt.old, tt.new)); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%q for %q: %v; want %q", tt.new, tt.old, err, tt.want)
		}
	}
}

func FuzzParse(f *testing.F) {
	platform, err := fs.ReadFile(hardware.Files, "platforms/dgx-a100.yaml")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(platform)
	f.Add([]byte("schema: 1\ngpus: {a: {nvlink: {gen: [4, x, high]}}}\nsources: {x: {}}\n"))
	f.Add([]byte("schema: 1\ntables: {a: {rows: [[1, 2, 3, 4]]}}\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		db, err := Parse(fstest.MapFS{"x.yaml": {Data: text}})
		if (db == nil) == (err == nil) {
			t.Fatalf("Parse = %v, %v", db, err)
		}
		if err == nil {
			db.MeasuredTables()
		}
	})
}
