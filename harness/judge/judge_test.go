package judge

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/assay-hpc/assay/internal/platform"
)

func judgeOf(t testing.TB, hardware string) *Judge {
	t.Helper()
	db, err := platform.Load()
	if err != nil {
		t.Fatal(err)
	}
	rules, err := Rules()
	if err != nil {
		t.Fatal(err)
	}
	j := &Judge{DB: db, Rules: rules}
	if hardware != "" {
		if j.Machine, err = ParseMachine(db, hardware); err != nil {
			t.Fatal(err)
		}
	}
	return j
}

func judged(t testing.TB, hardware, text string) (*Report, string) {
	t.Helper()
	r, err := judgeOf(t, hardware).File("x", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := r.WriteText(&b, 100); err != nil {
		t.Fatal(err)
	}
	return r, b.String()
}

// TestMeasured judges what was measured on two H200s, as they were and with something wrong on purpose.
func TestMeasured(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]struct {
		verdict Verdict
		says    []string
	}{
		"all-reduce-2xh200.txt":    {OK, []string{"338.2 GB/s at 2 GiB", "2 ranks on 1 node"}},
		"nccl-tests.json":          {OK, []string{"346.5 GB/s at 4 GiB", "2 ranks"}},
		"log-between.txt":          {OK, []string{"330.2 GB/s at 1 GiB"}}, // NCCL's log interrupts every row
		"nvbandwidth.json":         {OK, []string{"of 5 measurements 5 ok"}},
		"p2p-2xh200.txt":           {OK, []string{"392 GB/s"}},
		"small-sizes.txt":          {OK, []string{"-e 8G"}},
		"p2p-disabled.txt":         {Slow, []string{"cause: NCCL_P2P_DISABLE=1", "unset it"}},
		"protocol-ll.txt":          {Slow, []string{"cause: NCCL_PROTO=LL"}},
		"one-channel.txt":          {Slow, []string{"cause: NCCL_MAX_NCHANNELS=1"}},
		"busy-gpu.txt":             {Slow, []string{"another program uses a GPU"}},
		"two-runs-without-mpi.txt": {Invalid, []string{"one rank", "MPI=1"}},
	} {
		b, err := os.ReadFile(filepath.Join("testdata", name))
		if err != nil {
			t.Fatal(err)
		}
		r, text := judged(t, "", string(b))
		if r.Verdict != want.verdict {
			t.Errorf("%s: %s, not %s:\n%s", name, r.Verdict, want.verdict, text)
		}
		flat := strings.Join(strings.Fields(text), " ")
		for _, s := range want.says {
			if !strings.Contains(flat, s) {
				t.Errorf("%s does not say %q:\n%s", name, s, text)
			}
		}
		if first := regexp.MustCompile(`cause: ([^.;(]*)`).FindStringSubmatch(flat); want.verdict == Slow && (first == nil || !strings.Contains("cause: "+first[1], strings.TrimSuffix(want.says[0], "=1"))) {
			t.Errorf("%s: the first cause is %v", name, first)
		}
	}
}

// sweep prints a table as nccl-tests does, with busbw by size.
func sweep(collective, gpu string, nodes, perNode int, sizes []int64, busbw func(int64) float64) string {
	var b strings.Builder
	ranks := nodes * perNode
	fmt.Fprintf(&b, "# nccl-tests version 2.17.6 nccl-headers=22803 nccl-library=22803\n# Collective test starting: %s_perf\n# nThread 1 nGpus 1 minBytes 8 maxBytes 8589934592 step: 2(factor)\n# Using devices\n", collective)
	for i := range ranks {
		fmt.Fprintf(&b, "#  Rank %2d Group  0 Pid %6d on     node-%d device %2d [0x1b] %s\n", i, 4000+i, i/perNode, i%perNode, gpu)
	}
	f := busFactor(collective, ranks)
	for _, size := range sizes {
		bus := busbw(size)
		us := float64(size) * f / bus / 1e3
		alg := bus / f
		fmt.Fprintf(&b, "%12d %13d     float     sum      -1 %9.1f %7.2f %7.2f      0 %9.1f %7.2f %7.2f      0\n", size, size/4, us, alg, bus, us, alg, bus)
	}
	b.WriteString("# Out of bounds values : 0 OK\n# Avg bus bandwidth    : 1.0\n")
	return b.String()
}

