package wire

import (
	"encoding/binary"
	"math"
)

// The usual causes of unexpected bytes.
const (
	hintNoGID     = "it sends records without a GID and this side with one: give both sides -x, or neither"
	hintGID       = "it sends records with a GID and this side without one: give both sides -x, or neither"
	hintReport    = "it has come to its report already: -q (number of QPs) or -b is not the same on both sides, or -a and -D"
	hintRecord    = "it sends an address record where its report was due: -q (number of QPs) or -b is not the same on both sides, or it runs another test"
	hintParams    = "it sends the parameter block of release 26.01.5 or later, which was not due: give both sides the same release"
	hintValidated = "it was started with --data_validation, which is not supported: leave that out"
	hintBye       = "it has taken leave already: -n, -q or the test itself is not the same on both sides"
)

// diagnose recognises what arrived instead of a message of the given size, possibly only in part.
// It returns nil if it does not recognise the bytes.
func diagnose(got []byte, want int) (hint string, kind error) {
	switch {
	case string(got) == string(bye):
		return hintBye, ErrMismatch
	case isReportWord(want): // a C server may send any bits here, so only certain cases count
		if len(got) == want && recordPrefix(got) {
			return hintRecord, ErrMismatch
		}
		return "", nil
	case foreign(got) != "":
		return "this is " + foreign(got), ErrGarbage
	case want == longRecord && len(got) >= shortRecord && isShort(got[:shortRecord]):
		return hintNoGID, ErrMismatch
	case want == longRecord && recordPrefix(got) && len(got) > validatedAt+16 && lowerHex(got[validatedAt:validatedAt+16]):
		return hintValidated, ErrMismatch
	case want == shortRecord && recordPrefix(got) && len(got) == want && got[gidAt+2] == ':':
		return hintGID, ErrMismatch
	case want == shortRecord && recordPrefix(got) && len(got) == want && lowerHex(got[validatedAt:validatedAt+8]):
		return hintValidated, ErrMismatch
	case isRecord(want) && paramsPrefix(got):
		return hintParams, ErrMismatch
	case isRecord(want) && reportPrefix(got):
		return hintReport, ErrMismatch
	}
	return "", nil
}

// The offset of a record's GID, where with --data_validation a second address is sent instead.
const (
	gidAt       = 5 + 5 + 7 + 7 + 9 + 17
	validatedAt = gidAt
)

func isRecord(n int) bool     { return n == longRecord || n == shortRecord }
func isReportWord(n int) bool { return n == 8 }

func isShort(b []byte) bool {
	_, err := parseAddress(b)
	return err == nil
}

// recordPrefix reports whether bytes begin like a record. The first seven or eight bytes are
// enough, since no plausible number looks like that.
func recordPrefix(b []byte) bool {
	return len(b) >= 8 && lowerHex(b[:4]) && b[4] == ':' && lowerHex(b[5:8])
}

// reportPrefix reports whether bytes begin like a report: a message size and a number of
// iterations, big-endian.
func reportPrefix(b []byte) bool {
	if len(b) < 8 {
		return false
	}
	size := binary.BigEndian.Uint64(b)
	return size >= 1 && size <= maxReportSize
}

// paramsPrefix reports whether bytes begin like the parameter block: small enumerations,
// big-endian.
func paramsPrefix(b []byte) bool {
	if len(b) < 32 {
		return false
	}
	for i, most := range []uint32{2, 6, 5, 1, 2, 1, 1, 0} {
		if binary.BigEndian.Uint32(b[4*i:]) > most {
			return false
		}
	}
	return true
}

func finite(v float64) bool { return !math.IsNaN(v) && !math.IsInf(v, 0) }
