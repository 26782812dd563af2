package hang

import (
	"encoding/binary"
	"slices"
	"testing"

	"github.com/assay-hpc/assay/coll/elem"
	"github.com/assay-hpc/assay/coll/executor"
	"github.com/assay-hpc/assay/coll/op"
)

func TestVerdict(t *testing.T) {
	at := func(seq uint32, more Snapshot) Snapshot {
		more.Call = collective{seq, (&op.Op{Coll: 3, Type: elem.Uint8, Count: int(seq), Root: op.NoPeer}).Signature(), int64(seq), op.NoPeer}
		if more.Does == "" {
			more.Does = executor.Idle
		}
		return more
	}
	known := func(seq uint32) (collective, bool) { return at(seq, Snapshot{}).Call, seq > 90 }
	begun, behind := executor.Begun, executor.Behind
	ahead := func(seq uint32, since int) *position {
		return &position{Call: at(seq, Snapshot{}).Call, Peer: op.NoPeer, Since: since}
	}
	known95 := at(95, Snapshot{}).Call
	tp := []busyComm{{"tp", "AllReduce of int8 with sum, 3 elements, operation #7", 7, []Process{{"a", 10, 0, "", -1}}}}
	for _, c := range []struct {
		name      string
		snapshots map[int]Snapshot
		cause     Cause
		ranks     []int
		want      string
	}{
		{"one is behind", map[int]Snapshot{0: at(95, Snapshot{Does: begun}), 1: at(92, Snapshot{Ago: 12}), 2: at(95, Snapshot{})}, NotCalled, []int{1},
			"rank 1 (host a, pid 11, GPU 1) has not called AllGather of uint8, 93 elements, operation #93: its last call was AllGather of uint8, 92 elements, operation #92, 12 s ago"},
		{"one is elsewhere", map[int]Snapshot{0: at(95, Snapshot{Does: begun}), 1: at(94, Snapshot{Ago: 12, OtherCall: `AllReduce of int8 with sum, 3 elements, operation #7 of communicator "tp", 11 s ago`}), 2: at(95, Snapshot{})}, NotCalled, []int{1},
			`rank 1 (host a, pid 11, GPU 1) has not called AllGather of uint8, 95 elements, operation #95: its last call was AllGather of uint8, 94 elements, operation #94, 12 s ago, and since then AllReduce of int8 with sum, 3 elements, operation #7 of communicator "tp", 11 s ago`},
		{"far behind", map[int]Snapshot{0: at(95, Snapshot{Does: begun}), 1: at(3, Snapshot{Ago: 12}), 2: at(95, Snapshot{})}, NotCalled, []int{1},
			"rank 1 (host a, pid 11, GPU 1) has not called AllGather of uint8, 95 elements, operation #95: its last call was AllGather of uint8, 3 elements, operation #3, 12 s ago"},
		{"one has called nothing", map[int]Snapshot{0: at(1, Snapshot{Does: begun}), 1: {}, 2: at(1, Snapshot{})}, NotCalled, []int{1},
			"rank 1 (host a, pid 11, GPU 1) has not called AllGather of uint8, 1 elements, operation #1: it has called nothing yet"},
		{"one does not answer", map[int]Snapshot{0: at(95, Snapshot{Does: begun}), 2: at(94, Snapshot{Ago: 3})}, Silent, []int{1},
			"rank 1 (host a, pid 11, GPU 1) does not answer: its process cannot run: rank 0 waits in AllGather of uint8, 95 elements, operation #95"},
		{"one is stopped", map[int]Snapshot{0: at(95, Snapshot{Does: begun, Halted: map[int]Cause{1: Stopped}}), 2: at(95, Snapshot{})}, Stopped, []int{1},
			"rank 1 (host a, pid 11, GPU 1)'s process is stopped, by a signal or a debugger: rank 0 waits in AllGather of uint8, 95 elements, operation #95"},
		{"one has ended", map[int]Snapshot{0: at(95, Snapshot{Does: begun, Halted: map[int]Cause{1: Dead}}), 2: at(95, Snapshot{})}, Dead, []int{1},
			"rank 1 (host a, pid 11, GPU 1)'s process has ended: rank 0 waits in AllGather of uint8, 95 elements, operation #95"},
		{"a host", map[int]Snapshot{0: at(95, Snapshot{Does: begun}), 1: at(95, Snapshot{Does: begun})}, Cut, []int{2},
			"nothing comes from host b, which has ranks 2: the network between it and host a carries nothing, or the host stands still: rank 0 waits in AllGather of uint8, 95 elements, operation #95"},
		{"a GPU", map[int]Snapshot{0: at(95, Snapshot{Does: begun}), 1: at(95, Snapshot{Does: executor.Stuck}), 2: at(95, Snapshot{Does: begun})}, GPU, []int{1},
			"rank 1 (host a, pid 11, GPU 1): its GPU does not answer: a call of the driver that only asks has not returned: rank 0 waits in AllGather of uint8, 95 elements, operation #95"},
		{"a stream", map[int]Snapshot{0: at(95, Snapshot{Does: begun, WaitsFor: []int{1}}), 1: at(95, Snapshot{Does: behind}), 2: at(95, Snapshot{Does: behind})}, Blocked, []int{1},
			"rank 1 (host a, pid 11, GPU 1) has called AllGather of uint8, 95 elements, operation #95, which has not begun: its stream or its GPU is blocked by work that is not ours"},
		{"all have", map[int]Snapshot{0: at(95, Snapshot{Does: begun, WaitsFor: []int{1, 2}}), 1: at(95, Snapshot{}), 2: at(95, Snapshot{Does: begun})}, Unclear, nil,
			"all ranks have called AllGather of uint8, 95 elements, operation #95, which has not ended on rank 0 (host a, pid 10, GPU 0), which waits for rank 1, 2 and rank 2 (host b, pid 12, GPU 2): the calls of all ranks agree, and nothing that the library sees is the reason"},
		{"a Send without its Recv", map[int]Snapshot{0: at(95, Snapshot{P2P: 2, Peer: 1, Does: begun}), 1: at(95, Snapshot{P2P: 1, Ago: 5}), 2: at(95, Snapshot{})}, Unmatched, []int{1},
			"rank 0 (host a, pid 10, GPU 0) waits in Sends or Recvs with rank 1 (its last call was of Sends or Recvs, 5 s ago)"},
		{"Sends with many", map[int]Snapshot{0: at(95, Snapshot{}), 1: at(95, Snapshot{P2P: 1, Peer: op.NoPeer, Does: begun}), 2: at(95, Snapshot{})}, Unmatched, nil,
			"rank 1 (host a, pid 11, GPU 1) waits in Sends or Recvs with several ranks"},
		{"a graph", map[int]Snapshot{0: at(95, Snapshot{Does: begun, Graph: true, WaitsFor: []int{1}}), 1: at(95, Snapshot{Ago: 7}), 2: at(95, Snapshot{Does: begun, Graph: true, WaitsFor: []int{0, 1}})}, NotCalled, []int{1},
			"rank 1 (host a, pid 11, GPU 1) has not begun the operation that ranks 0, 2 wait for in a CUDA graph: it has not launched its graph, or the graph is behind work that is not ours; its last call was AllGather of uint8, 95 elements, operation #95, 7 s ago"},
		{"a graph and a process", map[int]Snapshot{0: at(95, Snapshot{Does: begun, Graph: true, WaitsFor: []int{1}, Halted: map[int]Cause{1: Stopped}}), 2: at(95, Snapshot{})}, Stopped, []int{1},
			"rank 1 (host a, pid 11, GPU 1)'s process is stopped, by a signal or a debugger: rank 0 waits in an operation of a CUDA graph"},
		{"different graphs", map[int]Snapshot{0: at(95, Snapshot{Does: begun, Graph: true, WaitsFor: []int{1}}), 1: at(95, Snapshot{Does: begun, Graph: true, WaitsFor: []int{0}}), 2: at(95, Snapshot{})}, Unclear, nil,
			"ranks wait for one another in CUDA graphs: rank 0 (host a, pid 10, GPU 0), which waits for rank 1 and rank 1 (host a, pid 11, GPU 1), which waits for rank 0: they have launched different graphs, or graphs in another order"},
		{"the host has run ahead", map[int]Snapshot{0: at(95, Snapshot{Does: begun, WaitsFor: []int{1}, Oldest: ahead(91, 4)}), 1: at(92, Snapshot{Does: behind, Oldest: ahead(91, 1)}), 2: at(95, Snapshot{Does: begun, Oldest: ahead(91, 4)})}, Blocked, []int{1},
			"rank 1 (host a, pid 11, GPU 1) has called AllGather of uint8, 91 elements, operation #91, one call ago, which has not begun: its stream or its GPU is blocked by work that is not ours"},
		{"its program waits for another", map[int]Snapshot{0: at(95, Snapshot{Does: begun, Oldest: ahead(93, 2)}), 1: at(93, Snapshot{Does: begun, Oldest: ahead(93, 0)}), 2: at(92, Snapshot{Ago: 4})}, NotCalled, []int{2},
			"rank 2 (host b, pid 12, GPU 2) has not called AllGather of uint8, 93 elements, operation #93: its last call was AllGather of uint8, 92 elements, operation #92, 4 s ago"},
		{"a Recv that was skipped", map[int]Snapshot{0: at(95, Snapshot{Does: begun, WaitsFor: []int{1}, Oldest: &position{Call: known95, P2P: 1, Peer: 1, Since: 9}, Sent: []uint32{0, 3, 0}}), 1: at(95, Snapshot{Does: begun, WaitsFor: []int{0}, Rcvd: []uint32{2, 0, 0}}), 2: at(95, Snapshot{Does: begun, WaitsFor: []int{0}})}, Unmatched, []int{1},
			"rank 1 (host a, pid 11, GPU 1) has not called Recv #3 from rank 0, which waits in a Send to or Recv from rank 1, 9 calls ago: its last call was AllGather of uint8, 95 elements, operation #95, 0 s ago"},
		{"a Send that is late", map[int]Snapshot{0: at(95, Snapshot{Ago: 3}), 1: at(95, Snapshot{Does: begun, P2P: 1, Peer: 0, WaitsFor: []int{0}, Rcvd: []uint32{1, 0, 0}}), 2: at(95, Snapshot{})}, Unmatched, []int{0},
			"rank 0 (host a, pid 10, GPU 0) has not called Send #1 to rank 1, which waits in Sends or Recvs: its last call was AllGather of uint8, 95 elements, operation #95, 3 s ago"},
		{"two communicators", map[int]Snapshot{0: at(95, Snapshot{Does: begun, WaitsFor: []int{1}}), 1: at(95, Snapshot{Does: behind, Oldest: ahead(95, 0), Others: []busyComm{{"tp", "AllReduce of int8 with sum, 3 elements, operation #7", 7, []Process{{"a", 10, 0, "", -1}, {"b", 12, 2, "", -1}}}}}), 2: at(95, Snapshot{Does: begun, WaitsFor: []int{1}})}, Order, []int{1},
			`rank 1 (host a, pid 11, GPU 1) called AllReduce of int8 with sum, 3 elements, operation #7 of communicator "tp" before AllGather of uint8, 95 elements, operation #95 of this communicator, ranks 0, 2 the other way round: each waits for the other`},
		{"another communicator", map[int]Snapshot{0: at(95, Snapshot{Does: begun, WaitsFor: []int{1}}), 1: at(95, Snapshot{Does: behind, Oldest: ahead(95, 0), Others: []busyComm{{"tp", "AllReduce of int8 with sum, 3 elements, operation #7", 7, []Process{{"c", 99, 0, "", -1}}}}}), 2: at(95, Snapshot{Does: begun, WaitsFor: []int{1}})}, Blocked, []int{1},
			`rank 1 (host a, pid 11, GPU 1) has called AllGather of uint8, 95 elements, operation #95, which has not begun: its stream or its GPU is blocked by AllReduce of int8 with sum, 3 elements, operation #7 of communicator "tp", which waits for process 99 on c`},
		{"a program that waits in another communicator", map[int]Snapshot{0: at(95, Snapshot{Does: begun, WaitsFor: []int{1}, Calls: map[string]uint32{"tp": 7}}), 1: at(94, Snapshot{Others: tp}), 2: at(95, Snapshot{Does: begun, WaitsFor: []int{1}})}, Elsewhere, []int{1},
			`rank 1 (host a, pid 11, GPU 1) has not called AllGather of uint8, 95 elements, operation #95: it waits in AllReduce of int8 with sum, 3 elements, operation #7 of communicator "tp", which waits for process 10 on a`},
		{"programs that wait in two", map[int]Snapshot{0: at(95, Snapshot{Does: begun, WaitsFor: []int{1}, Calls: map[string]uint32{"tp": 6}}), 1: at(94, Snapshot{Others: tp}), 2: at(95, Snapshot{Does: begun, WaitsFor: []int{1}})}, Order, []int{1},
			`rank 1 (host a, pid 11, GPU 1) called AllReduce of int8 with sum, 3 elements, operation #7 of communicator "tp" before AllGather of uint8, 95 elements, operation #95 of this communicator, ranks 0, 2 the other way round: each waits for the other`},
		{"one waits in another communicator, and one is late", map[int]Snapshot{0: at(95, Snapshot{Does: begun}), 1: at(94, Snapshot{Others: tp}), 2: at(94, Snapshot{Ago: 3})}, NotCalled, []int{2},
			"rank 2 (host b, pid 12, GPU 2) has not called AllGather of uint8, 95 elements, operation #95: its last call was AllGather of uint8, 94 elements, operation #94, 3 s ago"},
		{"a Send that has ended without a Recv", map[int]Snapshot{0: at(95, Snapshot{Does: begun, WaitsFor: []int{1}, Rcvd: []uint32{0, 1}}), 1: at(95, Snapshot{Sent: []uint32{2, 0}}), 2: at(95, Snapshot{})}, Unmatched, []int{0},
			"rank 0 (host a, pid 10, GPU 0) has not called Recv #2 from rank 1, which has sent it; the operation that has not ended is AllGather of uint8, 95 elements, operation #95"},
		{"all wait for their own", map[int]Snapshot{0: at(95, Snapshot{Does: behind}), 1: at(94, Snapshot{}), 2: at(95, Snapshot{Does: behind})}, "", nil, ""},
	} {
		d := diagnosis{snapshots: c.snapshots, call: known}
		for r, h := range [...]string{"a", "a", "b"} {
			d.processes = append(d.processes, Process{h, 10 + r, r, "", -1})
		}
		cause, ranks, text, ok := d.cause()
		if cause != c.cause || !slices.Equal(ranks, c.ranks) || text != c.want || ok != (c.want != "") {
			t.Errorf("%s: %s %v\n%s\nwant %s %v\n%s", c.name, cause, ranks, text, c.cause, c.ranks, c.want)
		}
	}
}

