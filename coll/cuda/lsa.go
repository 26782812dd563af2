//go:build cuda && cgo

package cuda

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync/atomic"
	"unsafe"

	"github.com/assay-hpc/assay/coll/debug"
	"github.com/assay-hpc/assay/coll/executor"
	"github.com/assay-hpc/assay/internal/gpu/driver"
)

// Kernels of the program that communicate by themselves (NCCL's device API) load from and store to
// the memory of all ranks. They find it in one range of addresses, at distances of whole 4 GiB:
// nothing but the upper word of an address differs. What describes it to them is in device memory.

// windowABI is NCCL's ncclWindow_vidmem, with the fields of 2.28 to 2.32; newer ones are behind.
type windowABI struct {
	_                  uint64 // the library's own
	first              uint64 // where the memory of rank 0 begins
	lsaRank, worldRank int32
	stride4G           uint32 // to that of the next rank, in units of 4 GiB
	_                  uint32 // where multicast memory is: there is none
	_, _               uint32
	_                  [4]uint64 // of GIN
	_                  uint64
	segments           int32
	_                  int32
	endpoint           uint32 // of CFT
	_                  uint32
}

// tableABI is NCCL's ncclDevCommWindowTable, in which kernels look an address up.
type tableABI struct {
	entries [32]entryABI
	next    uint64
}

type entryABI struct{ base, size, window uint64 }

const (
	windowBytes = int(unsafe.Sizeof(windowABI{}))
	tableBytes  = int(unsafe.Sizeof(tableABI{}))
	noEndpoint  = math.MaxUint32
	strideUnit  = 4 << 30
)

// A flat is memory of all ranks as kernels of the program see it.
type flat struct {
	executor.LSA
	addresses *driver.Flat
	entry     int // in the table; -1: none
}

// lsa is what kernels of the program know of a communicator.
type lsa struct {
	memory  *loan // of the windows and the table; nil: there are none yet
	used    int   // bytes
	free    []driver.Ptr
	nodes   []driver.Ptr // of the table
	entries []entryABI
	bytes   atomic.Int64 // of device memory, with that of provide
}

const lsaBytes = devicePage

// apart returns why kernels of the program reach no other rank's memory, or "". All ranks come to the
// same result.
func (e *engine) apart() string {
	switch {
	case e.windows.hosted:
		return "ranks do not reach one another's devices"
	case e.cfg.Size == 1 && !e.dev.info.CanVirtual:
		return "the driver maps no virtual memory on this device"
	}
	if r := slices.IndexFunc(e.all, func(id identity) bool { return id.Virtual == 0 }); r >= 0 {
		return fmt.Sprintf("the driver maps no virtual memory on the device of rank %d", r)
	}
	return ""
}

// LSA implements executor.Executor.
func (e *engine) LSA(use bool) (t executor.LSATeam, err error) {
	t = executor.LSATeam{Hash: e.token, Why: e.apart()}
	if t.Why != "" || !use {
		return t, nil
	}
	if err = e.dev.in(func() error { return e.lsa.open(e.dev) }); err == nil {
		t.Table = uintptr(e.lsa.nodes[0])
	}
	return t, err
}

// open makes room for windows and the table's first node.
func (l *lsa) open(d *device) (err error) {
	if l.memory != nil {
		return nil
	}
	l.memory, err = d.arena.take(described, lsaBytes, func(n int) (*loan, error) {
		p, err := driver.Malloc(n)
		return &loan{kind: described, ptr: p, free: func() error { return driver.Free(p) }, offer: offer{Bytes: uint64(n)}}, err
	})
	if err != nil {
		l.memory = nil
		return err
	}
	l.bytes.Add(lsaBytes)
	if err = clearMemory(l.memory.ptr, lsaBytes); err == nil {
		err = l.grow(d)
	}
	return err
}

// take returns zeroed bytes, in units of those of a window.
func (l *lsa) take(n int) (driver.Ptr, error) {
	n = (n + windowBytes - 1) / windowBytes * windowBytes
	if k := len(l.free); k > 0 && n == windowBytes {
		p := l.free[k-1]
		l.free = l.free[:k-1]
		return p, nil
	}
	if l.used+n > lsaBytes {
		return 0, fmt.Errorf("there are %d windows, and there is room for no more", len(l.entries))
	}
	l.used += n
	return l.memory.ptr + driver.Ptr(l.used-n), nil
}

// grow appends a node to the table.
func (l *lsa) grow(d *device) error {
	p, err := l.take(tableBytes)
	if err == nil && len(l.nodes) > 0 {
		var next [8]byte
		binary.LittleEndian.PutUint64(next[:], uint64(p))
		err = d.write(l.nodes[len(l.nodes)-1]+driver.Ptr(unsafe.Offsetof(tableABI{}.next)), next[:])
	}
	if err == nil {
		l.nodes = append(l.nodes, p)
	}
	return err
}

