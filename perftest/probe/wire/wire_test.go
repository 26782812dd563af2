package wire

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"net"
	"strings"
	"testing"
	"time"
)

// TestTranscript: in either role we say what a C tool said, byte by byte, and
// take what the other one said.
func TestTranscript(t *testing.T) {
	lines := transcript(t, "write_bw.txt")
	report := Report{Size: 65536, Iterations: 20, Peak: math.Float64frombits(0x403b743a3eadef58), Average: math.Float64frombits(0x40250a74a68007f7), Rate: math.Float64frombits(0x3f26101baecd0fdf)}
	junk := Report{6, 0x7ffc89bb9300, math.Float64frombits(0x7f33513f08b0), math.Float64frombits(0x7ffc89b78448), math.Float64frombits(0x7f3351227a70)}
	for _, role := range []Role{Client, Server} {
		t.Run(role.String(), func(t *testing.T) {
			ours, theirs := tcpPair(t)
			played := make(chan error, 1)
			go func() { played <- replay(theirs, !role, lines) }()
			mine, want := report, junk
			if role == Server {
				mine, want = junk, report
			}
			ctx, c := soon(t), NewConn(ours, role, Options{})
			old := hello
			old.Version = "6.06" // the transcript's on both sides
			agreed, peer, err := c.Hello(ctx, old, false)
			if err != nil || agreed != (Hello{"6.06", 4096, 64, 1024}) || peer != agreed {
				t.Fatalf("Hello = %+v, %+v, %v", agreed, peer, err)
			}
			for range 4 {
				got, err := c.SwapFor(ctx, "an address record", record(t, role))
				if err != nil || got != record(t, !role) {
					t.Fatalf("Swap = %+v, %v", got, err)
				}
			}
			got, err := c.SwapReport(ctx, mine)
			if err != nil || got != want {
				t.Fatalf("SwapReport = %+v, %v", got, err)
			}
			if err := got.Check(); (err != nil) != (role == Client) {
				t.Errorf("Check(%+v) = %v", got, err)
			}
			if _, err := c.SwapFor(ctx, "an address record", record(t, role)); err != nil {
				t.Fatal(err)
			}
			c.Bye()
			if err := <-played; err != nil {
				t.Error(err)
			}
		})
	}
}

func TestAddress(t *testing.T) {
	short := Address{OutReads: 1, QPN: 0x12, PSN: 0xf31695, RKey: 0x2e7, VAddr: 0x55d2af833000}
	if got, want := string(marshal(t, short)), "0000:0001:000012:f31695:000002e7:000055d2af833000:00000000\x00"; got != want {
		t.Errorf("short form = %q; want %q", got, want)
	}
	for _, a := range []Address{short, record(t, Client), {LID: 0xffff, OutReads: 0xffff, QPN: 0xffffff, PSN: 0xffffff, RKey: math.MaxUint32, VAddr: math.MaxUint64, SRQN: math.MaxUint32, HasGID: true}} {
		if got, err := parseAddress(marshal(t, a)); err != nil || got != a {
			t.Errorf("ParseAddress = %+v, %v; want %+v", got, err, a)
		}
	}
	for _, a := range []Address{{OutReads: -1}, {OutReads: 1 << 16}, {QPN: 1 << 24}, {PSN: 1 << 24}} {
		if _, err := a.Marshal(); !errors.Is(err, ErrLocal) {
			t.Errorf("%+v: %v; want ErrLocal", a, err)
		}
	}
	good := string(marshal(t, record(t, Client)))
	for _, bad := range []string{"", good[:107], strings.ToUpper(good), strings.Replace(good, ":", ";", 1), good[:107] + "\n", " " + good[1:], "0x" + good[2:], good + "\x00"} {
		if _, err := parseAddress([]byte(bad)); err == nil {
			t.Errorf("%q was taken", bad)
		}
	}
}

func TestReaches(t *testing.T) {
	four, six := record(t, Client), record(t, Client)
	six.GID = [16]byte{0xfe, 0x80, 15: 1}
	for _, tt := range []struct {
		mine, peer Address
		ok         bool
	}{{four, record(t, Server), true}, {six, six, true}, {four, six, false}, {six, four, false}, {Address{}, Address{}, true}} {
		if err := tt.mine.Reaches(tt.peer); (err == nil) != tt.ok || err != nil && !errors.Is(err, ErrMismatch) {
			t.Errorf("%v reaches %v: %v", tt.mine.GID, tt.peer.GID, err)
		}
	}
}

