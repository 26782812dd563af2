//go:build cuda && cgo

package cuda

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"sync"
	"testing"
	"time"
	"unsafe"

	"github.com/assay-hpc/assay/coll"
	"github.com/assay-hpc/assay/coll/colltest"
	"github.com/assay-hpc/assay/coll/knob"
	"github.com/assay-hpc/assay/coll/op"
	"github.com/assay-hpc/assay/internal/gpu/driver"
	"github.com/assay-hpc/assay/internal/gputest"
)

// gpuCount is how many devices there are; the test is skipped where there are
// none.
func gpuCount(t testing.TB) int {
	t.Helper()
	err := driver.Init()
	var all []driver.DeviceInfo
	if err == nil {
		all, err = driver.Devices()
	}
	gputest.Need(t, 1, len(all), err, driver.ErrNoDriver, driver.ErrNoDevice)
	return len(all)
}

// ownGPUs returns the number of GPUs, and skips a test of copies whose ranks would share one: they share its hardware
// queues, too, and what one copies can be queued behind what waits for that copy. FAKE_QUEUES=4 shows it.
func ownGPUs(t testing.TB, ranks int) int {
	t.Helper()
	n := gpuCount(t)
	if n < ranks {
		t.Skipf("%d ranks that copy need as many GPUs: those of one GPU share its queues", ranks)
	}
	return n
}

// A gpuRank is a rank of a test: its communicator, and memory on its device.
type gpuRank struct {
	*coll.Comm
	dev    *device
	stream driver.Stream
	arena  driver.Ptr
	group  coll.Group
}

const (
	arenaBytes = 96 << 20
	guardBytes = 256 // around every buffer in the arena
	guardByte  = 0xa5
)

// A world says how the ranks of a test are placed.
type world struct {
	ranks   int
	devices []int
	set     func(k *knob.Knobs)
	timeout time.Duration
}

// spread places ranks on devices in turn.
func spread(ranks, devices int) world {
	w := world{ranks: ranks}
	for r := range ranks {
		w.devices = append(w.devices, r%devices)
	}
	return w
}

func (w world) config() coll.Config {
	k := knob.Default()
	k.Timeout = 20 * time.Second
	k.GPUAlgo = os.Getenv("ASSAY_GPU_ALGO")
	k.Verify, _ = knob.ParseVerify(os.Getenv("ASSAY_CHECK"))
	if w.timeout > 0 {
		k.Timeout = w.timeout
	}
	if w.set != nil {
		w.set(k)
	}
	return coll.Config{Knobs: k, Devices: w.devices, GPUs: Factory}
}

// open makes the ranks. They are gone when the test ends, without a word if
// they are broken.
func (w world) open(t testing.TB) []*gpuRank {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	comms, err := coll.CommInitAll(ctx, w.ranks, w.config())
	if err != nil {
		t.Fatal(err)
	}
	all := make([]*gpuRank, w.ranks)
	for r, c := range comms {
		if all[r], err = newRank(c); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() {
		errs := make([]error, len(all))
		var wg sync.WaitGroup
		for r, g := range all {
			wg.Go(func() {
				broken := g.AsyncError() != nil
				if errs[r] = g.close(); broken {
					errs[r] = nil
				}
			})
		}
		wg.Wait()
		if err := errors.Join(errs...); err != nil {
			t.Error(err)
		}
	})
	return all
}

func newRank(c *coll.Comm) (*gpuRank, error) {
	ordinal, _ := c.Device()
	dev, err := deviceOf(ordinal)
	if err != nil {
		return nil, err
	}
	g := &gpuRank{Comm: c, dev: dev}
	err = dev.in(func() (err error) {
		if g.stream, err = driver.NewStream(0); err != nil {
			return err
		}
		g.arena, err = driver.Malloc(arenaBytes)
		return err
	})
	if err == nil {
		err = c.SetStream(uintptr(g.stream))
	}
	return g, err
}

func (g *gpuRank) close() error {
	err := g.Destroy()
	if errors.Is(err, coll.ErrDestroyed) { // the test was about that
		err = nil
	}
	return errors.Join(err, g.dev.in(func() error {
		return errors.Join(driver.Free(g.arena), g.stream.Destroy())
	}))
}

// way is how the rank's device reaches the others.
func (g *gpuRank) way() string {
	e, ok := g.Executor().(*engine)
	switch {
	case !ok:
		return "staged"
	case e.windows.hosted:
		return "hosted"
	}
	return "devices"
}

