package transporttest

import (
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/assay-hpc/assay/coll/colltest"
	"github.com/assay-hpc/assay/coll/transport"
)

// lost checks that err reports the loss of rank, noticed by the rank by.
func lost(t *testing.T, err error, rank, by int) {
	t.Helper()
	var e *transport.PeerError
	if !errors.As(err, &e) {
		t.Fatalf("the fault is %v; want a *transport.PeerError", err)
	}
	if e.Rank != rank || e.By != by || e.What == "" {
		t.Errorf("the fault is %+v; want the loss of rank %d, noticed by %d, and what was noticed", *e, rank, by)
	}
}

func testBreakReceiver(t *testing.T, open Opener) {
	ranks, tx, rx := pair(t, open)
	exchange(t, ranks, tx, rx, []int{8}, func(int) way { return way{} })
	ranks[0].Close()
	err := Poll(ranks[1:], func() bool { _, _, ok := rx.Peek(); return ok })
	lost(t, err, 0, 1)
	for range 100 {
		if _, _, ok := rx.Peek(); ok {
			t.Fatal("a broken connection has a message")
		}
	}
}

func testBreakSender(t *testing.T, open Opener) {
	ranks, tx, rx := pair(t, open)
	exchange(t, ranks, tx, rx, []int{8}, func(int) way { return way{} })
	ranks[1].Close()
	number := uint32(0)
	err := Poll(ranks[:1], func() bool {
		if p := tx.Reserve(1000); p != nil {
			number++
			tx.Commit(1000, header(number))
		}
		tx.Idle()
		return false
	})
	lost(t, err, 1, 0)
}

// testLastWords: messages sent before an orderly Close arrive.
func testLastWords(t *testing.T, open Opener) {
	ranks, tx, rx := pair(t, open)
	s, r := sender{tx: tx}, receiver{rx: rx}
	for i := range uint32(3) {
		Until(t, ranks, "a slot", func() bool { return s.try(i+1, 1000, false) })
	}
	Until(t, ranks, "Idle", tx.Idle)
	ranks[0].Close()
	for i := range uint32(3) {
		Until(t, ranks, fmt.Sprintf("message %d", i+1), func() bool { return r.try(t, i+1, 1000, false) })
	}
}

// testQuietClose: a peer's Close is not a fault for ranks that need nothing more from it.
func testQuietClose(t *testing.T, open Opener) {
	ranks, tx, rx := pair(t, open)
	back, xr := Connect(t, ranks, 1, 0, 0)
	exchange(t, ranks, tx, rx, []int{8, 100_000 % (tx.MaxMessage() + 1)}, func(int) way { return way{} })
	exchange(t, ranks, back, xr, []int{8}, func(int) way { return way{} })
	ranks[0].Close()
	time.Sleep(50 * time.Millisecond) // gives a faulty watcher time to report
	if err := ranks[1].Fault.Err(); err != nil {
		t.Errorf("an orderly Close of the peer is a fault: %v", err)
	}
	if err := ranks[0].Fault.Err(); err != nil {
		t.Errorf("its own Close is a fault: %v", err)
	}
}

// testCloseInUse closes a rank's endpoint while its connections are used.
func testCloseInUse(t *testing.T, open Opener) {
	for round := range 4 {
		ranks, tx, rx := pair(t, open)
		back, xr := Connect(t, ranks, 1, 0, 0)
		var stop atomic.Bool
		var moved atomic.Int64
		var wg sync.WaitGroup
		send := func(tx transport.Tx) {
			s, size := sender{tx: tx}, min(20_000, tx.MaxMessage())
			for i := uint32(1); !stop.Load(); {
				if s.try(i, size, i%2 == 0) {
					i++
				}
				tx.Idle()
				runtime.Gosched()
			}
		}
		receive := func(rx transport.Rx) {
			r, size := receiver{rx: rx}, min(20_000, rx.MaxMessage())
			for i := uint32(1); !stop.Load(); {
				if r.try(errorer{t}, i, size, i%2 == 0 && rx.Direct()) {
					i++
					moved.Add(1)
				}
				runtime.Gosched()
			}
		}
		for _, tx := range []transport.Tx{tx, back} {
			wg.Go(func() { send(tx) })
		}
		for _, rx := range []transport.Rx{rx, xr} {
			wg.Go(func() { receive(rx) })
		}
		Until(t, ranks, "traffic", func() bool { return moved.Load() > 20 })
		ranks[round%2].Close()
		if err := ranks[round%2].Close(); err != nil {
			t.Errorf("the second Close: %v", err)
		}
		time.Sleep(5 * time.Millisecond) // gives the remaining users time to fail
		stop.Store(true)
		wg.Wait()
		if err := ranks[round%2].Fault.Err(); err != nil {
			t.Errorf("its own Close is a fault: %v", err)
		}
	}
}

func testAllocs(t *testing.T, open Opener) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	ranks, tx, rx := pair(t, open)
	buf, into := make([]byte, tx.MaxMessage()), make([]byte, tx.MaxMessage())
	for _, w := range ways(rx) {
		for _, size := range []int{0, 8, min(5000, tx.MaxMessage()), tx.MaxMessage()} {
			n := testing.AllocsPerRun(50, func() { oneMessage(t, ranks, tx, rx, buf[:size], into[:size], w) })
			if n != 0 {
				t.Errorf("%v, %d bytes: %v allocations a message; want 0", w, size, n)
			}
		}
	}
}

// oneMessage moves one message and allocates nothing itself.
func oneMessage(t *testing.T, ranks []Rank, tx transport.Tx, rx transport.Rx, buf, into []byte, w way) {
	sent, posted := false, false
	for spins := 0; ; spins++ {
		switch {
		case sent:
			tx.Idle()
		case w.postTx:
			sent = tx.Post(buf, header(1))
		default:
			if tx.Reserve(len(buf)) != nil {
				tx.Commit(len(buf), header(1))
				sent = true
			}
		}
		ok := false
		if w.postRx {
			if !posted {
				rx.Post(into)
				posted = true
			}
			_, _, ok = rx.Done()
		} else if _, _, ok = rx.Peek(); ok {
			rx.Release()
		}
		if ok {
			break
		}
		if err := ranks[0].Fault.Err(); err != nil || spins > 1e9 {
			t.Fatalf("a message does not arrive: %v", err)
		}
		runtime.Gosched()
	}
	for !tx.Idle() {
		runtime.Gosched()
	}
}

// testLeaks: Close leaves nothing behind.
func testLeaks(t *testing.T, open Opener) {
	cycle := func() {
		ranks := open(t, 3)
		for from := range 3 {
			tx, rx := Connect(t, ranks, from, (from+1)%3, 0)
			exchange(t, ranks, tx, rx, []int{8, min(10_000, tx.MaxMessage())}, func(int) way { return way{} })
		}
		for r := range ranks {
			if err := ranks[r].Close(); err != nil {
				t.Errorf("Close of rank %d: %v", r, err)
			}
		}
	}
	cycle() // creates what exists once per process
	colltest.Watch(t)
	cycle()
}