// set changes an entry of the table.
func (l *lsa) set(d *device, i int, v entryABI) error {
	l.entries[i] = v
	var b [unsafe.Sizeof(v)]byte
	if _, err := binary.Encode(b[:], binary.LittleEndian, []uint64{v.base, v.size, v.window}); err != nil {
		return err
	}
	return d.write(l.nodes[i/32]+driver.Ptr(i%32*len(b)), b[:])
}

// enter puts a window of the program's memory into the table.
func (l *lsa) enter(d *device, v entryABI) (int, error) {
	i := slices.Index(l.entries, entryABI{})
	if i < 0 {
		i = len(l.entries)
		if i/32 >= len(l.nodes) {
			if err := l.grow(d); err != nil {
				return -1, err
			}
		}
		l.entries = append(l.entries, entryABI{})
	}
	return i, l.set(d, i, v)
}

// write copies up to pinnedBytes to the device. It waits for no other work.
func (d *device) write(to driver.Ptr, b []byte) error {
	from, err := d.arena.word()
	if err != nil {
		return err
	}
	defer d.arena.give(from, nil, false)
	s, err := driver.NewStream(0)
	if err != nil {
		return err
	}
	if err = driver.CopyAsync(to, from.ptr, copy(from.bytes, b), s); err == nil {
		err = s.Synchronize()
	}
	return errors.Join(err, s.Destroy())
}

// flatten maps the memory of all ranks, which begins at the given addresses, in one range. All ranks
// call it. why is the reason, that this rank knows, why no rank has it.
func (e *engine) flatten(ctx context.Context, offers []offer, at []driver.Ptr, entry entryABI) (f *flat, why string, err error) {
	f, err = e.mapFlat(offers, at, entry)
	if err != nil {
		why = err.Error()
	}
	if e.cfg.Size > 1 {
		all, err := exchangeAll(ctx, e.cfg.Host, why == "")
		if err != nil {
			return nil, "", errors.Join(err, e.unflatten(f))
		}
		if r := slices.Index(all, false); r >= 0 && why == "" {
			why = fmt.Sprintf("rank %d cannot map the memory of all ranks", r)
		}
	}
	if why != "" {
		return nil, why, e.unflatten(f)
	}
	return f, "", nil
}

func (e *engine) mapFlat(offers []offer, at []driver.Ptr, entry entryABI) (f *flat, err error) {
	f = &flat{entry: -1}
	lead, most := uint64(0), uint64(0) // before the memory in its allocation
	for _, o := range offers {
		lead = max(lead, o.At)
	}
	for r, o := range offers {
		switch {
		case o.Virtual == 0:
			return f, fmt.Errorf("the memory of rank %d is not virtual: ncclMemAlloc gives such, and cudaMalloc does not", r)
		case (lead-o.At)%devicePage != 0:
			return f, fmt.Errorf("the memory of ranks begins at offsets of their allocations that differ by %#x, which is no multiple of %#x", lead-o.At, devicePage)
		}
		most = max(most, lead-o.At+o.Total)
	}
	stride := (most + strideUnit - 1) / strideUnit * strideUnit
	if stride/strideUnit > math.MaxUint32/uint64(len(offers)) || stride > math.MaxInt/uint64(len(offers)) {
		return f, fmt.Errorf("an allocation of %d bytes does not fit into the addresses", most)
	}
	if err := e.lsa.open(e.dev); err != nil {
		return f, err
	}
	if f.addresses, err = driver.NewFlat(int(stride) * len(offers)); err != nil {
		return f, err
	}
	for r, o := range offers {
		if err := f.addresses.Map(r*int(stride)+int(lead-o.At), at[r]-driver.Ptr(o.At), int(o.Total), e.dev.ctx.Ordinal()); err != nil {
			return f, fmt.Errorf("the memory of rank %d: %w", r, err)
		}
	}
	f.First, f.Stride = uintptr(f.addresses.Base)+uintptr(lead), stride
	return f, e.describe(f, entry)
}

// describe writes what kernels read of a window.
func (e *engine) describe(f *flat, entry entryABI) error {
	p, err := e.lsa.take(windowBytes)
	if err != nil {
		return err
	}
	f.Window = uintptr(p)
	w := windowABI{first: uint64(f.First), stride4G: uint32(f.Stride / strideUnit), lsaRank: int32(e.cfg.Rank), worldRank: int32(e.cfg.Rank), segments: 1, endpoint: noEndpoint}
	if err := e.dev.write(p, (*[windowBytes]byte)(unsafe.Pointer(&w))[:]); err != nil || entry.size == 0 {
		return err
	}
	entry.window = uint64(p)
	f.entry, err = e.lsa.enter(e.dev, entry)
	return err
}

