package schedule

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"

	"github.com/assay-hpc/assay/coll/op"
)

// content is what a block holds: how often what which rank had in which block.
type content map[[2]int]int

// runRef runs a schedule in the plainest way, with lanes taking turns at
// random and whole multisets for values: the oracle of Check. It reports a
// deadlock or a wrong result.
func runRef(s *Schedule, slots, windows int, inPlace bool, rng *rand.Rand) error {
	type key struct{ src, dst, channel int } // dst of a copy: each receiver has its own
	type lane struct {
		id, rank, window, pc int
		Lane
	}
	type message struct {
		data  Span
		parts []content
	}
	single, multi := make(map[key][]message), make(map[key][]message)
	memory := make([]map[[4]int]content, s.Ranks) // buffer, channel, window, block
	var lanes []*lane
	for r := range s.Ranks {
		memory[r] = make(map[[4]int]content)
		for _, l := range s.Program(r).Lanes {
			lanes = append(lanes, &lane{id: len(lanes), rank: r, Lane: l})
		}
	}
	cell := func(l *lane, ref Ref, i int32) [4]int {
		at := [4]int{int(ref.Buf), l.Channel, l.window, int(ref.First + i)}
		if ref.Buf == Scratch {
			at[1] = l.id // a lane's own
		}
		if a, b, ok := s.overlay(l.rank); inPlace && ok && ref.Buf != Scratch {
			at[0] = int(Output)
			if ref.Buf == Input {
				at[3] += a
			} else {
				at[3] += b
			}
		}
		return at
	}
	for _, l := range lanes {
		for l.window = range windows {
			for b := range s.InputBlocks(l.rank) {
				memory[l.rank][cell(l, Ref{Input, int32(b)}, 0)] = content{{l.rank, b}: 1}
			}
		}
		l.window = 0
	}
	// answer is what the network does when it has a message of each head.
	answer := func(channel int) {
		var heads []int
		for _, l := range lanes {
			if !slices.Contains(heads, l.rank) && slices.ContainsFunc(l.Steps, func(st Step) bool { return st.Send == Network }) {
				heads = append(heads, l.rank)
			}
		}
		var got [][]content
		for _, r := range heads {
			q := single[key{r, int(Network), channel}]
			if len(q) == 0 {
				return
			}
			got = append(got, q[0].parts)
		}
		for i, r := range heads {
			up, down := key{r, int(Network), channel}, key{int(Network), r, channel}
			single[up] = single[up][1:]
			single[down] = append(single[down], message{parts: networkRef(s.Collective, got, i)})
		}
	}
	step := func(l *lane) (bool, error) {
		st := l.Steps[l.pc]
		queue := single
		if st.Multi {
			queue = multi
		}
		from := key{int(st.Recv), l.rank, l.Channel}
		if st.Recv != Nobody && len(queue[from]) == 0 {
			return false, nil
		}
		var to []key
		room := single
		switch st.Send {
		case Nobody:
		case Everyone:
			room = multi
			for r := range s.Ranks {
				if r != l.rank {
					to = append(to, key{l.rank, r, l.Channel})
				}
			}
		default:
			to = []key{{l.rank, int(st.Send), l.Channel}}
		}
		for _, k := range to {
			used := len(room[k])
			if k.dst == int(Network) {
				used += len(room[key{k.dst, k.src, k.channel}])
			}
			if slots >= 0 && used >= slots {
				return false, nil
			}
		}
		parts := make([]content, st.Data.N)
		for i := range parts {
			parts[i] = content{}
			add := func(c content) {
				for k, n := range c {
					parts[i][k] += n
				}
			}
			for _, ref := range []Ref{st.A, st.B} {
				if ref.Buf != NoBuf {
					add(memory[l.rank][cell(l, ref, int32(i))])
				}
			}
			if st.Recv != Nobody {
				msg := queue[from][0]
				if i >= len(msg.parts) {
					return false, errors.New("message too short")
				}
				add(msg.parts[i])
			}
			if st.Dst.Buf != NoBuf {
				memory[l.rank][cell(l, st.Dst, int32(i))] = parts[i]
			}
		}
		if st.Recv != Nobody {
			queue[from] = queue[from][1:]
		}
		for _, k := range to {
			room[k] = append(room[k], message{data: st.Data, parts: parts})
		}
		if st.Send == Network {
			answer(l.Channel)
		}
		if l.pc++; l.pc == len(l.Steps) {
			l.pc, l.window = 0, l.window+1
		}
		return true, nil
	}
	for {
		moved, busy := false, false
		for _, i := range rng.Perm(len(lanes)) {
			for n := rng.IntN(4); n >= 0 && lanes[i].window < windows; n-- {
				busy = true
				ok, err := step(lanes[i])
				if err != nil {
					return err
				}
				moved = moved || ok
			}
		}
		if !busy {
			break
		}
		if !moved {
			return errors.New("deadlock")
		}
	}
	for _, q := range []map[key][]message{single, multi} {
		for k, msgs := range q {
			if len(msgs) > 0 {
				return fmt.Errorf("%d messages left from %d to %d", len(msgs), k.src, k.dst)
			}
		}
	}
	for r := range s.Ranks {
		for b := range s.OutputBlocks(r) {
			for c := range s.Channels {
				for w := range windows {
					got := memory[r][cell(&lane{rank: r, window: w, Lane: Lane{Channel: c}}, Ref{Output, int32(b)}, 0)]
					if want := wantRef(s, r, b); !maps.Equal(got, want) {
						return fmt.Errorf("rank %d, output block %d: got %v; want %v", r, b, got, want)
					}
				}
			}
		}
	}
	return nil
}

// networkRef is what the network tells the i-th head, by what heads told it.
func networkRef(c op.Collective, got [][]content, i int) []content {
	if c == op.AllGather {
		return slices.Concat(got...)
	}
	sums := make([]content, len(got[0]))
	for b := range sums {
		sums[b] = content{}
		for _, parts := range got {
			if b < len(parts) {
				for k, n := range parts[b] {
					sums[b][k] += n
				}
			}
		}
	}
	if c != op.ReduceScatter {
		return sums
	}
	per := len(sums) / len(got)
	return sums[i*per : (i+1)*per]
}

// wantRef is the definition of the collectives.
func wantRef(s *Schedule, rank, b int) content {
	all := content{}
	for r := range s.Ranks {
		i := b
		if s.Collective == op.ReduceScatter {
			i = rank
		}
		all[[2]int{r, i}] = 1
	}
	switch s.Collective {
	case op.AllReduce, op.Reduce, op.ReduceScatter:
		return all
	case op.Broadcast:
		return content{{s.Root, b}: 1}
	case op.AllGather, op.Gather:
		return content{{b, 0}: 1}
	case op.AllToAll:
		return content{{b, rank}: 1}
	case op.Scatter:
		return content{{s.Root, rank}: 1}
	}
	return content{{(rank + s.Ranks - 1) % s.Ranks, 0}: 1}
}
