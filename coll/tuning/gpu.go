package tuning

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/assay-hpc/assay/coll/op"
)

// A GPUTable is what "harness coll tune -g" found to be the fastest for a
// collective among GPUs of one kind, each of which is one rank.
type GPUTable struct {
	GPU        string    `json:"gpu"` // the driver's name for it
	Ranks      int       `json:"ranks"`
	Collective string    `json:"collective"` // op.Collective's name
	Rules      []GPURule `json:"rules"`      // from short messages to long ones
}

// A GPURule is for messages that are longer than those of the rule before it.
// Bytes are counted as coll/cuda counts them.
type GPURule struct {
	UpTo   int64   `json:"up_to,omitempty"` // 0, in the last rule: all lengths
	Choice string  `json:"choice"`          // as in ASSAY_GPU_ALGO
	Micros float64 `json:"microseconds"`    // for the longest that was measured
}

// SetGPU adds a table, in place of one for the same GPU, ranks and collective.
func (m *Measurements) SetGPU(t GPUTable) {
	m.GPUs = slices.DeleteFunc(m.GPUs, func(o GPUTable) bool { return compareGPU(t, o) == 0 })
	m.GPUs = append(m.GPUs, t)
}

// GPU finds the rules for a collective; nil: there are none.
func (m *Measurements) GPU(name string, ranks int, c op.Collective) []GPURule {
	for _, t := range m.GPUs {
		if compareGPU(t, GPUTable{GPU: name, Ranks: ranks, Collective: c.String()}) == 0 {
			return t.Rules
		}
	}
	return nil
}

// compareGPU orders tables by what they are for.
func compareGPU(a, b GPUTable) int {
	return cmp.Or(cmp.Compare(a.GPU, b.GPU), cmp.Compare(a.Ranks, b.Ranks), cmp.Compare(a.Collective, b.Collective))
}

// String is for errors.
func (t GPUTable) String() string {
	return fmt.Sprintf("%s among %d GPUs %q", t.Collective, t.Ranks, t.GPU)
}

// validateGPUs refuses what cannot be used. Choices are coll/cuda's to read.
func validateGPUs(all []GPUTable) error {
	for i, t := range all {
		known := slices.ContainsFunc(all[:i], func(o GPUTable) bool { return compareGPU(t, o) == 0 })
		collective := false
		for c := range op.NumCollectives {
			collective = collective || c.String() == t.Collective
		}
		switch {
		case !collective:
			return fmt.Errorf("GPU table %d: there is no collective %q", i+1, t.Collective)
		case t.GPU == "" || t.Ranks < 2:
			return fmt.Errorf("GPU table %d: GPU %q, %d ranks", i+1, t.GPU, t.Ranks)
		case known:
			return fmt.Errorf("%v: there are two tables", t)
		case len(t.Rules) == 0:
			return fmt.Errorf("%v: there are no rules", t)
		}
		if err := t.validateRules(); err != nil {
			return fmt.Errorf("%v: %w", t, err)
		}
	}
	return nil
}

func (t GPUTable) validateRules() error {
	last := int64(0)
	for i, r := range t.Rules {
		switch {
		case r.UpTo <= last && !(r.UpTo == 0 && i == len(t.Rules)-1):
			return fmt.Errorf("rule %d: up to %d bytes, after %d", i+1, r.UpTo, last)
		case r.Choice == "" || strings.ContainsAny(r.Choice, " \t\n"):
			return fmt.Errorf("rule %d: %q is no choice", i+1, r.Choice)
		case !(r.Micros > 0) || r.Micros > 1e12:
			return fmt.Errorf("rule %d: %g microseconds", i+1, r.Micros)
		}
		last = r.UpTo
	}
	return nil
}
