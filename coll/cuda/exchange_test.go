package cuda

import (
	"math/rand/v2"
	"testing"

	"github.com/assay-hpc/assay/coll/choose"
	"github.com/assay-hpc/assay/coll/op"
)

// A wire is the messages from one rank to another, in the order of the
// kernels that carry them.
type wire struct {
	bytes, channels int
	kernel          kernel
	chunk           uint32
}

// Whatever ranks send to one another, in whatever order each lists it, both
// ends of every message carry it in the same way, and kernels in the order
// that all have never wait in a circle.
func TestExchanges(t *testing.T) {
	for seed := range uint64(200) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		ranks := 2 + rnd.IntN(maxRanks-1)
		lists := make([][]op.Transfer, ranks)
		for range rnd.IntN(30) {
			from, to := rnd.IntN(ranks), rnd.IntN(ranks)
			bytes := 1 + rnd.IntN(1<<rnd.IntN(26))
			lists[from] = append(lists[from], op.Transfer{Peer: to, Data: op.Memory(1<<40, bytes), Send: true})
			lists[to] = append(lists[to], op.Transfer{Peer: from, Data: op.Memory(2<<40, bytes)})
		}
		type step struct {
			c choice
			a argsABI
		}
		steps := make([][]step, ranks)
		sent, received := map[[2]int][]wire{}, map[[2]int][]wire{}
		for r := range ranks {
			x := exchange{rank: r, chooser: testChooser(ranks)}
			x.chooser.measured[op.SendRecv] = []choose.Rule[choice]{{UpTo: 1 << 20, C: choice{exchangeSimple, 8, exchangeThreads, exchangeChunk}}, {UpTo: maxMessage, C: choice{copies, 8, exchangeThreads, leastCopy}}}
			x.copies = seed%3 == 0
			x.start(lists[r])
			for {
				var a argsABI
				c, ok := x.next(&a)
				if !ok {
					break
				}
				steps[r] = append(steps[r], step{c, a})
				if c.kernel == copies && a.send[r] > 0 {
					t.Fatalf("seed %d: copies between ranks are to carry %d bytes of rank %d to itself", seed, a.send[r], r)
				}
				for p := range ranks {
					if n := int(a.send[p]); n > 0 {
						sent[[2]int{r, p}] = append(sent[[2]int{r, p}], wire{n, int(a.to[p]), c.kernel, a.chunk})
					}
					if n := int(a.recv[p]); n > 0 {
						received[[2]int{p, r}] = append(received[[2]int{p, r}], wire{n, int(a.from[p]), c.kernel, a.chunk})
					}
				}
			}
		}
		for pair, s := range sent {
			if len(s) != len(received[pair]) {
				t.Fatalf("seed %d: %d messages of %v, %d received", seed, len(s), pair, len(received[pair]))
			}
			for i, w := range s {
				if w != received[pair][i] {
					t.Fatalf("seed %d: message %d of %v leaves as %+v and arrives as %+v", seed, i, pair, w, received[pair][i])
				}
			}
		}
		// Each rank is in its first kernel; one whose peers all are in a kernel
		// that has their side of it ends.
		for left := true; left; {
			moved := false
			left = false
			for r := range ranks {
				if len(steps[r]) == 0 {
					continue
				}
				left = true
				ready := true
				for p := range ranks {
					if p == r {
						continue
					}
					s := &steps[r][0]
					if s.a.recv[p] > 0 && (len(steps[p]) == 0 || steps[p][0].a.send[r] != s.a.recv[p]) {
						ready = false
					}
					if s.a.send[p] > 0 && len(steps[p]) > 0 && steps[p][0].a.recv[r] != s.a.send[p] {
						ready = false
					}
				}
				if ready {
					// The peers of its messages end with it at the latest when
					// theirs are done, too: mark what it has done for them.
					for p := range ranks {
						if p != r && len(steps[p]) > 0 {
							if steps[r][0].a.send[p] > 0 {
								steps[p][0].a.recv[r] = 0
							}
							if steps[r][0].a.recv[p] > 0 {
								steps[p][0].a.send[r] = 0
							}
						}
					}
					steps[r] = steps[r][1:]
					moved = true
				}
			}
			if left && !moved {
				t.Fatalf("seed %d: the kernels wait in a circle", seed)
			}
		}
	}
}
