package coll

import (
	"encoding/binary"
	"encoding/json"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/assay-hpc/assay/coll/executor"
	"github.com/assay-hpc/assay/coll/flight"
	"github.com/assay-hpc/assay/coll/op"
	"github.com/assay-hpc/assay/coll/transport"
)

// TestHang: one of the ranks that wait says which rank has not called what,
// once, and nobody says so of ranks that do not wait.
func TestHang(t *testing.T) {
	all := fakes(t)
	const n = 4
	var mu sync.Mutex
	var said []Verdict
	cfg := deviceConfig(n)
	cfg.AsNCCL, cfg.Knobs.HangAfter, cfg.Knobs.HangDir = true, time.Second, t.TempDir()
	cfg.Name = "dp"
	cfg.OnHang = func(v Verdict) {
		mu.Lock()
		defer mu.Unlock()
		said = append(said, v)
	}
	comms, err := CommInitAll(t.Context(), n, cfg)
	if err != nil {
		t.Fatal(err)
	}
	verdicts := func() []Verdict {
		mu.Lock()
		defer mu.Unlock()
		return said
	}
	call := func(c *Comm) {
		if err := c.AllReduce(mem(0, 64), mem(1, 64), 8, Int64, Sum); err != nil {
			t.Error(err)
		}
	}
	for r, c := range comms {
		call(c)
		if r != 3 {
			call(c)
		}
	}
	time.Sleep(3 * time.Second) // all has ended, as far as anybody knows
	if v := verdicts(); len(v) > 0 {
		t.Errorf("without a reason: %q", v)
	}
	for r, c := range comms[:n-1] {
		of(all, r).busy.Store(r > 0) // rank 0 is done
		call(c)
	}
	await := func(n int) {
		t.Helper()
		for deadline := time.Now().Add(5 * time.Minute); len(verdicts()) < n && time.Now().Before(deadline); {
			time.Sleep(10 * time.Millisecond)
		}
	}
	await(1)
	time.Sleep(5 * time.Second) // is there another one, of rank 2, when rank 1 has had its time?
	v := verdicts()
	if len(v) != 1 || v[0].Cause != NotCalled || !slices.Equal(v[0].Ranks, []int{3}) || v[0].By != 1 && v[0].By != 2 || v[0].Size != n || v[0].Communicator != "dp" || !strings.HasPrefix(v[0].Text, "it stands still: rank 3 (host ") ||
		!strings.Contains(v[0].Text, "GPU 13) has not called AllReduce of int64 with sum, 8 elements, operation #2: its last call was AllReduce of int64 with sum, 8 elements, operation #1, ") {
		t.Errorf("%+v", v)
	}
	var file Verdict
	if b, err := os.ReadFile(v[0].File); err != nil || json.Unmarshal(b, &file) != nil || file.Schema != VerdictSchema || file.Cause != NotCalled || len(file.States) != n || file.States[2].Called != 3 || file.States[1].PID != os.Getpid() {
		t.Errorf("%s: %v: %+v", v[0].File, err, file)
	}
	if all, err := flight.Read(os.Getpid()); err != nil || !slices.ContainsFunc(all, func(s flight.Snapshot) bool {
		return s.Name == "dp" && s.Rank == v[0].By && s.Said == v[0].Text && s.Calls == 3
	}) {
		t.Errorf("the recorder: %v, %+v", err, all)
	}
	call(comms[3])
	call(comms[3])
	for r := range n {
		of(all, r).busy.Store(false)
	}
	await(2)
	if v := verdicts(); len(v) != 2 || v[1].Cause != Resumed || v[1].By != v[0].By || !strings.HasPrefix(v[1].Text, "it continues, ") {
		t.Errorf("%+v", v)
	}
	destroyAll(t, comms)
}

