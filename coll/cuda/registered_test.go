//go:build cuda && cgo

package cuda

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/assay-hpc/assay/coll"
	"github.com/assay-hpc/assay/coll/colltest"
	"github.com/assay-hpc/assay/coll/elem"
	"github.com/assay-hpc/assay/coll/knob"
	"github.com/assay-hpc/assay/coll/op"
	"github.com/assay-hpc/assay/internal/gpu/driver"
)

// direct makes every collective that can write to registered memory do so.
func direct(k *knob.Knobs) { k.GPUAlgo = "exchange_direct:3:96:0" }

// wentDirectly reports whether the last operation wrote to registered memory.
func (g *gpuRank) wentDirectly() bool { return strings.Contains(g.Chosen(), "_direct/") }

// registerAll registers memory of all ranks.
func registerAll(t *testing.T, all []*gpuRank, of func(g *gpuRank) coll.Buffer) []*coll.Window {
	t.Helper()
	windows := make([]*coll.Window, len(all))
	each(t, all, func(g *gpuRank) (err error) {
		windows[g.Rank()], err = g.RegisterWindow(context.Background(), of(g))
		return err
	})
	for r, w := range windows {
		if w.Direct() != windows[0].Direct() {
			t.Fatalf("rank %d: direct is %v; of rank 0 it is %v", r, w.Direct(), windows[0].Direct())
		}
	}
	return windows
}

// toRegistered does a collective of bytes whose results are at an offset of all ranks' arenas,
// and checks them and the bytes around them.
func toRegistered(g *gpuRank, c op.Collective, offset, n int, inPlace bool) error {
	ranks, me, root := g.Size(), g.Rank(), g.Size()-1
	in, out := 1, 1
	switch c {
	case op.AllGather:
		out = ranks
	case op.AllToAll:
		in, out = ranks, ranks
	}
	byteOf := func(rank, i int) byte { return byte(rank*31 + i + i>>8) }
	send := make([]byte, in*n)
	for i := range send {
		send[i] = byteOf(me, i)
	}
	var want []byte
	for r := range out {
		for i := range n {
			switch c {
			case op.AllGather:
				want = append(want, byteOf(r, i))
			case op.AllToAll:
				want = append(want, byteOf(r, me*n+i))
			default:
				want = append(want, byteOf(root, i))
			}
		}
	}
	at := g.arena + driver.Ptr(guardBytes+offset)
	from := g.arena + arenaBytes/2 + driver.Ptr(offset%8)
	if inPlace {
		from = at
		if c == op.AllGather {
			from += driver.Ptr(me * n)
		}
	}
	guards := bytes.Repeat([]byte{guardByte}, out*n+2*guardBytes)
	err := g.dev.in(func() error {
		return errors.Join(driver.CopyToDevice(at-guardBytes, guards), driver.CopyToDevice(from, send))
	})
	if err != nil {
		return err
	}
	o := &op.Op{Coll: c, Count: n, Type: elem.Uint8, Root: root, Device: true,
		Send: op.Memory(uintptr(from), in*n), Recv: op.Memory(uintptr(at), out*n)}
	if err := errors.Join(g.Comm.Do(o), g.wait(), g.AsyncError()); err != nil {
		return err
	}
	got := make([]byte, len(guards))
	if err := g.dev.in(func() error { return driver.CopyFromDevice(got, at-guardBytes) }); err != nil {
		return err
	}
	for i, b := range got {
		w := byte(guardByte)
		if k := i - guardBytes; k >= 0 && k < len(want) {
			w = want[k]
		}
		if b != w {
			return fmt.Errorf("rank %d: %v of %d bytes at offset %d, in place %v, by %s: byte %d is %d; want %d", me, c, n, offset, inPlace, g.Chosen(), i-guardBytes, b, w)
		}
	}
	return nil
}

