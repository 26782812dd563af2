package tcp

import (
	"encoding/binary"
	"math/rand/v2"
	"net"
	"testing"
	"time"

	"github.com/assay-hpc/assay/internal/meet"
)

func serving(t *testing.T) *Server {
	t.Helper()
	s, err := Listen("127.0.0.1:0", token)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func TestPing(t *testing.T) {
	s := serving(t)
	for _, o := range []PingOptions{{}, {Duration: 30 * time.Millisecond, Interval: 100 * time.Microsecond, Bytes: 1400}, {Duration: time.Millisecond}} {
		p, err := Ping(t.Context(), s.Addr().String(), token, o)
		o, _ = o.check()
		n := int(o.Duration / o.Interval)
		if err != nil || p.Forward.Sent != n || p.Back.Sent != n-p.Forward.Lost || p.RTT <= 0 || p.Tail < p.RTT || p.Forward.Late < 0 || p.Back.Late < 0 {
			t.Errorf("%+v: %+v, %v", o, p, err)
		}
		// A busy machine may be late; it loses nothing on loopback.
		if p.Forward.Lost+p.Back.Lost+p.Forward.Twice+p.Back.Twice > 0 && p.Tail < pingWait/2 {
			t.Errorf("%+v: %+v", o, p)
		}
	}
	for _, o := range []PingOptions{{Bytes: 10}, {Bytes: 1e6}, {Interval: time.Nanosecond}, {Duration: time.Hour}, {Duration: time.Microsecond}} {
		if p, err := Ping(t.Context(), s.Addr().String(), token, o); err == nil {
			t.Errorf("%+v: %+v", o, p)
		}
	}
	if _, err := Ping(t.Context(), s.Addr().String(), []byte("wrong"), PingOptions{}); err == nil {
		t.Error("pings without the token")
	}
}

// TestPingStrangers: packets without the key, and those of a wrong length or number, are not
// answered and count for nothing.
func TestPingStrangers(t *testing.T) {
	s := serving(t)
	c := call(t, s, claim{session: sessionID{1}})
	if err := meet.WriteFrame(c, framePing, binary.BigEndian.AppendUint64(nil, uint64(time.Second))); err != nil {
		t.Fatal(err)
	}
	at, err := expect(c, framePingAt)
	if err != nil {
		t.Fatal(err)
	}
	u, err := net.DialUDP("udp", nil, &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1), Port: int(binary.BigEndian.Uint16(at))})
	if err != nil {
		t.Fatal(err)
	}
	defer u.Close()
	good := append(append([]byte(nil), at[2:]...), make([]byte, pingHeader-keyBytes)...)
	bad := append([]byte(nil), good...)
	bad[0]++
	beyond := append([]byte(nil), good...)
	binary.BigEndian.PutUint32(beyond[keyBytes:], maxPings)
	for _, b := range [][]byte{nil, bad, good[:keyBytes], beyond, good, good} {
		u.Write(b)
	}
	u.SetReadDeadline(time.Now().Add(5 * time.Second))
	answer := make([]byte, 100)
	if n, err := u.Read(answer); err != nil || n != len(good) {
		t.Fatalf("%d bytes, %v", n, err)
	}
	u.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
	if n, err := u.Read(answer); err == nil {
		t.Errorf("a second answer, of %d bytes", n)
	}
	if err := meet.WriteFrame(c, framePing, nil); err != nil {
		t.Fatal(err)
	}
	b, err := expect(c, framePinged)
	if err != nil {
		t.Fatal(err)
	}
	if a, err := decodeArrived(b, 1); err != nil || a.distinct != 1 || a.twice != 1 || a.swapped != 0 {
		t.Errorf("%+v, %v", a, err)
	}
}

// TestArrived holds the counts against the sequence that they are of.
func TestArrived(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		n := 1 + rng.IntN(300)
		a := arrived{seen: make([]uint64, (n+63)/64)}
		times := make([]int, n)
		twice, swapped, highest := 0, 0, -1
		for range rng.IntN(2 * n) {
			i := rng.IntN(n)
			if times[i]++; times[i] > 1 {
				twice++
			} else if i < highest {
				swapped++
			}
			highest = max(highest, i)
			if got := a.add(i); got != (times[i] == 1) {
				t.Fatalf("%d for the %d. time: %v", i, times[i], got)
			}
		}
		longest, run := 0, 0
		for _, k := range times {
			if run++; k > 0 {
				run = 0
			}
			longest = max(longest, run)
		}
		want := time.Duration(longest+1) * time.Millisecond
		if longest == 0 {
			want = 0
		}
		if got := a.outage(n, time.Millisecond); got != want || a.twice != twice || a.swapped != swapped {
			t.Fatalf("%v: outage %v, %d twice, %d swapped; want %v, %d, %d", times, got, a.twice, a.swapped, want, twice, swapped)
		}
		b := a.encode()
		if back, err := decodeArrived(b, n); err != nil || back.distinct != a.distinct || back.twice != twice || back.swapped != swapped {
			t.Fatalf("%+v, %v; want %+v", back, err, a)
		}
	}
}

func FuzzDecodeArrived(f *testing.F) {
	f.Add((&arrived{seen: []uint64{5}}).encode(), 3)
	f.Fuzz(func(t *testing.T, b []byte, n int) {
		if n < 0 || n > maxPings {
			return
		}
		if a, err := decodeArrived(b, n); err == nil && (a.distinct > n || a.twice < 0) {
			t.Errorf("%+v of %d", a, n)
		}
	})
}
