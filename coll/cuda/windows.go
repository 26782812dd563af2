//go:build cuda && cgo

package cuda

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"slices"
	"sync"

	"github.com/assay-hpc/assay/coll/cuda/kernels"
	"github.com/assay-hpc/assay/coll/debug"
	"github.com/assay-hpc/assay/coll/executor"
	"github.com/assay-hpc/assay/coll/op"
	"github.com/assay-hpc/assay/internal/gpu/driver"
)

// An identity is what a rank tells the others about its device.
type identity struct {
	Version  uint32
	SMs      uint32
	Process  [16]byte // unique to the process
	UUID     [40]byte
	Name     [32]byte // SHA-256
	TooOld   uint8    // 1: there are no kernels for it
	Clusters uint8    // 1: its blocks form clusters
	Virtual  uint8    // 1: virtual memory can be mapped, and exported
	Token    uint64   // any number
}

// measuredAlike reports whether measured rules can be used: each rank has its own device and
// all devices have the same name, as in the measurements.
func measuredAlike(all []identity) bool {
	seen := map[[40]byte]bool{}
	for _, id := range all {
		if id.Name != all[0].Name || seen[id.UUID] {
			return false
		}
		seen[id.UUID] = true
	}
	return true
}

// duplicates is an error if two ranks have the same device. It names the given rank if it is one of them.
func duplicates(rank int, all []identity) error {
	first, one, two := map[[40]byte]int{}, -1, -1
	for r, id := range all {
		if other, again := first[id.UUID]; !again {
			first[id.UUID] = r
		} else if one < 0 || r == rank || other == rank {
			one, two = other, r
		}
	}
	if one < 0 {
		return nil
	}
	return &op.Error{
		Code: op.InvalidUsage, Rank: rank, Op: "CommInitRank", Peer: op.NoPeer,
		Err: fmt.Errorf("duplicate GPU detected: rank %d and rank %d both have %s; give each process a GPU of its own, or set NCCL_MULTI_RANK_GPU_ENABLE=1", one, two, bytes.TrimRight(all[two].UUID[:], "\x00")),
	}
}

// abiVersion changes whenever kernels/abi.h or the data that ranks exchange here changes.
const abiVersion = 12

// process returns a random ID of this process. Unlike a PID, it also distinguishes processes
// in different containers.
var process = sync.OnceValue(func() (id [16]byte) {
	_, _ = rand.Read(id[:]) // never fails
	return id
})

// An offer describes memory of a rank to the other ranks.
type offer struct {
	OK      uint8 // 1: the owner has the memory and reaches all other ranks' devices
	Ordinal int32
	Addr    uint64 // in the owner's process
	Handle  [64]byte
	At      uint64 // offset of the memory from Addr, and in the allocation of Handle
	Bytes   uint64
	Hosted  uint8  // 1: host memory
	Virtual uint8  // 1: of cuMemCreate, which each device must be allowed to use; Handle is a handover's name
	Total   uint64 // of the allocation, if it is virtual
	CanStay uint8  // 1: canStay, of copy buffers
	Linked  uint8  // 1: NVLink connects the owner's device with those of all other ranks; of windows
	Buffer  uint64 // driver.PtrInfo.BufferID, if it is virtual or the program's
}

// key identifies the memory that another rank offers.
func (o offer) key(of identity) importKey {
	if o.Virtual == 1 { // its Handle is another one each time
		return importKey{process: of.Process, buffer: o.Buffer}
	}
	return importKey{of.Process, o.Handle, o.Buffer}
}

// windows are a rank's own window and its view of the others'.
type windows struct {
	own     *loan
	at      []driver.Ptr // by rank
	imports []importKey  // windows of other processes
	kind    kind         // onDevice, or virtual where processes do not get that of one another
	hosted  bool         // windows are in host memory, see hosted.go
	linked  bool         // NVLink connects all devices
}

