package tcp

import (
	"errors"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/assay-hpc/assay/internal/meet"
)

// fake is a server that does with each connection what a test says.
func fake(t *testing.T, f func(c net.Conn)) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	t.Cleanup(func() {
		l.Close()
		wg.Wait()
	})
	wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			wg.Go(func() {
				defer c.Close()
				f(c)
			})
		}
	})
	return l.Addr().String()
}

// answers is a server that knows the token, accepts a request and answers with
// some frames; then it listens only.
func answers(frames ...func(w io.Writer)) func(c net.Conn) {
	return func(c net.Conn) {
		claim, _, err := protocol.Examine(c, token)
		if err == nil {
			err = meet.Welcome(c)
		}
		if err == nil && claim[0] == 0 {
			for _, f := range frames {
				f(c)
			}
		}
		io.Copy(io.Discard, c)
	}
}

func frame(k meet.Kind, p string) func(io.Writer) {
	return func(w io.Writer) { meet.WriteFrame(w, k, []byte(p)) }
}

// TestFaults: whatever is at the other end, there is an error that says where
// and what was being done.
func TestFaults(t *testing.T) {
	silent := func(c net.Conn) { io.Copy(io.Discard, c) }
	gone, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	gone.Close()
	other, err := Listen("127.0.0.1:0", []byte("another token"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { other.Close() }) // after the parallel ones
	accepted, ready := frame(frameAccepted, ""), frame(frameReady, "")
	none := string(result{}.encode())
	for _, tt := range []struct {
		name, addr string
		want       []string
	}{
		{"nobody", gone.Addr().String(), []string{"connecting", "refused"}},
		{"another token", other.Addr().String(), []string{"connecting", "what listens there does not know the secret"}},
		{"silence", fake(t, silent), []string{"connecting", "not done within"}},
		{"hangs up", fake(t, func(net.Conn) {}), []string{"connecting"}},
		{"another protocol", fake(t, func(c net.Conn) { io.WriteString(c, "SSH-2.0-OpenSSH_9.2p1 Debian-2+deb12u3\r\n") }), []string{"connecting", `does not speak this protocol: it begins with "SSH-2.0-"`}},
		{"much of another protocol", fake(t, func(c net.Conn) {
			io.WriteString(c, strings.Repeat("HTTP/1.1 400 Bad Request\r\n", 10))
			silent(c)
		}), []string{"connecting", "does not speak this protocol"}},
		{"silence when asked", fake(t, answers()), []string{"asking for a measurement", "not done within"}},
		{"refuses", fake(t, answers(frame(frameRefused, "no time"))), []string{"asking for a measurement", `it says: "no time"`}},
		{"another message", fake(t, answers(frame(frameResult, ""))), []string{"asking for a measurement", "nonsense: a message of kind 5"}},
		{"a long message", fake(t, answers(func(w io.Writer) { w.Write([]byte{0, 0, 0xff, 0xff, byte(frameAccepted)}) })), []string{"asking for a measurement", "65535 bytes"}},
		{"never ready", fake(t, answers(accepted)), []string{"opening 4 streams", "not done within"}},
		{"dies when ready", fake(t, func(c net.Conn) {
			answers(accepted, ready, func(io.Writer) { meet.ReadFrame(c, maxPayload); meet.ReadFrame(c, maxPayload); c.Close() })(c)
		}), []string{"measuring to it", "it hung up"}},
		{"no result", fake(t, answers(accepted, ready)), []string{"measuring to it", "not done within"}},
		{"half a result", fake(t, answers(accepted, ready, frame(frameResult, "abc"))), []string{"measuring to it", "a result of 3 bytes"}},
		{"an empty result", fake(t, answers(accepted, ready, frame(frameResult, none))), []string{"measuring to it", "without what it received"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			o := short
			if strings.Contains(strings.Join(tt.want, ""), "not done") {
				o.Limit = time.Second
			}
			_, err := Measure(t.Context(), tt.addr, token, o)
			if err == nil {
				t.Fatal("no error")
			}
			for _, want := range append(tt.want, "measuring TCP with "+tt.addr) {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%v; want %q", err, want)
				}
			}
		})
	}
}

