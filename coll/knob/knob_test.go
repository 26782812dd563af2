package knob

import (
	"errors"
	"io/fs"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/assay-hpc/assay/coll/debug"
)

// noFiles is a machine without configuration files.
func noFiles(name string) ([]byte, error) {
	return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
}

// diff compares two sets of knobs by what they say.
func diff(want, got *Knobs) string {
	return cmp.Diff(want, got, cmpopts.IgnoreUnexported(Knobs{}), cmp.Comparer(func(a, b Filter) bool { return a.text == b.text && a.denied == b.denied }))
}

// good are values and what each makes of the defaults.
var good = []struct {
	set  string
	want func(*Knobs)
}{
	{"NCCL_P2P_DISABLE=1", func(k *Knobs) { k.P2PDisable = true }},
	{"NCCL_P2P_DISABLE=0x1", func(k *Knobs) { k.P2PDisable = true }},
	{"NCCL_P2P_DISABLE=0", func(*Knobs) {}},
	{"NCCL_P2P_LEVEL=0", func(k *Knobs) { k.P2PLevel = LOC }},
	{"NCCL_P2P_LEVEL=1", func(k *Knobs) { k.P2PLevel = PIX }},
	{"NCCL_P2P_LEVEL=2", func(k *Knobs) { k.P2PLevel = PXB }},
	{"NCCL_P2P_LEVEL=3", func(k *Knobs) { k.P2PLevel = PHB }},
	{"NCCL_P2P_LEVEL=4", func(k *Knobs) { k.P2PLevel = SYS }},
	{"NCCL_P2P_LEVEL=5", func(k *Knobs) { k.P2PLevel = SYS }},
	{"NCCL_P2P_LEVEL=99999999999999999999", func(k *Knobs) { k.P2PLevel = SYS }},
	{"NCCL_P2P_LEVEL=C2C", func(k *Knobs) { k.P2PLevel = NVL }},
	{"NCCL_NET_GDR_LEVEL=PXN", func(k *Knobs) { k.IB.GDRLevel = PXB }},
	{"NCCL_IB_GDR_LEVEL=5", func(k *Knobs) { k.IB.GDRLevel = SYS }},
	{"NCCL_DEBUG=ABORT", func(k *Knobs) { k.Debug = debug.Info }},
	{"NCCL_DEBUG= INFO ", func(k *Knobs) { k.Debug = debug.Info }},
	{"NCCL_DEBUG_SUBSYS=INIT,", func(k *Knobs) { k.DebugSubsystems = debug.Init }},
	{"NCCL_IB_TIMEOUT= 22 ", func(k *Knobs) { k.IB.Timeout = 22 }},
	{"NCCL_IB_SL=-2", func(*Knobs) {}},
	{"NCCL_MAX_NCHANNELS=-2", func(*Knobs) {}},
	{"NCCL_MIN_NCHANNELS=0", func(*Knobs) {}},
	{"NCCL_IB_HCA=mlx5_0:,mlx5_1:1:0:2,", func(k *Knobs) { k.IB.HCA = "mlx5_0,mlx5_1:1" }},
	{"NCCL_SOCKET_IFNAME=eth0,,ib0", func(k *Knobs) { k.SocketIfname = "eth0,ib0" }},
	{"NCCL_CTA_POLICY=ZERO|EFFICIENCY", func(k *Knobs) { k.CTAPolicy = "ZERO" }},
	{"NCCL_CTA_POLICY=efficiency|default", func(k *Knobs) { k.CTAPolicy = "EFFICIENCY" }},
	{"NCCL_ALGO=ring,", func(k *Knobs) { k.Algo = mustFilter(&algorithms, "ring,") }},
	{"NCCL_P2P_LEVEL=nvl", func(k *Knobs) { k.P2PLevel = NVL }},
	{"NCCL_SHM_DISABLE=1", func(k *Knobs) { k.SHMDisable = true }},
	{"NCCL_SOCKET_IFNAME=eth,ib", func(k *Knobs) { k.SocketIfname = "eth,ib" }},
	{"NCCL_SOCKET_IFNAME=^docker,lo", func(k *Knobs) { k.SocketIfname = "^docker,lo" }},
	{"NCCL_SOCKET_IFNAME==eth0,eth1", func(k *Knobs) { k.SocketIfname = "=eth0,eth1" }},
	{"NCCL_SOCKET_IFNAME=^=docker0", func(k *Knobs) { k.SocketIfname = "^=docker0" }},
	{"NCCL_SOCKET_IFNAME==eth0:1,eth1", func(k *Knobs) { k.SocketIfname = "=eth0,eth1" }},
	{"NCCL_DEBUG=INFO", func(k *Knobs) { k.Debug = debug.Info }},
	{"NCCL_DEBUG=version", func(k *Knobs) { k.Debug = debug.Version }},
	{"NCCL_BUFFSIZE=1024", func(k *Knobs) { k.BuffSize = 1024 }},
	{"NCCL_BUFFSIZE=0x200000", func(k *Knobs) { k.BuffSize = 2 << 20 }},
	{"NCCL_NTHREADS=256", func(k *Knobs) { k.Threads = 256 }},
	{"NCCL_RINGS=0 1 2 3 | 3 2 1 0", func(k *Knobs) { k.Rings = [][]int{{0, 1, 2, 3}, {3, 2, 1, 0}} }},
	{"NCCL_MAX_NRINGS=2", func(k *Knobs) { k.MaxChannels = 2 }},
	{"NCCL_MIN_NRINGS=12", func(k *Knobs) { k.MinChannels = 12 }},
	{"NCCL_MAX_NCHANNELS=3", func(k *Knobs) { k.MaxChannels = 3 }},
	{"NCCL_MIN_NCHANNELS=3", func(k *Knobs) { k.MinChannels = 3 }},
	{"NCCL_MAX_CTAS=64", func(k *Knobs) { k.MaxChannels = 64 }},
	{"NCCL_GRAPH_MIXING_SUPPORT=0", func(k *Knobs) { k.GraphMixing = false }},
	{"NCCL_GRAPH_STREAM_ORDERING=0", func(k *Knobs) { k.GraphOrder = false }},
	{"NCCL_MULTI_RANK_GPU_ENABLE=1", func(k *Knobs) { k.MultiRankGPU = true }},
	{"NCCL_CTA_POLICY=1", func(k *Knobs) { k.CTAPolicy = "EFFICIENCY" }},
	{"NCCL_CTA_POLICY=zero", func(k *Knobs) { k.CTAPolicy = "ZERO" }},
	{"NCCL_MIN_CTAS=1", func(k *Knobs) { k.MinChannels = 1 }},
	{"NCCL_CHECKS_DISABLE=1", func(k *Knobs) { k.ChecksDisable = true }},
	{"NCCL_CHECK_POINTERS=1", func(k *Knobs) { k.CheckPointers = true }},
	{"NCCL_LAUNCH_MODE=parallel", func(k *Knobs) { k.LaunchMode = "PARALLEL" }},
	{"NCCL_LAUNCH_MODE=GROUP", func(k *Knobs) { k.LaunchMode = "GROUP" }},
	{"NCCL_IB_DISABLE=1", func(k *Knobs) { k.IBDisable = true }},
	{"NCCL_IB_HCA=mlx5_0:1,mlx5_1:1", func(k *Knobs) { k.IB.HCA = "mlx5_0:1,mlx5_1:1" }},
	{"NCCL_IB_HCA=^mlx5_1:2", func(k *Knobs) { k.IB.HCA = "^mlx5_1:2" }},
	{"NCCL_IB_TIMEOUT=22", func(k *Knobs) { k.IB.Timeout = 22 }},
	{"NCCL_IB_RETRY_CNT=0", func(k *Knobs) { k.IB.RetryCount = 0 }},
	{"NCCL_IB_GID_INDEX=3", func(k *Knobs) { k.IB.GIDIndex = 3 }},
	{"NCCL_IB_SL=1", func(k *Knobs) { k.IB.ServiceLvl = 1 }},
	{"NCCL_IB_TC=106", func(k *Knobs) { k.IB.TrafficCls = 106 }},
	{"NCCL_IB_QPS_PER_CONNECTION=4", func(k *Knobs) { k.IB.QPs = 4 }},
	{"NCCL_IB_SPLIT_DATA_ON_QPS=1", func(k *Knobs) { k.IB.SplitData = true }},
	{"NCCL_IB_PKEY=1", func(k *Knobs) { k.IB.PKey = 1 }},
	{"NCCL_IB_ROCE_VERSION_NUM=1", func(k *Knobs) { k.IB.RoCEVersion = 1 }},
	{"NCCL_IB_ADDR_FAMILY=AF_INET6", func(k *Knobs) { k.IB.AddrFamily = "AF_INET6" }},
	{"NCCL_IB_ADAPTIVE_ROUTING=1", func(k *Knobs) { k.IB.Adaptive = 1 }},
	{"NCCL_IB_AR_THRESHOLD=0", func(k *Knobs) { k.IB.ARThreshold = 0 }},
	{"NCCL_IB_CUDA_SUPPORT=0", func(k *Knobs) { k.IB.CUDASupport = 0 }},
	{"NCCL_IB_GDR_LEVEL=4", func(k *Knobs) { k.IB.GDRLevel = SYS }},
	{"NCCL_NET_GDR_READ=1", func(k *Knobs) { k.IB.GDRRead = 1 }},
	{"NCCL_NET_GDR_LEVEL=PHB", func(k *Knobs) { k.IB.GDRLevel = PHB }},
	{"NCCL_NET_GDR_C2C=0", func(k *Knobs) { k.IB.GDRC2C = false }},
	{"NCCL_SINGLE_RING_THRESHOLD=262144", func(k *Knobs) { k.SingleRingThreshold = 256 << 10 }},
	{"NCCL_LL_THRESHOLD=0", func(k *Knobs) { k.LLThreshold = 0 }},
	{"NCCL_DEBUG_FILE=/tmp/nccl.%h.%p", func(k *Knobs) { k.DebugFile = "/tmp/nccl.%h.%p" }},
	{"NCCL_DEBUG_SUBSYS=NET,COLL", func(k *Knobs) { k.DebugSubsystems = debug.Net | debug.Coll }},
	{"NCCL_DEBUG_SUBSYS=^COLL", func(k *Knobs) { k.DebugSubsystems = debug.All &^ debug.Coll }},
	{"NCCL_ALGO=Ring", func(k *Knobs) { k.Algo = mustFilter(&algorithms, "Ring") }},
	{"NCCL_PROTO=^LL128", func(k *Knobs) { k.Proto = mustFilter(&protocols, "^LL128") }},
	{"NCCL_NET=socket", func(k *Knobs) { k.Net = "Socket" }},
	{"NCCL_NET=AWS Libfabric", func(k *Knobs) { k.Net = "AWS Libfabric" }},
	{"NCCL_NET_PLUGIN=ofi,/opt/x/libnccl-net.so", func(k *Knobs) { k.NetPlugin = "ofi,/opt/x/libnccl-net.so" }},
	{"NCCL_COLLNET_ENABLE=1", func(k *Knobs) { k.CollNetEnable = true }},
	{"NCCL_COLLNET_NODE_THRESHOLD=4", func(k *Knobs) { k.CollNetThreshold = 4 }},
	{"NCCL_ALGO=CollnetDirect,CollnetChain", func(k *Knobs) { k.Algo = mustFilter(&algorithms, "CollnetDirect,CollnetChain") }},
	{"NCCL_SOCKET_FAMILY=AF_INET6", func(k *Knobs) { k.SocketFamily = "AF_INET6" }},
	{"NCCL_SOCKET_NTHREADS=4", func(k *Knobs) { k.SocketThreads = 4 }},
	{"NCCL_NSOCKS_PERTHREAD=8", func(k *Knobs) { k.SocketsPerThread = 8 }},
	{"NCCL_COMM_ID=10.0.0.1:4567", func(k *Knobs) { k.CommID = "10.0.0.1:4567" }},
	{"NCCL_COMM_ID=[fe80::1%eth0]:4567", func(k *Knobs) { k.CommID = "[fe80::1%eth0]:4567" }},
	{"NCCL_COMM_ID=node7:4567", func(k *Knobs) { k.CommID = "node7:4567" }},
	{"NCCL_HOSTID=a b", func(k *Knobs) { k.HostID = "a b" }},
	{"NCCL_TOPO_FILE=/etc/topo.xml", func(k *Knobs) { k.TopoFile = "/etc/topo.xml" }},
	{"NCCL_TOPO_DUMP_FILE=out.xml", func(k *Knobs) { k.TopoDumpFile = "out.xml" }},
	{"ASSAY_TIMEOUT=1.5", func(k *Knobs) { k.Timeout = 1500 * time.Millisecond }},
	{"ASSAY_GPU_ALGO=copy:8:512:65536", func(k *Knobs) { k.GPUAlgo = "copy:8:512:65536" }},
	{"ASSAY_TUNING=/etc/tuning.json", func(k *Knobs) { k.Tuning = "/etc/tuning.json" }},
	{"ASSAY_NCCL_FALLBACK=/usr/lib/libnccl.so.2", func(k *Knobs) { k.Fallback = "/usr/lib/libnccl.so.2" }},
	{"ASSAY_SAME_BITS=1", func(k *Knobs) { k.SameBits = true }},
	{"ASSAY_CHECK=1/1000", func(k *Knobs) { k.Verify = Verify{Some: 1, Of: 1000} }},
	{"ASSAY_CHECK=3/7:fail", func(k *Knobs) { k.Verify = Verify{Some: 3, Of: 7, Fail: true} }},
	{"ASSAY_CHECK=1", func(k *Knobs) { k.Verify = Verify{Some: 1, Of: 1} }},
	{"ASSAY_CHECK=0/5:fail", func(k *Knobs) {}},
	{"ASSAY_HANG_AFTER=0", func(k *Knobs) { k.HangAfter = 0 }},
	{"ASSAY_HANG_DIR=/var/log", func(k *Knobs) { k.HangDir = "/var/log" }},
}

