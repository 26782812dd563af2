package probe

import (
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
)

// flagCase is a flag as one types it, and what it must do to the defaults.
type flagCase struct {
	tool  string
	line  string
	set   func(*Config)
	usage string // instead: part of the error
}

// flagCases have each flag of the table at least once.
var flagCases = []flagCase{
	{"write_bw", "", func(c *Config) {}, ""},
	{"write_bw", "node2", func(c *Config) { c.Host = "node2" }, ""},
	{"write_bw", "node2 -q4", func(c *Config) { c.Host, c.QPs = "node2", 4 }, ""},
	{"write_bw", "-q 4 -- -odd-", func(c *Config) { c.Host, c.QPs = "-odd-", 4 }, ""},
	{"write_bw", "-s65536", func(c *Config) { c.Size = 65536 }, ""},
	{"write_bw", "-s 64K", func(c *Config) { c.Size = 65536 }, ""},
	{"write_bw", "--size=8m", func(c *Config) { c.Size = 8 << 20 }, ""},
	{"write_bw", "--siz 1G", func(c *Config) { c.Size = 1 << 30 }, ""},
	{"write_bw", "-s 2G", nil, `-s: "2G" is not a size`},
	{"write_bw", "-s 0", nil, `-s: "0" is not a size`},
	{"write_bw", "-s 64Kx", nil, "is not a size"},
	{"write_bw", "--size=", nil, "is not a size"},
	{"write_bw", "-aF", func(c *Config) { c.All = true }, ""},
	{"write_bw", "-aFn20", func(c *Config) { c.All, c.Iterations = true, 20 }, ""},
	{"write_bw", "-abNn 20 h", func(c *Config) {
		c.All, c.Bidirectional, c.NoPeak, c.Iterations, c.Host = true, true, true, 20, "h"
	}, ""},
	{"write_bw", "-n 1K", nil, "-n: \"1K\" is not a number of iterations"},
	{"write_bw", "--iters=20", func(c *Config) { c.Iterations = 20 }, ""},
	{"write_bw", "-D 10 -f 1", func(c *Config) { c.Duration, c.Margin = 10*time.Second, time.Second }, ""},
	{"write_bw", "--duration=10 --margin=0", func(c *Config) { c.Duration, c.Margin = 10*time.Second, 0 }, ""},
	{"write_bw", "-D 0", nil, "-D: \"0\" is no whole number from 1 on"},
	{"write_bw", "--run_infinitely", func(c *Config) { c.Endless = true }, ""},
	{"write_bw", "--reversed", func(c *Config) { c.Reversed = true }, ""},
	{"atomic_bw", "-A CMP_AND_SWAP", func(c *Config) { c.CompareAndSwap = true }, ""},
	{"atomic_bw", "--atomic_type=FETCH_AND_ADD", func(c *Config) {}, ""},
	{"atomic_bw", "-A SWAP", nil, "want CMP_AND_SWAP or FETCH_AND_ADD"},
	{"read_bw", "--perform_warm_up", func(c *Config) { c.WarmUp = true }, ""},
	{"read_lat", "--latency_gap=5", func(c *Config) { c.LatencyGap = 5 * time.Microsecond }, ""},
	{"read_bw", "--use_cuda=2 --use_cuda_dmabuf", func(c *Config) { c.GPU, c.DMABuf = 2, true }, ""},
	{"read_bw", "--use_cuda_dmabuf --use_cuda=2", func(c *Config) { c.GPU, c.DMABuf = 2, true }, ""},
	{"read_bw", "--use_cuda_bus_id=0000:3b:00.0", func(c *Config) { c.GPUBusID = "0000:3b:00.0" }, ""},
	{"write_bw", "-d mlx5_1", func(c *Config) { c.Device = "mlx5_1" }, ""},
	{"write_bw", "--ib-dev=mlx5_1 --ib-port=2", func(c *Config) { c.Device, c.IBPort = "mlx5_1", 2 }, ""},
	{"write_bw", "-i2", func(c *Config) { c.IBPort = 2 }, ""},
	{"write_bw", "-m 4096", func(c *Config) { c.MTU = 4096 }, ""},
	{"write_bw", "--mtu=1500", nil, "an MTU is 256"},
	{"write_bw", "-x3", func(c *Config) { c.GIDIndex = 3 }, ""},
	{"write_bw", "--gid-index 0", func(c *Config) { c.GIDIndex = 0 }, ""},
	{"write_bw", "-x -1", nil, "-x: \"-1\" is no whole number"},
	{"write_bw", "--ipv6", func(c *Config) { c.IPv6 = true }, ""},
	{"write_bw", "-S3", func(c *Config) { c.SL = 3 }, ""},
	{"write_bw", "--sl=3 --tclass=0x68", func(c *Config) { c.SL, c.TClass = 3, 0x68 }, ""},
	{"write_bw", "--pkey_index=1 --dlid=0x12", func(c *Config) { c.PKeyIndex, c.DLID = 1, 0x12 }, ""},
	{"write_bw", "--force-link=ethernet", func(c *Config) { c.ForceLink = "Ethernet" }, ""},
	{"write_bw", "--force-link=IB", func(c *Config) { c.ForceLink = "IB" }, ""},
	{"write_bw", "--force-link=wifi", nil, "neither IB nor Ethernet"},
	{"send_bw", "-c UD", func(c *Config) { c.Connection = UD }, ""},
	{"send_bw", "--connection=uc", func(c *Config) { c.Connection = UC }, ""},
	{"send_bw", "-c XRC", nil, "not supported: XRC connections; there are RC, UC and UD"},
	{"send_bw", "-c AB", nil, "want RC, UC or UD"},
	{"write_bw", "--qp=3 --tx-depth=64 --cq-mod=16", func(c *Config) { c.QPs, c.TxDepth, c.CQModeration = 3, 64, 16 }, ""},
	{"write_bw", "-t64 -Q16 -l4 -I0 -u18", func(c *Config) {
		c.TxDepth, c.CQModeration, c.PostList, c.Inline, c.AckTimeout = 64, 16, 4, 0, 18
	}, "-l 4 is not a multiple of -Q 16"},
	{"write_bw", "-t64 -Q2 -l4 -I0 -u18", func(c *Config) {
		c.TxDepth, c.CQModeration, c.PostList, c.Inline, c.AckTimeout = 64, 2, 4, 0, 18
	}, ""},
	{"write_bw", "--post_list=4 --inline_size=64 --qp-timeout=18", func(c *Config) { c.PostList, c.Inline, c.AckTimeout = 4, 64, 18 }, ""},
	{"send_bw", "-r 100", func(c *Config) { c.RxDepth = 100 }, ""},
	{"send_bw", "--rx-depth=100", func(c *Config) { c.RxDepth = 100 }, ""},
	{"read_bw", "-o 4", func(c *Config) { c.OutReads = 4 }, ""},
	{"read_bw", "--outs=4 -eX2", func(c *Config) { c.OutReads, c.Events, c.Vector = 4, true, 2 }, ""},
	{"read_bw", "--events --vector=2", func(c *Config) { c.Events, c.Vector = true, 2 }, ""},
	{"write_bw", "--disable_pcie_relaxed", func(c *Config) { c.Relaxed = false }, ""},
	{"write_bw", "-p 1234", func(c *Config) { c.Port = 1234 }, ""},
	{"write_bw", "--port=1234 --ipv6-addr --source_ip=::1", func(c *Config) { c.Port, c.IPv6TCP, c.Source = 1234, true, "::1" }, ""},
	{"write_bw", "--wait=20 --timeout=60", func(c *Config) { c.Wait, c.Timeout = 20*time.Second, time.Minute }, ""},
	{"write_bw", "--timeout=0", nil, "--timeout"},
	{"send_bw", "--use-srq -q4 --recv_post_list=4", func(c *Config) { c.SRQ, c.QPs, c.RecvList = true, 4, 4 }, ""},
	{"write_bw", "--use-srq", nil, "--use-srq: only sends are received"},
	{"send_bw", "--recv_post_list=3", nil, "-n 1000 is not a multiple of --recv_post_list 3"},
	{"write_bw", "--flow_label=7,0x12", func(c *Config) { c.FlowLabels = []uint32{7, 0x12} }, ""},
	{"write_bw", "--flow_label=7,", nil, `"" is no flow label`},
	{"write_bw", "--flow_label=0x100000", nil, "a flow label is from 0 to 1048575"},
	{"write_bw", "--use_hugepages", func(c *Config) { c.HugePages = true }, ""},
	{"write_bw", "--mmap=/dev/dax0.0 --mmap-offset=0x2000", func(c *Config) { c.File, c.FileOffset = "/dev/dax0.0", 8192 }, ""},
	{"write_bw", "--mmap-offset=-1", nil, "is not a number of bytes"},
	{"write_bw", "--mmap-offset=4096", nil, "add --mmap"},
	{"send_bw", "--inline_recv=64", nil, "--inline_recv: not supported: inline receives: rdma-core has no call"},
	{"write_bw", "-R -T 104 --retry_count=3", func(c *Config) { c.CM, c.TOS, c.Retries = true, 104, 3 }, ""},
	{"write_bw", "--rdma_cm --tos=0", func(c *Config) { c.CM, c.TOS = true, 0 }, ""},
	{"write_bw", "-aR", func(c *Config) { c.All, c.CM = true, true }, ""},
	{"write_lat", "-z", func(c *Config) { c.ControlCM = true }, ""},
	{"write_lat", "--com_rdma_cm", func(c *Config) { c.ControlCM = true }, ""},
	{"write_bw", "-R -T 256", nil, "-T: a type of service is from 0 to 255"},
	{"write_bw", "-z -T 4", nil, "add -R"},
	{"write_bw", "--retry_count=8 -R", nil, "--retry_count: the number of retries is from 0 to 7"},
	{"send_bw", "-R -c UC", nil, "rdma_cm connects no UC"},
	{"write_bw", "--report_gbits --report-both --bidirectional", func(c *Config) { c.Gbits, c.ReportBoth, c.Bidirectional = true, true, true }, ""},
	{"write_bw", "--noPeak --all", func(c *Config) { c.NoPeak, c.All = true, true }, ""},
	{"write_lat", "-HU --histogram", func(c *Config) { c.Sorted, c.Unsorted, c.Histogram = true, true, true }, ""},
	{"write_lat", "--report-histogram --report-unsorted", func(c *Config) { c.Sorted, c.Unsorted = true, true }, ""},
	{"write_lat", "--output=latency", func(c *Config) { c.Format = "latency" }, ""},
	{"write_bw", "--output json", func(c *Config) { c.Format = "json" }, ""},
	{"write_bw", "--output=", nil, "--output: it is bandwidth"},
	{"write_bw", "--output=latency", nil, "a bandwidth test gives bandwidth, message_rate or json"},
	{"write_bw", "--out_json", func(c *Config) { c.JSONFile = "perftest_out.json" }, ""},
	{"write_bw", "--out_json_file=x.json --out_json", func(c *Config) { c.JSONFile = "x.json" }, ""},
	{"write_bw", "--cpu_util -D5", func(c *Config) { c.CPUUtil, c.Duration = true, 5*time.Second }, ""},
	{"write_bw", "-W counters/port_xmit_data,hw_counters/out_of_buffer", func(c *Config) { c.Counters = []string{"counters/port_xmit_data", "hw_counters/out_of_buffer"} }, ""},
	{"write_bw", "--report-counters=../../etc/passwd", nil, "is not a counter such as"},
	{"write_bw", "-w 90.5 -y 0.1", func(c *Config) { c.LimitBW, c.LimitRate = 90.5, 0.1 }, ""},
	{"write_bw", "--limit_bw=90 --limit_msgrate=1", func(c *Config) { c.LimitBW, c.LimitRate = 90, 1 }, ""},
	{"write_bw", "-w nan", nil, "is not a number above 0"},
	{"write_bw", "--wait_destroy=5", func(c *Config) { c.WaitDestroy = 5 * time.Second }, ""},
	{"write_bw", "--CPU-freq --use_old_post_send", func(c *Config) {}, ""},
	{"write_bw", "-h", nil, "help was asked for"},
	{"write_bw", "--help", nil, "help was asked for"},
	{"write_bw", "-V", nil, "the version was asked for"},
	{"write_bw", "--version", nil, "the version was asked for"},
	// What cannot be read.
	{"write_bw", "a b", nil, "there is one server to connect to"},
	{"write_bw", "-s", nil, "option requires an argument -- 's'"},
	{"write_bw", "--size", nil, "option '--size' requires an argument"},
	{"write_bw", "--all=1", nil, "option '--all' doesn't allow an argument"},
	{"write_bw", "--sise=1", nil, "unrecognized option '--sise'; did you mean '--size'?"},
	{"write_bw", "--report-", nil, "option '--report-' is ambiguous: '--report-both' or '--report-cycles'?"},
	{"write_bw", "-i1G", nil, "is no whole number"},
	{"write_bw", "-5", nil, "invalid option -- '5'"},
	{"write_bw", "-O", nil, "-O: not supported: two ports"},
	{"write_bw", "-aO", nil, "-O: not supported"},
	{"write_bw", "-G", nil, "-G: not supported: raw Ethernet"},
	{"write_bw", "--no_lock", nil, "--no_lock: not supported: thread domains"},
	{"write_bw", "--write_with_imm -r 64", func(c *Config) { c.Immediate, c.RxDepth = true, 64 }, ""},
	{"send_lat", "--send_with_imm", func(c *Config) { c.Immediate = true }, ""},
	{"write_lat", "--write_with_imm -e", func(c *Config) { c.Immediate, c.Events = true, true }, ""},
	{"read_bw", "--write_with_imm", nil, "only writes and sends carry"},
	{"write_bw", "--rate_limit=5 --rate_limit_type=SW --rate_units=M --burst_size=8", func(c *Config) { c.Rate, c.RateType, c.RateUnit, c.Burst = 5, "SW", "M", 8 }, ""},
	{"write_bw", "--rate_limit=5", nil, "add --rate_limit_type=SW"},
	{"write_bw", "--rate_limit=5 --rate_limit_type=HW", nil, "limits by the NIC"},
	{"write_bw", "--rate_limit=5 --rate_limit_type=PP", nil, "limits by the NIC"},
	{"write_bw", "--rate_limit=5 --rate_limit_type=sw", nil, "want SW"},
	{"write_bw", "--rate_limit=5 --rate_units=G", nil, "want g for Gb/s"},
	{"write_bw", "--rate_limit=0.001 --rate_limit_type=SW", nil, "takes more than a second"},
	{"write_bw", "--rate_limit_type=SW", nil, "add --rate_limit"},
	{"write_bw", "--burst_size=8", nil, "add --rate_limit"},
	{"write_lat", "--rate_limit=5 --rate_limit_type=SW", nil, "--latency_gap is the pause"},
	{"write_bw", "--odp --mr_per_qp -q 4", func(c *Config) { c.OnDemand, c.EachMR, c.QPs = true, true, 4 }, ""},
	{"write_bw", "--mr_per_qp --use_cuda=0", nil, "registered as one region"},
	{"write_bw", "--payload_file_path=words.txt", func(c *Config) { c.Payload = "words.txt" }, ""},
	{"write_lat", "--payload_file_path=words.txt", nil, "watches memory"},
	{"send_bw", "--cqe_poll=64 --disable_dynamic_polling", func(c *Config) { c.PollBatch = 64 }, ""},
	{"write_bw", "--cqe_poll=65536", nil, "from 1 to 65535"},
	{"write_bw", "--no_enhanced_reorder", func(c *Config) { c.NoReorder = true }, ""},
	{"write_bw", "--pin_cores=0-2,5 --disable_numa", func(c *Config) { c.Cores = []int{0, 1, 2, 5} }, ""},
	{"write_bw", "--pin_cores=3-1", nil, "is no list of processors"},
	{"write_bw", "--pin_cores=0-4096", nil, "is no list of processors"},
	{"write_bw", "--numa_node=1", func(c *Config) { c.NUMANode = 1 }, ""},
	{"write_bw", "--numa_node=1 --pin_cores=0", nil, "leave one out"},
	{"write_bw", "--bind_source_ip=10.0.0.1", func(c *Config) { c.Source = "10.0.0.1" }, ""},
	{"read_lat", "--comm_rdma_cm", func(c *Config) { c.ControlCM = true }, ""},
	{"read_lat", "--comm -C", func(c *Config) { c.ControlCM, c.Cycles = true, true }, ""},
	{"read_lat", "--report-histogrm --report-cycles", func(c *Config) { c.Sorted, c.Cycles = true, true }, ""},
	{"read_bw", "-C", nil, "this is for latency tests"},
	{"write_lat", "--format json", func(c *Config) { c.Format = "json" }, ""},
}