// TestHangs: a peer that stops in the middle of a direction: the network
// between the two swallows everything from then on.
func TestHangs(t *testing.T) {
	s := serve(t, usual)
	for _, doing := range []string{"measuring to it", "measuring from it"} {
		t.Run(doing, func(t *testing.T) {
			var dead atomic.Bool
			var fromServer atomic.Int64
			pipe := func(to, from net.Conn, count *atomic.Int64) {
				b := make([]byte, 64<<10)
				for {
					n, err := from.Read(b)
					if err != nil {
						to.Close()
						return
					}
					if count != nil && count.Add(int64(n)) > 1<<20 || count == nil && doing == "measuring to it" && n > 32<<10 {
						dead.Store(true)
					}
					if !dead.Load() {
						to.Write(b[:n])
					}
				}
			}
			addr := fake(t, func(c net.Conn) {
				up, err := net.Dial("tcp", s.Addr().String())
				if err != nil {
					return
				}
				defer up.Close()
				done := make(chan struct{})
				go func() {
					pipe(c, up, &fromServer)
					close(done)
				}()
				pipe(up, c, nil)
				<-done
			})
			o := Options{Duration: 300 * time.Millisecond, Limit: 3 * time.Second}
			_, err := measure(t, addr, o)
			if err == nil || !strings.Contains(err.Error(), doing) || !strings.Contains(err.Error(), addr) {
				t.Errorf("%v; want %q and %s", err, doing, addr)
			}
			if !dead.Load() {
				t.Error("the peer was alive: nothing was tested")
			}
		})
	}
}

// call opens a connection to a server and says what it is for.
func call(t *testing.T, s *Server, what claim) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", s.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	if _, err := protocol.Greet(c, token, what.encode()); err != nil {
		t.Fatal(err)
	}
	return c
}

// TestNonsense: who knows the token and says nonsense is told so.
func TestNonsense(t *testing.T) {
	b := usual
	b.handshake = 300 * time.Millisecond
	s := serve(t, b)
	good := request{duration: time.Second, limit: time.Minute, streams: 1}
	long := good
	long.limit = 2 * maxLimit
	ask := string(good.encode())
	for i, tt := range []struct {
		name string
		say  []func(io.Writer)
		want string
	}{
		{"nothing", nil, "timeout"},
		{"another message", []func(io.Writer){frame(frameRun, "\x01")}, "a message of kind 4, not 1"},
		{"a short request", []func(io.Writer){frame(frameRequest, "abc")}, "a request of 3 bytes"},
		{"too much", []func(io.Writer){frame(frameRequest, string(long.encode()))}, "a limit of 2h0m0s"},
		{"no streams", []func(io.Writer){frame(frameRequest, ask)}, "not all of 2 streams connected"},
	} {
		c := call(t, s, claim{session: sessionID{byte(i)}})
		for _, f := range tt.say {
			f(c)
		}
		k, p, err := meet.ReadFrame(c, maxPayload)
		if err == nil && k == frameAccepted {
			k, p, err = meet.ReadFrame(c, maxPayload)
		}
		if err != nil || k != frameRefused || !strings.Contains(string(p), tt.want) {
			t.Errorf("%s: kind %d, %q, %v; want %q", tt.name, k, p, err, tt.want)
		}
	}
	// A stream of no measurement is hung up on, and a claim that cannot be is refused.
	if _, p, err := meet.ReadFrame(call(t, s, claim{direction: back, session: sessionID{9}}), maxPayload); err == nil {
		t.Errorf("a stream of no measurement: %q", p)
	}
	impossible := meet.Caller{Protocol: protocol, Secret: token, Claim: claim{direction: both}.encode()}
	if c, _, err := impossible.Dial(t.Context(), s.Addr().String()); err == nil {
		c.Close()
		t.Error("a claim that cannot be is let in")
	} else if !errors.Is(err, meet.ErrRefused) || !strings.Contains(err.Error(), "it asks for what this version does not know") {
		t.Errorf("a claim that cannot be: %v", err)
	}
	for _, tt := range []struct{ run, want string }{
		{"", "a run of 0 bytes"}, {"\x04", "04"}, {"\x01\x01", "a run of 2 bytes"},
	} {
		id := sessionID{100, byte(len(tt.run)), tt.want[0]}
		c := call(t, s, claim{session: id})
		meet.WriteFrame(c, frameRequest, good.encode())
		if _, err := expect(c, frameAccepted); err != nil {
			t.Fatal(err)
		}
		for _, d := range []direction{forward, back} {
			call(t, s, claim{direction: d, session: id})
		}
		if _, err := expect(c, frameReady); err != nil {
			t.Fatal(err)
		}
		meet.WriteFrame(c, frameRun, []byte(tt.run))
		if _, err := expect(c, frameResult); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("run %q: %v; want %q", tt.run, err, tt.want)
		}
	}
}

// TestBusy: so many measurements at once, and one more is told so.
func TestBusy(t *testing.T) {
	b := usual
	b.sessions = 1
	s := serve(t, b)
	c := call(t, s, claim{session: sessionID{1}})
	meet.WriteFrame(c, frameRequest, request{duration: time.Second, limit: time.Minute, streams: 1}.encode())
	if _, err := expect(c, frameAccepted); err != nil {
		t.Fatal(err)
	}
	_, err := measure(t, s.Addr().String(), short)
	if err == nil || !strings.Contains(err.Error(), "1 measurements are being made") {
		t.Errorf("%v; want to be told that it is busy", err)
	}
}
