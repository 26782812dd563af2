package schedule

import (
	"math/bits"
)

// A value stands for the content of a block while a schedule is checked. sum
// adds up a random-looking number for each contribution (what rank r had in
// block b of its input), so that it tells which contributions are in, and how
// often, whatever the order in which they were added. tree is a hash of the
// expression that made the value, where a op b equals b op a, as it does
// bitwise for every reduction: equal trees are equal bits. Two different
// multisets or expressions look alike with probability 2^-64. The zero value
// is memory that nobody has written.
type value struct{ sum, tree uint64 }

// mix is the finalizer of SplitMix64 (Steele, Lea, Flood 2014).
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// leaf is block b of rank r's input.
func leaf(r, b int) value {
	k := mix(mix(uint64(r))+uint64(b)) | 1
	return value{k, k}
}

// reduce is a op b.
func reduce(a, b value) value {
	lo, hi := min(a.tree, b.tree), max(a.tree, b.tree)
	return value{a.sum + b.sum, mix(lo^bits.RotateLeft64(mix(hi), 17)) | 1}
}

// InputBlocks is how many blocks a rank's Input has; 0 where it is not read.
func (s *Schedule) InputBlocks(rank int) int {
	parts, _ := s.Collective.Parts(rank, s.Root, s.Ranks)
	return parts * s.perPart()
}

// OutputBlocks is how many blocks a rank's Output has; 0 where it is not
// written.
func (s *Schedule) OutputBlocks(rank int) int {
	_, parts := s.Collective.Parts(rank, s.Root, s.Ranks)
	return parts * s.perPart()
}

// perPart is how many blocks a part of a buffer has: a vector is cut into blocks,
// which may then differ in length.
func (s *Schedule) perPart() int {
	if s.Collective.Vector() {
		return s.Blocks
	}
	return 1
}

// overlay says where Input and Output of a rank start when they share memory,
// and ok whether the collective may be in place at all.
func (s *Schedule) overlay(rank int) (input, output int, ok bool) {
	if s.Collective.Rooted() && rank != s.Root { // it has but one of them
		return 0, 0, true
	}
	return s.Collective.InPlace(rank)
}
