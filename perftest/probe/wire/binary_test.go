package wire

import (
	"context"
	"encoding/hex"
	"errors"
	"net"
	"strings"
	"testing"
	"time"
)

// TestBinary: records as the C tools lay them out over rdma_cm, of either length.
func TestBinary(t *testing.T) {
	a := Address{LID: 3, OutReads: 16, QPN: 0x11, PSN: 0xabcdef, RKey: 0x2e7, VAddr: 0x7f0102030405, HasGID: true, GIDIndex: 1, SRQN: 9,
		GID: [16]byte{10: 0xff, 11: 0xff, 12: 10, 13: 9, 15: 1}}
	const begin = "00000003" + "00000010" + "00000011" + "00abcdef" + "000002e7" + "00000000" + "00007f0102030405"
	const end = "00000000000000000000ffff0a090001" + "00000009" + "00000001"
	for length, want := range map[int]string{56: begin + end, 64: begin + "0000000000000000" + end} {
		b, err := a.Binary(length)
		if got := hex.EncodeToString(b); err != nil || got != want {
			t.Errorf("%d bytes: %s, %v; want %s", length, got, err, want)
		}
		if got, err := parseBinary(b); err != nil || got != a {
			t.Errorf("ParseBinary = %+v, %v; want %+v", got, err, a)
		}
		copy(b[20:24], "junk") // a hole in the structure
		if got, err := parseBinary(b); err != nil || got != a {
			t.Errorf("ParseBinary = %+v, %v; want %+v", got, err, a)
		}
	}
	without := Address{QPN: 7}
	b, _ := without.Binary(56)
	if got, err := parseBinary(b); err != nil || got != without {
		t.Errorf("without a GID: %+v, %v", got, err)
	}
	for name, bad := range map[string]Address{"QP number": {QPN: 1 << 24}, "PSN": {PSN: 1 << 24}, "reads": {OutReads: 1 << 16}} {
		if _, err := bad.Binary(56); !errors.Is(err, ErrLocal) || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := a.Binary(60); !errors.Is(err, ErrLocal) {
		t.Errorf("60 bytes: %v", err)
	}
	for _, at := range []int{0, 4, 8, 12} {
		b, _ := a.Binary(56)
		b[at] = 0xff
		if _, err := parseBinary(b); err == nil {
			t.Errorf("a field that is too large, at %d, is taken", at)
		}
	}
	if _, err := parseBinary(make([]byte, 60)); err == nil {
		t.Error("60 bytes are taken")
	}
}

// TestBinaryLength: releases from 6.29 on have the longer records.
func TestBinaryLength(t *testing.T) {
	for v, want := range map[string]int{"5.98": 56, "6.06": 56, "6.24": 56, "6.28": 56, "6.29": 64, "7.00": 64} {
		if got := binaryLength(v); got != want {
			t.Errorf("binaryLength(%s) = %d; want %d", v, got, want)
		}
	}
}

// TestOverCM: after the first exchanges the records of a channel over rdma_cm are
// binary, in the length of the peer's release, and the farewell is none.
func TestOverCM(t *testing.T) {
	for v, length := range map[string]int{"6.06": 56, "6.29": 64} {
		t.Run(v, func(t *testing.T) {
			ours, theirs := tcpPair(t)
			scripted(theirs, version(v), []byte{0, 0, 16, 0}, []byte{0, 0, 0, 64}, []byte("3\x00"))
			theirRecord, _ := Address{QPN: 5}.Binary(length)
			scripted(theirs, theirRecord)
			c, err := Accepted(soon(t), ours, Options{CM: true, Timeout: 5 * time.Minute})
			if err != nil {
				t.Fatal(err)
			}
			if _, _, err := c.Hello(soon(t), hello, false); err != nil {
				t.Fatal(err)
			}
			if a, err := c.SwapFor(soon(t), "an address record", Address{QPN: 6}); err != nil || a.QPN != 5 {
				t.Errorf("Swap = %+v, %v", a, err)
			}
			_ = theirs.CloseWrite()
			c.Bye()
			_ = theirs.SetReadDeadline(time.Now().Add(5 * time.Minute))
			got := make([]byte, 1000)
			n := 0
			for {
				m, err := theirs.Read(got[n:])
				n += m
				if err != nil {
					break
				}
			}
			if want := 16 + 4 + 4 + 2 + length; n != want {
				t.Errorf("%d bytes were sent; want %d", n, want)
			}
		})
	}
}

// goneConn is a connection that tells when its peer has gone.
type goneConn struct {
	net.Conn
	gone chan struct{}
}

func (g goneConn) Gone() <-chan struct{} { return g.gone }

// TestWatchGone: a connection's own word that the peer has gone.
func TestWatchGone(t *testing.T) {
	ours, _ := tcpPair(t)
	g := goneConn{ours, make(chan struct{})}
	c := NewConn(g, Client, Options{CM: true})
	ctx, stop := c.Watch(t.Context())
	if err := stop(); err != nil || !errors.Is(context.Cause(ctx), context.Canceled) {
		t.Errorf("stop = %v, cause %v", err, context.Cause(ctx))
	}
	ctx, stop = c.Watch(t.Context())
	close(g.gone)
	<-ctx.Done()
	if err := stop(); !errors.Is(err, ErrClosed) || !errors.Is(context.Cause(ctx), ErrClosed) {
		t.Errorf("stop = %v, cause %v", err, context.Cause(ctx))
	}
}
