// Package predict predicts how long collectives take on machines that are not available.
//
// The simulator runs a schedule on a Topology, window by window, with links that serve one
// message after another, and returns how long it takes (Simulate). The predictor builds the
// topology of a GPU platform from the hardware database and from the latencies of NCCL's own
// cost model, and simulates what NCCL would run there (Predict). docs/predict.md lists each
// parameter with its source, and the errors compared with published tables.
package predict

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/assay-hpc/assay/coll/op"
	"github.com/assay-hpc/assay/coll/schedule"
	"github.com/assay-hpc/assay/internal/platform"
)

// Fitted are the constants that no source gives: they are fitted to all published tables
// together.
type Fitted struct {
	Step       time.Duration // of a step of a ring with protocol Simple, in addition to NCCL's latency
	RackUplink BytesPerSec   // of a rack of 72 GPUs, for which the database has no NIC
}

// eachGPU is what an operation takes for each further GPU that one process launches it on (nccl-tests -g).
const eachGPU = 2500 * time.Nanosecond

// DefaultFitted is the fit to all tables of the database; a test repeats it.
var DefaultFitted = Fitted{Step: 5 * time.Microsecond, RackUplink: 426 * GBps}

// A Job is a collective on a platform.
type Job struct {
	Platform   string // key of the database
	GPUs       int    // total
	Nodes      int    // of the platform; 0: as few as hold the GPUs
	Collective op.Collective
	Algorithm  string // "Ring", "NVLS", "NVLSTree"; "": the fastest in the model
	PerProcess int    // GPUs of one process; 0: 1
	Segment    int    // nodes of each NVLink domain that take part, where a domain has several nodes; 0: all
}

// launch is how long a process of the job takes to launch an operation, in addition to NCCL's base latency.
func (j Job) launch() time.Duration { return time.Duration(max(0, j.PerProcess-1)) * eachGPU }

// A Prediction is the model's result for a job and a size.
type Prediction struct {
	Bytes     int64
	Time      time.Duration
	Algorithm string // as NCCL calls it
	Protocol  string
	Simulated int // GPUs that were simulated: all, or those that the result is extrapolated from (see extent)
	AlgBW     BytesPerSec
	BusBW     BytesPerSec
	// Low and High are the range of BusBW that holds nine of ten published rows that no fit has used.
	Low, High BytesPerSec
}

// ranges are how far busbw of published rows is from predictions, in nine of ten, up to a size: of rings, trees and NVLS, and of
// Sends and Recvs. testdata/public.yaml has the rows.
var ranges = []struct {
	bytes                   int64
	low, high               BytesPerSec
	exchangeLow, exchangeHi BytesPerSec
}{
	{smallSizes, 0.54, 1.24, 0.60, 1.17},
	{512 * mib, 0.69, 1.14, 0.82, 1.06},
	{math.MaxInt64, 0.84, 1.06, 0.82, 1.06},
}

const smallSizes = 16 * mib

// rangeOf returns the range of a prediction.
func rangeOf(c op.Collective, bytes int64, bus BytesPerSec) (low, high BytesPerSec) {
	for _, r := range ranges {
		if bytes <= r.bytes {
			if exchanged(c) {
				return bus * r.exchangeLow, bus * r.exchangeHi
			}
			return bus * r.low, bus * r.high
		}
	}
	return 0, bus // no size is larger
}

// A Used is one figure that predictions of a job are based on.
type Used struct {
	Name   string `json:"name"`
	Value  string `json:"value"`
	Source string `json:"source"`
}

// A Predictor predicts one job at any size. It may be used concurrently.
type Predictor struct {
	job  Job
	name string // of the platform
	sys  system
	fit  Fitted
	ways []way
	memo memo
}

// A way is an algorithm with a protocol.
type way struct {
	algorithm string
	protocol  protocol
	estimate  func(bytes float64) float64 // closed form, in seconds: cheap, for choosing
	simulate  func(bytes int64) (time.Duration, error)
	gpus      int // number of GPUs that simulate simulates
}

// A memo caches simulations, because fits repeat them. nil caches nothing.
type memo map[question]time.Duration

// treeQuestion stands for AllReduce by trees.
const treeQuestion = op.NumCollectives

type question struct {
	collective op.Collective
	t          Topology
	rate       BytesPerSec // of the switch, 0 without one
	window     int64
	bytes      int64
}

func (m memo) get(q question, simulate func() (time.Duration, error)) (time.Duration, error) {
	if d, ok := m[q]; ok {
		return d, nil
	}
	d, err := simulate()
	if err == nil && m != nil {
		m[q] = d
	}
	return d, err
}

// NewPredictor prepares predictions of a job. It fails if the database lacks a figure that
// the model needs.
func NewPredictor(db *platform.DB, j Job, fit Fitted) (*Predictor, error) {
	return newPredictor(db, j, fit, nil)
}

