//go:build cgo && linux

package probe

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"time"

	"github.com/assay-hpc/assay/internal/verbs"
	"github.com/assay-hpc/assay/perftest/probe/wire"
)

// A session is the rdma_cm state of a test: the control channel with -z, and also the queue pairs
// with -R.
type session struct {
	cm        *verbs.CM
	listener  *verbs.CMID    // of a server
	datagrams *verbs.CMID    // of a server, for UD queue pairs
	server    netip.AddrPort // of a client
	link      *link
	ids       []*verbs.CMID // of the queue pairs
}

// close closes the session. The queue pairs must be closed already.
func (s *session) close() error {
	var errs []error
	if s.link != nil {
		errs = append(errs, s.link.Close())
	}
	return errors.Join(append(errs, s.cm.Close())...)
}

const (
	connectTime  = 10 * time.Second       // of an attempt to connect
	connectAgain = 100 * time.Millisecond // pause before the next attempt
	queuesTime   = 30 * time.Second       // to connect all queue pairs; --timeout
	minRNRCode   = 12
)

// meetCM connects to the peer by rdma_cm, or waits for it.
func (r *runner) meetCM(ctx context.Context, o wire.Options) (*wire.Conn, error) {
	m, err := verbs.NewCM()
	if err != nil {
		return nil, available(err)
	}
	r.cm = &session{cm: m}
	o.CM = true
	if r.c.Role() == wire.Client {
		return r.dialCM(ctx, o)
	}
	return r.serveCM(ctx, o)
}

func (r *runner) dialCM(ctx context.Context, o wire.Options) (*wire.Conn, error) {
	to, err := r.c.resolve(ctx, r.c.Host)
	if err != nil {
		return nil, err
	}
	r.cm.server = to
	id, err := r.connect(ctx, time.Now().Add(o.Retry), false, -1, func(ctx context.Context, id *verbs.CMID) (undo func() error, err error) {
		l, err := newLink(id)
		if err != nil {
			return nil, err
		}
		r.cm.link = l
		return l.free, id.Connect(ctx, verbs.CMOptions{Retries: 7, RNRRetry: 7})
	})
	if err != nil {
		r.cm.link = nil
		return nil, noServerCM(to, err)
	}
	return wire.NewConn(r.cm.link, wire.Client, o), r.adopt(id)
}

// noServerCM explains why the connection to a server failed.
func noServerCM(to netip.AddrPort, err error) error {
	var c *verbs.CMError
	var e *verbs.Error
	switch {
	case errors.As(err, &c), errors.As(err, &e) && strings.HasPrefix(e.Call, "rdma_resolve"):
		return fmt.Errorf("%w at %v: %w", wire.ErrNoServer, to, err)
	case errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("%w at %v: %w: is this the address of its RDMA interface, and is the server well?", wire.ErrNoServer, to, err)
	}
	return err
}

// connect connects to the server. While the server refuses, it retries until the given time. Each
// attempt calls join, and if join fails, the undo that it returned.
func (r *runner) connect(ctx context.Context, until time.Time, datagrams bool, tos int, join func(context.Context, *verbs.CMID) (undo func() error, err error)) (*verbs.CMID, error) {
	source, err := r.c.source(ctx)
	if err != nil {
		return nil, err
	}
	attempt := func() (*verbs.CMID, error) {
		ctx, cancel := context.WithTimeout(ctx, connectTime)
		defer cancel()
		id, err := r.cm.cm.Resolve(ctx, source, r.cm.server, datagrams, tos)
		if err != nil {
			return nil, err
		}
		undo, err := join(ctx, id)
		if err == nil {
			return id, nil
		}
		if undo != nil {
			err = errors.Join(err, undo())
		}
		return nil, errors.Join(err, id.Close())
	}
	for {
		id, err := attempt()
		var c *verbs.CMError
		if err == nil || !errors.As(err, &c) || !c.Refused() || time.Now().After(until) {
			return id, err
		}
		wait(ctx, connectAgain)
	}
}

