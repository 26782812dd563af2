// Package knob reads the environment variables of NCCL, with NCCL's names and
// meaning, and some of our own.
//
// One table (Table) says for every name how it is treated on host memory: honoured, or accepted
// (valid, but without effect here; one line in the log says so when it is set). A value of a variable
// of NCCL's that cannot be honoured is changed or left out with one warning, as NCCL does: what runs
// with NCCL's configuration runs here. Only what NCCL itself refuses is an error, and a wrong value of
// a variable of ours. An unknown name causes a warning. Nothing is ignored silently. docs/knobs.md
// contains the table.
//
// Values come, strongest first, from the process's environment, from the file that NCCL_CONF_FILE
// names or else ~/.nccl.conf, and from /etc/nccl.conf. A variable with an empty value counts as
// not set, and hides the files.
//
// The packages that use the values define what they mean for an operation.
package knob

import (
	"time"

	"github.com/assay-hpc/assay/coll/debug"
)

// Auto is the value of an integer knob that leaves the choice to the engine.
const Auto = -1

// Knobs are the values, with the defaults where nothing is set. They do not
// change after Load and may be read by many goroutines.
type Knobs struct {
	// How an operation runs.
	Algo         Filter  // NCCL_ALGO
	Proto        Filter  // NCCL_PROTO
	Rings        [][]int // NCCL_RINGS, of any length: use RingsFor
	MinChannels  int     // NCCL_MIN_CTAS and its older names; 0: the tuner's choice
	MaxChannels  int     // NCCL_MAX_CTAS and its older names; 0: the tuner's choice
	CTAPolicy    string  // NCCL_CTA_POLICY, as a word
	GraphMixing  bool    // NCCL_GRAPH_MIXING_SUPPORT
	GraphOrder   bool    // NCCL_GRAPH_STREAM_ORDERING
	MultiRankGPU bool    // NCCL_MULTI_RANK_GPU_ENABLE
	SameBits     bool    // ASSAY_SAME_BITS
	Verify       Verify  // ASSAY_CHECK
	BuffSize     int64   // NCCL_BUFFSIZE: bytes per connection
	Threads      int     // NCCL_NTHREADS: most threads of a CUDA block; 0: no limit
	// Operations of fewer bytes use one channel and the low-latency protocol.
	// Auto: the cost model decides.
	SingleRingThreshold int64 // NCCL_SINGLE_RING_THRESHOLD
	LLThreshold         int64 // NCCL_LL_THRESHOLD

	// Which transport connects two ranks.
	P2PDisable bool      // NCCL_P2P_DISABLE; use the method P2P
	P2PLevel   PathLevel // NCCL_P2P_LEVEL; use the method P2P
	SHMDisable bool      // NCCL_SHM_DISABLE
	IBDisable  bool      // NCCL_IB_DISABLE
	Net        string    // NCCL_NET: "", "Socket" or the name of a plugin's network
	NetPlugin  string    // NCCL_NET_PLUGIN, as written

	// Reductions in the network.
	CollNetEnable    bool // NCCL_COLLNET_ENABLE
	CollNetThreshold int  // NCCL_COLLNET_NODE_THRESHOLD: smallest number of hosts

	// Sockets and where ranks find one another.
	SocketIfname     string // NCCL_SOCKET_IFNAME, as written
	SocketFamily     string // NCCL_SOCKET_FAMILY: "", "AF_INET" or "AF_INET6"
	SocketThreads    int    // NCCL_SOCKET_NTHREADS: threads per connection; Auto
	SocketsPerThread int    // NCCL_NSOCKS_PERTHREAD; Auto
	CommID           string // NCCL_COMM_ID: host:port where rank 0 listens
	HostID           string // NCCL_HOSTID: ranks with the same one share a host

	// InfiniBand and RoCE.
	IB IB

	// Checks, logs, files.
	ChecksDisable   bool             // NCCL_CHECKS_DISABLE
	CheckPointers   bool             // NCCL_CHECK_POINTERS
	LaunchMode      string           // NCCL_LAUNCH_MODE: "", "PARALLEL" or "GROUP"
	Debug           debug.Level      // NCCL_DEBUG
	DebugSubsystems debug.Subsystems // NCCL_DEBUG_SUBSYS
	DebugFile       string           // NCCL_DEBUG_FILE, with its %h and %p
	TopoFile        string           // NCCL_TOPO_FILE
	TopoDumpFile    string           // NCCL_TOPO_DUMP_FILE

	// Ours.
	Timeout   time.Duration // ASSAY_TIMEOUT: how long an operation may be without progress before it fails; 0: no limit
	HangAfter time.Duration // ASSAY_HANG_AFTER: how long others wait for a rank before the log names it; 0: never
	HangDir   string        // ASSAY_HANG_DIR: where verdicts are written; "": the directory for temporary files

	Tuning  string // ASSAY_TUNING: a file of measurements
	GPUAlgo string // ASSAY_GPU_ALGO: kernel:channels:threads:chunk, for all operations on GPUs that it can do

	Fallback string // ASSAY_NCCL_FALLBACK: NVIDIA's libnccl.so.2, for what the engine does not do on GPUs; NoFallback; "": not set

	// The three names of each limit on channels, newest last; 0: not set.
	minNames, maxNames [3]int
	environ            map[string]string
	settings           map[string]Setting
	files              []Setting // see FromFiles
	hidden             []Setting // of the files: another place has another value
}