// bad are values of NCCL's variables that are left out: NCCL runs with them.
var bad = map[string][]string{
	"NCCL_P2P_DISABLE":            {"99999999999999999999"},
	"NCCL_P2P_LEVEL":              {"-1", "NVLINK", "NET"},
	"NCCL_SHM_DISABLE":            {"-99999999999999999999"},
	"NCCL_SOCKET_IFNAME":          {"^", "=", ",", "^=,:"},
	"NCCL_DEBUG":                  {"DEBUG", "1", "WARNING"},
	"NCCL_BUFFSIZE":               {"4M", "8M", "0", "1023", "-1", "1.5", "1_024", "many"},
	"NCCL_NTHREADS":               {"0", "many"},
	"NCCL_CTA_POLICY":             {"3", "-1", "fast", "|"},
	"NCCL_GRAPH_MIXING_SUPPORT":   {"99999999999999999999"},
	"NCCL_GRAPH_STREAM_ORDERING":  {"99999999999999999999"},
	"NCCL_MULTI_RANK_GPU_ENABLE":  {"99999999999999999999"},
	"NCCL_RINGS":                  {"|", "none", "16777217"},
	"NCCL_MAX_NRINGS":             {"99999999999999999999"},
	"NCCL_MIN_NRINGS":             {"99999999999999999999"},
	"NCCL_MAX_NCHANNELS":          {"99999999999999999999"},
	"NCCL_MIN_NCHANNELS":          {"99999999999999999999"},
	"NCCL_MAX_CTAS":               {"0", "-1"},
	"NCCL_MIN_CTAS":               {"0", "x"},
	"NCCL_CHECKS_DISABLE":         {"99999999999999999999"},
	"NCCL_CHECK_POINTERS":         {"99999999999999999999"},
	"NCCL_LAUNCH_MODE":            {"COOPERATIVE"},
	"NCCL_IB_DISABLE":             {"99999999999999999999"},
	"NCCL_IB_HCA":                 {"^", ":1", ",,"},
	"NCCL_IB_TIMEOUT":             {"99999999999999999999"},
	"NCCL_IB_RETRY_CNT":           {"-1"},
	"NCCL_IB_GID_INDEX":           {"-3"},
	"NCCL_IB_SL":                  {"-3"},
	"NCCL_IB_TC":                  {"-3"},
	"NCCL_IB_QPS_PER_CONNECTION":  {"99999999999999999999"},
	"NCCL_IB_SPLIT_DATA_ON_QPS":   {"99999999999999999999"},
	"NCCL_IB_PKEY":                {"-1"},
	"NCCL_IB_ROCE_VERSION_NUM":    {"0"},
	"NCCL_IB_ADDR_FAMILY":         {"AF_IB"},
	"NCCL_IB_ADAPTIVE_ROUTING":    {"-1"},
	"NCCL_IB_AR_THRESHOLD":        {"-1"},
	"NCCL_IB_CUDA_SUPPORT":        {"-1"},
	"NCCL_IB_GDR_LEVEL":           {"near"},
	"NCCL_NET_GDR_READ":           {"-1"},
	"NCCL_NET_GDR_LEVEL":          {"DIS"},
	"NCCL_NET_GDR_C2C":            {"99999999999999999999"},
	"NCCL_SINGLE_RING_THRESHOLD":  {"-1"},
	"NCCL_LL_THRESHOLD":           {"-16kB"},
	"NCCL_DEBUG_SUBSYS":           {"NETT", "INIT,^NET"},
	"NCCL_COLLNET_ENABLE":         {"99999999999999999999"},
	"NCCL_SOCKET_FAMILY":          {"AF_UNIX", "4"},
	"NCCL_SOCKET_NTHREADS":        {"-3"},
	"NCCL_NSOCKS_PERTHREAD":       {"-3"},
	"NCCL_COLLNET_NODE_THRESHOLD": {"99999999999999999999"},
}

