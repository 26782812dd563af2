package bootstrap

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"slices"
	"strings"
	"time"
)

// obtain asks for the ID wherever rank 0 may be, until it is there.
func (s *share) obtain(ctx context.Context) (ID, error) {
	known := map[string][]netip.Addr{}
	for pause := 20 * time.Millisecond; ; pause = min(2*pause, 500*time.Millisecond) {
		addrs := s.candidates(ctx, known)
		id, err := s.round(ctx, addrs)
		if err == nil {
			return id, nil
		}
		select {
		case <-ctx.Done():
			return ID{}, fmt.Errorf("%w: rank 0 answers on none of the ports %v at %s (last attempt: %v); set NCCL_COMM_ID=host:port",
				context.Cause(ctx), s.ports, joinAddrs(addrs), err)
		case <-time.After(pause):
		}
	}
}

// candidates are the addresses where rank 0 may be: of the hosts that the
// launcher named, and of this one. Names that were found are not looked up
// again.
func (s *share) candidates(ctx context.Context, known map[string][]netip.Addr) []netip.Addr {
	var out []netip.Addr
	for _, h := range s.w.hosts {
		if known[h] == nil {
			known[h] = lookup(ctx, h)
		}
		out = append(out, known[h]...)
	}
	if list, err := Interfaces(s.o); err == nil {
		for _, i := range list[:min(len(list), maxHosts)] {
			out = append(out, i.Addr)
		}
	}
	out = append(out, netip.AddrFrom4([4]byte{127, 0, 0, 1}), netip.IPv6Loopback())
	var unique []netip.Addr
	for _, a := range out {
		if !slices.Contains(unique, a) {
			unique = append(unique, a)
		}
	}
	return unique
}

func lookup(ctx context.Context, host string) []netip.Addr {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	ips, err := net.DefaultResolver.LookupNetIP(ctx, "ip", host)
	if err != nil {
		return nil
	}
	for i := range ips {
		ips[i] = ips[i].Unmap()
	}
	return ips
}

// round asks at all addresses and ports at once. The first answer counts.
func (s *share) round(ctx context.Context, addrs []netip.Addr) (ID, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTime)
	defer cancel()
	type result struct {
		id  ID
		err error
	}
	results := make(chan result)
	n := 0
	for _, a := range addrs {
		for _, port := range s.ports {
			n++
			go func() {
				id, err := s.ask(ctx, netip.AddrPortFrom(a, port))
				select {
				case results <- result{id, err}:
				case <-ctx.Done():
				}
			}()
		}
	}
	err := errors.New("there is no address to ask at")
	for range n {
		select {
		case r := <-results:
			if r.err == nil {
				return r.id, nil
			}
			err = r.err
		case <-ctx.Done():
			return ID{}, ctx.Err()
		}
	}
	return ID{}, err
}

// ask asks at one address. A stranger that listens there does not matter.
func (s *share) ask(ctx context.Context, a netip.AddrPort) (ID, error) {
	conn, err := dialAfter(ctx, a, 0)
	if err != nil {
		return ID{}, err
	}
	defer conn.Close()
	c := &caller{secret: s.key, hello: hello{purpose: toShare, from: int32(s.w.Rank), to: 0, size: int32(s.w.Size)}}
	transcript, err := c.enter(ctx, conn)
	if err != nil {
		return ID{}, err
	}
	conn.SetDeadline(time.Now().Add(handshakeTime))
	var sealed [sealedBytes]byte
	if _, err := io.ReadFull(conn, sealed[:]); err != nil {
		return ID{}, err
	}
	return unseal(s.key, transcript, sealed[:])
}

func joinAddrs(list []netip.Addr) string {
	var out []string
	for _, a := range list {
		out = append(out, a.String())
	}
	return strings.Join(out, ", ")
}
