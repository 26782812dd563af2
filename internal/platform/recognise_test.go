package platform

import (
	"slices"
	"strings"
	"testing"

	"github.com/assay-hpc/assay/internal/host/sysfs"
)

func TestIdentifyGPU(t *testing.T) {
	db := mustLoad(t)
	for _, tt := range []struct{ device, name, want string }{
		{"", "NVIDIA H200", "h200-sxm"}, {"", "NVIDIA H200 NVL", "h200-nvl"}, {"", "NVIDIA H100 80GB HBM3", "h100-sxm"}, {"", "NVIDIA H100 PCIe", "h100-pcie"},
		{"", "NVIDIA A100-SXM4-80GB", "a100-sxm-80"}, {"", "NVIDIA A100-SXM4-40GB", "a100-sxm-40"}, {"", "NVIDIA A100 80GB PCIe", "a100-pcie-80"},
		{"", "NVIDIA B200", "b200"}, {"", "NVIDIA GB200", "gb200"}, {"", "NVIDIA GB300", "gb300"}, {"", "NVIDIA L40S", "l40s"}, {"", "NVIDIA A40", "a40"}, {"", "Tesla T4", "t4"},
		{"", "Tesla V100-SXM2-16GB", "v100-sxm"}, {"", "NVIDIA RTX PRO 6000 Blackwell Server Edition", "rtx-pro-6000"},
		{"", "NVIDIA RTX 6000 Ada Generation", ""}, {"", "NVIDIA GeForce RTX 4090", ""}, {"", "NVIDIA Fake", ""}, {"", "", ""},
		{"2330", "NVIDIA H200", "h100-sxm"}, {"0x2335", "", "h200-sxm"}, {"FFFF", "NVIDIA H200", "h200-sxm"}, {"20B7", "", "a30"},
	} {
		if key, g := db.IdentifyGPU(tt.device, tt.name); key != tt.want || (g == nil) != (tt.want == "") {
			t.Errorf("IdentifyGPU(%q, %q) = %q; want %q", tt.device, tt.name, key, tt.want)
		}
	}
	for _, tt := range []struct{ vendor, device, want string }{
		{"15b3", "1021", "connectx-7"}, {"15b3", "101E", "connectx-vf"}, {"1d0f", "efa1", "efa"}, {"15b3", "efa1", ""}, {"", "", ""},
	} {
		if key, n := db.NICByPCI(tt.vendor, tt.device); key != tt.want || (n == nil) != (tt.want == "") {
			t.Errorf("NICByPCI(%q, %q) = %q; want %q", tt.vendor, tt.device, key, tt.want)
		}
	}
}

func mustLoad(t testing.TB) *DB {
	t.Helper()
	db, err := Load()
	if err != nil {
		t.Fatal(err)
	}
	return db
}

// gpus are so many of a PCI device behind NVSwitches.
func gpus(n int, device string, links int) []NodeGPU {
	return slices.Repeat([]NodeGPU{{Device: device, NVLinks: links, Switched: links > 0}}, n)
}

func ports(n int, vendor, device string, gbit float64) []NodeNIC {
	return slices.Repeat([]NodeNIC{{Vendor: vendor, Device: device, Gbit: gbit, LinkLayer: "InfiniBand", State: "ACTIVE"}}, n)
}

var (
	amazon    = func(product string) sysfs.DMI { return sysfs.DMI{Vendor: "Amazon EC2", Product: product} }
	microsoft = sysfs.DMI{Vendor: "Microsoft Corporation", Product: "Virtual Machine", AssetTag: "7783-7084-3265-9085-8269-3286-77"}
	google    = sysfs.DMI{Vendor: "Google", Product: "Google Compute Engine"}
	oracle    = sysfs.DMI{Vendor: "Oracle Corporation", Product: "ORACLE SERVER E5-2L", AssetTag: "OracleCloud.com"}
	server    = sysfs.DMI{Vendor: "Supermicro", Product: "SYS-821GE-TNHR"}
)

