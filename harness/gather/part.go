package gather

import (
	"fmt"
	"slices"
)

// A packedSummary is a summary of some ranks, as sent.
type packedSummary struct {
	Covers  [][2]int // from, to: the ranks that it counts
	Summary *Summary
	sent    []byte // the encoded part, instead of Summary while it waits: a third of the memory
}

// pack replaces the summary with the bytes that it was read from.
func (p *packedSummary) pack(b []byte) { p.Summary, p.sent = nil, b }

// summary returns a part's summary, packed or not.
func (p *packedSummary) summary() *Summary {
	if p.Summary != nil {
		return p.Summary
	}
	q, err := decode(p.sent)
	if err != nil {
		panic(fmt.Sprintf("gather: a part that was read before is read again: %v", err))
	}
	return q.Summary
}

// ranges converts sorted ranks to ranges.
func ranges(ranks []int) (out [][2]int) {
	for _, r := range ranks {
		if n := len(out); n > 0 && out[n-1][1] == r-1 {
			out[n-1][1] = r
		} else {
			out = append(out, [2]int{r, r})
		}
	}
	return out
}

// ranks returns the ranks that a part covers.
func (p *packedSummary) ranks() (out []int) {
	for _, c := range p.Covers {
		for r := c[0]; r <= c[1]; r++ {
			out = append(out, r)
		}
	}
	return out
}

// decodePart reads a part that a rank under top sent.
func decodePart(b []byte, top, size, fanout int) (*packedSummary, error) {
	p, err := decode(b)
	if err != nil {
		return nil, err
	}
	last, n := -1, 0
	for _, c := range p.Covers {
		if c[0] <= last || c[1] < c[0] || c[1] >= size {
			return nil, fmt.Errorf("it covers ranks %d to %d of %d", c[0], c[1], size)
		}
		last, n = c[1], n+c[1]-c[0]+1
	}
	for _, r := range p.ranks() {
		if r == 0 || !under(r, top, fanout) {
			return nil, fmt.Errorf("it covers rank %d, which is not under rank %d", r, top)
		}
	}
	for _, m := range p.Summary.Missing {
		if m.Rank < 1 || m.Rank >= size || !under(m.Rank, top, fanout) {
			return nil, fmt.Errorf("it misses rank %d, which is not under rank %d", m.Rank, top)
		}
	}
	if n != p.Summary.Ranks {
		return nil, fmt.Errorf("it covers %d ranks and counts %d", n, p.Summary.Ranks)
	}
	return p, p.Summary.validate()
}

// merge makes one part of several parts and this rank's own summary. missing returns the reason
// for a rank of the subtree that no part mentions.
func merge(rank int, own *Summary, parts []*packedSummary, subtree []int, missing func(rank int) Missing) *packedSummary {
	if len(subtree) == 0 { // nothing is added: own need not be copied
		return &packedSummary{Covers: [][2]int{{rank, rank}}, Summary: own}
	}
	out := &Summary{}
	out.Merge(own)
	ranks := []int{rank}
	known := map[int]Missing{}
	for _, p := range parts {
		sum := p.summary()
		for _, m := range sum.Missing {
			if _, ok := known[m.Rank]; !ok {
				known[m.Rank] = m
			}
		}
		out.Merge(sum)
		ranks = append(ranks, p.ranks()...)
	}
	slices.Sort(ranks)
	out.Missing = nil
	for _, r := range subtree {
		if _, ok := slices.BinarySearch(ranks, r); ok {
			continue
		}
		m, ok := known[r]
		if !ok {
			m = missing(r)
		}
		out.Missing = append(out.Missing, m)
	}
	return &packedSummary{Covers: ranges(ranks), Summary: out}
}
