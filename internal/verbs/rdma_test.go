//go:build cgo && linux

package verbs

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"
)

// These tests need RDMA devices: make test ONLY=rdma runs them on soft RoCE in a
// virtual machine.

// rdma returns the devices of the machine, the same one twice if it is alone.
func rdma(t testing.TB) [2]string {
	t.Helper()
	names, err := Names()
	switch {
	case os.Getenv("ASSAY_RDMA_VM") != "" && (err != nil || len(names) < 2):
		t.Fatalf("two devices should be here: %q, %v", names, err)
	case err != nil:
		t.Skip(err)
	case len(names) == 0:
		t.Skip("no RDMA device here")
	}
	return [2]string{names[0], names[len(names)-1]}
}

// A side is one end of a connection, with n bytes of memory.
type side struct {
	ctx  *Context
	port Port
	gid  GIDEntry
	pd   *PD
	cq   *CQ
	qp   *QP
	mem  []byte
	mr   *MR
	ah   *AH // of UD
	peer *side
}

const depth = 64

func newSide(t testing.TB, device string, tr Transport, bytes int, events bool) *side {
	t.Helper()
	s := &side{}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	var err error
	s.ctx, err = Open(device)
	must(err)
	t.Cleanup(func() { check(t, s.ctx.Close()) })
	s.port, err = s.ctx.Port(1)
	must(err)
	table, err := s.ctx.GIDs(1)
	must(err)
	index, ok := DefaultGID(table, false)
	if !ok {
		t.Fatalf("%s has no address", device)
	}
	for _, e := range table {
		if e.Index == index {
			s.gid = e
		}
	}
	s.pd, err = s.ctx.PD()
	must(err)
	t.Cleanup(func() { check(t, s.pd.Close()) })
	s.mem, err = Alloc(bytes, false)
	must(err)
	t.Cleanup(func() { check(t, Free(s.mem)) })
	s.mr, err = s.pd.Register(Address(s.mem), bytes, LocalWrite|RemoteWrite|RemoteRead|RemoteAtomic)
	must(err)
	t.Cleanup(func() { check(t, s.mr.Close()) })
	s.cq, err = s.ctx.CQ(4*depth, events, 0)
	must(err)
	t.Cleanup(func() { check(t, s.cq.Close()) })
	s.qp, err = s.pd.QP(QPOptions{Transport: tr, SendCQ: s.cq, RecvCQ: s.cq, Sends: depth, Recvs: depth, Inline: 32})
	must(err)
	t.Cleanup(func() { check(t, s.qp.Close()) })
	must(s.qp.Init(1, 0, LocalWrite|RemoteWrite|RemoteRead|RemoteAtomic, qkey))
	return s
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Error(err)
	}
}

// connection is what s needs to know of its peer.
func (s *side) connection() Connection {
	return Connection{
		Path: Path{Port: 1, GIDIndex: s.gid.Index, GID: s.peer.gid.GID, LID: s.peer.port.LID}, MTU: min(s.port.MTU, s.peer.port.MTU),
		QPN: s.peer.qp.Number, PSN: 7, OwnPSN: 7, ReadsIn: 4, ReadsOut: 4, Timeout: 14, Retries: 7, RNRRetry: 7, MinRNR: 12,
	}
}

// newPair connects the two devices.
func newPair(t testing.TB, tr Transport, bytes int, events bool) (a, b *side) {
	t.Helper()
	devices := rdma(t)
	a, b = newSide(t, devices[0], tr, bytes, events), newSide(t, devices[1], tr, bytes, events)
	a.peer, b.peer = b, a
	for _, s := range []*side{a, b} {
		if err := s.qp.ReadyToReceive(s.connection()); err != nil {
			t.Fatal(err)
		}
		if err := s.qp.ReadyToSend(s.connection()); err != nil {
			t.Fatal(err)
		}
		if tr == UD {
			ah, err := s.pd.AH(s.connection().Path)
			if err != nil {
				t.Fatal(err)
			}
			s.ah = ah
			t.Cleanup(func() { check(t, ah.Close()) })
		}
	}
	return a, b
}

