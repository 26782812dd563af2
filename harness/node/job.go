package node

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/assay-hpc/assay/harness/certificate"
	"github.com/assay-hpc/assay/harness/suite"
)

// UseJob is what checks use that all machines of a job make together. All of
// them come to such a check, in the same order.
const UseJob = "job"

// A Job is the machines that run a suite together, a process each.
type Job interface {
	Size() int
	// Name is what a machine is called.
	Name(rank int) string
	// AllGather gives b to all machines and returns what each gave.
	AllGather(ctx context.Context, b []byte) ([][]byte, error)
	// Run runs a command of the harness on all machines at once, as the ranks of
	// one job. What the first one wrote is what came of it; where it did not end
	// well anywhere, the error says so.
	Run(ctx context.Context, args ...string) (Output, error)
}

// alone is the result of a check that takes several machines; agreed, whether
// all of them can make it.
func (c *Config) alone() (suite.Result, bool) {
	if c.Job == nil || c.Job.Size() < 2 {
		return suite.Skipped("it takes several machines: start the suite with srun, mpirun or torchrun, a process on each"), true
	}
	return suite.Result{}, false
}

// word is what a machine says before a check that all make together.
type word struct {
	Check   string              `json:"check"`
	Verdict certificate.Verdict `json:"verdict,omitempty"` // of one that it cannot make
	Reason  string              `json:"reason,omitempty"`
	Remedy  string              `json:"remedy,omitempty"`
	GPUs    int                 `json:"gpus"` // that take part
}

// agree has all machines say whether they can make a check, with so many GPUs
// each: own is the result of one that cannot. It returns the result for all where one cannot.
func (c *Config) agree(ctx context.Context, check string, gpus int, own *suite.Result) *suite.Result {
	mine := word{Check: check, GPUs: gpus}
	if own != nil {
		mine.Verdict, mine.Reason, mine.Remedy = own.Verdict, own.Reason, own.Remedy
	}
	b, err := json.Marshal(mine)
	if err != nil {
		return result(suite.Errored("%v", err))
	}
	all, err := c.Job.AllGather(ctx, b)
	if err != nil {
		return result(suite.Errored("%v", err))
	}
	var words []word
	for rank, b := range all {
		var w word
		if err := json.Unmarshal(b, &w); err != nil || w.Check != check {
			return result(suite.Errored("%s is at another check (%q), not at %q: all machines must run the same suite with the same flags", c.Job.Name(rank), w.Check, check))
		}
		words = append(words, w)
	}
	return c.judgeWords(words)
}

func (c *Config) judgeWords(words []word) *suite.Result {
	var verdicts []certificate.Verdict
	for _, w := range words {
		if w.Verdict != "" {
			verdicts = append(verdicts, w.Verdict)
		}
	}
	if len(verdicts) > 0 {
		res := suite.Result{Verdict: certificate.Worst(verdicts...)}
		var who []string
		for rank, w := range words {
			if w.Verdict == res.Verdict {
				who = append(who, c.Job.Name(rank))
				res.Reason, res.Remedy = w.Reason, w.Remedy
			}
		}
		if len(who) < len(words) {
			res.Reason = fmt.Sprintf("%s: %s", some(who), res.Reason)
			if res.Verdict == certificate.Skip { // others could have made it
				res.Verdict = certificate.Error
			}
		}
		return &res
	}
	for rank, w := range words {
		if w.GPUs != words[0].GPUs {
			return result(suite.Errored("%s has %s, and %s has %s: a collective over machines takes as many of each", c.Job.Name(rank), count(w.GPUs, "GPU"), c.Job.Name(0), count(words[0].GPUs, "GPU")))
		}
	}
	return nil
}

// some names a few.
func some(names []string) string {
	if n := len(names); n > 4 {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:3], ", "), n-3)
	}
	return strings.Join(names, ", ")
}

func result(r suite.Result) *suite.Result { return &r }
