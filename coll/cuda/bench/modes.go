//go:build cuda && cgo

package bench

import (
	"context"
	"errors"
	"fmt"
)

// The kinds of memory that NCCL distinguishes.
const (
	plain     = "plain"     // from the driver
	symmetric = "symmetric" // from NCCL, registered as a symmetric window
)

// Modes implements perf.ModeSetter.
func (c *NCCL) Modes() []string {
	if c.lib.HasWindows() {
		return []string{plain, symmetric}
	}
	return []string{plain}
}

// AllocMode implements perf.ModeSetter. Ranks register a window together, so they first agree
// that all of them have the memory.
func (c *NCCL) AllocMode(mode string, n int) ([]byte, error) {
	if mode != symmetric {
		return nil, fmt.Errorf("NCCL has no memory that is %s", mode)
	}
	p, err := c.lib.MemAlloc(n)
	if failed := c.agree(err); failed != nil {
		return nil, errors.Join(failed, c.freeMemory(p))
	}
	w, err := c.comm.RegisterWindow(p, n)
	if err != nil {
		return nil, errors.Join(err, c.freeMemory(p))
	}
	c.windows[p] = w
	return Bytes(p, n), nil
}

// agree returns an error on all ranks if any rank has one.
func (c *NCCL) agree(mine error) error {
	text := ""
	if mine != nil {
		text = mine.Error()
	}
	all, err := c.Exchange(context.Background(), []byte(text))
	if err != nil || mine != nil {
		return errors.Join(mine, err)
	}
	for rank, b := range all {
		if len(b) > 0 {
			return fmt.Errorf("rank %d: %s", rank, b)
		}
	}
	return nil
}

// freeMemory frees memory of NCCL. 0 stands for none.
func (c *NCCL) freeMemory(p uintptr) error {
	if p == 0 {
		return nil
	}
	return c.lib.MemFree(p)
}

// FreeMode implements perf.ModeSetter. Like Free it leaves errors to Wait.
func (c *NCCL) FreeMode(_ string, b []byte) {
	p := Address(b)
	w, ok := c.windows[p]
	if !ok {
		return
	}
	_ = c.Lane.Wait()
	_ = c.comm.DeregisterWindow(w)
	delete(c.windows, p)
	_ = c.freeMemory(p)
}
