package coll

import (
	"encoding/json"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/assay-hpc/assay/coll/executor"
	"github.com/assay-hpc/assay/coll/flight"
	"github.com/assay-hpc/assay/coll/hang"
	"github.com/assay-hpc/assay/coll/transport"
)

// TestHang: one of the ranks that wait says which rank has not called what,
// once, and nobody says so of ranks that do not wait.
func TestHang(t *testing.T) {
	all := fakes(t)
	const n = 4
	var mu sync.Mutex
	var said []hang.Verdict
	cfg := deviceConfig(n)
	cfg.AsNCCL, cfg.Knobs.HangAfter, cfg.Knobs.HangDir = true, time.Second, t.TempDir()
	cfg.Name = "dp"
	cfg.OnHang = func(v hang.Verdict) {
		mu.Lock()
		defer mu.Unlock()
		said = append(said, v)
	}
	comms, err := CommInitAll(t.Context(), n, cfg)
	if err != nil {
		t.Fatal(err)
	}
	verdicts := func() []hang.Verdict {
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
	if len(v) != 1 || v[0].Cause != hang.NotCalled || !slices.Equal(v[0].Ranks, []int{3}) || v[0].By != 1 && v[0].By != 2 || v[0].Size != n || v[0].Communicator != "dp" || !strings.HasPrefix(v[0].Text, "it stands still: rank 3 (host ") ||
		!strings.Contains(v[0].Text, "GPU 13) has not called AllReduce of int64 with sum, 8 elements, operation #2: its last call was AllReduce of int64 with sum, 8 elements, operation #1, ") {
		t.Errorf("%+v", v)
	}
	var file hang.Verdict
	if b, err := os.ReadFile(v[0].File); err != nil || json.Unmarshal(b, &file) != nil || file.Schema != hang.VerdictSchema || file.Cause != hang.NotCalled || len(file.States) != n || file.States[2].Called != 3 || file.States[1].PID != os.Getpid() {
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
	if v := verdicts(); len(v) != 2 || v[1].Cause != hang.Resumed || v[1].By != v[0].By || !strings.HasPrefix(v[1].Text, "it continues, ") {
		t.Errorf("%+v", v)
	}
	destroyAll(t, comms)
}

// TestRefused: nothing waits when a rank is lost, so that there is no verdict. The first call that
// is refused for it gives the verdict before it returns.
func TestRefused(t *testing.T) {
	fakes(t)
	cfg := deviceConfig(2)
	var said []hang.Verdict
	cfg.AsNCCL, cfg.Knobs.HangDir, cfg.OnHang = true, t.TempDir(), func(v hang.Verdict) { said = append(said, v) }
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
	cfg.OnHang = func(v hang.Verdict) { t.Errorf("without a reason: %+v", v) }
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
	said := make(chan hang.Verdict, 10)
	cfg.OnHang = func(v hang.Verdict) { said <- v }
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
	if v := <-said; v.Cause != hang.Unclear || !strings.Contains(v.Text, "operation #20, which has not ended") {
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
	said := make(chan hang.Verdict, 10)
	cfg := deviceConfig(n)
	cfg.AsNCCL, cfg.Knobs.HangAfter, cfg.Knobs.HangDir = true, time.Second, t.TempDir()
	cfg.OnHang = func(v hang.Verdict) { said <- v }
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
		if v.Cause != hang.NotCalled || !slices.Equal(v.Ranks, []int{2}) || !strings.Contains(v.Text, "has not begun the operation that ranks 0, 1 wait for in a CUDA graph") {
			t.Errorf("%+v", v)
		}
		return v.By
	}
	for range 2 {
		by := standStill()
		wait(by, time.Now())
		if v := <-said; v.Cause != hang.Resumed || v.By != by {
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
