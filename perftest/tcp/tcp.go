package tcp

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"time"
)

// Options of a measurement. The zero value is usable.
type Options struct {
	// Duration is how long each direction is measured; 0 is 500 ms.
	Duration time.Duration
	// Warmup is how long a direction runs before the measurement, so that TCP finds its rate; 0 is
	// 100 ms.
	Warmup time.Duration
	// Streams is the number of connections per direction; 0 is 4.
	Streams int
	// Both measures both directions at the same time.
	Both bool
	// Limit is the time limit for the whole measurement, after which it fails. 0 is 10 s more than
	// the measurement takes.
	Limit time.Duration
	// LocalAddr is the source address of connections, if it matters; it may have a zone.
	LocalAddr netip.Addr
}

func (o Options) check() (Options, error) {
	o.Duration = cmp.Or(o.Duration, 500*time.Millisecond)
	o.Warmup = cmp.Or(o.Warmup, 100*time.Millisecond)
	o.Streams = cmp.Or(o.Streams, 4)
	takes := o.Warmup + o.Duration
	if !o.Both {
		takes *= 2
	}
	o.Limit = cmp.Or(o.Limit, takes+10*time.Second)
	if err := o.request(o.Limit).check(); err != nil {
		return o, err
	}
	if o.Limit <= takes {
		return o, fmt.Errorf("a limit of %v, and the measurement takes %v", o.Limit, takes)
	}
	return o, nil
}

func (o Options) request(limit time.Duration) request {
	return request{warmup: o.Warmup, duration: o.Duration, limit: limit, streams: o.Streams}
}

// A Result is what was measured between two hosts.
type Result struct {
	Forward Flow // from the host that called Measure
	Back    Flow // to that host
}

// A Flow is the measurement of one direction, with all its streams together, after warm-up.
type Flow struct {
	Bytes   int64   // received, by the receiver's kernel's count
	Seconds float64 // by the receiver's clock: about Options.Duration
	Rate    float64 // bytes per second
	// Segments is the number of segments with data that the sender's kernel sent, Resent the number
	// of them that it sent again. Segments is 0 if the kernel does not report it (Linux before
	// 4.6).
	Segments, Resent int64
	RTT              time.Duration // smoothed by the sender's kernel, at the end, under load; mean over streams
	MinRTT           time.Duration // minimum over streams, including connection setup; 0: not known
}

// ResentShare is the fraction of segments that were sent again; 0 if not known.
func (f Flow) ResentShare() float64 {
	if f.Segments == 0 {
		return 0
	}
	return float64(f.Resent) / float64(f.Segments)
}

func flow(r received, s sent) Flow {
	return Flow{
		Bytes: r.bytes, Seconds: r.took.Seconds(), Rate: float64(r.bytes) / r.took.Seconds(),
		Segments: s.segments, Resent: s.resent, RTT: s.rtt, MinRTT: s.minRTT,
	}
}

// Measure measures from this host to the server at an address, "ip:port", and then in the other
// direction, or both at once. Errors name the address and the failed step.
func Measure(ctx context.Context, addr string, token []byte, o Options) (Result, error) {
	o, err := o.check()
	if err != nil {
		return Result{}, fmt.Errorf("measuring TCP with %s: %w", addr, err)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, o.Limit, fmt.Errorf("not done within %v", o.Limit))
	defer cancel()
	m := &measurement{addr: addr, token: token, o: o}
	defer m.hangUp()
	defer context.AfterFunc(ctx, m.hangUp)()
	r, err := m.run(ctx)
	if err != nil {
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return Result{}, fmt.Errorf("measuring TCP with %s: %s: %w", addr, m.doing, err)
	}
	return r, nil
}