func newPredictor(db *platform.DB, j Job, fit Fitted, m memo) (*Predictor, error) {
	sys, err := newSystem(db, j, fit)
	if err != nil {
		return nil, err
	}
	p := &Predictor{job: j, name: db.Platforms[j.Platform].Name, sys: sys, fit: fit, memo: m}
	if exchanged(j.Collective) {
		p.addExchange()
	} else if err := p.addRings(); err != nil {
		return nil, err
	}
	if j.Collective == op.AllReduce && sys.t.domains() > 1 {
		if err := p.addTrees(); err != nil {
			return nil, err
		}
	}
	if j.Collective == op.AllReduce && sys.arch.nvls > 0 && sys.t.domain() > 2 {
		p.addSwitch()
	}
	if j.Algorithm != "" {
		p.ways = slices.DeleteFunc(p.ways, func(w way) bool { return w.algorithm != j.Algorithm })
	}
	if len(p.ways) == 0 {
		return nil, fmt.Errorf("no model of %v by %q on %s; there are Ring, and for AllReduce NVLS and NVLSTree", j.Collective, j.Algorithm, j.Platform)
	}
	return p, nil
}

// Figures returns the figures that the predictions are based on, with sources.
func (p *Predictor) Figures() []Used { return p.sys.used }

// Domains returns how many NVLink domains the job has, and how many GPUs each has.
func (p *Predictor) Domains() (domains, gpus int) { return p.sys.t.domains(), p.sys.t.domain() }

// Predict chooses the fastest algorithm and protocol by closed forms, as NCCL does, and
// simulates them.
func (p *Predictor) Predict(bytes int64) (Prediction, error) {
	w := p.way(bytes)
	t, err := w.simulate(bytes)
	if err != nil {
		return Prediction{}, err
	}
	alg := BytesPerSec(float64(bytes) / t.Seconds())
	bus := alg * BytesPerSec(p.job.Collective.BusFactor(p.sys.t.Ranks))
	low, high := rangeOf(p.job.Collective, bytes, bus)
	return Prediction{
		Bytes: bytes, Time: t, Algorithm: w.algorithm, Protocol: w.protocol.String(), Simulated: w.gpus,
		AlgBW: alg, BusBW: bus, Low: low, High: high,
	}, nil
}

// way returns the algorithm and protocol that NCCL takes: the fastest by closed forms, but NVLS within a domain from a size
// on and not before.
func (p *Predictor) way(bytes int64) way {
	best, least := way{}, math.Inf(1)
	for _, w := range p.ways {
		if w.algorithm == "NVLS" && len(p.ways) > 1 {
			if bytes >= p.sys.arch.nvlsFrom && p.sys.t.domain() >= nvlsLeast {
				return w
			}
			continue
		}
		if e := w.estimate(float64(bytes)); e < least {
			best, least = w, e
		}
	}
	return best
}

// addRings adds the ring with each protocol. All channels are alike, so they are simulated as
// one channel with the bandwidth of all.
func (p *Predictor) addRings() error {
	x := p.sys.t.ringExtent()
	schedules := map[int]*schedule.Schedule{}
	for _, n := range x.simulated() {
		s, err := schedule.New(p.job.Collective, schedule.Ring, schedule.Options{Ranks: n * p.sys.t.domain()})
		if err != nil {
			return fmt.Errorf("no model of %v: %w", p.job.Collective, err)
		}
		schedules[n] = s
	}
	for proto := range numProtocols {
		t := p.sys.ring(proto, p.fit)
		base := times(ringBase[proto], p.sys.arch.local[proto]) + p.job.launch()
		one := func(n int, bytes int64) (time.Duration, error) {
			t := t.of(n)
			r := Run{Bytes: bytes, Window: ringChannels * proto.chunk()}
			return p.memo.get(question{collective: p.job.Collective, t: t, window: r.Window, bytes: bytes}, func() (time.Duration, error) { return Simulate(schedules[n], t, r) })
		}
		p.ways = append(p.ways, way{
			algorithm: "Ring", protocol: proto, gpus: x.most() * t.domain(),
			estimate: func(bytes float64) float64 { return base.Seconds() + ringEstimate(p.job.Collective, t, bytes) },
			simulate: func(bytes int64) (time.Duration, error) {
				d, err := x.along(bytes, inParts(p.job.Collective), one)
				return base + d, err
			},
		})
	}
	return nil
}

// ringEstimate returns the time of a ring from latency and bandwidth. A pipelined chain, as
// for Broadcast, moves all data once; other rings move a share in each step.
func ringEstimate(c op.Collective, t Topology, bytes float64) float64 {
	steps := float64(t.Ranks - 1)
	moved := bytes
	switch c {
	case op.AllReduce:
		steps, moved = 2*steps, 2*bytes*steps/float64(t.Ranks)
	case op.AllGather, op.ReduceScatter:
		moved = bytes * steps / float64(t.Ranks)
	}
	rate, inter := t.Port, 0.0
	if t.domains() > 1 { // of a domain's steps one goes to the next
		rate, inter = min(rate, t.Uplink), steps/float64(t.domain())
	}
	return (steps-inter)*t.Latency.Seconds() + inter*t.UplinkLatency.Seconds() + moved*rate.perByte()
}

