package socket

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/assay-hpc/assay/coll/transport"
	"github.com/assay-hpc/assay/coll/transport/transporttest"
)

func TestParseInfo(t *testing.T) {
	for text, want := range map[string]string{
		"tcp/1 524288 192.0.2.1:4000":               "",
		"tcp/1 1 192.0.2.1:4000,[2001:db8::1]:4001": "",
		"":                              "version",
		"tcp/2 1 192.0.2.1:4000":        "version",
		"tcp/1 0 192.0.2.1:4000":        "positive",
		"tcp/1 01 192.0.2.1:4000":       "positive",
		"tcp/1 1 ":                      "not an ip:port",
		"tcp/1 1 192.0.2.1:0":           "plain form",
		"tcp/1 1 [fe80::1%eth0]:5":      "plain form",
		"tcp/1 1 192.0.2.1:4000,":       "not an ip:port",
		"tcp/1 99999999999 192.0.2.1:4": "positive",
	} {
		_, err := parseInfo([]byte(text))
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("parseInfo(%q) = %v; want %q", text, err, want)
		}
	}
}

func FuzzInfo(f *testing.F) {
	f.Add([]byte("tcp/1 524288 192.0.2.1:4000,[2001:db8::1]:4001"))
	f.Add([]byte("tcp/1 1 [::ffff:1.2.3.4]:1"))
	f.Fuzz(func(t *testing.T, data []byte) {
		if i, err := parseInfo(data); err == nil && !bytes.Equal(i.marshal(), data) {
			t.Errorf("%q is accepted, and is %q when written again", data, i.marshal())
		}
	})
}

func TestPairs(t *testing.T) {
	list := func(text string) (out []netip.Addr) {
		for _, s := range strings.Fields(text) {
			out = append(out, netip.MustParseAddr(s))
		}
		return out
	}
	for _, tt := range []struct{ local, remote, want string }{
		{"10.0.0.1", "10.0.0.2", "10.0.0.1>10.0.0.2:1"},
		{"10.0.0.1", "2001:db8::1", ""},
		{"10.0.0.1", "127.0.0.1", ""},
		{"10.0.0.1 10.0.1.1", "10.0.0.2 10.0.1.2", "10.0.0.1>10.0.0.2:1 10.0.1.1>10.0.1.2:1 10.0.0.1>10.0.1.2:1 10.0.1.1>10.0.0.2:1"},
		{"10.0.0.1 10.0.1.1", "10.0.0.2", "10.0.0.1>10.0.0.2:1 10.0.1.1>10.0.0.2:1"},
		{"10.0.0.1 2001:db8::1", "2001:db8::2 10.0.0.2", "10.0.0.1>10.0.0.2:1 2001:db8::1>[2001:db8::2]:1"},
		{"fe80::1%eth0 fe80::1%eth1", "fe80::2 2001:db8::1", "fe80::1%eth0>[fe80::2%eth0]:1 fe80::1%eth1>[fe80::2%eth1]:1"},
	} {
		var remote []netip.AddrPort
		for _, a := range list(tt.remote) {
			remote = append(remote, netip.AddrPortFrom(a, 1))
		}
		var got []string
		for _, p := range pairs(list(tt.local), remote) {
			got = append(got, p.local.String()+">"+p.remote.String())
		}
		if g := strings.Join(got, " "); g != tt.want {
			t.Errorf("pairs(%s; %s) = %s; want %s", tt.local, tt.remote, g, tt.want)
		}
	}
}

func FuzzHello(f *testing.F) {
	h := hello{source: 1, dest: 2, channel: 3, index: 4, streams: 5}
	f.Add(h.marshal())
	f.Fuzz(func(t *testing.T, data []byte) {
		if h, err := parseHello(data); err == nil && !bytes.Equal(h.marshal(), data) {
			t.Errorf("%x is accepted, and is %x when written again", data, h.marshal())
		}
	})
}

func testOptions(rank int) *Options {
	return &Options{Rank: rank, Key: testKey, Comm: []byte("test"), Fault: new(transport.Fault)}
}

// script is a connection whose peer says what it is told to.
type script struct {
	in  io.Reader
	out bytes.Buffer
}

func (s *script) Read(p []byte) (int, error)  { return s.in.Read(p) }
func (s *script) Write(p []byte) (int, error) { return s.out.Write(p) }

// FuzzHandshake: whatever a stranger says, it is no welcome. The fuzzer does
// not have the key.
func FuzzHandshake(f *testing.F) {
	h := hello{source: 1, dest: 2, channel: 3, index: 0, streams: 1}
	f.Add(append(h.marshal(), make([]byte, macSize)...))
	f.Add([]byte("GET / HTTP/1.1\r\n\r\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		if w, err := testOptions(2).receive(&script{in: bytes.NewReader(data)}); err == nil {
			t.Errorf("%x is welcome: %+v", data, w)
		}
	})
}