// openWindows creates the rank's window and gets the addresses of all other ranks' windows.
// They are on the devices where these reach one another, otherwise in host memory. If neither
// is possible, no rank has windows, and why gives the reasons that this rank knows.
func openWindows(ctx context.Context, cfg executor.Config, dev *device, tooOld *kernels.TooOld) (w windows, all []identity, why string, err error) {
	if cfg.Size == 1 && tooOld != nil {
		return w, nil, tooOld.Error(), nil
	}
	if cfg.Size == 1 {
		return windows{at: make([]driver.Ptr, 1)}, nil, "", nil
	}
	me := identity{Version: abiVersion, SMs: uint32(dev.info.SMs), Process: process(), Name: sha256.Sum256([]byte(dev.info.Name)), Token: mathrand.Uint64()}
	copy(me.UUID[:], dev.info.UUID)
	if dev.clusters() {
		me.Clusters = 1
	}
	if dev.info.CanVirtual && dev.info.CanShareVirtual {
		me.Virtual = 1
	}
	if tooOld != nil {
		me.TooOld = 1
	}
	if all, err = exchangeAll(ctx, cfg.Host, me); err != nil {
		return w, nil, "", err
	}
	if cfg.OneRankPerDevice {
		if err := duplicates(cfg.Rank, all); err != nil {
			return w, nil, "", err
		}
	}
	if r := slices.IndexFunc(all, func(id identity) bool { return id.TooOld != 0 }); r >= 0 {
		return w, all, fmt.Sprintf("there are no kernels for the GPU of rank %d", r), nil
	}
	far := reach(cfg, dev, all)
	apart, err := w.open(ctx, cfg, dev, all, far)
	if err == nil && apart != "" && len(processes(cfg)) > 1 && mayReach(cfg) { // containers may not allow CUDA's own handles
		w.kind = virtual
		why, err = w.open(ctx, cfg, dev, all, far)
		if err == nil && why == "" {
			cfg.Log.Infof(debug.Init, "rank %d: windows are on the devices, by file descriptors: %s", cfg.Rank, apart)
			return w, all, "", nil
		}
		if w.kind = onDevice; why != apart {
			apart += "; by file descriptors: " + why
		}
	}
	switch {
	case err != nil:
		return w, nil, "", err
	case apart == "":
		cfg.Log.Infof(debug.Init, "rank %d: windows are on the devices", cfg.Rank)
		return w, all, "", nil
	}
	if why = hostable(cfg); why == "" { // same result on all ranks
		w.hosted = true
		why, err = w.open(ctx, cfg, dev, all, "")
	}
	switch {
	case err != nil:
		return w, nil, "", err
	case why == "":
		cfg.Log.Infof(debug.Init, "rank %d: windows are in the processor's memory: %s", cfg.Rank, apart)
		return w, all, "", nil
	}
	return w, all, apart + "; " + why, nil
}

// open creates the rank's own window, zeroed, and opens the other ranks' windows. apart is why
// this rank does not reach all other ranks, or "". If why is not "", no rank has windows, and
// why is the reason that this rank knows.
func (w *windows) open(ctx context.Context, cfg executor.Config, dev *device, all []identity, apart string) (why string, err error) {
	var scarce error
	mine := func() (offer, error) {
		n := newChooser(cfg.Env, cfg.Size, nil, w.hosted).size()
		if w.hosted {
			if w.own, err = dev.arena.take(shared, n, newHosted); err != nil {
				return offer{}, err
			}
			clear(w.own.bytes)
			return w.own.offer, nil
		}
		n = wholePages(n) // as newLoan does: take compares the length
		if w.own, err = dev.arena.take(w.kind, n, func(n int) (*loan, error) { return dev.newLoan(cfg, w.kind, n) }); err != nil {
			if errors.Is(err, driver.ErrOutOfMemory) {
				scarce = fmt.Errorf("the window of this rank: %w", err)
			}
			return offer{}, err
		}
		o := w.own.offer
		if linked(dev, all) {
			o.Linked = 1
		}
		return o, clearMemory(w.own.ptr, n)
	}
	var offers []offer
	w.imports = nil
	w.at, offers, why, err = share(ctx, cfg, apart, mine, func(r int, o offer) (driver.Ptr, error) { return openOne(ctx, dev, all, r, o) })
	w.linked = len(offers) > 0
	for r, o := range offers {
		w.linked = w.linked && o.Linked == 1
		if all[r].Process != process() {
			w.imports = append(w.imports, o.key(all[r]))
		}
	}
	if err == nil && scarce != nil {
		err = scarce
	}
	if err != nil || why != "" {
		dev.arena.give(w.own, nil, false)
		w.own = nil
	}
	return why, err
}

