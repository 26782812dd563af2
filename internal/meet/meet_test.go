package meet

import (
	"bytes"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
)

var protocol = Protocol{Name: "t1", Claim: 4}

// helloBytes is how long the caller's first message is in these tests.
const helloBytes = magicBytes + 4 + nonceBytes

// A tape is a connection that keeps what was written to it, and changes one bit of
// that.
type tape struct {
	net.Conn
	said []byte
	flip int // which bit; -1: none
}

func (t *tape) Write(p []byte) (int, error) {
	t.said = append(t.said, p...)
	if at := t.flip/8 - (len(t.said) - len(p)); t.flip >= 0 && at >= 0 && at < len(p) {
		p = bytes.Clone(p)
		p[at] ^= 1 << (t.flip % 8)
	}
	return t.Conn.Write(p)
}

// A side is what one end of a handshake knows, and what comes of it.
type side struct {
	protocol Protocol
	secret   string
	flip     int // which bit of what it says is changed on the way; -1: none

	said  []byte
	claim []byte
	key   []byte
	err   error
}

// pair returns the ends of a connection.
func pair() (a, b net.Conn) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	defer l.Close()
	if a, err = net.Dial("tcp", l.Addr().String()); err == nil {
		b, err = l.Accept()
	}
	if err != nil {
		panic(err)
	}
	return a, b
}

// shake runs both sides.
func shake(caller, listener *side) {
	a, b := pair()
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer b.Close()
		t := &tape{Conn: b, flip: listener.flip}
		if listener.claim, listener.key, listener.err = listener.protocol.Examine(t, []byte(listener.secret)); listener.err == nil {
			Welcome(t)
		}
		listener.said = t.said
	}()
	t := &tape{Conn: a, flip: caller.flip}
	caller.key, caller.err = caller.protocol.Greet(t, []byte(caller.secret), []byte("me 1"))
	a.Close()
	<-done
	caller.said = t.said
}

func genuine() (caller, listener *side) {
	return &side{protocol: protocol, secret: "a secret", flip: -1}, &side{protocol: protocol, secret: "a secret", flip: -1}
}

func says(err error, want string) bool {
	if err == nil || want == "" {
		return err == nil && want == ""
	}
	return strings.Contains(err.Error(), want)
}

func TestHandshake(t *testing.T) {
	for _, tt := range []struct {
		name                   string
		change                 func(listener *side)
		callerErr, listenerErr string
	}{
		{"one secret", func(*side) {}, "", ""},
		{"two secrets", func(l *side) { l.secret = "another" }, "what listens there does not know the secret", "it hung up on the challenge: it has another secret"},
		{"two protocols", func(l *side) { l.protocol.Name = "u1" }, `protocol "u1" and not "t1"`, `protocol "t1" and not "u1"`},
		{"two versions", func(l *side) { l.protocol = Protocol{"t2", 9} }, `protocol "t2" and not "t1"`, "another version"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			caller, listener := genuine()
			tt.change(listener)
			shake(caller, listener)
			if !says(caller.err, tt.callerErr) || !says(listener.err, tt.listenerErr) {
				t.Fatalf("caller: %v; want %q; listener: %v; want %q", caller.err, tt.callerErr, listener.err, tt.listenerErr)
			}
			if bytes.Contains(append(caller.said, listener.said...), []byte("secret")) {
				t.Error("part of the secret is on the wire")
			}
			if tt.callerErr == "" {
				if string(listener.claim) != "me 1" {
					t.Errorf("the listener has the claim %q", listener.claim)
				}
				if len(caller.key) != 32 || !bytes.Equal(caller.key, listener.key) {
					t.Errorf("keys %x and %x", caller.key, listener.key)
				}
				again, other := genuine()
				if shake(again, other); bytes.Equal(again.key, caller.key) {
					t.Error("two connections have one key")
				}
				return
			}
			if !errors.Is(caller.err, ErrRefused) {
				t.Errorf("%v is no %v", caller.err, ErrRefused)
			}
			if len(caller.said) > helloBytes {
				t.Error("the caller answered a listener that does not know the secret")
			}
		})
	}
}

// TestMalleability: with any bit changed of what either says, neither lets the other
// in, but for the word after the proofs.
func TestMalleability(t *testing.T) {
	for bit := range (helloBytes + macBytes) * 8 {
		caller, listener := genuine()
		caller.flip = bit
		if shake(caller, listener); listener.err == nil || caller.err == nil {
			t.Fatalf("bit %d of what the caller says can be changed: %v, %v", bit, caller.err, listener.err)
		}
	}
	for bit := range replyBytes * 8 {
		caller, listener := genuine()
		listener.flip = bit
		if shake(caller, listener); listener.err == nil || caller.err == nil || len(caller.said) > helloBytes {
			t.Fatalf("bit %d of what the listener says can be changed: %v, %v", bit, caller.err, listener.err)
		}
	}
}

// TestReplay: what a caller said once lets nobody in again, nor do the listener's
// own words.
func TestReplay(t *testing.T) {
	caller, listener := genuine()
	if shake(caller, listener); caller.err != nil || listener.err != nil {
		t.Fatal(caller.err, listener.err)
	}
	for _, tt := range []struct {
		name   string
		answer func(reply []byte) []byte
	}{
		{"replayed", func([]byte) []byte { return caller.said[helloBytes:] }},
		{"reflected", func(reply []byte) []byte { return reply[magicBytes+nonceBytes:] }},
	} {
		a, b := pair()
		go func() {
			a.Write(caller.said[:helloBytes])
			reply := make([]byte, replyBytes)
			io.ReadFull(a, reply)
			a.Write(tt.answer(reply))
		}()
		if _, _, err := protocol.Examine(b, []byte("a secret")); !errors.Is(err, ErrRefused) {
			t.Errorf("%s: %v; want %v", tt.name, err, ErrRefused)
		}
		a.Close()
		b.Close()
	}
}

