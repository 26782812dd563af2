//go:build cgo && linux

package probe

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/assay-hpc/assay/internal/verbs"
)

// A link is the control channel over rdma_cm: a reliable QP on which each write sends one message.
// It is a net.Conn for package wire. Only one goroutine at a time may read and write; Close and
// deadlines may be used from any goroutine.
type link struct {
	id   *verbs.CMID
	pd   *verbs.PD
	cq   *verbs.CQ
	qp   *verbs.QP
	mem  []byte
	mr   *verbs.MR
	send *verbs.Sends
	recv *verbs.Recvs

	busy     sync.Mutex // held during work with the queues
	inbox    []message
	sent     bool // the sent message has arrived
	failed   error
	closed   atomic.Bool
	deadline atomic.Pointer[time.Time]
	ended    bool // everything is freed
}

// A message is the unread rest of a received message.
type message struct {
	slot int
	rest []byte
}

const (
	linkSlots = 4   // messages that may arrive before one is read
	linkBytes = 512 // the longest message, which is the parameter block
	sendID    = 100
)

// slice is the longest wait in the kernel. After it, changed deadlines and a Close take effect.
const slice = 20 * time.Millisecond

// newLink creates the QP of a connection and posts its receives.
func newLink(id *verbs.CMID) (l *link, err error) {
	l = &link{id: id}
	defer func() {
		if err != nil {
			l.free()
		}
	}()
	if l.pd, err = id.Context().PD(); err != nil {
		return nil, err
	}
	if l.mem, err = verbs.Alloc((linkSlots+1)*linkBytes, false); err != nil {
		return nil, err
	}
	if l.mr, err = l.pd.Register(verbs.Address(l.mem), len(l.mem), verbs.LocalWrite); err != nil {
		return nil, err
	}
	if l.cq, err = id.Context().CQ(2*linkSlots+4, true, 0); err != nil {
		return nil, err
	}
	if l.qp, err = id.QP(l.pd, verbs.QPOptions{Transport: verbs.RC, SendCQ: l.cq, RecvCQ: l.cq, Sends: 1, Recvs: linkSlots}); err != nil {
		return nil, err
	}
	if l.send, err = verbs.NewSends(1, 1); err != nil {
		return nil, err
	}
	if l.recv, err = verbs.NewRecvs(linkSlots, 1); err != nil {
		return nil, err
	}
	w := l.send.WR
	w[0].ID, w[0].Flags = sendID, verbs.Signaled
	w[0].Send()
	for i := range linkSlots {
		l.recv.WR[i].ID = uint64(i)
		l.recv.SGE[i] = verbs.SGE{Address: l.mr.Address + uint64(i*linkBytes), Length: linkBytes, LKey: l.mr.LKey}
		if err := l.qp.PostRecv(&l.recv.WR[i]); err != nil {
			return nil, err
		}
	}
	return l, nil
}

// Gone is closed when the peer has ended the connection.
func (l *link) Gone() <-chan struct{} { return l.id.Gone() }

// poll handles completed requests.
func (l *link) poll() {
	var wc [2 * linkSlots]verbs.WC
	n, err := l.cq.Poll(wc[:])
	if err != nil {
		l.failed = err
		return
	}
	for i := range wc[:n] {
		w := &wc[i]
		switch {
		case w.Flushed() && l.failed == nil:
			l.failed = io.EOF
		case !w.OK():
			if l.failed == nil || l.failed == io.EOF && !w.Flushed() {
				l.failed = l.cq.Failed(w, l.id.Port())
			}
		case w.ID == sendID:
			l.sent = true
		default:
			at := int(w.ID) * linkBytes
			l.inbox = append(l.inbox, message{int(w.ID), l.mem[at : at+int(w.Bytes)]})
		}
	}
}

