package tcp

import (
	"bytes"
	"testing"
	"time"
)

// FuzzWire: what is read without an error is written the same again, and nothing
// crashes.
func FuzzWire(f *testing.F) {
	r := request{warmup: time.Millisecond, duration: time.Second, limit: time.Minute, streams: 4}
	f.Add(claim{direction: back, stream: 3, session: sessionID{1, 2}}.encode())
	f.Add(claim{}.encode())
	f.Add(r.encode())
	f.Add(result{received{1 << 40, time.Second}, sent{100, 1, time.Millisecond, time.Microsecond}}.encode())
	f.Fuzz(func(t *testing.T, b []byte) {
		same := func(what string, got, want []byte) {
			if !bytes.Equal(got, want) {
				t.Errorf("%s % x is written as % x", what, want, got)
			}
		}
		if c, err := decodeClaim(b); err == nil {
			same("claim", c.encode(), b)
		}
		if r, err := decodeRequest(b); err == nil {
			same("request", r.encode(), b)
			if r.streams > maxStreams || r.duration > maxDuration || r.limit > maxLimit {
				t.Errorf("a request beyond what is allowed: %+v", r)
			}
		}
		if r, err := decodeResult(b); err == nil {
			same("result", r.encode(), b)
		}
	})
}
