package predict

import "time"

// Figures of NCCL's own cost model and defaults. Sources: NCCL 2.30.7, src/graph/tuning.cc
// (latencies, factors, caps), src/graph/topo.h (rate of an NVLink), src/transport/nvls.cc and
// src/include (channels, chunks, FIFOs), and 2.26.2 where it differs and a published table was
// measured with it. These are facts about NCCL; nothing in this file is fitted.

// A protocol is one of NCCL's protocols.
type protocol int

const (
	ll protocol = iota
	ll128
	simple
	numProtocols
)

var protocolNames = [numProtocols]string{"LL", "LL128", "Simple"}

func (p protocol) String() string { return protocolNames[p] }

// Latencies of rings, in order LL, LL128, Simple.
var (
	ringBase   = [numProtocols]time.Duration{6600, 14000, 8400} // of an operation
	ringNVLink = [numProtocols]time.Duration{600, 1900, 3400}   // of a step within a node
	ringNet    = [numProtocols]time.Duration{2700, 4000, 14000} // of a step between nodes
)

// The same for trees: a chain in each node, a double tree between nodes.
var (
	treeBase   = [numProtocols]time.Duration{6800, 14000, 8400}
	treeNVLink = [numProtocols]time.Duration{600, 1250, 4000}
	treeNet    = [numProtocols]time.Duration{5000, 8500, 14000}
)

// nvlsTreeNet is the latency of a step between nodes for NVLSTree.
const nvlsTreeNet = 14 * time.Microsecond // 2.26.2; 20.9 in 2.30.7

const (
	kib = 1 << 10 // bytes
	mib = 1 << 20

	ncclSteps = 8 // NCCL_STEPS: slots of a connection's FIFO

	// How much of a block a channel moves at a time. Simple: 4 of the 8 steps in 4 MiB; LL:
	// half of one of the 8 steps in 512 KiB; LL128: 15/16 of one of the 8 steps in 4.7 MiB.
	simpleChunk = 2 * mib
	treeChunk   = 512 * kib // Simple, in a tree: one step
	treeDepth   = 16        // chunks of a tree that are under way
	treeLeast   = 4 * kib
	treeFew     = 4 // domains
	llChunk     = 32 * kib
	ll128Chunk  = 553 * kib

	// Channels of a ring within a node: two per link with the 12 links of NVLink 3; NCCL's
	// search finds about as many on later GPUs. Here the number only sets the granularity.
	ringChannels = 24

	nvlsChunk     = 128 * kib
	nvlsSmall     = 16 * mib // up to here half as much: the phases overlap
	nvlsTreeChunk = 64 * kib // between 4 domains or more
	nvlsTreeFrom  = 4
	nvlsLeast     = 5 // GPUs: with four the reduction in the switch gains nothing over a ring

	ll128Factor = 0.92 // of the ring's bandwidth
	llFactor    = 0.5  // of the ring's bandwidth: half of each line is flags
	treeFactor  = 0.92 // of the links' bandwidth, in a tree; LL gets 1/3.8 of that, LL128 120/128
	treeLL      = treeFactor / 3.8
	treeLL128   = treeFactor * 120 / 128
	treeLLShare = 0.6       // of NCCL's cap of LL, that its trees reach between nodes: published tables of two nodes
	nvlsShare   = 5.0 / 6.0 // share of a port's bandwidth for the data of an AllReduce through the switch
)

// An architecture is what NCCL knows about a generation of GPUs.
type architecture struct {
	link         BytesPerSec    // of one NVLink, according to NCCL
	llMax        [3]BytesPerSec // cap of a ring with LL on 1, 2 and more nodes
	nvls         float64        // efficiency of the in-switch reduction; 0: there is none
	nvlsTree     float64        // the same beside a tree between domains
	nvlsChannels int

	// What operations and steps take, over NCCL's own figures, in order LL, LL128, Simple: published tables of each
	// generation below 4 MiB, on one node and on two.
	local, net [numProtocols]float64
	nvlsBase   time.Duration // of an operation with NVLS
	pairLinks  float64       // share of a GPU's links that lead to one other; 0: all, by a switch
	nvlsFrom   int64         // bytes from which NCCL takes NVLS, within one domain
}

// architectures by GPU.Arch of the database. The caps of LL on several nodes
// are those of an Intel host on Ampere.
var architectures = map[string]architecture{
	"volta":           {pairLinks: 1.0 / 3, link: 20 * GBps, llMax: [3]BytesPerSec{39 * GBps, 39 * GBps, 20.4 * GBps}, local: asAmpere, net: [numProtocols]float64{1.3, 2.4, 1}},
	"ampere":          {link: 20 * GBps, llMax: [3]BytesPerSec{87.7 * GBps, 22.5 * GBps, 19 * GBps}, local: asAmpere, net: [numProtocols]float64{1.3, 2.4, 1}},
	"hopper":          {link: 20.6 * GBps, llMax: [3]BytesPerSec{141 * GBps, 45 * GBps, 35 * GBps}, nvls: 0.89, nvlsTree: 0.81, nvlsChannels: 16, local: [numProtocols]float64{1.08, 1, 1}, net: [numProtocols]float64{1.16, 2.25, 1}, nvlsBase: 24 * time.Microsecond, nvlsFrom: mib},
	"blackwell":       blackwell,
	"blackwell-ultra": ultra,
}

// ultra reaches less with NVLSTree, where its NICs are no limit: published tables of two nodes of B300 and two racks of GB300.
var ultra = func() architecture {
	a := blackwell
	a.nvlsTree = 0.70
	return a
}()

var (
	asAmpere  = [numProtocols]float64{1.5, 1, 1}
	blackwell = architecture{link: 40.1 * GBps, llMax: [3]BytesPerSec{282 * GBps, 90 * GBps, 70 * GBps}, nvls: 0.80, nvlsTree: 0.83, nvlsChannels: 32, local: [numProtocols]float64{1.65, 1, 1}, net: [numProtocols]float64{1.3, 3.4, 1}, nvlsBase: 38 * time.Microsecond, nvlsFrom: 4 * mib}
)

// chunk returns how many bytes of a block a channel moves at a time.
func (p protocol) chunk() int64 {
	return [numProtocols]int64{llChunk, ll128Chunk, simpleChunk}[p]
}
