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

	"github.com/assay-hpc/assay/internal/meet"
)

// maxQueued bounds what may wait to be sent on a link before reports are
// dropped, in bytes. Exchanges are not bounded by it: their data is in memory
// anyway.
const maxQueued = 4 << 20

// A link is a connection to a neighbour. Whoever wants to send appends to a
// queue; write sends what is in it, and heartbeats. read gives what comes to
// the Net, and finds out when the neighbour is gone. Neither waits for the
// other, and only write waits for the network.
//
//	open ──finish──▶ last words in the queue ──▶ CloseWrite ──▶ until EOF, or the deadline ──▶ closed
type link struct {
	owner   owner
	silence time.Duration // of the neighbour, that is taken for its death
	rank    int
	conn    net.Conn
	limit   int           // of a frame's payload, in bytes
	left    atomic.Bool   // the neighbour has said that it leaves
	done    chan struct{} // closed when read and write have ended

	mu       sync.Mutex
	queue    net.Buffers
	queued   int
	closed   bool // nothing more may be queued
	broken   error
	wake     chan struct{} // holds a token when there is something to do
	running  int           // of read and write
	deadline time.Time     // set by finish
}

// An owner is what a link's neighbour talks to.
type owner interface {
	// handle does what a frame asks for. An error ends the link.
	handle(l *link, k meet.Kind, p []byte) error
	// lost is told once that the link broke before the neighbour had left.
	lost(l *link, err error)
}

func newLink(by owner, silence time.Duration, rank int, c net.Conn) *link {
	return &link{owner: by, silence: silence, rank: rank, conn: c, limit: maxFrame, wake: make(chan struct{}, 1), done: make(chan struct{}), running: 2}
}

// start has the link read and write until it ends.
func (l *link) start(wg *sync.WaitGroup) {
	wg.Go(l.read)
	wg.Go(l.write)
}

// send queues a frame. The payload must not change any more.
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

// full reports whether so much waits that what may be dropped should be.
func (l *link) full() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.queued > maxQueued
}

// finish queues the last word, after which the link closes itself.
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

// write sends what is queued, and a heartbeat when there is nothing for a
// quarter of the silence that the neighbour would endure.
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

// take returns what is queued, and whether nothing will come after it.
func (l *link) take() (net.Buffers, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	batch := l.queue
	l.queue, l.queued = nil, 0
	return batch, l.closed
}

// breakOff closes the connection because of err, and returns the first err, which
// counts.
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

// drop closes the connection without a word, which is no loss.
func (l *link) drop() {
	l.left.Store(true)
	l.breakOff(net.ErrClosed)
}

// ended is the last thing that read and write do.
func (l *link) ended() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.running--; l.running == 0 {
		l.conn.Close()
		close(l.done)
	}
}

// Read is for read: every arrival of anything starts the silence anew.
func (l *link) Read(p []byte) (int, error) {
	l.mu.Lock()
	if l.deadline.IsZero() {
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
			return // it may still listen: write goes on until this rank leaves
		}
		err = l.breakOff(err)
		if !l.left.Load() {
			l.owner.lost(l, err)
		}
		return
	}
}

func isTimeout(err error) bool { return errors.Is(err, os.ErrDeadlineExceeded) }

// handle does what a neighbour's frame asks for. An error ends the link.
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
