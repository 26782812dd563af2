package tcp

import (
	"context"
	"errors"
	"math"
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestMeasure(t *testing.T) {
	for _, tt := range []struct {
		name, addr string
		o          Options
	}{
		{"defaults", "127.0.0.1:0", Options{}},
		{"both at once", "127.0.0.1:0", Options{Duration: 300 * time.Millisecond, Both: true}},
		{"one stream", "127.0.0.1:0", Options{Duration: 300 * time.Millisecond, Warmup: time.Millisecond, Streams: 1}},
		{"from an address", "127.0.0.1:0", Options{Duration: 300 * time.Millisecond, LocalAddr: netip.MustParseAddr("127.0.0.9")}},
		{"any address", "0.0.0.0:0", Options{Duration: 300 * time.Millisecond}},
		{"IPv6", "[::1]:0", Options{Duration: 300 * time.Millisecond}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s, err := Listen(tt.addr, token)
			if err != nil && strings.HasPrefix(tt.addr, "[") {
				t.Skipf("no IPv6 here: %v", err)
			}
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			r, err := measure(t, s.Addr().String(), tt.o)
			if err != nil {
				t.Fatal(err)
			}
			for name, f := range map[string]Flow{"forward": r.Forward, "back": r.Back} {
				if f.Bytes <= 0 || f.Seconds <= 0 || math.Abs(f.Rate*f.Seconds/float64(f.Bytes)-1) > 1e-9 {
					t.Errorf("%s: %+v", name, f)
				}
				if f.Segments <= 0 || f.Resent < 0 || f.RTT <= 0 || f.MinRTT <= 0 || f.MinRTT > f.RTT || f.ResentShare() >= 1 {
					t.Errorf("%s: %+v; what the kernel says is not right", name, f)
				}
			}
		})
	}
}

// TestSeveral: several hosts may measure with one at a time.
func TestSeveral(t *testing.T) {
	s := serve(t, usual)
	o := Options{Duration: 500 * time.Millisecond, Streams: 1} // they share the processors, too
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			if _, err := measure(t, s.Addr().String(), o); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
}

func TestOptions(t *testing.T) {
	for _, tt := range []struct {
		name string
		o    Options
		want string
	}{
		{"backwards", Options{Duration: -1}, "the first above 0"},
		{"too long", Options{Duration: time.Hour}, "may be up to 10m0s"},
		{"too many streams", Options{Streams: 1000}, "1 to 64 are possible"},
		{"no time", Options{Duration: time.Second, Limit: time.Second}, "the measurement takes 2.2s"},
	} {
		if _, err := Measure(t.Context(), "127.0.0.1:1", token, tt.o); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v; want %q", tt.name, err, tt.want)
		}
	}
	if _, err := Listen("127.0.0.1:0", nil); err == nil {
		t.Error("a server without a token")
	}
}

func TestCount(t *testing.T) {
	ms := func(n int) time.Time { return time.Unix(1, int64(n)*1e6) }
	kernel := func(at int, bytes uint64) reading {
		return reading{TCPInfo: unix.TCPInfo{State: 1, Bytes_received: bytes}, at: ms(at), count: 1}
	}
	process := func(at int, bytes int64) reading { return reading{at: ms(at), count: bytes} }
	for _, tt := range []struct {
		name          string
		before, after []reading
		want          received
	}{
		{"the kernel's count", []reading{kernel(0, 100)}, []reading{kernel(50, 600)}, received{500, 50 * time.Millisecond}},
		{"the process's", []reading{process(0, 100)}, []reading{process(50, 700)}, received{600, 50 * time.Millisecond}},
		{"the kernel stops telling", []reading{kernel(0, 100)}, []reading{process(50, 701)}, received{700, 50 * time.Millisecond}},
		{"two streams, one interrupted", []reading{kernel(0, 0), kernel(10, 0)}, []reading{kernel(50, 5000), kernel(50, 4000)}, received{9000, 45 * time.Millisecond}},
		{"a silent one", []reading{kernel(0, 7), kernel(0, 0)}, []reading{kernel(50, 7), kernel(50, 500)}, received{500, 50 * time.Millisecond}},
		{"silence", []reading{kernel(0, 7)}, []reading{kernel(50, 7)}, received{}},
	} {
		if got := count(tt.before, tt.after); got != tt.want {
			t.Errorf("%s: %+v; want %+v", tt.name, got, tt.want)
		}
	}
}

