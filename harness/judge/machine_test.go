package judge

import (
	"fmt"
	"testing"

	"github.com/assay-hpc/assay/internal/platform"
)

// TestParseMachine: what people write of their machines.
func TestParseMachine(t *testing.T) {
	t.Parallel()
	db, err := platform.Load()
	if err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]string{
		"8 x H100 PCIe, 1 x 100G a node":             "H100 PCIe 8, 1x100 ",
		"HGX H100, 8 x 400G RoCE":                    "H100 8, 8x400 RoCE",
		"8 x NDR400 InfiniBand":                      " 0, 8x400 InfiniBand",
		"8 x A800, 1 x HDR200 a node":                "A800 8, 1x200 InfiniBand",
		"4 x V100 PCIe, 25 Gb/s Ethernet (Azure VM)": "V100 PCIe 4, 1x25 Ethernet",
		"GCP a3-megagpu-8g":                          "H100 8, 8x200 TCPXO",
		"OCI BM.GPU.MI300X.8":                        "MI300X 8, 8x400 RoCE",
		"NVIDIA DGX Spark":                           "GB10 1, 1x200 RoCE",
		"h100-8x":                                    "H100 8, 8x400 InfiniBand NDR",
		"AWS p4d.24xlarge":                           "A100 8, 4x100 EFA v1",
		"64 x H100 (8 nodes of 8), 8 x 400G NDR InfiniBand per node, SHARP on": "H100 8, 8x400 InfiniBand",
		"2 x GCP a3-ultragpu-8g (8 x H200, 8 x 400 Gbps RoCE), all-gather":     "H200 8, 8x400 RoCE",
		"2 nodes x 8 AMD MI355X, 8 x 400G RoCE (Pollara) per node, alltoall":   "MI355X 8, 8x400 RoCE",
		"2 x AWS p3dn.24xlarge (8 x V100, 100 Gbps EFA)":                       "V100 8, 1x100 EFA",
		"3 nodes, each 8 x A100 SXM4 40G and 4 x HDR 200G InfiniBand":          "A100 8, 4x200 InfiniBand",
		"2 bare-metal nodes, each 8 x H200 and 4 x ConnectX-7 400G InfiniBand": "H200 8, 4x400 InfiniBand",
		"2 x Dell R7525, 1 x A100 PCIe 40G and 1 x ConnectX-6 HDR 200G each":   "A100 PCIe 1, 1x200 InfiniBand",
		"4 nodes, each 4 x MI250X (8 GCDs), Slingshot-11, aws-ofi-rccl plugin": "MI250X 8, 4x200 Slingshot",
		"2 x RTX 4090": "RTX 4090 2, 0x0 ",
		"2 x A40 joined by an NVLink bridge (NV4)": "A40 2, 0x0 ",
		"ConnectX-6 100G":                          " 0, 1x100 ",
		"8 x H100 80GB, no network":                "H100 8, 0x0 ",
	} {
		m, err := ParseMachine(db, text)
		if err != nil {
			t.Errorf("%q: %v", text, err)
			continue
		}
		if got := fmt.Sprintf("%s %d, %dx%g %s", m.GPU, m.PerNode, m.NICs, m.Gbit, m.Kind); got != want {
			t.Errorf("%q is %q, not %q", text, got, want)
		}
	}
	for _, text := range []string{"", "my cluster", "h1000", "gb20-nvl72"} {
		if m, err := ParseMachine(db, text); err == nil {
			t.Errorf("%q: %+v", text, m)
		}
	}
}
