package probe

import (
	"strings"
	"testing"
	"time"
)

// TestVigil: a peer whose port stands still is given up, one that moves is waited for until no test
// takes so long.
func TestVigil(t *testing.T) {
	short := Default(Write, Bandwidth)
	short.Iterations, short.Size = 1000, 1250 // 10 s and 0.1 s at the slowest
	timed := short
	timed.Duration = 20 * time.Second
	endless := short
	endless.Endless = true
	for _, tt := range []struct {
		name  string
		c     Config
		moves time.Duration // so long the counters change
		none  bool          // of them
		after time.Duration
		want  string
	}{
		{"never moves", short, 0, false, 8 * time.Second, "no counter of rxe0 port 1 has changed for 8s"},
		{"moves for a while", endless, 100 * time.Second, false, 108 * time.Second, "no counter of rxe0 port 1 has changed for 8s"},
		{"others move", short, time.Hour, false, 8*time.Second + 10100*time.Millisecond, "should have ended its measurement after 18.1s"},
		{"others move, timed", timed, time.Hour, false, 36 * time.Second, "should have ended its measurement after 36s"},
		{"no counters", timed, 0, true, 36 * time.Second, "should have ended its measurement after 36s"},
		{"no counters, endless", endless, 0, true, 24 * time.Hour, "should have ended its measurement after 24h"},
	} {
		began := time.Unix(1000, 0)
		now := began
		v := &vigil{quiet: 8 * time.Second, most: tt.c.longest(8 * time.Second), port: "rxe0 port 1", now: func() time.Time { return now }}
		v.counters = func() map[string]uint64 {
			if tt.none {
				return nil
			}
			return map[string]uint64{"rcvd_pkts": uint64(min(now.Sub(began), tt.moves))}
		}
		v.begin()
		text := ""
		for text == "" && now.Sub(began) < 25*time.Hour {
			now = now.Add(v.step())
			text = v.ended()
		}
		if after := now.Sub(began); after < tt.after || after > tt.after+v.step() || !strings.Contains(text, tt.want) {
			t.Errorf("%s: %q after %v; want %q after %v", tt.name, text, after, tt.want, tt.after)
		}
	}
	huge := Default(Send, Bandwidth)
	huge.Iterations, huge.QPs, huge.Size = maxIterations, maxQPs, maxSize
	if got := huge.longest(time.Second); got <= 0 {
		t.Errorf("the longest test: %v", got)
	}
}