// TestDuplicate: one GID on two hosts is worth a remark, on one host it is not.
func TestDuplicate(t *testing.T) {
	a, b := record(t, Client), record(t, Client)
	b.GID[15]++
	for _, tt := range []struct {
		peer Address
		same bool
		want bool
	}{{a, false, true}, {a, true, false}, {b, false, false}, {Address{}, false, false}} {
		if got := a.Duplicate(tt.peer, tt.same); (got != "") != tt.want {
			t.Errorf("%v, %v: %q", tt.peer.GID, tt.same, got)
		}
	}
	ours, _ := tcpPair(t)
	if !NewConn(ours, Client, Options{}).SameHost() {
		t.Error("the loopback is another host")
	}
}

func TestVersions(t *testing.T) {
	for in, want := range map[string]int{"6.06": 606, "5.60": 560, "6.1": 610, "6.29": 629, "10.05": 1005} {
		if got, ok := parseVersion(in); !ok || got != want {
			t.Errorf("parseVersion(%q) = %d, %v; want %d", in, got, ok, want)
		}
	}
	for _, bad := range []string{"", "6", "6.", ".06", "6.0606", "6,06", "-6.06", "6.06 ", "1e10", "nan", "600.1"} {
		if got, ok := parseVersion(bad); ok {
			t.Errorf("parseVersion(%q) = %d", bad, got)
		}
	}
	if v, err := unmarshalVersion([]byte("6.06\x00stack's junk")[:16]); v != "6.06" || err != nil {
		t.Errorf("bytes behind the NUL: %q, %v", v, err)
	}
	for _, v := range []struct {
		mine, peer string
		want       bool
	}{{"6.06", "6.06", false}, {"6.06", "6.28", true}, {"6.06", "6.29", false}, {"6.29", "6.29", true}, {"6.29", "6.27", false}, {"6.28", "6.06", true}} {
		if got := (Hello{Version: v.mine}).NeedsParams(Hello{Version: v.peer}); got != v.want {
			t.Errorf("NeedsParams(%s, %s) = %v", v.mine, v.peer, got)
		}
	}
}

// TestHelloAgrees: the larger buffer and line, the smaller MTU.
func TestHelloAgrees(t *testing.T) {
	ours, theirs := tcpPair(t)
	done := make(chan error, 1)
	go func() {
		_, _, err := NewConn(theirs, Client, Options{}).Hello(soon(t), Hello{Cycle: 65536, Line: 32, MTU: 4096, Version: "6.29"}, false)
		done <- err
	}()
	agreed, peer, err := NewConn(ours, Server, Options{}).Hello(soon(t), Hello{Cycle: 4096, Line: 128, MTU: 2048, Version: "6.06"}, false)
	if err != nil || <-done != nil || agreed != (Hello{"6.06", 65536, 128, 2048}) || peer != (Hello{"6.29", 65536, 32, 4096}) {
		t.Errorf("agreed %+v, peer %+v, %v", agreed, peer, err)
	}
	for _, h := range []Hello{{Cycle: 0, Line: 64, MTU: 1024}, {Cycle: 4096, Line: 0, MTU: 1024}, {Cycle: 4096, Line: 64, MTU: 1500}, {Version: "six", Cycle: 1, Line: 1, MTU: 256}} {
		if _, _, err := NewConn(ours, Server, Options{}).Hello(soon(t), h, false); !errors.Is(err, ErrLocal) {
			t.Errorf("%+v: %v", h, err)
		}
	}
}

// TestHelloWithoutMTU: raw Ethernet exchanges none.
func TestHelloWithoutMTU(t *testing.T) {
	ours, theirs := tcpPair(t)
	go scripted(theirs, version("6.06"), []byte{0, 0, 16, 0}, []byte{0, 0, 0, 64})
	if agreed, _, err := NewConn(ours, Client, Options{}).Hello(soon(t), Hello{Cycle: 4096, Line: 64}, true); err != nil || agreed.MTU != 0 {
		t.Errorf("%+v, %v", agreed, err)
	}
}

func params() Params {
	return Params{Sizes: "one size", Connection: "RC", Verb: "write", Test: "bandwidth", Mode: "iterations", Format: "MiB/s", Size: 65536, Iterations: 5000, QPs: 1, Duration: 5, MaxReads: 16}
}