// made are values of NCCL's variables of which something else is made, and what is said of it.
var made = []struct {
	set  string
	want func(*Knobs)
	says string
}{
	{"NCCL_P2P_DISABLE=true", func(*Knobs) {}, "NCCL reads it as 0"},
	{"NCCL_P2P_DISABLE=2", func(*Knobs) {}, "NCCL takes it for 0"},
	{"NCCL_P2P_DISABLE=1 # off", func(k *Knobs) { k.P2PDisable = true }, `NCCL reads 1 of it, and not " # off"`},
	{"NCCL_P2P_DISABLE=\"1\"", func(*Knobs) {}, "the quotes are a part of the value"},
	{"NCCL_IB_DISABLE=2", func(k *Knobs) { k.IBDisable = true }, "NCCL takes it for 1"},
	{"NCCL_IB_DISABLE=no", func(*Knobs) {}, "NCCL reads it as 0"},
	{"NCCL_SHM_DISABLE=08", func(*Knobs) {}, `NCCL reads 0 of it, and not "8"`},
	{"NCCL_BUFFSIZE=8388608B", func(k *Knobs) { k.BuffSize = 8 << 20 }, "NCCL reads 8388608 of it"},
	{"NCCL_BUFFSIZE=1099511627776", func(k *Knobs) { k.BuffSize = 1 << 30 }, "more than 1073741824, which is taken"},
	{"NCCL_NTHREADS=640", func(k *Knobs) { k.Threads = 512 }, "more than 512"},
	{"NCCL_MAX_NCHANNELS=128", func(k *Knobs) { k.MaxChannels = 64 }, "more than 64"},
	{"NCCL_MAX_NCHANNELS=0", func(k *Knobs) { k.MaxChannels = 1 }, "less than 1, and 1 is taken"},
	{"NCCL_MIN_NCHANNELS=-5", func(*Knobs) {}, "less than 0, and 0 is taken"},
	{"NCCL_MAX_NRINGS=65", func(k *Knobs) { k.MaxChannels = 64 }, "more than 64"},
	{"NCCL_MIN_NRINGS=65", func(k *Knobs) { k.MinChannels = 64 }, "more than 64"},
	{"NCCL_MIN_CTAS=100", func(k *Knobs) { k.MinChannels = 64 }, "more than 64"},
	{"NCCL_IB_TIMEOUT=0", func(k *Knobs) { k.IB.Timeout = 31 }, "31 is taken"},
	{"NCCL_IB_TIMEOUT=100", func(k *Knobs) { k.IB.Timeout = 31 }, "31, which is taken"},
	{"NCCL_IB_RETRY_CNT=13", func(k *Knobs) { k.IB.RetryCount = 7 }, "more than 7"},
	{"NCCL_IB_QPS_PER_CONNECTION=128", func(k *Knobs) { k.IB.QPs = 64 }, "more than 64"},
	{"NCCL_IB_HCA=mlx5_0 # both", func(k *Knobs) { k.IB.HCA = "mlx5_0 # both" }, `no device has the name "mlx5_0 # both"`},
	{"NCCL_IB_HCA=mlx5_0:x", func(k *Knobs) { k.IB.HCA = "mlx5_0:0" }, `no device has the port "x"`},
	{"NCCL_SOCKET_IFNAME=eth0, eth1", func(k *Knobs) { k.SocketIfname = "eth0, eth1" }, `no interface has the name " eth1"`},
	{"NCCL_COLLNET_NODE_THRESHOLD=0", func(k *Knobs) { k.CollNetThreshold = 1 }, "1 is taken"},
	{"NCCL_SOCKET_NTHREADS=17", func(k *Knobs) { k.SocketThreads = 16 }, "more than 16"},
	{"NCCL_CTA_POLICY=ZERO|fast", func(k *Knobs) { k.CTAPolicy = "ZERO" }, `no policy "fast"`},
	{"NCCL_CTA_POLICY=1x", func(k *Knobs) { k.CTAPolicy = "EFFICIENCY" }, "NCCL reads 1 of it"},
	{"NCCL_P2P_LEVEL=1.5", func(k *Knobs) { k.P2PLevel = PIX }, "NCCL reads 1 of it"},
	{"NCCL_ALGO=NVLS", func(k *Knobs) { k.Algo = mustFilter(&algorithms, "NVLS") }, "leaves no algorithm that runs here, and all may run"},
	{"NCCL_ALGO=ring;allreduce:NVLSTree,NVLS", func(k *Knobs) { k.Algo = mustFilter(&algorithms, "ring;allreduce:NVLSTree,NVLS") }, "leaves no algorithm"},
	{"NCCL_PROTO=LL128", func(k *Knobs) { k.Proto = mustFilter(&protocols, "LL128") }, "leaves no protocol"},
	{"NCCL_TOPO_FILE='/opt/topo.xml'", func(k *Knobs) { k.TopoFile = "'/opt/topo.xml'" }, "the quotes are a part of the value"},
	{"NCCL_HOSTID=a ", func(k *Knobs) { k.HostID = "a " }, "the spaces around it are a part of the value"},
}

