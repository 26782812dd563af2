package choose

import (
	"github.com/assay-hpc/assay/coll/op"
	"github.com/assay-hpc/assay/coll/tuning"
)

// A Picker chooses how an operation is done, by what all ranks have from rank
// 0 and by the operation. It has nothing else to go by.
type Picker struct {
	rules *tuning.Rules
	ranks int
	Force *Forced // this, whatever the rules say
}

// A Forced choice is for one collective.
type Forced struct {
	Coll op.Collective
	tuning.Choice
}

// NewPicker reads the rules that rank 0 sent.
func NewPicker(rules []byte, ranks int) (Picker, error) {
	r, err := parseRules(rules)
	return Picker{rules: r, ranks: ranks}, err
}

// Pick chooses for an operation whose count is so many bytes.
func (p *Picker) Pick(coll op.Collective, bytes int) tuning.Choice {
	if f := p.Force; f != nil && f.Coll == coll {
		return f.Choice
	}
	return p.rules.Pick(coll, int64(bytes*coll.Longest(p.ranks)))
}
