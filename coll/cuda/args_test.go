package cuda

import (
	"fmt"
	"testing"

	"github.com/assay-hpc/assay/coll"
	"github.com/assay-hpc/assay/coll/elem"
	"github.com/assay-hpc/assay/coll/op"
)

// testOp has buffers at 1000000 and 2000000 times a thousand.
func testOp(c op.Collective, count int) *op.Op {
	return &op.Op{Coll: c, Send: op.Memory(1e9, 1), Recv: op.Memory(2e9, 1), Device: true, Count: count, Type: elem.Float32, Red: elem.Sum}
}

// What a rank sends to another one is as long as what that one expects, and
// all that is read and written lies within the buffers.
func TestArguments(t *testing.T) {
	for ranks := 2; ranks <= maxRanks; ranks++ {
		ch := testChooser(ranks)
		for c := range op.SendRecv {
			for _, count := range []int{1, 3, 31, 32, 1000, 70_000, 5_000_001} {
				for root := range ranks {
					if root > 0 && !c.Rooted() {
						continue
					}
					o := testOp(c, count)
					o.Root = root
					if !c.Rooted() {
						o.Root = coll.NoPeer
					}
					all := make([]argsABI, ranks)
					choice := ch.choose(c, o.Bytes())
					for r := range ranks {
						fill(&all[r], r, ranks, o, choice)
					}
					if err := agree(all, choice, o, ranks); err != nil {
						t.Fatalf("%v of %d among %d, root %d, by %v: %v", c, count, ranks, root, choice, err)
					}
				}
			}
		}
	}
}

func agree(all []argsABI, ch choice, o *op.Op, ranks int) error {
	for r := range all {
		in, out := o.Coll.Parts(r, o.Root, ranks)
		a := &all[r]
		for p := range ranks {
			n := uint64(o.Bytes())
			if a.in[p] != 0 && (a.in[p] < 1e9 || a.in[p]+a.send[p] > 1e9+uint64(in)*n) {
				return fmt.Errorf("rank %d sends %d bytes to %d from %d", r, a.send[p], p, a.in[p])
			}
			if a.out[p] != 0 && (a.out[p] < 2e9 || a.out[p]+a.recv[p] > 2e9+uint64(out)*n) {
				return fmt.Errorf("rank %d receives %d bytes from %d at %d", r, a.recv[p], p, a.out[p])
			}
			if a.channels != all[0].channels || a.chunk != all[0].chunk || a.owners != all[0].owners || a.symmetric != all[0].symmetric || a.phased != all[0].phased {
				return fmt.Errorf("ranks differ: %+v, %+v", a, all[0])
			}
			// Exchanges: message by message.
			if !kernelTable[ch.kernel].typed && ch.kernel != relaySimple && p != r && a.send[p] != all[p].recv[r] {
				return fmt.Errorf("rank %d sends %d bytes to %d, which expects %d", r, a.send[p], p, all[p].recv[r])
			}
			if kernelTable[ch.kernel].typed && a.owners>>p&1 == 1 && a.send[p] != all[p].recv[p] {
				return fmt.Errorf("rank %d sends %d bytes to owner %d, which reduces %d", r, a.send[p], p, all[p].recv[p])
			}
		}
		if ch.kernel == allReduceSimple && o.Coll != op.ReduceScatter || ch.kernel == relaySimple {
			sum := uint64(0)
			for _, n := range a.recv {
				sum += n
			}
			if sum != uint64(o.Bytes()) {
				return fmt.Errorf("the parts have %d bytes of %d", sum, o.Bytes())
			}
		}
	}
	return nil
}

func TestScales(t *testing.T) {
	var a argsABI
	o := testOp(op.AllReduce, 10)
	o.Scaled, o.Factor = true, 77
	fill(&a, 0, 2, o, choice{kernel: reduceLL, channels: 1, threads: 32})
	if a.scale != scaleFactor || a.factor != 77 {
		t.Errorf("%+v", a)
	}
	o.Scaled, o.Divisor = false, 2
	fill(&a, 0, 2, o, choice{kernel: reduceLL, channels: 1, threads: 32})
	if a.scale != scaleDivide || a.divisor != 2 || a.factor != 0 {
		t.Errorf("%+v", a)
	}
}