// each runs f as each rank.
func each(t testing.TB, all []*gpuRank, f func(g *gpuRank) error) {
	t.Helper()
	errs := make([]error, len(all))
	var wg sync.WaitGroup
	for r, g := range all {
		wg.Go(func() {
			if errs[r] = f(g); errs[r] != nil {
				_ = g.Abort()
			}
		})
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

// wait waits for the stream.
func (g *gpuRank) wait() error { return g.dev.in(g.stream.Synchronize) }

// at is memory of the arena.
func (g *gpuRank) at(offset, n int) coll.Buffer {
	return coll.Device(uintptr(g.arena)+uintptr(offset), n)
}

// alloc returns n bytes of zeroed device memory.
func (g *gpuRank) alloc(n int) (coll.Buffer, error) {
	at, err := g.Executor().Alloc(n)
	return coll.Device(at, n), err
}

func (g *gpuRank) free(b coll.Buffer) error { return g.Executor().Free(b.Addr()) }

// A mirror is host memory that stands for device memory while an operation is
// called.
type mirror struct {
	host []byte
	at   driver.Ptr
}

// mirrors puts buffers onto the device, aligned as they are on the host, and
// overlapping as they do there.
func (g *gpuRank) mirrors(send, recv []byte) (s, r mirror, span []mirror) {
	next := g.arena
	place := func(b []byte) mirror {
		if len(b) == 0 {
			return mirror{}
		}
		next = (next+guardBytes+255)&^255 + driver.Ptr(uintptr(unsafe.Pointer(&b[0]))%64)
		m := mirror{b, next}
		next += driver.Ptr(len(b) + guardBytes)
		return m
	}
	a, b := uintptr(unsafe.Pointer(unsafe.SliceData(send))), uintptr(unsafe.Pointer(unsafe.SliceData(recv)))
	if len(send) > 0 && len(recv) > 0 && a < b+uintptr(len(recv)) && b < a+uintptr(len(send)) {
		low := min(a, b)
		n := max(a+uintptr(len(send)), b+uintptr(len(recv))) - low
		first := send
		if b < a {
			first = recv
		}
		m := place(unsafe.Slice(unsafe.SliceData(first), n))
		return mirror{send, m.at + driver.Ptr(a-low)}, mirror{recv, m.at + driver.Ptr(b-low)}, []mirror{m}
	}
	s, r = place(send), place(recv)
	return s, r, []mirror{s, r}
}

func (m mirror) buffer() coll.Buffer { return coll.Device(uintptr(m.at), len(m.host)) }

// on runs an operation on copies of host buffers on the device.
func (g *gpuRank) on(send, recv []byte, o func(s, r coll.Buffer) error) error {
	s, r, span := g.mirrors(send, recv)
	err := g.dev.in(func() error {
		for _, m := range span {
			if len(m.host) == 0 {
				continue
			}
			if err := driver.Memset8Async(m.at-guardBytes, guardByte, len(m.host)+2*guardBytes, g.stream); err != nil {
				return err
			}
			if err := g.stream.Synchronize(); err != nil {
				return err
			}
			if err := driver.CopyToDevice(m.at, m.host); err != nil {
				return err
			}
		}
		return nil
	})
	if err == nil {
		err = o(s.buffer(), r.buffer())
	}
	if err == nil {
		err = g.wait()
	}
	if err == nil {
		err = g.AsyncError()
	}
	if err != nil {
		return err
	}
	return g.dev.in(func() error {
		guards := make([]byte, guardBytes)
		for _, m := range span {
			if len(m.host) == 0 {
				continue
			}
			if err := driver.CopyFromDevice(m.host, m.at); err != nil {
				return err
			}
			for _, at := range [...]driver.Ptr{m.at - guardBytes, m.at + driver.Ptr(len(m.host))} {
				if err := driver.CopyFromDevice(guards, at); err != nil {
					return err
				}
				for i, b := range guards {
					if b != guardByte {
						return fmt.Errorf("byte %d beside a buffer of %d (at %v) was overwritten", i, len(m.host), at)
					}
				}
			}
		}
		return nil
	})
}

// Do does an operation of host buffers on the device.
func (g *gpuRank) Do(o *op.Op) error {
	return g.on(o.Send, o.Recv, func(s, r coll.Buffer) error {
		on := *o
		on.Send, on.Recv, on.Device = op.Memory(s.Addr(), len(o.Send)), op.Memory(r.Addr(), len(o.Recv)), true
		return g.Comm.Do(&on)
	})
}

// conformers opens a world for the suite.
func conformers(w world) func(t *testing.T, n int) []colltest.Comm {
	return func(t *testing.T, n int) []colltest.Comm {
		all := make([]colltest.Comm, n)
		for r, g := range w.open(t) {
			all[r] = g
		}
		return all
	}
}

// limit is the length of the longest messages of tests, for slow machines.
func limit(n int) int {
	if s, err := strconv.Atoi(os.Getenv("ASSAY_GPU_TEST_LIMIT")); err == nil {
		return min(n, s)
	}
	return n
}

// lock keeps a test's goroutine on its thread, as most programs with a GPU do.
func lock(t testing.TB) {
	runtime.LockOSThread()
	t.Cleanup(runtime.UnlockOSThread)
}