// TestWindow: the first collective is found that two ranks called differently, if both know it.
func TestWindow(t *testing.T) {
	w := func(last uint32, signs ...uint32) (h history) {
		h.Last = last
		for _, s := range slices.Backward(signs) {
			h.Signs = binary.LittleEndian.AppendUint32(h.Signs, s)
		}
		return h
	}
	for _, c := range []struct {
		a, b history
		seq  uint32
		ok   bool
	}{
		{w(3, 1, 2, 3), w(3, 1, 2, 3), 0, false},
		{w(3, 1, 2, 3), w(3, 1, 7, 8), 2, true},
		{w(9, 4, 5, 6, 7), w(7, 3, 9, 5), 6, true}, // 6 to 9, and 5 to 7
		{w(9, 4, 5), w(7, 3, 9, 5), 0, false},      // none is in both
		{w(1, 4), w(40, 1), 0, false},
		{history{}, w(2, 1, 2), 0, false},
		{history{Last: 5, Signs: []byte{1, 2}}, w(5, 1), 0, false}, // damaged
		{w(2, 1, 2, 3, 4), w(2, 5, 2), 1, true},                    // more than there can be
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
	is := func(sign uint32, count int64) collective { return collective{7, sign, count, op.NoPeer} }
	sum, gather := (&op.Op{Type: elem.Float32, Count: 100, Root: op.NoPeer}).Signature(), (&op.Op{Coll: 3, Type: elem.Uint8, Count: 8, Root: op.NoPeer}).Signature()
	for _, c := range []struct {
		name  string
		calls map[int]collective
		ranks []int
		want  string
	}{
		{"one of three", map[int]collective{0: is(sum, 100), 1: is(gather, 8), 2: is(sum, 100)}, []int{1},
			"rank 1 (host a, pid 11, GPU 1) called AllGather of uint8, 8 elements, where rank 0, 2 called AllReduce of float with sum, 100 elements"},
		{"one of two", map[int]collective{0: is(sum, 100), 1: is(gather, 8)}, []int{0, 1},
			"rank 0 (host a, pid 10, GPU 0) called AllReduce of float with sum, 100 elements; rank 1 (host a, pid 11, GPU 1) called AllGather of uint8, 8 elements"},
		{"one of two leaves", map[int]collective{0: is(op.Destroying, -1), 1: is(sum, 100)}, []int{0},
			"rank 0 (host a, pid 10, GPU 0) called Destroy, where rank 1 called AllReduce of float with sum, 100 elements"},
		{"two of three leave", map[int]collective{0: is(op.Destroying, -1), 1: is(op.Destroying, -1), 2: is(sum, 100)}, []int{0, 1},
			"rank 0 (host a, pid 10, GPU 0) called Destroy; rank 1 (host a, pid 11, GPU 1) called Destroy, where rank 2 called AllReduce of float with sum, 100 elements"},
	} {
		var p Processes
		for r := range 3 {
			p = append(p, Process{"a", 10 + r, r, "", -1})
		}
		ranks, text := p.differing(7, c.calls)
		if want := "ranks called different operations under number #7: " + c.want; !slices.Equal(ranks, c.ranks) || text != want {
			t.Errorf("%s: %v\n%s\nwant %v\n%s", c.name, ranks, text, c.ranks, want)
		}
	}
}
