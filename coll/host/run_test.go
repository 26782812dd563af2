package host

import (
	"encoding/binary"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/assay-hpc/assay/coll/elem"
	"github.com/assay-hpc/assay/coll/op"
	"github.com/assay-hpc/assay/coll/schedule"
	"github.com/assay-hpc/assay/coll/transport"
)

// queues are connections within one goroutine.
type queues struct {
	slot int
	all  map[[3]int]*queue // from, to, channel
}

func (q *queues) of(from, to, channel int) *queue {
	k := [3]int{from, to, channel}
	if q.all[k] == nil {
		q.all[k] = &queue{slot: q.slot}
	}
	return q.all[k]
}

type queue struct {
	slot     int
	messages [][]byte
	headers  []transport.Header
	reserved []byte
}

func (q *queue) Reserve(n int) []byte {
	if n > q.slot {
		panic(fmt.Sprintf("a message of %d bytes; slots are of %d", n, q.slot))
	}
	if len(q.reserved) != n {
		q.reserved = make([]byte, n)
	}
	return q.reserved
}

func (q *queue) Commit(n int, h transport.Header) {
	q.messages, q.headers, q.reserved = append(q.messages, q.reserved[:n]), append(q.headers, h), nil
}

func (q *queue) Peek() (p []byte, h transport.Header, ok bool) {
	if len(q.messages) == 0 {
		return nil, h, false
	}
	return q.messages[0], q.headers[0], true
}

func (q *queue) Release() bool {
	q.messages, q.headers = q.messages[1:], q.headers[1:]
	return true
}

func (q *queue) Post(p []byte, h transport.Header) bool {
	copy(q.Reserve(len(p)), p)
	q.Commit(len(p), h)
	return true
}

func (q *queue) Idle() bool      { return true }
func (q *queue) Direct() bool    { return false }
func (q *queue) MaxMessage() int { return q.slot }
func (q *queue) Slots() int      { return 1 << 30 }

// into is the receiving end.
type into struct{ *queue }

func (into) Post([]byte)                         { panic("not direct") }
func (into) Done() (transport.Header, int, bool) { panic("not direct") }

// links are a rank's.
type links struct {
	*queues
	rank int
}

var errNone = errors.New("there is none")

func (l links) Tx(peer, channel int) (transport.Tx, error) { return l.of(l.rank, peer, channel), nil }
func (l links) Rx(peer, channel int) (transport.Rx, error) {
	return into{l.of(peer, l.rank, channel)}, nil
}
func (links) MultiTx(int) (transport.Tx, error)                 { return nil, errNone }
func (links) MultiRx(int, int) (transport.Rx, error)            { return nil, errNone }
func (links) Network() (transport.Reducer, transport.Rx, error) { return nil, nil, errNone }

type idler struct{}

func (idler) Wait(int) bool { return true }

// groupsOf are nodes of so many ranks.
func groupsOf(sizes ...int) (groups [][]int, ranks int) {
	for _, n := range sizes {
		var g []int
		for range n {
			g = append(g, ranks)
			ranks++
		}
		groups = append(groups, g)
	}
	return groups, ranks
}

// TestWideSteps: a step that moves a block of each of many ranks fits into a
// message, or else there is no plan.
func TestWideSteps(t *testing.T) {
	many := make([]int, 65)
	for i := range many {
		many[i] = 2
	}
	many[64] = 64
	for _, sizes := range [][]int{{1030}, many} {
		groups, ranks := groupsOf(sizes...)
		for _, c := range []op.Collective{op.AllReduce, op.AllGather} {
			for _, a := range schedule.Algorithms(c) {
				s, err := schedule.New(c, a, schedule.Options{Ranks: ranks, Groups: groups, NoMulticast: true})
				if err != nil || s.MaxSpan < 2 || a == schedule.CollNet {
					continue
				}
				for _, slot := range []int{8*s.MaxSpan - 8, 8 * s.MaxSpan} {
					t.Run(fmt.Sprintf("%v/%s/%d hosts/slots of %d", c, a, len(sizes), slot), func(t *testing.T) {
						wide(t, s, slot, slot < 8*s.MaxSpan)
					})
				}
			}
		}
	}
}

// wide runs a schedule on numbers of 8 bytes, all ranks in turn.
func wide(t *testing.T, s *schedule.Schedule, slot int, refused bool) {
	q := &queues{slot: slot, all: map[[3]int]*queue{}}
	count, total := 1, s.Ranks // elements: of the call, of the result
	if s.Collective == op.AllReduce {
		count = s.Blocks
		total = count
	}
	runs := make([]*Run, s.Ranks)
	outs := make([][]byte, s.Ranks)
	for r := range runs {
		p, err := NewPlan(s, r, slot, links{q, r})
		if (err != nil) != refused {
			t.Fatalf("NewPlan = %v; want an error: %v", err, refused)
		}
		if refused {
			return
		}
		in := make([]byte, 8*count)
		for i := range count {
			binary.NativeEndian.PutUint64(in[8*i:], uint64(r*r+i))
		}
		outs[r] = make([]byte, 8*total)
		runs[r] = new(Run)
		runs[r].Start(p, Op{Op: op.Op{Send: in, Recv: outs[r], Count: count, Type: elem.Int64, Red: elem.Sum}})
	}
	if _, err := Drive(runs, &Watch{Waiter: idler{}, Fault: func() error { return nil }, Timeout: time.Minute}); err != nil {
		t.Fatal(err)
	}
	squares := uint64(0)
	for r := range s.Ranks {
		squares += uint64(r * r)
	}
	for r, out := range outs {
		for i := range total {
			want := uint64(i * i)
			if s.Collective == op.AllReduce {
				want = squares + uint64(s.Ranks*i)
			}
			if got := binary.NativeEndian.Uint64(out[8*i:]); got != want {
				t.Fatalf("rank %d, element %d: %d; want %d", r, i, got, want)
			}
		}
	}
}
