package cuda

import (
	"testing"

	"github.com/assay-hpc/assay/coll/op"
)

// The pieces of a staged operation cover its buffers once.
func TestRuns(t *testing.T) {
	const ranks = 3
	for c := range op.SendRecv {
		for _, count := range []int{1, 1000, 1 << 20, 1<<20 + 1, 3_000_001} {
			for rank := range ranks {
				o := testOp(c, count)
				var covered [2]int
				next := [2][ranks]uintptr{}
				for k := range pieces(o, ranks) {
					seen := [2]int{}
					for _, r := range runs(o, rank, ranks, k, nil) {
						side, base := 0, op.Addr(o.Send)
						if !r.in {
							side, base = 1, op.Addr(o.Recv)
						}
						p := seen[side]
						seen[side]++
						if want := base + uintptr(p*o.Bytes()) + next[side][p]; r.addr != want {
							t.Fatalf("%v of %d, rank %d: piece %d of part %d is at %d; want %d", c, count, rank, k, p, r.addr, want)
						}
						next[side][p] += uintptr(r.n)
						covered[side] += r.n
					}
				}
				in, out := o.Coll.Parts(rank, o.Root, ranks)
				if covered != [2]int{in * o.Bytes(), out * o.Bytes()} {
					t.Errorf("%v of %d, rank %d: %v bytes; want %d and %d parts of %d", c, count, rank, covered, in, out, o.Bytes())
				}
			}
		}
	}
	o := &op.Op{Coll: op.SendRecv, Transfers: []op.Transfer{{Peer: 1, Data: op.Memory(1<<40, stagePart+1), Send: true}, {Peer: 2, Data: op.Memory(2<<40, 5)}}}
	if n := pieces(o, ranks); n != 2 {
		t.Fatalf("%d pieces", n)
	}
	if got := runs(o, 0, ranks, 1, nil); len(got) != 1 || got[0] != (memoryRun{1<<40 + stagePart, 1, true}) {
		t.Errorf("piece 1: %+v", got)
	}
}
