//go:build cuda && cgo

package cuda

import (
	"context"
	"errors"

	"github.com/assay-hpc/assay/coll/choose"
	"github.com/assay-hpc/assay/coll/op"
)

var _ Tuner = (*engine)(nil)

// Tune implements Tuner.
func (e *engine) Tune(c op.Collective, sizes []int, measure func(choice string, bytes int) (float64, error)) ([]choose.Row, error) {
	if e.windows.hosted {
		return nil, errors.New("windows are in the processor's memory: rules are for GPUs that reach one another")
	}
	if e.copier.peerBuffers == nil {
		if err := e.dev.in(func() error { return e.copier.open(context.Background()) }); err != nil {
			return nil, err
		}
		e.exchange.copies = e.copier.peerBuffers != nil
	}
	e.trial = true
	defer func() { e.trial = false }()
	return e.chooser.tune(c, sizes, measure)
}
