package flight

import (
	"errors"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

func TestLog(t *testing.T) {
	a, b := New("dp", 1, 3, []int{4, 5, 6, 7}), New("tp", 0, 3, []int{-1, -1})
	defer b.Close()
	if _, ok := a.Last(); ok || a.Calls() != 0 {
		t.Error("there is an entry before the first one")
	}
	for i := range uint32(Entries + 10) {
		a.Add(&Entry{Seq: i + 1, Sign: 7 * i, Count: int64(i), Stream: 9, Peer: -1})
	}
	a.Add(&Entry{Seq: Entries + 10, P2P: 1, Peer: 2, Count: 3})
	if e, ok := a.Last(); !ok || e.P2P != 1 || e.Peer != 2 || e.Count != 3 || time.Since(e.At) > time.Minute || time.Since(e.At) < 0 {
		t.Errorf("the last one: %+v, %v", e, ok)
	}
	if e, ok := a.Collective(70); !ok || e.Sign != 7*69 || e.Count != 69 || e.Stream != 9 {
		t.Errorf("number 70: %+v, %v", e, ok)
	}
	for _, seq := range []uint32{1, 11, Entries + 11} { // the first two are gone
		if e, ok := a.Collective(seq); ok {
			t.Errorf("number %d: %+v", seq, e)
		}
	}
	a.Ended(70)
	a.Say("it " + strings.Repeat("stands ", 1000))
	all, err := Read(os.Getpid())
	if err != nil || len(all) != 2 {
		t.Fatalf("%v, %v", all, err)
	}
	s := all[0]
	if s.Name != "dp" || s.Rank != 1 || s.Size != 4 || !slices.Equal(s.Jobs, []int{4, 5, 6, 7}) || s.Device != 3 || s.Calls != Entries+11 || s.Ended != 70 || len(s.Last) != Entries ||
		s.Last[0].Seq != 12 || !strings.HasPrefix(s.Said, "it stands ") || len(s.Said) != len(sentence{})-1 || time.Since(s.SaidAt) > time.Minute {
		t.Errorf("%+v", s)
	}
	if o := b.Others(); len(o) != 1 || o[0].Name != "dp" || o[0].P2P != 1 {
		t.Errorf("the others of tp: %+v", o)
	}
	a.Close()
	if all, err = Read(os.Getpid()); err != nil || len(all) != 1 || all[0].Name != "tp" {
		t.Errorf("after Close: %v, %v", all, err)
	}
	if _, err := Read(os.Getppid()); !errors.Is(err, ErrNone) {
		t.Errorf("a process without one: %v", err)
	}
	if _, err := Read(1 << 30); err == nil || !strings.Contains(err.Error(), "there is no process") {
		t.Errorf("no process: %v", err)
	}
}

// A reader never sees parts of two entries.
func TestWhole(t *testing.T) {
	l := New("x", 0, 0, []int{0})
	defer l.Close()
	done := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		defer close(done)
		for i := range uint32(300_000) {
			l.Add(&Entry{Seq: i + 1, Sign: i + 1, Count: int64(i + 1), Stream: uint64(i + 1)})
		}
	})
	seen := 0
	for running := true; running; {
		select {
		case <-done:
			running = false
		default:
		}
		if e, ok := l.Last(); ok {
			if seen++; e.Sign != e.Seq || e.Count != int64(e.Seq) || e.Stream != uint64(e.Seq) {
				t.Fatalf("%+v", e)
			}
		}
	}
	wg.Wait()
	if seen == 0 {
		t.Error("nothing was seen")
	}
}

// Communicators beyond those that others see are recorded all the same.
func TestMany(t *testing.T) {
	var all []*Log
	for range blocks + 3 {
		all = append(all, New("many", 0, 0, []int{0}))
	}
	for _, l := range all {
		l.Add(&Entry{Seq: 1})
		if _, ok := l.Collective(1); !ok {
			t.Error("it is lost")
		}
		l.Close()
	}
}

func BenchmarkAdd(b *testing.B) {
	l := New("x", 0, 0, []int{0})
	defer l.Close()
	e := Entry{Seq: 1, Count: 5}
	for b.Loop() {
		l.Add(&e)
	}
}

// A process' state is what the kernel says.
func TestStateOf(t *testing.T) {
	cmd := exec.Command("sleep", "1000")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	pid := cmd.Process.Pid
	is := func(want State) {
		t.Helper()
		for deadline := time.Now().Add(time.Minute); StateOf(pid) != want; time.Sleep(time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("%v, want %v", StateOf(pid), want)
			}
		}
	}
	is(Running)
	_ = cmd.Process.Signal(syscall.SIGSTOP)
	is(Stopped)
	_ = cmd.Process.Kill()
	is(Ended) // nobody has waited for it
	_ = cmd.Wait()
	is(Ended)
}