var sizes = []int64{1 << 20, 16 << 20, 256 << 20, 1 << 30, 8 << 30}

// curve is a plateau with a latency.
func curve(plateau, us, factor float64) func(int64) float64 {
	return func(size int64) float64 {
		moved := float64(size) * factor / 1e9
		return moved / (moved/plateau + us*1e-6)
	}
}

// TestVerdicts: tables with a known plateau, good ones and ones with a known fault.
func TestVerdicts(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, platform, gpu string
		nodes, perNode      int
		plateau, us         float64
		want                Verdict
		says                string
	}{
		{"NVLS", "", "NVIDIA H100 80GB HBM3", 1, 8, 479, 90, OK, ""},
		{"ring instead of NVLS", "", "NVIDIA H100 80GB HBM3", 1, 8, 367, 90, Slow, "NVLS"},
		{"PCIe instead of NVLink", "", "NVIDIA H100 80GB HBM3", 1, 8, 22, 90, Slow, "do not use NVLink"},
		{"more than the links carry", "", "NVIDIA H100 80GB HBM3", 1, 8, 700, 50, Impossible, "more than"},
		{"A100", "", "NVIDIA A100-SXM4-80GB", 1, 8, 233, 60, OK, ""},
		{"two nodes", "HGX H100, 8 x NDR400", "NVIDIA H100 80GB HBM3", 2, 8, 468, 150, OK, "no mistake"},
		{"two nodes, half", "HGX H100, 8 x NDR400", "NVIDIA H100 80GB HBM3", 2, 8, 225, 150, Slow, "GPUDirect"},
		{"two nodes, sockets", "HGX H100, 8 x NDR400", "NVIDIA H100 80GB HBM3", 2, 8, 3.1, 900, Slow, "TCP instead of RDMA"},
		{"network unknown", "", "NVIDIA H100 80GB HBM3", 2, 8, 120, 150, Undecidable, "link speed"},
		{"network unknown, the fastest", "", "NVIDIA H100 80GB HBM3", 2, 8, 468, 150, OK, "does not say which NICs"},
		{"sixteen nodes", "8 x H100, 8 x 400G InfiniBand", "NVIDIA H100 80GB HBM3", 16, 8, 385, 300, OK, ""},
		{"one NIC, in between", "8 x A100, 1 x HDR200", "NVIDIA A100-SXM4-80GB", 8, 8, 15.5, 300, Undecidable, "topo -m"},
		{"PCIe GPUs", "", "NVIDIA L40S", 1, 8, 20, 60, OK, ""},
		{"an unknown GPU", "", "NVIDIA Z999", 1, 8, 100, 60, Undecidable, "GPU's model"},
		{"NVL72", "", "NVIDIA GB200", 18, 4, 838, 120, OK, ""},
		{"one rank", "", "NVIDIA H100 80GB HBM3", 1, 1, 1, 5, Invalid, "one rank"},
	} {
		f := busFactor("all_reduce", c.nodes*c.perNode)
		r, text := judged(t, c.platform, sweep("all_reduce", c.gpu, c.nodes, c.perNode, sizes, curve(c.plateau, c.us, max(f, 1e-9))))
		if r.Verdict != c.want || !strings.Contains(strings.Join(strings.Fields(text), " "), c.says) {
			t.Errorf("%s: %s, not %s, or it does not say %q:\n%s", c.name, r.Verdict, c.want, c.says, text)
		}
	}
}

