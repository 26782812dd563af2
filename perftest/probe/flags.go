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
	{groupTest, 0, "write_with_imm", "", "writes with immediate data, which the receiver sees", isWrite, yes(func(c *Config) *bool { return &c.Immediate })},
	{groupTest, 0, "send_with_imm", "", "sends with immediate data", isSend, yes(func(c *Config) *bool { return &c.Immediate })},
	{groupTest, 0, "rate_limit", "RATE", "send at most so much, with --rate_limit_type=SW", isBW, decimal(func(c *Config) *float64 { return &c.Rate })},
	{groupTest, 0, "rate_units", "UNIT", "g (Gb/s, default), M (MiB/s) or p (messages a second)", isBW, setRateUnit},
	{groupTest, 0, "rate_limit_type", "TYPE", "SW: bursts and pauses between them", isBW, setRateType},
	{groupTest, 0, "burst_size", "COUNT", "messages of a burst (default -t)", isBW, whole(func(c *Config) *int { return &c.Burst }, 0)},
	{groupTest, 0, "latency_gap", "MICROSECONDS", "pause before each message", isLat, duration(func(c *Config) *time.Duration { return &c.LatencyGap }, time.Microsecond, 0)},
	{groupTest, 0, "use_hugepages", "", "data in huge pages", nil, yes(func(c *Config) *bool { return &c.HugePages })},
	{groupTest, 0, "payload_file_path", "FILE", "fill the data with this file's words: 0xaabbccdd,0x11223344", nil, textSetter(func(c *Config) *string { return &c.Payload })},
	{groupTest, 0, "odp", "", "map the data's pages on demand, instead of locking them", nil, yes(func(c *Config) *bool { return &c.OnDemand })},
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
	{groupQP, 'r', "rx-depth", "DEPTH", "receives posted on each (default 512)", receiving, whole(func(c *Config) *int { return &c.RxDepth }, 1)},
	{groupQP, 'Q', "cq-mod", "COUNT", "one completion for this many messages (default 100; above 8192 bytes 1)", isBW, whole(func(c *Config) *int { return &c.CQModeration }, 1)},
	{groupQP, 'l', "post_list", "COUNT", "post this many messages at a time", isBW, whole(func(c *Config) *int { return &c.PostList }, 1)},
	{groupQP, 0, "recv_post_list", "COUNT", "post this many receives at a time", func(t Tool) bool { return isBW(t) && receiving(t) }, whole(func(c *Config) *int { return &c.RecvList }, 1)},
	{groupQP, 0, "use-srq", "", "one receive queue for all queue pairs", isSend, yes(func(c *Config) *bool { return &c.SRQ })},
	{groupQP, 0, "mr_per_qp", "", "memory regions of each queue pair", isBW, yes(func(c *Config) *bool { return &c.EachMR })},
	{groupQP, 0, "cqe_poll", "COUNT", "take up to this many completions at a time (default 16)", isBW, whole(func(c *Config) *int { return &c.PollBatch }, 1)},
	{groupQP, 0, "no_enhanced_reorder", "", "nothing here: the peer is told, which compares it", nil, yes(func(c *Config) *bool { return &c.NoReorder })},
	{groupQP, 'I', "inline_size", "BYTES", "largest message that goes inline", carries, whole(func(c *Config) *int { return &c.Inline }, 0)},
	{groupQP, 'o', "outs", "COUNT", "reads in flight (default the device's maximum)", initiates, whole(func(c *Config) *int { return &c.OutReads }, 1)},
	{groupQP, 'u', "qp-timeout", "EXPONENT", "wait 4.096 us * 2^EXPONENT for an acknowledgement (default 14)", nil, whole(func(c *Config) *int { return &c.AckTimeout }, 0)},
	{groupQP, 'e', "events", "", "sleep until completions arrive, instead of polling", nil, yes(func(c *Config) *bool { return &c.Events })},
	{groupQP, 'X', "vector", "INDEX", "completion vector of -e", nil, whole(func(c *Config) *int { return &c.Vector }, 0)},
	{groupQP, 0, "disable_pcie_relaxed", "", "no relaxed ordering on PCIe", nil, func(c *Config, _ string) error { c.Relaxed = false; return nil }},

	{groupControl, 'p', "port", "PORT", "TCP port (default 18515)", nil, whole(func(c *Config) *int { return &c.Port }, 1)},
	{groupControl, 0, "ipv6-addr", "", "over IPv6", nil, yes(func(c *Config) *bool { return &c.IPv6TCP })},
	{groupControl, 0, "bind_source_ip", "ADDRESS", "connect from this address, or listen at it", nil, textSetter(func(c *Config) *string { return &c.Source })},
	{groupControl, 0, "wait", "SECONDS", "a client: keep trying while no server listens; a server: wait for a client (default 3600)", nil, duration(func(c *Config) *time.Duration { return &c.Wait }, time.Second, 0)},
	{groupControl, 0, "timeout", "SECONDS", "longest wait for a peer that is silent and moves nothing (default 30)", nil, duration(func(c *Config) *time.Duration { return &c.Timeout }, time.Second, 1)},
	{groupControl, 'z', "comm_rdma_cm", "", "by rdma_cm instead of TCP; HOST is the RDMA interface's address", nil, yes(func(c *Config) *bool { return &c.ControlCM })},
	{groupControl, 'R', "rdma_cm", "", "queue pairs, too, are connected by rdma_cm", nil, yes(func(c *Config) *bool { return &c.CM })},
	{groupControl, 'T', "tos", "TOS", "type of service of -R, 0 to 255", nil, whole(func(c *Config) *int { return &c.TOS }, 0)},
	{groupControl, 0, "retry_count", "COUNT", "retries of -R's queue pairs, 0 to 7 (default 7)", nil, whole(func(c *Config) *int { return &c.Retries }, 0)},

	{groupOut, 0, "report_gbits", "", "Gb/s instead of MiB/s", isBW, yes(func(c *Config) *bool { return &c.Gbits })},
	{groupOut, 0, "report-both", "", "both directions of -b by themselves", isBW, yes(func(c *Config) *bool { return &c.ReportBoth })},
	{groupOut, 'N', "noPeak", "", "do not look for the peak (also not beyond 20000 iterations)", isBW, yes(func(c *Config) *bool { return &c.NoPeak })},
	{groupOut, 'C', "report-cycles", "", "latencies in cycles of the processor's counter", isLat, yes(func(c *Config) *bool { return &c.Cycles })},
	{groupOut, 'H', "report-histogrm", "", "every latency, sorted", isLat, yes(func(c *Config) *bool { return &c.Sorted })},
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
	{groupMore, 0, "pin_cores", "LIST", "run on these processors: 0, 0-3, 0-3,8", nil, setCores},
	{groupMore, 0, "numa_node", "NODE", "run on the processors of this node", nil, whole(func(c *Config) *int { return &c.NUMANode }, 0)},
	{groupMore, 0, "disable_numa", "", "nothing: without --numa_node no node is chosen", nil, nothing("")},
	{groupMore, 0, "disable_dynamic_polling", "", "nothing: --cqe_poll is never adapted", isBW, nothing("")},
	{groupMore, 'F', "CPU-freq", "", "nothing: the clock's rate is measured", nil, nothing("")},
	{groupMore, 0, "use_old_post_send", "", "nothing: ibv_post_send is used always", nil, nothing("")},
	{groupMore, 'V', "version", "", "print the version", nil, func(*Config, string) error { return getopt.ErrVersion }},
	{groupMore, 'h', "help", "", "print this text", nil, func(*Config, string) error { return getopt.ErrHelp }},
}

// also are second names of flags: those in the help of perftest 4.5, which its parser refuses, and
// ours.
var also = map[string]string{
	"comm_rdma_cm": "com_rdma_cm", "report-histogrm": "report-histogram", "bind_source_ip": "source_ip", "output": "format",
}
