package transporttest

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/assay-hpc/assay/coll/transport"
)

func testInfo(t *testing.T, open Opener) {
	ranks := openRanks(t, open, 2)
	for r := range ranks {
		e := ranks[r]
		if e.Name() == "" {
			t.Error("an endpoint has no name")
		}
		info := string(e.Info())
		if again := string(e.Info()); again != info {
			t.Errorf("Info of rank %d changes", r)
		}
		if err := e.Reach(1-r, ranks[1-r].Info()); err != nil {
			t.Errorf("Reach(%d) by %d: %v", 1-r, r, err)
		}
		if err := e.Reach(1-r, []byte("\xff\x00 no info")); err == nil {
			t.Errorf("rank %d can reach a peer with nonsense for Info", r)
		}
	}
}

func testNotReady(t *testing.T, open Opener) {
	ranks := openRanks(t, open, 2)
	ctx, cancel := context.WithTimeout(t.Context(), Patience)
	defer cancel()
	rx, err := ranks[1].Rx(ctx, 0, ranks[0].Info(), 3)
	if err != nil {
		t.Fatal(err)
	}
	for range 100 {
		if _, _, ok := rx.Peek(); ok {
			t.Fatal("there is a message before there is a sender")
		}
	}
	tx, err := ranks[0].Tx(ctx, 1, ranks[1].Info(), 3)
	if err != nil {
		t.Fatal(err)
	}
	if tx.MaxMessage() < 1 || tx.Slots() < 2 || tx.MaxMessage() != rx.MaxMessage() {
		t.Errorf("MaxMessage = %d and %d, Slots = %d; want the same size on both sides, and 2 slots or more", tx.MaxMessage(), rx.MaxMessage(), tx.Slots())
	}
	exchange(t, ranks, tx, rx, []int{8, 0, 8}, func(int) way { return way{} })

	// The sender opens first, and sends a message before there is a receiver.
	tx, err = ranks[1].Tx(ctx, 0, ranks[0].Info(), 4)
	if err != nil {
		t.Fatal(err)
	}
	s := sender{tx: tx}
	Until(t, ranks, "a slot", func() bool { return s.try(1, 1000, false) })
	if rx, err = ranks[0].Rx(ctx, 1, ranks[1].Info(), 4); err != nil {
		t.Fatal(err)
	}
	r := receiver{rx: rx}
	Until(t, ranks, "the early message", func() bool { tx.Idle(); return r.try(t, 1, 1000, false) })
}

// testBackPressure: while the receiver sleeps, a sender can send Slots messages and then
// has to wait; nothing is lost.
func testBackPressure(t *testing.T, open Opener) {
	const ceiling = 1 << 30 // bytes: if more is pending, there is no back pressure
	for _, post := range []bool{false, true} {
		ranks, tx, rx := pair(t, open)
		size := tx.MaxMessage()
		var sent uint32
		buf := make([]byte, size)
		for refused := 0; refused < 200; {
			ok := false
			if post {
				// The memory is the same for all: Post may send it later.
				ok = tx.Post(buf, header(sent+1))
			} else if p := tx.Reserve(size); p != nil {
				clear(p)
				tx.Commit(size, header(sent+1))
				ok = true
			}
			if !ok {
				refused++
				tx.Idle()
				time.Sleep(100 * time.Microsecond) // let pending messages settle
				continue
			}
			refused = 0
			if sent++; int(sent)*size > ceiling {
				t.Fatalf("%d messages of %d bytes are under way, and there is no end", sent, size)
			}
		}
		if int(sent) < tx.Slots() {
			t.Errorf("%d messages could be sent unreceived (post: %v); want Slots, %d", sent, post, tx.Slots())
		}
		for i := range sent {
			Until(t, ranks, "a message", func() bool {
				tx.Idle()
				p, h, ok := rx.Peek()
				if ok && (len(p) != size || h != header(i+1)) {
					t.Fatalf("message %d: %d bytes, %v; want %d, %v", i+1, len(p), h, size, header(i+1))
				}
				return ok
			})
			rx.Release()
		}
		Until(t, ranks, "Idle", tx.Idle)
	}
}

// testConcurrent drives both directions and several channels, each end in its
// own goroutine.
func testConcurrent(t *testing.T, open Opener) {
	ranks := openRanks(t, open, 2)
	n := 1000
	if testing.Short() {
		n = 60
	}
	var wg sync.WaitGroup
	for channel := range 3 {
		for from := range 2 {
			tx, rx := Connect(t, ranks, from, 1-from, channel)
			stream(t, &wg, ranks, tx, rx, n)
		}
	}
	wg.Wait()
}

// stream sends n messages of changing sizes, with a goroutine at each end.
func stream(t *testing.T, wg *sync.WaitGroup, ranks []Rank, tx transport.Tx, rx transport.Rx, n int) {
	size := func(i int) int { return i * 7919 % min(100_000, tx.MaxMessage()+1) }
	wg.Go(func() {
		s := sender{tx: tx, own: ranks[0]}
		defer s.end()
		for i := range n {
			if err := Poll(ranks, func() bool { return s.try(uint32(i+1), size(i), i%3 == 0) }); err != nil {
				t.Errorf("sending message %d: %v", i+1, err)
				return
			}
		}
		if err := Poll(ranks, tx.Idle); err != nil {
			t.Errorf("Idle: %v", err)
		}
	})
	wg.Go(func() {
		r := receiver{rx: rx}
		for i := range n {
			if err := Poll(ranks, func() bool { return r.try(errorer{t}, uint32(i+1), size(i), i%2 == 0 && rx.Direct()) }); err != nil {
				t.Errorf("receiving message %d: %v", i+1, err)
				return
			}
		}
	})
}

// errorer makes Fatalf usable outside of the test's goroutine: it reports the error, and
// panics.
type errorer struct{ testing.TB }

func (e errorer) Fatalf(format string, args ...any) {
	e.Errorf(format, args...)
	panic("transporttest: wrong message")
}

// testManyRanks connects each of four ranks with each other one.
func testManyRanks(t *testing.T, open Opener) {
	const n = 4
	ranks := openRanks(t, open, n)
	var wg sync.WaitGroup
	for from := range n {
		for to := range n {
			if from != to {
				tx, rx := Connect(t, ranks, from, to, 0)
				stream(t, &wg, ranks, tx, rx, 20)
			}
		}
	}
	wg.Wait()
}
