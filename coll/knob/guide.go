package knob

import "github.com/assay-hpc/assay/coll/debug"

// Remedies and reasons that several rows share.
const (
	gpuOnly = "about GPU memory and networks: what goes between hosts is staged in host memory"
	gdrOnly = gpuOnly + "; only the log's lines on GPU Direct RDMA and harness show topology --gdr go by it"
)

// guide are the variables of section 5.4 of the guide of NCCL 2.3.5. Defaults that have changed
// since then are today's.
var guide = []Knob{
	{Name: "NCCL_P2P_DISABLE", Default: "0", Status: Honoured, kind: one(func(k *Knobs) *bool { return &k.P2PDisable }),
		Effect: "1: ranks of one host exchange long messages through shared memory, too, and do not read them from each other's memory; GPUs do not write to each other, but into pinned memory of the host"},
	{Name: "NCCL_P2P_LEVEL", Since: "2.3.4", Default: "SYS", Status: Honoured, kind: level(func(k *Knobs) *PathLevel { return &k.P2PLevel }),
		Effect: "LOC (0): as NCCL_P2P_DISABLE=1. All others allow it, whatever the distance"},
	{Name: "NCCL_SHM_DISABLE", Default: "0", Status: Honoured, kind: one(func(k *Knobs) *bool { return &k.SHMDisable }),
		Effect: "1: processes of one host exchange over the network that connects hosts"},
	{Name: "NCCL_SOCKET_IFNAME", Default: "auto", Status: Honoured, kind: interfaces(func(k *Knobs) *string { return &k.SocketIfname }),
		Effect: "which network interfaces bootstrap and sockets use; auto: any but lo, docker* and virbr*, and those when there is nothing else; devices and interfaces with a default route first, other networks of containers last"},
	{Name: "NCCL_DEBUG", Default: "NONE", Status: Honoured, kind: debugLevel,
		Effect: "how much is logged, on standard error (NCCL: standard output) or to NCCL_DEBUG_FILE"},
	{Name: "NCCL_BUFFSIZE", Default: "4194304", Status: Honoured, kind: bytes(minBuffSize, maxBuffSize, func(k *Knobs) *int64 { return &k.BuffSize }),
		Effect: "bytes of slots between two ranks, for each channel; more among a thousand ranks, where a message has to hold an element of each"},
	{Name: "NCCL_NTHREADS", Default: "auto", Status: Honoured, kind: integer(1, 512, func(k *Knobs) *int { return &k.Threads }),
		Effect: "at most this many threads of a CUDA block, in whole warps; kernels for long messages have 128 at least, or 256; on host memory one goroutine works for a rank"},
	{Name: "NCCL_RINGS", Default: "auto", Status: Honoured, kind: ringLists,
		Effect: "the orders of the ranks in the ring algorithm, one a channel; rings that are not an order of all ranks are left out (gone from NCCL after 2.4)"},
	{Name: "NCCL_MAX_NRINGS", Since: "2.0.5", Default: "auto", Status: Honoured, kind: raised(1, maxChannels, 1, func(k *Knobs) *int { return &k.maxNames[0] }),
		Effect: "at most this many channels; gives way to NCCL_MAX_NCHANNELS and NCCL_MAX_CTAS"},
	{Name: "NCCL_MIN_NRINGS", Since: "2.2.0", Default: "auto", Status: Honoured, kind: raised(0, maxChannels, 0, func(k *Knobs) *int { return &k.minNames[0] }),
		Effect: "at least this many channels; gives way to NCCL_MIN_NCHANNELS and NCCL_MIN_CTAS"},
	{Name: "NCCL_CHECKS_DISABLE", Since: "2.0.5", Default: "0", Status: Honoured, kind: flag(func(k *Knobs) *bool { return &k.ChecksDisable }),
		Effect: "1: ranks do not compare what they call an operation with; what keeps memory safe is checked all the same (NCCL has not read it since 2.2.12)"},
	{Name: "NCCL_CHECK_POINTERS", Since: "2.2.12", Default: "0", Status: Honoured, kind: one(func(k *Knobs) *bool { return &k.CheckPointers }),
		Effect: "1: each operation on GPUs looks whether its buffers are device memory, each of one allocation. On host memory each operation checks its buffers' lengths, and that they overlap in no other way than in place, whatever this says"},
	{Name: "NCCL_LAUNCH_MODE", Since: "2.1.0", Default: "unset", Status: Accepted, kind: oneOf(func(k *Knobs) *string { return &k.LaunchMode }, "PARALLEL", "GROUP"),
		Effect: "how CUDA kernels are launched: those of a group are launched together in any case"},
	{Name: "NCCL_IB_DISABLE", Default: "0", Status: Honoured, kind: flag(func(k *Knobs) *bool { return &k.IBDisable }),
		Effect: "1: no InfiniBand and RoCE between hosts, except by a plugin"},
	{Name: "NCCL_IB_HCA", Default: "unset", Status: Honoured, kind: adapters(func(k *Knobs) *string { return &k.IB.HCA }),
		Effect: "which RDMA devices and ports are used, of those that are ACTIVE; unset: all"},
	// The guide allows 1 to 22; the field has five bits, and 0 means an infinite timeout. The longest
	// one of 31 is two hours.
	{Name: "NCCL_IB_TIMEOUT", Default: "20", Status: Honoured, kind: raised(1, 31, 31, func(k *Knobs) *int { return &k.IB.Timeout }),
		Effect: "a packet is sent again after 4.096 µs × 2^value without an answer"},
	{Name: "NCCL_IB_RETRY_CNT", Since: "2.1.15", Default: "7", Status: Honoured, kind: integer(0, 7, func(k *Knobs) *int { return &k.IB.RetryCount }),
		Effect: "so often is it sent again before the peer counts as lost"},
	{Name: "NCCL_IB_GID_INDEX", Since: "2.1.4", Default: "-1", Status: Honoured, kind: integer(Auto, 255, func(k *Knobs) *int { return &k.IB.GIDIndex }),
		Effect: "which of a port's addresses is used; -1: by NCCL_IB_ADDR_FAMILY and NCCL_IB_ROCE_VERSION_NUM"},
	{Name: "NCCL_IB_SL", Since: "2.1.4", Default: "-1", Status: Honoured, kind: integer(Auto, 15, func(k *Knobs) *int { return &k.IB.ServiceLvl }),
		Effect: "the service level; -1: 0"},
	{Name: "NCCL_IB_TC", Since: "2.1.15", Default: "-1", Status: Honoured, kind: integer(Auto, 255, func(k *Knobs) *int { return &k.IB.TrafficCls }),
		Effect: "the traffic class; -1: 0"},
	{Name: "NCCL_IB_CUDA_SUPPORT", Default: "auto", Status: Accepted, kind: integer(0, 1, func(k *Knobs) *int { return &k.IB.CUDASupport }), Effect: gdrOnly},
	{Name: "NCCL_IB_GDR_LEVEL", Since: "2.3.4", Default: "PXB", Status: Accepted, kind: level(func(k *Knobs) *PathLevel { return &k.IB.GDRLevel }), Effect: gdrOnly},
	{Name: "NCCL_NET_GDR_READ", Default: "auto", Status: Accepted, kind: integer(0, 1, func(k *Knobs) *int { return &k.IB.GDRRead }), Effect: gdrOnly},
	{Name: "NCCL_SINGLE_RING_THRESHOLD", Since: "2.1.0", Default: "auto", Status: Honoured, kind: bytes(0, maxBytes, func(k *Knobs) *int64 { return &k.SingleRingThreshold }),
		Effect: "operations of fewer bytes use one channel; auto: the cost model decides (gone from NCCL since about 2.3)"},
	{Name: "NCCL_LL_THRESHOLD", Since: "2.1.0", Default: "auto", Status: Honoured, kind: bytes(0, maxBytes, func(k *Knobs) *int64 { return &k.LLThreshold }),
		Effect: "operations of fewer bytes use the protocol LL; auto: the cost model decides (gone from NCCL since 2.5)"},
	{Name: "NCCL_DEBUG_FILE", Since: "2.2.12", Default: "unset", Status: Honoured, kind: textKind("a file name, where %h is the host and %p the process", func(k *Knobs) *string { return &k.DebugFile }),
		Effect: "the log goes to this file, which is created and overwritten"},
	{Name: "NCCL_DEBUG_SUBSYS", Since: "2.3.4", Default: debug.DefaultSubsystems.String(), Status: Honoured, kind: debugSubsystems,
		Effect: "what INFO and TRACE are about"},
}

// Bounds of NCCL_BUFFSIZE: a slot must hold a header's worth of data, and a hundred connections
// must fit in a machine's memory.
const (
	minBuffSize = 1 << 10
	maxBuffSize = 1 << 30
	maxBytes    = 1 << 50
	maxChannels = 64 // NCCL's ceiling since 2.25
)