// TestHangIsSaidOnce: rank 1 gives its verdict while rank 0's question is on its way.
// Rank 0 learns of it before it has rank 1's answer, so that it says nothing. Answers to
// others' questions do not count as answers to its own.
func TestHangIsSaidOnce(t *testing.T) {
	fakes(t)
	cfg := deviceConfig(3)
	cfg.AsNCCL, cfg.Knobs.HangAfter = true, time.Hour
	comms, err := CommInitAll(t.Context(), 3, cfg)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range comms {
		if err := c.AllReduce(mem(0, 64), mem(1, 64), 8, Int64, Sum); err != nil {
			t.Error(err)
		}
	}
	heads := func(r int) *heads { return &comms[r].accel.Load().heads }
	said := func(r int) uint64 {
		heads(r).mu.Lock()
		defer heads(r).mu.Unlock()
		return heads(r).said
	}
	answers := func() int {
		heads(0).mu.Lock()
		defer heads(0).mu.Unlock()
		return len(heads(0).of)
	}
	ask := func() {
		d := comms[0].accel.Load()
		if mine := comms[0].head(d); !comms[0].ask(d, mine) {
			t.Error("the communicator was closed")
		}
	}
	if ask(); said(0) != 0 || answers() != 2 {
		t.Errorf("there is no verdict, and %d of 2 ranks answered", answers())
	}
	heads(1).mu.Lock()
	heads(1).mine = time.Now()
	heads(1).mu.Unlock()
	if ask(); said(0) != 1 || said(1) != 0 {
		t.Errorf("ranks 0 and 1 know of verdicts about calls up to %d and %d, not 1 and 0", said(0), said(1))
	}
	heads(0).mu.Lock()
	heads(0).of = map[int]head{}
	heads(0).mu.Unlock()
	comms[0].heardHead(1, head{Ask: true, Peer: NoPeer})
	comms[0].heardHead(1, head{To: 2, Peer: NoPeer})
	if n := answers(); n != 0 {
		t.Errorf("%d answers to another's question count", n)
	}
	destroyAll(t, comms)
}

// TestRefused: nothing waits when a rank is lost, so that there is no verdict. The first call that
// is refused for it gives the verdict before it returns.
func TestRefused(t *testing.T) {
	fakes(t)
	cfg := deviceConfig(2)
	var said []Verdict
	cfg.AsNCCL, cfg.Knobs.HangDir, cfg.OnHang = true, t.TempDir(), func(v Verdict) { said = append(said, v) }
	comms, err := CommInitAll(t.Context(), 2, cfg)
	if err != nil {
		t.Fatal(err)
	}
	c := comms[0]
	c.fault.Set(&transport.PeerError{Rank: 1, What: "the connection was closed"})
	call := func() error { return c.AllReduce(mem(0, 64), mem(1, 64), 8, Int64, Sum) }
	for range 2 {
		if err := call(); CodeOf(err) != RemoteError {
			t.Errorf("the call returns %v", err)
		}
	}
	var g Group
	g.Start()
	g.Add(c)
	_ = call()
	if err := g.End(); CodeOf(err) != RemoteError {
		t.Errorf("the group returns %v", err)
	}
	if len(said) != 1 || !strings.Contains(said[0].Text, "is lost: the connection was closed: this rank calls AllReduce, operation #1") || !slices.Equal(said[0].Ranks, []int{1}) {
		t.Errorf("the verdicts are %v", said)
	}
	for _, c := range comms {
		_ = c.Abort()
	}
}

// Ranks that wait for work of their own, each of them, stand still for no reason that
// concerns the communicator.
func TestNoHang(t *testing.T) {
	all := fakes(t)
	cfg := deviceConfig(2)
	cfg.AsNCCL, cfg.Knobs.HangAfter = true, time.Second/2
	cfg.OnHang = func(v Verdict) { t.Errorf("without a reason: %+v", v) }
	comms, err := CommInitAll(t.Context(), 2, cfg)
	if err != nil {
		t.Fatal(err)
	}
	for r, c := range comms {
		of(all, r).behind.Store(true)
		of(all, r).busy.Store(true)
		if err := c.AllReduce(mem(0, 64), mem(1, 64), 8, Int64, Sum); err != nil {
			t.Error(err)
		}
	}
	time.Sleep(4 * time.Second)
	for r, c := range comms {
		of(all, r).busy.Store(false)
		if err := c.Destroy(); err != nil {
			t.Error(err)
		}
	}
}