func TestDifference(t *testing.T) {
	info := func(segments, resent, rtt, minRTT uint32) reading {
		return reading{TCPInfo: unix.TCPInfo{State: 1, Data_segs_out: segments, Total_retrans: resent, Rtt: rtt, Min_rtt: minRTT}}
	}
	for _, tt := range []struct {
		name          string
		before, after []reading
		want          sent
	}{
		{"two streams", []reading{info(10, 1, 5, 5), info(20, 0, 5, 5)}, []reading{info(110, 2, 30, 5), info(220, 2, 50, 4)}, sent{300, 3, 40 * time.Microsecond, 4 * time.Microsecond}},
		{"around", []reading{info(1<<32-10, 0, 5, 5)}, []reading{info(10, 0, 5, 5)}, sent{20, 0, 5 * time.Microsecond, 5 * time.Microsecond}},
		{"an old kernel", []reading{info(0, 0, 5, 0)}, []reading{info(0, 7, 5, 0)}, sent{0, 7, 5 * time.Microsecond, 0}},
		{"no time known yet", []reading{info(1, 0, 0, 1<<32-1)}, []reading{info(2, 0, 0, 1<<32-1)}, sent{1, 0, 0, 0}},
		{"closed meanwhile", []reading{info(10, 1, 5, 5)}, []reading{{}}, sent{}},
	} {
		if got := difference(tt.before, tt.after); got != tt.want {
			t.Errorf("%s: %+v; want %+v", tt.name, got, tt.want)
		}
	}
}

// TestAllocations: there are none for a read or a write.
func TestAllocations(t *testing.T) {
	s := serve(t, usual)
	allocations := func(o Options) float64 {
		return testing.AllocsPerRun(1, func() {
			if _, err := measure(t, s.Addr().String(), o); err != nil {
				t.Fatal(err)
			}
		})
	}
	long := short
	long.Duration *= 5
	if a, b := allocations(short), allocations(long); b > a+200 {
		t.Errorf("%v allocations in %v, %v in %v", a, short.Duration, b, long.Duration)
	}
}

func TestCancel(t *testing.T) {
	s := serve(t, usual)
	ctx, cancel := context.WithCancelCause(t.Context())
	mine := errors.New("enough of it")
	o := Options{Duration: time.Minute}
	done := make(chan error)
	go func() {
		_, err := Measure(ctx, s.Addr().String(), token, o)
		done <- err
	}()
	running(t, s)
	cancel(mine)
	if err := <-done; !errors.Is(err, mine) {
		t.Errorf("%v; want %v", err, mine)
	}
}

// running waits until a measurement is under way.
func running(t *testing.T, s *Server) {
	t.Helper()
	for range 10_000 {
		s.mu.Lock()
		for _, q := range s.sessions {
			if q.lanes[forward] == nil {
				s.mu.Unlock()
				return
			}
		}
		s.mu.Unlock()
		time.Sleep(time.Millisecond)
	}
	t.Fatal("no measurement has begun")
}

func TestClose(t *testing.T) {
	s := serve(t, usual)
	done := make(chan error)
	go func() {
		_, err := Measure(t.Context(), s.Addr().String(), token, Options{Duration: time.Minute})
		done <- err
	}()
	running(t, s)
	idle, err := net.Dial("tcp", s.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer idle.Close()
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if err := <-done; err == nil || !strings.Contains(err.Error(), "measuring to it") {
		t.Errorf("%v; want what was being done", err)
	}
	if err := s.Close(); err != nil {
		t.Errorf("closing again: %v", err)
	}
	if len(s.conns)+len(s.sessions) > 0 {
		t.Errorf("left over: %v, %v", s.conns, s.sessions)
	}
}
