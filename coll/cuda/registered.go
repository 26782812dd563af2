//go:build cuda && cgo

package cuda

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/assay-hpc/assay/coll/debug"
	"github.com/assay-hpc/assay/coll/executor"
	"github.com/assay-hpc/assay/coll/op"
	"github.com/assay-hpc/assay/internal/gpu/driver"
)

// registered is memory that the program has registered on all ranks. Kernels write to the other
// ranks' part of it directly (exchangeDirect), so it needs no slots. An offset means the same
// place on every rank.
type registered struct {
	id      int
	base    uint64       // of the own memory
	bytes   uint64       // that every rank has
	at      []driver.Ptr // by rank; nil: kernels of the engine do not use it
	imports []importKey
	flat    *flat        // nil: kernels of the program do not use it
	freed   bool         // the program has freed it
	release func() error // frees the memory, if the engine has allocated it
}

// Register implements executor.Executor.
func (e *engine) Register(ctx context.Context, addr uintptr, n int) (executor.Registration, error) {
	if addr == 0 {
		return e.provide(ctx, n)
	}
	r := registered{base: uint64(addr)}
	var why, apart string
	err := e.dev.in(func() (err error) {
		if err := e.untable(); err != nil {
			return err
		}
		var offers []offer
		mine := func() (offer, error) { return e.offer(addr, n) }
		if why = e.unregistrable(); why != "" {
			return nil
		}
		if r.at, offers, why, err = e.exchangeMemory(ctx, mine, r.open(ctx, e)); err != nil || why != "" {
			return errors.Join(err, e.giveImports(&r))
		}
		r.bytes = uint64(n)
		for _, o := range offers {
			r.bytes = min(r.bytes, o.Bytes)
		}
		if apart = e.apart(); apart == "" {
			r.flat, apart, err = e.flatten(ctx, offers, r.at, entryABI{base: uint64(addr), size: uint64(n)})
		}
		return err
	})
	if err != nil || why != "" {
		e.cfg.Log.Infof(debug.Init, "rank %d: %d bytes at %#x are not written directly: %s", e.cfg.Rank, n, addr, why)
		return executor.Registration{LSA: executor.LSA{Why: why}}, err
	}
	if e.cfg.Size == 1 {
		r.at = nil
	} else {
		e.cfg.Log.Infof(debug.Init, "rank %d: %d bytes at %#x are written by other ranks directly", e.cfg.Rank, n, addr)
	}
	e.logFlat(n, addr, apart)
	made := e.enterRegistered(r)
	if r.flat == nil {
		made.LSA.Why = apart
	}
	return made, nil
}

func (e *engine) enterRegistered(r registered) executor.Registration {
	registrations(1)
	if len(e.registered) == 0 {
		e.freedSeen = freed.count.Load()
	}
	e.lastRegistered++
	r.id = e.lastRegistered
	e.registered = append(e.registered, r)
	made := executor.Registration{ID: r.id, Direct: r.at != nil}
	if r.flat != nil {
		made.LSA = r.flat.LSA
	}
	return made
}

// unregistrable returns why ranks cannot write to one another's memory, or "".
func (e *engine) unregistrable() string {
	if e.windows.hosted {
		return "ranks do not reach one another's devices"
	}
	return ""
}

// offer describes the program's memory to the other ranks.
func (e *engine) offer(addr uintptr, n int) (o offer, err error) {
	p := driver.Ptr(addr)
	info, err := driver.PointerInfo(p)
	if err != nil {
		return o, err
	}
	if !info.IsDevice || info.Ordinal != e.dev.ctx.Ordinal() {
		return o, fmt.Errorf("%v is not memory of device %d", p, e.dev.ctx.Ordinal())
	}
	base, size, err := driver.AddressRange(p)
	if err != nil {
		return o, err
	}
	if left := int(base) + size - int(p); left < n {
		return o, fmt.Errorf("%d bytes at %v are more than the %d that its allocation has from there", n, p, left)
	}
	o = offer{Addr: uint64(base), Ordinal: int32(info.Ordinal), At: uint64(p - base), Bytes: uint64(n), Total: uint64(size), Buffer: info.BufferID}
	if !info.LegacyIPC {
		o.Virtual = 1
	}
	if o.Virtual == 0 && len(processes(e.cfg)) > 1 {
		o.Handle, err = driver.MemHandle(base)
	}
	return o, err
}

