//go:build cuda && cgo

package cuda

import (
	"github.com/assay-hpc/assay/coll/schedule"
	"github.com/assay-hpc/assay/coll/tuning"
)

var _ Tuner = (*engine)(nil)

// Tune implements Tuner.
func (e *engine) Tune(c schedule.Collective, sizes []int, measure func(choice string, bytes int) (float64, error)) ([]tuning.GPURule, error) {
	e.trial, e.chooser.copying = true, true
	defer func() { e.trial = false }()
	return e.chooser.tune(c, sizes, measure)
}