// qkey is any that both sides have.
const qkey = 0x11111111

// send is a signalled request for the first n bytes of s.
func (s *side) send(t testing.TB, op opcode, n int) *Sends {
	t.Helper()
	w, err := NewSends(1, 1)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.Close() })
	w.WR[0].ID, w.WR[0].opcode, w.WR[0].Flags = 77, op, Signaled
	w.SGE[0] = SGE{Address: s.mr.Address, Length: uint32(n), LKey: s.mr.LKey}
	switch {
	case s.ah != nil:
		w.WR[0].SetDatagram(s.ah, s.peer.qp.Number, qkey)
	case op == opCompSwap || op == opFetchAdd:
	default:
		w.WR[0].SetRemote(s.peer.mr.Address, s.peer.mr.RKey)
	}
	return w
}

// receive posts n bytes to receive into, from offset.
func (s *side) receive(t testing.TB, offset, n int) {
	t.Helper()
	r, err := NewRecvs(1, 1)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close() })
	r.WR[0].ID = 88
	r.SGE[0] = SGE{Address: s.mr.Address + uint64(offset), Length: uint32(n), LKey: s.mr.LKey}
	if err := s.qp.PostRecv(&r.WR[0]); err != nil {
		t.Fatal(err)
	}
}

// completion waits for one.
func (s *side) completion(t testing.TB, within time.Duration) WC {
	t.Helper()
	var wc [1]WC
	for end := time.Now().Add(within); time.Now().Before(end); time.Sleep(100 * time.Microsecond) {
		n, err := s.cq.Poll(wc[:])
		if err != nil {
			t.Fatal(err)
		}
		if n == 1 {
			return wc[0]
		}
	}
	state, _ := s.qp.State()
	t.Fatalf("%s: nothing completed within %v; the QP is in %v", s.ctx.Name(), within, state)
	return WC{}
}

func (s *side) succeeds(t testing.TB) WC {
	t.Helper()
	wc := s.completion(t, 10*time.Second)
	if err := s.cq.Failed(&wc, 1); err != nil {
		t.Fatal(err)
	}
	return wc
}

func pattern(b []byte, seed int) {
	for i := range b {
		b[i] = byte(i*7 + seed)
	}
}

func TestDevices(t *testing.T) {
	for _, name := range rdma(t) {
		c, err := Open(name)
		if err != nil {
			t.Fatal(err)
		}
		l, err := c.Limits()
		if err != nil || l.QPs <= 0 || l.Requests < depth || l.CQEs < depth || l.ReadsIn <= 0 || l.Ports < 1 {
			t.Errorf("%s: %+v %v", name, l, err)
		}
		p, err := c.Port(1)
		if err != nil || !p.Active() || p.MTU.Bytes() == 0 || !p.Ethernet || p.LID != 0 {
			t.Errorf("%s: %+v %v", name, p, err)
		}
		var e *Error
		if _, err := c.Port(99); !errors.As(err, &e) || e.Port != 99 || e.Device != name {
			t.Errorf("port 99: %v", err)
		}
		gids, err := c.GIDs(1)
		if err != nil || len(gids) == 0 || gids[0].RoCE == 0 {
			t.Errorf("%v %v", gids, err)
		}
		check(t, c.Close())
	}
	if _, err := Open("mlx5_99"); err == nil || !bytes.Contains([]byte(err.Error()), []byte("mlx5_99")) {
		t.Errorf("%v", err)
	}
}

