package shm

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/assay-hpc/assay/coll/transport"
	"github.com/assay-hpc/assay/coll/transport/transporttest"
)

func open(t testing.TB, ranks, channels, slot int) []*Endpoint {
	t.Helper()
	all := make([]*Endpoint, ranks)
	for r := range all {
		e, err := New(Options{Rank: r, Ranks: ranks, Channels: channels, Slot: slot, Secret: 0xfeed})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { e.Close() })
		all[r] = e
	}
	return all
}

func TestConformance(t *testing.T) {
	for _, direct := range []bool{false, true} {
		t.Run(fmt.Sprintf("direct=%v", direct), func(t *testing.T) {
			transporttest.RunUnwatched(t, func(t testing.TB, n int) []transporttest.Rank {
				var ranks []transporttest.Rank
				for r := range n {
					o := Options{Rank: r, Ranks: n, Channels: 16, Secret: 0xfeed}
					f := new(transport.Fault)
					if direct {
						o.Direct = f
					}
					e, err := New(o)
					if err != nil {
						t.Fatal(err)
					}
					t.Cleanup(func() { e.Close() })
					ranks = append(ranks, transporttest.Rank{Endpoint: e, Fault: f, Alloc: Alloc, Free: Free})
				}
				return ranks
			})
		})
	}
}

// One message to everyone reaches each, in order, and the sender stops when
// the slowest has not taken them.
func TestMulticast(t *testing.T) {
	ctx := context.Background()
	all := open(t, 4, 1, 4096)
	infos := make([][]byte, len(all))
	for r, e := range all {
		infos[r] = e.Info()
	}
	tx, err := all[1].MultiTx(ctx, infos, 0)
	if err != nil {
		t.Fatal(err)
	}
	var rxs []transport.Rx
	for r, e := range all {
		if r == 1 {
			continue
		}
		rx, err := e.MultiRx(ctx, 1, infos, 0)
		if err != nil {
			t.Fatal(err)
		}
		rxs = append(rxs, rx)
	}
	sent := 0
	send := func(n int) bool {
		b := tx.Reserve(n)
		if b == nil {
			return false
		}
		for i := range b {
			b[i] = byte(sent + i)
		}
		tx.Commit(n, transport.Header{Seq: uint32(sent)})
		sent++
		return true
	}
	for send(100) {
	}
	if sent != numEntries {
		t.Fatalf("%d messages fit; want %d", sent, numEntries)
	}
	took := make([]int, len(rxs))
	for round := range 200 {
		i := round % len(rxs)
		p, h, ok := rxs[i].Peek()
		if !ok {
			send(100)
			continue
		}
		want := make([]byte, len(p))
		for k := range want {
			want[k] = byte(took[i] + k)
		}
		if int(h.Seq) != took[i] || !bytes.Equal(p, want) {
			t.Fatalf("reader %d: message %d instead of %d, or other content", i, h.Seq, took[i])
		}
		rxs[i].Release()
		took[i]++
		send(100)
	}
	for i, n := range took {
		if n < 60 {
			t.Errorf("reader %d took %d messages; want 60 or more", i, n)
		}
	}
}

// A rank that sleeps is woken by a message, and by a freed slot.
func TestBell(t *testing.T) {
	ctx := context.Background()
	all := open(t, 2, 1, 256)
	tx, err := all[0].Tx(ctx, 1, all[1].Info(), 0)
	if err != nil {
		t.Fatal(err)
	}
	rx, err := all[1].Rx(ctx, 0, all[0].Info(), 0)
	if err != nil {
		t.Fatal(err)
	}
	woken := func(b *Bell, f func()) {
		t.Helper()
		done := make(chan bool)
		b.Arm()
		go func() { b.Sleep(time.Hour); close(done) }()
		f()
		select {
		case <-done:
		case <-time.After(5 * time.Minute):
			t.Fatal("nobody woke the rank")
		}
	}
	woken(all[1].Bell(), func() { tx.Post([]byte("hello"), transport.Header{}) })
	for range entriesTold - 1 {
		tx.Post([]byte("hello"), transport.Header{})
	}
	woken(all[0].Bell(), func() {
		for range entriesTold {
			if _, _, ok := rx.Peek(); !ok {
				t.Error("no message")
			}
			rx.Release()
		}
	})
}

const childEnv = "ASSAY_SHM_TEST_INFO"

// Another process opens the memory, and is refused that of another
// communicator.
func TestProcesses(t *testing.T) {
	all := open(t, 2, 1, 4096)
	tx, err := all[0].Tx(context.Background(), 1, all[1].Info(), 0)
	if err != nil {
		t.Fatal(err)
	}
	tx.Post([]byte("from another process"), transport.Header{Seq: 1})
	for secret, want := range map[string]string{"right": "got: from another process", "wrong": "is not that of rank 0"} {
		cmd := exec.Command(os.Args[0], "-test.run=^TestChild$", "-test.v")
		cmd.Env = append(os.Environ(), childEnv+"="+secret+string(all[0].hexInfo()))
		out, err := cmd.CombinedOutput()
		if err != nil || !strings.Contains(string(out), want) {
			t.Errorf("secret %s: %v\n%s\nwant %q", secret, err, out, want)
		}
	}
}

// Memory of Alloc is the same for whoever has its handle.
func TestHandle(t *testing.T) {
	b, err := Alloc(5000)
	if err != nil {
		t.Fatal(err)
	}
	h, err := HandleOf(b)
	if err != nil {
		t.Fatal(err)
	}
	c, err := Open(h)
	if err != nil {
		t.Fatal(err)
	}
	other := h
	other.Ino++
	if _, err := Open(other); err == nil {
		t.Error("a descriptor of something else is accepted")
	}
	other = h
	other.PIDs++
	if _, err := Open(other); !errors.Is(err, errOtherPIDs) {
		t.Errorf("%v; want %v", err, errOtherPIDs)
	}
	b[4999] = 7
	if c[4999] != 7 {
		t.Error("it is other memory")
	}
	if err := Free(b); err != nil {
		t.Error(err)
	}
	if c[4999] != 0 {
		t.Error("what was freed is not given back")
	}
	if _, err := Open(h); err == nil {
		t.Error("what was freed is opened")
	}
	if err := Close(c); err != nil {
		t.Error(err)
	}
	if _, err := HandleOf(make([]byte, 8)); err == nil {
		t.Error("any memory has a handle")
	}
}

func TestReach(t *testing.T) {
	a := open(t, 2, 1, 4096)
	b, err := New(Options{Rank: 1, Ranks: 2, Channels: 1, Slot: 4096, Host: 12345})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	c := open(t, 2, 2, 4096)
	for _, tt := range []struct {
		info []byte
		want error
	}{{a[1].Info(), nil}, {b.Info(), errOtherHost}, {c[1].Info(), errOtherShape}} {
		if got := a[0].Reach(1, tt.info); got != tt.want {
			t.Errorf("Reach = %v; want %v", got, tt.want)
		}
	}
	if err := a[0].Reach(1, []byte("short")); err == nil {
		t.Error("a damaged description is accepted")
	}
}

func FuzzInfo(f *testing.F) {
	e, err := New(Options{Rank: 0, Ranks: 2, Channels: 1, Slot: 4096})
	if err != nil {
		f.Fatal(err)
	}
	defer e.Close()
	f.Add(e.Info())
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		if e.Reach(1, b) == nil && len(b) != len(e.Info()) {
			t.Errorf("a description of %d bytes is accepted", len(b))
		}
	})
}
