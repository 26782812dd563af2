//go:build cuda && cgo

package cuda

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/assay-hpc/assay/coll"
	"github.com/assay-hpc/assay/coll/colltest"
	"github.com/assay-hpc/assay/coll/executor"
	"github.com/assay-hpc/assay/coll/knob"
	"github.com/assay-hpc/assay/internal/gpu/driver"
)

// leftOver waits until as much of the device is free as there was, and says
// what is missing: bytes, and one for each stream, event and piece of pinned
// memory. Windows that wait for others' kernels to leave are given back first.
func leftOver(t *testing.T, before int64) int64 {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		left := before - freeBytes(t)
		if left == 0 || time.Now().After(deadline) {
			return left
		}
	}
}

// forget takes what others may still write to for something that they have left.
func (a *arena) forget() {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, l := range append(slices.Clone(a.idle), a.copyBuffers[:]...) {
		if l != nil && l.left != nil {
			l.left.end()
		}
	}
	for i := range a.parts {
		if left := a.parts[i].left; left != nil {
			left.end()
		}
	}
}

func freeBytes(t *testing.T) (free int64) {
	t.Helper()
	d, err := deviceOf(0)
	if err != nil {
		t.Fatal(err)
	}
	devices.mu.Lock()
	for _, of := range devices.all {
		of.arena.mu.Lock()
		if n := of.arena.users; n != 0 {
			t.Errorf("the arena of a device has %d communicators; there are none", n)
		}
		of.arena.mu.Unlock()
		if err := of.in(func() error { // what nobody uses goes
			of.arena.forget()
			of.arena.enter()
			of.arena.leave()
			return nil
		}); err != nil {
			t.Error(err)
		}
	}
	devices.mu.Unlock()
	if err := d.in(func() (err error) {
		free, _, err = driver.MemInfo()
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return free
}

// TestFailedOpen: whatever call fails while ranks join, nothing of the
// communicator is left on the device, nor goroutines, sockets and memory that
// processes share.
func TestFailedOpen(t *testing.T) {
	w := spread(2, gpuCount(t))
	d, err := deviceOf(0)
	if err != nil {
		t.Fatal(err)
	}
	if d.info.Name != "emulator" {
		t.Skip("a real driver does not fail when it is told to")
	}
	for name, set := range map[string]func(*knob.Knobs){"devices": nil, "hosted": hosted, "staged": func(k *knob.Knobs) { staged(k); k.MinChannels = 2 }} {
		w.set = set
		opens := func() ([]*coll.Comm, error) {
			ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
			defer cancel()
			return coll.CommInitAll(ctx, w.ranks, w.config())
		}
		ends := func(t *testing.T, comms []*coll.Comm) {
			for _, c := range comms {
				_ = c.Abort()
			}
		}
		comms, err := opens() // what a device keeps for good
		if err != nil {
			t.Fatal(err)
		}
		ends(t, comms)
		for _, call := range []string{"cuMemAlloc", "cuMemHostAlloc", "cuMemHostRegister", "cuStreamCreate", "cuEventCreate"} {
			failed := 0
			for _, n := range []int{1, 2, 3, 4, 5, 8, 13, 21, 34} {
				t.Run(fmt.Sprintf("%s/%s %d", name, call, n), func(t *testing.T) {
					before := freeBytes(t)
					if left := leftOver(t, before); left != 0 {
						before -= left
					}
					colltest.Watch(t)
					t.Setenv("FAKE_FAIL", fmt.Sprintf("%s %d", call, n))
					comms, err := opens()
					if err != nil {
						failed++
					}
					ends(t, comms)
					if left := leftOver(t, before); left != 0 {
						t.Errorf("after %v: %d bytes and objects are left", err, left)
					}
				})
			}
			t.Logf("%s: %s failed %d times", name, call, failed)
		}
	}
}

// TestWholePages: what other processes map is whole pages.
func TestWholePages(t *testing.T) {
	gpuCount(t)
	d, err := deviceOf(0)
	if err != nil {
		t.Fatal(err)
	}
	err = d.in(func() error {
		l, err := d.newLoan(executor.Config{}, onDevice, 3*devicePage+tokenBytes)
		if err != nil {
			return err
		}
		if base, n, err := driver.AddressRange(l.ptr); base != l.ptr || n != 4*devicePage || err != nil {
			t.Errorf("%d bytes from %v, %v; want %d from %v", n, base, err, 4*devicePage, l.ptr)
		}
		return l.free()
	})
	if err != nil {
		t.Error(err)
	}
}
