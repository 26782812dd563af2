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
		m, mr, err := e.allocateGPU(e.pd, n)
		if err != nil {
			return err
		}
		e.memory, e.base = m, mr.Address
		e.share(mr)
		return nil
	}
	if e.mem, err = e.c.hostMemory(n); err != nil {
		return err
	}
	e.base = uint64(verbs.Address(e.mem))
	if err := e.c.fill(e.mem); err != nil {
		return err
	}
	if e.c.EachMR {
		return e.registerEach(n)
	}
	mr, err := e.register(e.base, n)
	if err == nil {
		e.share(mr)
	}
	return err
}

// share uses one region for all QPs.
func (e *endpoint) share(mr *verbs.MR) {
	e.regions = []*verbs.MR{mr}
	for range e.c.QPs {
		e.sendMRs, e.recvMRs = append(e.sendMRs, mr), append(e.recvMRs, mr)
	}
}

// registerEach registers two regions for each QP: where its messages come from, and where they
// arrive.
func (e *endpoint) registerEach(n int) error {
	end := e.base + uint64(n)
	for i := range e.c.QPs {
		for _, part := range []struct {
			list     *[]*verbs.MR
			from, to uint64
		}{
			{&e.sendMRs, e.source(i), e.source(i) + uint64(e.step())},
			{&e.recvMRs, e.target(i), min(end, e.base+uint64((e.c.QPs+i+1)*e.region()+e.line))},
		} {
			mr, err := e.register(part.from, int(part.to-part.from))
			if err != nil {
				return fmt.Errorf("--mr_per_qp: QP %d: %w", i, err)
			}
			e.regions, *part.list = append(e.regions, mr), append(*part.list, mr)
		}
	}
	return nil
}

// register registers a part of the host memory.
func (e *endpoint) register(at uint64, n int) (*verbs.MR, error) {
	mr, err := e.pd.Register(uintptr(at), n, e.access())
	if err != nil && e.c.OnDemand {
		err = &NotAvailable{fmt.Sprintf("--odp: %v: does this device page on demand? (ibv_devinfo -v lists odp_caps)", err)}
	}
	return mr, err
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