// wait polls until happened returns true, at most until the deadline.
func (l *link) wait(happened func() bool) error {
	for armed := false; ; {
		gone := isGone(l.Gone())
		l.poll()
		switch {
		case happened():
			return nil
		case l.closed.Load():
			return net.ErrClosed
		case l.failed != nil:
			return l.failed
		case gone:
			return io.EOF
		}
		if d := l.deadline.Load(); d != nil && !d.IsZero() && !time.Now().Before(*d) {
			return os.ErrDeadlineExceeded
		}
		// A completion between the poll and Notify causes no event, so poll once more.
		if !armed {
			if err := l.cq.Notify(); err != nil {
				return err
			}
			armed = true
			continue
		}
		event, err := l.cq.Wait(slice)
		if err != nil {
			return err
		}
		armed = !event
	}
}

func isGone(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// Read reads from the oldest message.
func (l *link) Read(b []byte) (int, error) {
	l.busy.Lock()
	defer l.busy.Unlock()
	if l.ended {
		return 0, net.ErrClosed
	}
	if err := l.wait(func() bool { return len(l.inbox) > 0 }); err != nil {
		return 0, err
	}
	m := &l.inbox[0]
	n := copy(b, m.rest)
	m.rest = m.rest[n:]
	if len(m.rest) > 0 {
		return n, nil
	}
	slot := m.slot
	l.inbox = l.inbox[1:]
	return n, l.qp.PostRecv(&l.recv.WR[slot])
}

// Write sends one message and waits until it has arrived.
func (l *link) Write(b []byte) (int, error) {
	l.busy.Lock()
	defer l.busy.Unlock()
	if l.ended {
		return 0, net.ErrClosed
	}
	if len(b) > linkBytes {
		return 0, fmt.Errorf("a message over rdma_cm has at most %d bytes, not %d", linkBytes, len(b))
	}
	at := linkSlots * linkBytes
	copy(l.mem[at:], b)
	l.send.SGE[0] = verbs.SGE{Address: l.mr.Address + uint64(at), Length: uint32(len(b)), LKey: l.mr.LKey}
	l.sent = false
	if err := l.qp.PostSend(&l.send.WR[0]); err != nil {
		return 0, err
	}
	if err := l.wait(func() bool { return l.sent }); err != nil {
		return 0, err
	}
	return len(b), nil
}

// Close closes the connection. A second call does nothing.
func (l *link) Close() error {
	l.closed.Store(true)
	l.busy.Lock()
	defer l.busy.Unlock()
	if l.ended {
		return nil
	}
	l.ended = true
	_ = l.id.Disconnect() // fails if the peer has disconnected already
	return errors.Join(l.free(), l.id.Close())
}

// free frees all resources except the id.
func (l *link) free() error {
	var errs []error
	if l.qp != nil {
		errs = append(errs, l.qp.Close())
	}
	if l.send != nil {
		errs = append(errs, l.send.Close())
	}
	if l.recv != nil {
		errs = append(errs, l.recv.Close())
	}
	if l.cq != nil {
		errs = append(errs, l.cq.Close())
	}
	if l.mr != nil {
		errs = append(errs, l.mr.Close())
	}
	if l.mem != nil {
		errs = append(errs, verbs.Free(l.mem))
	}
	if l.pd != nil {
		errs = append(errs, l.pd.Close())
	}
	return errors.Join(errs...)
}

func (l *link) LocalAddr() net.Addr  { return net.TCPAddrFromAddrPort(l.id.Local()) }
func (l *link) RemoteAddr() net.Addr { return net.TCPAddrFromAddrPort(l.id.Remote()) }

// SetDeadline and the setters for one direction all set the same deadline.
func (l *link) SetDeadline(t time.Time) error      { l.deadline.Store(&t); return nil }
func (l *link) SetReadDeadline(t time.Time) error  { return l.SetDeadline(t) }
func (l *link) SetWriteDeadline(t time.Time) error { return l.SetDeadline(t) }

// acceptLink accepts a request and creates its link.
func acceptLink(ctx context.Context, id *verbs.CMID) (*link, error) {
	l, err := newLink(id)
	if err != nil {
		return nil, errors.Join(err, id.Close())
	}
	if err := id.Accept(ctx, verbs.CMOptions{Retries: 7, RNRRetry: 7}); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}