// TestLongQueue: what a rank has called takes longer than a verdict does, and each operation of it
// ends soon, or its messages come, whether or not it is known which one it is.
func TestLongQueue(t *testing.T) {
	all := fakes(t)
	cfg := deviceConfig(2)
	cfg.AsNCCL, cfg.Knobs.HangAfter, cfg.Knobs.HangDir = true, time.Second, t.TempDir()
	said := make(chan Verdict, 10)
	cfg.OnHang = func(v Verdict) { said <- v }
	comms, err := CommInitAll(t.Context(), 2, cfg)
	if err != nil {
		t.Fatal(err)
	}
	at := func(call uint64, since time.Time) {
		for r := range comms {
			of(all, r).graph.Store(&executor.State{Does: executor.Begun, Ranks: []int{1 - r}, Call: call, Since: since})
		}
	}
	at(1, time.Now())
	for r, c := range comms {
		of(all, r).busy.Store(true)
		for range 20 {
			if err := c.AllReduce(mem(0, 64), mem(1, 64), 8, Int64, Sum); err != nil {
				t.Error(err)
			}
		}
	}
	for call := range uint64(80) { // four seconds with numbers, and four without
		at(max(1, call%40/2)*(1-call/40), time.Now())
		time.Sleep(time.Second / 10)
	}
	select {
	case v := <-said:
		t.Errorf("without a reason: %+v", v)
	default:
	}
	at(20, time.Now())
	if v := <-said; v.Cause != Unclear || !strings.Contains(v.Text, "operation #20, which has not ended") {
		t.Errorf("%+v", v)
	}
	for r := range comms {
		of(all, r).busy.Store(false)
		of(all, r).graph.Store(nil)
	}
	destroyAll(t, comms)
}

// TestHangInGraph: CUDA graphs, which the host does not see run, stand still and go on, and
// stand still again.
func TestHangInGraph(t *testing.T) {
	all := fakes(t)
	const n = 3
	said := make(chan Verdict, 10)
	cfg := deviceConfig(n)
	cfg.AsNCCL, cfg.Knobs.HangAfter, cfg.Knobs.HangDir = true, time.Second, t.TempDir()
	cfg.OnHang = func(v Verdict) { said <- v }
	comms, err := CommInitAll(t.Context(), n, cfg)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range comms { // it is captured
		if err := c.AllReduce(mem(0, 64), mem(1, 64), 8, Int64, Sum); err != nil {
			t.Fatal(err)
		}
	}
	wait := func(r int, since time.Time) {
		of(all, r).graph.Store(&executor.State{Does: executor.Begun, Ranks: []int{2}, Graph: since, Graphs: true})
	}
	standStill := func() (by int) {
		t.Helper()
		at := time.Now()
		wait(0, at)
		wait(1, at)
		v := <-said
		if v.Cause != NotCalled || !slices.Equal(v.Ranks, []int{2}) || !strings.Contains(v.Text, "has not begun the operation that ranks 0, 1 wait for in a CUDA graph") {
			t.Errorf("%+v", v)
		}
		return v.By
	}
	for range 2 {
		by := standStill()
		wait(by, time.Now())
		if v := <-said; v.Cause != Resumed || v.By != by {
			t.Errorf("%+v", v)
		}
	}
	for r := range n {
		of(all, r).graph.Store(nil)
	}
	for start := time.Now(); time.Since(start) < 4*time.Second; time.Sleep(time.Millisecond) { // graphs that wait, each time for something else
		for r := range n {
			wait(r, time.Now())
		}
	}
	for r := range n {
		of(all, r).graph.Store(nil)
	}
	select {
	case v := <-said:
		t.Errorf("without a reason: %+v", v)
	default:
	}
	destroyAll(t, comms)
}