// resolve looks up the address of a host, and adds the port of the test.
func (c *Config) resolve(ctx context.Context, host string) (netip.AddrPort, error) {
	network := "ip4"
	if c.IPv6TCP {
		network = "ip6"
	}
	if a, err := netip.ParseAddr(host); err == nil {
		return netip.AddrPortFrom(a.Unmap(), uint16(c.Port)), nil
	}
	all, err := net.DefaultResolver.LookupNetIP(ctx, network, host)
	if err != nil {
		return netip.AddrPort{}, fmt.Errorf("%w at %s: %w: is the host's name right?", wire.ErrNoServer, host, err)
	}
	return netip.AddrPortFrom(all[0].Unmap(), uint16(c.Port)), nil
}

// source is the address to connect from; invalid if the route determines it.
func (c *Config) source(ctx context.Context) (netip.AddrPort, error) {
	if c.Source == "" {
		return netip.AddrPort{}, nil
	}
	a, err := c.resolve(ctx, c.Source)
	return netip.AddrPortFrom(a.Addr(), 0), err
}

// serveCM waits for a client. A connection that does not send a client's first message is reported
// and closed.
func (r *runner) serveCM(ctx context.Context, o wire.Options) (*wire.Conn, error) {
	at := netip.AddrPortFrom(netip.IPv4Unspecified(), uint16(r.c.Port))
	if r.c.IPv6TCP {
		at = netip.AddrPortFrom(netip.IPv6Unspecified(), uint16(r.c.Port))
	}
	if r.c.Source != "" {
		var err error
		if at, err = r.c.resolve(ctx, r.c.Source); err != nil {
			return nil, err
		}
	}
	var err error
	if r.cm.listener, err = r.cm.cm.Listen(at, false, r.c.QPs+1); err != nil {
		return nil, err
	}
	// Listen before a client can know of this server; otherwise it might connect too early.
	if r.c.CM && r.c.Connection == UD {
		if r.cm.datagrams, err = r.cm.cm.Listen(at, true, r.c.QPs); err != nil {
			return nil, err
		}
	}
	r.ev.TellWaiting(at.String())
	for {
		id, err := r.cm.listener.Request(ctx)
		switch {
		case ctx.Err() != nil:
			return nil, fmt.Errorf("waiting for a client at %v: %w", at, context.Cause(ctx))
		case err != nil:
			return nil, fmt.Errorf("waiting for a client at %v: %w", at, err)
		}
		conn, err := r.consider(ctx, id, o)
		switch {
		case err == nil:
			return conn, r.adopt(id)
		case ctx.Err() != nil:
			return nil, fmt.Errorf("waiting for a client at %v: %w", at, context.Cause(ctx))
		}
		o.Rejected(err)
	}
}

func (r *runner) consider(ctx context.Context, id *verbs.CMID, o wire.Options) (*wire.Conn, error) {
	within, cancel := context.WithTimeout(ctx, connectTime)
	defer cancel()
	l, err := acceptLink(within, id)
	if err != nil {
		return nil, err
	}
	conn, err := wire.Accepted(ctx, l, o)
	if err != nil {
		return nil, errors.Join(err, l.Close())
	}
	r.cm.link = l
	return conn, nil
}

// adopt makes the device of the connection the device of the test, with -R. -d must name the same
// device.
func (r *runner) adopt(id *verbs.CMID) error {
	if !r.c.CM {
		if r.cm.listener != nil {
			return r.cm.listener.Close()
		}
		return nil
	}
	ctx := id.Context()
	if r.c.Device != "" && ctx.Name() != r.c.Device {
		return flagErrorf("-d", "the connection between %v and %v goes over %s, not %s: with -R the addresses decide, so give the address of the interface that belongs to it", id.Local().Addr(), id.Remote().Addr(), ctx.Name(), r.c.Device)
	}
	if err := r.e.ctx.Close(); err != nil {
		return err
	}
	r.e.ctx, r.c.IBPort = ctx, id.Port()
	if err := r.e.ctx.Events(r.notice); err != nil {
		return err
	}
	return r.e.queryPort()
}

