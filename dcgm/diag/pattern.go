package diag

import (
	"bytes"
	"encoding/binary"
	"fmt"
)

// A Pattern is what memory is filled with, as in ptx/memory.h.
type Pattern struct {
	Name string
	Kind PatternKind
	Seed uint64
}

// PatternKind says how a word follows from its address.
type PatternKind uint8

// The kinds.
const (
	Constant    PatternKind = iota // Seed
	WalkingOne                     // one bit, one place further in each word of 8 bytes; Seed places further in all
	WalkingZero                    // the complement
	Address                        // the address, in turns with its complement
	Random                         // a hash of the address
)

// inverse is the pattern's complement; a random one has none.
func (p Pattern) inverse() (Pattern, bool) {
	q := p
	switch p.Kind {
	case Constant:
		q.Seed = ^p.Seed
	case WalkingOne:
		q.Kind = WalkingZero
	case WalkingZero:
		q.Kind = WalkingOne
	case Address:
		q.Seed = 1 ^ p.Seed
	default:
		return p, false
	}
	return q, true
}

// constants are DCGM's four.
func constants() (out []Pattern) {
	for _, b := range []uint64{0x00, 0xff, 0xaa, 0x55} {
		out = append(out, Pattern{fmt.Sprintf("0x%02X", b), Constant, b * 0x0101010101010101})
	}
	return out
}

// patterns are all that a pass over memory writes and verifies: constants, every
// bit walked through so many places, addresses, and random words.
func patterns(walks int, seed uint64) []Pattern {
	out := constants()
	for i := range walks {
		at := uint64(i)
		out = append(out, Pattern{fmt.Sprintf("walking ones %d", i), WalkingOne, at}, Pattern{fmt.Sprintf("walking zeros %d", i), WalkingZero, at})
	}
	return append(out,
		Pattern{"own address", Address, 0}, Pattern{"own address, inverted", Address, 1},
		Pattern{"random", Random, seed}, Pattern{"random, again", Random, ^seed})
}

// kept is how many miscompares a kernel keeps.
const kept = 16

// Miscompares are words of 8 bytes that were not as expected.
type Miscompares struct {
	Count uint64
	Bits  uint64 // that were wrong in any of them
	First []Miscompare
}

// A Miscompare is one of them.
type Miscompare struct{ At, Expected, Found uint64 }

func (m Miscompare) String() string {
	return fmt.Sprintf("at %#x expected %#016x, found %#016x", m.At, m.Expected, m.Found)
}

// add joins what another pass found.
func (m *Miscompares) add(o Miscompares) {
	m.Count += o.Count
	m.Bits |= o.Bits
	m.First = append(m.First, o.First[:min(len(o.First), kept-len(m.First))]...)
}

// miscompareBytes is the size of Miscompares in memory.h.
const miscompareBytes = 16 + kept*24

// parseMiscompares reads what the kernel left.
func parseMiscompares(b []byte) (Miscompares, error) {
	var raw struct {
		Count, Bits uint64
		Kept        [kept]Miscompare
	}
	if err := binary.Read(bytes.NewReader(b), binary.LittleEndian, &raw); err != nil {
		return Miscompares{}, fmt.Errorf("what the verifying kernel left: %w", err)
	}
	m := Miscompares{Count: raw.Count, Bits: raw.Bits}
	m.First = append(m.First, raw.Kept[:min(raw.Count, kept)]...)
	return m, nil
}