// wrong are values that end a job: of our own variables, and those that NCCL refuses, too.
var wrong = map[string][]string{
	"NCCL_ALGO":        {"Rinng", "ring;nosuch:tree"},
	"NCCL_PROTO":       {"LL64", "simple,ring"},
	"NCCL_COMM_ID":     {"10.0.0.1", ":4567", "host:0", "host:70000", "fe80::1:4567", "host:0x10"},
	"ASSAY_SAME_BITS":  {"yes", "2", "1 ,"},
	"ASSAY_CHECK":      {"yes", "2", "1/0", "1/", "/5", "3/2", "-1/5", "1/1000:stop", "1/1000:", "1/2/3", "0.001"},
	"ASSAY_TIMEOUT":    {"30s", "-1", "NaN", "Inf", "1e10"},
	"ASSAY_HANG_AFTER": {"never"},
}

func TestGood(t *testing.T) {
	for _, c := range good {
		want := Default()
		c.want(want)
		got, warnings, err := Load([]string{c.set}, noFiles)
		if err != nil {
			t.Errorf("%s: %v", c.set, err)
			continue
		}
		if d := diff(want, got); d != "" {
			t.Errorf("%s (-want +got):\n%s", c.set, d)
		}
		name, _, _ := strings.Cut(c.set, "=")
		if accepted := knobNamed(name).Status == Accepted; accepted != (len(warnings) == 1) {
			t.Errorf("%s: status %v, warnings %v; want one line for what has no effect, none for the rest", c.set, knobNamed(name).Status, warnings)
		}
	}
}