// block is how params go over the wire.
func block(t testing.TB, p Params) []byte {
	t.Helper()
	b, err := p.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestParams(t *testing.T) {
	p := params()
	b := block(t, p)
	if got, err := parseParams(b); err != nil || got != p || len(b) != 320 {
		t.Errorf("ParseParams = %+v, %v; want %+v", got, err, p)
	}
	if b[11] != 2 || b[15] != 1 || binary.BigEndian.Uint64(b[32:]) != 65536 || b[224] != 16 {
		t.Errorf("offsets: % x", b)
	}
	for _, tt := range []struct {
		change func(*Params)
		want   string
	}{
		{func(p *Params) { p.Size = 1 }, "the message size (-s) is 65536 here and 1 at the peer"},
		{func(p *Params) { p.Iterations = 7 }, "(-n) is 5000 here and 7 at the peer"},
		{func(p *Params) { p.QPs = 2 }, "(-q) is 1 here and 2 at the peer"},
		{func(p *Params) { p.Sizes = "all sizes"; p.Size = 8 << 20 }, "is one size here and all sizes at the peer"},
		{func(p *Params) { p.Verb = "read" }, "is write here and read at the peer"},
		{func(p *Params) { p.Connection = "UC" }, "(-c) is RC here and UC at the peer"},
		{func(p *Params) { p.Format = "Gb/s" }, "(--report_gbits) is MiB/s here and Gb/s at the peer"},
		{func(p *Params) { p.Mode = "duration"; p.Iterations = 0 }, "(-D) is iterations here and duration at the peer"},
		{func(p *Params) { p.MaxReads = 1; p.Compression = 3 }, ""},
	} {
		q := params()
		tt.change(&q)
		err := p.Compare(q)
		if tt.want == "" && err != nil || tt.want != "" && (!errors.Is(err, ErrMismatch) || !strings.Contains(err.Error(), tt.want)) {
			t.Errorf("Compare = %v; want %q", err, tt.want)
		}
	}
	if _, err := parseParams(b[:312]); err == nil {
		t.Error("a short block was taken")
	}
	p.Verb = "wirte"
	if _, err := p.Marshal(); !errors.Is(err, ErrLocal) || !strings.Contains(err.Error(), "wirte") {
		t.Errorf("a verb that there is not: %v", err)
	}
}

// TestParamsSwap: both sides find the difference.
func TestParamsSwap(t *testing.T) {
	ours, theirs := tcpPair(t)
	other := params()
	other.QPs = 4
	done := make(chan error, 1)
	go func() {
		_, err := NewConn(theirs, Server, Options{}).SwapParams(soon(t), other)
		done <- err
	}()
	_, err := NewConn(ours, Client, Options{}).SwapParams(soon(t), params())
	if err2 := <-done; !errors.Is(err, ErrMismatch) || !errors.Is(err2, ErrMismatch) {
		t.Errorf("%v; %v", err, err2)
	}
}

// TestReportCheck: a record's digits, or an integer's bytes, are no numbers.
func TestReportCheck(t *testing.T) {
	good := Report{65536, 5000, 11000.5, 10999.25, 0.176}
	if err := good.Check(); err != nil {
		t.Error(err)
	}
	for _, change := range []func(*Report){
		func(r *Report) { r.Size = 0 }, func(r *Report) { r.Size = 1 << 50 }, func(r *Report) { r.Iterations = math.MaxUint64 },
		func(r *Report) { r.Peak = math.NaN() }, func(r *Report) { r.Average = math.Inf(1) }, func(r *Report) { r.Average = -1 },
		func(r *Report) { r.Rate = math.Float64frombits(0x7f3351227a70) },
	} {
		r := good
		change(&r)
		if err := r.Check(); !errors.Is(err, ErrMismatch) {
			t.Errorf("%+v: %v", r, err)
		}
	}
}

// TestOneWrite: each message is one segment, however the peer reads.
func TestOneWrite(t *testing.T) {
	w := &writes{Conn: discard{}}
	c := NewConn(w, Client, Options{})
	_, _ = c.SwapFor(t.Context(), "an address record", Address{HasGID: true})
	c.failed = nil
	_, _, _ = c.Hello(t.Context(), hello, false)
	if fmt.Sprint(w.sizes) != "[108 16]" {
		t.Errorf("writes of %v bytes", w.sizes)
	}
}

type writes struct {
	net.Conn
	sizes []int
}

func (w *writes) Write(b []byte) (int, error) {
	w.sizes = append(w.sizes, len(b))
	return len(b), nil
}

// discard is a connection whose peer has closed.
type discard struct{ net.Conn }

func (discard) Read([]byte) (int, error)        { return 0, net.ErrClosed }
func (discard) SetDeadline(time.Time) error     { return nil }
func (discard) RemoteAddr() (a net.Addr)        { return &net.TCPAddr{IP: net.IPv4(10, 0, 0, 1), Port: 18515} }
func (discard) LocalAddr() (a net.Addr)         { return &net.TCPAddr{} }
func (discard) SetReadDeadline(time.Time) error { return nil }

// TestOutOfStep: after a failure nothing more is exchanged.
func TestOutOfStep(t *testing.T) {
	w := &writes{Conn: discard{}}
	c := NewConn(w, Client, Options{})
	_, first := c.SwapFor(t.Context(), "an address record", Address{})
	_, second := c.SwapFor(t.Context(), "an address record", Address{})
	if first == nil || first != second || len(w.sizes) != 1 {
		t.Errorf("%v; %v; %d writes", first, second, len(w.sizes))
	}
}

// TestLimits: of the exchange's limit, the context's deadline and its end, the first one counts.
func TestLimits(t *testing.T) {
	ours, _ := tcpPair(t)
	c := NewConn(ours, Server, Options{Timeout: 30 * time.Millisecond})
	if _, err := c.SwapFor(context.Background(), "an address record", Address{}); !errors.Is(err, ErrTimeout) || !strings.Contains(err.Error(), "nothing arrived for 30ms") {
		t.Errorf("own limit: %v", err)
	}
	c = NewConn(ours, Server, Options{Timeout: time.Hour})
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Millisecond)
	defer cancel()
	if _, err := c.SwapFor(ctx, "an address record", Address{}); !errors.Is(err, ErrTimeout) {
		t.Errorf("context's limit: %v", err)
	}
}

