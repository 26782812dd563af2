package socket

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"

	"github.com/assay-hpc/assay/coll/transport"
)

// dialPatience bounds the attempt on one of several pairs of addresses.
const dialPatience = 5 * time.Second

// dialTries is how often one pair is tried when the acceptor hangs up: one
// that is overrun by strangers may have hung up on the wrong peer.
const dialTries = 3

// Tx dials the peer's listener, once for each stream.
func (e *Endpoint) Tx(ctx context.Context, peer int, data []byte, channel int) (transport.Tx, error) {
	i, err := parseInfo(data)
	if err != nil {
		return nil, fmt.Errorf("socket: info of rank %d: %w", peer, err)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(e.ctx, cancel)()

	t := newTx(e, peer, min(e.opt.MaxMessage, i.maxMessage))
	h := hello{source: e.opt.Rank, dest: peer, channel: channel, streams: e.opt.streams()}
	fds := make([]int, 0, h.streams)
	for ; err == nil && h.index < h.streams; h.index++ {
		var fd int
		if fd, err = e.dialAny(ctx, pairs(e.opt.Addrs, i.addrs), h); err == nil {
			fds = append(fds, fd)
		}
	}
	if err != nil {
		for _, fd := range fds {
			unix.Close(fd)
		}
		return nil, fmt.Errorf("socket: rank %d to rank %d, channel %d: %w", h.source, peer, channel, err)
	}
	if err := t.open(fds); err != nil {
		t.close()
		return nil, err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		t.close()
		return nil, net.ErrClosed
	}
	e.tx = append(e.tx, t)
	return t, nil
}

// dialAny tries the pairs of addresses, beginning with the one that is the
// stream's in turn.
func (e *Endpoint) dialAny(ctx context.Context, list []pair, h hello) (int, error) {
	if len(list) == 0 {
		return -1, errors.New("there is no pair of addresses of one family")
	}
	var errs []error
	for i := range list {
		p := list[(h.index+i)%len(list)]
		if e.isBad(p) {
			continue
		}
		fd, err := e.dialPair(ctx, p, h, len(list) > 1)
		if err == nil {
			return fd, nil
		}
		if ctx.Err() != nil {
			return -1, errors.Join(context.Cause(ctx), err)
		}
		errs = append(errs, fmt.Errorf("from %v to %v: %w", p.local, p.remote, err))
		if len(list) > 1 {
			e.markBad(p)
			e.opt.Logf("socket: rank %d cannot be reached from %v at %v (%v); other addresses carry its streams", h.dest, p.local, p.remote, err)
		}
	}
	if errs == nil {
		return -1, fmt.Errorf("none of %d pairs of addresses connects", len(list))
	}
	return -1, errors.Join(errs...)
}

func (e *Endpoint) isBad(p pair) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.bad[p]
}

func (e *Endpoint) markBad(p pair) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.bad[p] = true
}

// dialPair opens a stream between two addresses. If there are others, it does
// not try for long.
func (e *Endpoint) dialPair(ctx context.Context, p pair, h hello, others bool) (fd int, err error) {
	if others {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, dialPatience)
		defer cancel()
	}
	for try := range dialTries {
		fd, err = e.dial(ctx, p, h)
		if !errors.Is(err, io.EOF) && !errors.Is(err, unix.ECONNRESET) || ctx.Err() != nil {
			break
		}
		time.Sleep(time.Duration(try) * 20 * time.Millisecond)
	}
	return fd, err
}

// dial opens one stream, up to the end of the handshake.
func (e *Endpoint) dial(ctx context.Context, p pair, h hello) (int, error) {
	d := net.Dialer{LocalAddr: net.TCPAddrFromAddrPort(netip.AddrPortFrom(p.local, 0)), Control: e.control}
	c, err := d.DialContext(ctx, "tcp", p.remote.String())
	if err != nil {
		return -1, err
	}
	defer c.Close()
	defer context.AfterFunc(ctx, func() { c.SetDeadline(time.Unix(1, 0)) })()
	if err := e.opt.greet(c, h); err != nil {
		return -1, err
	}
	fd, err := takeFd(c)
	if err != nil {
		return -1, err
	}
	if err := e.tune(fd); err != nil {
		unix.Close(fd)
		return -1, err
	}
	return fd, nil
}