func parseLine(t *testing.T, tool, line string) (Config, error) {
	t.Helper()
	tl, ok := FindTool(tool)
	if !ok {
		t.Fatalf("no tool %s", tool)
	}
	return tl.Parse(strings.Fields(line))
}

func TestFlags(t *testing.T) {
	for _, tt := range flagCases {
		got, err := parseLine(t, tt.tool, tt.line)
		if tt.usage != "" {
			if err == nil || !strings.Contains(err.Error(), tt.usage) {
				t.Errorf("%s %s: %v; want %q", tt.tool, tt.line, err, tt.usage)
			}
			continue
		}
		tl, _ := FindTool(tt.tool)
		want := Default(tl.Operation, tl.Measure)
		tt.set(&want)
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s %s: %v\ngot  %+v\nwant %+v", tt.tool, tt.line, err, got, want)
		}
	}
}

// TestFlagsCovered: each flag of the table, short and long, stands in a case
// above.
func TestFlagsCovered(t *testing.T) {
	var all string
	shorts := map[byte]bool{}
	for _, c := range flagCases {
		for _, w := range strings.Fields(c.line) {
			name, _, _ := strings.Cut(w, "=")
			all += name + "\n"
			if len(w) > 1 && w[0] == '-' && w[1] != '-' {
				for i := 1; i < len(w); i++ {
					shorts[w[i]] = true
					if f := slices.IndexFunc(flags, func(f flag) bool { return f.short == w[i] }); f < 0 || flags[f].arg != "" {
						break
					}
				}
			}
		}
	}
	for _, f := range flags {
		if !strings.Contains(all, "--"+f.long+"\n") {
			t.Errorf("no case for --%s", f.long)
		}
		if f.short != 0 && !shorts[f.short] {
			t.Errorf("no case for -%c", f.short)
		}
	}
}