// TestHandshakeMalleability: a genuine hello with any bit changed, for another
// challenge, with another key or communicator, or replayed, is refused.
func TestHandshakeMalleability(t *testing.T) {
	dialer, acceptor := testOptions(1), testOptions(2)
	challenge := append([]byte(magic), make([]byte, nonceSize)...)
	h := hello{source: 1, dest: 2, channel: 3, index: 0, streams: 4}
	sign := func(o *Options, h hello) []byte {
		body := h.marshal()
		return append(body, o.mac("dial", challenge, body)...)
	}
	good := sign(dialer, h)
	if w, err := acceptor.verify(challenge, good); err != nil || w.hello != h {
		t.Fatalf("verify = %+v, %v; want %+v", w, err, h)
	}
	for bit := range len(good) * 8 {
		bad := bytes.Clone(good)
		bad[bit/8] ^= 1 << (bit % 8)
		if _, err := acceptor.verify(challenge, bad); err == nil {
			t.Fatalf("bit %d can be changed", bit)
		}
	}
	other := *dialer
	other.Key = []byte("another key, as long as testKey.")
	otherComm := *dialer
	otherComm.Comm = []byte("test2")
	for name, bad := range map[string][]byte{
		"another key":          sign(&other, h),
		"another communicator": sign(&otherComm, h),
		"another rank's":       sign(dialer, hello{source: 1, dest: 3, streams: 1}),
		"from itself":          sign(dialer, hello{source: 2, dest: 2, streams: 1}),
		"no streams":           sign(dialer, hello{source: 1, dest: 2}),
		"too many streams":     sign(dialer, hello{source: 1, dest: 2, streams: 1000}),
		"stream 4 of 4":        sign(dialer, hello{source: 1, dest: 2, index: 4, streams: 4}),
	} {
		if _, err := acceptor.verify(challenge, bad); err == nil {
			t.Errorf("a hello with %s is accepted", name)
		}
	}
	challenge[len(magic)] ^= 1
	if _, err := acceptor.verify(challenge, good); err == nil {
		t.Error("a hello can be replayed")
	}
}

// TestFalseAcceptor: a dialer does not talk to who lacks the key.
func TestFalseAcceptor(t *testing.T) {
	for name, answer := range map[string]string{
		"wrong answer": magic + strings.Repeat("n", nonceSize+macSize),
		"no answer":    magic + strings.Repeat("n", nonceSize),
		"another":      "SSH-2.0-OpenSSH_9.2 Debian and so on, until it is long enough for a challenge",
	} {
		a, b := net.Pipe()
		go func() {
			go io.Copy(io.Discard, b)
			io.WriteString(b, answer)
			b.Close()
		}()
		if err := testOptions(1).greet(a, hello{source: 1, dest: 2, streams: 1}); err == nil {
			t.Errorf("%s: the dialer is content", name)
		}
		a.Close()
	}
}

// TestStrangers: connections without the key are dropped and logged, a few
// lines for many; genuine ones come through meanwhile.
func TestStrangers(t *testing.T) {
	var mu sync.Mutex
	lines := 0
	opt := Options{Logf: func(f string, a ...any) { mu.Lock(); lines++; mu.Unlock() }}
	ranks := opener(opt)(t, 2)
	i, err := parseInfo(ranks[1].Info())
	if err != nil {
		t.Fatal(err)
	}
	addr := i.addrs[0].String()
	n := 400
	if testing.Short() {
		n = 100
	}
	for k := range n {
		c, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		switch k % 4 {
		case 0: // says nothing, and stays
			continue
		case 1:
			c.Write(bytes.Repeat([]byte{byte(k)}, helloSize))
		case 2:
			io.WriteString(c, "GET / HTTP/1.0\r\n\r\n")
			c.(*net.TCPConn).CloseWrite()
		case 3:
			h := hello{source: 0, dest: 1, streams: 1}
			o := testOptions(0)
			o.Key = []byte("another key, as long as testKey.")
			if err := o.greet(c, h); err == nil {
				t.Fatal("another key is accepted")
			}
			continue
		}
		c.SetReadDeadline(time.Now().Add(transporttest.Patience))
		if _, err := io.Copy(io.Discard, c); errors.Is(err, unix.ETIMEDOUT) {
			t.Fatal("a stranger is not dropped")
		}
	}
	tx, rx := connect(t, ranks, 0, 1)
	say(t, ranks, tx, rx, "hello")
	mu.Lock()
	defer mu.Unlock()
	if lines == 0 || lines > 20 {
		t.Errorf("%d lines in the log about %d strangers; want some, but few", lines, n)
	}
}

