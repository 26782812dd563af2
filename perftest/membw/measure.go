//go:build cuda && cgo

package membw

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/assay-hpc/assay/internal/gpu/driver"
	"github.com/assay-hpc/assay/internal/gpu/rig"
)

// A way is a flow with all resources that it needs.
type way struct {
	Flow
	*lane
	machine  *cudaMachine
	dev      *device
	bytes    int
	from, to *room
	seed     uint64
	back     *way // Both: the other direction, of which only the memory is used
}

// patience is how long kernels hold a stream, in ticks of at most 2.5 GHz: at least 10 s.
const patience = 25e9

// impatience is the limit of p2pBandwidthLatencyTest, in ticks: copies through the host cannot
// always all be enqueued while the stream is held.
const impatience = 10e6

// flushBytes is larger than the CPU caches.
const flushBytes = 256 << 20

// Measure implements Machine.
func (r *cudaMachine) Measure(ctx context.Context, flows []Flow, p Plan) (Outcome, error) {
	out := Outcome{Flows: make([][]float64, len(flows))}
	ways, err := r.ways(flows, p)
	if err != nil {
		return out, err
	}
	for range p.Samples {
		if err := context.Cause(ctx); err != nil {
			return out, err
		}
		switch p.Timing {
		case whileHeld, byEvents:
			err = r.sample(ways, p, &out)
		case byStopwatch:
			err = stopwatch(ways, p, &out)
		case eachCall:
			err = r.eachCall(ctx, ways, p, &out)
		}
		if err != nil {
			return out, err
		}
	}
	if p.NoVerify {
		return out, nil
	}
	return out, r.verify(ways)
}

// ways assigns memory and lanes to flows, and writes test data.
func (r *cudaMachine) ways(flows []Flow, p Plan) ([]*way, error) {
	used := map[endpoint]int{}
	lanes := map[int]int{}
	take := func(at endpoint, bytes int) (*room, error) {
		used[at]++
		return r.room(key{at, used[at] - 1}, bytes)
	}
	var ways []*way
	for _, f := range flows {
		if p.Timing != eachCall && (f.From.Memory == pageable || f.To.Memory == pageable) {
			return nil, errors.New("pageable memory is copied by synchronous calls") // asynchronous copies would wait for the stream
		}
		w := &way{Flow: f, machine: r, dev: r.devices[f.By], bytes: p.Bytes * max(1, f.Scale)}
		halves := []*way{w}
		if f.Both {
			w.back = &way{Flow: Flow{From: f.To, To: f.From, By: f.By, Engine: f.Engine}, bytes: w.bytes}
			halves = append(halves, w.back)
		}
		for _, h := range halves {
			var err error
			if h.from, err = take(h.From, h.bytes); err != nil {
				return nil, err
			}
			if h.to, err = take(h.To, h.bytes); err != nil {
				return nil, err
			}
			h.seed = r.seed << 32
			r.seed++
			if p.NoVerify {
				continue
			}
			if err := errors.Join(r.fill(h.From, h.from, h.bytes, h.seed), r.fill(h.To, h.to, h.bytes, ^h.seed)); err != nil {
				return nil, err
			}
		}
		if err := w.dev.Bind(); err != nil {
			return nil, err
		}
		var err error
		if w.lane, err = w.dev.lane(lanes[f.By]); err != nil {
			return nil, err
		}
		lanes[f.By]++
		ways = append(ways, w)
	}
	return ways, nil
}

// verify compares the copied data with what was sent.
func (r *cudaMachine) verify(ways []*way) error {
	for _, w := range ways {
		for _, h := range []*way{w, w.back} {
			if h == nil {
				continue
			}
			words, first, err := r.check(h.To, h.to, h.bytes, h.seed)
			if err != nil {
				return err
			}
			if words != 0 {
				return &dataError{Flow: h.Flow, Words: words, First: first, Of: int64(h.bytes)}
			}
		}
	}
	return nil
}

// enqueue puts n copies on the way's stream. Copies by kernel are one launch in total, or one
// launch each with launches.
func (w *way) enqueue(n int, launches bool) error {
	if n == 0 {
		return nil
	}
	if err := w.dev.Bind(); err != nil {
		return err
	}
	if launches && w.Engine == engineSM {
		for range n {
			if err := w.enqueue(1, false); err != nil {
				return err
			}
		}
		return nil
	}
	switch {
	case w.back != nil:
		return w.dev.over("copy_both", w.Stream, w.bytes/8, uint64(w.to.at), uint64(w.from.at), uint64(w.back.to.at), uint64(w.back.from.at), uint64(w.bytes), uint64(n))
	case w.Engine == engineSM:
		return w.dev.over("copy", w.Stream, w.bytes/16, uint64(w.to.at), uint64(w.from.at), uint64(w.bytes), uint64(n))
	}
	for range n {
		if err := w.copyAsync(); err != nil {
			return err
		}
	}
	return nil
}

func (w *way) copyAsync() error {
	if w.From.Memory == ofGPU && w.To.Memory == ofGPU && w.From.GPU != w.To.GPU {
		return driver.CopyPeerAsync(w.to.at, w.machine.devices[w.To.GPU].Context, w.from.at, w.machine.devices[w.From.GPU].Context, w.bytes, w.Stream)
	}
	return driver.CopyAsync(w.to.at, w.from.at, w.bytes, w.Stream)
}

