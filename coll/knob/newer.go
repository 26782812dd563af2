package knob

import "time"

// newer are the later variables of NCCL that do something here, and our own.
var newer = []Knob{
	{Name: "NCCL_ALGO", Since: "2.5", Default: "all", Status: Honoured, kind: filter(&algorithms, func(k *Knobs) *Filter { return &k.Algo }),
		Effect: "which algorithms may run; a list without a function is about all but AllToAll, Gather, Scatter and SendRecv. Tree stands for tree and double-tree, PAT for bruck. A list is refused when all it leaves are CollnetDirect, CollnetChain, NVLS and NVLSTree: they need a switch that reduces",
		Remedy: "name one of the algorithms that run on host memory"},
	{Name: "NCCL_PROTO", Since: "2.5", Default: "all", Status: Honoured, kind: filter(&protocols, func(k *Knobs) *Filter { return &k.Proto }),
		Effect: "LL: messages are copied through slots; Simple: large ones go from and to where they lie. A list that leaves only LL128 is refused: it needs stores of 128 bytes that arrive whole",
		Remedy: "name LL or Simple"},
	{Name: "NCCL_NET", Since: "2.10", Default: "auto", Status: Honoured, kind: net,
		Effect: "which network connects hosts, in whatever case: Socket, or the name that a plugin gives its own. A rank without it is an error. auto: the plugin's if all ranks have one of the same name, else Socket"},
	{Name: "NCCL_NET_PLUGIN", Since: "2.11", Default: "unset", Status: Honoured, kind: text("none, or names with commas between them: NAME for libnccl-net-NAME.so, or a file", func(k *Knobs) *string { return &k.NetPlugin }),
		Effect: "the network plugin, the first of the list that can be used; unset: libnccl-net.so, if there is one. Builds without cgo load none"},
	{Name: "NCCL_MIN_NCHANNELS", Since: "2.5", Default: "auto", Status: Honoured, kind: integer(1, maxChannels, func(k *Knobs) *int { return &k.minNames[1] }),
		Effect: "newer name of NCCL_MIN_NRINGS; gives way to NCCL_MIN_CTAS"},
	{Name: "NCCL_MAX_NCHANNELS", Since: "2.5", Default: "auto", Status: Honoured, kind: integer(1, maxChannels, func(k *Knobs) *int { return &k.maxNames[1] }),
		Effect: "newer name of NCCL_MAX_NRINGS; gives way to NCCL_MAX_CTAS"},
	{Name: "NCCL_MIN_CTAS", Since: "2.17", Default: "auto", Status: Honoured, kind: integer(1, maxChannels, func(k *Knobs) *int { return &k.minNames[2] }),
		Effect: "at least so many channels"},
	{Name: "NCCL_MAX_CTAS", Since: "2.17", Default: "auto", Status: Honoured, kind: integer(1, maxChannels, func(k *Knobs) *int { return &k.maxNames[2] }),
		Effect: "at most so many channels"},
	{Name: "NCCL_SOCKET_FAMILY", Since: "2.12", Default: "auto", Status: Honoured, kind: oneOf(func(k *Knobs) *string { return &k.SocketFamily }, "AF_INET", "AF_INET6"),
		Effect: "only IPv4 (AF_INET) or only IPv6 (AF_INET6) addresses are used"},
	{Name: "NCCL_SOCKET_NTHREADS", Since: "2.4.8", Default: "-1", Status: Honoured, kind: integer(Auto, 16, func(k *Knobs) *int { return &k.SocketThreads }),
		Effect: "helpers of a socket connection; 0: the rank moves everything itself; -1: chosen by what was measured"},
	{Name: "NCCL_NSOCKS_PERTHREAD", Since: "2.4.8", Default: "-1", Status: Honoured, kind: integer(Auto, 64, func(k *Knobs) *int { return &k.SocketsPerThread }),
		Effect: "TCP streams for each helper; the product of both is at most 64; -1: chosen by what was measured"},
	{Name: "NCCL_COMM_ID", Default: "unset", Status: Honoured, kind: hostPort(func(k *Knobs) *string { return &k.CommID }),
		Effect: "rank 0 listens there, and the ranks meet there without a launcher"},
	{Name: "NCCL_HOSTID", Default: "auto", Status: Honoured, kind: text("any text", func(k *Knobs) *string { return &k.HostID }),
		Effect: "ranks with the same one count as on one host; auto: from the host's name and boot"},
	{Name: "NCCL_TOPO_FILE", Since: "2.6", Default: "unset", Status: Honoured, kind: text("a file name", func(k *Knobs) *string { return &k.TopoFile }),
		Effect: "harness topo, and what NCCL_TOPO_DUMP_FILE writes, read the topology from this XML file and not from the machine; on host memory no operation depends on it"},
	{Name: "NCCL_TOPO_DUMP_FILE", Since: "2.6", Default: "unset", Status: Honoured, kind: text("a file name", func(k *Knobs) *string { return &k.TopoDumpFile }),
		Effect: "rank 0 writes the topology to this file, as XML"},
	{Name: confFile, Since: "2.23", Default: "unset", Status: Honoured, kind: text("a file name", func(*Knobs) *string { return new(string) }),
		Effect: "further variables, read in the place of ~/.nccl.conf; only from the environment. A file that is not there is an error (NCCL goes on without)"},
	{Name: "NCCL_GRAPH_FILE", Default: "unset", Status: Refused, kind: refusing("channels are not read from XML"),
		Effect: "it fixes the order of ranks in rings and trees", Remedy: "unset it; NCCL_RINGS gives the order in rings"},
	{Name: "ASSAY_TIMEOUT", Default: "600", Status: Honoured, kind: seconds(func(k *Knobs) *time.Duration { return &k.Timeout }),
		Effect: "ours: an operation that makes no progress for so long fails on all ranks; 0: it waits for ever"},
	{Name: "ASSAY_TUNING", Default: "unset", Status: Honoured, kind: text("a file name", func(k *Knobs) *string { return &k.Tuning }),
		Effect: "ours: the measurements, made by harness coll tune, by which algorithms are chosen; unset: those that came with the program"},
	{Name: "ASSAY_SLOW", Default: "10", Status: Honoured, kind: seconds(func(k *Knobs) *time.Duration { return &k.Slow }),
		Effect: "ours: a rank that others have waited for so long is named in the log; 0: never"},
}

