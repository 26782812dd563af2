package probe

import (
	"time"

	"github.com/assay-hpc/assay/internal/getopt"
)

// flags are all flags, in the order of the usage text.
var flags = []flag{
	{groupTest, 's', "size", "SIZE", "bytes of a message, also 64K or 8M (default 65536, in latency tests 2)", notAtomic, setSize},
	{groupTest, 'a', "all", "", "sizes from 2 bytes to 8 MiB", notAtomic, yes(func(c *Config) *bool { return &c.All })},
	{groupTest, 'n', "iters", "COUNT", "messages of each queue pair, at least 5 (default 1000, of write_bw 5000)", nil, setIterations},
	{groupTest, 'D', "duration", "SECONDS", "so long instead of -n", nil, setSeconds},
	{groupTest, 'f', "margin", "SECONDS", "leave out so long at both ends of -D (default a quarter of it)", nil, duration(func(c *Config) *time.Duration { return &c.Margin }, time.Second, 0)},
	{groupTest, 0, "run_infinitely", "", "never end; a line every -D seconds (default 5)", isBW, yes(func(c *Config) *bool { return &c.Endless })},
	{groupTest, 'b', "bidirectional", "", "both directions at a time", isBW, yes(func(c *Config) *bool { return &c.Bidirectional })},
	{groupTest, 0, "reversed", "", "from the server to the client", isBW, yes(func(c *Config) *bool { return &c.Reversed })},
	{groupTest, 'A', "atomic_type", "TYPE", "CMP_AND_SWAP or FETCH_AND_ADD (default)", isAtomic, setAtomic},
	{groupTest, 0, "perform_warm_up", "", "some messages before the clock starts", warmable, yes(func(c *Config) *bool { return &c.WarmUp })},
	{groupTest, 0, "latency_gap", "MICROSECONDS", "pause before each message", isLat, duration(func(c *Config) *time.Duration { return &c.LatencyGap }, time.Microsecond, 0)},
	{groupTest, 0, "use_hugepages", "", "data in huge pages", nil, yes(func(c *Config) *bool { return &c.HugePages })},
	{groupTest, 0, "mmap", "FILE", "data in a file, or a device that can be mapped", nil, textSetter(func(c *Config) *string { return &c.File })},
	{groupTest, 0, "mmap-offset", "BYTES", "where in the file it begins", nil, setFileOffset},
	{groupTest, 0, "use_cuda", "INDEX", "data in the memory of this GPU", takesGPU, whole(func(c *Config) *int { return &c.GPU }, 0)},
	{groupTest, 0, "use_cuda_bus_id", "ADDRESS", "the GPU by its PCI address", takesGPU, textSetter(func(c *Config) *string { return &c.GPUBusID })},
	{groupTest, 0, "use_cuda_dmabuf", "", "register the GPU's memory by dma-buf, without nvidia-peermem", takesGPU, yes(func(c *Config) *bool { return &c.DMABuf })},

	{groupNet, 'd', "ib-dev", "NAME", "RDMA device (default the first; see harness ib devices)", nil, textSetter(func(c *Config) *string { return &c.Device })},
	{groupNet, 'i', "ib-port", "PORT", "the device's port (default 1)", nil, whole(func(c *Config) *int { return &c.IBPort }, 1)},
	{groupNet, 'm', "mtu", "BYTES", "256, 512, 1024, 2048 or 4096 (default the port's)", nil, whole(func(c *Config) *int { return &c.MTU }, 256)},
	{groupNet, 'x', "gid-index", "INDEX", "GID of the port (default none on InfiniBand, by rule on Ethernet)", nil, whole(func(c *Config) *int { return &c.GIDIndex }, 0)},
	{groupNet, 0, "ipv6", "", "prefer a GID that is no IPv4 address", nil, yes(func(c *Config) *bool { return &c.IPv6 })},
	{groupNet, 'S', "sl", "LEVEL", "service level, 0 to 15", nil, whole(func(c *Config) *int { return &c.SL }, 0)},
	{groupNet, 0, "tclass", "CLASS", "traffic class, 0 to 255", nil, based(func(c *Config) *int { return &c.TClass })},
	{groupNet, 0, "pkey_index", "INDEX", "partition key", nil, whole(func(c *Config) *int { return &c.PKeyIndex }, 0)},
	{groupNet, 0, "dlid", "LID", "destination instead of the one that the peer tells", nil, based(func(c *Config) *int { return &c.DLID })},
	{groupNet, 0, "flow_label", "LABEL,...", "flow labels, one queue pair's after the other's, 0 to 0xfffff", nil, setFlowLabels},
	{groupNet, 0, "force-link", "LINK", "take the port's link for IB or Ethernet", nil, setLink},

	{groupQP, 'c', "connection", "TYPE", "RC (default), UC or UD", nil, setConnection},
	{groupQP, 'q', "qp", "COUNT", "queue pairs (default 1)", isBW, whole(func(c *Config) *int { return &c.QPs }, 1)},
	{groupQP, 't', "tx-depth", "DEPTH", "messages in flight on each (default 128)", isBW, whole(func(c *Config) *int { return &c.TxDepth }, 1)},
	{groupQP, 'r', "rx-depth", "DEPTH", "receives posted on each (default 512)", isSend, whole(func(c *Config) *int { return &c.RxDepth }, 1)},
	{groupQP, 'Q', "cq-mod", "COUNT", "one completion for this many messages (default 100; above 8192 bytes 1)", isBW, whole(func(c *Config) *int { return &c.CQModeration }, 1)},
	{groupQP, 'l', "post_list", "COUNT", "post this many messages at a time", isBW, whole(func(c *Config) *int { return &c.PostList }, 1)},
	{groupQP, 0, "recv_post_list", "COUNT", "post this many receives at a time", func(t Tool) bool { return isBW(t) && isSend(t) }, whole(func(c *Config) *int { return &c.RecvList }, 1)},
	{groupQP, 0, "use-srq", "", "one receive queue for all queue pairs", isSend, yes(func(c *Config) *bool { return &c.SRQ })},
	{groupQP, 'I', "inline_size", "BYTES", "largest message that goes inline", carries, whole(func(c *Config) *int { return &c.Inline }, 0)},
	{groupQP, 'o', "outs", "COUNT", "reads in flight (default the device's maximum)", initiates, whole(func(c *Config) *int { return &c.OutReads }, 1)},
	{groupQP, 'u', "qp-timeout", "EXPONENT", "wait 4.096 us * 2^EXPONENT for an acknowledgement (default 14)", nil, whole(func(c *Config) *int { return &c.AckTimeout }, 0)},
	{groupQP, 'e', "events", "", "sleep until completions arrive, instead of polling", hasEvents, yes(func(c *Config) *bool { return &c.Events })},
	{groupQP, 'X', "vector", "INDEX", "completion vector of -e", hasEvents, whole(func(c *Config) *int { return &c.Vector }, 0)},
	{groupQP, 0, "disable_pcie_relaxed", "", "no relaxed ordering on PCIe", nil, func(c *Config, _ string) error { c.Relaxed = false; return nil }},

	{groupControl, 'p', "port", "PORT", "TCP port (default 18515)", nil, whole(func(c *Config) *int { return &c.Port }, 1)},
	{groupControl, 0, "ipv6-addr", "", "over IPv6", nil, yes(func(c *Config) *bool { return &c.IPv6TCP })},
	{groupControl, 0, "source_ip", "ADDRESS", "connect from this address", nil, textSetter(func(c *Config) *string { return &c.Source })},
	{groupControl, 0, "wait", "SECONDS", "keep trying this long while no server listens", nil, duration(func(c *Config) *time.Duration { return &c.Wait }, time.Second, 0)},
	{groupControl, 0, "timeout", "SECONDS", "longest wait for the peer's next message (default 30)", nil, duration(func(c *Config) *time.Duration { return &c.Timeout }, time.Second, 1)},
	{groupControl, 'z', "com_rdma_cm", "", "by rdma_cm instead of TCP; HOST is the RDMA interface's address", nil, yes(func(c *Config) *bool { return &c.ControlCM })},
	{groupControl, 'R', "rdma_cm", "", "queue pairs, too, are connected by rdma_cm", nil, yes(func(c *Config) *bool { return &c.CM })},
	{groupControl, 'T', "tos", "TOS", "type of service of -R, 0 to 255", nil, whole(func(c *Config) *int { return &c.TOS }, 0)},
	{groupControl, 0, "retry_count", "COUNT", "retries of -R's queue pairs, 0 to 7 (default 7)", nil, whole(func(c *Config) *int { return &c.Retries }, 0)},

	{groupOut, 0, "report_gbits", "", "Gb/s instead of MiB/s", isBW, yes(func(c *Config) *bool { return &c.Gbits })},
	{groupOut, 0, "report-both", "", "both directions of -b by themselves", isBW, yes(func(c *Config) *bool { return &c.ReportBoth })},
	{groupOut, 'N', "noPeak", "", "do not look for the peak (also not beyond 20000 iterations)", isBW, yes(func(c *Config) *bool { return &c.NoPeak })},
	{groupOut, 'H', "report-histogram", "", "every latency, sorted", isLat, yes(func(c *Config) *bool { return &c.Sorted })},
	{groupOut, 'U', "report-unsorted", "", "every latency, in the order of measurement", isLat, yes(func(c *Config) *bool { return &c.Unsorted })},
	{groupOut, 0, "histogram", "", "percentiles and a histogram behind the table, also with -D", isLat, yes(func(c *Config) *bool { return &c.Histogram })},
	{groupOut, 0, "output", "FORM", "only bandwidth, message_rate or latency, as a number; or json", nil, setFormat},
	{groupOut, 0, "out_json", "", "also write perftest_out.json, as perftest does", nil, func(c *Config, _ string) error {
		if c.JSONFile == "" {
			c.JSONFile = "perftest_out.json"
		}
		return nil
	}},
	{groupOut, 0, "out_json_file", "FILE", "the name of that", nil, textSetter(func(c *Config) *string { return &c.JSONFile })},
	{groupOut, 0, "cpu_util", "", "the processors' use, with -D", nil, yes(func(c *Config) *bool { return &c.CPUUtil })},
	{groupOut, 'W', "report-counters", "NAME,...", "change of the port's counters: counters/port_xmit_data", nil, setCounters},
	{groupOut, 'w', "limit_bw", "VALUE", "fail below this average bandwidth (of the best size)", isBW, decimal(func(c *Config) *float64 { return &c.LimitBW })},
	{groupOut, 'y', "limit_msgrate", "MPPS", "fail below this message rate (of the best size)", isBW, decimal(func(c *Config) *float64 { return &c.LimitRate })},

	{groupMore, 0, "wait_destroy", "SECONDS", "wait before queue pairs are destroyed", nil, duration(func(c *Config) *time.Duration { return &c.WaitDestroy }, time.Second, 0)},
	{groupMore, 'F', "CPU-freq", "", "nothing: the clock's rate is measured", nil, nothing("")},
	{groupMore, 0, "use_old_post_send", "", "nothing: ibv_post_send is used always", nil, nothing("")},
	{groupMore, 'V', "version", "", "print the version", nil, func(*Config, string) error { return getopt.ErrVersion }},
	{groupMore, 'h', "help", "", "print this text", nil, func(*Config, string) error { return getopt.ErrHelp }},
}

