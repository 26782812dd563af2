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
	EachGPU    time.Duration // of an operation, for each further GPU that one process launches it on (nccl-tests -g)
	Step       time.Duration // of a step of a ring with protocol Simple, in addition to NCCL's latency
	LLFraction float64       // of the bandwidth that NCCL allows protocol LL
	RackUplink BytesPerSec   // of a rack of 72 GPUs, for which the database has no NIC
}

// DefaultFitted is the fit to all tables of the database; a test repeats it.
var DefaultFitted = Fitted{EachGPU: 4000, Step: 5 * time.Microsecond, LLFraction: 0.297, RackUplink: 426 * GBps}

// A Job is a collective on a platform.
type Job struct {
	Platform   string // key of the database
	GPUs       int    // total
	Nodes      int    // of the platform; 0: as few as hold the GPUs
	Collective op.Collective
	Algorithm  string // "Ring", "NVLS", "NVLSTree"; "": the fastest in the model
	PerProcess int    // GPUs of one process; 0: 1
}

// launch is how long a process of the job takes to launch an operation, in addition to NCCL's base latency.
func (f Fitted) launch(j Job) time.Duration {
	return time.Duration(max(0, j.PerProcess-1)) * f.EachGPU
}

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

// How far published rows are from predictions, in nine of ten: up to and above smallSizes.
const (
	smallSizes          = 16 * mib
	smallLow, smallHigh = 1 / 1.40, 1 / 0.70
	largeLow, largeHigh = 1 / 1.16, 1 / 0.94
)

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
	if err := p.addRings(); err != nil {
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
	best, least := 0, math.Inf(1)
	for i, w := range p.ways {
		if e := w.estimate(float64(bytes)); e < least {
			best, least = i, e
		}
	}
	w := p.ways[best]
	t, err := w.simulate(bytes)
	if err != nil {
		return Prediction{}, err
	}
	alg := BytesPerSec(float64(bytes) / t.Seconds())
	bus := alg * BytesPerSec(p.job.Collective.BusFactor(p.sys.t.Ranks))
	low, high := BytesPerSec(largeLow), BytesPerSec(largeHigh)
	if bytes <= smallSizes {
		low, high = smallLow, smallHigh
	}
	return Prediction{
		Bytes: bytes, Time: t, Algorithm: w.algorithm, Protocol: w.protocol.String(), Simulated: w.gpus,
		AlgBW: alg, BusBW: bus, Low: bus * low, High: bus * high,
	}, nil
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
		base := ringBase[proto] + p.fit.launch(p.job)
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
	inter := float64(t.domains() - 1)
	moved := bytes
	switch c {
	case op.AllReduce:
		steps, inter, moved = 2*steps, 2*inter, 2*bytes*steps/float64(t.Ranks)
	case op.AllGather, op.ReduceScatter:
		moved = bytes * steps / float64(t.Ranks)
	}
	rate := t.Port
	if inter > 0 {
		rate = min(rate, t.Uplink)
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
		base := treeBase[proto] + p.fit.launch(p.job)
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
			estimate: func(bytes float64) float64 { return base.Seconds() + treeEstimate(t, bytes) },
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
func treeEstimate(t Topology, bytes float64) float64 {
	steps := 2 * (float64(t.domain()-1)*t.Latency.Seconds() + log2(t.domains())*t.UplinkLatency.Seconds())
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
	latency := nvlsBase + p.fit.launch(p.job)
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
		d, err := x.down(bytes, func(n int, bytes int64) (time.Duration, error) {
			t := t.of(n)
			return p.memo.get(question{t: t, window: sw.Window, rate: sw.Rate, bytes: bytes}, func() (time.Duration, error) { return inSwitch(t, sw, bytes) })
		})
		return latency + d, err
	}
	p.ways = append(p.ways, w)
}
