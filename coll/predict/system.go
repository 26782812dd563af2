package predict

import (
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/assay-hpc/assay/coll/op"
	"github.com/assay-hpc/assay/internal/platform"
)

// A system is a platform with a number of GPUs: the topology, and the figures that it is
// derived from.
type system struct {
	t       Topology
	perNode int // GPUs of a node that take part
	arch    architecture
	net     time.Duration // of a step between nodes, in addition to NCCL's latency
	used    []Used
}

// rackNIC is what the NIC of a GPU of a rack carries, where the database has none.
const rackNIC = nicFraction * 50 * GBps

// maxGPUs is far beyond any machine.
const maxGPUs = 1 << 24

// nicFraction is the share of a NIC's rate that carries data: 193.72 of 200 Gb/s, the
// ib_write_bw row of aws-p5en in the database.
const nicFraction = 193.72 / 200

// cloudNetworks are the networks whose messages take longer than InfiniBand's and RoCE's, by the begin of NICs.Kind.
var cloudNetworks = []struct {
	kind     string
	fraction float64
	step     time.Duration
}{
	{"EFA", nicFraction, 22 * time.Microsecond},
	{"TCPXO", 0.955, 50 * time.Microsecond},
	{"TCPX", 0.80, 200 * time.Microsecond},
	{"Slingshot", 0.88, 2 * time.Microsecond},
}

// firstEFA is a step of EFA's first generation, of instances with A100 and before.
const firstEFA = 70 * time.Microsecond

// The versions of NCCL that the figures are from. Those for NVLS are from the version that the
// GB200 tables were measured with.
const (
	fromNCCL  = "NCCL 2.30.7"
	fromNCCL2 = "NCCL 2.26.2"
)

func (s *system) use(name, value, source string) { s.used = append(s.used, Used{name, value, source}) }

func newSystem(db *platform.DB, j Job, fit Fitted) (system, error) {
	var s system
	p, err := db.Platform(j.Platform)
	if err != nil {
		return s, err
	}
	if err := s.ranks(p, j); err != nil {
		return s, fmt.Errorf("%s: %w", j.Platform, err)
	}
	if err := s.port(db, p); err != nil {
		return s, fmt.Errorf("%s: %w", j.Platform, err)
	}
	if s.t.domains() > 1 {
		if err := s.uplink(p, j.Collective, fit); err != nil {
			return s, fmt.Errorf("%s: %w", j.Platform, err)
		}
	}
	s.latencies(fit)
	return s, s.t.validate()
}

// ranks determines how many GPUs share a fabric.
func (s *system) ranks(p *platform.Platform, j Job) error {
	node := p.GPUsPerNode.Max()
	if node == 0 {
		return fmt.Errorf("the database does not say how many GPUs a node has")
	}
	nodes := j.Nodes
	if nodes == 0 {
		nodes = (j.GPUs + node - 1) / node
	}
	switch {
	case j.GPUs < 2:
		return fmt.Errorf("%d GPUs; want 2 or more", j.GPUs)
	case j.GPUs > maxGPUs:
		return fmt.Errorf("%d GPUs; want %d at most", j.GPUs, maxGPUs)
	case nodes < 1 || j.GPUs%nodes != 0:
		return fmt.Errorf("%d GPUs on %d nodes; each must have as many", j.GPUs, nodes)
	case j.GPUs/nodes > node:
		return fmt.Errorf("%d GPUs on %d nodes; a node has %d", j.GPUs, nodes, node)
	}
	s.t.Ranks, s.t.Domain = j.GPUs, j.GPUs/nodes
	s.perNode = j.GPUs / nodes
	if p.GPUsPerDomain > 0 {
		domain, err := s.inDomain(p, j, nodes)
		if err != nil {
			return err
		}
		s.t.Domain = domain
	}
	return nil
}

