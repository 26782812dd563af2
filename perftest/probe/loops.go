//go:build cgo && linux

package probe

// #include <stdlib.h>
// #include "loop.h"
import "C"

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"

	"github.com/assay-hpc/assay/internal/verbs"
	"github.com/assay-hpc/assay/perftest/probe/wire"
)

// A stallError is a test without progress for too long.
type stallError struct {
	After    time.Duration
	Sent     uint64 // messages of this size with a seen completion
	Received uint64
	What     string // what the test waited for
}

func (e *stallError) Error() string {
	return fmt.Sprintf("%s for %v, after %d messages were sent and %d received: packets are lost on an unreliable transport, the link is down, or the peer runs another test or number of iterations (-n, -q, -c, -D)",
		e.What, e.After, e.Sent, e.Received)
}

// array allocates C memory for n values, to be freed with free. A loop's data must be all in C
// memory, because it contains pointers to other parts of it.
func array[T any](n int) ([]T, error) {
	var zero T
	p := C.calloc(C.size_t(max(n, 1)), C.size_t(unsafe.Sizeof(zero)))
	if p == nil {
		return nil, fmt.Errorf("memory for %d values of %d bytes: %w; use fewer iterations (-n) or queue pairs (-q)", n, unsafe.Sizeof(zero), syscall.ENOMEM)
	}
	return unsafe.Slice((*T)(p), n), nil
}

func free[T any](s []T) { C.free(unsafe.Pointer(unsafe.SliceData(s))) }

// until runs a loop, and stops it when ctx is done. It calls tick every second.
func (r *runner) until(ctx context.Context, stop *C.int, tick func(), loop func() C.int) (C.int, error) {
	cores, err := r.c.cores()
	if err != nil {
		return 0, err
	}
	done := make(chan C.int, 1)
	var unpinned error
	go func() {
		var rc C.int
		unpinned = pinned(cores, func() error { rc = loop(); return nil })
		done <- rc
	}()
	second := time.NewTicker(time.Second)
	defer second.Stop()
	for {
		select {
		case rc := <-done:
			return rc, unpinned
		case <-second.C:
			tick()
		case <-ctx.Done():
			atomic.StoreInt32((*int32)(unsafe.Pointer(stop)), 1)
			return <-done, context.Cause(ctx)
		}
	}
}

// bounds are the time bounds of a test with a duration, starting now; with late, starting at 0.
func (r *runner) bounds(late bool) C.struct_bounds {
	if r.c.Duration == 0 {
		return C.struct_bounds{}
	}
	before, sampled := r.c.Window()
	var now C.uint64_t
	if !late {
		now = C.cycles_now()
	}
	at := func(d time.Duration) C.uint64_t { return now + C.uint64_t(r.clock.of(d)) }
	return C.struct_bounds{sample: at(before), cool: at(before + sampled), end: at(r.c.Duration)}
}

// notify requests events of the completion queues, with -e, and reports whether it did.
func (r *runner) notify() (C.int, error) {
	if !r.c.Events {
		return 0, nil
	}
	for _, q := range []*verbs.CQ{r.e.cq, r.e.recvCQ} {
		if q != nil {
			if err := q.Notify(); err != nil {
				return 0, err
			}
		}
	}
	return 1, nil
}

// transfer is the result of one run of the bandwidth loop. Times are in ns.
type transfer struct {
	sent, received uint64
	elapsed        float64
	shortest       float64 // per message, between any post and any completion; 0 without timestamps
	counters       map[string]counterChange
	cpu            float64 // per cent
}

