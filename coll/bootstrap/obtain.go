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
	"sync"
	"time"

	"github.com/assay-hpc/assay/internal/meet"
)

// A search requests the ID at all addresses and ports where rank 0 may be, each
// repeatedly until one answers: rank 0 may not have started yet, and a stranger that
// listens at one of them must not delay the others.
type search struct {
	s     *share
	wg    sync.WaitGroup
	found chan ID // holds the first ID that arrives

	mu    sync.Mutex
	asked []string // addresses that are tried
	last  error
}

// obtain returns the ID once it is found.
func (s *share) obtain(ctx context.Context) (ID, error) {
	ctx, cancel := context.WithCancel(ctx)
	q := &search{s: s, found: make(chan ID, 1), last: errors.New("no address to ask at is known")}
	defer q.wg.Wait()
	defer cancel()
	for _, h := range s.w.hosts {
		q.wg.Go(func() { q.host(ctx, h) })
	}
	// The host names from the launcher may not resolve to those hosts from here, or there
	// may be none: also try this host.
	if list, err := meet.Interfaces(s.o.Ifname, s.o.Family); err == nil {
		for _, i := range list[:min(len(list), maxHosts)] {
			q.at(ctx, i.Addr)
		}
	}
	q.at(ctx, netip.AddrFrom4([4]byte{127, 0, 0, 1}))
	q.at(ctx, netip.IPv6Loopback())

	select {
	case id := <-q.found:
		return id, nil
	case <-ctx.Done():
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	return ID{}, fmt.Errorf("%w: rank 0 answers on none of the ports %v at %s (last attempt: %v); %sset NCCL_COMM_ID=host:port",
		context.Cause(ctx), s.ports, strings.Join(q.asked, ", "), q.last, s.w.remedy)
}

// host resolves a name, repeatedly until that succeeds, and tries its addresses.
func (q *search) host(ctx context.Context, name string) {
	q.again(ctx, func() error {
		ips, err := net.DefaultResolver.LookupNetIP(ctx, "ip", name)
		for _, ip := range ips {
			q.at(ctx, ip.Unmap())
		}
		return err
	})
}

// at tries the ports of an address, unless that has already begun.
func (q *search) at(ctx context.Context, a netip.Addr) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if slices.Contains(q.asked, a.String()) {
		return
	}
	q.asked = append(q.asked, a.String())
	for _, port := range q.s.ports {
		q.wg.Go(func() {
			q.again(ctx, func() error { return q.ask(ctx, netip.AddrPortFrom(a, port)) })
		})
	}
}

// again calls f until it succeeds.
func (q *search) again(ctx context.Context, f func() error) {
	meet.Again(ctx, func() (bool, error) {
		err := f()
		if err != nil && ctx.Err() == nil {
			q.mu.Lock()
			q.last = err
			q.mu.Unlock()
		}
		return false, err
	})
}

// ask makes one attempt.
func (q *search) ask(ctx context.Context, a netip.AddrPort) error {
	ctx, cancel := context.WithTimeout(ctx, meet.Patience)
	defer cancel()
	w := q.s.w
	c := meet.Caller{Protocol: protocol, Secret: q.s.key, Claim: hello{purpose: toShare, from: int32(w.Rank), to: 0, size: int32(w.Size)}.encode()}
	conn, key, err := c.Dial(ctx, a.String())
	if err != nil {
		return err
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(meet.Patience))
	var sealed [sealedBytes]byte
	if _, err := io.ReadFull(conn, sealed[:]); err != nil {
		return err
	}
	id, err := unseal(key, sealed[:])
	if err != nil {
		return err
	}
	select {
	case q.found <- id:
	default: // another address was faster
	}
	return nil
}
