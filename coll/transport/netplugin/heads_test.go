//go:build cgo

package netplugin_test

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/assay-hpc/assay/coll/elem"
	"github.com/assay-hpc/assay/coll/op"
	"github.com/assay-hpc/assay/coll/transport"
	"github.com/assay-hpc/assay/coll/transport/netplugin"
	"github.com/assay-hpc/assay/coll/transport/netplugin/netplugintest"
)

// TestCollNet: what the network can do is told, by each version.
func TestCollNet(t *testing.T) {
	for _, tt := range []struct {
		flag, want string
	}{
		{"-DONLY=8", "assay test reducing 8 [test0] 536870912 true true"},
		{"-DONLY=9", "assay test reducing 9 [test0] 1073741824 true true"},
		{"-DONLY=12", "assay test reducing 12 [test0] 1073741824 true true"},
		{"-DALLREDUCE_ONLY", "assay test reducing 12 [test0] 1073741824 false false"},
	} {
		n := openCollNet(t, netplugintest.Build(t, tt.flag))
		var names []string
		for _, d := range n.Devices() {
			names = append(names, d.Name)
		}
		got := fmt.Sprint(n.Name(), " ", n.Version(), " ", names, " ", n.Devices()[0].MaxBytes, " ", n.Does(op.AllGather), " ", n.Does(op.ReduceScatter))
		if got != tt.want {
			t.Errorf("%s: the network is %s; want %s", tt.flag, got, tt.want)
		}
		if !n.Does(op.AllReduce) || n.Does(op.NumCollectives) {
			t.Errorf("%s: it does not reduce, or does what there is not", tt.flag)
		}
		for _, r := range []struct {
			t    elem.Type
			op   elem.Op
			want bool
		}{{elem.Float32, elem.Sum, true}, {elem.Int64, elem.Avg, true}, {elem.Float32, elem.Prod, false}, {elem.Float16, elem.Sum, false}, {elem.Float8E5M2, elem.Sum, false}} {
			if got := n.Reduces(r.t, r.op); got != r.want {
				t.Errorf("%s: Reduces(%v, %v) = %v", tt.flag, r.t, r.op, got)
			}
		}
		if err := n.Close(); err != nil {
			t.Error(err)
		}
	}
}