func TestVerdict(t *testing.T) {
	at := func(seq uint32, more head) head {
		more.Call = stall{seq, (&op.Op{Coll: 3, Type: Uint8, Count: int(seq), Root: NoPeer}).Signature(), int64(seq), NoPeer}
		if more.Does == "" {
			more.Does = executor.Idle
		}
		return more
	}
	known := func(seq uint32) (stall, bool) { return at(seq, head{}).Call, seq > 90 }
	begun, behind := executor.Begun, executor.Behind
	ahead := func(seq uint32, since int) *place {
		return &place{Call: at(seq, head{}).Call, Peer: NoPeer, Since: since}
	}
	known95 := at(95, head{}).Call
	tp := []elsewhere{{"tp", "AllReduce of int8 with sum, 3 elements, operation #7", 7, []who{{"a", 10, 0, "", -1}}}}
	for _, c := range []struct {
		name  string
		heads map[int]head
		cause Cause
		ranks []int
		want  string
	}{
		{"one is behind", map[int]head{0: at(95, head{Does: begun}), 1: at(92, head{Ago: 12}), 2: at(95, head{})}, NotCalled, []int{1},
			"rank 1 (host a, pid 11, GPU 1) has not called AllGather of uint8, 93 elements, operation #93: its last call was AllGather of uint8, 92 elements, operation #92, 12 s ago"},
		{"one is elsewhere", map[int]head{0: at(95, head{Does: begun}), 1: at(94, head{Ago: 12, Else: `AllReduce of int8 with sum, 3 elements, operation #7 of communicator "tp", 11 s ago`}), 2: at(95, head{})}, NotCalled, []int{1},
			`rank 1 (host a, pid 11, GPU 1) has not called AllGather of uint8, 95 elements, operation #95: its last call was AllGather of uint8, 94 elements, operation #94, 12 s ago, and since then AllReduce of int8 with sum, 3 elements, operation #7 of communicator "tp", 11 s ago`},
		{"far behind", map[int]head{0: at(95, head{Does: begun}), 1: at(3, head{Ago: 12}), 2: at(95, head{})}, NotCalled, []int{1},
			"rank 1 (host a, pid 11, GPU 1) has not called AllGather of uint8, 95 elements, operation #95: its last call was AllGather of uint8, 3 elements, operation #3, 12 s ago"},
		{"one has called nothing", map[int]head{0: at(1, head{Does: begun}), 1: {}, 2: at(1, head{})}, NotCalled, []int{1},
			"rank 1 (host a, pid 11, GPU 1) has not called AllGather of uint8, 1 elements, operation #1: it has called nothing yet"},
		{"one does not answer", map[int]head{0: at(95, head{Does: begun}), 2: at(94, head{Ago: 3})}, Silent, []int{1},
			"rank 1 (host a, pid 11, GPU 1) does not answer: its process cannot run: rank 0 waits in AllGather of uint8, 95 elements, operation #95"},
		{"one is stopped", map[int]head{0: at(95, head{Does: begun, Near: map[int]Cause{1: Stopped}}), 2: at(95, head{})}, Stopped, []int{1},
			"rank 1 (host a, pid 11, GPU 1)'s process is stopped, by a signal or a debugger: rank 0 waits in AllGather of uint8, 95 elements, operation #95"},
		{"one has ended", map[int]head{0: at(95, head{Does: begun, Near: map[int]Cause{1: Dead}}), 2: at(95, head{})}, Dead, []int{1},
			"rank 1 (host a, pid 11, GPU 1)'s process has ended: rank 0 waits in AllGather of uint8, 95 elements, operation #95"},
		{"a host", map[int]head{0: at(95, head{Does: begun}), 1: at(95, head{Does: begun})}, Cut, []int{2},
			"nothing comes from host b, which has ranks 2: the network between it and host a carries nothing, or the host stands still: rank 0 waits in AllGather of uint8, 95 elements, operation #95"},
		{"a GPU", map[int]head{0: at(95, head{Does: begun}), 1: at(95, head{Does: executor.Stuck}), 2: at(95, head{Does: begun})}, GPU, []int{1},
			"rank 1 (host a, pid 11, GPU 1): its GPU does not answer: a call of the driver that only asks has not returned: rank 0 waits in AllGather of uint8, 95 elements, operation #95"},
		{"a stream", map[int]head{0: at(95, head{Does: begun, For: []int{1}}), 1: at(95, head{Does: behind}), 2: at(95, head{Does: behind})}, Blocked, []int{1},
			"rank 1 (host a, pid 11, GPU 1) has called AllGather of uint8, 95 elements, operation #95, which has not begun: its stream or its GPU is blocked by work that is not ours"},
		{"all have", map[int]head{0: at(95, head{Does: begun, For: []int{1, 2}}), 1: at(95, head{}), 2: at(95, head{Does: begun})}, Unclear, nil,
			"all ranks have called AllGather of uint8, 95 elements, operation #95, which has not ended on rank 0 (host a, pid 10, GPU 0), which waits for rank 1, 2 and rank 2 (host b, pid 12, GPU 2): the calls of all ranks agree, and nothing that the library sees is the reason"},
		{"a Send without its Recv", map[int]head{0: at(95, head{P2P: 2, Peer: 1, Does: begun}), 1: at(95, head{P2P: 1, Ago: 5}), 2: at(95, head{})}, Unmatched, []int{1},
			"rank 0 (host a, pid 10, GPU 0) waits in Sends or Recvs with rank 1 (its last call was of Sends or Recvs, 5 s ago)"},
		{"Sends with many", map[int]head{0: at(95, head{}), 1: at(95, head{P2P: 1, Peer: NoPeer, Does: begun}), 2: at(95, head{})}, Unmatched, nil,
			"rank 1 (host a, pid 11, GPU 1) waits in Sends or Recvs with several ranks"},
		{"a graph", map[int]head{0: at(95, head{Does: begun, Graph: true, For: []int{1}}), 1: at(95, head{Ago: 7}), 2: at(95, head{Does: begun, Graph: true, For: []int{0, 1}})}, NotCalled, []int{1},
			"rank 1 (host a, pid 11, GPU 1) has not begun the operation that ranks 0, 2 wait for in a CUDA graph: it has not launched its graph, or the graph is behind work that is not ours; its last call was AllGather of uint8, 95 elements, operation #95, 7 s ago"},
		{"a graph and a process", map[int]head{0: at(95, head{Does: begun, Graph: true, For: []int{1}, Near: map[int]Cause{1: Stopped}}), 2: at(95, head{})}, Stopped, []int{1},
			"rank 1 (host a, pid 11, GPU 1)'s process is stopped, by a signal or a debugger: rank 0 waits in an operation of a CUDA graph"},
		{"different graphs", map[int]head{0: at(95, head{Does: begun, Graph: true, For: []int{1}}), 1: at(95, head{Does: begun, Graph: true, For: []int{0}}), 2: at(95, head{})}, Unclear, nil,
			"ranks wait for one another in CUDA graphs: rank 0 (host a, pid 10, GPU 0), which waits for rank 1 and rank 1 (host a, pid 11, GPU 1), which waits for rank 0: they have launched different graphs, or graphs in another order"},
		{"the host has run ahead", map[int]head{0: at(95, head{Does: begun, For: []int{1}, In: ahead(91, 4)}), 1: at(92, head{Does: behind, In: ahead(91, 1)}), 2: at(95, head{Does: begun, In: ahead(91, 4)})}, Blocked, []int{1},
			"rank 1 (host a, pid 11, GPU 1) has called AllGather of uint8, 91 elements, operation #91, one call ago, which has not begun: its stream or its GPU is blocked by work that is not ours"},
		{"its program waits for another", map[int]head{0: at(95, head{Does: begun, In: ahead(93, 2)}), 1: at(93, head{Does: begun, In: ahead(93, 0)}), 2: at(92, head{Ago: 4})}, NotCalled, []int{2},
			"rank 2 (host b, pid 12, GPU 2) has not called AllGather of uint8, 93 elements, operation #93: its last call was AllGather of uint8, 92 elements, operation #92, 4 s ago"},
		{"a Recv that was skipped", map[int]head{0: at(95, head{Does: begun, For: []int{1}, In: &place{Call: known95, P2P: 1, Peer: 1, Since: 9}, Sent: []uint32{0, 3, 0}}), 1: at(95, head{Does: begun, For: []int{0}, Rcvd: []uint32{2, 0, 0}}), 2: at(95, head{Does: begun, For: []int{0}})}, Unmatched, []int{1},
			"rank 1 (host a, pid 11, GPU 1) has not called Recv #3 from rank 0, which waits in a Send to or Recv from rank 1, 9 calls ago: its last call was AllGather of uint8, 95 elements, operation #95, 0 s ago"},
		{"a Send that is late", map[int]head{0: at(95, head{Ago: 3}), 1: at(95, head{Does: begun, P2P: 1, Peer: 0, For: []int{0}, Rcvd: []uint32{1, 0, 0}}), 2: at(95, head{})}, Unmatched, []int{0},
			"rank 0 (host a, pid 10, GPU 0) has not called Send #1 to rank 1, which waits in Sends or Recvs: its last call was AllGather of uint8, 95 elements, operation #95, 3 s ago"},
		{"two communicators", map[int]head{0: at(95, head{Does: begun, For: []int{1}}), 1: at(95, head{Does: behind, In: ahead(95, 0), Others: []elsewhere{{"tp", "AllReduce of int8 with sum, 3 elements, operation #7", 7, []who{{"a", 10, 0, "", -1}, {"b", 12, 2, "", -1}}}}}), 2: at(95, head{Does: begun, For: []int{1}})}, Order, []int{1},
			`rank 1 (host a, pid 11, GPU 1) called AllReduce of int8 with sum, 3 elements, operation #7 of communicator "tp" before AllGather of uint8, 95 elements, operation #95 of this communicator, ranks 0, 2 the other way round: each waits for the other`},
		{"another communicator", map[int]head{0: at(95, head{Does: begun, For: []int{1}}), 1: at(95, head{Does: behind, In: ahead(95, 0), Others: []elsewhere{{"tp", "AllReduce of int8 with sum, 3 elements, operation #7", 7, []who{{"c", 99, 0, "", -1}}}}}), 2: at(95, head{Does: begun, For: []int{1}})}, Blocked, []int{1},
			`rank 1 (host a, pid 11, GPU 1) has called AllGather of uint8, 95 elements, operation #95, which has not begun: its stream or its GPU is blocked by AllReduce of int8 with sum, 3 elements, operation #7 of communicator "tp", which waits for process 99 on c`},
		{"a program that waits in another communicator", map[int]head{0: at(95, head{Does: begun, For: []int{1}, Calls: map[string]uint32{"tp": 7}}), 1: at(94, head{Others: tp}), 2: at(95, head{Does: begun, For: []int{1}})}, Elsewhere, []int{1},
			`rank 1 (host a, pid 11, GPU 1) has not called AllGather of uint8, 95 elements, operation #95: it waits in AllReduce of int8 with sum, 3 elements, operation #7 of communicator "tp", which waits for process 10 on a`},
		{"programs that wait in two", map[int]head{0: at(95, head{Does: begun, For: []int{1}, Calls: map[string]uint32{"tp": 6}}), 1: at(94, head{Others: tp}), 2: at(95, head{Does: begun, For: []int{1}})}, Order, []int{1},
			`rank 1 (host a, pid 11, GPU 1) called AllReduce of int8 with sum, 3 elements, operation #7 of communicator "tp" before AllGather of uint8, 95 elements, operation #95 of this communicator, ranks 0, 2 the other way round: each waits for the other`},
		{"one waits in another communicator, and one is late", map[int]head{0: at(95, head{Does: begun}), 1: at(94, head{Others: tp}), 2: at(94, head{Ago: 3})}, NotCalled, []int{2},
			"rank 2 (host b, pid 12, GPU 2) has not called AllGather of uint8, 95 elements, operation #95: its last call was AllGather of uint8, 94 elements, operation #94, 3 s ago"},
		{"a Send that has ended without a Recv", map[int]head{0: at(95, head{Does: begun, For: []int{1}, Rcvd: []uint32{0, 1}}), 1: at(95, head{Sent: []uint32{2, 0}}), 2: at(95, head{})}, Unmatched, []int{0},
			"rank 0 (host a, pid 10, GPU 0) has not called Recv #2 from rank 1, which has sent it; the operation that has not ended is AllGather of uint8, 95 elements, operation #95"},
		{"all wait for their own", map[int]head{0: at(95, head{Does: behind}), 1: at(94, head{}), 2: at(95, head{Does: behind})}, "", nil, ""},
	} {
		g := hang{size: 3, heads: c.heads, call: known}
		for r, h := range [...]string{"a", "a", "b"} {
			g.who = append(g.who, who{h, 10 + r, r, "", -1})
		}
		cause, ranks, text, ok := g.judge()
		if cause != c.cause || !slices.Equal(ranks, c.ranks) || text != c.want || ok != (c.want != "") {
			t.Errorf("%s: %s %v\n%s\nwant %s %v\n%s", c.name, cause, ranks, text, c.cause, c.ranks, c.want)
		}
	}
}

