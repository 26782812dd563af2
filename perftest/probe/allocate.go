//go:build cgo && linux

package probe

import (
	"errors"
	"fmt"
	"os"

	"github.com/assay-hpc/assay/internal/verbs"
)

// allocate allocates n bytes for the data and registers them.
func (e *endpoint) allocate(n int) (err error) {
	if e.c.OnGPU() {
		e.memory, e.mr, err = e.allocateGPU(e.pd, n)
		return err
	}
	if e.mem, err = e.c.hostMemory(n); err != nil {
		return err
	}
	e.mr, err = e.pd.Register(verbs.Address(e.mem), n, e.access())
	return err
}

func (e *endpoint) allocateGPU(pd *verbs.PD, n int) (m *Memory, mr *verbs.MR, err error) {
	if m, err = e.c.Allocate(e.c, n); err != nil {
		return nil, nil, err
	}
	if m.DMABuf >= 0 {
		mr, err = pd.RegisterDMABuf(m.DMABuf, m.Offset, n, m.Address, e.access())
	} else {
		mr, err = pd.Register(uintptr(m.Address), n, e.access())
	}
	if err != nil {
		return nil, nil, errors.Join(&NotAvailable{fmt.Sprintf("a GPU's memory is not to be had for this device: %v", err)}, m.Close())
	}
	return m, mr, nil
}

// tryGPU checks, before the connection to the peer, whether GPU memory can be used.
func (e *endpoint) tryGPU() error {
	if !e.c.OnGPU() {
		return nil
	}
	pd, err := e.ctx.PD()
	if err != nil {
		return err
	}
	m, mr, err := e.allocateGPU(pd, os.Getpagesize())
	if err == nil {
		err = errors.Join(mr.Close(), m.Close())
	}
	return errors.Join(err, pd.Close())
}
