package transporttest

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/assay-hpc/assay/coll/transport"
)

// A way is how a message is sent and received.
type way struct{ postTx, postRx bool }

func (w way) String() string {
	return fmt.Sprintf("%s to %s", map[bool]string{false: "Reserve", true: "Post"}[w.postTx], map[bool]string{false: "Peek", true: "Post"}[w.postRx])
}

// ways returns the ways that a connection supports.
func ways(rx transport.Rx) []way {
	list := []way{{false, false}, {true, false}}
	if rx.Direct() {
		list = append(list, way{false, true}, way{true, true})
	}
	return list
}

// A sender sends numbered messages over a Tx, each in one step as soon as possible. It
// does not reuse posted memory until Idle.
type sender struct {
	tx     transport.Tx
	own    Rank
	posted []byte // the memory last posted, until the next message
}

// memory returns n bytes to post.
func (s *sender) memory(n int) []byte {
	if s.own.Alloc == nil {
		return grow(s.posted, n)
	}
	if cap(s.posted) < n {
		s.end()
		p, err := s.own.Alloc(n)
		if err != nil {
			panic(err)
		}
		s.posted = p
	}
	return s.posted[:n]
}

// end frees the posted memory, once it is idle.
func (s *sender) end() {
	if s.own.Free != nil && s.posted != nil {
		if err := s.own.Free(s.posted[:cap(s.posted)]); err != nil {
			panic(err)
		}
	}
	s.posted = nil
}

// try sends the message of the given number and size. It returns false if that is not
// possible now.
func (s *sender) try(number uint32, size int, post bool) bool {
	h := header(number)
	if post {
		if s.posted != nil && !s.tx.Idle() {
			return false
		}
		p := s.memory(size)
		pattern(p, number)
		s.posted = p
		return s.tx.Post(p, h)
	}
	p := s.tx.Reserve(size)
	if p == nil {
		return false
	}
	if len(p) < size {
		panic(fmt.Sprintf("transporttest: Reserve(%d) returned %d bytes", size, len(p)))
	}
	pattern(p[:size], number)
	s.tx.Commit(size, h)
	return true
}

// A receiver receives numbered messages from an Rx and compares them.
type receiver struct {
	rx     transport.Rx
	posted bool
	buf    []byte
	want   []byte
}

// try receives the message of the given number and size. It returns false if it has not
// arrived yet.
func (r *receiver) try(t testing.TB, number uint32, size int, post bool) bool {
	t.Helper()
	var p []byte
	var h transport.Header
	switch {
	case post:
		if !r.posted {
			r.buf, r.posted = grow(r.buf, size), true
			clear(r.buf)
			r.rx.Post(r.buf)
		}
		got, n, ok := r.rx.Done()
		if !ok {
			return false
		}
		if n != size {
			t.Fatalf("message %d: Done says %d bytes; want %d", number, n, size)
		}
		r.posted, p, h = false, r.buf, got
	default:
		var ok bool
		if p, h, ok = r.rx.Peek(); !ok {
			return false
		}
	}
	if h != header(number) {
		t.Fatalf("message %d of %d bytes: header %v; want %v", number, size, h, header(number))
	}
	r.want = grow(r.want, size)
	pattern(r.want, number)
	if !bytes.Equal(p, r.want) {
		t.Fatalf("message %d of %d bytes arrived changed: %s", number, size, difference(p, r.want))
	}
	if !post && !r.rx.Release() {
		t.Fatalf("message %d of %d bytes is void", number, size)
	}
	return true
}

func header(number uint32) transport.Header {
	return transport.Header{Seq: number, Sign: number*2654435761 + 7}
}

// grow returns a slice of n bytes, in p's memory if that is large enough.
func grow(p []byte, n int) []byte {
	if cap(p) < n || p == nil {
		return make([]byte, n, max(n, 1))
	}
	return p[:n]
}

// difference returns where two byte strings begin to differ.
func difference(got, want []byte) string {
	if len(got) != len(want) {
		return fmt.Sprintf("%d bytes; want %d", len(got), len(want))
	}
	for i := range got {
		if got[i] != want[i] {
			return fmt.Sprintf("byte %d is %#x; want %#x", i, got[i], want[i])
		}
	}
	return "no difference"
}

// sizes returns sizes around which transports change their behavior.
func sizes(limit int) []int {
	var list []int
	for _, n := range []int{0, 1, 7, 8, 64, 1000, 4 << 10, 16 << 10, 32 << 10, 64 << 10, 128 << 10, 256 << 10, limit} {
		for _, n := range []int{n - 1, n, n + 1} {
			if n >= 0 && n <= limit {
				list = append(list, n)
			}
		}
	}
	return list
}

