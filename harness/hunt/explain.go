package hunt

import (
	"context"
	"math"
	"slices"
)

// explain turns charges into suspects. If most nodes of a block are accused, they and those of
// the other blocks are measured within their blocks. A node that is fast there is not slow
// itself, but has a slow path to the others.
func (h *hunt) explain(ctx context.Context) error {
	excused := map[int]bool{}
	for _, level := range h.levels() {
		var blocks [][]int
		for _, b := range level {
			if h.mostAccused(b, excused) {
				blocks = append(blocks, b)
			}
		}
		if len(blocks) == 0 {
			continue
		}
		well, slow, err := h.among(ctx, level, blocks)
		for _, b := range blocks {
			h.blamePath(b, well, slow, excused)
			if h.plan.switches != nil {
				h.blameGroup(b, well, slow, excused)
			}
		}
		if err != nil {
			return err
		}
	}
	return h.beyond(ctx, excused)
}

// leastBeyond is how many nodes, each of another switch, share a fault that is not theirs.
const leastBeyond = 3

// beyond accuses what nodes of several switches share, if they are well within their switches: a spine,
// where routes follow from the destination.
func (h *hunt) beyond(ctx context.Context, excused map[int]bool) error {
	if h.plan.meetings == nil {
		return nil
	}
	of := func(is func(int) bool) (blocks [][]int, switches int) {
		at := map[int]bool{}
		for _, node := range h.living() {
			if h.accused[node] != nil && !excused[node] && is(node) {
				blocks = append(blocks, []int{node})
				at[h.switchOf(node)] = true
			}
		}
		return blocks, len(at)
	}
	blocks, switches := of(func(int) bool { return true })
	if switches < leastBeyond {
		return nil
	}
	well, _, err := h.among(ctx, h.plan.switches, blocks)
	if blocks, switches = of(func(node int) bool { return well[node] }); switches >= leastBeyond {
		nodes := slices.Concat(blocks...)
		h.blame(Beyond, nodes, nodes, excused)
	}
	return err
}

// levels returns partitions of the cluster into blocks of nearby nodes, largest blocks first: by
// switches and other groups or, without switches, by halving it repeatedly.
func (h *hunt) levels() (out [][][]int) {
	if h.plan.switches != nil {
		out = append(out, h.plan.switches)
		for _, of := range h.o.Groups {
			if b := bySwitch(numbered(of)); len(b) != len(h.plan.switches) {
				out = append(out, b)
			}
		}
		slices.SortStableFunc(out, func(a, b [][]int) int { return len(a) - len(b) })
		return out
	}
	for size := 1 << max(log2(h.n)-1, 0); size >= 2; size /= 2 {
		var level [][]int
		for first := 0; first < h.n; first += size {
			var b []int
			for node := first; node < min(first+size, h.n); node++ {
				b = append(b, node)
			}
			level = append(level, b)
		}
		out = append(out, level)
	}
	return out
}

// mostAccused reports whether at least two, and at least three quarters, of a block's living
// nodes are accused, and the block holds at most half of the cluster's living nodes.
func (h *hunt) mostAccused(block []int, excused map[int]bool) bool {
	living, accused := 0, 0
	for _, node := range block {
		if h.alive[node] {
			living++
		}
		if h.alive[node] && h.accused[node] != nil && !excused[node] {
			accused++
		}
	}
	return accused >= 2 && 4*accused >= 3*living && 2*living <= len(h.living())
}

// maxAmong bounds the rounds within blocks. They only decide between two explanations of a
// slowness that is already certain.
const maxAmong = 24

// among measures within blocks, and returns the accused nodes that are well there, and those that are
// slow there, too.
func (h *hunt) among(ctx context.Context, level, blocks [][]int) (well, slow map[int]bool, err error) {
	var ask []int
	for _, b := range blocks {
		for _, node := range b {
			if h.alive[node] && h.accused[node] != nil {
				ask = append(ask, node)
			}
		}
	}
	// Earlier values within a block would count, too, but there are almost none among few nodes,
	// and few among many. So the evidence starts anew.
	h.inside = evidence{}
	well, slow = map[int]bool{}, map[int]bool{}
	// What another node measures with one that is slow within its block says nothing about the other.
	others := func(but int) func(*value) bool {
		return func(v *value) bool {
			return slices.ContainsFunc(v.group, func(node int) bool { return !h.alive[node] || node != but && (slow[node] || h.slowGroups[node]) })
		}
	}
	for begun := h.rounds; h.rounds < begun+maxAmong && slices.ContainsFunc(blocks, func(b []int) bool { return !h.decidedWithin(b, well, slow) }); {
		groups := h.plan.among(level, h.living())
		if len(groups) == 0 {
			break
		}
		if err := h.round(ctx, &h.inside, groups, false); err != nil {
			return well, slow, err
		}
		w := h.inside.viewAfter(stratumRounds(len(h.living()), 2), others(-1), func(*value) int { return 0 })
		level := 1 / float64(2*len(ask)*maxAmong)
		for _, node := range ask {
			ways, good := 0, 0
			for _, d := range w.ways() {
				if !h.accused[node].is(d) {
					continue
				}
				ways++
				slower, faster := w.question(node, d, func(v *value) bool { return !others(node)(v) }, h.least, h.find)
				if faster.p() <= h.o.Beta*level {
					good++
				}
				if slower.p() <= h.o.Alpha*level {
					slow[node] = true
				}
			}
			if good == ways && !slow[node] {
				well[node] = true
			}
		}
	}
	return well, slow, nil
}