func TestWriteAndRead(t *testing.T) {
	for _, tr := range []Transport{RC, UC} {
		a, b := newPair(t, tr, 1<<20, false)
		for _, n := range []int{0, 1, 2, 1023, 4096, 4097, 1 << 20} {
			pattern(a.mem, n)
			clear(b.mem)
			if err := a.qp.PostSend(&a.send(t, opWrite, n).WR[0]); err != nil {
				t.Fatal(err)
			}
			a.succeeds(t)
			if tr == RC && !bytes.Equal(a.mem[:n], b.mem[:n]) {
				t.Errorf("%v: a write of %d bytes did not arrive", tr, n)
			}
			if tr == UC { // a completion says nothing of the other side
				for end := time.Now().Add(time.Minute); !bytes.Equal(a.mem[:n], b.mem[:n]) && time.Now().Before(end); {
					time.Sleep(time.Millisecond)
				}
				if !bytes.Equal(a.mem[:n], b.mem[:n]) {
					t.Errorf("%v: a write of %d bytes did not arrive", tr, n)
				}
			}
			if tr == UC || n == 0 {
				continue
			}
			clear(a.mem)
			if err := a.qp.PostSend(&a.send(t, opRead, n).WR[0]); err != nil {
				t.Fatal(err)
			}
			a.succeeds(t)
			if !bytes.Equal(a.mem[:n], b.mem[:n]) {
				t.Errorf("a read of %d bytes did not arrive", n)
			}
		}
	}
}

func TestSend(t *testing.T) {
	for _, tr := range []Transport{RC, UC, UD} {
		a, b := newPair(t, tr, 8192, false)
		at := 0
		if tr == UD {
			at = 40 // the GRH comes first
		}
		for _, n := range []int{0, 1, 31, 1000} {
			pattern(a.mem, n)
			clear(b.mem)
			b.receive(t, 0, n+at)
			w := a.send(t, opSendImm, n)
			w.WR[0].Imm = 0x01020304
			if n <= 32 && n > 0 {
				w.WR[0].Flags |= Inline
			}
			if err := a.qp.PostSend(&w.WR[0]); err != nil {
				t.Fatal(err)
			}
			if wc := a.succeeds(t); wc.ID != 77 || wc.Opcode >= wcRecv {
				t.Errorf("%v: sent %+v", tr, wc)
			}
			wc := b.succeeds(t)
			if wc.ID != 88 || wc.Opcode < wcRecv || int(wc.Bytes) != n+at || wc.Flags&wcWithImm == 0 || wc.Imm != 0x01020304 || wc.QPN != b.qp.Number {
				t.Errorf("%v: received %+v", tr, wc)
			}
			if !bytes.Equal(a.mem[:n], b.mem[at:at+n]) {
				t.Errorf("%v: a message of %d bytes is not what was sent", tr, n)
			}
		}
	}
}

func TestAtomics(t *testing.T) {
	a, b := newPair(t, RC, 64, false)
	binary.NativeEndian.PutUint64(b.mem, 40)
	w := a.send(t, opFetchAdd, 8)
	w.WR[0].FetchAdd(b.mr.Address, b.mr.RKey, 2)
	check(t, a.qp.PostSend(&w.WR[0]))
	a.succeeds(t)
	w.WR[0].CompareSwap(b.mr.Address, b.mr.RKey, 42, 99)
	if was := binary.NativeEndian.Uint64(a.mem); was != 40 {
		t.Errorf("fetched %d, want 40", was)
	}
	check(t, a.qp.PostSend(&w.WR[0]))
	a.succeeds(t)
	if was, is := binary.NativeEndian.Uint64(a.mem), binary.NativeEndian.Uint64(b.mem); was != 42 || is != 99 {
		t.Errorf("compared with %d, want 42; now %d, want 99", was, is)
	}
}

// TestLists posts many requests at once, of which the last one is signalled.
func TestLists(t *testing.T) {
	a, b := newPair(t, RC, 4096, false)
	w, err := NewSends(16, 1)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	for i := range w.WR {
		a.mem[i] = byte(100 + i)
		w.WR[i].ID = uint64(i)
		w.SGE[i] = SGE{Address: a.mr.Address + uint64(i), Length: 1, LKey: a.mr.LKey}
		w.WR[i].Write(b.mr.Address+uint64(15-i), b.mr.RKey)
	}
	w.WR[15].Flags = Signaled
	w.Chain(0, 16)
	check(t, a.qp.PostSend(&w.WR[0]))
	if wc := a.succeeds(t); wc.ID != 15 {
		t.Errorf("request %d completed first", wc.ID)
	}
	for i := range 16 {
		if b.mem[15-i] != byte(100+i) {
			t.Errorf("request %d wrote %d", i, b.mem[15-i])
		}
	}
	if n, err := a.cq.Poll(make([]WC, 4)); n != 0 || err != nil {
		t.Errorf("%d more completions, %v", n, err)
	}
}

