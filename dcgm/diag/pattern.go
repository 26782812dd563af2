package diag

import (
	"bytes"
	"encoding/binary"
	"fmt"
)

// A memPattern is what memory is filled with, as in ptx/memory.h.
type memPattern struct {
	Name string
	Kind patternKind
	Seed uint64
}

// patternKind says how a word follows from its address.
type patternKind uint8

// The kinds.
const (
	constantWord patternKind = iota // Seed
	walkingOne                      // one bit, one place further in each word of 8 bytes; Seed places further in all
	walkingZero                     // the complement
	ownAddress                      // the address, in turns with its complement
	randomWords                     // a hash of the address
)

// inverse is the pattern's complement; a random one has none.
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

// constants are DCGM's four.
func constants() (out []memPattern) {
	for _, b := range []uint64{0x00, 0xff, 0xaa, 0x55} {
		out = append(out, memPattern{fmt.Sprintf("0x%02X", b), constantWord, b * 0x0101010101010101})
	}
	return out
}

// patterns are all that a pass over memory writes and verifies: constants, every
// bit walked through so many places, addresses, and random words.
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

// kept is how many miscompares a kernel keeps.
const kept = 16

// miscompares are words of 8 bytes that were not as expected.
type miscompares struct {
	Count uint64
	Bits  uint64 // that were wrong in any of them
	First []miscompare
}

// A miscompare is one of them.
type miscompare struct{ At, Expected, Found uint64 }

func (m miscompare) String() string {
	return fmt.Sprintf("at %#x expected %#016x, found %#016x", m.At, m.Expected, m.Found)
}

// add joins what another pass found.
func (m *miscompares) add(o miscompares) {
	m.Count += o.Count
	m.Bits |= o.Bits
	m.First = append(m.First, o.First[:min(len(o.First), kept-len(m.First))]...)
}

// miscompareBytes is the size of Miscompares in memory.h.
const miscompareBytes = 16 + kept*24

// parseMiscompares reads what the kernel left.
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