// exchange sends messages of these sizes and receives them, from one goroutine.
func exchange(t testing.TB, ranks []Rank, tx transport.Tx, rx transport.Rx, list []int, choose func(i int) way) {
	t.Helper()
	s, r := sender{tx: tx, own: ranks[0]}, receiver{rx: rx}
	defer s.end()
	sent, received := 0, 0
	Until(t, ranks, "messages", func() bool {
		for sent < len(list) && s.try(uint32(sent+1), list[sent], choose(sent).postTx) {
			sent++
		}
		for received < len(list) && r.try(t, uint32(received+1), list[received], choose(received).postRx) {
			received++
		}
		tx.Idle()
		return received == len(list)
	})
	Until(t, ranks, "Idle", tx.Idle)
}

func testSizes(t *testing.T, open Opener) {
	ranks := openRanks(t, open, 2)
	channel := 0
	_, probe := Connect(t, ranks, 0, 1, channel)
	for _, w := range ways(probe) {
		t.Run(w.String(), func(t *testing.T) {
			channel++
			tx, rx := Connect(t, ranks, 0, 1, channel)
			exchange(t, ranks, tx, rx, sizes(tx.MaxMessage()), func(int) way { return w })
		})
	}
}

// testMixed changes the way of sending and receiving from message to message.
func testMixed(t *testing.T, open Opener) {
	ranks, tx, rx := pair(t, open)
	n := 2000
	if testing.Short() {
		n = 150
	}
	rnd := rand.New(rand.NewPCG(1, 2))
	all, list := ways(rx), make([]int, n)
	choice := make([]way, n)
	for i := range list {
		choice[i] = all[rnd.IntN(len(all))]
		switch rnd.IntN(8) {
		case 0:
			list[i] = rnd.IntN(tx.MaxMessage() + 1)
		case 1:
			list[i] = min(rnd.IntN(100_000), tx.MaxMessage())
		default:
			list[i] = rnd.IntN(min(5000, tx.MaxMessage()))
		}
	}
	exchange(t, ranks, tx, rx, list, func(i int) way { return choice[i] })
}

func testReserve(t *testing.T, open Opener) {
	ranks, tx, rx := pair(t, open)
	a := tx.Reserve(100)
	b := tx.Reserve(100)
	if len(a) < 100 || len(b) < 100 || &a[0] != &b[0] {
		t.Fatalf("Reserve twice = %d and %d bytes; want the same 100 bytes", len(a), len(b))
	}
	copy(a, "a shorter message")
	tx.Commit(17, transport.Header{Seq: 1, Sign: 2})
	Until(t, ranks, "the message", func() bool {
		tx.Idle()
		p, h, ok := rx.Peek()
		if !ok {
			return false
		}
		if string(p) != "a shorter message" || h != (transport.Header{Seq: 1, Sign: 2}) {
			t.Fatalf("Peek = %q, %v", p, h)
		}
		if q, _, ok := rx.Peek(); !ok || &q[0] != &p[0] {
			t.Fatal("Peek twice gives two messages")
		}
		rx.Release()
		return true
	})
	if p, h, ok := rx.Peek(); ok {
		t.Fatalf("Peek after the last message = %d bytes, %v; want nothing", len(p), h)
	}
}

// testStrayLength: a message of a length other than the posted one is reported with its
// own length, and does not affect the next message.
func testStrayLength(t *testing.T, open Opener) {
	ranks, tx, rx := pair(t, open)
	if !rx.Direct() {
		t.Skip("receives cannot be posted on this transport")
	}
	limit, behind := tx.MaxMessage(), min(5000, tx.MaxMessage())
	s, r := sender{tx: tx}, receiver{rx: rx}
	number := uint32(0)
	for _, tt := range [][2]int{{8, 0}, {0, 8}, {8, 100}, {100, 8}, {limit, 8}, {8, limit}, {limit, limit - 1}, {limit - 1, limit}} {
		number++
		sent, next := false, false
		p := make([]byte, tt[1])
		rx.Post(p)
		Until(t, ranks, "the message of another length", func() bool {
			sent = sent || s.try(number, tt[0], false)
			tx.Idle()
			h, n, ok := rx.Done()
			if ok && (n != tt[0] || h != header(number)) {
				t.Fatalf("Done = %v, %d for a message %v of %d; posted %d", h, n, header(number), tt[0], tt[1])
			}
			return ok
		})
		number++
		Until(t, ranks, "the message behind", func() bool {
			next = next || s.try(number, behind, false)
			tx.Idle()
			return r.try(t, number, behind, number%4 == 0)
		})
	}
}