// bandwidth transfers messages of a size. Depending on its role, this side sends, receives, or
// both.
func (r *runner) bandwidth(ctx context.Context, size uint64) (transfer, error) {
	e, c := r.e, r.c
	one, err := array[C.struct_bandwidth](1)
	if err != nil {
		return transfer{}, err
	}
	defer free(one)
	b := &one[0]
	qps, err := array[C.struct_loop_qp](c.QPs)
	if err != nil {
		return transfer{}, err
	}
	defer free(qps)
	b.cq = (*C.struct_vb_cq)(e.cq.Handle())
	if e.recvCQ != nil {
		b.recv_cq = (*C.struct_vb_cq)(e.recvCQ.Handle())
	}
	b.qp, b.qps = unsafe.SliceData(qps), C.int(c.QPs)
	for i := range qps {
		q := &qps[i]
		q.qp = (*C.struct_vb_qp)(e.qps[i].Handle())
		q.from = C.uint64_t(e.source(i))
		if c.Sends() {
			q.send = (*C.struct_vb_send_wr)(unsafe.Pointer(&e.sends[i].WR[0]))
			q.to = C.uint64_t(e.peers[i].VAddr)
		}
		if e.receives() {
			q.recv = (*C.struct_vb_recv_wr)(unsafe.Pointer(&e.recvs[i].WR[0]))
		}
	}
	each := c.Iters()
	each = cmp.Or(each, math.MaxUint64)
	b.recv_list = C.uint32_t(c.RecvList)
	b.list, b.depth, b.moderate = C.int(c.PostList), C.uint32_t(c.SendDepth()), C.uint32_t(c.CQMod())
	if c.Sends() {
		b.sends = C.uint64_t(each)
	}
	if e.receives() {
		b.recvs = C.uint64_t(math.MaxUint64)
		if c.Duration == 0 {
			b.recvs = C.uint64_t(each * uint64(c.QPs))
		}
	}
	if step := e.messageStep(int(size)); step > 0 && c.PostList == 1 {
		b.step, b.buffer = C.uint32_t(step), C.uint32_t(e.cycle)
	}
	if c.Operation == Write || c.Operation == Read {
		b.remote = 1
	}
	if b.events, err = r.notify(); err != nil {
		return transfer{}, err
	}
	wc, err := array[verbs.WC](c.PollBatch)
	if err != nil {
		return transfer{}, err
	}
	defer free(wc)
	b.wc, b.batch = (*C.struct_vb_wc)(unsafe.Pointer(&wc[0])), C.int(c.PollBatch)
	if gap := c.burstGap(size); gap > 0 {
		b.gap, b.burst = C.uint64_t(max(1, r.clock.of(gap))), C.int(c.burst())
	}
	total := each * uint64(c.QPs)
	if c.Sends() && c.Peak() {
		stamps, err := array[C.uint64_t](2 * int(total))
		if err != nil {
			return transfer{}, err
		}
		defer free(stamps)
		b.posts, b.completions = &stamps[0], &stamps[total]
	}
	late := !c.Sends()
	if late {
		b.starts_late = 1
	}
	b.patience = C.uint64_t(r.clock.of(r.patience()))
	b.bounds = r.bounds(late)
	began := time.Now()
	tick := func() {
		var done uint64
		for i := range qps {
			done += atomic.LoadUint64((*uint64)(&qps[i].completed)) + atomic.LoadUint64((*uint64)(&qps[i].received))
		}
		r.ev.tellProgress(progress{Bytes: size, Done: done, Total: c.Iters() * uint64(c.QPs), Elapsed: time.Since(began), Duration: c.Duration})
	}
	rc, err := r.until(ctx, &b.stop, tick, func() C.int { return C.run_bandwidth(b) })
	r.clock.tune()
	var sent, received uint64
	for i := range qps {
		sent += uint64(qps[i].completed)
		received += uint64(qps[i].received)
	}
	if err == nil {
		what := "no completion arrived"
		if late {
			what = "no message arrived"
		}
		err = r.ended(rc, int(b.error), (*verbs.WC)(unsafe.Pointer(&b.bad)), &stallError{After: r.patience(), Sent: sent, Received: received, What: what})
	}
	if err != nil {
		return transfer{}, err
	}
	t := transfer{sent: uint64(b.sent), received: uint64(b.got), elapsed: r.clock.ns(uint64(b.end - b.first))}
	if c.Duration > 0 {
		_, sampled := c.Window()
		t.elapsed = float64(sampled)
	}
	if b.posts != nil {
		t.shortest = r.clock.ns(1) * shortest(unsafe.Slice((*uint64)(b.posts), total), unsafe.Slice((*uint64)(b.completions), total))
	}
	return t, nil
}

// shortest is the shortest time per message, in cycles, between any post and any later completion.
// perftest derives the peak from it.
func shortest(posts, completions []uint64) float64 {
	best := math.Inf(1)
	for j, done := range completions {
		if done == 0 { // no completion was requested
			continue
		}
		for i, from := range posts[:j+1] {
			best = min(best, float64(done-from)/float64(j-i+1))
		}
	}
	return best
}

// ended converts the end of a loop to an error, which is an ErrFailed, or nil.
func (r *runner) ended(rc C.int, errno int, bad *verbs.WC, stall *stallError) error {
	if err := r.end(rc, errno, bad, stall); err != nil {
		return fmt.Errorf("%w: %w", ErrFailed, err)
	}
	return nil
}