// share exchanges offers of memory between all ranks and opens the other ranks' memory. apart
// is why this rank does not reach all other ranks; if it is "", mine creates the rank's own
// memory. open opens the memory of a rank, the own one included. If why is not "", no rank has
// the others' memory, and why is the reason that this rank knows.
func share(ctx context.Context, cfg executor.Config, apart string, mine func() (offer, error), open func(rank int, o offer) (driver.Ptr, error)) (at []driver.Ptr, offers []offer, why string, err error) {
	var own offer
	if why = apart; why == "" {
		if own, err = mine(); err != nil {
			own, why = offer{}, err.Error()
		} else {
			own.OK = 1
		}
	}
	if own.Virtual == 1 && len(processes(cfg)) > 1 {
		give, err := handOver(&own)
		if err != nil {
			own, why = offer{}, err.Error()
		} else {
			defer func() { _ = give.close() }() // by then all ranks have it
		}
	}
	if offers, err = exchangeAll(ctx, cfg.Host, own); err != nil {
		return nil, nil, "", err
	}
	if r := slices.IndexFunc(offers, func(o offer) bool { return o.OK == 0 }); r >= 0 && why == "" {
		why = fmt.Sprintf("rank %d has no memory that all others reach", r)
	}
	if why != "" {
		return nil, nil, why, nil
	}
	mapped := uint8(1)
	at = make([]driver.Ptr, cfg.Size)
	for r, o := range offers {
		if at[r], err = open(r, o); err != nil {
			mapped, why = 0, fmt.Sprintf("the memory of rank %d: %v", r, err)
			break
		}
	}
	done, err := exchangeAll(ctx, cfg.Host, mapped)
	if err != nil {
		return nil, nil, "", err
	}
	if r := slices.Index(done, 0); r >= 0 && why == "" {
		why = fmt.Sprintf("rank %d cannot open the memory of all others", r)
	}
	return at, offers, why, nil
}

// exchangeAll sends v to all ranks and returns the values of all ranks, by rank.
func exchangeAll[T any](ctx context.Context, h executor.Host, v T) ([]T, error) {
	b, err := binary.Append(nil, binary.LittleEndian, v)
	if err != nil {
		return nil, err
	}
	got, err := h.Exchange(ctx, b)
	if err != nil {
		return nil, err
	}
	all := make([]T, len(got))
	for r, g := range got {
		if n, err := binary.Decode(g, binary.LittleEndian, &all[r]); err != nil || n != len(g) {
			return nil, fmt.Errorf("rank %d has another version of the engine", r)
		}
	}
	return all, nil
}

// mayReach reports whether nothing that all ranks know rules out that their devices reach one another.
func mayReach(cfg executor.Config) bool {
	return cfg.Size <= maxRanks && cfg.Env.P2P && len(cfg.Env.Hosts) <= 1
}

// reach returns why this rank's device does not reach those of all other ranks, or "" if it
// does.
func reach(cfg executor.Config, dev *device, all []identity) string {
	switch {
	case cfg.Size > maxRanks:
		return fmt.Sprintf("there are %d ranks, and peer access is for %d at most", cfg.Size, maxRanks)
	case !cfg.Env.P2P:
		return "the NCCL_P2P_ settings do not allow peer access"
	}
	visible, err := driver.Devices()
	if err != nil {
		return err.Error()
	}
	for r, id := range all {
		switch {
		case id.Version != abiVersion:
			return fmt.Sprintf("rank %d has another version of the engine", r)
		case cfg.Places[r].Host != cfg.Places[cfg.Rank].Host:
			return fmt.Sprintf("rank %d is on another host", r)
		}
		i := id.in(visible)
		// A device that this process does not see may still be in reach: opening its window
		// will show.
		if i >= 0 && i != dev.ctx.Ordinal() && !dev.ctx.CanAccessPeer(i) {
			return fmt.Sprintf("device %d has no peer access to that of rank %d", dev.ctx.Ordinal(), r)
		}
	}
	return ""
}

// in returns the index of the rank's device among those that a process sees; -1: it does not see it.
func (id *identity) in(visible []driver.DeviceInfo) int {
	return slices.IndexFunc(visible, func(v driver.DeviceInfo) bool { return v.UUID == string(bytes.TrimRight(id.UUID[:], "\x00")) })
}

// linked reports whether NVLink connects the device with those of all ranks. Of a device that this process does
// not see that is not known.
func linked(dev *device, all []identity) bool {
	visible, err := driver.Devices()
	for _, id := range all {
		if i := id.in(visible); i < 0 || i != dev.ctx.Ordinal() && !dev.ctx.Linked(i) {
			return false
		}
	}
	return err == nil
}