// TestPrograms: the other programs' outputs.
func TestPrograms(t *testing.T) {
	t.Parallel()
	const bw = "$ ib_write_bw -d mlx5_0 -q 8 --report_gbits peer\n                    RDMA_Write BW Test\n Dual-port       : OFF\t\tDevice         : mlx5_0\n Number of qps   : 8\t\tTransport type : IB\n PCIe relax order: %s\n Mtu             : 4096[B]\n Link type       : IB\n #bytes     #iterations    BW peak[%s]    BW average[%s]   MsgRate[Mpps]\n 65536      5000           %s\n"
	for _, c := range []struct {
		name, platform, text string
		want                 Verdict
		says                 string
	}{
		{"line rate", "8 x NDR400", fmt.Sprintf(bw, "ON", "Gb/sec", "Gb/sec", "392.0  391.5  0.74"), OK, "of 400"},
		{"line rate without a platform", "", fmt.Sprintf(bw, "ON", "Gb/sec", "Gb/sec", "392.0  391.5  0.74"), OK, "if the port has 400"},
		{"MB are MiB", "1 x 100G", fmt.Sprintf(bw, "ON", "MB/sec", "MB/sec", "11500.0  11480.1  0.18"), OK, "2^20"},
		{"relaxed ordering", "8 x NDR400", fmt.Sprintf(bw, "OFF", "Gb/sec", "Gb/sec", "128.0  127.9  0.24"), Slow, "relaxed ordering"},
		{"a slower port", "1 x 200G InfiniBand", fmt.Sprintf(bw, "ON", "Gb/sec", "Gb/sec", "97.2  97.1  0.18"), Slow, "line rate of 100 Gb/s"},
		{"unknown rate", "", fmt.Sprintf(bw, "ON", "Gb/sec", "Gb/sec", "150.0  149.5  0.28"), Undecidable, "ibstat"},
		{"latency", "", " RDMA_Write Latency Test\n Link type       : IB\n #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec]\n 2       1000          1.02           5.1         1.06       1.08\n", OK, "1.06 us"},
		{"slow latency", "", " RDMA_Write Latency Test\n Link type       : IB\n #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec]\n 2       1000          9.02           45.1         11.06       12.08\n", Slow, "C-states"},
		{"nvbandwidth", "", "nvbandwidth Version: v0.8\nDevice 0: NVIDIA A100-SXM4-80GB (00000000:07:00)\nDevice 1: NVIDIA A100-SXM4-80GB (00000000:0f:00)\n\nRunning host_to_device_memcpy_ce.\nmemcpy CE CPU(row) -> GPU(column) bandwidth (GB/s)\n           0         1\n 0     25.10      12.40\n\nSUM host_to_device_memcpy_ce 37.5\n", Slow, "GPU 1"},
		{"nvbandwidth waived", "", "nvbandwidth Version: v0.8\nWaiving device_to_device_memcpy_read_ce.\n", Invalid, "waived"},
		{"nvbandwidth JSON", "", `{"nvbandwidth": {"testcases": [{"name": "device_to_device_memcpy_read_ce", "status": "Passed", "bandwidth_matrix": [["N/A", "276.1"], ["275.9", "N/A"]]}], "GPU Device list": ["0: NVIDIA A100-SXM4-80GB (00000000:07:00)"]}}`, OK, "276 GB/s"},
		{"bandwidthTest", "", " Device 0: Tesla V100-PCIE-16GB\n Host to Device Bandwidth, 1 Device(s)\n PINNED Memory Transfers\n   Transfer Size (Bytes)\tBandwidth(GB/s)\n   32000000\t\t\t3.1\n", Slow, "PCIe 3 x4"},
		{"bandwidthTest of all devices", "", " Device 0: NVIDIA H200\n Device 1: NVIDIA H200\n Host to Device Bandwidth, 2 Device(s)\n PINNED Memory Transfers\n   Transfer Size (Bytes)\tBandwidth(GB/s)\n   32000000\t\t\t110.3\n", OK, "55.1 GB/s"},
		{"bandwidthTest as CSV", "1 x H200", "bandwidthTest-H2D-Pinned, Bandwidth = 55.2 GB/s, Time = 0.00058 s, Size = 32000000 bytes, NumDevsUsed = 1\n", OK, "55.2 GB/s"},
		{"pageable memory", "", " Device 0: NVIDIA H200\n Host to Device Bandwidth, 1 Device(s)\n PAGEABLE Memory Transfers\n   Transfer Size (Bytes)\tBandwidth(GB/s)\n   32000000\t\t\t8.3\n", Undecidable, "pinned"},
		{"peer access slower than none", "", "Unidirectional P2P=Disabled Bandwidth Matrix (GB/s)\n   D\\D     0      1\n     0 900.0  22.0\n     1  22.1 900.0\nUnidirectional P2P=Enabled Bandwidth (P2P Writes) Matrix (GB/s)\n   D\\D     0      1\n     0 900.0  9.9\n     1  9.9 900.0\n", Slow, "ACS"},
		{"dcgmi", "", "| Diagnostic                | Result    |\n|-----  Deployment  --------+-----------|\n| software                  | Pass      |\n+-----  Hardware  ----------+-----------+\n| memory                    | Fail      |\n|                           | GPU2: Fail |\n", Fail, "memory (GPU2) failed"},
		{"dcgmi, software alone", "", "| Diagnostic                | Result    |\n| Denylist                  | Pass      |\n| GPU Memory                | Skip - All |\n| Targeted Stress           | Skip - All |\n", Invalid, "no test of the hardware"},
		{"dcgmi JSON", "", `{"DCGM Diagnostic": {"test_categories": [{"category": "Hardware", "tests": [{"name": "memory", "results": [{"gpu_id": "3", "status": "Fail", "warnings": [{"warning": "GPU 3 has uncorrectable memory errors"}]}]}]}]}}`, Fail, "GPU3"},
		{"the average alone", "", "# Avg bus bandwidth    : 120.4\n", Undecidable, "average over all sizes"},
		{"wrong results", "", "# nThread 1 nGpus 2 minBytes 1 maxBytes 2 step\n#  Rank  0 Group  0 Pid 1 on n device 0 [0x1b] NVIDIA H100 80GB HBM3\n#  Rank  1 Group  0 Pid 1 on n device 1 [0x1b] NVIDIA H100 80GB HBM3\n 1048576 262144 float sum -1 30.1 34.8 34.8 7 30.2 34.7 34.7 0\n", Fail, "NCCL_P2P_DISABLE=1"},
		{"no figure", "", "$ ib_write_bw -d mlx5_0 peer\nCouldn't allocate MR\n", Fail, "memlock"},
		{"refused by the other side", "400G RoCE", "$ ib_write_bw -a peer\n RDMA_Write BW Test\n Number of qps : 1\n Link type : Ethernet\n Mtu : 4096[B]\n #bytes #iterations BW peak[Gb/sec] BW average[Gb/sec] MsgRate[Mpps]\n 65536 5000 381.50 381.41 0.72\n Completion with error at client\n Failed status 10: wr_id 0 syndrom 0x88\n", Fail, "without -a"},
		{"a quoted mail", "100 Gb/s InfiniBand", "> $ ib_send_bw -a peer\n> Send BW Test\n> Link type : IB\n> #bytes #iterations BW peak[MB/sec] BW average[MB/sec] MsgRate[Mpps]\n> 65536 1000 0.00 11524.86 0.18\n", OK, "96.7 Gb/s"},
		{"QDR", "40 Gb/s QDR InfiniBand", "$ ib_write_bw peer\n RDMA_Write BW Test\n Link type : IB\n #bytes #iterations BW peak[Gb/sec] BW average[Gb/sec] MsgRate[Mpps]\n 65536 5000 26.85 25.38 0.04\n", Slow, "32 Gb/s of data"},
		{"a confidential VM", "H100 NVL in a confidential VM (SEV-SNP)", " Device 0: NVIDIA H100 NVL\n Host to Device Bandwidth, 1 Device(s)\n PINNED Memory Transfers\n   Transfer Size (Bytes)\tBandwidth(GB/s)\n   32000000\t\t\t4.4\n", OK, "encrypted"},
		{"ranks 0 alone", "", "# nThread 1 nGpus 1 minBytes 8 maxBytes 1024 step: 2(factor)\n#  Rank  0 Group  0 Pid 1 on a device 0 [0x1b] NVIDIA H100 80GB HBM3\n#  Rank  0 Group  0 Pid 2 on b device 0 [0x1b] NVIDIA H100 80GB HBM3\n", Invalid, "MPI=1"},
		{"no size", "", "# nThread 1 nGpus 2 minBytes 8 maxBytes 1024 step: 2(factor)\nn1: Test CUDA failure common.cu:941 'system not yet initialized'\n", Fail, "fabric manager"},
		{"no size and no reason", "", "# nThread 1 nGpus 2 minBytes 8 maxBytes 1024 step: 2(factor)\n#  Rank  0 Group  0 Pid 1 on n device 0 [0x1b] NVIDIA H100 80GB HBM3\n", Invalid, "the text is cut"},
		{"no column of results", "2 nodes, 8 x B200, 8 x 400 Gb/s RoCE", " 8589934592  2147483648 float sum -1 23842 360.29 675.54\n 17179869184 4294967296 float sum -1 47062 365.05 684.46\n", OK, "684.5 GB/s at 16 GiB"},
		{"half of the elements", "", "#  Rank  0 Group  0 Pid 1 on a device 0 [0x1b] NVIDIA RTX 3090\n#  Rank  1 Group  0 Pid 1 on b device 0 [0x1b] NVIDIA RTX 3090\n 32768 8192 float sum -1 78.19 0.42 0.42 4096 79.51 0.41 0.41 4096\n 65536 16384 float sum -1 83.21 0.79 0.79 8192 83.57 0.78 0.78 8192\n 131072 32768 float sum -1 82.64 1.59 1.59 16384 82.84 1.58 1.58 16384\n", Fail, "50 %"},
		{"the greatest error", "8 nodes, 8 x V100, 100 Gb/s InfiniBand", "# size count type redop time algbw busbw error time algbw busbw error\n 536870912 2097152 float 1041974 0.52 0.51 0e+00 1041299 0.52 0.51 1e+00\n# Out of bounds values : 0 OK\n", Slow, "all_gather"},
		{"one GPU twice", "", "#  Rank  0 Group  0 Pid 7 on lab device 0 [0000:02:00] NVIDIA GeForce RTX 5090\n#  Rank  1 Group  0 Pid 8 on lab device 0 [0000:02:00] NVIDIA GeForce RTX 5090\n 134217728 33554432 float sum -1 58479.5 2.30 2.30 0 58055.4 2.31 2.31 0\n", Slow, "ranks share one GPU"},
		{"one GPU and four NICs", "2 nodes, 1 x H100 SXM, 4 x 400 Gb/s NICs", " 1073741824 268435456 float sum -1 25000 42.95 42.95 0 25000 42.95 42.95 0\n", OK, "cannot feed 4 x 400 Gb/s"},
		{"two runs", "2 nodes, 8 x H20", "# nThread 1 nGpus 2 minBytes 1 maxBytes 2 step\n#  Rank  0 Group  0 Pid 1 on a device 0 [0x1b] NVIDIA H20\n#  Rank  1 Group  0 Pid 1 on a device 1 [0x1c] NVIDIA H20\n 2147483648 536870912 float sum -1 5950.1 361.0 361.0 0 5950.1 361.0 361.0 0\n#  Rank  0 Group  0 Pid 9 on b device 0 [0x1b] NVIDIA H20\n#  Rank  1 Group  0 Pid 9 on b device 1 [0x1c] NVIDIA H20\n 2147483648 536870912 float sum -1 97600.1 22.0 22.0 0 97600.1 22.0 22.0 0\n", Slow, "built without MPI"},
		{"reads of one queue pair", "400 Gb/s NDR", "$ ib_read_bw -d mlx5_0 peer\n RDMA_Read BW Test\n Number of qps : 1\n Link type : IB\n #bytes #iterations BW peak[Gb/sec] BW average[Gb/sec] MsgRate[Mpps]\n 65536 1000 328.64 328.61 0.62\n", OK, "-q 4"},
		{"copies of a GPU without a name", "", "memcpy CE GPU(row) -> GPU(column) bandwidth (GB/s)\n           0         1\n 0       N/A    764.71\n 1    765.86       N/A\n\nSUM device_to_device_memcpy_read_ce 1530.57\n", Undecidable, "NVLink 5"},
		{"the average of one size", "2 nodes of 8 GPUs, 8 x 400G RoCE", "mpirun -np 16 --host a:8,b:8 all_reduce_perf -b 16G -e 16G -f 2 -g 1 -n 100\n# Avg bus bandwidth    : 104\n", Slow, "104 GB/s at 16 GiB"},
		{"sums alone", "4 x GB200", "SUM host_to_device_memcpy_ce 802.86\nSUM device_to_device_memcpy_read_ce 9216.17\nSUM device_to_device_bidirectional_memcpy_read_ce_total 18316.65\n", OK, "768 GB/s"},
		{"sums of nobody knows what", "", "SUM device_to_device_memcpy_read_ce 9216.17\n", Undecidable, "how many there are is not known"},
		{"tags within a line", "2 nodes, 8 x H100, 8 x 400G", "[1,0]<stdout>:  8589934592 2147483648 float sum -1[1,0]<stdout>:  33594  255.70  479.43 0[1,0]<stdout>: 33528 256.20 480.38 0\n", OK, "all_reduce by"},
		{"a curve that falls", "", " 268435456 67108864 float sum -1 1353.9 198.27 346.97 0 1342.3 199.98 349.97 0\n 536870912 134217728 float sum -1 5318.5 100.94 176.65 0 5318.5 100.94 176.65 0\n 1073741824 268435456 float sum -1 13592 79.00 138.25 0 17496 61.37 107.40 0\n", Slow, "350 GB/s at 256 MiB, and larger sizes fall below it"},
		{"a stall", "4 nodes, 4 x MI250X, 4 x 200 Gb/s Slingshot", " 0: 1048576 8192 float none -1 1456.6 0.72 0.70 0 1304.0 0.80 0.78 0\n 0: 2097152 16384 float none -1 70248 0.03 0.03 0 73593 0.03 0.03\n", Slow, "stalls at 2 MiB: an operation takes 70.2 ms"},
		{"tags of ranks within a line", "3 nodes of 8 x H100, 8 dual-port ConnectX-7 with 200 Gb/s links a node, RoCE", "[0]     33554432       8388608     float     sum      -1[0]    2180.1   15.39   29.50      0[0]    2285.2   14.68   28.14      0\n[0]     67108864      16777216     float     sum      -1[0]     24410    2.75    5.27      0[0]     24425    2.75    5.27      0\n[0]    134217728      33554432     float     sum      -1[0]     49264    2.72    5.22      0[0]     48558    2.76    5.30      0\n[0]    268435456      67108864     float     sum      -1[0]    125807    2.13    4.09      0[0]    121575    2.21    4.23      0\n", Slow, "all_reduce by nccl-tests"},
		{"a patched driver", "", "#  Rank  0 Group  0 Pid 1 on n device 0 [0x01] NVIDIA GeForce RTX 4090\n#  Rank  1 Group  0 Pid 1 on n device 1 [0x25] NVIDIA GeForce RTX 4090\n#  Rank  2 Group  0 Pid 1 on n device 2 [0x41] NVIDIA GeForce RTX 4090\n#  Rank  3 Group  0 Pid 1 on n device 3 [0x61] NVIDIA GeForce RTX 4090\n 1073741824 268435456 float sum -1 63624 16.88 25.31 0 63640 16.87 25.31 0\n", OK, "25.3 GB/s"},
		{"bridges of pairs", "", "Device: 0, NVIDIA A100 80GB PCIe, pciBusID: 1, pciDeviceID: 0, pciDomainID:0\nUnidirectional P2P=Enabled Bandwidth (P2P Writes) Matrix (GB/s)\n   D\\D     0      1      2\n     0 1502.4 275.1 21.6\n     1 275.5 1521.4 21.7\n     2 21.5 21.7 1508.2\n", OK, "275.5 GB/s between GPUs 0-1"},
	} {
		r, text := judged(t, c.platform, c.text)
		if flat := strings.Join(strings.Fields(text), " "); r.Verdict != c.want || !strings.Contains(flat, c.says) {
			t.Errorf("%s: %s, not %s, or it does not say %q:\n%s", c.name, r.Verdict, c.want, c.says, text)
		}
	}
	if _, err := judgeOf(t, "").File("x", []byte("hello\n")); err != ErrNothing {
		t.Errorf("a text without a measurement: %v", err)
	}
}