// unflatten undoes what flatten did. Kernels of the program that use it have ended.
func (e *engine) unflatten(f *flat) error {
	if f == nil {
		return nil
	}
	var errs []error
	if f.entry >= 0 && e.lsa.memory != nil { // otherwise the table goes, too
		errs = append(errs, e.lsa.set(e.dev, f.entry, entryABI{}))
	}
	if f.Window != 0 {
		e.lsa.free = append(e.lsa.free, driver.Ptr(f.Window))
	}
	if f.addresses != nil {
		errs = append(errs, f.addresses.Free())
	}
	return errors.Join(errs...)
}

// provide allocates n zeroed bytes on every rank, for kernels of the program.
func (e *engine) provide(ctx context.Context, n int) (executor.Registration, error) {
	why := e.apart()
	if why != "" {
		return executor.Registration{}, e.refused("DevCommCreate", errors.New(why))
	}
	r := registered{bytes: uint64(n)}
	err := e.dev.in(func() error {
		var own *driver.Virtual
		mine := func() (offer, error) {
			v, err := driver.NewVirtual(e.dev.info, nil, n)
			if err != nil {
				return offer{}, err
			}
			own, r.release = v, func() error { e.lsa.bytes.Add(-int64(v.Size)); return v.Free() }
			e.lsa.bytes.Add(int64(v.Size))
			return offer{Addr: uint64(v.Ptr), Ordinal: int32(e.dev.ctx.Ordinal()), Bytes: uint64(n), Total: uint64(v.Size), Virtual: 1}, clearMemory(v.Ptr, n)
		}
		var maps []func() error
		defer func() {
			for _, unmap := range maps { // it stays in the common range
				_ = unmap()
			}
		}()
		open := func(rank int, o offer) (driver.Ptr, error) {
			switch {
			case o.Bytes != uint64(n):
				return 0, fmt.Errorf("it is of %d bytes, and this rank's of %d: all ranks must require the same", o.Bytes, n)
			case rank == e.cfg.Rank:
				return own.Ptr, nil
			case e.all[rank].Process == process():
				return driver.Ptr(o.Addr), nil
			}
			p, unmap, err := e.dev.importVirtual(ctx, o)
			if err == nil {
				maps = append(maps, unmap)
			}
			return p, err
		}
		at, offers, failed, err := e.exchangeMemory(ctx, mine, open)
		if err == nil && failed == "" {
			r.flat, failed, err = e.flatten(ctx, offers, at, entryABI{})
		}
		why = failed
		if (err != nil || failed != "") && r.release != nil {
			err = errors.Join(err, r.release())
		}
		return err
	})
	if err == nil && why != "" {
		err = e.refused("DevCommCreate", errors.New(why))
	}
	if err != nil {
		return executor.Registration{}, err
	}
	return e.enterRegistered(r), nil
}

// exchangeMemory is share for ranks of which kernels of the program reach one another.
func (e *engine) exchangeMemory(ctx context.Context, mine func() (offer, error), open func(int, offer) (driver.Ptr, error)) (at []driver.Ptr, offers []offer, why string, err error) {
	if e.cfg.Size > 1 {
		return share(ctx, e.cfg, "", mine, open)
	}
	o, err := mine()
	if err != nil {
		return nil, nil, err.Error(), nil
	}
	return []driver.Ptr{driver.Ptr(o.Addr + o.At)}, []offer{o}, "", nil
}

// endRegistered ends the registrations that a communicator has at its end. If the ranks do not leave
// together, kernels of the program may still wait for others, and memory that they read is unmapped
// when none runs any more.
func (e *engine) endRegistered(together bool) {
	all, described := e.registered, e.lsa.memory
	if described != nil {
		e.lsa.bytes.Add(-lsaBytes)
	}
	e.registered, e.lsa.memory = nil, nil
	end := func() {
		for i := range all {
			_ = e.endOne(&all[i])
		}
	}
	switch {
	case together || described == nil:
		end()
		e.dev.arena.give(described, nil, false)
	default:
		go func() {
			_ = e.dev.in(func() error {
				if err := e.dev.ctx.Synchronize(); err != nil {
					return err // the context is lost
				}
				end()
				return described.free()
			})
		}()
	}
}

// logFlat says whether kernels of the program reach the memory of all ranks.
func (e *engine) logFlat(n int, addr uintptr, why string) {
	if why == "" {
		e.cfg.Log.Infof(debug.Init, "rank %d: kernels reach %d bytes at %#x of all ranks (LSA)", e.cfg.Rank, n, addr)
		return
	}
	e.cfg.Log.Infof(debug.Init, "rank %d: kernels do not reach %d bytes at %#x of other ranks: %s", e.cfg.Rank, n, addr, why)
}
