package bootstrap

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/assay-hpc/assay/internal/meet"
)

// maxQueued is how many bytes may be queued on a link before reports are dropped. It does
// not limit exchanges: their data is in memory anyway.
const maxQueued = 4 << 20

// A link is a connection to a neighbour. Senders append to a queue; write sends the
// queue, and heartbeats. read passes incoming frames to the owner, and detects that the
// neighbour is gone. Neither waits for the other, and only write waits for the network.
//
//	open ──finish──▶ last words in the queue ──▶ CloseWrite ──▶ until EOF, or the deadline ──▶ closed
type link struct {
	owner   owner
	silence time.Duration // after so long without a sign of it the neighbour counts as dead
	hosts   bool          // the sign is its kernel's, not a frame of the process: see ofHost
	rank    int
	conn    net.Conn
	limit   int           // of a frame's payload, in bytes
	left    atomic.Bool   // the neighbour has said that it leaves
	done    chan struct{} // closed when read and write have ended

	mu       sync.Mutex
	queue    net.Buffers
	queued   int
	writing  bool // what take has returned
	closed   bool // nothing more may be queued
	broken   error
	wake     chan struct{} // holds a token when there is something to do
	running  int           // how many of read and write run
	deadline time.Time     // set by finish
}

// An owner handles the frames of a link's neighbour, and its loss.
type owner interface {
	// handle processes a frame. An error ends the link.
	handle(l *link, k meet.Kind, p []byte) error
	// lost is called once if the link broke before the neighbour had left.
	lost(l *link, err error)
}

func newLink(by owner, silence time.Duration, rank int, c net.Conn) *link {
	return &link{owner: by, silence: silence, rank: rank, conn: c, limit: maxFrame, wake: make(chan struct{}, 1), done: make(chan struct{}), running: 2}
}

// ofHost makes the neighbour count as dead only when its host does not acknowledge heartbeats for
// so long: a process that is stopped, by a debugger or with its container, may continue.
func (l *link) ofHost() *link {
	l.hosts = true
	if t, ok := l.conn.(*net.TCPConn); ok {
		if raw, err := t.SyscallConn(); err == nil {
			_ = raw.Control(func(fd uintptr) {
				_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, max(1, int(l.silence.Milliseconds())))
			})
		}
	}
	return l
}

// start runs read and write until the link ends.
func (l *link) start(wg *sync.WaitGroup) {
	wg.Go(l.read)
	wg.Go(l.write)
}

// send queues a frame. The payload must not change afterwards.
func (l *link) send(k meet.Kind, payload []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return
	}
	l.appendLocked(k, payload)
}

func (l *link) appendLocked(k meet.Kind, payload []byte) {
	for _, b := range meet.Frame(k, payload) {
		l.queue = append(l.queue, b)
		l.queued += len(b)
	}
	l.poke()
}

func (l *link) poke() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// full reports whether the queue is so long that frames that may be dropped should be.
func (l *link) full() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.queued > maxQueued
}

// finish queues the last frame, after which the link closes itself.
func (l *link) finish(k meet.Kind, payload []byte, deadline time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		if l.deadline.IsZero() || deadline.Before(l.deadline) {
			l.limitLocked(deadline)
		}
		return
	}
	l.appendLocked(k, payload)
	l.closed = true
	l.limitLocked(deadline)
}

func (l *link) limitLocked(deadline time.Time) {
	l.deadline = deadline
	l.conn.SetDeadline(deadline)
}

// write sends the queue. While it is empty, write sends a heartbeat every quarter of the
// silence after which the neighbour would count this rank as dead.
func (l *link) write() {
	defer l.ended()
	beat := time.NewTicker(max(l.silence/4, time.Millisecond))
	defer beat.Stop()
	for {
		batch, last := l.take()
		if len(batch) > 0 {
			if _, err := batch.WriteTo(l.conn); err != nil {
				l.breakOff(err)
				return
			}
			continue
		}
		if last {
			if t, ok := l.conn.(*net.TCPConn); ok {
				t.CloseWrite()
			}
			return
		}
		select {
		case <-l.wake:
		case <-beat.C:
			l.send(frameBeat, nil)
		}
	}
}

// take returns the queue, and whether nothing will be queued after it.
func (l *link) take() (net.Buffers, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	batch := l.queue
	l.queue, l.queued, l.writing = nil, 0, len(l.queue) > 0
	return batch, l.closed
}

// sent reports whether the kernel has everything that was queued, or nothing more is sent.
func (l *link) sent() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.queue) == 0 && !l.writing || l.broken != nil
}

// breakOff closes the connection because of err. It returns the link's first error, which
// is the one that counts.
func (l *link) breakOff(err error) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.broken == nil {
		l.broken = err
	}
	l.closed = true
	l.queue = nil
	l.poke()
	l.conn.Close()
	return l.broken
}

// drop closes the connection without a goodbye. That does not count as a loss.
func (l *link) drop() {
	l.left.Store(true)
	l.breakOff(net.ErrClosed)
}

// ended is the last call of read and of write.
func (l *link) ended() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.running--; l.running == 0 {
		l.conn.Close()
		close(l.done)
	}
}

// Read is for read: each call restarts the silence timeout.
func (l *link) Read(p []byte) (int, error) {
	l.mu.Lock()
	if l.deadline.IsZero() && !l.hosts {
		l.conn.SetReadDeadline(time.Now().Add(l.silence))
	}
	l.mu.Unlock()
	return l.conn.Read(p)
}

func (l *link) read() {
	defer l.ended()
	r := bufio.NewReaderSize(l, 4096)
	for {
		k, p, err := meet.ReadFrame(r, l.limit)
		if err == nil {
			err = l.owner.handle(l, k, p)
		}
		if err == nil {
			continue
		}
		if l.left.Load() && err == io.EOF {
			return // the neighbour may still read: write continues until this rank leaves
		}
		err = l.breakOff(err)
		if !l.left.Load() {
			l.owner.lost(l, err)
		}
		return
	}
}

// isTimeout reports whether a link broke because there was no sign of the neighbour.
func isTimeout(err error) bool {
	return errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, unix.ETIMEDOUT)
}

// handle processes a neighbour's frame. An error ends the link.
func (n *Net) handle(l *link, k meet.Kind, p []byte) error {
	switch k {
	case frameBeat:
		return nil
	case framePart:
		return n.part(l, p)
	case frameDeath:
		return n.heardOfDeath(l, p)
	case frameReport:
		return n.heardReport(l, p)
	case frameLeave:
		l.left.Store(true)
		n.neighbourLeft(l)
		return nil
	case frameAbort:
		return n.neighbourAborted(l, p)
	}
	return fmt.Errorf("it sent a frame of unknown kind %d", k)
}
