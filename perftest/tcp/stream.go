package tcp

import (
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// blockBytes is how much a stream writes and reads at a time: enough that the
	// call is nothing beside the copying, little enough for a processor's cache.
	blockBytes = 256 << 10
	// grace is how much longer than asked for a sender goes on if it is not cut
	// off: the receiver began later, and its reset may be lost.
	grace = time.Second
)

// noise is what is sent: some links compress.
var noise = sync.OnceValue(func() []byte {
	b := make([]byte, 1<<20)
	rand.Read(b)
	return b
})

var blocks = sync.Pool{New: func() any { return new([blockBytes]byte) }}

// cut ends connections by a reset: what is on its way is thrown away.
func cut(conns []*net.TCPConn) {
	for _, c := range conns {
		c.SetLinger(0)
		c.Close()
	}
}

// send fills streams until the receiver cuts them off, and closes them. What
// became of it is the receiver's to say.
func send(conns []*net.TCPConn, r request) sent {
	defer cut(conns)
	begun := time.Now()
	var wg sync.WaitGroup
	for i, c := range conns {
		c.SetWriteDeadline(begun.Add(r.warmup + r.duration + grace))
		wg.Go(func() {
			data := noise()
			for at := i * blockBytes; ; at += blockBytes {
				at %= len(data)
				if _, err := c.Write(data[at : at+blockBytes]); err != nil {
					return
				}
			}
		})
	}
	over := make(chan struct{})
	go func() {
		wg.Wait()
		close(over)
	}()
	defer func() { <-over }()
	wait := func(until time.Duration) {
		t := time.NewTimer(time.Until(begun.Add(until)))
		defer t.Stop()
		select {
		case <-t.C:
		case <-over:
		}
	}
	wait(r.warmup)
	before := infos(conns)
	wait(r.warmup + r.duration)
	return difference(before, infos(conns))
}

// received is what a receiver counted after warm-up.
type received struct {
	bytes int64
	rate  float64 // bytes a second
}

var errNothing = errors.New("nothing came")

// receive counts what comes on streams, and closes them, the sender cut off. The
// first byte must come in half of the time that is left, so that there is time
// to say that it did not.
func receive(conns []*net.TCPConn, r request, until time.Time) (received, error) {
	defer cut(conns)
	base := time.Now()
	for _, c := range conns {
		c.SetReadDeadline(base.Add(until.Sub(base) / 2))
	}
	var first atomic.Int64 // when the first byte came, after base
	begin := func(now time.Duration) {
		if first.CompareAndSwap(0, max(int64(now), 1)) {
			for _, c := range conns {
				c.SetReadDeadline(base.Add(now + r.warmup + r.duration))
			}
		}
	}
	tallies, errs := make([]tally, len(conns)), make([]error, len(conns))
	var wg sync.WaitGroup
	for i, c := range conns {
		wg.Go(func() {
			if errs[i] = tallies[i].count(c, base, &first, begin, r); errs[i] != nil {
				errs[i] = fmt.Errorf("stream %d of %d: %w", i+1, len(conns), errs[i])
				cut(conns) // the others wait for nothing
			}
		})
	}
	wg.Wait()
	// Those that were cut off for another's sake say nothing new.
	for _, err := range errs {
		if err != nil && !errors.Is(err, net.ErrClosed) {
			return received{}, err
		}
	}
	if err := errors.Join(errs...); err != nil {
		return received{}, err
	}
	var out received
	for i := range tallies {
		bytes, took := tallies[i].result(r.duration)
		out.bytes += bytes
		out.rate += float64(bytes) / took.Seconds()
	}
	if first.Load() == 0 {
		return received{}, fmt.Errorf("%w on any of %d streams; small messages do: is the MTU right all the way?", errNothing, len(conns))
	}
	if out.bytes == 0 {
		return received{}, fmt.Errorf("%w for %v after a warm-up of %v", errNothing, r.duration, r.warmup)
	}
	return out, nil
}

// A tally is what one stream received in the time that counts. Times are from
// the beginning of that.
type tally struct {
	reads       int
	bytes       int64
	firstBytes  int64         // of the first read
	first, last time.Duration // when reads ended
	longest     time.Duration // between two of them
}

// count reads a stream until the time is over.
func (t *tally) count(c *net.TCPConn, base time.Time, first *atomic.Int64, begin func(time.Duration), r request) error {
	block := blocks.Get().(*[blockBytes]byte)
	defer blocks.Put(block)
	from := time.Duration(-1)
	for {
		n, err := c.Read(block[:])
		now := time.Since(base)
		if n > 0 {
			if from < 0 {
				begin(now)
				from = time.Duration(first.Load()) + r.warmup
			}
			if now >= from+r.duration {
				return nil
			}
			if now >= from {
				t.add(n, now-from)
			}
		}
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("it broke off: %w", err)
		}
	}
}

func (t *tally) add(n int, at time.Duration) {
	if t.reads == 0 {
		t.first, t.firstBytes = at, int64(n)
	} else {
		t.longest = max(t.longest, at-t.last)
	}
	t.last = at
	t.reads++
	t.bytes += int64(n)
}

// result is what was counted from one read's end to another's, which is exact
// however few there are. But a silence at either end that is longer than any
// between reads counts: the stream stood still.
func (t *tally) result(duration time.Duration) (bytes int64, took time.Duration) {
	bytes, took = t.bytes, duration
	if t.reads < 2 {
		return bytes, took
	}
	if t.first <= t.longest {
		bytes -= t.firstBytes
		took -= t.first
	}
	if silence := duration - t.last; silence <= t.longest {
		took -= silence
	}
	return bytes, took
}