// Where ranks reach one another's devices, they write to registered memory; otherwise
// collectives work as before.
func TestRegistered(t *testing.T) {
	n := gpuCount(t)
	worlds := places(n)
	for ranks := 2; ranks <= min(max(2, n), maxRanks); ranks++ {
		w := spread(ranks, n)
		w.set = direct
		worlds[fmt.Sprintf("direct, %d", ranks)] = w
	}
	for name, w := range worlds {
		t.Run(name, func(t *testing.T) {
			all := w.open(t)
			forced, reaches := strings.HasPrefix(name, "direct"), w.ranks > 1 && all[0].way() == "devices"
			windows := registerAll(t, all, func(g *gpuRank) coll.Buffer { return g.at(0, arenaBytes) })
			if got := windows[0].Direct(); got != reaches {
				t.Fatalf("direct: %v; want %v", got, reaches)
			}
			for _, n := range []int{1, 100, 5000, limit(300_000), limit(5 << 20)} {
				for _, offset := range []int{0, 8, 3} {
					for _, c := range []op.Collective{op.AllGather, op.AllToAll, op.Broadcast} {
						for _, inPlace := range []bool{false, true} {
							if c == op.AllToAll && inPlace {
								continue // TestAllToAll
							}
							sent := n
							if c != op.Broadcast {
								sent *= w.ranks - 1
							}
							by := reaches && (forced || sent > directFrom) && (c != op.Broadcast || w.ranks == 2)
							each(t, all, func(g *gpuRank) error {
								if err := toRegistered(g, c, offset, n, inPlace); err != nil {
									return err
								}
								if g.wentDirectly() != by {
									return fmt.Errorf("%v of %d bytes was done by %s", c, n, g.Chosen())
								}
								return nil
							})
						}
					}
				}
			}
			each(t, all, func(g *gpuRank) error { return windows[g.Rank()].Close() })
			each(t, all, func(g *gpuRank) error {
				if err := toRegistered(g, op.AllGather, 0, 5000, false); err != nil {
					return err
				}
				if g.wentDirectly() {
					return fmt.Errorf("after Close an AllGather was done by %s", g.Chosen())
				}
				return nil
			})
		})
	}
}

// Memory beyond the end of a window is as any. Short messages go by packets, unless a setting asks for
// more.
func TestRegisteredChoice(t *testing.T) {
	n := gpuCount(t)
	w := spread(max(2, min(n, maxRanks)), n)
	const bytes = 1000
	for _, set := range []func(*knob.Knobs){nil, direct} {
		w.set = set
		all := w.open(t)
		windows := registerAll(t, all, func(g *gpuRank) coll.Buffer { return g.at(0, bytes*w.ranks) })
		if !windows[0].Direct() {
			t.Error("the window is not direct")
		}
		for _, at := range []int{0, 1} {
			each(t, all, func(g *gpuRank) error {
				if err := errors.Join(g.AllGather(g.at(1<<20, bytes), g.at(at, bytes*w.ranks), bytes, coll.Uint8), g.wait()); err != nil {
					return err
				}
				if g.wentDirectly() != (set != nil && at == 0) {
					return fmt.Errorf("to offset %d it went by %s", at, g.Chosen())
				}
				return nil
			})
		}
	}
}

