package socket

import (
	"fmt"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// A helper is a goroutine that moves pieces of large messages beside the
// caller. It owns its streams while they have work: that passes to and fro by
// atomic state, and never by a lock, so that neither side waits for the other.
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

// helperSpins is how many fruitless tries go before sleep: a few microseconds,
// as long as a wake-up takes.
const helperSpins = 20

// share starts the helpers of a connection, which have its streams 1, 2, … among
// them. They try theirs by step, which reports whether bytes moved. Fd tells of the
// other streams: all of them where there are no helpers. After an error, the
// helpers that are there are to be ended.
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

// epollAdd adds a descriptor to those that an epoll descriptor tells of, by edges.
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
		// Who gives work after this sees that a kick is needed; who did before
		// is seen by the last step.
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

// signal adds one to an eventfd. Nobody reads them: the edge is what counts.
func signal(event int) { unix.Write(event, one) }
