package node

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/assay-hpc/assay/harness/result"
)

// UseJob is what checks use that all machines of a job make together. All of
// them come to such a check, in the same order.
const UseJob = "job"

// A Job is the machines that run a suite together, a process each. Any of them but
// the first may be lost on the way.
type Job interface {
	// Size is how many machines there were at the start.
	Size() int
	// Name is what a machine is called, at the first one.
	Name(rank int) string
	// Ask has each machine give b, and the first one judge what all gave, by rank; nil
	// is a lost machine's. All machines get the answer.
	Ask(b []byte, judge func(all [][]byte) ([]byte, error)) ([]byte, error)
	// Run runs a command of the harness on all machines that are left, as the ranks
	// of one job. What the first one wrote is what came of it, there; where it did
	// not end well anywhere, the error says so.
	Run(ctx context.Context, args ...string) (Output, error)
	// RunOn is Run of a command that goes on by itself when machines are lost.
	RunOn(ctx context.Context, args ...string) (Output, error)
}

// alone is the result of a check that takes several machines; agreed, whether
// all of them can make it.
func (c *Config) alone() (result.Result, bool) {
	if c.Job == nil || c.Job.Size() < 2 {
		return result.Skipped("it takes several machines: start the suite with srun, mpirun or torchrun, a process on each"), true
	}
	return result.Result{}, false
}

// word is what a machine says before a check that all make together.
type word struct {
	Check   string         `json:"check"`
	Verdict result.Verdict `json:"verdict,omitempty"` // of one that it cannot make
	Reason  string         `json:"reason,omitempty"`
	Remedy  string         `json:"remedy,omitempty"`
	GPUs    int            `json:"gpus"` // that take part
}

// agree has all machines say whether they can make a check, with so many GPUs
// each: own is the result of one that cannot. It returns the result for all where one cannot.
func (c *Config) agree(check string, gpus int, own *result.Result) *result.Result {
	mine := word{Check: check, GPUs: gpus}
	if own != nil {
		mine.Verdict, mine.Reason, mine.Remedy = own.Verdict, own.Reason, own.Remedy
	}
	b, err := json.Marshal(mine)
	if err != nil {
		return ptr(result.Errored("%v", err))
	}
	b, err = c.Job.Ask(b, func(all [][]byte) ([]byte, error) {
		var words []word
		var ranks []int
		for rank, b := range all {
			if b == nil {
				continue // its certificate will tell
			}
			var w word
			if err := json.Unmarshal(b, &w); err != nil || w.Check != check {
				return json.Marshal(result.Errored("%s is at another check (%q), not at %q: all machines must run the same suite with the same flags", c.Job.Name(rank), w.Check, check))
			}
			words, ranks = append(words, w), append(ranks, rank)
		}
		return json.Marshal(c.judgeWords(words, ranks))
	})
	if err != nil {
		return ptr(result.Errored("%v", err))
	}
	var agreed *result.Result
	if err := json.Unmarshal(b, &agreed); err != nil {
		return ptr(result.Errored("%v", err))
	}
	return agreed
}

// judgeWords is the result where not all can make a check, of what the machines
// that are left say.
func (c *Config) judgeWords(words []word, ranks []int) *result.Result {
	if len(words) < 2 {
		return ptr(result.Errored("fewer than two machines are left"))
	}
	var verdicts []result.Verdict
	for _, w := range words {
		if w.Verdict != "" {
			verdicts = append(verdicts, w.Verdict)
		}
	}
	if len(verdicts) > 0 {
		res := result.Result{Verdict: result.Worst(verdicts...)}
		var who []string
		for i, w := range words {
			if w.Verdict == res.Verdict {
				who = append(who, c.Job.Name(ranks[i]))
				res.Reason, res.Remedy = w.Reason, w.Remedy
			}
		}
		if len(who) < len(words) {
			res.Reason = fmt.Sprintf("%s: %s", some(who), res.Reason)
			if res.Verdict == result.Skip { // others could have made it
				res.Verdict = result.Error
			}
		}
		return &res
	}
	for i, w := range words {
		if w.GPUs != words[0].GPUs {
			return ptr(result.Errored("%s has %s, and %s has %s: a collective over machines takes as many of each", c.Job.Name(ranks[i]), count(w.GPUs, "GPU"), c.Job.Name(ranks[0]), count(words[0].GPUs, "GPU")))
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

func ptr(r result.Result) *result.Result { return &r }