// Memory of MemAlloc is registered as well. What is not the device's is not, nor what other devices
// may not use; nobody waits then.
func TestRegisteredMemory(t *testing.T) {
	n := gpuCount(t)
	w := spread(max(2, min(n, maxRanks)), n)
	w.set = direct
	all := w.open(t)
	each(t, all, func(g *gpuRank) error {
		ordinal, _ := g.Device()
		at, err := MemAlloc(ordinal, 1<<20)
		if err != nil {
			return err
		}
		win, err := g.RegisterWindow(context.Background(), coll.Device(at, 1<<20))
		if err != nil {
			return err
		}
		if !win.Direct() {
			return errors.New("memory of MemAlloc is not written directly")
		}
		ranks := g.Size()
		if err := errors.Join(g.AllGather(g.at(0, 5000), coll.Device(at, 5000*ranks), 5000, coll.Uint8), g.wait()); err != nil {
			return err
		}
		if !g.wentDirectly() {
			return fmt.Errorf("it went by %s", g.Chosen())
		}
		return errors.Join(win.Close(), MemFree(at))
	})
	each(t, all, func(g *gpuRank) error {
		ordinal, _ := g.Device()
		var v *driver.Virtual
		err := g.dev.in(func() (err error) { v, err = driver.NewVirtual(g.dev.info, nil, 4096); return err })
		if err != nil {
			return err
		}
		win, err := g.RegisterWindow(context.Background(), coll.Device(uintptr(v.Ptr), 4096))
		if alone := n == 1; err == nil && win.Direct() != alone {
			err = fmt.Errorf("memory for device %d alone, of %d: direct is %v", ordinal, n, win.Direct())
		}
		return errors.Join(err, g.dev.in(v.Free))
	})
	host := make([]byte, 4096)
	each(t, all, func(g *gpuRank) error {
		b := g.at(0, 4096)
		if g.Rank() == 1 {
			b = coll.Device(op.Addr(host), len(host))
		}
		win, err := g.RegisterWindow(context.Background(), b)
		if err == nil && win.Direct() {
			err = errors.New("host memory was registered")
		}
		return err
	})
}

// A program may free what it has registered, and get other memory at the same address: that is not
// registered, also not for kernels that look it up.
func TestRegisteredFreed(t *testing.T) {
	n := gpuCount(t)
	w := spread(max(2, min(n, maxRanks)), n)
	w.set = direct
	all := w.open(t)
	each(t, all, func(g *gpuRank) error {
		const bytes = 8 << 20
		ordinal, _ := g.Device()
		at, err := MemAlloc(ordinal, bytes)
		if err != nil {
			return err
		}
		team, err := g.LSA(true)
		if err != nil {
			return err
		}
		first, err := g.RegisterWindow(context.Background(), coll.Device(at, bytes))
		if err != nil || !first.Direct() {
			return fmt.Errorf("direct: %v, %w", first.Direct(), err)
		}
		gather := func(want bool) error {
			ranks := g.Size()
			if err := errors.Join(g.AllGather(g.at(0, 5000), coll.Device(at, 5000*ranks), 5000, coll.Uint8), g.wait()); err != nil {
				return err
			}
			if g.wentDirectly() != want {
				return fmt.Errorf("rank %d: it went by %s; directly: want %v", g.Rank(), g.Chosen(), want)
			}
			return nil
		}
		if err := errors.Join(gather(true), MemFree(at)); err != nil {
			return err
		}
		if _, err := g.Exchange(context.Background(), nil); err != nil {
			return err
		}
		if at, err = MemAlloc(ordinal, bytes); err != nil {
			return err
		}
		if err := gather(false); err != nil {
			return err
		}
		second, err := g.RegisterWindow(context.Background(), coll.Device(at, bytes))
		if err != nil {
			return err
		}
		if found, err := find(g, team.Table, at+5); err != nil || found != second.LSA().Window {
			return fmt.Errorf("%#x is in the table, and the window is %#x; %w", found, second.LSA().Window, err)
		}
		return errors.Join(gather(true), second.Close(), first.Close(), MemFree(at))
	})
}

