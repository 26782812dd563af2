package gather

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	"github.com/assay-hpc/assay/internal/result"
	"github.com/assay-hpc/assay/internal/stat"
)

// maxStrings allows two strings per missing rank, plus those of the checks.
const maxStrings = 4 * maxRanks

var errShort = errors.New("it ends too early")

// A decoder reads what an encoder wrote. It stores the first error, and returns zeros after it.
// It allocates in proportion to the bytes received, whatever lengths they claim.
type decoder struct {
	b       []byte
	strings []string
	err     error
}

func decode(b []byte) (*packedSummary, error) {
	if len(b) == 0 {
		return nil, errShort
	}
	if b[0] != partVersion {
		return nil, fmt.Errorf("a summary in format %d, and this program reads %d; run the same harness on all ranks", b[0], partVersion)
	}
	d := decoder{b: b[1:]}
	d.table()
	p := &packedSummary{Covers: d.covers(), Summary: d.summary()}
	if d.err == nil && len(d.b) > 0 {
		d.fail(fmt.Errorf("%d bytes too many", len(d.b)))
	}
	if d.err != nil {
		return nil, d.err
	}
	return p, nil
}

func (d *decoder) fail(err error) {
	if d.err == nil {
		d.err, d.b = err, nil
	}
}

func (d *decoder) uint() uint64 {
	n, k := binary.Uvarint(d.b)
	if k <= 0 {
		d.fail(errShort)
		return 0
	}
	d.b = d.b[k:]
	return n
}

// int reads a number that is at most limit.
func (d *decoder) int(limit int, what string) int {
	n := d.uint()
	if n > uint64(limit) {
		d.fail(fmt.Errorf("%d %s; at most %d are possible", n, what, limit))
		return 0
	}
	return int(n)
}

// len reads the length of a list with elements of at least each bytes.
func (d *decoder) len(limit, each int, what string) int {
	n := d.int(limit, what)
	if n*each > len(d.b) {
		d.fail(errShort)
		return 0
	}
	return n
}

func (d *decoder) float() float64 {
	if len(d.b) < 8 {
		d.fail(errShort)
		return 0
	}
	f := math.Float64frombits(binary.BigEndian.Uint64(d.b))
	d.b = d.b[8:]
	if math.IsNaN(f) || math.IsInf(f, 0) {
		d.fail(errors.New("a value that is not a number"))
		return 0
	}
	return f
}

// table reads the strings. They share one allocation, since a summary retains most of them or
// none.
func (d *decoder) table() {
	d.strings = make([]string, d.len(maxStrings, 1, "strings"))
	rest := d.b
	for range d.strings {
		n := d.len(maxSummary, 1, "bytes of a string")
		if d.err != nil {
			return
		}
		d.b = d.b[n:]
	}
	all, at := string(rest[:len(rest)-len(d.b)]), 0
	for i := range d.strings {
		n, k := binary.Uvarint(rest[at:])
		at += k
		d.strings[i] = all[at : at+int(n)]
		at += int(n)
	}
}

func (d *decoder) string() string {
	i := d.uint()
	if i >= uint64(len(d.strings)) {
		d.fail(fmt.Errorf("string %d of %d", i, len(d.strings)))
		return ""
	}
	return d.strings[i]
}

func (d *decoder) covers() [][2]int {
	list := make([][2]int, d.len(maxRanks, 2, "ranges of ranks"))
	last := -1
	for i := range list {
		from := last + 1 + d.int(maxRanks, "ranks between ranges")
		last = from + d.int(maxRanks, "ranks in a range")
		list[i] = [2]int{from, last}
	}
	return list
}

func (d *decoder) summary() *Summary {
	s := &Summary{Ranks: d.int(maxRanks, "ranks"), Verdicts: d.verdicts()}
	n := d.len(maxChecks, 1, "checks")
	s.Checks = make(map[string]*Check, n)
	last := ""
	for i := range n {
		id := d.string()
		if d.err != nil {
			return nil
		}
		if i > 0 && id <= last {
			d.fail(fmt.Errorf("check %q after %q", id, last))
			return nil
		}
		last = id
		s.Checks[id] = d.check()
	}
	if n := d.len(maxRanks, 3, "missing ranks"); n > 0 {
		s.Missing = make([]Missing, n)
	}
	for i := range s.Missing {
		s.Missing[i] = Missing{Rank: d.int(maxRanks, "as a rank"), Host: d.string(), Reason: d.string()}
	}
	return s
}

func (d *decoder) verdicts() map[result.Verdict]int {
	out := map[result.Verdict]int{}
	for _, v := range verdicts {
		if n := d.int(1<<40, "results of a verdict"); n > 0 {
			out[v] = n
		}
	}
	return out
}

func (d *decoder) check() *Check {
	c := &Check{Verdicts: d.verdicts(), Unit: d.string(), Values: d.sketch()}
	const least = 5 + 2*8 // bytes
	if n := d.len(worstKept, least, "of the worst results"); n > 0 {
		c.Worst = make([]Worst, n)
	}
	for i := range c.Worst {
		w := Worst{Rank: d.int(maxRanks, "as a rank"), Node: d.string(), Object: d.string()}
		if v := d.int(len(verdicts)-1, "as a verdict"); d.err == nil {
			w.Verdict = verdicts[v]
		}
		w.Reason = d.string()
		w.Value, w.Score = d.float(), d.float()
		c.Worst[i] = w
	}
	return c
}

func (d *decoder) sketch() *stat.Sketch {
	s := &stat.Sketch{Count: d.uint()}
	if s.Count == 0 {
		return nil
	}
	s.Min, s.Max, s.Zeros = d.float(), d.float(), d.uint()
	n := d.len(maxSummary, 2, "buckets")
	if n > 0 {
		s.Buckets = make(map[int32]uint64, n)
	}
	var key int64
	for i := range n {
		if i == 0 {
			k, w := binary.Varint(d.b)
			if w <= 0 {
				d.fail(errShort)
				return nil
			}
			key, d.b = k, d.b[w:]
		} else {
			key += int64(d.int(math.MaxUint32, "buckets apart"))
		}
		if key < math.MinInt32 || key > math.MaxInt32 {
			d.fail(fmt.Errorf("bucket %d", key))
			return nil
		}
		s.Buckets[int32(key)] += d.uint()
	}
	return s
}