// inDomain returns how many GPUs of a job each NVLink domain has, if domains have several nodes: by j.Segment, or as few
// domains as hold the nodes, with as many each.
func (s *system) inDomain(p *platform.Platform, j Job, nodes int) (int, error) {
	most := p.GPUsPerDomain / p.GPUsPerNode.Max() // nodes of a domain
	switch {
	case j.Segment > most:
		return 0, fmt.Errorf("segments of %d nodes; an NVLink domain has %d", j.Segment, most)
	case j.Segment > 0:
		most = j.Segment
	}
	domains := (nodes + most - 1) / most
	if nodes%domains != 0 {
		fit := nodes - nodes%domains
		return 0, fmt.Errorf("%d nodes are not equal parts of %d NVLink domains of at most %d; predict %d nodes", nodes, domains, most, fit)
	}
	s.use("NVLink domains", fmt.Sprintf("%d of %d nodes", domains, nodes/domains), "the nodes, as evenly as they go into domains of "+fmt.Sprint(most))
	return nodes / domains * s.perNode, nil
}

func (s *system) port(db *platform.DB, p *platform.Platform) error {
	g := db.GPUs[p.GPU]
	if g == nil {
		return fmt.Errorf("the database names no GPU")
	}
	arch, ok := architectures[g.Arch]
	if !ok || g.NVLink == nil || !g.NVLink.Links.Known() {
		return fmt.Errorf("%s: the model knows NVLink only, and the database has no number of its links for this GPU", g.Name)
	}
	s.arch = arch
	s.t.Port = BytesPerSec(g.NVLink.Links.Value) * arch.link
	s.use("NVLinks of a GPU", g.NVLink.Links.Text, g.NVLink.Links.Source)
	s.use("an NVLink", gbps(arch.link), fromNCCL+" src/graph/topo.h")
	s.use("advertised NVLink of a GPU", g.NVLink.UniGBps.Text+" GB/s", g.NVLink.UniGBps.Source+", for comparison")
	if arch.nvls > 0 {
		share := arch.nvls
		if s.t.domains() > 1 {
			share = arch.nvlsTree
		}
		s.use("in-switch reduction", fmt.Sprintf("%g x 5/6 of the links, %d channels", share, arch.nvlsChannels), "published plateaus; "+fromNCCL2+" src/transport/nvls.cc")
	}
	return nil
}

// uplink determines a domain's rate into the network.
func (s *system) uplink(p *platform.Platform, c op.Collective, fit Fitted) error {
	if p.NICs == nil && p.GPUsPerDomain == 72 && exchanged(c) {
		s.t.Uplink = rackNIC * BytesPerSec(s.t.Domain)
		s.use("NICs of a domain", gbps(s.t.Uplink), "assumed: a NIC of 400 Gb/s for each GPU; the database has no figure")
		return nil
	}
	if p.NICs == nil && p.GPUsPerDomain == 72 {
		s.t.Uplink = fit.RackUplink * BytesPerSec(s.t.Domain) / 72
		s.use("uplink of a domain", gbps(s.t.Uplink), "fitted for a rack of 72 GPUs: the database has no NIC figure")
		return nil
	}
	if p.NICs == nil {
		return fmt.Errorf("the database has no NICs for it, and %d domains need them", s.t.domains())
	}
	gbit, total := p.NICs.Gbit()
	if gbit == 0 {
		return fmt.Errorf("the database has no rate of its NICs, and %d domains need it", s.t.domains())
	}
	fraction := nicFraction
	for _, n := range cloudNetworks {
		if strings.HasPrefix(p.NICs.Kind, n.kind) {
			fraction, s.net = n.fraction, n.step
			if n.kind == "EFA" && s.arch.nvls == 0 {
				s.net = firstEFA
			}
			s.use("a step between nodes by "+n.kind, s.net.String()+" more", "fitted to the published rows of such platforms")
			break
		}
	}
	s.use("NICs of a node", fmt.Sprintf("%g Gb/s", gbit), total.Source)
	if all := p.GPUsPerNode.Max(); s.perNode < all { // those beside the GPUs that take part
		share := float64(s.perNode) / float64(all)
		if n := p.NICs.Count.Value; n > 0 {
			share = math.Ceil(n*share) / n
		}
		gbit *= share
		s.use("NICs beside the GPUs that take part", fmt.Sprintf("%g Gb/s", gbit), fmt.Sprintf("%d of %d GPUs of a node", s.perNode, all))
	}
	s.t.Uplink = BytesPerSec(gbit/8*fraction) * GBps * BytesPerSec(s.t.Domain/s.perNode)
	from := "ib_write_bw of aws-p5en, mle-net"
	if fraction != nicFraction {
		from = "fitted to the published rows of such platforms"
	}
	s.use("data's share of a NIC", fmt.Sprintf("%.3f", fraction), from)
	return nil
}

