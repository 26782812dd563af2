package fabric

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"net/netip"
	"slices"
	"time"

	"github.com/assay-hpc/assay/harness/hunt"
	"github.com/assay-hpc/assay/internal/host/sysfs"
	"github.com/assay-hpc/assay/perftest/probe"
)

// An rdmaProber measures between ports: small RDMA reads one by one, for which the other end's processor
// does nothing, and then RDMA writes in both directions at once.
type rdmaProber struct {
	tree  sysfs.FS
	ports map[string]rdmaPort
}

type rdmaPort struct {
	device string
	number int
	rate   float64 // B/s
}

const (
	rdmaMessage = 64 << 10 // bytes of a write
	smallReads  = 300      // before the writes, in pingFor
	smallRead   = 64       // bytes
	// A read is repeated after 4.096 µs × 2^smallTimeout (or up to four times as much), up to seven
	// times: 0.13 s without an answer are an interruption.
	smallTimeout  = 12
	smallPatience = 10 * time.Second // with a peer that is silent
	// A path that is longer than others is less than lateBy later.
	lateBy = 10 * time.Microsecond
	heldBy = time.Millisecond
)

// RDMAPorts returns the names of this machine's active ports and their prober, or nil if there are
// none.
func RDMAPorts() ([]string, Prober) {
	tree, err := sysfs.Open("/")
	if err != nil {
		return nil, nil
	}
	devices, err := tree.RDMADevices()
	if err != nil {
		return nil, nil
	}
	p := &rdmaProber{tree: tree, ports: map[string]rdmaPort{}}
	for _, d := range devices {
		for _, port := range d.Ports {
			if port.State == "ACTIVE" {
				p.ports[fmt.Sprintf("%s/%d", d.Name, port.Number)] = rdmaPort{d.Name, port.Number, port.Rate.Gbit / 8 * 1e9}
			}
		}
	}
	if len(p.ports) == 0 {
		return nil, nil
	}
	return slices.Sorted(maps.Keys(p.ports)), p
}

// writes is a measurement of writes that takes d at the port's rate.
func (p rdmaPort) writes(d time.Duration) probe.Config {
	c := probe.Default(probe.Write, probe.Bandwidth)
	c.Device, c.IBPort, c.Bidirectional, c.Port = p.device, p.number, true, 0
	c.Size, c.Iterations = rdmaMessage, max(20, uint64(p.rate*d.Seconds()/rdmaMessage))
	return c
}

// reads is a measurement of small reads: as many as small packets with TCP if it is quiet.
func (p rdmaPort) reads(quiet bool) probe.Config {
	c := probe.Default(probe.Read, probe.Latency)
	c.Device, c.IBPort, c.Port, c.Size, c.AckTimeout, c.Timeout = p.device, p.number, 0, smallRead, smallTimeout, smallPatience
	c.Iterations, c.LatencyGap = smallReads, pingFor/smallReads
	if quiet {
		c.Iterations, c.LatencyGap = uint64(quietFor/time.Millisecond), time.Millisecond
	}
	return c
}

// A listener is a measurement that waits for its peer, or goes on.
type listener struct {
	door int
	done chan error
}

func listen(ctx context.Context, c probe.Config) (l listener, err error) {
	ready := make(chan string, 1)
	l.done = make(chan error, 1)
	go func() {
		_, err := probe.Run(ctx, c, probe.Events{Waiting: func(addr string) { ready <- addr }})
		l.done <- err
	}()
	select {
	case addr := <-ready:
		to, err := netip.ParseAddrPort(addr)
		l.door = int(to.Port())
		return l, err
	case err := <-l.done:
		if err == nil {
			err = errors.New("it ended without a peer")
		}
		return l, err
	}
}

// Listen implements Prober. Why reads failed is for the other end to say.
func (p *rdmaProber) Listen(ctx context.Context, name string, m Measurement) (at Doors, wait func() (Ends, error), err error) {
	port, ok := p.ports[name]
	if !ok {
		return at, nil, fmt.Errorf("there is no port %s", name)
	}
	before := p.counters(port)
	brief, stop := context.WithCancel(ctx)
	defer func() {
		if err != nil {
			stop()
		}
	}()
	small, err := listen(brief, port.reads(m.Quiet))
	if err != nil {
		return at, nil, err
	}
	at.Small = small.door
	if m.Quiet {
		return at, func() (Ends, error) {
			defer stop()
			<-small.done
			return Ends{Small: changes(before, p.counters(port))}, nil
		}, nil
	}
	large, err := listen(ctx, port.writes(m.Duration))
	if err != nil {
		stop()
		<-small.done
		return at, nil, err
	}
	at.Large = large.door
	return at, func() (Ends, error) {
		defer stop()
		var e Ends
		select {
		case <-small.done:
			between := p.counters(port)
			err := <-large.done
			e.Small, e.Large = changes(before, between), changes(between, p.counters(port))
			return e, err
		case err := <-large.done: // the peer did not come for reads
			stop()
			<-small.done
			e.Large = changes(before, p.counters(port))
			return e, err
		}
	}, nil
}

// Measure implements Prober. Without an answer to reads it measures writes.
func (p *rdmaProber) Measure(ctx context.Context, name, host string, at Doors, m Measurement) (out Measured, err error) {
	port, ok := p.ports[name]
	if !ok {
		return out, fmt.Errorf("there is no port %s", name)
	}
	before := p.counters(port)
	c := port.reads(m.Quiet)
	c.Host, c.Port = host, at.Small
	got, err := probe.Run(ctx, c, probe.Events{})
	switch {
	case err == nil && len(got.Rows) == 1 && got.Rows[0].Latency != nil:
		out.Trips = trips(got.Rows[0].Latency.Samples, c.LatencyGap)
	case m.Quiet && !errors.Is(err, probe.ErrFailed):
		return out, fmt.Errorf("small reads: %w", err)
	default:
		out.Trips.Broken = true
	}
	between := p.counters(port)
	if out.Ends.Small = changes(before, between); m.Quiet {
		return out, nil
	}
	c = port.writes(m.Duration)
	c.Host, c.Port = host, at.Large
	if got, err = probe.Run(ctx, c, probe.Events{}); err != nil {
		return out, err
	}
	if len(got.Rows) == 0 || got.Rows[0].Local == nil || got.Rows[0].Remote == nil {
		return out, errors.New("the measurement has no result for each direction")
	}
	row := got.Rows[len(got.Rows)-1]
	out.There, out.Back, out.Ends.Large = row.Local.Average, row.Remote.Average, changes(between, p.counters(port))
	return out, nil
}

// trips summarises the times from one read to the next, in ns, with a pause between them.
func trips(samples []float64, pause time.Duration) (t Trips) {
	took := make([]time.Duration, len(samples))
	for i, ns := range samples {
		took[i] = max(1, time.Duration(math.Round(ns))-pause)
	}
	if slices.Sort(took); len(took) == 0 {
		return Trips{Broken: true}
	}
	n, least := len(took), took[0]
	held, _ := slices.BinarySearch(took, least+heldBy+1)
	return Trips{Count: n, Median: took[n/2], Tail: took[n-1-n/100], Late: took[n-1] - least, Held: n - held}
}

// packets is what reads say of each direction.
func (t Trips) packets() hunt.Packets {
	p := hunt.Packets{Sent: t.Count, Late: t.Late}
	if t.Broken {
		p.InRow = interruption
	}
	return p
}

// counters returns those of a port's counters that can be read.
func (p *rdmaProber) counters(port rdmaPort) map[string]uint64 {
	c, _ := p.tree.Counters(port.device, port.number)
	return c
}