// TestWindow: the first collective is found that two ranks called differently, if both know it.
func TestWindow(t *testing.T) {
	w := func(last uint32, signs ...uint32) (w window) {
		w.Last = last
		for _, s := range slices.Backward(signs) {
			w.Signs = binary.LittleEndian.AppendUint32(w.Signs, s)
		}
		return w
	}
	for _, c := range []struct {
		a, b window
		seq  uint32
		ok   bool
	}{
		{w(3, 1, 2, 3), w(3, 1, 2, 3), 0, false},
		{w(3, 1, 2, 3), w(3, 1, 7, 8), 2, true},
		{w(9, 4, 5, 6, 7), w(7, 3, 9, 5), 6, true}, // 6 to 9, and 5 to 7
		{w(9, 4, 5), w(7, 3, 9, 5), 0, false},      // none is in both
		{w(1, 4), w(40, 1), 0, false},
		{window{}, w(2, 1, 2), 0, false},
		{window{Last: 5, Signs: []byte{1, 2}}, w(5, 1), 0, false}, // damaged
		{w(2, 1, 2, 3, 4), w(2, 5, 2), 1, true},                   // more than there can be
	} {
		if seq, ok := c.a.differs(c.b); seq != c.seq || ok != c.ok {
			t.Errorf("%+v and %+v: %d, %v; want %d, %v", c.a, c.b, seq, ok, c.seq, c.ok)
		}
		if seq, ok := c.b.differs(c.a); seq != c.seq || ok != c.ok {
			t.Errorf("%+v and %+v: %d, %v; want %d, %v", c.b, c.a, seq, ok, c.seq, c.ok)
		}
	}
}