// devicePage is the size of a page of device memory. Other processes map an allocation that is
// not a multiple of it in smaller pages; their copy engines then carry 289 GB/s instead of 387
// (2×H200).
const devicePage = 2 << 20

func wholePages(n int) int { return (n + devicePage - 1) / devicePage * devicePage }

// newLoan allocates n bytes on the device, rounded up to whole pages, for other ranks to
// reach. k is onDevice or virtual.
func (d *device) newLoan(cfg executor.Config, k kind, n int) (*loan, error) {
	n = wholePages(n)
	if k == virtual {
		return d.newVirtual(n)
	}
	p, err := driver.Malloc(n)
	if err != nil {
		return nil, err
	}
	l := &loan{ptr: p, free: func() error { return driver.Free(p) }}
	l.offer = offer{Addr: uint64(p), Ordinal: int32(d.ctx.Ordinal()), Bytes: uint64(n)}
	if l.offer.Handle, err = driver.MemHandle(p); err != nil && len(processes(cfg)) > 1 {
		return nil, errors.Join(err, l.free())
	}
	return l, nil
}

func (d *device) newVirtual(n int) (*loan, error) {
	if !d.info.CanVirtual || !d.info.CanShareVirtual {
		return nil, errors.New("the driver shares no memory by file descriptors")
	}
	p, free, err := d.take(n)
	if err != nil {
		return nil, err
	}
	info, err := driver.PointerInfo(p)
	if err != nil {
		return nil, errors.Join(err, free())
	}
	o := offer{Addr: uint64(p), Ordinal: int32(d.ctx.Ordinal()), Bytes: uint64(n), Total: uint64(n), Virtual: 1, Buffer: info.BufferID}
	return &loan{kind: virtual, ptr: p, free: free, offer: o}, nil
}

// clearMemory zeroes device memory. It waits for no other work.
func clearMemory(p driver.Ptr, n int) error {
	s, err := driver.NewStream(0)
	if err != nil {
		return err
	}
	if err = driver.Memset8Async(p, 0, n, s); err == nil {
		err = s.Synchronize()
	}
	return errors.Join(err, s.Destroy())
}

// processes returns the set of the ranks' processes.
func processes(cfg executor.Config) map[executor.Place]bool {
	p := map[executor.Place]bool{}
	for _, at := range cfg.Places {
		p[at] = true
	}
	return p
}

// openOne returns the address of a rank's memory, mapping it if necessary.
func openOne(ctx context.Context, dev *device, all []identity, rank int, o offer) (p driver.Ptr, err error) {
	if all[rank].Process != process() {
		p, err = dev.arena.open(o.key(all[rank]), func() (driver.Ptr, func() error, error) { return dev.importOne(ctx, o) })
		return p + driver.Ptr(o.At), err
	}
	return dev.openHere(o)
}

// openHere returns the address of memory of the same process.
func (d *device) openHere(o offer) (p driver.Ptr, err error) {
	if o.Hosted == 1 {
		p, err = driver.HostPtr(o.Addr)
		return p + driver.Ptr(o.At), err
	}
	p = driver.Ptr(o.Addr + o.At)
	if err := enable(d, int(o.Ordinal)); err != nil || o.Virtual == 0 {
		return p, err
	}
	ok, err := driver.Accessible(p, d.ctx.Ordinal())
	if err == nil && !ok {
		err = fmt.Errorf("device %d may not use the virtual memory at %v", d.ctx.Ordinal(), p)
	}
	return p, err
}

// importOne maps memory of another process, and returns its base.
func (d *device) importOne(ctx context.Context, o offer) (driver.Ptr, func() error, error) {
	switch {
	case o.Hosted == 1:
		return importHosted(o)
	case o.Virtual == 1:
		return d.importVirtual(ctx, o)
	}
	p, err := driver.OpenMem(o.Handle)
	return p, func() error { return driver.CloseMem(p) }, err
}

// enable gives a device peer access to another device of the process.
func enable(dev *device, ordinal int) error {
	if ordinal == dev.ctx.Ordinal() {
		return nil
	}
	peer, err := deviceOf(ordinal)
	if err != nil {
		return err
	}
	return dev.ctx.EnablePeer(peer.ctx)
}