// TestFlagTables: no name stands twice, each flag is some tool's, and each one
// that is refused says why.
func TestFlagTables(t *testing.T) {
	seen := map[string]bool{}
	once := func(short byte, long string) {
		for _, n := range []string{string(short), long} {
			if n != "" && n != "\x00" && seen[n] {
				t.Errorf("%q stands twice", n)
			}
			seen[n] = true
		}
	}
	for _, f := range flags {
		once(f.short, f.long)
		if !slices.ContainsFunc(Tools(), f.offered) || f.help == "" || f.group == "" {
			t.Errorf("--%s is nobody's", f.long)
		}
	}
	for _, u := range unsupported {
		once(u.short, u.long)
		typed := []string{"--" + u.long}
		if u.long == "" {
			typed = []string{"-" + string(u.short)}
		}
		tl, _ := FindTool("send_bw")
		var f *FlagError
		if _, err := tl.Parse(typed); !errors.As(err, &f) || !strings.HasPrefix(f.Text, "not supported: ") {
			t.Errorf("%v: %v", typed, err)
		}
	}
}

// FuzzFlags: whatever is typed, there is a configuration that passes Check,
// or an error.
func FuzzFlags(f *testing.F) {
	for _, c := range flagCases {
		f.Add(c.tool, c.line)
	}
	f.Fuzz(func(t *testing.T, tool, line string) {
		tl, ok := FindTool(tool)
		if !ok {
			return
		}
		c, err := tl.Parse(strings.Split(line, " "))
		if err == nil && (c.Check() != nil || c.SendDepth() < 1 || c.ReceiveDepth() < 1 || c.CQMod() < 1 || c.MessageSize(1024) < 1 || len(c.Sizes(1024)) < 1) {
			t.Errorf("%s %q: %+v", tool, line, c)
		}
	})
}