// TestDiffering: those are named that called something else than the most; a rank that
// destroys the communicator while another goes on is always one of them.
func TestDiffering(t *testing.T) {
	is := func(sign uint32, count int64) head { return head{Was: &stall{7, sign, count, NoPeer}} }
	sum, gather := (&op.Op{Type: Float32, Count: 100, Root: NoPeer}).Signature(), (&op.Op{Coll: 3, Type: Uint8, Count: 8, Root: NoPeer}).Signature()
	for _, c := range []struct {
		name  string
		heads map[int]head
		ranks []int
		want  string
	}{
		{"one of three", map[int]head{0: is(sum, 100), 1: is(gather, 8), 2: is(sum, 100)}, []int{1},
			"rank 1 (host a, pid 11, GPU 1) called AllGather of uint8, 8 elements, where rank 0, 2 called AllReduce of float with sum, 100 elements"},
		{"one of two", map[int]head{0: is(sum, 100), 1: is(gather, 8)}, []int{0, 1},
			"rank 0 (host a, pid 10, GPU 0) called AllReduce of float with sum, 100 elements; rank 1 (host a, pid 11, GPU 1) called AllGather of uint8, 8 elements"},
		{"one of two leaves", map[int]head{0: is(op.Destroying, -1), 1: is(sum, 100)}, []int{0},
			"rank 0 (host a, pid 10, GPU 0) called Destroy, where rank 1 called AllReduce of float with sum, 100 elements"},
		{"two of three leave", map[int]head{0: is(op.Destroying, -1), 1: is(op.Destroying, -1), 2: is(sum, 100)}, []int{0, 1},
			"rank 0 (host a, pid 10, GPU 0) called Destroy; rank 1 (host a, pid 11, GPU 1) called Destroy, where rank 2 called AllReduce of float with sum, 100 elements"},
	} {
		g := hang{size: 3, heads: c.heads}
		for r := range 3 {
			g.who = append(g.who, who{"a", 10 + r, r, "", -1})
		}
		ranks, text := g.differing(7)
		if want := "ranks called different operations under number #7: " + c.want; !slices.Equal(ranks, c.ranks) || text != want {
			t.Errorf("%s: %v\n%s\nwant %v\n%s", c.name, ranks, text, c.ranks, want)
		}
	}
}
