package socket

import (
	"fmt"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// A helper is a goroutine that moves pieces of large messages in parallel with the
// caller. It owns its streams while they have work. Ownership changes by atomic state,
// and never by a lock, so that neither side waits for the other.
//
// Without work it spins for a moment, and then sleeps in its own epoll until
// a stream is ready or kick is called.
type helper struct {
	from, to     int // its streams
	epoll, event int
	step         func() bool // tries all streams; reports whether bytes moved
	asleep, stop atomic.Bool
	ended        chan struct{}
}

// helperSpins is the number of unsuccessful tries before sleep: a few microseconds, as
// long as a wake-up takes.
const helperSpins = 20

// share starts the helpers of a connection, and distributes streams 1, 2, … among them. A
// helper moves data by step, which reports whether bytes moved. Fd covers the other
// streams, or all streams if there are no helpers. After an error, the caller must end
// the helpers that were returned.
func (e *Endpoint) share(fds []int, events uint32, step func(from, to int) bool) (helpers []*helper, err error) {
	data := len(fds) - 1
	n := min(e.opt.Threads, data)
	for i := range n {
		from, to := 1+i*data/n, 1+(i+1)*data/n
		h := &helper{from: from, to: to, epoll: -1, event: -1, step: func() bool { return step(from, to) }, ended: make(chan struct{})}
		if err := h.open(fds[from:to], events); err != nil {
			close(h.ended)
			h.end()
			return helpers, fmt.Errorf("socket: helper: %w", err)
		}
		go h.run()
		helpers = append(helpers, h)
	}
	if n > 0 {
		fds = fds[:1]
	}
	for _, fd := range fds {
		if err := epollAdd(e.epoll, fd, events); err != nil {
			return helpers, fmt.Errorf("socket: epoll: %w", err)
		}
	}
	return helpers, nil
}

// epollAdd adds a descriptor to an epoll descriptor, edge triggered.
func epollAdd(epoll, fd int, events uint32) error {
	return unix.EpollCtl(epoll, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{Events: events | unix.EPOLLET, Fd: int32(fd)})
}

func (h *helper) open(fds []int, events uint32) (err error) {
	if h.epoll, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err != nil {
		return err
	}
	if h.event, err = unix.Eventfd(0, unix.EFD_NONBLOCK|unix.EFD_CLOEXEC); err != nil {
		return err
	}
	if err := epollAdd(h.epoll, h.event, unix.EPOLLIN); err != nil {
		return err
	}
	for _, fd := range fds {
		if err := epollAdd(h.epoll, fd, events); err != nil {
			return err
		}
	}
	return nil
}

func (h *helper) run() {
	defer close(h.ended)
	var ev [8]unix.EpollEvent
	for idle := 0; !h.stop.Load(); idle++ {
		if h.step() {
			idle = 0
		}
		if idle < helperSpins {
			continue
		}
		// A caller that adds work after this store sees that a kick is needed. Work that
		// was added before it is found by the step below.
		h.asleep.Store(true)
		if !h.step() && !h.stop.Load() {
			unix.EpollWait(h.epoll, ev[:], -1)
		}
		h.asleep.Store(false)
		idle = 0
	}
}

// kick wakes the helper if it sleeps.
func (h *helper) kick() {
	if h.asleep.Load() {
		signal(h.event)
	}
}

// end stops the helper and waits for it.
func (h *helper) end() {
	h.stop.Store(true)
	if h.event >= 0 {
		signal(h.event)
	}
	<-h.ended
	for _, fd := range []int{h.epoll, h.event} {
		if fd >= 0 {
			unix.Close(fd)
		}
	}
}

var one = []byte{1, 0, 0, 0, 0, 0, 0, 0}

// signal adds one to an eventfd. The value is never read: only the edge matters.
func signal(event int) { unix.Write(event, one) }