// Ranks that pass different offsets do not write over anything: both wait, and the error says for
// whom.
func TestRegisteredMismatch(t *testing.T) {
	n := gpuCount(t)
	w := spread(2, n)
	w.set, w.timeout = direct, time.Second
	all := w.open(t)
	registerAll(t, all, func(g *gpuRank) coll.Buffer { return g.at(0, 1<<20) })
	const bytes = 4096
	errs := make(chan error, 2)
	for _, g := range all {
		go func() {
			err := g.dev.in(func() error { return driver.Memset8(g.arena, guardByte, 1<<20) })
			to := g.at(g.Rank()*2*bytes, 2*bytes)
			errs <- errors.Join(err, g.AllGather(g.at(2<<20, bytes), to, bytes, coll.Uint8), g.wait())
		}()
	}
	for range all {
		if err := <-errs; err != nil {
			t.Fatal(err)
		}
	}
	time.Sleep(100 * time.Millisecond)
	for _, g := range all {
		if err := g.AsyncError(); coll.CodeOf(err) != coll.Timeout && coll.CodeOf(err) != coll.RemoteError {
			t.Errorf("rank %d: %v; want a timeout", g.Rank(), err)
		}
		got := make([]byte, 1<<20)
		if err := g.dev.in(func() error { return driver.CopyFromDevice(got, g.arena) }); err != nil {
			t.Fatal(err)
		}
		own := (g.Rank()*2 + g.Rank()) * bytes // the rank's own part of the result
		for i, b := range got {
			if b != guardByte && (i < own || i >= own+bytes) {
				t.Fatalf("rank %d: byte %d was overwritten", g.Rank(), i)
			}
		}
	}
}

// Ranks in several processes write to one another's memory, of either kind.
func TestRegisteredProcesses(t *testing.T) {
	n := gpuCount(t)
	job := colltest.Start(t, colltest.JobOptions{Program: "registered", Ranks: max(2, min(n, maxRanks)), Arg: fmt.Sprint(n)})
	for _, res := range job.Wait(2 * time.Minute) {
		if err := res.Clean(); err != nil {
			t.Error(err)
		}
	}
}

// registeredRank is one process of TestRegisteredProcesses.
func registeredRank(s colltest.Self) error {
	s.Arg += " direct"
	g, err := joinProcess(s, "id")
	if err != nil {
		return err
	}
	if g.way() != "devices" {
		return fmt.Errorf("windows are %s", g.way())
	}
	ordinal, _ := g.Device()
	virtual, err := MemAlloc(ordinal, arenaBytes)
	if err != nil {
		return err
	}
	ordinary := g.arena
	for _, at := range []driver.Ptr{driver.Ptr(virtual), ordinary, driver.Ptr(virtual)} {
		g.arena = at
		w, err := g.RegisterWindow(context.Background(), g.at(0, arenaBytes))
		if err != nil {
			return err
		}
		if !w.Direct() {
			return fmt.Errorf("memory at %v is not written directly", at)
		}
		if at != ordinary {
			if err := exchangeThrough(g, w.LSA().Window, 8192, 77); err != nil {
				return err
			}
		}
		for _, c := range []op.Collective{op.AllGather, op.AllToAll} {
			for _, n := range []int{1, 5000, limit(1 << 20)} {
				if err := toRegistered(g, c, 8, n, false); err != nil {
					return err
				}
				if !g.wentDirectly() {
					return fmt.Errorf("%v of %d bytes was done by %s", c, n, g.Chosen())
				}
			}
		}
		if err := g.Barrier(); err != nil {
			return err
		}
		if err := w.Close(); err != nil {
			return err
		}
	}
	g.arena = ordinary
	return errors.Join(g.close(), MemFree(virtual))
}

// Only processes of the same user that know the name get what is handed over, as often as they ask.
func TestHandover(t *testing.T) {
	text := filepath.Join(t.TempDir(), "text")
	if err := os.WriteFile(text, []byte("memory"), 0o600); err != nil {
		t.Fatal(err)
	}
	fd, err := unix.Open(text, unix.O_RDONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	h, err := newHandover(fd)
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		got, err := receive(t.Context(), h.name)
		if err != nil {
			t.Fatal(err)
		}
		f := os.NewFile(uintptr(got), text)
		b := make([]byte, 10)
		if n, err := f.ReadAt(b, 0); string(b[:n]) != "memory" {
			t.Errorf("%q, %v", b[:n], err)
		}
		f.Close()
	}
	if err := h.close(); err != nil {
		t.Error(err)
	}
	if _, err := receive(t.Context(), h.name); err == nil {
		t.Error("it was given after the end")
	}
}
