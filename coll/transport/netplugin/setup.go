//go:build cgo

package netplugin

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/assay-hpc/assay/coll/transport"
)

// Tx dials the peer's point, gets a handle, and connects.
func (e *Endpoint) Tx(ctx context.Context, peer int, data []byte, channel int) (transport.Tx, error) {
	i, err := e.infoOf(peer, data)
	if err != nil {
		return nil, err
	}
	e.mu.Lock()
	if e.closed {
		e.mu.Unlock()
		return nil, net.ErrClosed
	}
	e.dials.Add(1)
	e.mu.Unlock()
	defer e.dials.Done()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(e.ctx, cancel)()

	t := &Tx{conn: conn{e: e, peer: peer, channel: channel, maxMessage: i.maxMessage}}
	if err := e.dial(ctx, t, i.point); err != nil {
		t.free()
		return nil, fmt.Errorf("network plugin %s: rank %d to rank %d, channel %d: %w", e.name, e.opt.Rank, peer, channel, err)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.tx = append(e.tx, t) // also while Close waits for this call
	return t, nil
}

// dial makes the connection of a Tx.
func (e *Endpoint) dial(ctx context.Context, t *Tx, point string) (err error) {
	if t.wire, err = e.point.Dial(ctx, t.peer, point, t.channel); err != nil {
		return err
	}
	device := (e.opt.First + t.channel) % len(e.opt.Net.Devices())
	handle, err := ask(ctx, t.wire, device, t.maxMessage)
	if err != nil {
		return err
	}
	e.wg.Go(func() { t.watch(t.hear) })
	d := e.opt.Net.Dial(device, handle)
	defer func() {
		if !errors.Is(err, errStuck) {
			d.Close()
		}
	}()
	return e.do(ctx, func() (bool, error) {
		comm, err := d.Connect()
		if err != nil || comm == nil {
			return false, orVanished(err, &t.conn)
		}
		t.mu.Lock()
		defer t.mu.Unlock()
		if err := t.open(comm); err != nil {
			return false, errors.Join(err, comm.Close())
		}
		return true, nil
	})
}

// orVanished is err, or that the peer hung up, if it did.
func orVanished(err error, c *conn) error {
	if err == nil && c.vanished() {
		return errVanished
	}
	return err
}

// ask tells the receiver which device the sender has, and gets a handle.
func ask(ctx context.Context, wire net.Conn, device, maxMessage int) (handle [HandleSize]byte, err error) {
	stop := context.AfterFunc(ctx, func() { wire.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	if _, err := wire.Write(pairOf(uint32(device), uint32(maxMessage))); err != nil {
		return handle, err
	}
	if handle, err = readOffer(wire); err != nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return handle, err
}

// admit makes the receiving end of what a peer dials.
func (e *Endpoint) admit(peer, channel int, wire net.Conn) {
	device, maxMessage, err := e.readAsk(wire)
	if err != nil || maxMessage > uint32(e.opt.MaxMessage) || maxMessage == 0 {
		e.opt.Logf("network plugin %s: rank %d asks for messages of %d bytes: %v", e.name, peer, maxMessage, err)
		wire.Close()
		return
	}
	r, err := e.enter(peer, channel, int(maxMessage), wire)
	if err != nil {
		e.opt.Logf("network plugin %s: %v", e.name, err)
		wire.Close()
		return
	}
	err = e.receive(r, int(device)%len(e.opt.Net.Devices()))
	if err == nil || e.ctx.Err() != nil {
		return
	}
	if !errors.Is(err, errVanished) { // whoever hung up has its own error
		e.opt.Fault.Set(fmt.Errorf("receiving from rank %d: %w", peer, err))
	}
	r.free()
}

// askPatience is how long the receiver waits for what the sender says first.
const askPatience = 10 * time.Second

func (e *Endpoint) readAsk(wire net.Conn) (device, maxMessage uint32, err error) {
	wire.SetReadDeadline(time.Now().Add(askPatience))
	stop := context.AfterFunc(e.ctx, func() { wire.Close() })
	defer stop()
	device, maxMessage, err = readPair(wire)
	wire.SetReadDeadline(time.Time{})
	return device, maxMessage, err
}

// enter gives a TCP connection to the receiving end that it is for.
func (e *Endpoint) enter(peer, channel, maxMessage int, wire net.Conn) (*Rx, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return nil, net.ErrClosed
	}
	r := e.rxLocked(peer, channel, maxMessage)
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.wire != nil {
		return nil, fmt.Errorf("rank %d dials channel %d twice", peer, channel)
	}
	r.wire, r.maxMessage = wire, maxMessage
	return r, nil
}

// receive listens with the plugin, offers the handle, and accepts.
func (e *Endpoint) receive(r *Rx, device int) (err error) {
	var l *Listener
	err = e.do(e.ctx, func() (_ bool, err error) {
		l, err = e.opt.Net.Listen(device)
		return err == nil, err
	})
	if err != nil {
		_, werr := r.wire.Write(offer([HandleSize]byte{}, err))
		return errors.Join(err, werr)
	}
	defer func() {
		if !errors.Is(err, errStuck) {
			l.Close()
		}
	}()
	if _, err := r.wire.Write(offer(l.Handle, nil)); err != nil {
		return fmt.Errorf("%w: %w", errVanished, err)
	}
	e.wg.Go(func() { r.watch(r.hear) })
	return e.do(e.accept, func() (bool, error) {
		comm, err := l.Accept()
		if err != nil || comm == nil {
			return false, orVanished(err, &r.conn)
		}
		if err := r.begin(comm); err != nil {
			return false, errors.Join(err, comm.Close())
		}
		return true, nil
	})
}