// latencies lists the time that operations and steps take in addition to the transfer, in
// order LL, LL128, Simple.
func (s *system) latencies(fit Fitted) {
	const from = fromNCCL + " src/graph/tuning.cc"
	s.use("ring: operation, step", fmt.Sprintf("%v, %v", ringBase, ringNVLink), from)
	if s.t.domains() > 1 {
		s.use("ring: step between nodes", fmt.Sprint(ringNet), from)
		s.use("tree: step, and between nodes", fmt.Sprintf("%v, %v", treeNVLink, treeNet), from)
	}
	if s.arch.nvls > 0 {
		s.use("NVLS: operation, step between", fmt.Sprintf("%v, %v", s.arch.nvlsBase, nvlsTreeNet), fromNCCL2+" src/graph/tuning.cc")
	}
	s.use("of these, LL and LL128: times", fmt.Sprintf("%.3g, %.3g; between nodes %.3g, %.3g", s.arch.local[ll], s.arch.local[ll128], s.arch.net[ll], s.arch.net[ll128]), "published tables of this generation")
	s.use("launch overhead", eachGPU.String()+" for each further GPU of a process", "published tables of one process with several GPUs")
	s.use("work of a step with Simple", fit.Step.String(), "fitted")
}

// ring returns the topology as a ring with a protocol sees it.
func (s *system) ring(p protocol, fit Fitted) Topology {
	t := s.t
	factor := BytesPerSec(1)
	t.Latency, t.UplinkLatency = times(ringNVLink[p], s.arch.local[p]), times(ringNet[p], s.arch.net[p])+s.net
	switch p {
	case ll:
		i := min(t.domains(), 3) - 1
		factor = min(llFactor, s.arch.llMax[i]/t.Port)
	case ll128:
		factor = ll128Factor
	case simple:
		t.Latency += fit.Step
		t.UplinkLatency += fit.Step
	}
	t.Port *= factor
	t.Uplink *= factor
	return t
}

// tree returns the topology as a tree with a protocol sees it.
func (s *system) tree(p protocol, fit Fitted) Topology {
	t := s.t
	t.Latency, t.UplinkLatency = times(treeNVLink[p], s.arch.local[p]), times(treeNet[p], s.arch.net[p])+s.net
	factor := [numProtocols]BytesPerSec{treeLL, treeLL128, treeFactor}[p]
	if p == simple {
		t.Latency += fit.Step
		t.UplinkLatency += fit.Step
	}
	t.Port *= factor
	if p != simple {
		t.Uplink *= factor / treeFactor // flags go through the network, too
	}
	if p == ll {
		most := s.arch.llMax[min(t.domains(), 3)-1] * treeLLShare
		t.Port, t.Uplink = min(t.Port, most), min(t.Uplink, most)
	}
	return t
}

func times(d time.Duration, by float64) time.Duration { return time.Duration(float64(d) * by) }

func gbps(r BytesPerSec) string { return fmt.Sprintf("%.4g GB/s", float64(r/GBps)) }