// TestReports: JSON and SVG are well-formed, and no secret or escape sequence of the text is in them.
func TestReports(t *testing.T) {
	t.Parallel()
	text := "export NCCL_NVLS_ENABLE=0 HF_TOKEN=hf_abcdefghijklmnop\n\x1b[31mNCCL_P2P_DISABLE=1\x1b[0m\n" + sweep("all_reduce", "NVIDIA H100 80GB HBM3<&\x07>", 1, 8, sizes, curve(100, 90, 1.75))
	r, out := judged(t, "", text)
	var j bytes.Buffer
	if err := json.NewEncoder(&j).Encode(r); err != nil {
		t.Fatal(err)
	}
	var svg bytes.Buffer
	if err := r.WriteSVG(&svg); err != nil {
		t.Fatal(err)
	}
	d := xml.NewDecoder(bytes.NewReader(svg.Bytes()))
	for {
		if _, err := d.Token(); err == io.EOF {
			break
		} else if err != nil {
			t.Fatalf("%v:\n%s", err, svg.String())
		}
	}
	for _, s := range []string{out, j.String(), svg.String()} {
		if strings.ContainsAny(s, "\x1b\x07") || strings.Contains(s, "hf_abc") {
			t.Errorf("a control character or a secret: %q", s)
		}
	}
}

