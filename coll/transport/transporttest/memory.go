package transporttest

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/assay-hpc/assay/coll/transport"
)

// A memory is a place for a program's buffers, with the calls that allocate them and
// return them to the system. An access after free crashes the process.
type memory struct {
	name  string
	alloc func(n int) ([]byte, error)
	free  func([]byte) error
}

// get allocates n bytes, which put frees.
func (m memory) get(t *testing.T, n int) []byte {
	t.Helper()
	p, err := m.alloc(n)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func (m memory) put(t *testing.T, p []byte) {
	t.Helper()
	if err := m.free(p); err != nil {
		t.Fatal(err)
	}
}

// eachMemory runs a test with every kind of memory.
func eachMemory(t *testing.T, open Opener, f func(*testing.T, memory)) {
	list := []memory{{"mapped", func(n int) ([]byte, error) {
		return unix.Mmap(-1, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	}, unix.Munmap}}
	if own := openRanks(t, open, 1)[0]; own.Alloc != nil {
		list = append(list, memory{"the transport's", own.Alloc, own.Free})
	}
	for _, m := range list {
		t.Run(m.name, func(t *testing.T) { f(t, m) })
	}
}

// testFreeSender: once Close has returned, posted memory may be freed, even while the
// receiver reads it. Messages that are not reported as void are intact.
func testFreeSender(t *testing.T, open Opener) {
	eachMemory(t, open, func(t *testing.T, m memory) {
		for _, peeked := range []bool{false, true} {
			t.Run(fmt.Sprintf("peeked=%v", peeked), func(t *testing.T) { freeSender(t, open, m, peeked) })
		}
	})
}

func freeSender(t *testing.T, open Opener, m memory, peeked bool) {
	ranks, tx, rx := pair(t, open)
	size := min(100_000, tx.MaxMessage())
	number := func(i int) uint32 { return uint32(i + 1) }
	var posted [][]byte
	for refused := 0; refused < 20 && len(posted) < tx.Slots(); {
		p := m.get(t, size)
		pattern(p, number(len(posted)))
		if tx.Post(p, header(number(len(posted)))) {
			posted, refused = append(posted, p), 0
			continue
		}
		m.put(t, p)
		refused++
		tx.Idle()
		time.Sleep(100 * time.Microsecond)
	}
	var p []byte
	var h transport.Header
	if peeked {
		Until(t, ranks, "the first message", func() (ok bool) {
			tx.Idle()
			p, h, ok = rx.Peek()
			return ok
		})
	}
	if err := ranks[0].Close(); err != nil {
		t.Fatal(err)
	}
	for _, b := range posted {
		clear(b)
		m.put(t, b)
	}
	want, void := make([]byte, size), false
	for i := 0; i < len(posted) && !void; i++ {
		if i > 0 || !peeked {
			err := Poll(ranks[1:], func() (ok bool) {
				p, h, ok = rx.Peek()
				return ok
			})
			if err != nil { // nothing more arrives, and the loss was reported
				lost(t, err, 0, 1)
				return
			}
		}
		got := bytes.Clone(p)
		if void = !rx.Release(); void {
			break
		}
		pattern(want, number(i))
		if h != header(number(i)) || !bytes.Equal(got, want) {
			t.Fatalf("message %d, which is not void, arrived changed: %v, %s", i, h, difference(got, want))
		}
	}
	if void {
		if _, _, ok := rx.Peek(); ok {
			t.Error("a message comes after one that is void")
		}
		lost(t, Poll(ranks[1:], func() bool { return false }), 0, 1)
	}
}

// testFreeReceiver: once Close has returned, memory posted for a message may be freed,
// even if the sender continues.
func testFreeReceiver(t *testing.T, open Opener) {
	eachMemory(t, open, func(t *testing.T, m memory) {
		if _, _, rx := pair(t, open); !rx.Direct() {
			t.Skip("receives cannot be posted on this transport")
		}
		for round := range 10 {
			freeReceiver(t, open, m, round)
		}
	})
}

func freeReceiver(t *testing.T, open Opener, m memory, looks int) {
	ranks, tx, rx := pair(t, open)
	size := tx.MaxMessage()
	p, from := m.get(t, size), m.get(t, size)
	pattern(from, 1)
	rx.Post(p)
	tx.Post(from, header(1))
	for range looks {
		if _, _, ok := rx.Done(); ok {
			break
		}
		tx.Idle()
	}
	if err := ranks[1].Close(); err != nil {
		t.Fatal(err)
	}
	m.put(t, p)
	other := m.get(t, size) // probably at the same address
	for range 5 {
		tx.Idle()
		time.Sleep(time.Millisecond) // gives the transport time to fail
	}
	for i, b := range other {
		if b != 0 {
			t.Fatalf("byte %d of memory that is another one now is %#x", i, b)
		}
	}
	ranks[0].Close()
	m.put(t, from)
	m.put(t, other)
}

// testTooLong: a message that does not fit causes a panic.
func testTooLong(t *testing.T, open Opener) {
	_, tx, _ := pair(t, open)
	long := make([]byte, tx.MaxMessage()+1)
	for name, f := range map[string]func(){
		"Reserve": func() { tx.Reserve(len(long)) },
		"Post":    func() { tx.Post(long, header(1)) },
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s of %d bytes, where messages are at most %d: no panic", name, len(long), tx.MaxMessage())
				}
			}()
			f()
		}()
	}
}
