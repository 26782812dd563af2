package diag

import (
	"bytes"
	"encoding/binary"
	"fmt"
)

// A memPattern is a pattern that memory is filled with, as in ptx/memory.h.
type memPattern struct {
	Name string
	Kind patternKind
	Seed uint64
}

// patternKind defines how a word is computed from its address.
type patternKind uint8

// Kinds of patterns.
const (
	constantWord patternKind = iota // Seed
	walkingOne                      // one bit, shifted by one place in each 8-byte word, and by Seed places in all
	walkingZero                     // the complement of walkingOne
	ownAddress                      // the address, alternating with its complement
	randomWords                     // a hash of the address
)

// inverse is the complement of the pattern; a random one has none.
func (p memPattern) inverse() (memPattern, bool) {
	q := p
	switch p.Kind {
	case constantWord:
		q.Seed = ^p.Seed
	case walkingOne:
		q.Kind = walkingZero
	case walkingZero:
		q.Kind = walkingOne
	case ownAddress:
		q.Seed = 1 ^ p.Seed
	default:
		return p, false
	}
	return q, true
}

// constants are the four constants that DCGM uses.
func constants() (out []memPattern) {
	for _, b := range []uint64{0x00, 0xff, 0xaa, 0x55} {
		out = append(out, memPattern{fmt.Sprintf("0x%02X", b), constantWord, b * 0x0101010101010101})
	}
	return out
}

// patterns returns all patterns that a pass over memory writes and verifies: constants, walking
// bits with the given number of places, addresses, and random words.
func patterns(walks int, seed uint64) []memPattern {
	out := constants()
	for i := range walks {
		at := uint64(i)
		out = append(out, memPattern{fmt.Sprintf("walking ones %d", i), walkingOne, at}, memPattern{fmt.Sprintf("walking zeros %d", i), walkingZero, at})
	}
	return append(out,
		memPattern{"own address", ownAddress, 0}, memPattern{"own address, inverted", ownAddress, 1},
		memPattern{"random", randomWords, seed}, memPattern{"random, again", randomWords, ^seed})
}

// kept is the number of miscompares that a kernel stores.
const kept = 16

// miscompares are 8-byte words that differ from the expected ones.
type miscompares struct {
	Count uint64
	Bits  uint64 // that were wrong in any word
	First []miscompare
}

// A miscompare is one wrong word.
type miscompare struct{ At, Expected, Found uint64 }

func (m miscompare) String() string {
	return fmt.Sprintf("at %#x expected %#016x, found %#016x", m.At, m.Expected, m.Found)
}

// add adds the miscompares of another pass.
func (m *miscompares) add(o miscompares) {
	m.Count += o.Count
	m.Bits |= o.Bits
	m.First = append(m.First, o.First[:min(len(o.First), kept-len(m.First))]...)
}

// miscompareBytes is the size of Miscompares in memory.h.
const miscompareBytes = 16 + kept*24

// parseMiscompares parses what the kernel stored.
func parseMiscompares(b []byte) (miscompares, error) {
	var raw struct {
		Count, Bits uint64
		Kept        [kept]miscompare
	}
	if err := binary.Read(bytes.NewReader(b), binary.LittleEndian, &raw); err != nil {
		return miscompares{}, fmt.Errorf("what the verifying kernel left: %w", err)
	}
	m := miscompares{Count: raw.Count, Bits: raw.Bits}
	m.First = append(m.First, raw.Kept[:min(raw.Count, kept)]...)
	return m, nil
}