// oneWarning loads a variable from a file, and wants no error and one warning, which has all words.
func oneWarning(t *testing.T, set string, words ...string) (*Knobs, Warning) {
	t.Helper()
	k, warnings, err := Load(nil, files(map[string]string{systemConf: "\n" + set}))
	if err != nil || len(warnings) != 1 || warnings[0].Level != debug.Warn {
		t.Fatalf("%s: %v, %v; want one warning", set, warnings, err)
	}
	name, _, _ := strings.Cut(set, "=")
	for _, want := range append(words, name, systemConf+":2") {
		if !strings.Contains(warnings[0].Message, want) || strings.Contains(warnings[0].Message, "\n") {
			t.Errorf("%s: %q; want one line that says %q", set, warnings[0].Message, want)
		}
	}
	return k, warnings[0]
}

func TestBad(t *testing.T) {
	for name, values := range bad {
		for _, v := range values {
			k, w := oneWarning(t, name+"="+v, v, "it is left out", knobNamed(name).Values())
			if d := diff(Default(), k); d != "" || w.Ours {
				t.Errorf("%s=%q: it is not left out, or not NCCL's: %v (-default +got):\n%s", name, v, w, d)
			}
		}
	}
}

func TestMade(t *testing.T) {
	for _, c := range made {
		want := Default()
		c.want(want)
		k, w := oneWarning(t, c.set, c.says)
		if d := diff(want, k); d != "" {
			t.Errorf("%s (-want +got):\n%s", c.set, d)
		}
		ours := strings.Contains(w.Message, "may run") || strings.Contains(w.Message, "which is taken")
		if w.Ours != ours {
			t.Errorf("%s: %q: our engine's: %v", c.set, w.Message, w.Ours)
		}
	}
}

