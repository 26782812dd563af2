package explain

import (
	"fmt"
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
		"no LID":                {strings.Replace(ports, "\tstate", "\tbase lid:\t 0x0\n\tstate", 1), Undecidable, "port-without-lid", []string{"mlx5_0"}},
		"no LID on RoCE":        {strings.Replace(strings.Replace(ports, "\tstate", "\tbase lid:\t 0x0\n\tstate", 1), "InfiniBand\n", "Ethernet\n", 1), NoFault, "ports-healthy", nil},
		"a link that is down":   {"link mlx5_0/1 state ACTIVE physical_state LINK_UP netdev a\nlink mlx5_1/1 state DOWN physical_state POLLING netdev b\n", Undecidable, "rdma-link-down-beside", []string{"mlx5_1 is DOWN (POLLING), and mlx5_0"}},
		"links of RDMA":         {"link mlx5_0/1 state ACTIVE physical_state LINK_UP netdev a\n", NoFault, "ports-healthy", nil},
		"one packet repeated":   {"link mlx5_0/1 rx_write_requests 8 out_of_sequence 0 packet_seq_err 1 local_ack_timeout_err 0\n", NoFault, "outputs-rdma-fine", nil},
		"duplicates":            {"link mlx5_0/1 rx_write_requests 8 out_of_sequence 0 duplicate_request 4711 np_cnp_sent 3\n", Undecidable, "rdma-counters", []string{"duplicate_request 4711"}},
		"few drops":             {received(0, 900, 0), NoFault, "outputs-network-fine", nil},
		"many drops":            {received(0, 90_000, 0), Undecidable, "ip-received", []string{"eth0", "dropped 90000; 10000000 packets"}},
		"missed":                {received(0, 0, 4411), Undecidable, "ip-received", []string{"missed 4411"}},
		"bad frames":            {received(51, 0, 0), Undecidable, "ip-received", []string{"errors 51"}},
		"31 of 32 ranks":        {ras("32        31"), Undecidable, "ras-fewer", []string{"31 of 32"}},
		"all ranks":             {ras("32        32"), NoFault, "outputs-nccl-fine", []string{"32 ranks"}},
		"RAS says more":         {ras("32        32") + "#0-0 (fa93) INCOMPLETE\n", "", "", nil},
		"a lower clock":         {dmon("100", "1980", "1740"), Undecidable, "outputs-doubt", []string{"GPU 2 is as busy", "1740"}},
		"half the clock":        {dmon("100", "1980", "600"), Fault, "smi-busy-clock", []string{"GPU 2", "600"}},
		"clocks that vary":      {dmon("100", "1905", "1800"), NoFault, "outputs-gpus-fine", nil},
		"a GPU that waits":      {dmon("12", "1980", "1980"), Undecidable, "outputs-doubt", []string{"GPU 2 is 12 % busy"}},
		"without UVM":           {"Module                  Size  Used by\nnvidia              56823808  1 nvidia_modeset\n", Undecidable, "lsmod-no-uvm", nil},
		"without peermem":       {"Module                  Size  Used by\nnvidia_uvm 1 0\nnvidia              56823808  1\nmlx5_ib 446464 0\n", Note, "lsmod-no-peermem", nil},
		"with peermem":          {"Module                  Size  Used by\nnvidia_uvm 1 0\nnvidia_peermem 1 0\nnvidia              56823808  1\nmlx5_ib 446464 0\n", NoFault, "outputs-host-fine", nil},
		"modules of others":     {"Module                  Size  Used by\nmlx5_ib 446464 0\n", NoFault, "outputs-host-fine", nil},
		"two topologies":        {topology(8) + topology(8), NoFault, "outputs-nccl-fine", []string{"8 GPUs"}},
		"one with fewer":        {"$ cat a.xml\n" + topology(8) + "$ cat b.xml\n" + topology(7), Undecidable, "topology-files-differ", []string{"8 GPUs", "7 GPUs"}},
		"a second that is bad":  {topology(8) + strings.Replace(topology(8), `<nvlink target="0000:07:00.0" count="18"/>`, "", 1), Fault, "topology-file-odd-gpu", []string{"GPU 0"}},
		"25G on its one lane":   {mlxlink("25G", "1x", "Firecode FEC", "25G,10G", "25G,10G"), NoFault, "outputs-rdma-fine", nil},
		"two lanes":             {mlxlink("IB-NDR", "2x", "Standard_RS-FEC_PLR", "NDR,HDR", "NDR,HDR"), Undecidable, "mlxlink-narrow", nil},
		"PAM4 without FEC":      {mlxlink("200G", "4x", "No FEC", "200G_4X", "200G_4X"), Undecidable, "mlxlink-no-fec", nil},
		"EDR without FEC":       {mlxlink("IB-EDR", "4x", "No FEC", "EDR,FDR", "EDR,FDR"), NoFault, "outputs-rdma-fine", nil},
		"a slow cable":          {mlxlink("100G", "4x", "Standard RS-FEC", "100G_4X,200G_4X", "100G_4X"), Note, "mlxlink-cable-limits", []string{"200G_4X"}},
		"a slow link":           {mlxlink("IB-HDR", "4x", "Standard RS-FEC", "NDR,HDR", "NDR,HDR"), Fault, "mlxlink-slow", []string{"NDR"}},
		"a slow link, no cable": {mlxlink("IB-HDR", "4x", "Standard RS-FEC", "NDR,HDR", ""), Undecidable, "outputs-doubt", []string{"NDR"}},
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

// received is ip -s link with counters of received packets.
func received(errors, dropped, missed int) string {
	return fmt.Sprintf("2: eth0: <BROADCAST,UP,LOWER_UP> mtu 9000 qdisc mq state UP mode DEFAULT\n    RX:  bytes packets errors dropped  missed   mcast\n    987654321 10000000 %d %d %d 0\n    TX:  bytes packets errors dropped carrier collsns\n    1 1 0 0 0 0\n", errors, dropped, missed)
}

func ras(ranks string) string {
	return "Job summary\n===========\n\n  Nodes  Processes         GPUs  Processes     GPUs\n(total)   per node  per process    (total)  (total)\n      4          8            1         32       32\n\nCommunicators... (0.00s)\n=============\n\nGroup     Comms     Nodes     Ranks     Ranks     Ranks    Status  Errors\n    #  in group  per comm  per node  per comm  in group\n    0         1         4         8        " + ranks + "   RUNNING      OK\n\nErrors\n======\n\nWarnings\n========\n\n"
}

// dmon is nvidia-smi dmon of four GPUs in two samples, of which GPU 2 differs.
func dmon(busy, clock, odd string) string {
	out := "# gpu    pwr  gtemp     sm   mclk   pclk\n# Idx      W      C      %    MHz    MHz\n"
	for range 2 {
		for i := range 4 {
			sm, c := "100", clock
			if i == 2 {
				sm, c = busy, odd
			}
			out += fmt.Sprintf("    %d    690     58    %s   2619   %s\n", i, sm, c)
		}
	}
	return out
}

// topology is NCCL's file of a machine.
func topology(gpus int) string {
	out := "<system version=\"1\">\n  <cpu numaid=\"0\" arch=\"x86_64\">\n"
	for i := range gpus {
		out += fmt.Sprintf("    <pci busid=\"0000:%02x:00.0\" class=\"0x030200\" device=\"0x2330\" link_speed=\"32.0 GT/s PCIe\" link_width=\"16\">\n      <gpu dev=\"%d\" sm=\"90\"><nvlink target=\"0000:07:00.0\" count=\"18\"/></gpu>\n    </pci>\n", i+16, i)
	}
	return out + "  </cpu>\n</system>\n"
}

func mlxlink(speed, width, fec, port, cable string) string {
	out := fmt.Sprintf("Operational Info\n----------------\nState                              : Active\nPhysical state                     : LinkUp\nSpeed                              : %s\nWidth                              : %s\nFEC                                : %s\n\nSupported Info\n--------------\nEnabled Link Speed                 : 0x1 (%s)\n", speed, width, fec, port)
	if cable != "" {
		out += "Supported Cable Speed              : 0x1 (" + cable + ")\n"
	}
	return out
}

// TestTold: what a person says of an Xid is likely, and the kernel's line certain.
func TestTold(t *testing.T) {
	t.Parallel()
	s := set(t)
	for text, want := range map[string]Certainty{
		"[88230.1] NVRM: Xid (PCI:0000:9d:00): 79, pid=1, name=x, GPU has fallen off the bus.": Certain,
		"We got Xid 79 last week":              Likely,
		"nvidia-smi hangs, XID 119 on 9d:00.0": Likely,
		"XID error 48 was reported by DCGM":    Likely,
		"Xid 79 means that the GPU was lost":   "",
		"look for Xid 79 in dmesg":             "",
		"- Xid 13: Graphics Engine Exception\n- Xid 31: Memory Page Fault\n- Xid 48: Double Bit ECC Error\n- Xid 79: fallen off the bus": "",
	} {
		r := s.Explain([]File{{"x", []byte(text)}})
		switch {
		case want == "" && r.Verdict != Fault:
		case want == "" || r.Verdict != Fault || r.Causes[0].Sure != want:
			t.Errorf("%s: %s %v, want %s", text, r.Verdict, r.Causes, want)
		case (want == Likely) != (len(r.Causes[0].Ask) > 0) || strings.Contains(r.Summary, "ADDRESS"):
			t.Errorf("%s: %s, asks for %v", text, r.Summary, r.Causes[0].Ask)
		}
	}
}

// TestSettings: a text of NCCL's settings alone, as a shell reads it and as NCCL does.
func TestSettings(t *testing.T) {
	t.Parallel()
	s := set(t)
	for _, tt := range []struct {
		name, text string
		verdict    Verdict
		words      []string
	}{
		{"stdin", "NCCL_DEBUG=INFO\nNCCL_IB_HCA=mlx5_0,mlx5_1\n", NoFault, []string{"2 settings"}},
		{"etc/nccl.conf", "# site\nNCCL_DEBUG=INFO\n\nNCCL_SOCKET_IFNAME==ens1f0\n", NoFault, []string{"2 settings"}},
		{"stdin", "$ env | grep NCCL\nNCCL_IB_HAC=mlx5_0\nNCCL_DEBUG=VERBOSE\n", Fault, []string{"line 2: NCCL_IB_HAC", "NCCL_IB_HCA?", "line 3: NCCL_DEBUG"}},
		{"a.sh", "export NCCL_DEBUG=WARN\n", NoFault, nil},
		{"nccl.conf", "export NCCL_DEBUG=WARN\n", Fault, []string{"line 1: NCCL_DEBUG is not set"}},
		{"nccl.conf", "NCCL_DEBUG=WARN\nNCCL_DEBUG=INFO\n", Fault, []string{"line 2: NCCL_DEBUG is set at line 1 already"}},
		{"nccl.conf", "NCCL_P2P_DISABLE=1\nNCCL_DEBUG=TRACE\n", Note, []string{"NCCL_P2P_DISABLE=1", "host memory", "NCCL_DEBUG=TRACE"}},
		{"nccl.conf", "NCCL_FOOBAR_QUUX=1\n", Note, []string{"NCCL_FOOBAR_QUUX"}},
		{"job.log", "NCCL_IB_HAC=mlx5_0\nTraining begins\n", Note, []string{"NCCL_IB_HCA?"}},
		{"job.log", "NCCL_IB_HAC=mlx5_0\nNVRM: Xid (PCI:0000:9d:00): 79, pid=1, GPU has fallen off the bus.\n", Fault, []string{"Xid 79"}},
		{"a.sh", "export NCCL_IB_HCA=$HCAS\nexport NCCL_IB_TIMEOUT=${T:-22}\n", NoFault, nil},
	} {
		r := s.Explain([]File{{tt.name, []byte(tt.text)}})
		if r.Verdict != tt.verdict {
			t.Errorf("%s: %q: %s, %s; want %s", tt.name, tt.text, r.Verdict, r.Summary, tt.verdict)
		}
		for _, w := range tt.words {
			if !strings.Contains(r.Summary, w) {
				t.Errorf("%s: %q: %q is without %q", tt.name, tt.text, r.Summary, w)
			}
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
