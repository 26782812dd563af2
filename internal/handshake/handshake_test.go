package handshake

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
)

var protocol = Protocol{Magic: "assay\x00t1", Label: "assay test 1", Claim: 4}

// A tape is a connection that keeps what was written to it.
type tape struct {
	net.Conn
	said []byte
}

func (t *tape) Write(p []byte) (int, error) {
	t.said = append(t.said, p...)
	return t.Conn.Write(p)
}

// meet runs both sides over a pipe.
func meet(caller, listener Protocol, callerToken, listenerToken string) (said, claim []byte, callerErr, listenerErr error) {
	a, b := net.Pipe()
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer b.Close()
		claim, listenerErr = listener.Examine(b, []byte(listenerToken))
	}()
	c := &tape{Conn: a}
	callerErr = caller.Greet(c, []byte(callerToken), []byte("me 1"))
	a.Close()
	<-done
	return c.said, claim, callerErr, listenerErr
}

func TestHandshake(t *testing.T) {
	other := protocol
	other.Label = "assay test 2"
	odd := protocol
	odd.Magic = "assay\x00u1"
	for _, tt := range []struct {
		name             string
		caller, listener Protocol
		tokens           [2]string
		callerErr        string
		listenerErr      string
	}{
		{"one token", protocol, protocol, [2]string{"a token", "a token"}, "", ""},
		{"two tokens", protocol, protocol, [2]string{"a token", "another"}, "does not know the token", "did not answer the challenge"},
		{"two labels", protocol, other, [2]string{"a token", "a token"}, "does not know the token", "did not answer the challenge"},
		{"two protocols", protocol, odd, [2]string{"a token", "a token"}, "closed pipe", "does not speak this protocol"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			said, claim, err1, err2 := meet(tt.caller, tt.listener, tt.tokens[0], tt.tokens[1])
			if !says(err1, tt.callerErr) || !says(err2, tt.listenerErr) {
				t.Fatalf("caller: %v; want %q; listener: %v; want %q", err1, tt.callerErr, err2, tt.listenerErr)
			}
			if err2 == nil && string(claim) != "me 1" {
				t.Errorf("the listener has the claim %q", claim)
			}
			if bytes.Contains(said, []byte("token")) {
				t.Error("part of the token is on the wire")
			}
			if err1 != nil && len(said) > len(protocol.Magic)+protocol.Claim+nonceBytes {
				t.Error("the caller answered a listener that does not know the token")
			}
		})
	}
}

func says(err error, want string) bool {
	if err == nil || want == "" {
		return err == nil && want == ""
	}
	return strings.Contains(err.Error(), want)
}

// TestReplay: what a caller said once lets nobody in again, nor do the
// listener's own words.
func TestReplay(t *testing.T) {
	said, _, err1, err2 := meet(protocol, protocol, "s", "s")
	if err1 != nil || err2 != nil {
		t.Fatal(err1, err2)
	}
	first := len(said) - sha256.Size
	for _, tt := range []struct {
		name   string
		answer func(reply []byte) []byte
	}{
		{"replayed", func([]byte) []byte { return said[first:] }},
		{"reflected", func(reply []byte) []byte { return reply[nonceBytes:] }},
	} {
		a, b := net.Pipe()
		go func() {
			a.Write(said[:first])
			reply := make([]byte, nonceBytes+sha256.Size)
			io.ReadFull(a, reply)
			a.Write(tt.answer(reply))
		}()
		if _, err := protocol.Examine(b, []byte("s")); !errors.Is(err, ErrStranger) {
			t.Errorf("%s: %v; want %v", tt.name, err, ErrStranger)
		}
		a.Close()
		b.Close()
	}
}

// FuzzExamine: whoever does not know the token does not come in.
func FuzzExamine(f *testing.F) {
	said, _, _, _ := meet(protocol, protocol, "s", "s")
	f.Add(said)
	f.Add(said[:len(said)-1])
	f.Add([]byte(protocol.Magic))
	f.Fuzz(func(t *testing.T, b []byte) {
		rw := struct {
			io.Reader
			io.Writer
		}{bytes.NewReader(b), io.Discard}
		if claim, err := protocol.Examine(rw, []byte("s")); err == nil {
			t.Errorf("%q came in as %q", b, claim)
		}
	})
}