func TestCompletionEvents(t *testing.T) {
	a, b := newPair(t, RC, 4096, true)
	check(t, b.cq.Notify())
	if ok, err := b.cq.Wait(50 * time.Millisecond); ok || err != nil {
		t.Errorf("an event of nothing: %v %v", ok, err)
	}
	b.receive(t, 0, 64)
	check(t, a.qp.PostSend(&a.send(t, opSend, 64).WR[0]))
	if ok, err := b.cq.Wait(10 * time.Second); !ok || err != nil {
		t.Errorf("no event: %v %v", ok, err)
	}
	b.succeeds(t)
}

// TestFailures are the errors that operators see, by what causes them.
func TestFailures(t *testing.T) {
	fails := func(s *side, want status) {
		t.Helper()
		wc := s.completion(t, 20*time.Second)
		var e *CompletionError
		if err := s.cq.Failed(&wc, 1); !errors.As(err, &e) || e.Status != want || e.QPN != s.qp.Number {
			t.Errorf("%v, want %v", err, want)
		}
		for end := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
			if state, err := s.qp.State(); state == stateErr || err != nil || time.Now().After(end) {
				if state != stateErr || err != nil {
					t.Errorf("the QP is in %v, %v", state, err)
				}
				break
			}
		}
	}
	t.Run("key", func(t *testing.T) {
		a, _ := newPair(t, RC, 4096, false)
		w := a.send(t, opWrite, 64)
		w.WR[0].SetRemote(a.peer.mr.Address, a.peer.mr.RKey+1)
		check(t, a.qp.PostSend(&w.WR[0]))
		fails(a, remoteAccess)
	})
	t.Run("beyond the region", func(t *testing.T) {
		a, b := newPair(t, RC, 4096, false)
		w := a.send(t, opWrite, 64)
		w.WR[0].SetRemote(b.mr.Address+4090, b.mr.RKey)
		check(t, a.qp.PostSend(&w.WR[0]))
		fails(a, remoteAccess)
	})
	t.Run("receive too short", func(t *testing.T) {
		a, b := newPair(t, RC, 4096, false)
		b.receive(t, 0, 32)
		check(t, a.qp.PostSend(&a.send(t, opSend, 64).WR[0]))
		wc := a.completion(t, 10*time.Second)
		if wc.Status != remoteInvalid && wc.Status != remoteOperation {
			t.Errorf("%v", wc.Status)
		}
	})
	t.Run("flushed", func(t *testing.T) {
		a, _ := newPair(t, RC, 4096, false)
		a.receive(t, 0, 64)
		check(t, a.qp.Fail())
		fails(a, flushed)
	})
	t.Run("GID index", func(t *testing.T) {
		d := rdma(t)
		a, b := newSide(t, d[0], RC, 4096, false), newSide(t, d[1], RC, 4096, false)
		a.peer, b.peer = b, a
		c := a.connection()
		c.Path.GIDIndex = 200
		var e *Error
		if err := a.qp.ReadyToReceive(c); !errors.As(err, &e) || e.QPN != a.qp.Number || e.State != "INIT" || e.Cause == "" {
			t.Errorf("%v", err)
		} else {
			t.Log(err)
		}
		if err := a.qp.ReadyToSend(c); !errors.Is(err, syscall.EINVAL) {
			t.Errorf("to RTS from INIT: %v", err)
		}
	})
	t.Run("memory", func(t *testing.T) {
		s := newSide(t, rdma(t)[0], RC, 4096, false)
		if _, err := s.pd.Register(4096, 1<<20, LocalWrite); err == nil {
			t.Error("memory that is not there was registered")
		} else {
			t.Log(err)
		}
		if _, err := s.pd.RegisterDMABuf(0, 0, 4096, 0, LocalWrite); err == nil {
			t.Error("standard input was registered as a DMA buffer")
		} else {
			t.Log(err)
		}
	})
	t.Run("queues", func(t *testing.T) {
		s := newSide(t, rdma(t)[0], RC, 4096, false)
		if _, err := s.pd.QP(QPOptions{Transport: RC, SendCQ: s.cq, RecvCQ: s.cq, Sends: 1 << 28, Recvs: 1}); err == nil {
			t.Error("a QP of 2^28 requests was made")
		} else {
			t.Log(err)
		}
		if _, err := s.ctx.CQ(1<<30, false, 0); err == nil {
			t.Error("a CQ of 2^30 entries was made")
		}
	})
}