// TestFalseListener: a caller is not content with a listener that does not know the
// secret, whatever that says.
func TestFalseListener(t *testing.T) {
	for _, tt := range []struct {
		name    string
		answer  func(hello []byte) []byte
		want    string
		refused bool
	}{
		{"the caller's own words", func(hello []byte) []byte { return append(hello, hello...) }, "does not know the secret", true},
		{"a wrong proof", func([]byte) []byte { return append([]byte(protocol.magic()), make([]byte, 64)...) }, "does not know the secret", true},
		{"another protocol", func([]byte) []byte { return []byte("SSH-2.0-OpenSSH_9.2\r\n") }, `begins with "SSH-2.0-"`, true},
		{"half of an answer", func([]byte) []byte { return append([]byte(protocol.magic()), make([]byte, 32)...) }, "it broke off", false},
		{"nothing", func([]byte) []byte { return nil }, "it hung up", false},
	} {
		a, b := pair()
		go func() {
			defer b.Close()
			hello := make([]byte, helloBytes)
			io.ReadFull(b, hello)
			b.Write(tt.answer(hello))
		}()
		_, err := protocol.Greet(a, []byte("a secret"), []byte("me 1"))
		if !says(err, tt.want) || errors.Is(err, ErrRefused) != tt.refused {
			t.Errorf("%s: %v; want %q", tt.name, err, tt.want)
		}
		a.Close()
	}
}

// A script is a connection whose peer says what it is told to.
type script struct {
	io.Reader
	said bytes.Buffer
}

func (s *script) Write(p []byte) (int, error) { return s.said.Write(p) }

// FuzzMeet: whatever the other end says without the secret, neither side takes it for
// genuine; and what is read as a frame is written the same again.
func FuzzMeet(f *testing.F) {
	caller, listener := genuine()
	shake(caller, listener)
	f.Add(caller.said)
	f.Add(caller.said[:helloBytes])
	f.Add(listener.said)
	f.Add([]byte("GET / HTTP/1.1\r\n\r\n"))
	f.Add([]byte(family))
	f.Add(bytes.Join(Frame(3, []byte("payload")), nil))
	f.Add([]byte{255, 255, 255, 255, 1})
	const limit = 4096
	f.Fuzz(func(t *testing.T, b []byte) {
		s := &script{Reader: bytes.NewReader(b)}
		if claim, _, err := protocol.Examine(s, []byte("a secret")); err == nil {
			t.Errorf("%x came in as %q", b, claim)
		}
		if s.said.Len() > replyBytes {
			t.Errorf("the listener said %d bytes", s.said.Len())
		}
		s = &script{Reader: bytes.NewReader(b)}
		if _, err := protocol.Greet(s, []byte("a secret"), []byte("me 1")); err == nil {
			t.Errorf("%x is taken for a listener", b)
		}
		if s.said.Len() > helloBytes {
			t.Errorf("the caller answered %x", b)
		}
		k, p, err := ReadFrame(bytes.NewReader(b), limit)
		if err != nil {
			return
		}
		var again bytes.Buffer
		WriteFrame(&again, k, p)
		if len(p) > limit || !bytes.HasPrefix(b, again.Bytes()) {
			t.Errorf("%x is read as %x", b, again.Bytes())
		}
	})
}

func TestFrame(t *testing.T) {
	var buf bytes.Buffer
	WriteFrame(&buf, 7, []byte("payload"))
	whole := buf.Bytes()
	for i := range whole {
		_, _, err := ReadFrame(bytes.NewReader(whole[:i]), 7)
		if want := io.ErrUnexpectedEOF; i > 0 && err != want || i == 0 && err != io.EOF {
			t.Errorf("ReadFrame of %d bytes = %v", i, err)
		}
	}
	if _, _, err := ReadFrame(bytes.NewReader(whole), 6); !says(err, "7 bytes; at most 6") {
		t.Errorf("a frame over the limit: %v", err)
	}
	for _, n := range []int{0, 1, small, small + 1, trusted - 1, trusted, trusted + 1, 5*trusted + 3} {
		want := bytes.Repeat([]byte("0123456789"), n/10+1)[:n]
		buf.Reset()
		WriteFrame(&buf, 9, want)
		if k, p, err := ReadFrame(&buf, n); err != nil || k != 9 || !bytes.Equal(p, want) || buf.Len() != 0 {
			t.Errorf("a frame of %d bytes: kind %d, %d bytes, %v; %d left", n, k, len(p), err, buf.Len())
		}
	}
	// A length that is a lie allocates little.
	lie := append([]byte{0x10, 0, 0, 0, 1}, "short"...)
	if got := testing.Benchmark(func(b *testing.B) {
		for range b.N {
			ReadFrame(bytes.NewReader(lie), 1<<30)
		}
	}).AllocedBytesPerOp(); got > 4*trusted {
		t.Errorf("%d bytes are allocated for 5", got)
	}
}
