package explain

import (
	"slices"
	"strings"
	"testing"
)

const (
	table = `| NVIDIA-SMI 550.54.15              Driver Version: 550.54.15      CUDA Version: 12.4     |
|   0  NVIDIA H100 80GB HBM3          On  |   00000000:1B:00.0 Off |                    0 |
| N/A   31C    P0             72W /  700W |       0MiB /  81559MiB |      0%      Default |
|   1  NVIDIA H100 80GB HBM3          On  |   00000000:43:00.0 Off |                    0 |
| N/A   33C    P0             71W /  700W |       0MiB /  81559MiB |      0%      Default |
`
	numa  = "available: 2 nodes (0-1)\nnode 0 cpus: 0 1\nnode 0 size: 515821 MB\nnode 1 cpus: 2 3\nnode 1 size: 515920 MB\nnode distances:\nnode   0   1\n  0:  10  21\n  1:  21  10\n"
	ports = "Infiniband device 'mlx5_0' port 1 status:\n\tstate:\t\t 4: ACTIVE\n\tphys state:\t 5: LinkUp\n\trate:\t\t 400 Gb/sec (4X NDR)\n\tlink_layer:\t InfiniBand\n"
)

// TestOutputs: what outputs of tools show, and that what is healthy is no fault.
func TestOutputs(t *testing.T) {
	t.Parallel()
	s := set(t)
	for name, tt := range map[string]struct {
		text    string
		verdict Verdict
		id      string
		words   []string
	}{
		"two GPUs":              {table, NoFault, "outputs-gpus-fine", []string{"2 NVIDIA H100 80GB HBM3", "31 to 33 C"}},
		"a command before":      {"$ nvidia-smi --query-gpu=ecc.errors.uncorrected.volatile.total\nuser@n1:~$ nvidia-smi\n" + table, NoFault, "outputs-gpus-fine", nil},
		"a question":            {"It hangs on this machine:\n" + table, Undecidable, "outputs-beside", []string{"2 NVIDIA H100"}},
		"ERR!":                  {strings.Replace(table, "71W /  700W", "ERR! /  700W", 1), "", "", nil},
		"of several hosts":      {prefixed("gpu01: ", numa), NoFault, "outputs-host-fine", []string{"2 NUMA nodes", "503 GiB"}},
		"two outputs":           {numa + "$ nvidia-smi\n" + table, NoFault, "outputs-host-fine", nil},
		"ibstatus":              {ports, NoFault, "ports-healthy", []string{"mlx5_0", "400"}},
		"ibstatus down":         {strings.Replace(strings.Replace(ports, "4: ACTIVE", "1: DOWN", 1), "5: LinkUp", "2: Polling", 1), Fault, "port-no-link", nil},
		"a cube of NVLink":      {"\tGPU0\tGPU1\tGPU2\tGPU3\tCPU Affinity\nGPU0\t X \tNV1\tNV2\tSYS\t0-31\nGPU1\tNV1\t X \tSYS\tNV2\t0-31\nGPU2\tNV2\tSYS\t X \tNV1\t0-31\nGPU3\tSYS\tNV2\tNV1\t X \t0-31\n", "", "", nil},
		"a wide link":           {"18:00.0 3D controller: NVIDIA Corporation GH100 [H100 SXM5 80GB] (rev a1)\n\tLnkCap:\tPort #0, Speed 32GT/s, Width x16\n\tLnkSta:\tSpeed 32GT/s, Width x16\n", NoFault, "outputs-host-fine", []string{"1 H100 SXM5 80GB"}},
		"an idle GPU":           {"18:00.0 3D controller: NVIDIA Corporation GH100 [H100 SXM5 80GB] (rev a1)\n\tLnkCap:\tPort #0, Speed 32GT/s, Width x16\n\tLnkSta:\tSpeed 2.5GT/s (downgraded), Width x16\n", Undecidable, "pcie-idle-lspci", nil},
		"a hot GPU":             {strings.Replace(table, "33C", "94C", 1), Undecidable, "outputs-doubt", []string{"GPU 1 is at 94 C"}},
		"no number":             {strings.Replace(table, "71W", "N/A", 1), Undecidable, "outputs-doubt", []string{"no number"}},
		"three GPUs of a board": {"GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-0)\nGPU 1: NVIDIA H100 80GB HBM3 (UUID: GPU-1)\nGPU 2: NVIDIA H100 80GB HBM3 (UUID: GPU-2)\n", Undecidable, "outputs-doubt", []string{"3 NVIDIA H100"}},
		"a query's error":       {"index, name, temperature.gpu\n0, NVIDIA A40, 31\n1, NVIDIA A40, [Unknown Error]\n", Undecidable, "outputs-doubt", []string{"Unknown Error"}},
		"a state that is none":  {"index, name, fabric.state\n0, NVIDIA H100, In Progress\n", Fault, "smi-query-fault", nil},
		"halves differ":         {"index, power.limit [W]\n0, 700.00 W\n1, 500.00 W\n", Undecidable, "outputs-doubt", []string{"1 700.00 W, 1 500.00 W"}},
		"a GPU of 17 links":     {"GPU 0: NVIDIA A40 (UUID: GPU-0)\n\t Link 0: 26.562 GB/s\n\t Link 1: 26.562 GB/s\nGPU 1: NVIDIA A40 (UUID: GPU-1)\n\t Link 0: 26.562 GB/s\n", Undecidable, "outputs-doubt", []string{"3 of 4"}},
		"NV16 of two":           {"\tGPU0\tGPU1\tGPU2\tGPU3\tCPU Affinity\nGPU0\t X \tNV16\tNV18\tNV18\t0-31\nGPU1\tNV16\t X \tNV18\tNV18\t0-31\nGPU2\tNV18\tNV18\t X \tNV18\t0-31\nGPU3\tNV18\tNV18\tNV18\t X \t0-31\n", Undecidable, "outputs-doubt", nil},
		"dcgmi's XID":           {"#Entity   XIDER  GPUTL\nID\nGPU 0     79     99\n", Undecidable, "outputs-doubt", []string{"XIDER 79"}},
		"no GPU":                {"0 GPUs found.\n", Undecidable, "outputs-doubt", nil},
		"one lane":              {strings.Replace(ports, "400 Gb/sec (4X NDR)", "100 Gb/sec (1X NDR)", 1), Undecidable, "outputs-doubt", nil},
		"mlxlink, the second":   {"Operational Info\n----------------\nState                              : Active\nSpeed                              : IB-NDR\nWidth                              : 4x\n\nOperational Info\n----------------\nState                              : Polling\nSpeed                              : N/A\n", Fault, "mlxlink-not-active", nil},
		"a dead link":           {"18:00.0 3D controller: NVIDIA Corporation GH100 [H100 SXM5 80GB] (rev a1)\n\tLnkCap:\tPort #0, Speed 32GT/s, Width x16\n\tLnkSta:\tSpeed unknown, Width x0\n", Undecidable, "outputs-doubt", nil},
		"half the memory":       {strings.Replace(numa, "515920", "257000", 1), Undecidable, "outputs-doubt", []string{"250 to 503"}},
		"no test passed":        {"Total: 28, Passed: 0, Failed: 0, Waived: 28\n", Undecidable, "outputs-doubt", nil},
		"a partition down":      {"PARTITION AVAIL  TIMELIMIT  NODES  STATE NODELIST\ngpu          down 14-00:00:0      7    idle c[006-007]\n", Undecidable, "slurm-nodes-sick", []string{"partition down"}},
		"a cordoned node":       {"Unschedulable:      true\nCapacity:\n  nvidia.com/gpu:     8\nAllocatable:\n  nvidia.com/gpu:     8\n", Undecidable, "outputs-doubt", []string{"cordoned"}},
		"restarts":              {"NAME   READY   STATUS   RESTARTS   AGE\nnvidia-device-plugin-x 1/1     Running     412 (2m ago)          12d\n", Undecidable, "k8s-pods-not-ready", []string{"412 restarts"}},
		"another communicator":  {"a:1:2 [0] NCCL INFO ncclCommInitRank comm 0x5 rank 0 nranks 1 cudaDev 0 commId 0x1 - Init COMPLETE\na:1:2 [0] NCCL INFO ncclCommInitRank comm 0x6 rank 0 nranks 4 cudaDev 0 commId 0x2 - Init COMPLETE\n", "", "", nil},
		"mlxlink":               {"Operational Info\n----------------\nState                              : Active\nPhysical state                     : LinkUp\nSpeed                              : IB-NDR\nWidth                              : 4x\n\nSupported Info\n--------------\nEnabled Link Speed                 : 0x00000080 (NDR)\nSupported Cable Speed              : 0x000000e1 (NDR,HDR,EDR,SDR)\n\nModule Info\n-----------\nRx Power Current [dBm]             : 1.6,1.8,1.5,1.7 [-9..6]\n", NoFault, "outputs-rdma-fine", []string{"IB-NDR"}},
	} {
		r := s.Explain([]File{{"x", []byte(tt.text)}})
		var ids []string
		for _, c := range r.Causes {
			ids = append(ids, c.ID)
			if c.ID == tt.id {
				for _, w := range tt.words {
					if !strings.Contains(c.Cause, w) {
						t.Errorf("%s: %q is without %q", name, c.Cause, w)
					}
				}
			}
		}
		if tt.id == "" && r.Verdict == NoFault && name != "a cube of NVLink" {
			t.Errorf("%s: no fault by %v", name, ids)
		}
		if tt.id == "" && (slices.Contains(ids, "outputs-gpus-fine") && name == "ERR!" || slices.Contains(ids, "topology-odd-gpu")) {
			t.Errorf("%s: causes %v", name, ids)
		}
		if tt.id != "" && (r.Verdict != tt.verdict || !slices.Contains(ids, tt.id)) {
			t.Errorf("%s: %s %v; want %s, %s", name, r.Verdict, ids, tt.verdict, tt.id)
		}
	}
}

func prefixed(prefix, text string) string {
	return prefix + strings.ReplaceAll(strings.TrimSpace(text), "\n", "\n"+prefix) + "\n"
}

// TestOdd: who differs, if most are alike.
func TestOdd(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		values string
		want   []int
	}{
		{"a a a b", []int{3}}, {"a a b", []int{2}}, {"a b", nil}, {"a a b b", nil}, {"a a a a", nil}, {"a b c", nil}, {"b a a a a a a b", []int{0, 7}},
	} {
		if _, others := odd(strings.Fields(tt.values)); !slices.Equal(others, tt.want) {
			t.Errorf("of %s differ %v; want %v", tt.values, others, tt.want)
		}
	}
}