// NoFallback is the value of Fallback that disables it.
const NoFallback = "0"

// IB are the knobs of InfiniBand. Those about GPU memory only affect the log's lines on GPU
// Direct RDMA and harness show topology --gdr.
type IB struct {
	HCA         string    // NCCL_IB_HCA, as written
	Timeout     int       // NCCL_IB_TIMEOUT: 4.096 µs × 2^Timeout
	RetryCount  int       // NCCL_IB_RETRY_CNT
	GIDIndex    int       // NCCL_IB_GID_INDEX; Auto: by address family and RoCE version
	RoCEVersion int       // NCCL_IB_ROCE_VERSION_NUM: of the address that is chosen
	AddrFamily  string    // NCCL_IB_ADDR_FAMILY: of the address that is chosen, AF_INET or AF_INET6
	ServiceLvl  int       // NCCL_IB_SL; Auto
	TrafficCls  int       // NCCL_IB_TC; Auto
	PKey        int       // NCCL_IB_PKEY: an index
	QPs         int       // NCCL_IB_QPS_PER_CONNECTION
	SplitData   bool      // NCCL_IB_SPLIT_DATA_ON_QPS
	Adaptive    int       // NCCL_IB_ADAPTIVE_ROUTING: 0, 1, Auto
	ARThreshold int64     // NCCL_IB_AR_THRESHOLD, bytes
	CUDASupport int       // NCCL_IB_CUDA_SUPPORT: 0, 1, Auto
	GDRLevel    PathLevel // NCCL_IB_GDR_LEVEL, NCCL_NET_GDR_LEVEL
	GDRRead     int       // NCCL_NET_GDR_READ: 0, 1, Auto
	GDRC2C      bool      // NCCL_NET_GDR_C2C
}

// Default returns the knobs when nothing is set.
func Default() *Knobs {
	return &Knobs{
		CTAPolicy:           "DEFAULT",
		GraphMixing:         true,
		GraphOrder:          true,
		BuffSize:            4 << 20, // the guide's default
		SingleRingThreshold: Auto,
		LLThreshold:         Auto,
		P2PLevel:            SYS,
		CollNetThreshold:    2,
		SocketThreads:       Auto,
		SocketsPerThread:    Auto,
		IB:                  IB{Timeout: 20, RetryCount: 7, GIDIndex: Auto, RoCEVersion: 2, AddrFamily: "AF_INET", ServiceLvl: Auto, TrafficCls: Auto, QPs: 1, Adaptive: Auto, ARThreshold: 8 << 10, CUDASupport: Auto, GDRLevel: PXB, GDRRead: Auto, GDRC2C: true},
		DebugSubsystems:     debug.DefaultSubsystems,
		// Programs leave ranks waiting for minutes while one of them saves its state or compiles;
		// frameworks on top of NCCL allow ten minutes. A dead rank is noticed long before, by its
		// connections.
		Timeout:   10 * time.Minute,
		HangAfter: 10 * time.Second,
	}
}

// P2P reports whether ranks of one process may access each other's memory. Their distance is
// zero, so that any level other than LOC allows it.
func (k *Knobs) P2P() bool { return !k.P2PDisable && k.P2PLevel > LOC }

// A Setting is a variable that is set, and by what.
type Setting struct {
	Name, Value string
	From        string // "environment" or file:line
	Unread      string // why NCCL does not read it, though the line of its file means it; "": it does
	Cut         string // why NCCL reads only the beginning of the line; "": it reads all
}

// String is the line that NCCL logs for INFO and ENV.
func (s Setting) String() string {
	return s.Name + " set by " + s.From + " to " + debug.Short(s.Value, valueBytes)
}

// A PathLevel is a distance within a machine, as NCCL_P2P_LEVEL names it.
type PathLevel int8

// The levels, nearest first.
const (
	LOC PathLevel = iota // never: nothing is that near
	NVL                  // NVLink
	PIX                  // one PCIe switch
	PXB                  // several PCIe switches
	PHB                  // a host bridge, within a NUMA node
	SYS                  // between NUMA nodes
)

var pathLevels = [...]string{"LOC", "NVL", "PIX", "PXB", "PHB", "SYS"}

// String is the level's name.
func (l PathLevel) String() string {
	if l < 0 || int(l) >= len(pathLevels) {
		return "PathLevel(?)"
	}
	return pathLevels[l]
}
