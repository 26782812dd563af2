//go:build cuda && cgo

package cuda

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"unsafe"

	"github.com/assay-hpc/assay/coll"
	"github.com/assay-hpc/assay/internal/gpu/driver"
)

// read reads a structure of device memory.
func read[T any](g *gpuRank, at uintptr) (v T, err error) {
	b := make([]byte, unsafe.Sizeof(v))
	if err = g.dev.in(func() error { return driver.CopyFromDevice(b, driver.Ptr(at)) }); err == nil {
		v = *(*T)(unsafe.Pointer(unsafe.SliceData(b)))
	}
	return v, err
}

// find looks an address up in the table of windows, as a kernel does.
func find(g *gpuRank, table, at uintptr) (uintptr, error) {
	for n := 0; table != 0; n++ {
		t, err := read[tableABI](g, table)
		if err != nil || n > 10 {
			return 0, fmt.Errorf("%d nodes: %w", n, err)
		}
		for _, e := range t.entries {
			if uint64(at)-e.base < e.size {
				return uintptr(e.window), nil
			}
		}
		table = uintptr(t.next)
	}
	return 0, nil
}

// through says at which address of its own a rank finds another's byte of a window, by what the device's
// memory says.
func through(g *gpuRank, window uintptr, rank, offset int) (driver.Ptr, error) {
	w, err := read[windowABI](g, window)
	if err == nil && (int(w.lsaRank) != g.Rank() || int(w.worldRank) != g.Rank()) {
		err = fmt.Errorf("rank %d: the window says rank %d, %d", g.Rank(), w.lsaRank, w.worldRank)
	}
	if err == nil && w.stride4G == 0 {
		err = errors.New("ranks are at the same place")
	}
	return driver.Ptr(w.first + uint64(rank)*uint64(w.stride4G)<<32 + uint64(offset)), err
}

// exchangeThrough has every rank write a word to every rank through a window, and checks what all have
// written to its own.
func exchangeThrough(g *gpuRank, window uintptr, at, word int) error {
	put := func(r int) (err error) {
		to, err := through(g, window, r, at+8*g.Rank())
		if err != nil {
			return err
		}
		return driver.CopyToDevice(to, binary.LittleEndian.AppendUint64(nil, uint64(word+100*g.Rank()+r)))
	}
	err := g.dev.in(func() error {
		for r := range g.Size() {
			if err := put(r); err != nil {
				return err
			}
		}
		return nil
	})
	if _, e := g.Exchange(context.Background(), nil); err != nil || e != nil {
		return errors.Join(err, e)
	}
	for r := range g.Size() {
		own, err := through(g, window, g.Rank(), at+8*r)
		if err != nil {
			return err
		}
		if got, err := read[uint64](g, uintptr(own)); err != nil || got != uint64(word+100*r+g.Rank()) {
			return fmt.Errorf("rank %d: rank %d wrote %d, %v", g.Rank(), r, got, err)
		}
	}
	return nil
}

// Kernels of the program reach the memory of all ranks, also through the table, in which there are more
// windows than a node has entries. Where they do not, windows and the team say why.
func TestLSA(t *testing.T) {
	for name, w := range places(gpuCount(t)) {
		t.Run(name, func(t *testing.T) {
			all := w.open(t)
			reaches := w.ranks == 1 || all[0].way() == "devices"
			each(t, all, func(g *gpuRank) error { return lsaRank(g, reaches) })
		})
	}
}

func lsaRank(g *gpuRank, reaches bool) error {
	ctx := context.Background()
	team, err := g.LSA(true)
	if err != nil || (team.Why == "") != reaches || (team.Table != 0) != reaches {
		return fmt.Errorf("reaches: %v; the team is %+v, %v", reaches, team, err)
	}
	own, err := g.NewWindow(ctx, 300<<10)
	if !reaches {
		if coll.CodeOf(err) != coll.InvalidUsage || !strings.Contains(err.Error(), team.Why) {
			return fmt.Errorf("memory for kernels that do not reach it: %v", err)
		}
		w, err := g.RegisterWindow(ctx, g.at(0, 4096))
		if err == nil && (w.LSA().Window != 0 || w.LSA().Why == "") {
			err = fmt.Errorf("a window: %+v", w.LSA())
		}
		return err
	}
	if err != nil {
		return err
	}
	if err := exchangeThrough(g, own.LSA().Window, 299<<10, 1000); err != nil {
		return err
	}
	ordinary, err := g.RegisterWindow(ctx, g.at(0, 4096))
	if err != nil || ordinary.LSA().Window != 0 || !strings.Contains(ordinary.LSA().Why, "cudaMalloc") {
		return fmt.Errorf("ordinary memory: %+v, %w", ordinary.LSA(), err)
	}
	const n, windows = 5 << 20, 40
	at, err := MemAlloc(g.dev.ctx.Ordinal(), n)
	if err != nil {
		return err
	}
	var kept []*coll.Window
	part := n / windows / 8 * 8
	for i := range windows {
		w, err := g.RegisterWindow(ctx, coll.Device(at+uintptr(i*part), part))
		if err == nil && w.LSA().Window == 0 {
			err = errors.New(w.LSA().Why)
		}
		if err == nil {
			err = exchangeThrough(g, w.LSA().Window, part-8*g.Size(), 1000*i)
		}
		if err != nil {
			return fmt.Errorf("window %d: %w", i, err)
		}
		if want := w.LSA().First + uintptr(g.Rank())*uintptr(w.LSA().Stride); i == 0 {
			if first, err := through(g, w.LSA().Window, g.Rank(), 0); err != nil || uintptr(first) != want {
				return fmt.Errorf("the memory is at %v, and Go says %#x; %w", first, want, err)
			}
		}
		kept = append(kept, w)
	}
	for round := range 2 {
		for i, w := range kept {
			got, err := find(g, team.Table, at+uintptr(i*part)+uintptr(part-1))
			if want := w.LSA().Window; err != nil || (got == want) != (round == 0 || i%2 == 1) {
				return fmt.Errorf("round %d: window %d is %#x in the table, and is %#x; %w", round, i, got, want, err)
			}
			if round == 0 && i%2 == 0 {
				if err := w.Close(); err != nil {
					return err
				}
				kept[i] = w
			}
		}
	}
	again, err := g.RegisterWindow(ctx, coll.Device(at, part))
	if err == nil {
		err = exchangeThrough(g, again.LSA().Window, 8, 7)
	}
	return errors.Join(err, own.Close(), MemFree(at)) // the other windows go with the communicator
}

