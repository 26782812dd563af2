package cuda

import (
	"testing"

	"github.com/assay-hpc/assay/coll"
	"github.com/assay-hpc/assay/coll/schedule"
)

// The pieces of a staged operation cover its buffers once.
func TestRuns(t *testing.T) {
	const ranks = 3
	for c := range schedule.SendRecv {
		for _, count := range []int{1, 1000, 1 << 20, 1<<20 + 1, 3_000_001} {
			for rank := range ranks {
				op := testOp(c, count)
				var covered [2]int
				next := [2][ranks]uintptr{}
				for k := range pieces(op, ranks) {
					seen := [2]int{}
					for _, r := range runs(op, rank, ranks, k, nil) {
						side, base := 0, op.Send
						if !r.in {
							side, base = 1, op.Recv
						}
						p := seen[side]
						seen[side]++
						if want := base + uintptr(p*bytesOf(op)) + next[side][p]; r.addr != want {
							t.Fatalf("%v of %d, rank %d: piece %d of part %d is at %d; want %d", c, count, rank, k, p, r.addr, want)
						}
						next[side][p] += uintptr(r.n)
						covered[side] += r.n
					}
				}
				in, out := partsHere(op, rank, ranks)
				if covered != [2]int{in * bytesOf(op), out * bytesOf(op)} {
					t.Errorf("%v of %d, rank %d: %v bytes; want %d and %d parts of %d", c, count, rank, covered, in, out, bytesOf(op))
				}
			}
		}
	}
	op := &coll.DeviceOp{Coll: schedule.SendRecv, Transfers: []coll.Transfer{{Peer: 1, Addr: 8, Bytes: stagePart + 1, Send: true}, {Peer: 2, Addr: 16, Bytes: 5}}}
	if n := pieces(op, ranks); n != 2 {
		t.Fatalf("%d pieces", n)
	}
	if got := runs(op, 0, ranks, 1, nil); len(got) != 1 || got[0] != (run{8 + stagePart, 1, true}) {
		t.Errorf("piece 1: %+v", got)
	}
}