// TestLinkDown takes the interface down: the port says so, and comes back.
func TestLinkDown(t *testing.T) {
	if os.Getenv("ASSAY_RDMA_VM") == "" {
		t.Skip("links are taken down in the virtual machine only")
	}
	c, err := Open(rdma(t)[0])
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	table, err := c.GIDs(1)
	if err != nil || len(table) == 0 {
		t.Fatal(table, err)
	}
	events := make(chan Event, 64)
	if err := c.Events(func(e Event) { events <- e }); err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct {
		set  string
		want eventType
	}{{"down", eventPortDown}, {"up", eventPortActive}} {
		if out, err := exec.Command("ip", "link", "set", table[0].Netdev, step.set).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		late := time.After(time.Minute)
		for found := false; !found; {
			select {
			case e := <-events:
				found = e.Type == step.want && e.Port == 1
			case <-late:
				t.Fatalf("no %v after the link went %s", step.want, step.set)
			}
		}
	}
}

func TestNoAllocation(t *testing.T) {
	a, _ := newPair(t, RC, 4096, false)
	w := a.send(t, opWrite, 8)
	var wc [16]WC
	allocations := testing.AllocsPerRun(200, func() {
		if err := a.qp.PostSend(&w.WR[0]); err != nil {
			t.Fatal(err)
		}
		for {
			n, err := a.cq.Poll(wc[:])
			if err != nil || n > 0 {
				break
			}
		}
	})
	if allocations != 0 {
		t.Errorf("%v allocations to post and poll", allocations)
	}
}

// BenchmarkPost is how fast writes of 8 bytes are posted and reaped, by how many
// are posted at once.
func BenchmarkPost(b *testing.B) {
	for _, list := range []int{1, 8, 32} {
		b.Run(fmt.Sprintf("list=%d", list), func(b *testing.B) {
			s, peer := newPair(b, RC, 4096, false)
			w, err := NewSends(list, 1)
			if err != nil {
				b.Fatal(err)
			}
			defer w.Close()
			for i := range w.WR {
				w.SGE[i] = SGE{Address: s.mr.Address, Length: 8, LKey: s.mr.LKey}
				w.WR[i].Write(peer.mr.Address, peer.mr.RKey)
			}
			w.WR[list-1].Flags = Signaled
			w.Chain(0, list)
			var wc [depth]WC
			var posted, done int
			for b.Loop() {
				if err := s.qp.PostSend(&w.WR[0]); err != nil {
					b.Fatal(err)
				}
				posted += list
				for posted-done+list > depth {
					n, err := s.cq.Poll(wc[:])
					if err != nil {
						b.Fatal(err)
					}
					done += n * list
				}
			}
			b.ReportMetric(float64(posted)/b.Elapsed().Seconds(), "posts/s")
			for posted > done {
				n, _ := s.cq.Poll(wc[:])
				done += n * list
			}
		})
	}
}

// TestNoCM: there is an answer wherever this is run.
func TestNoCM(t *testing.T) {
	if err := loadCM(); err != nil && !errors.Is(err, ErrNoLibrary) {
		t.Error(err)
	}
}