func TestWrong(t *testing.T) {
	for name, values := range wrong {
		for _, v := range values {
			k, _, err := Load([]string{name + "=" + v, "NCCL_P2P_DISABLE=1"}, noFiles)
			e, ok := errors.AsType[*Error](err)
			if !ok || e.Name != name || !k.P2PDisable {
				t.Errorf("%s=%q: %v; want an *Error, and the other variable", name, v, err)
				continue
			}
			text := err.Error()
			for _, want := range []string{name, v, "environment", knobNamed(name).Values()} {
				if !strings.Contains(text, want) || strings.Contains(text, "\n") {
					t.Errorf("%s=%q: %s: does not say %q", name, v, text, want)
				}
			}
		}
	}
}

// TestNoValueEndsAJob: whatever NCCL takes of a variable of NCCL's does not end a job here.
func TestNoValueEndsAJob(t *testing.T) {
	values := []string{"0", "1", "2", "-1", "-2", "8M", "true", "yes", "\"1\"", " 1", "99999999999999999999", "x", "=", "^", ",", ":", "|", ";", "0x", "\xff", "/no/such/file", "NVLS", "LL128", "AF_INET6", "ABORT", "SYS", "P2C"}
	for _, row := range table() {
		if !isNCCLs(row.Name) || row.NCCLRefuses {
			continue
		}
		for _, v := range values {
			k, _, err := Load([]string{row.Name + "=" + v}, noFiles)
			if err != nil {
				t.Errorf("%s=%q: %v", row.Name, v, err)
			}
			if k.BuffSize < minBuffSize || k.BuffSize > maxBuffSize || k.MinChannels < 0 || k.MinChannels > maxChannels || k.MaxChannels < 0 || k.MaxChannels > maxChannels ||
				k.Threads < 0 || k.Threads > 512 || k.IB.Timeout < 1 || k.IB.Timeout > 31 || k.IB.RetryCount < 0 || k.IB.RetryCount > 7 || k.IB.QPs < 1 || k.IB.QPs > 64 ||
				k.IB.ServiceLvl < Auto || k.IB.ServiceLvl > 15 || k.IB.TrafficCls < Auto || k.IB.TrafficCls > 255 || k.IB.PKey < 0 || k.IB.PKey > 65535 || k.SocketThreads < Auto || k.SocketsPerThread < Auto {
				t.Errorf("%s=%q: impossible knobs %+v", row.Name, v, k)
			}
		}
	}
}

