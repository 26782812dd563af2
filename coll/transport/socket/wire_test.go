package socket

import (
	"encoding/binary"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/assay-hpc/assay/coll/transport"
)

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
		e := &Endpoint{opt: Options{Fault: new(transport.Fault)}}
		r := &Rx{conn: conn{e: e}, maxMessage: 20_000, arrived: fds[1:], direct: 1}
		r.in = []inbound{{fd: fds[1], ahead: make([]byte, aheadSize)}}
		defer r.close()
		for i := 0; !r.dead(); i++ {
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
