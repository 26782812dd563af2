//go:build cuda && cgo

package cuda

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/assay-hpc/assay/coll/cuda/driver"
	"github.com/assay-hpc/assay/coll/debug"
	"github.com/assay-hpc/assay/coll/executor"
)

// An identity is what ranks tell one another of their devices.
type identity struct {
	Version uint32
	SMs     uint32
	Process [16]byte // another one for each process
	UUID    [40]byte
	Name    [32]byte // SHA-256
}

// measuredAlike reports whether measured rules can be used: each rank has a
// device of its own, and all devices have one name, as when they were made.
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

// abiVersion changes with kernels/abi.h and with what is exchanged here.
const abiVersion = 5

// process tells processes apart, those with one number in different
// containers, too.
var process = sync.OnceValue(func() (id [16]byte) {
	_, _ = rand.Read(id[:]) // never fails
	return id
})

// An offer is a window, as its owner tells of it.
type offer struct {
	OK      uint8 // 1: the owner reaches all others' devices, and has a window; 2: it may have one later
	Addr    uint64
	Ordinal int32
	Handle  [64]byte
}

// windows are a rank's own window and its view of the others'.
type windows struct {
	own      driver.Ptr
	at       []driver.Ptr // by rank
	hosted   bool         // they are in the processor's memory, see hosted.go
	free     func() error // gives the own one back
	imported []func() error
}

// openWindows gives every rank a window and the addresses of the others': on
// the devices where these reach one another, and else in the processor's
// memory. If neither can be, why says the reasons that this rank knows, and
// there are none on any rank.
func openWindows(ctx context.Context, cfg executor.Config, dev *device, name [32]byte) (w windows, all []identity, why string, err error) {
	if cfg.Size == 1 {
		return windows{at: make([]driver.Ptr, 1)}, nil, "", nil
	}
	me := identity{Version: abiVersion, SMs: uint32(dev.info.SMs), Process: process(), Name: name}
	copy(me.UUID[:], dev.info.UUID)
	if all, err = exchangeAll(ctx, cfg.Host, me); err != nil {
		return w, nil, "", err
	}
	apart, err := w.meet(ctx, cfg, dev, all, reach(cfg, dev, all))
	switch {
	case err != nil:
		return w, nil, "", err
	case apart == "":
		cfg.Log.Infof(debug.Init, "rank %d: windows are on the devices", cfg.Rank)
		return w, all, "", nil
	}
	if why = hostable(cfg); why == "" { // all ranks know alike
		w.hosted = true
		why, err = w.meet(ctx, cfg, dev, all, "")
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

// meet has all ranks make their windows and open the others'. apart is why this
// rank does not reach all others, if so; why is the reason that this rank knows
// for there being no windows on any rank.
func (w *windows) meet(ctx context.Context, cfg executor.Config, dev *device, all []identity, apart string) (why string, err error) {
	why = apart
	var mine offer
	if why == "" {
		mine, err = w.make(cfg, dev)
		switch {
		case errors.Is(err, driver.ErrOutOfMemory) && !w.hosted:
			return "", w.giveUp(fmt.Errorf("the window of this rank: %w", err))
		case err != nil:
			why = err.Error()
		default:
			mine.OK = 1
		}
	}
	offers, err := exchangeAll(ctx, cfg.Host, mine)
	if err != nil {
		return "", w.giveUp(err)
	}
	if r := slices.IndexFunc(offers, func(o offer) bool { return o.OK == 0 }); r >= 0 && why == "" {
		why = fmt.Sprintf("rank %d has no window that all others reach", r)
	}
	if why != "" {
		return why, w.giveUp(nil)
	}
	open := w.open
	if w.hosted {
		open = w.openHosted
	}
	mapped := uint8(1)
	if err := open(cfg, dev, all, offers); err != nil {
		mapped, why = 0, err.Error()
	}
	done, err := exchangeAll(ctx, cfg.Host, mapped)
	if err != nil {
		return "", w.giveUp(err)
	}
	r := slices.Index(done, 0)
	if r < 0 {
		return "", nil
	}
	if why == "" {
		why = fmt.Sprintf("rank %d cannot open all windows", r)
	}
	return why, w.giveUp(nil)
}

// make makes the rank's own window, zeroed.
func (w *windows) make(cfg executor.Config, dev *device) (offer, error) {
	retired.sweep()
	n := newChooser(cfg.Env, cfg.Size, nil, w.hosted).size()
	if w.hosted {
		return w.offerHosted(n)
	}
	o, err := w.offer(cfg, dev, n)
	if err != nil {
		return o, err
	}
	return o, clearMemory(w.own, n)
}

// exchangeAll gives every rank every rank's value.
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

// reach says why this rank's device does not reach those of all others; ""
// when it does.
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
		i := slices.IndexFunc(visible, func(v driver.DeviceInfo) bool {
			return v.UUID == string(bytes.TrimRight(id.UUID[:], "\x00"))
		})
		// What this process does not see it may still reach: that comes out
		// when it opens the window.
		if i >= 0 && i != dev.ctx.Ordinal() && !dev.ctx.CanAccessPeer(i) {
			return fmt.Sprintf("device %d has no peer access to that of rank %d", dev.ctx.Ordinal(), r)
		}
	}
	return ""
}

