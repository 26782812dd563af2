package knob

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// readBy is how each honoured variable is read by the engine: a field or a
// method of Knobs.
var readBy = map[string]string{
	"NCCL_P2P_DISABLE": "P2P", "NCCL_P2P_LEVEL": "P2P", "NCCL_SHM_DISABLE": "SHMDisable", "NCCL_IB_DISABLE": "IBDisable", "NCCL_NET": "Net", "NCCL_NET_PLUGIN": "NetPlugin",
	"NCCL_IB_HCA": "IB.HCA", "NCCL_IB_TIMEOUT": "IB.Timeout", "NCCL_IB_RETRY_CNT": "IB.RetryCount", "NCCL_IB_GID_INDEX": "IB.GIDIndex", "NCCL_IB_SL": "IB.ServiceLvl", "NCCL_IB_TC": "IB.TrafficCls",
	"NCCL_IB_QPS_PER_CONNECTION": "IB.QPs", "NCCL_IB_SPLIT_DATA_ON_QPS": "IB.SplitData", "NCCL_IB_PKEY": "IB.PKey", "NCCL_IB_ROCE_VERSION_NUM": "IB.RoCEVersion", "NCCL_IB_ADDR_FAMILY": "IB.AddrFamily",
	"NCCL_IB_ADAPTIVE_ROUTING": "IB.Adaptive", "NCCL_IB_AR_THRESHOLD": "IB.ARThreshold",
	"NCCL_SOCKET_IFNAME": "SocketIfname", "NCCL_SOCKET_FAMILY": "SocketFamily", "NCCL_SOCKET_NTHREADS": "SocketThreads", "NCCL_NSOCKS_PERTHREAD": "SocketsPerThread",
	"ASSAY_TUNING": "Tuning", "ASSAY_GPU_ALGO": "GPUAlgo", "NCCL_COMM_ID": "CommID", "NCCL_HOSTID": "HostID",
	"NCCL_ALGO": "Algo", "NCCL_PROTO": "Proto", "NCCL_RINGS": "RingsFor", "NCCL_BUFFSIZE": "BuffSize", "NCCL_NTHREADS": "Threads",
	"NCCL_MAX_NRINGS": "MaxChannels", "NCCL_MAX_NCHANNELS": "MaxChannels", "NCCL_MAX_CTAS": "MaxChannels",
	"NCCL_CTA_POLICY": "CTAPolicy", "NCCL_GRAPH_MIXING_SUPPORT": "GraphMixing", "NCCL_GRAPH_STREAM_ORDERING": "GraphOrder", "NCCL_MULTI_RANK_GPU_ENABLE": "MultiRankGPU", "ASSAY_SAME_BITS": "SameBits", "ASSAY_CHECK": "Verify",
	"NCCL_MIN_NRINGS": "MinChannels", "NCCL_MIN_NCHANNELS": "MinChannels", "NCCL_MIN_CTAS": "MinChannels",
	"NCCL_SINGLE_RING_THRESHOLD": "SingleRingThreshold", "NCCL_LL_THRESHOLD": "LLThreshold",
	"NCCL_COLLNET_ENABLE": "CollNetEnable", "NCCL_COLLNET_NODE_THRESHOLD": "CollNetThreshold",
	"NCCL_CHECKS_DISABLE": "ChecksDisable", "NCCL_CHECK_POINTERS": "CheckPointers",
	"NCCL_DEBUG": "OpenLog", "NCCL_DEBUG_SUBSYS": "OpenLog", "NCCL_DEBUG_FILE": "OpenLog",
	"NCCL_TOPO_FILE": "TopoFile", "NCCL_TOPO_DUMP_FILE": "TopoDumpFile",
	"ASSAY_TIMEOUT": "Timeout", "ASSAY_HANG_AFTER": "HangAfter", "ASSAY_HANG_DIR": "HangDir", "ASSAY_NCCL_FALLBACK": "Fallback",
}

// notYet are those that the table promises and nobody reads. It only ever gets
// shorter.
var notYet []string

// TestHonouredIsRead: a variable that is parsed and then ignored is not
// honoured. What is looked for is a selector on something that is named as
// knobs and settings are.
func TestHonouredIsRead(t *testing.T) {
	source := engineSource(t)
	for _, k := range table() {
		if k.Status != Honoured || k.Name == confFile {
			continue
		}
		field := readBy[k.Name]
		if field == "" {
			t.Errorf("%s is honoured, and readBy does not say by what", k.Name)
			continue
		}
		read := regexp.MustCompile(`(?i:\b(knobs|cfg|settings|k|s))\.` + field + `\b`).MatchString(source)
		pending := false
		for _, f := range notYet {
			pending = pending || f == field
		}
		switch {
		case !read && !pending:
			t.Errorf("%s is called honoured, but nothing in the engine reads Knobs.%s", k.Name, field)
		case read && pending:
			t.Logf("Knobs.%s is read now: take it off notYet", field)
		}
	}
}

// engineSource is the text of what could read knobs.
func engineSource(t *testing.T) string {
	var all strings.Builder
	for _, dir := range []string{"..", "../session", "../choose", "../cuda", "../../cmd/harness"} {
		files, err := filepath.Glob(filepath.Join(dir, "*.go"))
		if err != nil || len(files) == 0 {
			t.Fatalf("no source in %s: %v", dir, err)
		}
		for _, f := range files {
			if strings.HasSuffix(f, "_test.go") {
				continue
			}
			data, err := os.ReadFile(f)
			if err != nil {
				t.Fatal(err)
			}
			all.Write(data)
		}
	}
	return all.String()
}
