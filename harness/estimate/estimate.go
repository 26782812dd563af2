// Package estimate computes figures for training on several GPUs: how many bytes a step sends,
// how long that takes on given links, how long the step computes, and whether communication hides
// behind computation. The results are upper bounds, without latencies, congestion or the shape of
// a model. Package coll/predict predicts single collectives, and a benchmark measures them.
//
// docs/estimate.md has each formula with its source. The package is pure.
package estimate

import (
	"cmp"
	"fmt"
)

// A Strategy is how the model's state is distributed over the GPUs, each of which works on its
// own data.
type Strategy string

// The strategies.
const (
	DataParallel Strategy = "dp"    // each GPU holds everything: gradients are all-reduced
	ZeRO1        Strategy = "zero1" // optimizer states are sharded: gradients reduce-scattered, parameters all-gathered
	ZeRO2        Strategy = "zero2" // gradients, too: the same traffic
	ZeRO3        Strategy = "zero3" // parameters, too: all-gathered for the forward and again for the backward pass
	FSDP         Strategy = "fsdp"  // as zero3
)

// Strategies lists them.
func Strategies() []string {
	return []string{string(DataParallel), string(ZeRO1), string(ZeRO2), string(ZeRO3), string(FSDP)}
}

// passes returns how often the bytes of all parameters are reduce-scattered or all-gathered in a
// step. An all-reduce counts as one of each.
func (s Strategy) passes() float64 {
	if s == ZeRO3 || s == FSDP {
		return 3
	}
	return 2
}

// StateBytes is the size of a parameter's state in training: weights, gradients and optimizer
// states in mixed half precision (seed 003).
const StateBytes = 18

// A Job is a training run.
type Job struct {
	Params     float64  `json:"params"`                        // of the model
	DType      string   `json:"dtype"`                         // on the links; its name, for reports
	Bytes      float64  `json:"-"`                             // per parameter or gradient on the links
	Strategy   Strategy `json:"strategy"`                      // "": DataParallel
	GPUs       int      `json:"gpus"`                          // total
	PerNode    int      `json:"perNode"`                       // at most on a node
	Intra      Rate     `json:"intraBytesPerSecond,omitempty"` // from a GPU to the others of its node, one direction
	Inter      Rate     `json:"interBytesPerSecond,omitempty"` // from a node to the others, one direction: all its NICs together
	Efficiency float64  `json:"efficiency"`                    // the share of both rates that data can use; 0: 1
	FLOPS      float64  `json:"flops,omitempty"`               // that a GPU really achieves per second; 0: not known
	Sequence   int      `json:"seqlen"`                        // tokens
	Batch      int      `json:"batch"`                         // sequences per step, over all GPUs; 0: not known
	Recompute  bool     `json:"recompute"`                     // activations are computed twice
}

// An Estimate is the cost of a Job's step.
type Estimate struct {
	Nodes      int     `json:"nodes"`
	ModelBytes float64 `json:"modelBytes"`       // all parameters on the links, once
	StateBytes float64 `json:"stateBytesPerGPU"` // of the whole training state; 0: not known (zero1, zero2)
	OnceIntra  float64 `json:"onceIntraSeconds,omitempty"`
	OnceInter  float64 `json:"onceInterSeconds,omitempty"`
	Ways       []Way   `json:"ways"` // algorithms for communication; empty with one GPU

	// Computation, if FLOPS, Sequence and Batch are known.
	FLOPPerGPU     float64 `json:"flopPerGPU,omitempty"`
	ComputeSeconds float64 `json:"computeSeconds,omitempty"`
	// ComputeTokens are tokens per second if communication takes no time.
	ComputeTokens float64 `json:"computeTokensPerSecond,omitempty"`
}

// A Way is an algorithm for a step's communication.
type Way struct {
	Name    string  `json:"name"`
	Bytes   float64 `json:"bytesPerGPU"` // that each GPU sends
	Seconds float64 `json:"seconds"`
	Bound   string  `json:"bound"` // the link that takes the longest: intra or inter

	// Set if the computing time is known.
	Ratio     float64 `json:"communicationToCompute,omitempty"`
	Hides     *bool   `json:"hides,omitempty"`                     // it takes no longer than the computation
	Tokens    float64 `json:"tokensPerSecond,omitempty"`           // if it overlaps with the computation
	TokensSum float64 `json:"tokensPerSecondOneByOne,omitempty"`   // if it follows the computation
	NeedBytes float64 `json:"boundBytesPerSecondToHide,omitempty"` // the rate that the limiting link must advertise, where it alone decides
}

// The names of ways.
const (
	RuleOfThumb  = "rule of thumb" // all bytes of all passes over the slowest link
	Ring         = "ring"          // one ring over all GPUs
	Hierarchical = "hierarchical"  // within nodes, between nodes, within nodes, sequentially
)

// Of estimates a job. It fails when a required field is missing or absurd.
func Of(j Job) (Estimate, error) {
	if err := j.check(); err != nil {
		return Estimate{}, err
	}
	j.Efficiency = cmp.Or(j.Efficiency, 1)
	j.PerNode = min(j.PerNode, j.GPUs)
	e := Estimate{Nodes: j.nodes(), ModelBytes: j.Params * j.Bytes, Ways: []Way{}}
	switch {
	case j.Strategy.passes() == 3:
		e.StateBytes = j.Params * StateBytes / float64(j.GPUs)
	case j.Strategy == "" || j.Strategy == DataParallel:
		e.StateBytes = j.Params * StateBytes
	}
	if j.FLOPS > 0 && j.Batch > 0 {
		e.FLOPPerGPU = j.flop()
		e.ComputeSeconds = e.FLOPPerGPU / j.FLOPS
		e.ComputeTokens = j.tokens() / e.ComputeSeconds
	}
	if j.PerNode > 1 {
		e.OnceIntra = e.ModelBytes / j.intra()
	}
	if e.Nodes > 1 {
		e.OnceInter = e.ModelBytes / j.inter()
	}
	if j.GPUs > 1 {
		for _, w := range []Way{j.ruleOfThumb(), j.ring(), j.hierarchical()} {
			e.Ways = append(e.Ways, j.beside(w, e.ComputeSeconds))
		}
	}
	return e, nil
}