// TestLarge: of a large log the table and what matters around it are read as of a small one.
func TestLarge(t *testing.T) {
	t.Parallel()
	table := sweep("all_reduce", "NVIDIA H100 80GB HBM3", 1, 8, sizes, curve(100, 90, 1.75))
	noise := strings.Repeat("n1:1:1 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM/read\n", 40000)
	small, _ := judged(t, "", "n1:1:1 [0] NCCL INFO NCCL_P2P_DISABLE set by environment to 1.\n"+table)
	big, _ := judged(t, "", noise+"n1:1:1 [0] NCCL INFO NCCL_P2P_DISABLE set by environment to 1.\n"+noise+table+noise)
	if len(noise) < large || small.Measurements[0].Summary != big.Measurements[0].Summary || !slices.EqualFunc(small.Measurements[0].Causes, big.Measurements[0].Causes, func(a, b Cause) bool { return a.Text == b.Text }) {
		t.Errorf("%+v\n%+v", small.Measurements[0], big.Measurements[0])
	}
}

func FuzzFile(f *testing.F) {
	for _, name := range []string{"all-reduce-2xh200.txt", "p2p-2xh200.txt", "nccl-tests.json", "log-between.txt"} {
		b, err := os.ReadFile(filepath.Join("testdata", name))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b, "8 x H100, 8 x 400G RoCE")
	}
	f.Add([]byte("| Diagnostic | Result |\n| pcie | Fail |\n| Warning: GPU0 | GPU 0 is run  |\n| | ning |\n"), "p5.48xlarge")
	f.Add([]byte(" RDMA_Write BW Test\n #bytes #iterations BW peak[MB/sec] BW average[MB/sec]\n 65536 5000 11500.0 11480.1\n"), "2 nodes x 8 MI300X, 100 Gbps EFA")
	j := judgeOf(f, "")
	f.Fuzz(func(t *testing.T, text []byte, hardware string) {
		own := *j
		own.Machine = nil
		if m, err := ParseMachine(j.DB, hardware); err == nil {
			own.Machine = m
		}
		r, err := own.File("x", text)
		if err != nil {
			return
		}
		if err := r.WriteText(io.Discard, 100); err != nil {
			t.Fatal(err)
		}
		if _, err := json.Marshal(r); err != nil {
			t.Fatal(err)
		}
		if err := r.WriteSVG(io.Discard); err != nil && !strings.Contains(err.Error(), "nothing to draw") {
			t.Fatal(err)
		}
	})
}

// TestGarbled: parts of real outputs, cut and mixed, never end in a panic or in NaN.
func TestGarbled(t *testing.T) {
	t.Parallel()
	var lines []string
	names, err := filepath.Glob("testdata/*.txt")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		lines = append(lines, strings.Split(string(b), "\n")...)
	}
	rng := rand.New(rand.NewPCG(1, 2))
	j := judgeOf(t, "8 x H100, 8 x NDR400")
	for range 300 {
		var text []string
		for range 60 {
			l := lines[rng.IntN(len(lines))]
			if rng.IntN(4) == 0 && l != "" {
				l = l[:rng.IntN(len(l))]
			}
			text = append(text, l)
		}
		r, err := j.File("x", []byte(strings.Join(text, "\n")))
		if err != nil {
			continue
		}
		if b, err := json.Marshal(r); err != nil || bytes.Contains(b, []byte("NaN")) {
			t.Fatal(err, strings.Join(text, "\n"))
		}
	}
}