// connectQueues creates and connects the queue pairs, between two barriers that exchange empty
// addresses.
func (r *runner) connectQueues(ctx context.Context) error {
	if !r.c.CM {
		return nil
	}
	if _, err := r.conn.SwapFor(ctx, "the meeting before queue pairs are connected", wire.Address{}); err != nil {
		return err
	}
	limited, cancel := context.WithTimeout(ctx, cmp.Or(r.c.Timeout, queuesTime))
	defer cancel()
	for i := range r.c.QPs {
		join := r.acceptQueue
		if r.c.Role() == wire.Client {
			join = r.connectQueue
		}
		if err := join(limited); err != nil {
			if limited.Err() != nil && ctx.Err() == nil {
				err = &wire.Error{Peer: r.conn.Peer(), Exchange: fmt.Sprintf("the connection of QP %d", i), Kind: wire.ErrTimeout, Err: err,
					Hint: "give both sides -R, and the same -q and -c"}
			}
			return err
		}
		r.e.mine = append(r.e.mine, r.e.address(i))
	}
	for _, l := range []*verbs.CMID{r.cm.listener, r.cm.datagrams} {
		if l != nil {
			if err := l.Close(); err != nil {
				return err
			}
		}
	}
	_, err := r.conn.SwapFor(ctx, "the meeting of connected queue pairs", wire.Address{})
	return err
}

// cmOptions are the connection options of the queue pairs.
func (r *runner) cmOptions() verbs.CMOptions {
	o := verbs.CMOptions{Retries: r.c.Retries, RNRRetry: r.c.Retries}
	if r.c.Operation == Read || r.c.Operation == Atomic {
		o.ReadsIn, o.ReadsOut = r.e.outReads(), r.e.outReads()
	}
	return o
}

// setTimeout sets -u. If that fails, the kernel's timeout applies, and it is an error only if -u is
// not the default.
func (r *runner) setTimeout(id *verbs.CMID) error {
	if r.c.Connection != RC {
		return nil
	}
	if err := id.SetTimeout(r.c.AckTimeout); err != nil && r.c.AckTimeout != defaultAckTimeout {
		return fmt.Errorf("-u: %w", err)
	}
	return nil
}

func (r *runner) connectQueue(ctx context.Context) error {
	e := r.e
	var q *verbs.QP
	// After the barrier, the server may need some time until it listens.
	deadline, _ := ctx.Deadline()
	id, err := r.connect(ctx, deadline, r.c.Connection == UD, r.c.TOS, func(ctx context.Context, id *verbs.CMID) (undo func() error, err error) {
		if err := r.setTimeout(id); err != nil {
			return nil, err
		}
		if q, err = id.QP(e.pd, e.qpOptions()); err != nil {
			return nil, err
		}
		return q.Close, id.Connect(ctx, r.cmOptions())
	})
	if err != nil {
		return err
	}
	if err := r.joined(id, q); err != nil || r.c.Connection != UD {
		return err
	}
	ah, qpn, qkey, err := id.Datagrams(e.pd)
	if err != nil {
		return err
	}
	e.ahs, e.to = append(e.ahs, ah), append(e.to, destination{qpn, qkey})
	if !e.answers() {
		return nil
	}
	return e.introduceTo(ctx, q, ah, e.to[len(e.to)-1])
}

func (r *runner) acceptQueue(ctx context.Context) error {
	e, listener := r.e, r.cm.listener
	if r.cm.datagrams != nil {
		listener = r.cm.datagrams
	}
	id, err := listener.Request(ctx)
	if err != nil {
		return err
	}
	if err := r.setTimeout(id); err != nil {
		return err
	}
	q, err := id.QP(e.pd, e.qpOptions())
	if err != nil {
		return err
	}
	introduced := r.c.Connection == UD && e.answers()
	if introduced {
		err = e.expectIntroduction(q)
	}
	if err == nil {
		err = id.Accept(ctx, r.cmOptions())
	}
	if err == nil {
		err = r.joined(id, q)
	} else {
		err = errors.Join(err, q.Close())
	}
	if err != nil || !introduced {
		return err
	}
	return e.introduction(ctx, id.Port())
}

// joined stores a connected queue pair.
func (r *runner) joined(id *verbs.CMID, q *verbs.QP) error {
	r.cm.ids, r.e.qps = append(r.cm.ids, id), append(r.e.qps, q)
	if r.c.Connection != RC {
		return nil
	}
	// rdma_cm sets the longest one, 655 ms.
	return q.SetMinRNR(minRNRCode)
}
