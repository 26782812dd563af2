package probe

// The reasons why flags are refused.
const (
	rawEthernet  = "raw Ethernet packets, which need a NIC of NVIDIA's and its flow steering"
	multicast    = "multicast: on InfiniBand perftest joins a group by MADs to the subnet manager"
	twoPorts     = "two ports in one test: run one test on each port"
	dynamicConns = "DC connections (-c DC), which only NVIDIA's NICs have"
	encryption   = "encryption by the NIC (mlx5dv), with keys of its own"
	nicRates     = "limits by the NIC: --rate_limit_type=SW is there"
	cacheHints   = "hints to the PCIe root (TPH), which need ibv_reg_mr_ex of rdma-core 60"
	musaGPU      = "GPUs of Moore Threads"
	rocmGPU      = "GPUs of AMD"
	neuronCores  = "AWS Neuron"
	mluCards     = "accelerators of Cambricon"
	openCL       = "OpenCL memory"
)

// unsupported are perftest's flags that are refused, and why.
var unsupported = []struct {
	short byte
	long  string
	why   string
}{
	{'O', "dualport", twoPorts},
	{0, "report-per-port", twoPorts},
	{'g', "mcg", multicast},
	{'M', "MGID", multicast},
	{0, "connectionless", multicast},
	{'L', "hop_limit", "it is for raw Ethernet, and perftest refuses it elsewhere; the hop limit is 255"},
	{'B', "source_mac", rawEthernet},
	{'E', "dest_mac", rawEthernet},
	{'J', "dest_ip", rawEthernet},
	{'j', "", rawEthernet},
	{'K', "dest_port", rawEthernet},
	{'k', "source_port", rawEthernet},
	{'Y', "ethertype", rawEthernet},
	{'v', "mac_fwd", rawEthernet},
	{'P', "client", rawEthernet},
	{'Z', "server", rawEthernet},
	{'G', "use_rss", rawEthernet},
	{0, "remote_mac", rawEthernet},
	{0, "local_mac", rawEthernet},
	{0, "remote_ip", rawEthernet},
	{0, "local_ip", rawEthernet},
	{0, "remote_port", rawEthernet},
	{0, "local_port", rawEthernet},
	{0, "tcp", rawEthernet},
	{0, "flows", rawEthernet},
	{0, "flows_burst", rawEthernet},
	{0, "reply_every", rawEthernet},
	{0, "promiscuous", rawEthernet},
	{0, "sniffer", rawEthernet},
	{0, "raw_mcast", rawEthernet},
	{0, "raw_ipv6", rawEthernet},
	{0, "vlan_en", rawEthernet},
	{0, "vlan_pcp", rawEthernet},
	{0, "inline_recv", "inline receives: rdma-core has no call for them, and perftest reads the flag and does nothing"},
	{0, "dont_xchg_versions", "without versions no release of perftest goes on: each takes the missing one for older than 5.70"},
	{0, "typical_pkt_size", nicRates},
	{0, "log_dci_streams", dynamicConns},
	{0, "log_active_dci_streams", dynamicConns},
	{0, "aes_xts", encryption},
	{0, "encrypt_on_tx", encryption},
	{0, "sig_before", encryption},
	{0, "aes_block_size", encryption},
	{0, "data_enc_keys_number", encryption},
	{0, "kek_path", encryption},
	{0, "credentials_path", encryption},
	{0, "data_enc_key_app_path", encryption},
	{0, "sig_offload", "signatures by the NIC (mlx5dv)"},
	{0, "data_validation", "the receiver would compare all data, and the address records change: leave it out on both sides; harness coll checks data"},
	{0, "data_validation_debug", "it is for --data_validation"},
	{0, "use-null-mr", "ibv_alloc_null_mr, in which no data arrives"},
	{0, "no_lock", "thread domains of the NIC's library (ibv_alloc_td); one thread posts and polls"},
	{0, "use_ooo", "placement out of order, which only NVIDIA's own rdma-core has"},
	{0, "unsolicited_write", "AWS's SRD connections"},
	{0, "congest_type", "congestion control of HiSilicon's NICs (hnsdv)"},
	{0, "tph_mem", cacheHints},
	{0, "cpu_id", cacheHints},
	{0, "ph", cacheHints},
	{0, "use_data_direct", "NVIDIA's Data Direct (mlx5dv)"},
	{0, "cuda_mem_type", "other kinds of CUDA memory; --use_cuda is the device's"},
	{0, "use_cuda_pcie_mapping", "mapping through BAR1, instead of the driver's choice"},
	{0, "gpu_touch", "touching GPU memory meanwhile, which is for on-demand paging"},
	{0, "use_rocm", rocmGPU},
	{0, "use_rocm_dmabuf", rocmGPU},
	{0, "use_musa", musaGPU},
	{0, "use_musa_bus_id", musaGPU},
	{0, "use_musa_dmabuf", musaGPU},
	{0, "use_musa_pcie_mapping", musaGPU},
	{0, "use_neuron", neuronCores},
	{0, "use_neuron_dmabuf", neuronCores},
	{0, "use_hl", "Habana's accelerators"},
	{0, "use_mlu", mluCards},
	{0, "use_mlu_dmabuf", mluCards},
	{0, "use_opencl", openCL},
	{0, "opencl_platform_id", openCL},
	{0, "use_ib_dm_dmabuf", "the NIC's own memory"},
}
