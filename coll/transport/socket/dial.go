package socket

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/assay-hpc/assay/coll/transport"
	"github.com/assay-hpc/assay/coll/transport/rendezvous"
)

// Tx dials the peer's listener, once for each stream.
func (e *Endpoint) Tx(ctx context.Context, peer int, data []byte, channel int) (transport.Tx, error) {
	i, err := e.Peer(peer, data)
	if err != nil {
		return nil, err
	}
	t := newTx(e, peer, i.MaxMessage)
	s := rendezvous.Stream{Peer: peer, Channel: channel, Count: e.opt.streams()}
	fds := make([]int, 0, s.Count)
	for ; err == nil && s.Index < s.Count; s.Index++ {
		var c net.Conn
		if c, err = e.Dial(ctx, i.Addrs, s); err == nil {
			var fd int
			if fd, err = e.take(c); err == nil {
				fds = append(fds, fd)
			}
		}
	}
	if err != nil {
		for _, fd := range fds {
			unix.Close(fd)
		}
		return nil, fmt.Errorf("socket: rank %d to rank %d, channel %d: %w", e.opt.Rank, peer, channel, err)
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

// take returns a stream's descriptor for a connection, which it closes.
func (e *Endpoint) take(c net.Conn) (int, error) {
	defer c.Close()
	return e.duplicate(c)
}

// duplicate returns a stream's descriptor for a connection, which stays open.
func (e *Endpoint) duplicate(c net.Conn) (int, error) {
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

// admit assigns a stream that a peer has dialed to its receiving end. What this process lacks for
// that is its own fault, and ends the communicator: the connection stays open meanwhile, because
// the peer would take its end for the death of this rank.
func (e *Endpoint) admit(from rendezvous.Stream, c net.Conn) {
	defer c.Close()
	fd, err := e.duplicate(c)
	if err == nil {
		err = e.attach(from, fd)
	}
	switch {
	case err == nil || e.ctx.Err() != nil:
	case errors.Is(err, errTwice):
		e.opt.Logf("socket: dropped a connection of rank %d: %v", from.Peer, err)
	default:
		e.opt.Fault.Set(fmt.Errorf("socket: accepting a connection of rank %d: %w", from.Peer, err))
		<-e.ctx.Done()
	}
}

// errTwice: a peer has dialed a stream that is there.
var errTwice = errors.New("it is there already")

// attach adds a stream to its receiving end, or closes it. The last stream of a
// connection makes the connection ready.
func (e *Endpoint) attach(s rendezvous.Stream, fd int) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		unix.Close(fd)
		return net.ErrClosed
	}
	r := e.rxLocked(rxKey{s.Peer, s.Channel})
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.arrived == nil {
		r.arrived = slices.Repeat([]int{-1}, s.Count)
	}
	if len(r.arrived) != s.Count || r.arrived[s.Index] >= 0 {
		unix.Close(fd)
		return fmt.Errorf("stream %d of %d, channel %d: %w", s.Index, s.Count, s.Channel, errTwice)
	}
	r.arrived[s.Index] = fd
	if slices.Contains(r.arrived, -1) {
		return nil
	}
	return r.open()
}