// withoutEffect are the later variables of NCCL that mean nothing on host
// memory, by what they are about. Their values are not looked at.
var withoutEffect = []struct{ names, why string }{
	{"NET_PLUGIN_REF_COUNT", "a network plugin stays loaded"},
	{"TUNER_PLUGIN PROFILER_PLUGIN ENV_PLUGIN GIN_PLUGIN RMA_PLUGIN TUNER_CONFIG_FILE", "of plugins only those for networks are loaded"},
	{"MIN_P2P_NCHANNELS MAX_P2P_NCHANNELS NCHANNELS_PER_NET_PEER NCHANNELS_PER_PEER", "point-to-point operations have the channels of the others"},
	{"CROSS_NIC NETDEVS_POLICY NET_SHARED_BUFFERS NET_SHARED_COMMS NET_DISABLE_INTRA PXN_DISABLE P2P_PXN_LEVEL PXN_C2C NET_OVERHEAD", "how GPUs share network devices"},
	{"SOCKET_INLINE SOCKET_MIN_TASKSIZE SOCKET_RCVBUF SOCKET_SNDBUF SOCKET_RETRY_CNT SOCKET_RETRY_SLEEP_MSEC SOCKET_POLL_TIMEOUT_MSEC SOCKET_MAGIC", "a detail of NCCL's sockets; ours are made otherwise"},
	{"OOB_NET_ENABLE OOB_NET_IFNAME UID_STAGGER_RATE UID_STAGGER_THRESHOLD", "a detail of NCCL's bootstrap; ours is made otherwise"},
	{"IB_QPS_PER_CONNECTION IB_SPLIT_DATA_ON_QPS IB_ADAPTIVE_ROUTING IB_AR_THRESHOLD IB_PCI_RELAXED_ORDERING IB_ECE_ENABLE IB_USE_INLINE IB_PKEY IB_FIFO_TC IB_MERGE_VFS IB_MERGE_NICS IB_RETURN_ASYNC_EVENTS IB_RESILIENCY_PORT_FAILOVER IB_RESILIENCY_PORT_RECOVERY IB_ADDR_FAMILY IB_ADDR_RANGE IB_ROCE_VERSION_NUM IB_MQP_RETRY_ALL IB_MQP_RETRY_SLEEP_MSEC IB_NET_LATENCY NET_MERGE_LEVEL NET_FORCE_MERGE", "there is no InfiniBand transport yet"},
	{"LL_BUFFSIZE LL128_BUFFSIZE P2P_NET_CHUNKSIZE P2P_PCI_CHUNKSIZE P2P_NVL_CHUNKSIZE P2P_LL_THRESHOLD ALLOC_P2P_NET_LL_BUFFERS CHUNK_SIZE", "slots have one size, from NCCL_BUFFSIZE and the tuner"},
	{"P2P_DIRECT_DISABLE P2P_READ_ENABLE P2P_USE_CUDA_MEMCPY SHM_LOCALITY SHM_USE_CUDA_MEMCPY SHM_MEMCPY_MODE NVB_DISABLE NVB_PRECONNECT IGNORE_DISABLED_P2P", "how GPUs of one host exchange"},
	{"CUMEM_ENABLE CUMEM_HOST_ENABLE GDRCOPY_ENABLE GDRCOPY_FLUSH_ENABLE GDRCOPY_SYNC_ENABLE DMABUF_ENABLE LOCAL_REGISTER GRAPH_REGISTER WIN_ENABLE WIN_STRIDE NET_GDR_LEVEL NET_GDR_C2C GDR_FLUSH_DISABLE LEGACY_CUDA_REGISTER", gpuOnly},
	{"COLLNET_ENABLE COLLNET_NODE_THRESHOLD NVLS_ENABLE NVLS_NCHANNELS NVLS_CHUNKSIZE NVLSTREE_MAX_CHUNKSIZE MNNVL_ENABLE MNNVL_UUID MNNVL_CLIQUE_ID", "there is no switch that reduces"},
	{"PAT_ENABLE RUNTIME_CONNECT WORK_FIFO_BYTES WORK_ARGS_BYTES SINGLE_PROC_MEM_REG_ENABLE PROGRESS_APPENDOP_FREQ TREE_THRESHOLD THREAD_THRESHOLD THREAD_THRESHOLDS LL128_NTHREADS", "a detail of NCCL's own tuning; NCCL_ALGO, NCCL_PROTO and the limits on channels do the like here"},
	{"TOPO_DUMP_FILE_RANK GRAPH_DUMP_FILE GRAPH_DUMP_FILE_RANK", "rank 0 writes the topology, and there are no graphs to write"},
	{"IGNORE_CPU_AFFINITY PROXY_CPUSET SET_THREAD_NAME SET_STACK_SIZE SET_CPU_STACK_SIZE MEM_SYNC_DOMAIN NVTX_DISABLE REPORT_CONNECT_PROGRESS MULTI_RANK_GPU_ENABLE CREATE_THREAD_CONTEXT PROXY_APPEND_BATCH_SIZE PROXY_DUMP_SIGNAL", "about NCCL's threads and GPUs"},
	{"COMM_BLOCKING CTA_POLICY CGA_CLUSTER_SIZE GRAPH_MIXING_SUPPORT GRAPH_STREAM_ORDERING GRAPH_HELPER_DISABLE COMM_SPLIT_SHARE_RESOURCES COMM_SHRINK_SHARE_RESOURCES NVLINK_UTIL_CENTRIC_SCHED_ENABLE LAUNCH_ORDER_IMPLICIT LAUNCH_RACE_FATAL GROUP_CUDA_STREAM", "about CUDA streams and graphs, which need no setting here"},
	{"SYM_CTAS SYM_KERNEL SYM_CE_THRESHOLD", "about NCCL's kernels on symmetric memory"},
	{"RAS_ENABLE RAS_ADDR RAS_TIMEOUT_FACTOR", "there is no status service"},
	{"DEBUG_TIMESTAMP_FORMAT DEBUG_TIMESTAMP_LEVELS WARN_ENABLE_DEBUG_INFO", "the log has no time stamps"},
	{"CHECK_MODE", "ranks compare what they call an operation with in any case"},
	{"PARAM_DUMP_ALL NO_CACHE", "variables are read once for each communicator"},
}

// elsewhere begin the names of variables that others own: nccl-tests,
// frameworks before they had prefixes of their own, network plugins, builds.
var elsewhere = []string{
	"NCCL_TESTS_", "NCCL_FASTRAK_", "NCCL_GPUDIRECTTCPX_", "NCCL_SHARP_", "NCCL_UCX_", "NCCL_PLUGIN_", "NCCL_RDMA_SHARP_", "NCCL_ASYNC_ERROR_HANDLING", "NCCL_BLOCKING_WAIT",
	"NCCL_HOME", "NCCL_ROOT", "NCCL_VERSION", "NCCL_INCLUDE", "NCCL_LIB", "NCCL_PACKAGE", "NCCL_DEV_PACKAGE",
}