// offer allocates the rank's own window of n bytes on its device.
func (w *windows) offer(cfg executor.Config, dev *device, n int) (o offer, err error) {
	own, err := driver.Malloc(n)
	if err != nil {
		return o, err
	}
	w.own, w.free = own, func() error { return driver.Free(own) }
	if len(processes(cfg)) > 1 {
		o.Handle, err = driver.MemHandle(w.own)
	}
	o.Addr, o.Ordinal = uint64(w.own), int32(dev.ctx.Ordinal())
	return o, err
}

// clearMemory zeroes device memory, and waits for nothing else.
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

// processes are those of the ranks.
func processes(cfg executor.Config) map[executor.Place]bool {
	p := map[executor.Place]bool{}
	for _, at := range cfg.Places {
		p[at] = true
	}
	return p
}

// open maps the others' windows.
func (w *windows) open(cfg executor.Config, dev *device, all []identity, offers []offer) error {
	w.at = make([]driver.Ptr, cfg.Size)
	w.at[cfg.Rank] = w.own
	for r, o := range offers {
		if r == cfg.Rank {
			continue
		}
		if err := w.openOne(dev, all, r, o); err != nil {
			return err
		}
	}
	return nil
}

// openOne maps the window of another rank.
func (w *windows) openOne(dev *device, all []identity, rank int, o offer) error {
	if all[rank].Process == process() {
		if err := enable(dev, int(o.Ordinal)); err != nil {
			return fmt.Errorf("peer access to rank %d: %w", rank, err)
		}
		w.at[rank] = driver.Ptr(o.Addr)
		return nil
	}
	p, err := driver.OpenMem(o.Handle)
	if err != nil {
		return fmt.Errorf("the window of rank %d: %w", rank, err)
	}
	w.imported = append(w.imported, func() error { return driver.CloseMem(p) })
	w.at[rank] = p
	return nil
}

// enable lets a device reach another one of the process.
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

// giveUp frees what there is before anybody has written to it.
func (w *windows) giveUp(err error) error {
	for _, unmap := range w.imported {
		_ = unmap()
	}
	if w.free != nil {
		_ = w.free()
	}
	*w = windows{}
	return err
}

// close gives the windows back, and a room, which some ranks have and others
// have not. barrier is as for Executor.Close; drained says that no kernel of
// this rank uses them any more.
//
// A window must stay until the kernels of the others have left: one that
// writes to memory which is not there loses its context with all that is in
// it. When the ranks do not leave together, nobody can tell; so it stays for a
// while.
func (w *windows) close(room *windows, barrier func() error, drained bool) {
	if !drained || w.own == 0 {
		return
	}
	together := barrier != nil && barrier() == nil
	for _, unmap := range append(w.imported, room.imported...) {
		_ = unmap()
	}
	together = together && (len(w.imported) == 0 || barrier() == nil)
	for _, free := range [...]func() error{w.free, room.free} {
		switch {
		case free == nil:
		case together:
			_ = free()
		default:
			retired.add(free)
		}
	}
}

// retired are windows that others may still write to.
var retired retirement

type retirement struct {
	mu  sync.Mutex
	all []retiree
}

type retiree struct {
	free  func() error
	since time.Time
}

// retireFor is longer than any kernel takes that was told to stop, and than
// the telling.
const retireFor = time.Minute

func (r *retirement) add(free func() error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all = append(r.all, retiree{free, time.Now()})
}

// sweep frees those that have been there for long enough.
func (r *retirement) sweep() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all = slices.DeleteFunc(r.all, func(o retiree) bool {
		if time.Since(o.since) < retireFor {
			return false
		}
		_ = o.free()
		return true
	})
}
