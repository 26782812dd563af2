package colltest

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// A Wire is a Net with packets that pass through this process, which loses, delays and drops
// them. It needs neither traffic control nor a packet filter in the kernel, which many kernels
// lack. All methods may be called at any time.
type Wire struct {
	*Net
	ends    [2]*os.File
	loss    atomic.Uint64 // of 2^32
	delay   atomic.Int64
	cut     atomic.Bool
	passed  atomic.Int64
	dropped atomic.Int64
	wg      sync.WaitGroup
}

// maxQueue is the number of packets in flight in one direction above which more are lost, as in a
// router. It holds 50 ms of 1 Gb/s.
const maxQueue = 1 << 12

// NewWire creates two namespaces with a wire between them. The test is skipped, with the reason,
// if that is not possible.
func NewWire(t testing.TB) *Wire {
	t.Helper()
	w := &Wire{Net: newNet(t)}
	names := w.endNames()
	for side, name := range names {
		f, err := openTun(name)
		if errors.Is(err, os.ErrNotExist) || errors.Is(err, os.ErrPermission) {
			t.Skipf("no TUN devices here: %v", err)
		} else if err != nil {
			t.Fatal(err)
		}
		w.ends[side] = f
		t.Cleanup(func() { f.Close() })
	}
	w.adopt(t, names)
	for side := range 2 {
		w.carry(side)
	}
	t.Cleanup(func() {
		w.ends[0].Close()
		w.ends[1].Close()
		w.wg.Wait()
	})
	return w
}

// openTun creates a network interface. Its packets are read from and written to the file.
func openTun(name string) (*os.File, error) {
	fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: "/dev/net/tun", Err: err}
	}
	req, err := unix.NewIfreq(name)
	if err == nil {
		req.SetUint16(unix.IFF_TUN | unix.IFF_NO_PI)
		err = unix.IoctlIfreq(fd, unix.TUNSETIFF, req)
	}
	if err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("tun device %s: %w", name, err)
	}
	return os.NewFile(uintptr(fd), "/dev/net/tun"), nil
}

// A packet is in flight until due.
type packet struct {
	data []byte
	due  time.Time
}

// carry moves packets from one side to the other, in order.
func (w *Wire) carry(from int) {
	queue := make(chan packet, maxQueue)
	rng := rand.New(rand.NewPCG(uint64(from), 1))
	w.wg.Go(func() {
		defer close(queue)
		buf := make([]byte, 1<<16)
		for {
			n, err := w.ends[from].Read(buf)
			if err != nil {
				return
			}
			if w.cut.Load() || uint64(rng.Uint32()) < w.loss.Load() {
				w.dropped.Add(1)
				continue
			}
			select {
			case queue <- packet{bytes.Clone(buf[:n]), time.Now().Add(time.Duration(w.delay.Load()))}:
			default:
				w.dropped.Add(1)
			}
		}
	})
	w.wg.Go(func() {
		for p := range queue {
			time.Sleep(time.Until(p.due))
			if w.cut.Load() {
				w.dropped.Add(1)
				continue
			}
			if _, err := w.ends[1-from].Write(p.data); err != nil {
				w.dropped.Add(1)
				continue
			}
			w.passed.Add(1)
		}
	})
}

// Loss sets the share of packets that are lost, each way: 0.01 is 1 %.
func (w *Wire) Loss(share float64) { w.loss.Store(uint64(share * (1 << 32))) }

// Delay sets how long packets take, each way.
func (w *Wire) Delay(d time.Duration) { w.delay.Store(int64(d)) }

// Cut drops all packets in both directions, including those in flight. Neither side is notified:
// connections are half open from then on.
func (w *Wire) Cut() { w.cut.Store(true) }
