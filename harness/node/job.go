package node

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/assay-hpc/assay/internal/result"
	"github.com/assay-hpc/assay/internal/words"
)

// UseJob marks checks that all machines of a job run together. All machines reach such a check,
// in the same order.
const UseJob = "job"

// A Job is the set of machines that run a suite together, one process each. Any of them may be
// lost during the run; if it was the first one, another one is the first from then on.
type Job interface {
	// Size returns the number of machines at the start.
	Size() int
	// Name returns the name of a machine, on the first one.
	Name(rank int) string
	// Ask sends b of each machine to the first one, which calls judge with all of them, by rank
	// (nil for a lost machine). All machines receive the answer.
	Ask(b []byte, judge func(all [][]byte) ([]byte, error)) ([]byte, error)
	// Run runs a command of the harness on all remaining machines, as the ranks of one job. On
	// the first machine it returns the output of its own process; the error reports failures on
	// any machine.
	Run(ctx context.Context, args ...string) (Output, error)
	// RunOn is Run for a command that itself continues when machines are lost.
	RunOn(ctx context.Context, args ...string) (Output, error)
}

// alone returns the result of a check that needs several machines if there is only one. agree
// determines whether all of them can run it.
func (c *Config) alone() (result.Result, bool) {
	if c.Job == nil || c.Job.Size() < 2 {
		return result.Skipped("it takes several machines: start the suite with srun, mpirun or torchrun, a process on each"), true
	}
	return result.Result{}, false
}

// word is what a machine states before a check that all machines run together.
type word struct {
	Check   string          `json:"check"`
	Verdict result.Verdict  `json:"verdict,omitempty"` // of a check that it cannot run
	Reason  string          `json:"reason,omitempty"`
	Remedy  string          `json:"remedy,omitempty"`
	GPUs    int             `json:"gpus"`            // that take part
	State   json.RawMessage `json:"state,omitempty"` // of the machine, for checks that compare it
}

// agree has each machine state whether it can run a check, with the given number of GPUs. own is
// the result if this machine cannot. agree returns the common result if any machine cannot.
func (c *Config) agree(check string, gpus int, own *result.Result) *result.Result {
	mine := word{Check: check, GPUs: gpus}
	if own != nil {
		mine.Verdict, mine.Reason, mine.Remedy = own.Verdict, own.Reason, own.Remedy
	}
	return c.ask(mine, c.judgeWords)
}

// ask has each machine state something about a check, and returns what the first one makes of all
// statements.
func (c *Config) ask(mine word, judge func(states []word, ranks []int) *result.Result) *result.Result {
	b, err := json.Marshal(mine)
	if err != nil {
		return ptr(result.Errored("%v", err))
	}
	b, err = c.Job.Ask(b, func(all [][]byte) ([]byte, error) {
		var states []word
		var ranks []int
		for rank, b := range all {
			if b == nil {
				continue // its certificate reports it
			}
			var w word
			if err := json.Unmarshal(b, &w); err != nil || w.Check != mine.Check {
				return json.Marshal(result.Errored("%s is at another check (%q), not at %q: all machines must run the same suite with the same flags", c.Job.Name(rank), w.Check, mine.Check))
			}
			states, ranks = append(states, w), append(ranks, rank)
		}
		return json.Marshal(judge(states, ranks))
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

// judgeWords returns the result if not all remaining machines can run a check.
func (c *Config) judgeWords(states []word, ranks []int) *result.Result {
	if len(states) < 2 {
		return ptr(result.Errored("fewer than two machines are left"))
	}
	var verdicts []result.Verdict
	for _, w := range states {
		if w.Verdict != "" {
			verdicts = append(verdicts, w.Verdict)
		}
	}
	if len(verdicts) > 0 {
		res := result.Result{Verdict: result.Worst(verdicts...)}
		var who []string
		for i, w := range states {
			if w.Verdict == res.Verdict {
				who = append(who, c.Job.Name(ranks[i]))
				res.Reason, res.Remedy = w.Reason, w.Remedy
			}
		}
		if len(who) < len(states) {
			res.Reason = fmt.Sprintf("%s: %s", some(who), res.Reason)
			if res.Verdict == result.Skip { // other machines could have run it
				res.Verdict = result.Error
			}
		}
		return &res
	}
	for i, w := range states {
		if w.GPUs != states[0].GPUs {
			return ptr(result.Errored("%s has %s, and %s has %s: a collective over machines takes as many of each", c.Job.Name(ranks[i]), words.Count(w.GPUs, "GPU"), c.Job.Name(ranks[0]), words.Count(states[0].GPUs, "GPU")))
		}
	}
	return nil
}

// some lists at most a few names.
func some(names []string) string {
	if n := len(names); n > 4 {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:3], ", "), n-3)
	}
	return strings.Join(names, ", ")
}

func ptr(r result.Result) *result.Result { return &r }