func (r *runner) end(rc C.int, errno int, bad *verbs.WC, stall *stallError) error {
	switch rc {
	case C.loop_done:
		return nil
	case C.loop_stalled:
		return stall
	case C.loop_failed:
		return &verbs.CompletionError{Status: bad.Status, VendorError: bad.VendorError, QPN: bad.QPN, ID: bad.ID, Device: r.e.ctx.Name(), Port: r.c.IBPort}
	case C.loop_post_send:
		return r.e.qps[0].PostFailed("ibv_post_send", syscall.Errno(max(errno, -errno)))
	case C.loop_post_recv:
		return r.e.qps[0].PostFailed("ibv_post_recv", syscall.Errno(max(errno, -errno)))
	case C.loop_event:
		return fmt.Errorf("waiting for a completion event on %s: %w", r.e.ctx.Name(), syscall.Errno(max(errno, -errno)))
	}
	return fmt.Errorf("ibv_poll_cq failed on %s", r.e.ctx.Name())
}

// latencies is the result of one run of the latency loop.
type latencies struct {
	posts   []uint64 // cycles; nil in tests with a duration
	buckets []uint32 // of cycles, in tests with a duration
	count   uint64
	elapsed float64 // ns
}

// latency exchanges messages of a size in both directions, or reads.
func (r *runner) latency(ctx context.Context, size uint64) (latencies, error) {
	e, c := r.e, r.c
	var out latencies
	one, err := array[C.struct_latency](1)
	if err != nil {
		return out, err
	}
	defer free(one)
	l := &one[0]
	l.cq = (*C.struct_vb_cq)(e.cq.Handle())
	l.qp.qp = (*C.struct_vb_qp)(e.qps[0].Handle())
	l.qp.send = (*C.struct_vb_send_wr)(unsafe.Pointer(&e.sends[0].WR[0]))
	switch {
	case c.Operation == Write && !c.Immediate:
		l.polls_memory = 1
		l.in = (*C.uint8_t)(e.at(e.target(0) + size - 1))
		l.out = (*C.uint8_t)(e.at(e.source(0) + size - 1))
	case c.Receives():
		l.receives = 1
		l.recv_cq = (*C.struct_vb_cq)(e.recvCQ.Handle())
		l.qp.recv = (*C.struct_vb_recv_wr)(unsafe.Pointer(&e.recvs[0].WR[0]))
	}
	// The server sends the first write, the client the first send.
	if (c.Role() == wire.Server) == (c.Operation == Write) {
		l.first = 1
	}
	l.sends, l.recvs = C.uint64_t(c.Iters()), C.uint64_t(c.Iters())
	if c.Duration > 0 {
		l.sends, l.recvs = math.MaxUint64, math.MaxUint64
		h, err := array[C.uint32_t](C.histogram_buckets)
		if err != nil {
			return out, err
		}
		defer free(h)
		l.histogram = unsafe.SliceData(h)
	} else {
		p, err := array[C.uint64_t](int(c.Iters()))
		if err != nil {
			return out, err
		}
		defer free(p)
		l.posts = unsafe.SliceData(p)
	}
	if l.events, err = r.notify(); err != nil {
		return out, err
	}
	l.gap, l.patience = C.uint64_t(r.clock.of(c.LatencyGap)), C.uint64_t(r.clock.of(r.patience()))
	l.bounds = r.bounds(false)
	began := time.Now()
	tick := func() {
		r.ev.tellProgress(progress{Bytes: size, Done: atomic.LoadUint64((*uint64)(&l.qp.posted)), Total: c.Iters(), Elapsed: time.Since(began), Duration: c.Duration})
	}
	rc, err := r.until(ctx, &l.stop, tick, func() C.int { return C.run_latency(l) })
	r.clock.tune()
	if err == nil {
		err = r.ended(rc, int(l.error), (*verbs.WC)(unsafe.Pointer(&l.bad)), &stallError{After: r.patience(), What: "nothing arrived from the peer"})
	}
	if err != nil {
		return out, err
	}
	if l.posts != nil {
		out.posts = append(out.posts, unsafe.Slice((*uint64)(l.posts), c.Iters())...)
		out.count = c.Iters()
	} else {
		out.buckets = append(out.buckets, unsafe.Slice((*uint32)(l.histogram), C.histogram_buckets)...)
		out.count, out.elapsed = uint64(l.count), r.clock.ns(uint64(l.last-l.begin))
	}
	return out, nil
}