func openCollNet(t testing.TB, file string) *netplugin.CollNet {
	t.Helper()
	l, err := netplugin.Load(file)
	if err != nil {
		t.Fatal(err)
	}
	n, err := l.CollNet(1)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// openHeads makes as many heads as there are faults; a nil one is a head that
// listens and does not come.
func openHeads(t *testing.T, ctx context.Context, file string, faults []*transport.Fault, logf func(string, ...any)) ([]*netplugin.Heads, []error) {
	t.Helper()
	var listeners []*netplugin.CollListener
	var handles [][netplugin.HandleSize]byte
	for range faults {
		l, err := openCollNet(t, file).Listen(0)
		if err != nil {
			t.Fatal(err)
		}
		listeners, handles = append(listeners, l), append(handles, l.Handle)
	}
	heads, errs := make([]*netplugin.Heads, len(faults)), make([]error, len(faults))
	var wg sync.WaitGroup
	for i, l := range listeners {
		if faults[i] == nil {
			continue
		}
		wg.Go(func() {
			heads[i], errs[i] = netplugin.OpenHeads(ctx, netplugin.HeadsOptions{Listener: l, Handles: handles, Rank: i, MaxMessage: 1 << 16, Fault: faults[i], Logf: logf})
		})
	}
	wg.Wait()
	return heads, errs
}

func twoHeads(t *testing.T, file string, logf func(string, ...any)) ([]*netplugin.Heads, []*transport.Fault) {
	t.Helper()
	faults := []*transport.Fault{{}, {}}
	heads, errs := openHeads(t, t.Context(), file, faults, logf)
	for _, err := range errs {
		if err != nil {
			t.Fatal(err)
		}
	}
	return heads, faults
}

// commit gives one message of bytes to the network, or reports false.
func commit(h *netplugin.Heads, b byte, hd transport.Header) bool {
	tx := h.Tx()
	tx.As(op.AllGather, elem.Uint8, elem.Sum)
	return tx.Post(bytes.Repeat([]byte{b}, 100), hd)
}

// TestHeads: messages go in until the slots are full, and results come out in
// order, each with its header.
func TestHeads(t *testing.T) {
	t.Setenv("ASSAY_TEST_NET_STRICT", "1")
	t.Setenv("ASSAY_TEST_COLLNET_BUSY", "2")
	heads, faults := twoHeads(t, netplugintest.Build(t), t.Logf)
	const rounds = 100
	var given, taken [2]int
	deadline := time.Now().Add(5 * time.Minute)
	for taken != [2]int{rounds, rounds} && time.Now().Before(deadline) {
		for i, h := range heads {
			for given[i] < rounds && commit(h, byte(given[i]+i), transport.Header{Seq: uint32(given[i])}) {
				given[i]++
			}
			if n := given[i] - taken[i]; n > h.Tx().Slots() || given[i] < rounds && n < h.Tx().Slots() {
				t.Fatalf("head %d has %d messages in %d slots", i, n, h.Tx().Slots())
			}
			p, hd, ok := h.Rx().Peek()
			if !ok {
				continue
			}
			k := byte(taken[i])
			if want := append(bytes.Repeat([]byte{k}, 100), bytes.Repeat([]byte{k + 1}, 100)...); !bytes.Equal(p, want) || hd.Seq != uint32(k) {
				t.Fatalf("head %d: result %d is %v, header %v", i, k, p, hd)
			}
			h.Rx().Release()
			taken[i]++
		}
	}
	for i, h := range heads {
		if err := h.Close(); err != nil || faults[i].Err() != nil || taken[i] != rounds {
			t.Errorf("head %d: %d results, fault %v, Close: %v", i, taken[i], faults[i].Err(), err)
		}
	}
}

// TestHeadMissing: a head that does not come is an error of the others in
// time, though the plugin's call does not return.
func TestHeadMissing(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	defer cancel()
	heads, errs := openHeads(t, ctx, netplugintest.Build(t), []*transport.Fault{{}, nil}, t.Logf)
	if heads[0] != nil || errs[0] == nil || !strings.Contains(errs[0].Error(), "a call of the plugin does not return: context deadline exceeded") {
		t.Errorf("OpenHeads = %v, %v; want that a call does not return", heads[0], errs[0])
	}
}

// TestHeadsFail: what a plugin's call returns is a fault, after a while in which
// there may be a better one.
func TestHeadsFail(t *testing.T) {
	t.Setenv("ASSAY_TEST_COLLNET_FAIL", "1")
	heads, faults := twoHeads(t, netplugintest.Build(t), t.Logf)
	if !commit(heads[0], 1, transport.Header{}) {
		t.Fatal("there is no room")
	}
	if err := faults[0].Err(); err != nil {
		t.Errorf("the fault is %v at once", err)
	}
	deadline := time.Now().Add(5 * time.Minute)
	for faults[0].Err() == nil && time.Now().Before(deadline) {
		if _, _, ok := heads[0].Rx().Peek(); ok || commit(heads[0], 2, transport.Header{}) {
			t.Fatal("there are results, or room, after a failure")
		}
		time.Sleep(10 * time.Millisecond)
	}
	if err := faults[0].Err(); err == nil || err.Error() != "collnet plugin assay test reducing: test: system error (2)" {
		t.Errorf("the fault is %v", err)
	}
	for _, h := range heads {
		if err := h.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestHeadsUnderWay: Close leaves alone what other heads have not begun, and
// what the plugin may still write.
func TestHeadsUnderWay(t *testing.T) {
	t.Setenv("ASSAY_TEST_NET_STRICT", "1") // closing the group would abort
	var said []string
	heads, _ := twoHeads(t, netplugintest.Build(t), func(f string, a ...any) { said = append(said, fmt.Sprintf(f, a...)) })
	if !commit(heads[0], 1, transport.Header{}) {
		t.Fatal("there is no room")
	}
	for _, h := range heads {
		if err := h.Close(); err != nil {
			t.Error(err)
		}
	}
	if got := strings.Join(said, "\n"); got != "collnet plugin assay test reducing: 1 collectives were under way, and their memory is not given back" {
		t.Errorf("the log is %q", got)
	}
}
