package wire

import (
	"bytes"
	"context"
	"encoding/hex"
	"io"
	"net"
	"os"
	"strings"
	"testing"
	"time"
)

// A line of a transcript: what the client wrote, or the server.
type line struct {
	from Role
	data []byte
}

// transcript reads one of testdata's.
func transcript(t testing.TB, name string) (lines []line) {
	t.Helper()
	text, err := os.ReadFile("testdata/" + name)
	if err != nil {
		t.Fatal(err)
	}
	for l := range strings.Lines(string(text)) {
		dir, rest, _ := strings.Cut(strings.TrimSpace(l), " ")
		if dir != "W" && dir != "R" {
			continue
		}
		data, err := hex.DecodeString(strings.ReplaceAll(rest, " ", ""))
		if strings.Contains(rest, ":") {
			data, err = []byte(strings.ReplaceAll(rest, "<00>", "\x00")), nil
		}
		if err != nil {
			t.Fatalf("%q: %v", l, err)
		}
		lines = append(lines, line{Role(dir == "W"), data})
	}
	return lines
}

// tcpPair is a connection over the loopback: as we see it, and as the peer
// does.
func tcpPair(t testing.TB) (ours, theirs *net.TCPConn) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	accepted := make(chan net.Conn, 1)
	go func() {
		nc, _ := ln.Accept()
		accepted <- nc
	}()
	a, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	b := <-accepted
	t.Cleanup(func() { a.Close(); b.Close() })
	return a.(*net.TCPConn), b.(*net.TCPConn)
}

// replay is a C tool: it says its lines when they are due, takes ours with one
// read each, as a C tool does, and reports what differs.
func replay(nc net.Conn, as Role, lines []line) error {
	for i, l := range lines {
		if l.from == as {
			if _, err := nc.Write(l.data); err != nil {
				return err
			}
			continue
		}
		b := make([]byte, len(l.data))
		n, err := nc.Read(b) // a short read is fatal there
		if err != nil && err != io.EOF {
			return err
		}
		if !bytes.Equal(b[:n], l.data) {
			return &differs{i, l.data, b[:n]}
		}
	}
	return nil
}

type differs struct {
	line      int
	want, got []byte
}

func (d *differs) Error() string {
	return "line " + string(rune('0'+d.line/10)) + string(rune('0'+d.line%10)) + ": got " + printable(d.got) + ", want " + printable(d.want)
}

// scripted is a peer that sends its messages without waiting for ours.
func scripted(nc net.Conn, sends ...[]byte) {
	for _, b := range sends {
		if _, err := nc.Write(b); err != nil {
			return
		}
	}
}

// soon is a context for what must not hang.
func soon(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

func version(v string) []byte { return marshalVersion(v) }

var hello = Hello{Cycle: 4096, Line: 64, MTU: 1024}

// addresses of the transcript.
func record(t testing.TB, of Role) Address {
	t.Helper()
	for _, l := range transcript(t, "write_bw.txt") {
		if len(l.data) == longRecord && l.from == of {
			a, err := parseAddress(l.data)
			if err != nil {
				t.Fatal(err)
			}
			return a
		}
	}
	t.Fatal("no record")
	return Address{}
}

func marshal(t testing.TB, a Address) []byte {
	t.Helper()
	b, err := a.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	return b
}
