package socket

import (
	"io"
	"time"

	"golang.org/x/sys/unix"
)

// The watcher checks all streams periodically, while others use them: the streams of
// senders, where nothing reads the reverse direction, and streams to peers that have
// vanished silently. It reports as lost
//
//   - a stream that was reset, or that keep-alive gave up on;
//   - a receiver's end that was closed without a goodbye;
//   - a peer that for Timeout acknowledges neither data nor the probes of its closed
//     window, after the kernel has repeated at least two. A peer that answers the probes
//     is late, not lost.

// TCP states of linux/tcp_states.h.
const (
	tcpClose     = 7
	tcpCloseWait = 8
)

// A stall records since when a peer has owed an acknowledgment.
type stall struct{ since time.Time }

// silent returns for how long the peer has been silent.
func (s *stall) silent(i *unix.TCPInfo, now time.Time) time.Duration {
	outstanding := i.Unacked > 0 || i.Probes > 0
	heard := now.Add(-time.Duration(i.Last_ack_recv) * time.Millisecond)
	switch {
	case !outstanding:
		s.since = time.Time{}
		return 0
	case s.since.IsZero():
		s.since = now
	case heard.After(s.since):
		s.since = heard
	}
	if i.Retransmits < 2 && i.Probes < 2 {
		return 0
	}
	return now.Sub(s.since)
}

// watch runs until Close.
func (e *Endpoint) watch() {
	tick := time.NewTicker(min(max(e.opt.Timeout/8, 20*time.Millisecond), time.Second))
	defer tick.Stop()
	var tx []*Tx
	var rx []*Rx
	for {
		select {
		case <-e.ctx.Done():
			return
		case <-tick.C:
		}
		tx, rx = tx[:0], rx[:0]
		e.mu.Lock()
		tx = append(tx, e.tx...)
		for _, r := range e.rx {
			rx = append(rx, r)
		}
		e.mu.Unlock()
		now := time.Now()
		for _, t := range tx {
			t.checkSilence(now)
		}
		for _, r := range rx {
			r.checkSilence(now)
		}
	}
}

// checkSilence is the watcher's check of a sender.
func (t *Tx) checkSilence(now time.Time) {
	t.mu.Lock()
	defer t.unlock()
	for k := range t.out {
		if t.dead() || t.gone {
			return
		}
		s := &t.out[k]
		state := t.inspect(s.fd, &s.stall, now)
		if k == 0 && (state == tcpCloseWait || state == tcpClose) {
			if err := t.hear(); err != nil {
				t.failed(err)
			}
		}
	}
}

// checkSilence is the watcher's check of a receiver. It reports the end of the stream only if no
// messages are left to read; otherwise Peek and Done find it after them.
func (r *Rx) checkSilence(now time.Time) {
	r.mu.Lock()
	defer r.unlock()
	for k := range r.in {
		if r.dead() || r.gone {
			return
		}
		s := &r.in[k]
		state := r.inspect(s.fd, &s.stall, now)
		if k == 0 && state == tcpCloseWait && s.w == s.r {
			var b [1]byte
			if n, _, err := unix.Recvfrom(s.fd, b[:], unix.MSG_PEEK|unix.MSG_DONTWAIT); n == 0 && err == nil {
				r.failed(io.EOF)
			}
		}
	}
}

// inspect returns a stream's TCP state, and breaks the connection if the stream has
// failed or the peer has been silent for Timeout.
func (c *conn) inspect(fd int, s *stall, now time.Time) uint8 {
	i, err := unix.GetsockoptTCPInfo(fd, unix.IPPROTO_TCP, unix.TCP_INFO)
	if err != nil {
		return 0
	}
	if i.State == tcpClose {
		if n, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ERROR); err == nil && n != 0 {
			c.failed(unix.Errno(n))
		}
	} else if d := s.silent(i, now); d >= c.e.opt.Timeout {
		c.fail("its host does not answer", d)
	}
	return i.State
}