// TestAll: no variable of the table is without a test above.
func TestAll(t *testing.T) {
	var tested []string
	for _, c := range good {
		name, _, _ := strings.Cut(c.set, "=")
		tested = append(tested, name)
	}
	tested = append(tested, confFile) // TestSources
	for _, k := range table() {
		if k.Values() == anything.values {
			continue
		}
		if !slices.Contains(tested, k.Name) {
			t.Errorf("no good value of %s is tested", k.Name)
		}
		isText := k.kind.set(Default(), "\x01") == nil // takes all
		if len(bad[k.Name])+len(wrong[k.Name]) == 0 && !isText && k.Name != "NCCL_NET" {
			t.Errorf("no bad value of %s is tested", k.Name)
		}
	}
}

// TestDefaults: where the table's default can be set, setting it changes
// nothing.
func TestDefaults(t *testing.T) {
	literal := 0
	for _, k := range table() {
		if slices.Contains([]string{"auto", "all", "unset"}, k.Default) {
			continue
		}
		literal++
		got, _, err := Load([]string{k.Name + "=" + k.Default}, noFiles)
		if err != nil {
			t.Errorf("%s: the default cannot be set: %v", k.Name, err)
		} else if d := diff(Default(), got); d != "" {
			t.Errorf("%s=%s is not the default (-default +got):\n%s", k.Name, k.Default, d)
		}
	}
	if literal < 15 {
		t.Errorf("%d defaults tried", literal)
	}
	if !Default().P2P() {
		t.Error("P2P is off by default")
	}
}

func TestP2P(t *testing.T) {
	for set, want := range map[string]bool{"NCCL_P2P_LEVEL=LOC": false, "NCCL_P2P_LEVEL=0": false, "NCCL_P2P_LEVEL=NVL": true, "NCCL_P2P_LEVEL=SYS": true, "NCCL_P2P_DISABLE=1": false, "NCCL_P2P_DISABLE=0": true} {
		k, _, err := Load([]string{set}, noFiles)
		if err != nil {
			t.Fatal(err)
		}
		if k.P2P() != want {
			t.Errorf("%s: P2P() = %v; want %v", set, k.P2P(), want)
		}
	}
}