func TestRecognise(t *testing.T) {
	db := mustLoad(t)
	h100, cx7 := gpus(8, "2330", 18), ports(8, "15b3", "1021", 400)
	for _, tt := range []struct {
		name     string
		n        Node
		platform string
		fabric   string
		differs  []string // parts of the differences, in order
		missing  int      // how many of these are missing devices
	}{
		{"HGX H100", Node{GPUs: h100, NICs: cx7, DMI: server, LinksKnown: true}, "hgx-h100-ndr400", "NVSwitch", nil, 0},
		{"DGX H100, with storage NICs", Node{GPUs: h100, NICs: append(cx7, ports(2, "15b3", "1021", 200)...), DMI: sysfs.DMI{Vendor: "NVIDIA", Product: "DGXH100"}, LinksKnown: true}, "hgx-h100-ndr400", "NVSwitch", nil, 0},
		{"a port trained low", Node{GPUs: h100, NICs: append(cx7[:7:7], ports(1, "15b3", "1021", 200)...), DMI: server, LinksKnown: true}, "hgx-h100-ndr400", "NVSwitch", []string{"7 RDMA ports of 400 Gb/s, not 8"}, 1},
		{"half of an HGX H200", Node{GPUs: gpus(4, "2335", 18), DMI: server, LinksKnown: true}, "hgx-h200", "NVSwitch", []string{"4 GPUs of 8", "no RDMA port of 8"}, 2},
		{"one GPU", Node{GPUs: gpus(1, "2335", 18), DMI: server, LinksKnown: true}, "hgx-h200", "one", []string{"1 GPUs of 8", "no RDMA port of 8"}, 2},
		{"16 GPUs", Node{GPUs: gpus(16, "2330", 18), NICs: cx7, DMI: server, LinksKnown: true}, "hgx-h100-ndr400", "NVSwitch", []string{"16 GPUs of 8"}, 0},
		{"links that are down", Node{GPUs: append(gpus(7, "2330", 18), gpus(1, "2330", 16)...), NICs: cx7, LinksKnown: true}, "hgx-h100-ndr400", "NVSwitch", []string{"GPU 7: 16 of 18 NVLinks are up"}, 0},
		{"links that were not read", Node{GPUs: gpus(8, "2330", 0), NICs: cx7}, "hgx-h100-ndr400", "unknown", nil, 0},
		{"no NVLink is up", Node{GPUs: gpus(2, "2330", 0), LinksKnown: true}, "hgx-h100-ndr400", "PCIe", []string{"2 GPUs of 8", "no RDMA port", "GPU 0: 0 of 18", "GPU 1: 0 of 18"}, 2},
		{"a slow slot", Node{GPUs: []NodeGPU{{Device: "26b9", Slot: sysfs.PCILink{GTs: 16, Width: 8}}}, DMI: server, LinksKnown: true}, "l40s-cluster", "one", []string{"1 GPUs of 8", "GPU 0: its slot is PCIe 4 x8; the model takes PCIe 4 x16"}, 1},
		{"AWS p5", Node{GPUs: h100, NICs: ports(32, "1d0f", "efa1", 100), DMI: amazon("p5.48xlarge"), LinksKnown: true}, "aws-p5", "NVSwitch", nil, 0},
		{"AWS p5e", Node{GPUs: gpus(8, "2335", 18), NICs: ports(32, "1d0f", "efa1", 100), DMI: amazon("p5e.48xlarge"), LinksKnown: true}, "aws-p5", "NVSwitch", []string{"figures of the node are those with H100"}, 0},
		{"AWS p5en", Node{GPUs: gpus(8, "2335", 18), NICs: ports(16, "1d0f", "efa2", 200), DMI: amazon("p5en.48xlarge"), LinksKnown: true}, "aws-p5en", "NVSwitch", nil, 0},
		{"an instance type of tomorrow", Node{GPUs: h100, NICs: ports(32, "1d0f", "efa1", 100), DMI: amazon("p55.48xlarge"), LinksKnown: true}, "aws-p5", "NVSwitch", nil, 0},
		{"Azure", Node{GPUs: h100, NICs: ports(8, "15b3", "101e", 400), DMI: microsoft, LinksKnown: true}, "azure-nd-h100-v5", "NVSwitch", nil, 0},
		{"Azure's A100 with 80 GB", Node{GPUs: gpus(8, "20b2", 12), NICs: ports(8, "15b3", "101c", 200), DMI: microsoft, LinksKnown: true}, "azure-nd-a100-v4", "NVSwitch", []string{"the GPUs are A100 SXM4 80GB"}, 0},
		{"Google's H200", Node{GPUs: gpus(8, "2335", 18), NICs: ports(8, "15b3", "101e", 400), DMI: google, LinksKnown: true}, "gcp-a3-ultra", "NVSwitch", nil, 0},
		{"Google's H100", Node{GPUs: h100, DMI: google, LinksKnown: true}, "gcp-a3-high", "NVSwitch", []string{"as much like Google Cloud A3 Mega (gcp-a3-mega)", "no RDMA port of 4 (TCPX)"}, 0},
		{"Oracle's A100", Node{GPUs: gpus(8, "20b0", 12), DMI: oracle, LinksKnown: true}, "oci-a100-b4-8", "NVSwitch", []string{"no RDMA port of 16"}, 1},
		{"a cloud's machine at home", Node{GPUs: gpus(2, "2321", 0), DMI: server, LinksKnown: true}, "", "PCIe", nil, 0},
		{"the same without a name", Node{GPUs: gpus(2, "2321", 0), LinksKnown: true}, "azure-nc-h100-v5", "PCIe", []string{"nothing says that this is Azure"}, 0},
		{"A40 over PCIe", Node{GPUs: gpus(8, "2235", 0), DMI: server, LinksKnown: true}, "a40-node", "PCIe", nil, 0},
		{"GB200", Node{GPUs: gpus(4, "2941", 18), DMI: server, LinksKnown: true}, "gb200-nvl72", "NVSwitch", nil, 0},
		{"two models", Node{GPUs: append(gpus(1, "2330", 0), gpus(1, "2335", 0)...), LinksKnown: true}, "", "PCIe", []string{"GPU 0: 0 of 18", "GPU 1: 0 of 18"}, 0},
		{"unknown", Node{GPUs: gpus(2, "2204", 0), LinksKnown: true}, "", "PCIe", nil, 0},
		{"no GPU", Node{NICs: cx7, DMI: server}, "", "none", nil, 0},
	} {
		r := db.Recognise(tt.n)
		if r.Platform != tt.platform || r.Fabric.Kind != tt.fabric {
			t.Errorf("%s: %q by %s; want %q by %s", tt.name, r.Platform, r.Fabric.Kind, tt.platform, tt.fabric)
		}
		if !slices.EqualFunc(r.Differences, tt.differs, strings.Contains) {
			t.Errorf("%s: differs %q; want parts %q", tt.name, r.Differences, tt.differs)
		}
		if len(r.Missing) != tt.missing {
			t.Errorf("%s: misses %+v; want %d", tt.name, r.Missing, tt.missing)
		}
		for _, m := range r.Missing {
			if !slices.Contains(r.Differences, m.Text) {
				t.Errorf("%s: misses %+v, which is not among the differences %q", tt.name, m, r.Differences)
			}
		}
	}
}