// TestKeep: a vigil outlives the exchange's limit, loses no byte of a message that comes in pieces,
// and ends with its own reason, or with the context.
func TestKeep(t *testing.T) {
	ours, theirs := tcpPair(t)
	c := NewConn(ours, Server, Options{Timeout: time.Minute})
	looks := 0
	c.Keep(Vigil{Step: 5 * time.Millisecond, Ended: func() string {
		b := marshal(t, Address{QPN: 7})
		switch looks++; looks {
		case 2:
			scripted(theirs, b[:20])
		case 4:
			scripted(theirs, b[20:])
		case 1000:
			return "the record did not come"
		}
		return ""
	}})
	if a, err := c.SwapFor(soon(t), "an address record", Address{}); err != nil || a.QPN != 7 || looks < 4 {
		t.Fatalf("%+v, %v after %d looks", a, err, looks)
	}
	ctx, cancel := context.WithCancel(soon(t))
	release := c.Keep(Vigil{Step: time.Millisecond, Ended: func() string { cancel(); return "" }})
	if _, err := c.SwapFor(ctx, "an address record", Address{}); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
	release()
	for _, role := range []Role{Client, Server} {
		ours, _ := tcpPair(t)
		c := NewConn(ours, role, Options{})
		c.Keep(Vigil{Step: time.Millisecond, Ended: func() string { return "the counters stand still" }})
		if _, err := c.SwapFor(soon(t), "an address record", Address{}); !errors.Is(err, ErrTimeout) || !strings.Contains(err.Error(), "the counters stand still") {
			t.Errorf("%v: %v", role, err)
		}
	}
}

func TestPrintable(t *testing.T) {
	for in, want := range map[string]string{
		"GET / HTTP/1.0\r\n": `"GET / HTTP/1.0\r\n"`, "\x00\x00": "2 zero bytes", "\x16\x03\x01": "16 03 01",
	} {
		if got := printable([]byte(in)); got != want {
			t.Errorf("printable(%q) = %s; want %s", in, got, want)
		}
	}
	if got := printable(bytes.Repeat([]byte{200}, 1000)); len(got) > 100 || !strings.HasSuffix(got, "…") {
		t.Errorf("long: %s", got)
	}
}