// decidedWithin reports whether so many of a block's accused nodes are known to be well, or slow, among
// themselves, that it does not matter what the others are.
func (h *hunt) decidedWithin(block []int, well, slow map[int]bool) bool {
	var accused, good, bad int
	for _, node := range block {
		if !h.alive[node] || h.accused[node] == nil {
			continue
		}
		accused++
		if well[node] {
			good++
		}
		if slow[node] {
			bad++
		}
	}
	return good >= 2 && 4*good >= 3*accused || bad >= 2 && 4*bad >= 3*len(block) || good+bad == accused
}

// blamePath accuses a path instead of the nodes of a block, if most are well among themselves.
func (h *hunt) blamePath(block []int, well, slow, excused map[int]bool) {
	var nodes, accused []int
	for _, node := range block {
		if h.alive[node] {
			nodes = append(nodes, node)
		}
		if h.alive[node] && h.accused[node] != nil && !excused[node] {
			accused = append(accused, node)
		}
	}
	good := slices.DeleteFunc(slices.Clone(accused), func(node int) bool { return !well[node] })
	if len(good) < 2 || 4*len(good) < 3*len(accused) {
		return
	}
	for _, node := range accused {
		excused[node] = excused[node] || !slow[node]
	}
	h.blame(SlowPath, nodes, good, excused)
}

// blameGroup accuses a known group, if most of its nodes are slow among themselves, too: what they share
// is at fault, rather than each of them.
func (h *hunt) blameGroup(block []int, well, slow, excused map[int]bool) {
	var nodes, accused []int
	for _, node := range block {
		if h.alive[node] {
			nodes = append(nodes, node)
		}
		if h.alive[node] && h.accused[node] != nil && !excused[node] {
			accused = append(accused, node)
		}
	}
	bad := slices.DeleteFunc(slices.Clone(accused), func(node int) bool { return !slow[node] })
	if len(bad) >= 2 && 4*len(bad) >= 3*len(nodes) {
		h.blame(Slow, nodes, slices.DeleteFunc(accused, func(node int) bool { return well[node] }), excused)
	}
}

// blame adds a suspect that is several nodes, because of charges against some of them, which are excused.
func (h *hunt) blame(kind Kind, nodes, charged []int, excused map[int]bool) {
	s := Suspect{Kind: kind, Nodes: nodes, Slower: true}
	var out, in int
	for _, node := range charged {
		excused[node], h.slowGroups[node] = true, kind == Slow
		c := h.accused[node]
		s.P = max(s.P, least(c.p))
		if c.is(sends) {
			out++
		}
		if c.is(receives) {
			in++
		}
	}
	s.Direction = direction(2*out > len(charged), 2*in > len(charged), h.all.directed)
	for _, node := range charged {
		s.Evidence = append(s.Evidence, h.seen.evidenceOf(node, s.Direction, 2)...)
	}
	s.Ratio = ratioOf(s.Evidence)
	h.suspects = append(h.suspects, s)
	h.excused = excused
}

func direction(out, in, directed bool) Direction {
	switch {
	case !directed || out == in:
		return Both
	case out:
		return Sending
	}
	return Receiving
}

// evidenceOf returns a node's last values, at most the given number, each with what is usual.
func (w *view) evidenceOf(node int, d Direction, most int) (out []Value) {
	for s := len(w.values) - 1; s >= 0; s-- {
		for _, i := range slices.Backward(w.byNode[s][node]) {
			v := &w.values[s][i]
			if d == Sending && !v.of(node, sends) || d == Receiving && !v.of(node, receives) {
				continue
			}
			if len(out) == most {
				return out
			}
			out = append(out, v.asValue(w.usual[s][i]))
		}
	}
	return out
}

func (v *value) asValue(usual float64) Value {
	e := Value{Round: v.round, Group: v.group, Value: math.Exp(v.x), Usual: math.Exp(usual), Resent: v.resent}
	if v.from > v.to {
		e.Group = []int{v.group[1], v.group[0]}
	}
	return e
}