// TestPendingBound: those who say nothing hold a bounded number of
// connections, and a genuine peer is not shut out by them.
func TestPendingBound(t *testing.T) {
	ranks := opener(Options{Logf: func(string, ...any) {}})(t, 2)
	i, err := parseInfo(ranks[1].Info())
	if err != nil {
		t.Fatal(err)
	}
	for range maxPending + 50 {
		c, err := net.Dial("tcp", i.addrs[0].String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
	}
	tx, rx := connect(t, ranks, 0, 1)
	say(t, ranks, tx, rx, "hello")
	e := ranks[1].Endpoint.(*Endpoint)
	e.mu.Lock()
	defer e.mu.Unlock()
	if n := len(e.pending); n > maxPending {
		t.Errorf("%d connections are in handshake; want at most %d", n, maxPending)
	}
}

// FuzzStream: an authenticated peer that goes mad breaks its connection, and
// nothing else.
func FuzzStream(f *testing.F) {
	good := func(h header, body int) []byte {
		h.kind = kindPiece
		b := make([]byte, headerSize+body)
		h.put(b)
		return b
	}
	f.Add(good(header{total: 5, length: 5}, padded(5)), uint16(5))
	f.Add(append(good(header{total: 10_000, length: 4000}, 4000), good(header{total: 10_000, offset: 4000, length: 6000}, 6000)...), uint16(10_000))
	f.Add(good(header{total: 1 << 31, length: 1 << 31}, 0), uint16(0))
	f.Add(append(good(header{total: 10_000, length: 1}, 1), good(header{number: 1, total: 10_000, length: 1}, 1)...), uint16(9000))
	bye := make([]byte, headerSize)
	binary.LittleEndian.PutUint32(bye, kindBye)
	f.Add(bye, uint16(1))
	f.Fuzz(func(t *testing.T, data []byte, posted uint16) {
		if len(data) > 100_000 {
			return // the socket's buffer holds as much
		}
		fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		unix.Write(fds[0], data)
		unix.Close(fds[0])
		fault := new(transport.Fault)
		e := &Endpoint{opt: Options{Fault: fault}}
		r := &Rx{conn: conn{e: e}, maxMessage: 20_000, arrived: fds[1:], direct: 1}
		r.in = []inbound{{fd: fds[1], ahead: make([]byte, aheadSize)}}
		defer r.close()
		for i := 0; fault.Err() == nil; i++ {
			if i > len(data)+2 {
				t.Fatalf("%d bytes are %d messages, with no end", len(data), i)
			}
			if i%2 == 0 {
				if p, _, ok := r.Peek(); ok {
					if len(p) > 20_000 {
						t.Errorf("a message of %d bytes", len(p))
					}
					r.Release()
				}
				continue
			}
			r.Post(make([]byte, posted))
			r.Done()
			r.posted, r.isPosted = nil, false
		}
	})
}

// TestStall walks a peer through silence: what the kernel's figures say, and
// for how long the peer counts as silent then.
func TestStall(t *testing.T) {
	start := time.Unix(1000, 0)
	type row struct {
		at                             int // milliseconds
		unacked, probes, retries, last uint32
		want                           int // milliseconds
	}
	for name, rows := range map[string][]row{
		"idle for hours":           {{at: 0, last: 9e6}, {at: 1000, last: 9e6}},
		"gone":                     {{unacked: 1}, {at: 500, unacked: 1, retries: 1, last: 500}, {at: 2000, unacked: 1, retries: 3, last: 2000, want: 2000}},
		"a loss after idle hours":  {{unacked: 1, retries: 2, last: 9e6}, {at: 100, unacked: 1, retries: 2, last: 9e6, want: 100}},
		"slow, but answers":        {{unacked: 9}, {at: 1000, unacked: 9, retries: 2, last: 10, want: 10}, {at: 2000, unacked: 9, retries: 2, last: 20, want: 20}},
		"closed window, answers":   {{probes: 1}, {at: 1000}, {at: 2000, probes: 1}, {at: 2500, probes: 1}},
		"closed window, gone":      {{probes: 1}, {at: 1000, probes: 2, last: 5000, want: 1000}, {at: 3000, probes: 3, last: 7000, want: 3000}},
		"once lost, once answered": {{unacked: 1, retries: 2, last: 5}, {at: 50}, {at: 100, unacked: 1, retries: 2, last: 9e6}},
	} {
		var s stall
		for i, r := range rows {
			info := unix.TCPInfo{Unacked: r.unacked, Probes: uint8(r.probes), Retransmits: uint8(r.retries), Last_ack_recv: r.last}
			got := s.silent(&info, start.Add(time.Duration(r.at)*time.Millisecond))
			if got != time.Duration(r.want)*time.Millisecond {
				t.Errorf("%s, %d: silent for %v; want %d ms", name, i, got, r.want)
			}
		}
	}
}
