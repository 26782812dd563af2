package cuda

import (
	"bytes"
	"crypto/sha256"
	_ "embed"
	"fmt"
	"sync"

	"github.com/assay-hpc/assay/coll/op"
	"github.com/assay-hpc/assay/coll/tuning"
)

// measured are rules that "harness coll tune -g" has made, by collective. They
// go before those of table.
type measured [op.NumCollectives][]rule

// tables is such a file, of machines that are known.
//
//go:embed tables.json
var tables []byte

var builtIn = sync.OnceValues(func() (*tuning.Measurements, error) {
	return tuning.ReadMeasurements(bytes.NewReader(tables))
})

// measuredFor finds the rules for so many GPUs of a name: those of ASSAY_TUNING,
// if it has any, and else those that came with the program.
func measuredFor(own *tuning.Measurements, gpu string, ranks int) (m measured, err error) {
	known, err := builtIn()
	if err != nil {
		return m, err
	}
	for c := range op.NumCollectives {
		var from []tuning.GPURule
		if own != nil {
			from = own.GPU(gpu, ranks, c)
		}
		if from == nil {
			from = known.GPU(gpu, ranks, c)
		}
		for _, r := range from {
			k, err := parseChoice(r.Choice)
			if err == nil && !does(k.kernel, c) {
				err = fmt.Errorf("%v does no %v", k.kernel, c)
			}
			if err != nil {
				return m, fmt.Errorf("measured rules for %v among %d GPUs %q: %w", c, ranks, gpu, err)
			}
			if r.UpTo == 0 {
				r.UpTo = maxMessage
			}
			m[c] = append(m[c], rule{int(r.UpTo), k})
		}
	}
	// These are AllToAlls of fewer messages.
	for _, c := range [...]op.Collective{op.Gather, op.Scatter} {
		if m[c] == nil {
			m[c] = m[op.AllToAll]
		}
	}
	return m, nil
}

// sum tells rules apart, so that ranks can compare theirs.
func (m *measured) sum() [sha256.Size]byte {
	h := sha256.New()
	for c, rules := range m {
		for _, r := range rules {
			fmt.Fprintln(h, c, r.upTo, r.choice)
		}
	}
	return [sha256.Size]byte(h.Sum(nil))
}

// choose is for messages that are not longer than what was measured.
func (m *measured) choose(ch *chooser, c op.Collective, bytes int) (got choice, ok bool) {
	for i := range m[c] {
		if r := &m[c][i]; bytes <= r.upTo {
			got = ch.shape(r.choice, bytes)
			return got, ch.permitted(c, got.kernel, bytes) && ch.fits(c, got, bytes)
		}
	}
	return got, false
}
