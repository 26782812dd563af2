package perf

import (
	"slices"
	"time"

	"github.com/assay-hpc/assay/coll/elem"
)

// A Config is the parsed flags of a run. Parse and Default create one; the letters are
// nccl-tests' flags.
type Config struct {
	Collective string // "all_reduce", …: one of Collectives
	Program    string // its name in the header: "all_reduce_perf"
	Args       []string

	Threads, GPUs      int   // -t, -g: ranks in this process are Threads × GPUs
	MinBytes, MaxBytes int64 // -b, -e
	StepBytes          int64 // -i
	StepFactor         int   // -f
	Iters, AggIters    int   // -n, -m
	Warmup, Cycles     int   // -w, -N (0: endless)
	ParallelInit       bool  // -p
	Check              int   // -c: rounds of verification
	Ops                []Reduction
	Types              []elem.Type
	Root               int // -r; -1: all
	Blocking           int // -z
	Timeout            int // -T in seconds; 0: none
	Graph              int // -G: launches of the graph; 0: none
	CPUTime            bool
	Register           int // -R; 2: symmetric windows
	CTAPolicy          int // -x; as NCCL_CTA_POLICY, of our engine
	Timestamps         bool
	JSONFile           string // -J; empty: none
	Average            Average
	Memory             bool   // -M
	Unalign            int    // -u in elements
	PerIter            bool   // -I
	PerIterSkip        int    // -K
	Slowest            int    // --slowest; 0: none
	Batches            int    // --batches, of small messages on GPUs
	SameBits           bool   // --same-bits
	Inject             string // --inject-error: a rank, or the PCI address of its device; empty: none

	Shape  []int64 // --shape
	Trials int     // --trials
	Split  int     // --split; 0: none
	Output string  // --format: "text" or "json"
	Bench  bool    // --bench

	Engine  string        // --engine: "assay" or "nccl"
	Device  string        // --device: "cpu", "gpu", or "" for GPUs where there are any
	MinTime time.Duration // --min-time; 0: Iters iterations
	// Libraries are the files of --library: with Engine "nccl" the first one is
	// measured, and the others are compared with it.
	Libraries []string
	Versus    string // --versus: "nccl", "best", or variables such as NCCL_ALGO=Ring; empty: none
	Launch    string // --graph: "off", "on" or "both"
	Repeat    int    // --repeat

	given    []string // long names of the flags that were given
	notes    []string // flags that do nothing on host memory
	messages []string // messages of the parser, for stdout
}

// PerProcess is the number of ranks in a process.
func (c *Config) PerProcess() int { return c.Threads * c.GPUs }

// sweeps reports whether sizes from -b to -e are run, as nccl-tests does.
func (c *Config) sweeps() bool { return len(c.Shape) == 0 && c.Split == 0 }

// An Average says how the ranks' times are combined into one.
type Average int

// The averages, as -a numbers them.
const (
	RankZero Average = iota
	Mean
	Minimum
	Maximum
)

// of reduces the ranks' times.
func (a Average) of(v []float64) float64 {
	switch a {
	case RankZero:
		return v[0]
	case Minimum:
		return slices.Min(v)
	case Maximum:
		return slices.Max(v)
	}
	sum := 0.0
	for _, x := range v {
		sum += x
	}
	return sum / float64(len(v))
}

// A Reduction is one of the reductions that -o names. Only mulsum is not one of elem's: it is
// created for each communicator.
type Reduction struct {
	Name   string
	Op     elem.Op
	Mulsum bool
}

// Reductions are all reductions, in the order of -o all.
var Reductions = []Reduction{
	{Name: "sum", Op: elem.Sum}, {Name: "prod", Op: elem.Prod}, {Name: "max", Op: elem.Max}, {Name: "min", Op: elem.Min},
	{Name: "avg", Op: elem.Avg}, {Name: "mulsum", Op: elem.Sum, Mulsum: true},
}

// Default returns nccl-tests' defaults for a collective.
func Default(collective string) Config {
	return Config{
		Collective: collective, Program: collective + "_perf",
		Threads: 1, GPUs: 1, MinBytes: 32 << 20, MaxBytes: 32 << 20, StepBytes: 1 << 20, StepFactor: 1,
		Iters: 20, AggIters: 1, Warmup: 1, Cycles: 1, Check: 1,
		Ops: Reductions[:1], Types: []elem.Type{elem.Float32}, Average: Mean,
		Trials: 50, Output: "text", Engine: "assay", Launch: "both", Repeat: 5, Batches: 3,
	}
}

// Sizes returns the sizes of the sweep, in bytes.
func (c *Config) Sizes() []int64 {
	var out []int64
	for s := c.MinBytes; s <= c.MaxBytes; {
		out = append(out, s)
		step := c.StepBytes
		if f := int64(c.StepFactor); f > 1 {
			if s > c.MaxBytes/f {
				break
			}
			step = s * (f - 1)
		}
		if step <= 0 || step > c.MaxBytes-s { // there is no step: validate rejects this
			break
		}
		s += step
	}
	return out
}
