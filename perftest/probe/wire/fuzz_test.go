package wire

import (
	"bytes"
	"context"
	"net"
	"testing"
	"time"
)

// FuzzAddress: what is accepted is given back byte by byte.
func FuzzAddress(f *testing.F) {
	f.Add(marshal(f, record(f, Client)))
	f.Add(marshal(f, Address{}))
	f.Fuzz(func(t *testing.T, b []byte) {
		a, err := parseAddress(b)
		if err != nil {
			return
		}
		if again, err := a.Marshal(); err != nil || !bytes.Equal(again, b) {
			t.Errorf("%q became %q, %v", b, again, err)
		}
	})
}

// FuzzBinary: what is accepted is the same again, in either length.
func FuzzBinary(f *testing.F) {
	for _, n := range []int{binaryRecord, longBinaryRecord} {
		b, err := record(f, Client).Binary(n)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
		f.Add(make([]byte, n))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		a, err := parseBinary(b)
		if err != nil {
			return
		}
		for _, n := range []int{binaryRecord, longBinaryRecord} {
			again, err := a.Binary(n)
			if err != nil {
				t.Fatalf("%+v: %v", a, err)
			}
			got, err := parseBinary(again)
			if err != nil || got != a {
				t.Errorf("%+v became %+v, %v", a, got, err)
			}
		}
	})
}

func FuzzVersion(f *testing.F) {
	f.Add(version("6.06"))
	f.Add([]byte("GET / HTTP/1.0\r\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		v, err := unmarshalVersion(b)
		if err != nil {
			return
		}
		if again, err := unmarshalVersion(marshalVersion(v)); err != nil || again != v {
			t.Errorf("%q became %q, %v", v, again, err)
		}
		for n := 1; n <= len(b); n++ {
			if !versionPrefix(b[:n]) {
				t.Errorf("%q is a version and its beginning %q none", b, b[:n])
			}
		}
	})
}

func FuzzParams(f *testing.F) {
	f.Add(block(f, params()))
	f.Add(make([]byte, paramsBytes))
	f.Fuzz(func(t *testing.T, b []byte) {
		p, err := parseParams(b)
		if err != nil {
			return
		}
		again, err := parseParams(block(t, p))
		if err != nil || again != p || p.Compare(again) != nil {
			t.Errorf("%+v became %+v, %v", p, again, err)
		}
	})
}

// FuzzServer: whatever a client sends, a whole handshake ends.
func FuzzServer(f *testing.F) {
	f.Add([]byte("GET / HTTP/1.0\r\n\r\n"), true)
	var whole []byte
	for _, l := range transcript(f, "write_bw.txt") {
		if l.from == Client {
			whole = append(whole, l.data...)
		}
	}
	f.Add(whole, true)
	f.Add(whole[:90], false)
	f.Fuzz(func(t *testing.T, b []byte, gid bool) {
		ours, theirs := net.Pipe()
		go func() {
			go func() {
				buf := make([]byte, 512)
				for {
					if _, err := theirs.Read(buf); err != nil {
						return
					}
				}
			}()
			_, _ = theirs.Write(b)
			theirs.Close()
		}()
		c := NewConn(ours, Server, Options{Timeout: time.Second})
		defer c.Close()
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
		defer cancel()
		if err := serve(ctx, c, gid); err != nil && ctx.Err() != nil {
			t.Errorf("%v, and it took minutes", err)
		}
	})
}

// serve is a server's side of a bandwidth test without its measurement.
func serve(ctx context.Context, c *Conn, gid bool) error {
	if err := c.peekVersion(ctx, time.Second); err != nil {
		return err
	}
	_, peer, err := c.Hello(ctx, hello, false)
	if err != nil {
		return err
	}
	if (Hello{Version: Version}).NeedsParams(peer) {
		if _, err := c.SwapParams(ctx, params()); err != nil {
			return err
		}
	}
	for range 4 {
		if _, err := c.SwapFor(ctx, "an address record", Address{HasGID: gid}); err != nil {
			return err
		}
	}
	r, err := c.SwapReport(ctx, Report{})
	if err != nil {
		return err
	}
	_ = r.Check()
	if _, err := c.SwapFor(ctx, "an address record", Address{HasGID: gid}); err != nil {
		return err
	}
	c.Bye()
	return nil
}
