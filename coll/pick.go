package coll

import (
	"github.com/assay-hpc/assay/coll/op"
	"github.com/assay-hpc/assay/coll/tuning"
)

// A picker chooses how an operation is done, by what all ranks have from rank
// 0 and by the operation. It has nothing else to go by.
type picker struct {
	rules *tuning.Rules
	ranks int
	force *forced // this, whatever the rules say
}

// A forced choice is for one collective.
type forced struct {
	coll op.Collective
	tuning.Choice
}

func newPicker(rules []byte, ranks int) (picker, error) {
	r, err := parseRules(rules)
	return picker{rules: r, ranks: ranks}, err
}

// pick chooses for an operation whose count is so many bytes.
func (p *picker) pick(coll op.Collective, bytes int) tuning.Choice {
	if f := p.force; f != nil && f.coll == coll {
		return f.Choice
	}
	return p.rules.Pick(coll, int64(bytes*coll.Longest(p.ranks)))
}
