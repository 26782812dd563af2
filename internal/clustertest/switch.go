package clustertest

import (
	"bytes"
	"container/heap"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"runtime"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// frameHeader is the size of an Ethernet header.
const frameHeader = 14

// wires is the switch of a cluster, in this process: each host's eth0 is a TAP device, whose frames
// go through the pipes of the sender's link, of the way and of the receiver's link. Linux has all
// of that in netem, which not every kernel is built with.
type wires struct {
	begun time.Time

	mu            sync.Mutex
	rng           *rand.Rand
	send, receive []pipe // by host
	paths         map[[2]int]*pipe
	cut           []bool
	ports         []*port // nil: the host is off
}

func newWires(hosts int) *wires {
	return &wires{
		begun: time.Now(), rng: rand.New(rand.NewPCG(uint64(time.Now().UnixNano()), 1)),
		send: make([]pipe, hosts), receive: make([]pipe, hosts), paths: map[[2]int]*pipe{}, cut: make([]bool, hosts), ports: make([]*port, hosts),
	}
}

func (w *wires) set(change func(*wires)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	change(w)
}

// mac is the address of a host's device.
func mac(host int) net.HardwareAddr { return net.HardwareAddr{2, 0, 0, 0, 0, byte(host + 1)} }

// A port is a host's device with the frames that are on their way to it.
type port struct {
	tap    *os.File
	wake   chan struct{} // an earlier frame than all others came
	closed chan struct{}

	mu     sync.Mutex
	frames frames
	number int
}

// plug connects the TAP device of a host.
func (w *wires) plug(host int, tap *os.File) {
	p := &port{tap: tap, wake: make(chan struct{}, 1), closed: make(chan struct{})}
	w.set(func(w *wires) { w.ports[host], w.cut[host] = p, false })
	go w.listen(host, p)
	go p.deliver(w.begun)
}

// unplug closes it.
func (w *wires) unplug(host int) {
	w.set(func(w *wires) {
		if p := w.ports[host]; p != nil {
			close(p.closed)
			p.tap.Close()
		}
		w.ports[host] = nil
	})
}

// listen forwards what a host sends.
func (w *wires) listen(host int, p *port) {
	buf := make([]byte, 1<<16)
	for {
		n, err := p.tap.Read(buf)
		if errors.Is(err, unix.EIO) || errors.Is(err, unix.EBADFD) { // the device is not up yet
			time.Sleep(time.Millisecond)
			continue
		}
		if err != nil {
			return
		}
		if n >= frameHeader {
			w.forward(host, buf[:n], time.Since(w.begun))
		}
	}
}

func (w *wires) forward(from int, frame []byte, now time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	to := net.HardwareAddr(frame[:6])
	for host, p := range w.ports {
		if p == nil || host == from || w.cut[from] || w.cut[host] || to[0]&1 == 0 && !bytes.Equal(to, mac(host)) {
			continue
		}
		path := w.paths[[2]int{from, host}]
		if path == nil {
			path = &pipe{}
		}
		mine := append([]byte(nil), frame...)
		at, copies := now, 1
		for _, part := range []*pipe{&w.send[from], path, &w.receive[host]} {
			var twice, passes bool
			if at, twice, passes = part.pass(at, mine, w.rng); !passes {
				copies = 0
				break
			}
			if twice {
				copies++
			}
		}
		for range copies {
			p.add(mine, at)
		}
	}
}

// add takes a frame that arrives at a time.
func (p *port) add(b []byte, at time.Duration) {
	p.mu.Lock()
	p.number++
	heap.Push(&p.frames, frame{at, p.number, b})
	first := p.frames[0].number == p.number
	p.mu.Unlock()
	if first {
		select {
		case p.wake <- struct{}{}:
		default:
		}
	}
}

// deliver writes frames when their time has come.
func (p *port) deliver(begun time.Time) {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		p.mu.Lock()
		wait := time.Hour
		var due [][]byte
		for now := time.Since(begun); len(p.frames) > 0; {
			if wait = p.frames[0].at - now; wait > 0 {
				break
			}
			due = append(due, heap.Pop(&p.frames).(frame).data)
		}
		p.mu.Unlock()
		for _, b := range due {
			_, _ = p.tap.Write(b) // a host that is not up, or has no memory, loses it
		}
		if len(due) > 0 {
			continue
		}
		timer.Reset(wait)
		select {
		case <-timer.C:
		case <-p.wake:
		case <-p.closed:
			return
		}
	}
}

type frame struct {
	at     time.Duration
	number int // frames of one time stay in order
	data   []byte
}

type frames []frame

func (f frames) Len() int { return len(f) }
func (f frames) Less(i, j int) bool {
	return f[i].at < f[j].at || f[i].at == f[j].at && f[i].number < f[j].number
}
func (f frames) Swap(i, j int) { f[i], f[j] = f[j], f[i] }
func (f *frames) Push(x any)   { *f = append(*f, x.(frame)) }
func (f *frames) Pop() any {
	old := *f
	last := old[len(old)-1]
	old[len(old)-1].data = nil
	*f = old[:len(old)-1]
	return last
}

// newTap creates the TAP device eth0 in the network namespace of a process.
func newTap(pid int) (tap *os.File, err error) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // and never unlocked: the thread ends with its namespace
		tap, err = tapIn(fmt.Sprintf("/proc/%d/ns/net", pid))
	}()
	<-done
	return tap, err
}

func tapIn(netns string) (*os.File, error) {
	ns, err := os.Open(netns)
	if err != nil {
		return nil, err
	}
	defer ns.Close()
	if err := unix.Setns(int(ns.Fd()), unix.CLONE_NEWNET); err != nil {
		return nil, fmt.Errorf("%s: %w", netns, err)
	}
	fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("/dev/net/tun: %w", err)
	}
	req, err := unix.NewIfreq("eth0")
	if err == nil {
		req.SetUint16(unix.IFF_TAP | unix.IFF_NO_PI)
		err = unix.IoctlIfreq(fd, unix.TUNSETIFF, req)
	}
	if err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("/dev/net/tun: a TAP device: %w", err)
	}
	return os.NewFile(uintptr(fd), "tap"), nil
}
