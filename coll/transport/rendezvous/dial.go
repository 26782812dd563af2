package rendezvous

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// maxAddrs bounds what an Info may list.
const maxAddrs = 64

// formatAddrs makes one word of addresses. Zones are local and left out.
func formatAddrs(addrs []netip.AddrPort) string {
	var words []string
	for _, a := range addrs {
		words = append(words, netip.AddrPortFrom(a.Addr().WithZone(""), a.Port()).String())
	}
	return strings.Join(words, ",")
}

func parseAddrs(info string) (addrs []netip.AddrPort, err error) {
	for s := range strings.SplitSeq(info, ",") {
		a, err := netip.ParseAddrPort(s)
		if err != nil {
			return nil, err
		}
		if a.Addr().Zone() != "" || a.String() != s || a.Port() == 0 {
			return nil, fmt.Errorf("address %q is not in its plain form", s)
		}
		if addrs = append(addrs, a); len(addrs) > maxAddrs {
			return nil, errors.New("too many addresses")
		}
	}
	return addrs, nil
}

// A way is a pair of addresses.
type way struct {
	from netip.Addr
	to   netip.AddrPort
}

// ways lists the pairs of this host's addresses and a peer's that may connect,
// those of one place in both lists first.
func (p *Point) ways(remote []netip.AddrPort) (list []way) {
	n := max(len(p.opt.Addrs), len(remote))
	for shift := range n {
		for i, from := range p.opt.Addrs {
			j := (i + shift) % n
			if j >= len(remote) || !compatible(from, remote[j].Addr()) {
				continue
			}
			to := remote[j]
			if to.Addr().IsLinkLocalUnicast() { // the zone is this host's name of the link
				to = netip.AddrPortFrom(to.Addr().WithZone(from.Zone()), to.Port())
			}
			list = append(list, way{from, to})
		}
	}
	return list
}

func compatible(a, b netip.Addr) bool {
	return a.Unmap().Is4() == b.Unmap().Is4() && a.IsLinkLocalUnicast() == b.IsLinkLocalUnicast() && a.IsLoopback() == b.IsLoopback()
}

// dialPatience bounds the attempt on one of several pairs of addresses, and
// dialTries is how often one is tried when the acceptor hangs up: one that is
// overrun by strangers may have hung up on the wrong peer.
const (
	dialPatience = 5 * time.Second
	dialTries    = 3
)

// Dial connects to the point of a peer, for a channel. The connection is the
// caller's to close.
func (p *Point) Dial(ctx context.Context, peer int, info string, channel int) (net.Conn, error) {
	addrs, err := parseAddrs(info)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(p.ctx, cancel)()
	list := p.ways(addrs)
	errs := []error{fmt.Errorf("rank %d cannot be reached at %s", peer, info)}
	for _, w := range list {
		c, err := p.dialWay(ctx, w, hello{p.opt.Rank, peer, channel}, len(list) > 1)
		if err == nil {
			return c, nil
		}
		errs = append(errs, fmt.Errorf("from %v to %v: %w", w.from, w.to, err))
		if ctx.Err() != nil {
			errs = append(errs, context.Cause(ctx))
			break
		}
	}
	return nil, errors.Join(errs...)
}

// dialWay connects two addresses. If there are others, it does not try for
// long.
func (p *Point) dialWay(ctx context.Context, w way, h hello, others bool) (c net.Conn, err error) {
	if others {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, dialPatience)
		defer cancel()
	}
	for try := range dialTries {
		c, err = p.dialOnce(ctx, w, h)
		if !errors.Is(err, io.EOF) && !errors.Is(err, unix.ECONNRESET) || ctx.Err() != nil {
			break
		}
		time.Sleep(time.Duration(try) * 20 * time.Millisecond)
	}
	return c, err
}

func (p *Point) dialOnce(ctx context.Context, w way, h hello) (net.Conn, error) {
	d := net.Dialer{LocalAddr: net.TCPAddrFromAddrPort(netip.AddrPortFrom(w.from, 0))}
	c, err := d.DialContext(ctx, "tcp", w.to.String())
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { c.SetDeadline(time.Unix(1, 0)) })
	err = p.opt.greet(c, h)
	if !stop() && err == nil {
		err = context.Cause(ctx)
	}
	if err == nil {
		err = p.opt.keep(c)
	}
	if err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

// setUserTimeout makes the kernel give up data that nobody acknowledges.
func setUserTimeout(t *net.TCPConn, d time.Duration) error {
	raw, err := t.SyscallConn()
	if err != nil {
		return err
	}
	var serr error
	if err := raw.Control(func(fd uintptr) {
		serr = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(d.Milliseconds()))
	}); err != nil {
		return err
	}
	return serr
}
