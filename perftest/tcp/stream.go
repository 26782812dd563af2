package tcp

import (
	"crypto/rand"
	"errors"
	"fmt"
	"math"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// blockBytes is the size of a stream's writes and reads: large enough that the cost of the call
	// is negligible, small enough for a CPU's cache.
	blockBytes = 256 << 10
	// grace is how much longer than requested a sender continues if it is not cut off: the receiver
	// started later, and its reset may be lost.
	grace = time.Second
)

// noise is the data that is sent: it is random because some links compress.
var noise = sync.OnceValue(func() []byte {
	b := make([]byte, 1<<20)
	rand.Read(b)
	return b
})

var blocks = sync.Pool{New: func() any { return new([blockBytes]byte) }}

// cut closes connections by a reset, which discards data in flight.
func cut(conns []*net.TCPConn) {
	for _, c := range conns {
		c.SetLinger(0)
		c.Close()
	}
}

// send fills streams until the receiver cuts them off, and closes them. It returns no error: the
// receiver reports the outcome.
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
	before := read(conns, nil)
	wait(r.warmup + r.duration)
	return difference(before, read(conns, nil))
}

// received contains a receiver's counts after warm-up.
type received struct {
	bytes int64
	took  time.Duration
}

var errNothing = errors.New("nothing came")

// receive counts the bytes received on streams, and closes them, which cuts the sender off. The
// first byte must arrive within half of the remaining time, so that there is time to report that it
// did not.
func receive(conns []*net.TCPConn, r request, until time.Time) (received, error) {
	counts := make([]atomic.Int64, len(conns))
	first := make(chan struct{})
	var once sync.Once
	broken := make(chan error, len(conns))
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cut(conns)
	for i, c := range conns {
		wg.Go(func() {
			block := blocks.Get().(*[blockBytes]byte)
			defer blocks.Put(block)
			for begun := false; ; {
				n, err := c.Read(block[:])
				counts[i].Add(int64(n))
				if !begun && n > 0 {
					begun = true
					once.Do(func() { close(first) })
				}
				if err != nil {
					broken <- fmt.Errorf("stream %d of %d broke off: %w", i+1, len(conns), err)
					return
				}
			}
		})
	}
	wait := func(d time.Duration, on <-chan struct{}) error {
		t := time.NewTimer(d)
		defer t.Stop()
		select {
		case <-on:
		case <-t.C:
		case err := <-broken:
			return err
		}
		return nil
	}
	if err := wait(time.Until(until)/2, first); err != nil {
		return received{}, err
	}
	begun := time.Now()
	select {
	case <-first:
	default:
		return received{}, fmt.Errorf("%w on any of %d streams; small messages do: is the MTU right all the way?", errNothing, len(conns))
	}
	if err := wait(r.warmup, nil); err != nil {
		return received{}, err
	}
	before := read(conns, counts)
	if err := wait(time.Until(begun.Add(r.warmup+r.duration)), nil); err != nil {
		return received{}, err
	}
	out := count(before, read(conns, counts))
	if out.bytes == 0 {
		return received{}, fmt.Errorf("%w for %v after a warm-up of %v", errNothing, r.duration, r.warmup)
	}
	return out, nil
}

// count calculates what arrived on all streams between two readings. The kernel's count is better
// than the count of bytes read, because it does not depend on when this process runs.
func count(before, after []reading) (out received) {
	var rate float64 // each stream has its own reading times
	for i, a := range after {
		b := before[i]
		n := a.count - b.count
		if a.State != 0 && b.State != 0 && a.Bytes_received > 0 {
			n = int64(a.Bytes_received - b.Bytes_received)
		}
		out.bytes += n
		rate += float64(n) / float64(a.at.Sub(b.at))
	}
	if rate > 0 {
		out.took = time.Duration(math.Round(float64(out.bytes) / rate))
	}
	return out
}
