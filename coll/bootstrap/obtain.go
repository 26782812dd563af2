package bootstrap

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"syscall"
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

	mu       sync.Mutex
	asked    []netip.Addr         // addresses that are tried
	answers  map[netip.Addr]error // of them, the error that tells most
	unnamed  map[string]error     // names that do not resolve here
	loopback map[string]netip.Addr
}

// obtain returns the ID once it is found.
func (s *share) obtain(ctx context.Context) (ID, error) {
	ctx, cancel := context.WithCancel(ctx)
	q := &search{s: s, found: make(chan ID, 1), answers: map[netip.Addr]error{}, unnamed: map[string]error{}, loopback: map[string]netip.Addr{}}
	defer q.wg.Wait()
	defer cancel()
	for _, h := range s.w.hosts {
		q.wg.Go(func() { q.host(ctx, h) })
	}
	// The host names from the launcher may not resolve to those hosts from here, or there
	// may be none: also try this host.
	var own []netip.Addr
	if list, err := meet.Interfaces(s.o.Ifname, s.o.Family); err == nil {
		for _, i := range list[:min(len(list), maxHosts)] {
			own = append(own, i.Addr)
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
	return ID{}, fmt.Errorf("%w: %s; %sset NCCL_COMM_ID=host:port", context.Cause(ctx), q.outcome(own), s.w.remedy)
}

// outcome describes a search that found nothing: names that do not resolve first, because their
// addresses have not been tried.
func (q *search) outcome(own []netip.Addr) string {
	q.mu.Lock()
	defer q.mu.Unlock()
	var out []string
	for _, name := range slices.Sorted(maps.Keys(q.unnamed)) {
		out = append(out, fmt.Sprintf("%s, where rank 0 should be, does not resolve on this host (%v): correct its DNS or /etc/hosts, or the name", name, q.unnamed[name]))
	}
	for _, name := range slices.Sorted(maps.Keys(q.loopback)) {
		out = append(out, fmt.Sprintf("%s, where rank 0 should be, is %v on this host, which is this host itself: correct its /etc/hosts", name, q.loopback[name]))
	}
	var at []string
	for _, a := range q.asked {
		text := a.String()
		if slices.Contains(own, a) {
			text += " (this host)"
		}
		at = append(at, text+" "+reaction(q.answers[a]))
	}
	return strings.Join(append(out, fmt.Sprintf("rank 0 answers on none of the ports %v: %s (who refuses is another host than rank 0's, or rank 0 has not started there, or a firewall rejects; who is silent does not exist, or a firewall drops packets)",
		q.s.ports, strings.Join(at, ", "))), "; ")
}

// reaction describes how an address reacted.
func reaction(err error) string {
	switch weight(err) {
	case refused:
		return "refuses"
	case unreachable:
		return fmt.Sprintf("is not reachable (%v)", err)
	case silent:
		return "is silent"
	}
	return fmt.Sprintf("answers otherwise (%v)", err)
}

// What errors tell about an address, in the order of their worth.
const (
	silent = iota // until now
	refused
	unreachable
	answered // by something that is not rank 0 of this job
)

func weight(err error) int {
	var limit net.Error
	switch {
	case err == nil, errors.Is(err, context.DeadlineExceeded), errors.As(err, &limit) && limit.Timeout():
		return silent
	case errors.Is(err, syscall.ECONNREFUSED):
		return refused
	case errors.Is(err, syscall.EHOSTUNREACH), errors.Is(err, syscall.ENETUNREACH), errors.Is(err, syscall.EADDRNOTAVAIL):
		return unreachable
	}
	return answered
}

// host resolves a name, repeatedly until that succeeds, and tries its addresses.
func (q *search) host(ctx context.Context, name string) {
	q.mu.Lock()
	q.unnamed[name] = errors.New("no answer to the query")
	q.mu.Unlock()
	q.again(ctx, func(err error) { q.unnamed[name] = err }, func() error {
		ips, err := net.DefaultResolver.LookupNetIP(ctx, "ip", name)
		if err == nil {
			q.resolved(name, ips)
		}
		for _, ip := range ips {
			q.at(ctx, ip.Unmap())
		}
		return err
	})
}

// resolved records that a name has addresses, and whether they are of use.
func (q *search) resolved(name string, ips []netip.Addr) {
	q.mu.Lock()
	defer q.mu.Unlock()
	delete(q.unnamed, name)
	if _, err := netip.ParseAddr(name); err != nil && name != "localhost" && len(ips) > 0 && !slices.ContainsFunc(ips, func(a netip.Addr) bool { return !a.Unmap().IsLoopback() }) {
		q.loopback[name] = ips[0].Unmap()
	}
}

// at tries the ports of an address, unless that has already begun.
func (q *search) at(ctx context.Context, a netip.Addr) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if slices.Contains(q.asked, a) {
		return
	}
	q.asked = append(q.asked, a)
	for _, port := range q.s.ports {
		q.wg.Go(func() {
			q.again(ctx, func(err error) {
				if weight(err) >= weight(q.answers[a]) {
					q.answers[a] = err
				}
			}, func() error { return q.ask(ctx, netip.AddrPortFrom(a, port)) })
		})
	}
}

// again calls f until it succeeds. record gets its errors, under the lock.
func (q *search) again(ctx context.Context, record func(error), f func() error) {
	meet.Again(ctx, func() (bool, error) {
		err := f()
		if err != nil && ctx.Err() == nil {
			q.mu.Lock()
			record(err)
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
