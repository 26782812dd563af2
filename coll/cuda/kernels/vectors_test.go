package kernels

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/assay-hpc/assay/coll/colltest"
	"github.com/assay-hpc/assay/coll/elem"
)

// A kind is what is computed.
type kind uint32

const (
	reducing kind = iota
	scaling
	dividing
)

// A test is something to compute, and what package elem says that it is.
type test struct {
	name    string
	kind    kind
	t       elem.Type
	op      elem.Op
	factor  uint64
	divisor uint32
	srcs    [][]byte
	want    []byte
}

func tests(t elem.Type) []test {
	var all []test
	for _, v := range vectors(t) {
		for _, op := range elem.Ops[:elem.Avg] {
			c := test{kind: reducing, t: t, op: op, srcs: v.srcs, want: make([]byte, len(v.srcs[0]))}
			c.name = fmt.Sprintf("%v %v of %d, %s", t, op, len(v.srcs), v.name)
			colltest.Fold(t, op, c.want, v.srcs)
			all = append(all, c)
		}
	}
	src := vectors(t)[0].srcs[:1]
	for _, f := range factors {
		c := test{kind: scaling, t: t, factor: factorBits(t, f), srcs: src, want: make([]byte, len(src[0]))}
		c.name = fmt.Sprintf("%v times %v", t, f)
		elem.Scale(t, c.want, src[0], f)
		all = append(all, c)
	}
	for _, n := range []int{1, 2, 3, 5, 7, 8, 72, 1000} {
		c := test{kind: dividing, t: t, divisor: uint32(n), srcs: src, want: bytes.Clone(src[0])}
		c.name = fmt.Sprintf("%v by %d", t, n)
		if !t.Float() {
			elem.Divide(t, c.want, n)
		}
		all = append(all, c)
	}
	return all
}

// check reports the first element of a result that differs.
func (c *test) check(t *testing.T, got []byte) {
	t.Helper()
	size := c.t.Size()
	for off := 0; off < len(c.want); off += size {
		if g, w := got[off:off+size], c.want[off:off+size]; !bytes.Equal(g, w) {
			var in []string
			for _, s := range c.srcs {
				in = append(in, fmt.Sprintf("%x", s[off:off+size]))
			}
			t.Errorf("%s: of %v got %x; want %x", c.name, in, g, w)
			return
		}
	}
}

// A vector is an input of the reductions: sources of one length, a multiple of
// 16 bytes.
type vector struct {
	name string
	t    elem.Type
	srcs [][]byte
}

// vectors are those for a type: every pair of 8-bit patterns, every 16-bit
// pattern in each of several pairs, and for 1 to 8 sources patterns at random
// with special values strewn in.
func vectors(t elem.Type) []vector {
	r := rand.New(rand.NewPCG(uint64(t), 1))
	var v []vector
	switch t.Size() {
	case 1:
		a, b := make([]byte, 1<<16), make([]byte, 1<<16)
		for i := range a {
			a[i], b[i] = byte(i>>8), byte(i)
		}
		v = append(v, vector{"every pair", t, [][]byte{a, b}})
	case 2:
		for range 8 {
			v = append(v, vector{"every pattern", t, [][]byte{permuted16(r), permuted16(r)}})
		}
	}
	for n := 1; n <= 8; n++ {
		srcs := make([][]byte, n)
		for i := range srcs {
			srcs[i] = strewn(r, t, 16<<10)
		}
		v = append(v, vector{"random", t, srcs})
	}
	return v
}

// permuted16 has every 16-bit pattern once.
func permuted16(r *rand.Rand) []byte {
	step, start := r.Uint32()|1, r.Uint32()
	b := make([]byte, 2<<16)
	for i := range uint32(1 << 16) {
		binary.LittleEndian.PutUint16(b[2*i:], uint16(i*step+start))
	}
	return b
}

// strewn has random patterns, numbers of like size where patterns at random
// differ too much for sums to round, and special values.
func strewn(r *rand.Rand, t elem.Type, n int) []byte {
	b := make([]byte, n)
	size := t.Size()
	for off := 0; off < n; off += size {
		var w [8]byte
		switch kind := r.IntN(4); {
		case kind == 0:
			s := specials[t]
			binary.LittleEndian.PutUint64(w[:], s[r.IntN(len(s))])
			if r.IntN(2) == 0 {
				w[size-1] ^= 0x80
			}
		case kind == 1 && t.Float():
			x := math.Ldexp(r.Float64(), r.IntN(7)-3)
			elem.Scale(t, w[:size], one(t)[:size], x)
		default:
			binary.LittleEndian.PutUint64(w[:], r.Uint64())
		}
		copy(b[off:], w[:size])
	}
	return b
}

// one is the element 1.
func one(t elem.Type) []byte {
	b := make([]byte, 8)
	bits := uint64(1)
	if t.Float() {
		bits = specials[t][0]
	}
	binary.LittleEndian.PutUint64(b, bits)
	return b
}

// specials are patterns to try, without their negative counterparts. Of floats:
// 1, 0, the smallest and the largest subnormal number, the smallest normal one,
// the largest two, infinity, and NaNs.
var specials = [...][]uint64{
	elem.Int8:       {1, 0, 0x7f, 0x7e},
	elem.Uint8:      {1, 0, 0x7f, 0x7e},
	elem.Int32:      {1, 0, 0x7fffffff, 0xffff},
	elem.Uint32:     {1, 0, 0x7fffffff, 0xffff},
	elem.Int64:      {1, 0, 1<<63 - 1, 1<<32 - 1, 1 << 31},
	elem.Uint64:     {1, 0, 1<<63 - 1, 1<<32 - 1, 1 << 31},
	elem.Float16:    {0x3c00, 0, 1, 0x3ff, 0x400, 0x7bff, 0x7bfe, 0x7c00, 0x7c01, 0x7e00, 0x7fff},
	elem.Float32:    {0x3f800000, 0, 1, 0x7fffff, 0x800000, 0x7f7fffff, 0x7f7ffffe, 0x7f800000, 0x7f800001, 0x7fc00000, 0x7fffffff},
	elem.Float64:    {0x3ff << 52, 0, 1, 1<<52 - 1, 1 << 52, 0x7ff<<52 - 1, 0x7ff<<52 - 2, 0x7ff << 52, 0x7ff<<52 + 1, 0x7ff8 << 48, 1<<63 - 1},
	elem.BFloat16:   {0x3f80, 0, 1, 0x7f, 0x80, 0x7f7f, 0x7f7e, 0x7f80, 0x7f81, 0x7fc0, 0x7fff},
	elem.Float8E4M3: {0x38, 0, 1, 7, 8, 0x7e, 0x7d, 0x7f},
	elem.Float8E5M2: {0x3c, 0, 1, 3, 4, 0x7b, 0x7a, 0x7c, 0x7d, 0x7e, 0x7f},
}

// factors are what to scale by.
var factors = []float64{0, 1, -1, 0.5, 1.0 / 3, 0.25, 3, -7, 1e-3, 1e6, math.Inf(1), math.NaN()}

// factorBits is a factor as an element, repeated as the kernels do not need it
// to be: they take the low bytes.
func factorBits(t elem.Type, x float64) uint64 {
	b := make([]byte, 8)
	for i := range b {
		b[i] = 0xa5
	}
	elem.Scale(t, b[:t.Size()], one(t)[:t.Size()], x)
	return binary.LittleEndian.Uint64(b)
}
