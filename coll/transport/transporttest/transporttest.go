// Package transporttest is the conformance suite of transport.Endpoint. A transport's own
// test opens its endpoints and calls Run, which tests the contract in the same way for
// all transports:
//
//	func TestConformance(t *testing.T) {
//		transporttest.Run(t, func(t testing.TB, ranks int) []transporttest.Rank { … })
//	}
//
// The suite polls as the executor does, with only short sleeps, and gives up a wait after
// Patience; apart from that, no test asserts on time.
package transporttest

import (
	"context"
	"encoding/binary"
	"errors"
	"runtime"
	"testing"
	"time"

	"github.com/assay-hpc/assay/coll/transport"
)

// Patience is how long the suite waits for an event that must happen before it fails. It
// is generous: a machine under load is not a failure.
const Patience = 5 * time.Minute

// A Rank is one rank's endpoint and the Fault that it was given.
type Rank struct {
	transport.Endpoint
	Fault *transport.Fault
	// Alloc and Free manage memory that peers read in place; nil: there is no such
	// memory.
	Alloc func(n int) ([]byte, error)
	Free  func([]byte) error
}

// An Opener opens the endpoints of a new communicator's ranks, all of them in
// this process. The suite closes them; closing twice must be harmless.
type Opener func(t testing.TB, ranks int) []Rank

// Each opens ranks one by one.
func Each(open func(t testing.TB, rank int) Rank) Opener {
	return func(t testing.TB, n int) (ranks []Rank) {
		t.Helper()
		for r := range n {
			ranks = append(ranks, open(t, r))
		}
		return ranks
	}
}

// Run runs the suite on what open opens.
func Run(t *testing.T, open Opener) { runCases(t, open, true) }

// RunUnwatched is Run for a transport that does not itself detect lost peers, and may not
// be closed while it is in use: a transport within a host, where the bootstrap detects
// them.
func RunUnwatched(t *testing.T, open Opener) { runCases(t, open, false) }

func runCases(t *testing.T, open Opener, watched bool) {
	for _, tt := range []struct {
		name    string
		run     func(*testing.T, Opener)
		watched bool // only for transports that watch their peers
	}{
		{"info", testInfo, false},
		{"not ready", testNotReady, false},
		{"sizes", testSizes, false},
		{"reserve", testReserve, false},
		{"stray length", testStrayLength, false},
		{"mixed", testMixed, false},
		{"back pressure", testBackPressure, false},
		{"concurrent", testConcurrent, false},
		{"many ranks", testManyRanks, false},
		{"peer closes, receiver", testBreakReceiver, true},
		{"peer closes, sender", testBreakSender, true},
		{"messages before close", testLastWords, false},
		{"quiet close", testQuietClose, true},
		{"close in use", testCloseInUse, true},
		{"free after close, sender", testFreeSender, false},
		{"free after close, receiver", testFreeReceiver, false},
		{"too long", testTooLong, false},
		{"allocations", testAllocs, false},
		{"leaks", testLeaks, false},
	} {
		if watched || !tt.watched {
			t.Run(tt.name, func(t *testing.T) { tt.run(t, open) })
		}
	}
}

// openRanks opens endpoints that are closed when the test ends.
func openRanks(t *testing.T, open Opener, n int) []Rank {
	t.Helper()
	ranks := open(t, n)
	if len(ranks) != n {
		t.Fatalf("the opener gave %d ranks; want %d", len(ranks), n)
	}
	t.Cleanup(func() {
		for r := range ranks {
			ranks[r].Close()
		}
	})
	return ranks
}

// Connect opens a connection from one rank to another.
func Connect(t testing.TB, ranks []Rank, from, to, channel int) (transport.Tx, transport.Rx) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), Patience)
	defer cancel()
	rx, err := ranks[to].Rx(ctx, from, ranks[from].Info(), channel)
	if err != nil {
		t.Fatalf("Rx(%d): %v", from, err)
	}
	tx, err := ranks[from].Tx(ctx, to, ranks[to].Info(), channel)
	if err != nil {
		t.Fatalf("Tx(%d): %v", to, err)
	}
	return tx, rx
}

// pair opens two ranks and a connection from 0 to 1.
func pair(t *testing.T, open Opener) ([]Rank, transport.Tx, transport.Rx) {
	t.Helper()
	ranks := openRanks(t, open, 2)
	tx, rx := Connect(t, ranks, 0, 1, 0)
	return ranks, tx, rx
}

var errPatience = errors.New("nothing happened")

// Poll calls f until it reports true, and returns the first Fault of ranks if
// there is one before, or errPatience.
func Poll(ranks []Rank, f func() bool) error {
	deadline := time.Now().Add(Patience)
	for i := 1; !f(); i++ {
		for r := range ranks {
			if err := ranks[r].Fault.Err(); err != nil {
				return err
			}
		}
		runtime.Gosched()
		if i%1024 == 0 {
			if time.Now().After(deadline) {
				return errPatience
			}
			time.Sleep(10 * time.Microsecond) // other threads need the core, too
		}
	}
	return nil
}

// Until is Poll, and fails the test on an error.
func Until(t testing.TB, ranks []Rank, what string, f func() bool) {
	t.Helper()
	if err := Poll(ranks, f); err != nil {
		t.Fatalf("waiting for %s: %v", what, err)
	}
}

// Say sends one message and receives it.
func Say(t testing.TB, ranks []Rank, tx transport.Tx, rx transport.Rx, text string) {
	t.Helper()
	Until(t, ranks, "room", func() bool { return tx.Post([]byte(text), transport.Header{Seq: 7}) })
	Until(t, ranks, "the message", func() bool {
		tx.Idle()
		p, h, ok := rx.Peek()
		if ok && (string(p) != text || h.Seq != 7) {
			t.Fatalf("Peek = %.20q, %v; want %.20q", p, h, text)
		}
		return ok
	})
	rx.Release()
}

// pattern fills p with bytes that depend on the message and the position.
func pattern(p []byte, seed uint32) {
	x := uint64(seed)*0x9e3779b97f4a7c15 + 1
	var word [8]byte
	for len(p) > 0 {
		x ^= x << 13 // Marsaglia's xorshift
		x ^= x >> 7
		x ^= x << 17
		binary.LittleEndian.PutUint64(word[:], x)
		p = p[copy(p, word[:]):]
	}
}