// TestEachPlatform: a node as the database describes it is recognised as that
// platform, or as one of equal claim.
func TestEachPlatform(t *testing.T) {
	db := mustLoad(t)
	dmi := map[string]sysfs.DMI{"": server, "aws": amazon("x"), "azure": microsoft, "gcp": google, "oci": oracle}
	for key, p := range db.Platforms {
		if p.Reference || len(db.GPUs[p.GPU].PCIDeviceIDs) == 0 {
			continue
		}
		g := db.GPUs[p.GPU]
		links := 0
		if g.NVLink != nil {
			links = int(g.NVLink.Links.Value)
		}
		n := Node{GPUs: gpus(max(1, p.GPUsPerNode.Max()), g.PCIDeviceIDs[0], links), DMI: dmi[p.Cloud], LinksKnown: true}
		if len(p.Products) > 0 {
			n.DMI.Product = p.Products[0] + ".x"
		}
		if p.NICs != nil {
			n.NICs = ports(p.NICs.ports(), "", "", p.NICs.GbitEach.Value)
		}
		r := db.Recognise(n)
		if r.Platform == key {
			continue
		}
		if !slices.ContainsFunc(r.Differences, func(d string) bool { return strings.Contains(d, "as much like") && strings.Contains(d, "("+key+")") }) {
			t.Errorf("a node as %s has it is recognised as %q, %q", key, r.Platform, r.Differences)
		}
	}
}
