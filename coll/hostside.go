package coll

import (
	"context"
	"errors"
	"fmt"

	"github.com/assay-hpc/assay/coll/executor"
)

// A hostSide implements executor.Host.
type hostSide struct{ c *Comm }

// Exchange implements executor.Host.
func (h *hostSide) Exchange(ctx context.Context, b []byte) ([][]byte, error) {
	return h.c.net.AllGather(ctx, b)
}

// Lane implements executor.Host. A lane has its own connections, plans and sequence numbers; it
// shares all else with the communicator.
func (h *hostSide) Lane(ctx context.Context) (executor.Lane, error) {
	h.c.lanes++
	l := lane{h.c.of(false)}
	if err := l.open(ctx, fmt.Sprintf("lane %d ", h.c.lanes)); err != nil {
		return nil, errors.Join(err, l.links.Close())
	}
	return l, nil
}

type lane struct{ *Comm }

// Close implements executor.Lane.
func (l lane) Close() error { return l.links.Close() }

// Fail implements executor.Host.
func (h *hostSide) Fail(err error) { h.c.fault.Set(h.c.wrap("asynchronous", err)) }

// Err implements executor.Host.
func (h *hostSide) Err() error { return h.c.fault.Err() }

// Flipped implements executor.Host.
func (h *hostSide) Flipped(ranks []int, text string) {
	if d := h.c.accel.Load(); d != nil {
		d.watchdog.Flipped(ranks, text)
		return
	}
	h.c.cfg.log.Warnf("%s", text) // it is being closed
}