func (j Job) nodes() int      { return (j.GPUs + j.PerNode - 1) / j.PerNode }
func (j Job) intra() float64  { return float64(j.Intra) * j.Efficiency }
func (j Job) inter() float64  { return float64(j.Inter) * j.Efficiency }
func (j Job) tokens() float64 { return float64(j.Sequence) * float64(j.Batch) }

// flop returns a GPU's share of a step: 2 operations per parameter and token in the forward pass,
// twice as many in the backward pass, and the forward pass again if activations are recomputed.
func (j Job) flop() float64 {
	times := 3.0
	if j.Recompute {
		times = 4
	}
	return 2 * times * j.Params * j.tokens() / float64(j.GPUs)
}

// ruleOfThumb sends all bytes of each pass over the slowest link.
func (j Job) ruleOfThumb() Way {
	bytes := j.Strategy.passes() * j.Params * j.Bytes
	return j.slowest(Way{Name: RuleOfThumb, Bytes: bytes}, bytes)
}

// ring is a single ring through all GPUs: in a pass each GPU sends all bytes except one GPU's
// part, and each node's NICs carry the same number of bytes.
func (j Job) ring() Way {
	bytes := j.Strategy.passes() * j.Params * j.Bytes * but(j.GPUs)
	return j.slowest(Way{Name: Ring, Bytes: bytes}, bytes)
}

// but returns the share of the bytes that belong to the other n-1 ranks.
func but(n int) float64 { return float64(n-1) / float64(n) }

func (j Job) slowest(w Way, bytes float64) Way {
	intra, inter := 0.0, 0.0
	if j.PerNode > 1 {
		intra = bytes / j.intra()
	}
	if j.nodes() > 1 {
		inter = bytes / j.inter()
	}
	w.Seconds, w.Bound = max(intra, inter), "intra"
	if inter > intra {
		w.Bound = "inter"
	}
	return w
}

// hierarchical runs passes within the nodes, and between them, where the GPUs of a node share its
// NICs and each sends its part.
func (j Job) hierarchical() Way {
	all := j.Strategy.passes() * j.Params * j.Bytes
	w := Way{Name: Hierarchical, Bound: "intra"}
	intra, inter := 0.0, 0.0
	if j.PerNode > 1 {
		w.Bytes = all * but(j.PerNode)
		intra = w.Bytes / j.intra()
	}
	if k := j.nodes(); k > 1 {
		w.Bytes += all * but(k) / float64(j.PerNode)
		inter = all * but(k) / j.inter()
	}
	if w.Seconds = intra + inter; inter > intra {
		w.Bound = "inter"
	}
	return w
}

// beside adds the comparison of a way with the computation.
func (j Job) beside(w Way, compute float64) Way {
	if compute == 0 {
		return w
	}
	hides := w.Seconds <= compute
	w.Ratio, w.Hides = w.Seconds/compute, &hides
	w.Tokens, w.TokensSum = j.tokens()/max(w.Seconds, compute), j.tokens()/(w.Seconds+compute)
	rate := j.Intra
	if w.Bound == "inter" {
		rate = j.Inter
	}
	if w.Name != Hierarchical { // there, other links contribute to the time
		w.NeedBytes = float64(rate) * w.Ratio
	}
	return w
}

// Quantities outside of these bounds are beyond any machine or model; within them, arithmetic is
// far from overflow.
const (
	minQuantity = 1e-3
	maxQuantity = 1e24
)

func (j Job) check() error {
	for _, q := range []struct {
		name  string
		value float64
		zero  bool // may be 0
	}{
		{"parameters", j.Params, false}, {"bytes of a parameter", j.Bytes, false}, {"GPUs", float64(j.GPUs), false}, {"GPUs of a node", float64(j.PerNode), false},
		{"rate within a node", float64(j.Intra), true}, {"rate between nodes", float64(j.Inter), true}, {"FLOP/s", j.FLOPS, true},
		{"tokens of a sequence", float64(j.Sequence), true}, {"sequences of a step", float64(j.Batch), true},
	} {
		if !(q.value >= minQuantity || q.zero && q.value == 0) || q.value > maxQuantity {
			return fmt.Errorf("%s: %g; give from %g to %g", q.name, q.value, minQuantity, maxQuantity)
		}
	}
	if !(j.Efficiency >= 0 && j.Efficiency <= 1) {
		return fmt.Errorf("efficiency %g; it is a share from 0 to 1", j.Efficiency)
	}
	switch per := min(j.PerNode, j.GPUs); {
	case j.GPUs%per != 0:
		return fmt.Errorf("%d GPUs with %d on a node; all nodes must have as many", j.GPUs, j.PerNode)
	case per > 1 && j.Intra == 0:
		return fmt.Errorf("%d GPUs share a node; give the rate within it", per)
	case j.GPUs > per && j.Inter == 0:
		return fmt.Errorf("%d GPUs are on %d nodes; give the rate between them", j.GPUs, j.GPUs/per)
	case j.FLOPS > 0 && (j.Batch > 0) != (j.Sequence > 0):
		return fmt.Errorf("a step's computing needs both the tokens of a sequence and the sequences of a step")
	}
	return nil
}
