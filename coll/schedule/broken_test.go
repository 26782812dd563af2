package schedule

import (
	"strings"
	"testing"

	"github.com/assay-hpc/assay/coll/op"
)

// fixed makes a schedule of given programs.
func fixed(c op.Collective, blocks int, programs ...Program) *Schedule {
	return &Schedule{
		Collective: c, Algorithm: "hand-made", Ranks: len(programs), Blocks: blocks, Channels: 1, MaxSpan: 2,
		Program: func(r int) Program { return programs[r] },
	}
}

func lanes(scratch int, lanes ...[]Step) Program {
	p := Program{Scratch: scratch}
	for _, l := range lanes {
		p.Lanes = append(p.Lanes, Lane{Steps: l})
	}
	return p
}

// TestCheckObjects: each thing that Check proves, broken by hand.
func TestCheckObjects(t *testing.T) {
	b := do(block(0))
	// exchange is a right AllReduce of two ranks.
	exchange := func(peer int32) []Step {
		return []Step{b.load(in(0)).send(peer), b.load(in(0)).recv(peer).store(out(0))}
	}
	ok := lanes(0, exchange(0))
	two := func(first Program) *Schedule { return fixed(op.AllReduce, 1, first, ok) }
	for _, tt := range []struct {
		name string
		s    *Schedule
		o    CheckOptions
		want string // "" for none
	}{
		{"right", two(lanes(0, exchange(1))), CheckOptions{}, ""},
		{"deadlock", fixed(op.AllReduce, 1,
			lanes(0, []Step{b.recv(1).store(out(0)), b.load(in(0)).send(1)}),
			lanes(0, []Step{b.recv(0).store(out(0)), b.load(in(0)).send(0)})), CheckOptions{}, "deadlock"},
		{"too few slots", fixed(op.Broadcast, 2,
			lanes(0, []Step{do(block(0)).load(in(0)).send(1), do(block(1)).load(in(1)).send(1), do(Span{0, 2}).load(in(0)).store(out(0)).send(2)}),
			lanes(0, []Step{do(block(0)).recv(2).store(out(0)), do(block(0)).recv(0).store(out(0)), do(block(1)).recv(0).store(out(1))}),
			lanes(0, []Step{do(Span{0, 2}).recv(0).store(out(0)), do(block(0)).load(out(0)).send(1)})), CheckOptions{Slots: 1}, "deadlock with 1 slots"},
		{"never received", two(lanes(0, append(exchange(1), b.load(in(0)).send(1)))), CheckOptions{Slots: -1}, "never received"},
		{"lost", two(lanes(0, []Step{b.load(in(0)).send(1), b.recv(1).store(out(0))})), CheckOptions{}, "made of 1×[rank 1 block 0]"},
		{"twice", two(lanes(0, []Step{b.load(in(0)).send(1), b.load(in(0)).recv(1).store(out(0)), b.load(in(0)).load(out(0)).store(out(0))})), CheckOptions{Place: OutOfPlace}, "made of 2×[rank 0 block 0] 1×[rank 1 block 0]"},
		{"overlap", fixed(op.ReduceScatter, 2, lanes(3, []Step{do(Span{0, 2}).load(in(0)).store(scratch(0)), do(Span{0, 2}).load(scratch(0)).store(scratch(1))}), Program{}), CheckOptions{}, "overlap"},
		{"twice, with scratch", two(lanes(1, []Step{b.load(in(0)).load(in(0)).store(scratch(0)), b.load(in(0)).send(1), b.load(scratch(0)).recv(1).store(out(0))})), CheckOptions{}, "made of 2×[rank 0 block 0] 1×[rank 1 block 0]"},
		{"not written", fixed(op.AllGather, 2, lanes(0, []Step{do(block(0)).load(in(0)).send(1)}), lanes(0, []Step{do(block(0)).recv(0).store(out(0)), do(block(1)).load(in(0)).store(out(1))})), CheckOptions{}, "never written"},
		{"wrong position", fixed(op.AllToAll, 2,
			lanes(0, []Step{do(block(0)).load(in(0)).send(1), do(block(0)).load(in(0)).store(out(0)), do(block(1)).recv(1).store(out(1))}),
			lanes(0, []Step{do(block(0)).load(in(0)).send(0), do(block(1)).load(in(1)).store(out(1)), do(block(0)).recv(0).store(out(0))})), CheckOptions{}, "made of 1×[rank 0 block 0]"},
		{"uninitialised", two(lanes(1, []Step{b.load(scratch(0)).send(1), b.load(in(0)).recv(1).store(out(0))})), CheckOptions{}, "never written"},
		{"only when in place", two(lanes(0, []Step{b.load(out(0)).send(1), b.load(in(0)).recv(1).store(out(0))})), CheckOptions{}, "reads block 0 of out"},
		{"only when out of place", fixed(op.AllGather, 2,
			lanes(0, []Step{do(block(1)).recv(1).store(out(0)), do(block(1)).load(out(0)).store(out(1)), do(block(0)).load(in(0)).store(out(0)).send(1)}),
			lanes(0, []Step{do(block(1)).load(in(0)).store(out(1)).send(0), do(block(0)).recv(0).store(out(0))})), CheckOptions{}, "in place"},
		{"lengths differ", fixed(op.AllReduce, 2, lanes(0, []Step{do(Span{0, 2}).load(in(0)).send(1), do(Span{0, 2}).load(in(0)).recv(1).store(out(0))}),
			lanes(0, []Step{do(Span{0, 2}).load(in(0)).send(0), do(Span{0, 1}).load(in(0)).recv(0).store(out(0))})), CheckOptions{}, "message holds blocks 0-1"},
		{"two lanes send", two(lanes(0, []Step{b.load(in(0)).send(1)}, exchange(1))), CheckOptions{}, "also sends to rank 1"},
		{"two lanes receive", two(lanes(1, []Step{b.recv(1).store(scratch(0))}, exchange(1))), CheckOptions{Slots: -1}, "also receives from rank 1"},
		{"writes input", two(lanes(0, []Step{b.recv(1).store(in(0))})), CheckOptions{}, "input is not to be written"},
		{"beyond a buffer", two(lanes(0, []Step{b.recv(1).store(scratch(0))})), CheckOptions{}, "scratch has 0 blocks"},
		{"beyond the blocks", two(lanes(0, []Step{do(Span{0, 2}).recv(1).store(out(0))})), CheckOptions{}, "within the 1 blocks"},
		{"another block", fixed(op.Broadcast, 2, lanes(0, []Step{do(block(1)).load(in(0)).send(1)}), Program{}), CheckOptions{}, "not where block 1 of the vector lies"},
		{"beyond MaxSpan", fixed(op.Broadcast, 3, lanes(0, []Step{do(Span{0, 3}).load(in(0)).send(1)}), Program{}), CheckOptions{}, "no step moves more than 2 blocks"},
		{"scratch of another lane", two(lanes(1, []Step{b.load(in(0)).store(scratch(0)), b.load(scratch(0)).send(1)}, []Step{b.load(scratch(0)).recv(1).store(out(0))})), CheckOptions{}, "reads block 0 of scratch"},
		{"beyond numbers", two(lanes(0, []Step{do(Span{1<<31 - 1, 2}).recv(1).store(out(0))})), CheckOptions{}, "within the 1 blocks"},
		{"reference beyond numbers", two(lanes(0, []Step{b.recv(1).store(out(1<<31 - 1))})), CheckOptions{}, "out has 1 blocks"},
		{"to itself", two(lanes(0, []Step{b.load(in(0)).send(0)})), CheckOptions{}, "cannot send to rank 0"},
		{"from nowhere", two(lanes(0, []Step{b.recv(7).store(out(0))})), CheckOptions{}, "cannot receive from rank 7"},
		{"three operands", two(lanes(1, []Step{b.load(in(0)).load(scratch(0)).recv(1).store(out(0))})), CheckOptions{}, "3 operands"},
		{"no operand", two(lanes(0, []Step{b.send(1)})), CheckOptions{}, "0 operands"},
		{"nowhere to", two(lanes(0, []Step{b.load(in(0))})), CheckOptions{}, "neither stored nor sent"},
		{"reduces in a broadcast", fixed(op.Broadcast, 1, lanes(0, []Step{b.load(in(0)).load(in(0)).store(out(0))}), Program{}), CheckOptions{}, "reduces nothing"},
		{"output of a rank that has none", fixed(op.Reduce, 1, lanes(0, []Step{b.load(in(0)).recv(1).store(out(0))}), lanes(0, []Step{b.load(in(0)).store(out(0)).send(0)})), CheckOptions{}, "out has 0 blocks"},
		{"race", two(lanes(0, []Step{b.load(in(0)).send(1)}, []Step{b.recv(1).store(out(0))}, []Step{b.load(in(0)).store(out(0))})), CheckOptions{}, "race"},
		{"race in place only", fixed(op.AllReduce, 1,
			lanes(0, []Step{b.load(in(0)).send(1)}, []Step{b.load(in(0)).recv(1).store(out(0))}), ok), CheckOptions{Place: OutOfPlace}, ""},
		{"race in place", fixed(op.AllReduce, 1,
			lanes(0, []Step{b.load(in(0)).send(1)}, []Step{b.load(in(0)).recv(1).store(out(0))}), ok), CheckOptions{}, "in place: rank 0"},
		{"zero copy", two(lanes(0, exchange(1))), CheckOptions{ZeroCopy: true}, "in place: rank 0"},
		{"bits differ", fixed(op.AllReduce, 1, chain(0), chain(1), chain(2)), CheckOptions{}, "differ in bits"},
		{"multi and single", fixed(op.Broadcast, 1, lanes(0, []Step{b.load(in(0)).store(out(0)).send(Everyone)}), lanes(0, []Step{b.recv(0).store(out(0))})), CheckOptions{}, "deadlock"},
		{"network", two(lanes(0, []Step{b.load(in(0)).send(Network)}, []Step{b.recv(Network).store(out(0))})), CheckOptions{}, "deadlock"},
		{"network of one head", two(lanes(0, []Step{b.recv(Network).store(out(0))})), CheckOptions{}, "deadlock"},
		{"result that nobody takes", fixed(op.AllReduce, 1, lanes(0, []Step{b.load(in(0)).send(Network)}), lanes(0, []Step{b.load(in(0)).send(Network), b.recv(Network).store(out(0))})), CheckOptions{Slots: -1}, "messages from the network to rank 0 are never received"},
		{"heads differ", fixed(op.AllReduce, 2,
			lanes(0, []Step{do(block(0)).load(in(0)).send(Network), do(block(0)).recv(Network).store(out(0))}),
			lanes(0, []Step{do(block(1)).load(in(1)).send(Network), do(block(1)).recv(Network).store(out(1))})), CheckOptions{}, "heads send different blocks to the network"},
		{"network's multicast", two(lanes(0, []Step{b.recvMulti(Network).store(out(0))})), CheckOptions{}, "multi without a message of a rank"},
	} {
		err := Check(tt.s, tt.o)
		switch {
		case tt.want == "" && err != nil:
			t.Errorf("%s: %v", tt.name, err)
		case tt.want != "" && err == nil:
			t.Errorf("%s: Check does not object; want %q", tt.name, tt.want)
		case tt.want != "" && !strings.Contains(err.Error(), tt.want):
			t.Errorf("%s: %v; want %q", tt.name, err, tt.want)
		}
	}
}

// chain is a one-shot AllReduce of three ranks that starts with the own input.
func chain(rank int) Program {
	b := do(block(0))
	return lanes(1, []Step{
		b.load(in(0)).send(Everyone),
		b.load(in(0)).recvMulti(int32((rank + 1) % 3)).store(scratch(0)),
		b.load(scratch(0)).recvMulti(int32((rank + 2) % 3)).store(out(0)),
	})
}

// TestVolumeObjects: a schedule that moves more than it should is not passed
// under the name of an algorithm.
func TestVolumeObjects(t *testing.T) {
	s := mustNew(t, op.AllGather, OneShot, Options{Ranks: 4})
	if err := Check(s, CheckOptions{}); err != nil {
		t.Fatal(err)
	}
	s.Algorithm = Ring
	if err := Check(s, CheckOptions{}); err == nil || !strings.Contains(err.Error(), "in theory it is 12") {
		t.Errorf("Check of a one-shot op.AllGather called ring = %v; want that it sends 4 blocks and not 12", err)
	}
}
