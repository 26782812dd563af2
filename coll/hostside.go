package coll

import (
	"context"

	"github.com/assay-hpc/assay/coll/executor"
)

// A hostSide implements executor.Host.
type hostSide struct{ c *Comm }

// Exchange implements executor.Host.
func (h *hostSide) Exchange(ctx context.Context, b []byte) ([][]byte, error) {
	return h.c.net.AllGather(ctx, b)
}

// Comm implements executor.Host.
func (h *hostSide) Comm(ctx context.Context) (executor.Comm, error) {
	all := make([]int, h.c.size)
	for r := range all {
		all[r] = r
	}
	c, err := h.c.child(ctx, "CommInitRank", all, nil)
	if err != nil {
		return nil, err
	}
	return c, nil
}

// Fail implements executor.Host.
func (h *hostSide) Fail(err error) { h.c.fault.Set(h.c.wrap("asynchronous", err)) }

// Err implements executor.Host.
func (h *hostSide) Err() error { return h.c.fault.Err() }