// All ranks learn that they require different amounts, or that one has no memory.
func TestLSARefused(t *testing.T) {
	all := spread(2, gpuCount(t)).open(t)
	each(t, all, func(g *gpuRank) error {
		_, err := g.NewWindow(context.Background(), 4096<<g.Rank())
		if coll.CodeOf(err) != coll.InvalidUsage || !strings.Contains(err.Error(), "4096") || !strings.Contains(err.Error(), "8192") {
			return fmt.Errorf("rank %d: %v", g.Rank(), err)
		}
		if g.Rank() == 0 {
			_, err = g.NewWindow(context.Background(), 1<<45)
		} else {
			_, err = g.NewWindow(context.Background(), 4096)
		}
		if coll.CodeOf(err) != coll.InvalidUsage {
			return fmt.Errorf("rank %d: %v", g.Rank(), err)
		}
		w, err := g.NewWindow(context.Background(), 4096)
		if err != nil {
			return err
		}
		return exchangeThrough(g, w.LSA().Window, 0, 5)
	})
}

// TestFailedLSA: whatever call fails while ranks register memory, they all get it or none does, or the
// communicator fails, and nothing is left of it.
func TestFailedLSA(t *testing.T) {
	w := spread(2, gpuCount(t))
	d, err := deviceOf(0)
	if err != nil {
		t.Fatal(err)
	}
	if d.info.Name != "emulator" {
		t.Skip("a real driver does not fail when it is told to")
	}
	for _, call := range []string{"none", "cuMemAddressReserve", "cuMemMap", "cuMemSetAccess", "cuMemCreate", "cuMemAlloc", "cuMemHostAlloc", "cuStreamCreate"} {
		made, failed, refused := 0, 0, 0
		for _, n := range []int{1, 2, 3, 5, 8} {
			t.Run(fmt.Sprintf("%s %d", call, n), func(t *testing.T) {
				before := freeBytes(t)
				if left := leftOver(t, before); left != 0 {
					before -= left
				}
				comms, err := coll.CommInitAll(context.Background(), w.ranks, w.config())
				if err != nil {
					t.Fatal(err)
				}
				at := make([]uintptr, w.ranks)
				for r := range comms {
					if at[r], err = MemAlloc(w.devices[r], 1<<20); err != nil {
						t.Fatal(err)
					}
				}
				t.Setenv("FAKE_FAIL", fmt.Sprintf("%s %d", call, n))
				windows, errs := make([][2]*coll.Window, w.ranks), make([]error, w.ranks)
				var wg sync.WaitGroup
				for r, c := range comms {
					wg.Go(func() {
						var first, second error
						windows[r][0], first = c.RegisterWindow(context.Background(), coll.Device(at[r], 1<<20))
						windows[r][1], second = c.NewWindow(context.Background(), 1<<20)
						errs[r] = errors.Join(first, second)
					})
				}
				wg.Wait()
				t.Setenv("FAKE_FAIL", "none 1")
				switch {
				case comms[0].AsyncError() != nil || comms[1].AsyncError() != nil:
					failed++
				default:
					made++
					for i := range 2 {
						if a, b := windows[0][i], windows[1][i]; (a == nil) != (b == nil) || a != nil && (a.LSA().Window == 0) != (b.LSA().Window == 0) {
							t.Errorf("window %d: rank 0 has %+v, rank 1 %+v; %v", i, a, b, errs)
						} else if a == nil || a.LSA().Window == 0 {
							refused++
						}
					}
				}
				for r, c := range comms {
					wg.Go(func() {
						if n%2 == 0 || c.AsyncError() != nil {
							_ = c.Abort()
						} else {
							_ = c.Destroy()
						}
						if err := MemFree(at[r]); err != nil {
							t.Error(err)
						}
					})
				}
				wg.Wait()
				if left := leftOver(t, before); left != 0 {
					t.Errorf("after %v: %d bytes and objects are left", errs, left)
				}
			})
		}
		t.Logf("%s: %d communicators were whole, with %d windows refused, and %d failed", call, made, refused, failed)
	}
}