// open opens the memory of another rank.
func (r *registered) open(ctx context.Context, e *engine) func(rank int, o offer) (driver.Ptr, error) {
	return func(rank int, o offer) (driver.Ptr, error) {
		if e.all[rank].Process == process() {
			return e.dev.openHere(o)
		}
		key := o.key(e.all[rank])
		p, err := e.dev.arena.borrow(key, func() (driver.Ptr, func() error, error) { return e.dev.importOne(ctx, o) })
		if err == nil {
			r.imports = append(r.imports, key)
		}
		return p + driver.Ptr(o.At), err
	}
}

// Deregister implements executor.Executor.
func (e *engine) Deregister(id int) error {
	i := slices.IndexFunc(e.registered, func(r registered) bool { return r.id == id })
	if i < 0 {
		return nil // operations do not use it
	}
	r := e.registered[i]
	e.registered = slices.Delete(e.registered, i, i+1)
	return e.dev.in(func() error { return e.endOne(&r) })
}

func (e *engine) endOne(r *registered) error {
	registrations(-1)
	err := errors.Join(e.unflatten(r.flat), e.giveImports(r))
	if r.release != nil {
		err = errors.Join(err, r.release())
	}
	return err
}

func (e *engine) giveImports(r *registered) (err error) {
	for _, key := range r.imports {
		if e := e.dev.arena.giveBorrowed(key); e != nil {
			err = e
		}
	}
	r.imports = nil
	return err
}

// direct returns the registered memory that the results of a collective go to, if its ranks can
// write to it directly. All ranks come to the same result, because they pass the same offset.
func (e *engine) direct(o *op.Op) *registered {
	if len(e.registered) == 0 {
		return nil
	}
	e.forgetFreed()
	at, n := uint64(op.Addr(o.Recv)), uint64(o.Bytes())
	switch o.Coll {
	case op.AllGather:
		n *= uint64(e.cfg.Size)
	case op.AllToAll:
		if op.Addr(o.Send) == op.Addr(o.Recv) { // peers would write over what was not sent yet
			return nil
		}
		n *= uint64(e.cfg.Size)
	case op.Broadcast:
	default:
		return nil
	}
	for i := range e.registered {
		if r := &e.registered[i]; r.at != nil && at >= r.base && at-r.base+n <= r.bytes {
			return r
		}
	}
	return nil
}

// forgetFreed takes memory that the program has freed for what it is: no longer registered. What is at
// its addresses now is other memory.
func (e *engine) forgetFreed() {
	if e.freedSeen == freed.count.Load() {
		return
	}
	var all []freedBlock
	all, e.freedSeen = freedSince(e.freedSeen)
	for i := range e.registered {
		r := &e.registered[i]
		if slices.ContainsFunc(all, func(s freedBlock) bool { return r.base-s.at < s.n }) {
			r.at, r.freed = nil, true
		}
	}
}

// untable takes memory that was freed out of the table in which kernels of the program look addresses up.
func (e *engine) untable() error {
	e.forgetFreed()
	for i := range e.registered {
		if r := &e.registered[i]; r.freed && r.flat != nil && r.flat.entry >= 0 {
			if err := e.lsa.set(e.dev, r.flat.entry, entryABI{}); err != nil {
				return err
			}
			r.flat.entry = -1
		}
	}
	return nil
}

// aim replaces the places where data from peers go by those where data for peers go, and the bytes of a
// step by the units of a channel's piece, which are whole rows of a block.
func (r *registered) aim(a *argsABI, rank int, o *op.Op, c choice) {
	offset := uint64(op.Addr(o.Recv)) - r.base
	// Ranks that pass other offsets take it for another operation, so that nothing is overwritten.
	a.sign ^= uint32(offset) ^ uint32(offset>>32)*0x9e3779b1 ^ signDirect
	n := uint64(o.Bytes())
	rows := uint64(c.channels * c.threads)
	a.chunk = uint32(((n+15)/16 + rows - 1) / rows * uint64(c.threads))
	for p := range r.at {
		if p == rank || a.send[p] == 0 {
			continue
		}
		a.out[p] = uint64(r.at[p]) + offset
		if o.Coll != op.Broadcast {
			a.out[p] += uint64(rank) * n
		}
	}
}

// signDirect tells operations that write directly from the same ones that do not.
const signDirect = 0x2545f491