// unsupported are perftest's flags that are refused, and why.
var unsupported = []struct {
	short byte
	long  string
	why   string
}{
	{'O', "dualport", "two ports in one test; run one test on each port"},
	{0, "report-per-port", "it is for -O"},
	{'g', "mcg", "multicast: on InfiniBand perftest joins a group by MADs to the subnet manager"},
	{'M', "MGID", "multicast, as -g"},
	{'C', "report-cycles", "processor cycles; results are microseconds"},
	{'L', "hop_limit", "it is for raw Ethernet; the hop limit is 255"},
	{'B', "source_mac", "raw Ethernet"},
	{'E', "dest_mac", "raw Ethernet"},
	{'J', "dest_ip", "raw Ethernet"},
	{'K', "dest_port", "raw Ethernet"},
	{'k', "source_port", "raw Ethernet"},
	{'j', "", "raw Ethernet"},
	{'v', "mac_fwd", "raw Ethernet"},
	{'P', "client", "raw Ethernet"},
	{'Z', "server", "raw Ethernet"},
	{0, "mr_per_qp", "memory regions of each queue pair: all use one"},
	{0, "inline_recv", "inline receives: rdma-core has no call for them, and perftest reads the flag and does nothing"},
	{0, "dont_xchg_versions", "without versions no release of perftest goes on"},
	{0, "odp", "on-demand paging"},
	{0, "burst_size", "rate limits"},
	{0, "typical_pkt_size", "rate limits"},
	{0, "rate_limit", "rate limits"},
	{0, "rate_units", "rate limits"},
	{0, "rate_limit_type", "rate limits"},
	{0, "log_dci_streams", "DC connections"},
	{0, "log_active_dci_streams", "DC connections"},
	{0, "aes_xts", "encryption"},
	{0, "encrypt_on_tx", "encryption"},
	{0, "sig_before", "encryption"},
	{0, "aes_block_size", "encryption"},
	{0, "data_enc_keys_number", "encryption"},
	{0, "kek_path", "encryption"},
	{0, "credentials_path", "encryption"},
	{0, "data_enc_key_app_path", "encryption"},
	{0, "sig_offload", "signature offload"},
	{0, "data_validation", "it changes the address records; leave it out on both sides"},
	{0, "write_with_imm", "writes with immediate data"},
	{0, "no_enhanced_reorder", "enhanced reordering, which is never asked for"},
	{0, "use_data_direct", "data direct"},
	{0, "cuda_mem_type", "other kinds of CUDA memory; --use_cuda is the device's"},
	{0, "use_cuda_pcie_mapping", "mapping through BAR1"},
	{0, "gpu_touch", "touching GPU memory meanwhile"},
	{0, "use_rocm", "AMD's GPUs"},
	{0, "use_musa", "MooreThreads' GPUs"},
	{0, "use_neuron", "AWS Neuron"},
	{0, "use_hl", "Habana's accelerators"},
	{0, "use_mlu", "Cambricon's accelerators"},
	{0, "use_opencl", "OpenCL"},
}