// sample times one sample with events. After their warm-up the streams begin together.
func (r *cudaMachine) sample(ways []*way, p Plan, out *Outcome) (err error) {
	if p.Timing == whileHeld {
		atomic.StoreUint32(r.u32(wordGo), 0)
		atomic.StoreUint32(r.u32(wordLate), 0)
	}
	open := func() { atomic.StoreUint32(r.u32(wordGo), 1) }
	defer func() { // no stream may stay held, even on an error
		open()
		err = errors.Join(err, wait(ways))
		if err == nil && p.Timing == whileHeld && !p.Short && atomic.LoadUint32(r.u32(wordLate)) != 0 {
			err = fmt.Errorf("the copies were not enqueued within 10 s")
		}
		if err == nil {
			err = collect(ways, out)
		}
	}()
	ticks := uint64(patience)
	if p.Short {
		ticks = impatience
	}
	for _, w := range ways {
		if err := w.dev.Bind(); err != nil {
			return err
		}
		if p.Timing == whileHeld {
			if err := w.dev.Run("spin", w.Stream, 1, uint64(r.words.Ptr)+wordGo, uint64(r.words.Ptr)+wordLate, ticks); err != nil {
				return err
			}
		}
		if err := w.enqueue(p.Warmup, p.Launches); err != nil {
			return err
		}
	}
	if err := begin(ways); err != nil {
		return err
	}
	for i, w := range ways {
		from := time.Now()
		if err := w.enqueue(p.Copies, p.Launches); err != nil {
			return err
		}
		if i == 0 {
			out.Enqueue = append(out.Enqueue, time.Since(from).Seconds())
		}
		if err := w.End.Record(w.Stream); err != nil {
			return err
		}
	}
	return finish(ways)
}

// begin makes all streams wait for the begin event of the first one.
func begin(ways []*way) error {
	for i, w := range ways {
		if err := w.dev.Bind(); err != nil {
			return err
		}
		if i > 0 {
			if err := w.Stream.WaitEvent(ways[0].Begin); err != nil {
				return err
			}
		}
		if err := w.Begin.Record(w.Stream); err != nil {
			return err
		}
	}
	return nil
}

// finish records the end of all streams on the first stream.
func finish(ways []*way) error {
	first := ways[0]
	if err := first.dev.Bind(); err != nil {
		return err
	}
	for _, w := range ways[1:] {
		if err := first.Stream.WaitEvent(w.End); err != nil {
			return err
		}
	}
	return first.all.Record(first.Stream)
}

func wait(ways []*way) error {
	for _, w := range ways {
		if err := errors.Join(w.dev.Bind(), w.Stream.Synchronize()); err != nil {
			return err
		}
	}
	return nil
}

// collect reads the times of the events.
func collect(ways []*way, out *Outcome) error {
	for i, w := range ways {
		if err := w.dev.Bind(); err != nil {
			return err
		}
		t, err := rig.Seconds(w.Begin, w.End)
		if err != nil {
			return err
		}
		out.Flows[i] = append(out.Flows[i], t)
	}
	first := ways[0]
	if err := first.dev.Bind(); err != nil {
		return err
	}
	t, err := rig.Seconds(first.Begin, first.all)
	out.Total = append(out.Total, t)
	return err
}

// positive is a duration in seconds, at least 1 ns: clocks are coarse, and rates are calculated
// from it.
func positive(t time.Duration) float64 { return max(t, time.Nanosecond).Seconds() }

// stopwatch times one sample with the host's clock.
func stopwatch(ways []*way, p Plan, out *Outcome) error {
	for _, w := range ways {
		if err := w.enqueue(p.Warmup, p.Launches); err != nil {
			return err
		}
	}
	if err := wait(ways); err != nil {
		return err
	}
	from := time.Now()
	for _, w := range ways {
		if err := w.enqueue(p.Copies, p.Launches); err != nil {
			return err
		}
	}
	if err := wait(ways); err != nil {
		return err
	}
	t := positive(time.Since(from))
	for i := range ways {
		out.Flows[i] = append(out.Flows[i], t)
	}
	out.Total = append(out.Total, t)
	return nil
}

// eachCall adds up the times of synchronous copies, one flow after the other.
func (r *cudaMachine) eachCall(ctx context.Context, ways []*way, p Plan, out *Outcome) error {
	var total time.Duration
	for i, w := range ways {
		d := w.dev
		if err := d.Bind(); err != nil {
			return err
		}
		var all time.Duration
		for n := range p.Warmup + p.Copies {
			if err := context.Cause(ctx); err != nil {
				return err
			}
			if p.Flush {
				r.flushCaches(byte(n))
			}
			from := time.Now()
			// Wait for the default stream: for copies between devices, and within one, the call
			// returns before the copy is done.
			if err := errors.Join(w.copyNow(), driver.Stream(0).Synchronize()); err != nil {
				return err
			}
			if n >= p.Warmup {
				all += time.Since(from)
			}
		}
		out.Flows[i] = append(out.Flows[i], positive(all))
		total += all
	}
	out.Total = append(out.Total, positive(total))
	return nil
}

// copyNow makes the calls of a program that uses no streams.
func (w *way) copyNow() error {
	switch {
	case w.from.host != nil:
		return driver.CopyToDevice(w.to.at, w.from.host[:w.bytes])
	case w.to.host != nil:
		return driver.CopyFromDevice(w.to.host[:w.bytes], w.from.at)
	}
	return driver.Copy(w.to.at, w.from.at, w.bytes)
}

func (r *cudaMachine) flushCaches(v byte) {
	if r.flush == nil {
		r.flush = make([]byte, flushBytes)
	}
	var block [1 << 16]byte
	for i := range block {
		block[i] = v
	}
	for at := 0; at < len(r.flush); at += len(block) {
		copy(r.flush[at:], block[:])
	}
}
