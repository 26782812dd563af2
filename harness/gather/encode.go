package gather

import (
	"encoding/binary"
	"maps"
	"math"
	"slices"
	"sync"

	"github.com/assay-hpc/assay/internal/result"
	"github.com/assay-hpc/assay/internal/stat"
)

// A part is sent as
//
//	version 1 byte
//	strings   each once, in order of first use; the rest refers to them by number
//	covers    ranges of ranks: distance from the last one's end, length less one
//	summary   ranks, verdicts, checks by ascending id, missing ranks
//
// where numbers are varints of encoding/binary, floating-point numbers are 8 bytes, big endian,
// and lists are preceded by their length. The order of each list follows from its contents, so
// that equal parts have equal bytes.
const partVersion = 1

// verdicts in the order of their numbers on the wire, the worst first.
var verdicts = result.Verdicts()

// An encoder writes a part's body and collects its strings.
type encoder struct {
	body    []byte
	strings []string
	number  map[string]int
}

// encoders are reused: their buffers are several times as large as what they write.
var encoders = sync.Pool{New: func() any { return &encoder{number: map[string]int{}} }}

func (p *packedSummary) encode() []byte {
	e := encoders.Get().(*encoder)
	defer encoders.Put(e)
	e.body, e.strings = e.body[:0], e.strings[:0]
	clear(e.number)
	e.covers(p.Covers)
	e.summary(p.Summary)
	size := 1 + binary.MaxVarintLen64*(1+len(e.strings)) + len(e.body)
	for _, s := range e.strings {
		size += len(s)
	}
	out := append(make([]byte, 0, size), partVersion)
	out = binary.AppendUvarint(out, uint64(len(e.strings)))
	for _, s := range e.strings {
		out = binary.AppendUvarint(out, uint64(len(s)))
		out = append(out, s...)
	}
	return append(out, e.body...)
}

func (e *encoder) uint(n uint64) { e.body = binary.AppendUvarint(e.body, n) }

func (e *encoder) float(f float64) {
	e.body = binary.BigEndian.AppendUint64(e.body, math.Float64bits(f))
}

func (e *encoder) string(s string) {
	n, ok := e.number[s]
	if !ok {
		n = len(e.strings)
		e.number[s] = n
		e.strings = append(e.strings, s)
	}
	e.uint(uint64(n))
}

func (e *encoder) covers(list [][2]int) {
	e.uint(uint64(len(list)))
	last := -1
	for _, c := range list {
		e.uint(uint64(c[0] - last - 1))
		e.uint(uint64(c[1] - c[0]))
		last = c[1]
	}
}

func (e *encoder) summary(s *Summary) {
	e.uint(uint64(s.Ranks))
	e.verdicts(s.Verdicts)
	e.uint(uint64(len(s.Checks)))
	for _, id := range slices.Sorted(maps.Keys(s.Checks)) {
		e.string(id)
		e.check(s.Checks[id])
	}
	e.uint(uint64(len(s.Missing)))
	for _, m := range s.Missing {
		e.uint(uint64(m.Rank))
		e.string(m.Host)
		e.string(m.Reason)
	}
}

// verdicts writes a count for each verdict, 0 where there is none.
func (e *encoder) verdicts(n map[result.Verdict]int) {
	for _, v := range verdicts {
		e.uint(uint64(n[v]))
	}
}

func (e *encoder) check(c *Check) {
	e.verdicts(c.Verdicts)
	e.string(c.Unit)
	e.sketch(c.Values)
	e.uint(uint64(len(c.Worst)))
	for _, w := range c.Worst {
		e.uint(uint64(w.Rank))
		e.string(w.Node)
		e.string(w.Object)
		e.uint(uint64(severity(w.Verdict)))
		e.string(w.Reason)
		e.float(w.Value)
		e.float(w.Score)
	}
}

// sketch writes an empty sketch like nil, as a count of 0.
func (e *encoder) sketch(s *stat.Sketch) {
	if s == nil || s.Count == 0 {
		e.uint(0)
		return
	}
	e.uint(s.Count)
	e.float(s.Min)
	e.float(s.Max)
	e.uint(s.Zeros)
	e.uint(uint64(len(s.Buckets)))
	last := int64(math.MinInt32) - 1
	for _, k := range slices.Sorted(maps.Keys(s.Buckets)) {
		if last < math.MinInt32 {
			e.body = binary.AppendVarint(e.body, int64(k))
		} else {
			e.uint(uint64(int64(k) - last))
		}
		last = int64(k)
		e.uint(s.Buckets[k])
	}
}
