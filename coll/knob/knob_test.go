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
	{"NCCL_P2P_LEVEL=nvl", func(k *Knobs) { k.P2PLevel = NVL }},
	{"NCCL_SHM_DISABLE=1", func(k *Knobs) { k.SHMDisable = true }},
	{"NCCL_SOCKET_IFNAME=eth,ib", func(k *Knobs) { k.SocketIfname = "eth,ib" }},
	{"NCCL_SOCKET_IFNAME=^docker,lo", func(k *Knobs) { k.SocketIfname = "^docker,lo" }},
	{"NCCL_SOCKET_IFNAME==eth0,eth1", func(k *Knobs) { k.SocketIfname = "=eth0,eth1" }},
	{"NCCL_SOCKET_IFNAME=^=docker0", func(k *Knobs) { k.SocketIfname = "^=docker0" }},
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
	{"ASSAY_HANG_AFTER=0", func(k *Knobs) { k.HangAfter = 0 }},
	{"ASSAY_HANG_DIR=/var/log", func(k *Knobs) { k.HangDir = "/var/log" }},
}

// bad are values that no variable of that name takes.
var bad = map[string][]string{
	"NCCL_P2P_DISABLE":            {"yes", "2", "-1", "1 ", "true", "1_", "99999999999999999999"},
	"NCCL_P2P_LEVEL":              {"5", "-1", "NVLINK", "NET"},
	"NCCL_SHM_DISABLE":            {"on"},
	"ASSAY_SAME_BITS":             {"yes", "2"},
	"NCCL_SOCKET_IFNAME":          {"^", "=", "eth,", ",eth", "eth 0", "eth,^lo", "a/b"},
	"NCCL_DEBUG":                  {"DEBUG", "1"},
	"NCCL_BUFFSIZE":               {"4M", "0", "1023", "-1", "1.5", "1_024", "1073741825"},
	"NCCL_NTHREADS":               {"0", "513", "many"},
	"NCCL_CTA_POLICY":             {"3", "-1", "fast"},
	"NCCL_RINGS":                  {"|", "none", "16777217"},
	"NCCL_MAX_NRINGS":             {"0", "65"},
	"NCCL_MIN_NRINGS":             {"0", "65"},
	"NCCL_MAX_NCHANNELS":          {"0", "65"},
	"NCCL_MIN_NCHANNELS":          {"0", "x"},
	"NCCL_MAX_CTAS":               {"0", "-1"},
	"NCCL_MIN_CTAS":               {"0", "65"},
	"NCCL_CHECKS_DISABLE":         {"no"},
	"NCCL_CHECK_POINTERS":         {"3"},
	"NCCL_LAUNCH_MODE":            {"COOPERATIVE"},
	"NCCL_IB_DISABLE":             {"y"},
	"NCCL_IB_HCA":                 {"mlx5_0:", "mlx5_0:x", "mlx5_0:0", ":1", "mlx5_0,,"},
	"NCCL_IB_TIMEOUT":             {"0", "32"},
	"NCCL_IB_RETRY_CNT":           {"8", "-1"},
	"NCCL_IB_GID_INDEX":           {"-2", "256"},
	"NCCL_IB_SL":                  {"16"},
	"NCCL_IB_TC":                  {"256"},
	"NCCL_IB_QPS_PER_CONNECTION":  {"0", "65"},
	"NCCL_IB_SPLIT_DATA_ON_QPS":   {"2"},
	"NCCL_IB_PKEY":                {"-1", "65536"},
	"NCCL_IB_ROCE_VERSION_NUM":    {"3"},
	"NCCL_IB_ADDR_FAMILY":         {"AF_IB"},
	"NCCL_IB_ADAPTIVE_ROUTING":    {"2"},
	"NCCL_IB_AR_THRESHOLD":        {"-1"},
	"NCCL_IB_CUDA_SUPPORT":        {"2"},
	"NCCL_IB_GDR_LEVEL":           {"5"},
	"NCCL_NET_GDR_READ":           {"2"},
	"NCCL_NET_GDR_LEVEL":          {"5"},
	"NCCL_NET_GDR_C2C":            {"2"},
	"NCCL_SINGLE_RING_THRESHOLD":  {"256k", "-1"},
	"NCCL_LL_THRESHOLD":           {"16kB"},
	"NCCL_DEBUG_SUBSYS":           {"INIT,", "NETT", "INIT,^NET"},
	"NCCL_ALGO":                   {"Rinng", "ring,", "ring;nosuch:tree", "allreduce:"},
	"NCCL_PROTO":                  {"LL64", "simple,ring"},
	"NCCL_COLLNET_ENABLE":         {"2", "on"},
	"NCCL_COLLNET_NODE_THRESHOLD": {"0", "-1", "few"},
	"NCCL_SOCKET_FAMILY":          {"AF_UNIX", "4"},
	"NCCL_SOCKET_NTHREADS":        {"17", "-2"},
	"NCCL_NSOCKS_PERTHREAD":       {"65"},
	"NCCL_COMM_ID":                {"10.0.0.1", ":4567", "host:0", "host:70000", "fe80::1:4567", "host:0x10"},
	"ASSAY_TIMEOUT":               {"30s", "-1", "NaN", "Inf", "1e10"},
	"ASSAY_HANG_AFTER":            {"never"},
}

// refused are values that are right and cannot be obeyed.
var refused = []string{"NCCL_GRAPH_FILE=graph.xml", "NCCL_ALGO=NVLS", "NCCL_ALGO=ring;allreduce:NVLSTree,NVLS",
	"NCCL_ALGO=^ring,tree,recursive,recursive-doubling,bruck,one-shot,two-shot,hierarchical,collnet", "NCCL_PROTO=LL128"}

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
		if accepted := find(name).Status == Accepted; accepted != (len(warnings) == 1) {
			t.Errorf("%s: status %v, warnings %v; want one line for what has no effect, none for the rest", c.set, find(name).Status, warnings)
		}
	}
}

func TestBad(t *testing.T) {
	for name, values := range bad {
		for _, v := range values {
			k, _, err := Load([]string{name + "=" + v}, noFiles)
			e, ok := errors.AsType[*Error](err)
			if !ok || k != nil {
				t.Errorf("%s=%q: knobs %v, error %v; want an *Error and no knobs", name, v, k != nil, err)
				continue
			}
			text := err.Error()
			for _, want := range []string{name, v, "environment", find(name).Values()} {
				if !strings.Contains(text, want) {
					t.Errorf("%s=%q: %s: does not say %q", name, v, text, want)
				}
			}
			if e.Refused || strings.Contains(text, "\n") {
				t.Errorf("%s=%q: %q; want one line, not a refusal", name, v, text)
			}
		}
	}
}

func TestRefused(t *testing.T) {
	for _, set := range refused {
		_, _, err := Load([]string{set}, noFiles)
		e, ok := errors.AsType[*Error](err)
		if !ok || !e.Refused || e.Remedy == "" || !strings.Contains(err.Error(), e.Remedy) {
			t.Errorf("%s: %v; want a refusal with a remedy", set, err)
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
		if k.Status != Refused && !slices.Contains(tested, k.Name) {
			t.Errorf("no good value of %s is tested", k.Name)
		}
		isText := k.kind.set(Default(), "\x01") == nil // takes all
		if _, ok := bad[k.Name]; !ok && !isText && k.Status != Refused && k.Name != "NCCL_NET" {
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