// addTrees adds NCCL's tree with each protocol, which matters between nodes: a chain in each
// node, and two trees between nodes with half of the data each. A tree's channels are
// simulated as one, like a ring's.
func (p *Predictor) addTrees() error {
	x := p.sys.t.treeExtent()
	schedules := map[int]*schedule.Schedule{}
	for _, n := range x.simulated() {
		s, err := treeSchedule(p.sys.t.of(n))
		if err != nil {
			return err
		}
		schedules[n] = s
	}
	for proto := range numProtocols {
		t := p.sys.tree(proto, p.fit)
		base := times(treeBase[proto], p.sys.arch.local[proto]) + p.job.launch()
		one := func(n int, bytes int64) (time.Duration, error) {
			t, s := t.of(n), schedules[n]
			// NCCL makes a tree's chunks smaller until enough of them are under way, which shows where the chain within a
			// node is most of the way.
			window := ringChannels * min(proto.chunk(), treeChunk)
			if t.domains() <= treeFew {
				window = min(window, max(bytes/treeDepth, ringChannels*treeLeast))
			}
			r := Run{Bytes: bytes, Window: window / int64(s.Channels)}
			return p.memo.get(question{collective: treeQuestion, t: t, window: r.Window, bytes: bytes}, func() (time.Duration, error) { return Simulate(s, t, r) })
		}
		p.ways = append(p.ways, way{
			algorithm: "Tree", protocol: proto, gpus: x.most() * t.domain(),
			estimate: func(bytes float64) float64 {
				return base.Seconds() + treeEstimate(t, bytes, float64(ringChannels*min(proto.chunk(), treeChunk)))
			},
			simulate: func(bytes int64) (time.Duration, error) {
				d, err := x.down(bytes, one)
				return base + d, err
			},
		})
	}
	return nil
}

func treeSchedule(t Topology) (*schedule.Schedule, error) {
	groups := make([][]int, t.domains())
	for r := range t.Ranks {
		groups[r/t.domain()] = append(groups[r/t.domain()], r)
	}
	return schedule.New(op.AllReduce, schedule.DoubleTree, schedule.Options{Ranks: t.Ranks, Groups: groups})
}

// treeEstimate returns the time of a double tree with chains from latency and bandwidth. All
// data goes up and down through every port, and through the uplink of an inner node. With two
// nodes an uplink only sends one half up and one half down.
func treeEstimate(t Topology, bytes, window float64) float64 {
	steps := 2 * (float64(t.domain()-1)*t.Latency.Seconds() + log2(t.domains())*t.UplinkLatency.Seconds())
	steps += 2 * max(0, log2(t.domains())-1) * min(bytes, window) * t.Uplink.perByte() // until all levels are busy
	return steps + bytes*max(2*t.Port.perByte(), min(2, float64(t.domains()-1))*t.Uplink.perByte())
}

// addSwitch adds the in-switch reduction: NVLS in one domain, NVLSTree between
// several.
func (p *Predictor) addSwitch() {
	t := p.sys.t
	t.UplinkLatency = nvlsTreeNet + p.sys.net
	n := t.domains()
	w := way{algorithm: "NVLS", protocol: simple}
	chunk, efficiency := int64(nvlsChunk), p.sys.arch.nvls
	if n > 1 {
		w.algorithm, efficiency = "NVLSTree", p.sys.arch.nvlsTree
	}
	if n >= nvlsTreeFrom {
		chunk = nvlsTreeChunk
	}
	if d := float64(t.domain()); d > 8 { // busbw and not algbw is what more GPUs have in common
		efficiency *= d / (d - 1) / (8.0 / 7)
	}
	sw := Switch{
		Rate:   t.Port * BytesPerSec(efficiency*nvlsShare),
		Window: int64(p.sys.arch.nvlsChannels) * int64(t.domain()) * chunk,
	}
	latency := p.sys.arch.nvlsBase + p.job.launch()
	w.estimate = func(bytes float64) float64 {
		rate := sw.Rate
		if n == 2 {
			rate = min(rate, t.Uplink)
		} else if n > 2 {
			rate = min(rate, t.Uplink/2) // inner nodes of a tree have two children
		}
		levels := 0.0
		if n > 1 {
			levels = log2(n)
		}
		return latency.Seconds() + 2*levels*t.UplinkLatency.Seconds() + bytes*rate.perByte()
	}
	x := t.treeExtent()
	w.gpus = x.most() * t.domain()
	w.simulate = func(bytes int64) (time.Duration, error) {
		sw := sw
		if bytes <= nvlsSmall && chunk == nvlsChunk {
			sw.Window /= 2
		}
		d, err := x.down(bytes, func(n int, bytes int64) (time.Duration, error) {
			t := t.of(n)
			return p.memo.get(question{t: t, window: sw.Window, rate: sw.Rate, bytes: bytes}, func() (time.Duration, error) { return inSwitch(t, sw, bytes) })
		})
		return latency + d, err
	}
	p.ways = append(p.ways, w)
}
