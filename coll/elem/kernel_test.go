package elem

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
)

// A set is the package's loops; implementations are all that this machine can
// run.
type set struct {
	name  string
	loops [numTypes]loops
}

func implementations() []set {
	return []set{{"portable", portable}, {"used", used}}
}

// use makes them those of the package, until the result is called.
func (l set) use() (restore func()) {
	before := used
	used = l.loops
	return func() { used = before }
}

// distinctOps leaves out Avg, which is Sum here (TestSpecial has a case).
var distinctOps = []Op{Sum, Prod, Max, Min}

// each runs f for every implementation and type.
func each(t *testing.T, f func(t *testing.T, r *rand.Rand, l set, ty Type)) {
	for _, l := range implementations() {
		for _, ty := range Types {
			t.Run(fmt.Sprintf("%s/%v", l.name, ty), func(t *testing.T) {
				f(t, rand.New(rand.NewPCG(uint64(ty), 1)), l, ty)
			})
		}
	}
}

// guarded is memory at any alignment with bytes on either side that nothing
// may write.
type guarded struct {
	all []byte
	off int
	b   []byte
}

const guard = 64

func newGuarded(r *rand.Rand, n int) guarded {
	all := bytes.Repeat([]byte{0xa5}, n+3*guard)
	off := guard + r.IntN(guard)
	return guarded{all, off, all[off : off+n : off+n]}
}

func (g guarded) check(t *testing.T) {
	t.Helper()
	for i, v := range g.all {
		if (i < g.off || i >= g.off+len(g.b)) && v != 0xa5 {
			t.Fatalf("wrote at %d, outside dst[:%d]", i-g.off, len(g.b))
		}
	}
}

// check compares got with what want says of every element.
func check(t *testing.T, what string, ty Type, got []byte, want func(i int) uint64) {
	t.Helper()
	mask := ^uint64(0) >> (64 - 8*ty.Size())
	for i := range len(got) / ty.Size() {
		if g, w := get(ty, got, i), want(i)&mask; g != w {
			t.Fatalf("%s: element %d of %d: got %#x, want %#x", what, i, len(got)/ty.Size(), g, w)
		}
	}
}

func clone(b []byte) []byte { return append([]byte(nil), b...) }

// elements are the lengths to test: all short ones, and some that reach
// into every loop several times.
func elements(ty Type) (n []int) {
	for i := range 80/ty.Size() + 20 {
		n = append(n, i)
	}
	step := 1
	if testing.Short() {
		step = 7
	}
	for i := len(n); i < 400; i += step {
		n = append(n, i)
	}
	return append(n, 1021)
}

func TestReduce(t *testing.T) {
	each(t, func(t *testing.T, r *rand.Rand, l set, ty Type) {
		for _, op := range distinctOps {
			for _, n := range elements(ty) {
				size := n * ty.Size()
				dst, x, y := newGuarded(r, size), newGuarded(r, size), newGuarded(r, size)
				fill(r, ty, x.b)
				fill(r, ty, y.b)
				a, b := clone(x.b), clone(y.b)
				what := fmt.Sprintf("%v of %d", op, n)
				want := func(i int) uint64 { return reduceRef(ty, op, get(ty, a, i), get(ty, b, i)) }
				l.loops[ty].reduce[op](dst.b, x.b, y.b)
				check(t, what, ty, dst.b, want)
				dst.check(t)
				expect := clone(dst.b)
				l.loops[ty].reduce[op](x.b, x.b, y.b)
				if !bytes.Equal(x.b, expect) {
					t.Fatalf("%s: dst = a differs from dst apart", what)
				}
				copy(x.b, a)
				l.loops[ty].reduce[op](y.b, x.b, y.b)
				if !bytes.Equal(y.b, expect) {
					t.Fatalf("%s: dst = b differs from dst apart", what)
				}
				l.loops[ty].reduce[op](x.b, x.b, x.b)
				check(t, what+", all one", ty, x.b, func(i int) uint64 { return reduceRef(ty, op, get(ty, a, i), get(ty, a, i)) })
				x.check(t)
				y.check(t)
			}
		}
	})
}

// TestKernelNT compares with the ordinary loops: lengths about the least that
// streams, all alignments, in place.
func TestKernelNT(t *testing.T) {
	const least = 16 << 10
	r := rand.New(rand.NewPCG(9, 9))
	for _, ty := range Types {
		size := ty.Size()
		x, y := make([]byte, least+256+64), make([]byte, least+256+64)
		fill(r, ty, x)
		fill(r, ty, y)
		for _, op := range []Op{Sum, Avg, Max} {
			for i := range 32 {
				n := least + (i-2)*size
				a, b := x[i:i+n], y[i*7%64:i*7%64+n]
				want := make([]byte, n)
				Reduce(ty, op, want, a, b)
				dst := newGuarded(r, n)
				KernelNT(ty, op)(dst.b, a, b)
				if !bytes.Equal(dst.b, want) {
					t.Fatalf("%v %v of %d bytes differs from KernelOf", ty, op, n)
				}
				dst.check(t)
				copy(dst.b, b)
				KernelNT(ty, op)(dst.b, a, dst.b)
				if !bytes.Equal(dst.b, want) {
					t.Fatalf("%v %v of %d bytes in place differs from KernelOf", ty, op, n)
				}
			}
		}
	}
}

// TestReducePairs tries every pair of 8-bit elements.
func TestReducePairs(t *testing.T) {
	a, b, dst := make([]byte, 1<<16), make([]byte, 1<<16), make([]byte, 1<<16)
	for i := range a {
		a[i], b[i] = byte(i>>8), byte(i)
	}
	each(t, func(t *testing.T, _ *rand.Rand, l set, ty Type) {
		if ty.Size() != 1 {
			return
		}
		for _, op := range distinctOps {
			l.loops[ty].reduce[op](dst, a, b)
			check(t, op.String(), ty, dst, func(i int) uint64 { return reduceRef(ty, op, uint64(a[i]), uint64(b[i])) })
		}
	})
}

// TestReduceSweep tries every 16-bit pattern against others of all kinds.
func TestReduceSweep(t *testing.T) {
	n := 1 << 16
	a, b, dst := make([]byte, 2*n), make([]byte, 2*n), make([]byte, 2*n)
	each(t, func(t *testing.T, r *rand.Rand, l set, ty Type) {
		if ty.Size() != 2 {
			return
		}
		for i := range n {
			put(ty, a, i, uint64(i))
		}
		rounds := 1
		if !testing.Short() {
			rounds = 20
		}
		for range rounds {
			fill(r, ty, b)
			for _, op := range distinctOps {
				l.loops[ty].reduce[op](dst, a, b)
				check(t, op.String(), ty, dst, func(i int) uint64 { return reduceRef(ty, op, get(ty, a, i), get(ty, b, i)) })
			}
		}
	})
}

// TestSpecial states what Reduce promises of special values, by number.
func TestSpecial(t *testing.T) {
	const f16, f32, f64, e4m3, e5m2 = Float16, Float32, Float64, Float8E4M3, Float8E5M2
	for _, tt := range []struct {
		ty         Type
		op         Op
		a, b, want uint64
	}{
		{Int8, Sum, 127, 1, 0x80},
		{Int8, Avg, 127, 1, 0x80},
		{Float16, Avg, 0x3c00, 0x3c00, 0x4000},
		{Uint64, Prod, 1 << 63, 2, 0},
		{Int64, Max, 1 << 63, 1, 1},
		{Uint64, Max, 1 << 63, 1, 1 << 63},
		{f32, Max, 0xffc00001, 0x3f800000, 0x3f800000}, // a number wins over a NaN
		{f32, Max, 0x3f800000, 0x7fc00001, 0x3f800000},
		{f32, Min, 0x7fc00001, 0xff800000, 0xff800000},
		{f32, Max, 0xffc00001, 0x7f800001, 0x7fffffff}, // both: the one NaN
		{f32, Max, 0x80000000, 0, 0},                   // -0 < +0
		{f32, Max, 0, 0x80000000, 0},
		{f32, Min, 0, 0x80000000, 0x80000000},
		{f32, Min, 0x80000000, 0, 0x80000000},
		{f32, Sum, 0x7f800000, 0xff800000, 0x7fffffff}, // inf - inf
		{f32, Prod, 0xffc00001, 0x3f800000, 0x7fffffff},
		{f32, Sum, 1, 1, 2}, // subnormal numbers are kept
		{f64, Sum, 0x7ff0000000000000, 0xfff0000000000000, 0x7fffffffffffffff},
		{f64, Min, 0, 1 << 63, 1 << 63},
		{f16, Sum, 0x7bff, 0x4c00, 0x7c00}, // 65504 + 16 is halfway to 65536: infinity
		{f16, Sum, 0x7bff, 0x4bff, 0x7bff},
		{f16, Sum, 0x3c00, 0x1000, 0x3c00}, // 1 + 2^-11: the tie goes to even
		{f16, Sum, 0x3c01, 0x1000, 0x3c02},
		{f16, Max, 0x7e01, 0xfe00, 0x7fff},
		{BFloat16, Sum, 0x7f80, 0xff80, 0x7fff},
		{BFloat16, Sum, 0x3f80, 0x3b80, 0x3f80}, // 1 + 2^-8
		{e4m3, Sum, 0x7e, 0x7e, 0x7e},           // 448 + 448 stops at 448
		{e4m3, Prod, 0xfe, 0x7e, 0xfe},
		{e4m3, Sum, 0xff, 0x00, 0x7f},
		{e4m3, Max, 0xff, 0x80, 0x80},
		{e5m2, Sum, 0x7b, 0x7b, 0x7b}, // 57344
		{e5m2, Sum, 0x7c, 0x00, 0x7b}, // infinity too becomes finite
		{e5m2, Sum, 0x7c, 0xfc, 0x7f},
	} {
		for _, l := range implementations() {
			size := tt.ty.Size()
			dst, a, b := make([]byte, size), make([]byte, size), make([]byte, size)
			put(tt.ty, a, 0, tt.a)
			put(tt.ty, b, 0, tt.b)
			l.loops[tt.ty].reduce[tt.op](dst, a, b)
			if got := get(tt.ty, dst, 0); got != tt.want {
				t.Errorf("%s: %v %v(%#x, %#x) = %#x; want %#x", l.name, tt.ty, tt.op, tt.a, tt.b, got, tt.want)
			}
		}
	}
}

func TestMisuse(t *testing.T) {
	eight, four := make([]byte, 8), make([]byte, 4)
	for name, f := range map[string]func(){
		"a short":      func() { Reduce(Float32, Sum, eight, four, eight) },
		"b short":      func() { Reduce(Float32, Sum, eight, eight, four) },
		"b long":       func() { Reduce(Int8, Max, four, four, eight) },
		"part":         func() { Reduce(Float64, Sum, four, four, four) },
		"scale part":   func() { Scale(Float16, four[:3], four[:3], 2) },
		"scale short":  func() { Scale(Float16, eight, four, 2) },
		"scaled short": func() { ReduceScaled(Float16, eight, eight, four, 2) },
		"no type":      func() { KernelOf(numTypes, Sum) },
		"no op":        func() { KernelOf(Int8, numOps) },
		"divide float": func() { Divide(Float32, eight, 2) },
		"divide by 0":  func() { Divide(Int32, eight, 0) },
		"divide part":  func() { Divide(Int64, four, 2) },
		"copy short":   func() { Copy(eight, four) },
		"copynt short": func() { CopyNT(eight, four) },
		"nt short":     func() { KernelNT(Int32, Sum)(make([]byte, 1<<20), make([]byte, 1<<20), four) },
		"nt part":      func() { KernelNT(Int32, Sum)(make([]byte, 1<<20+1), make([]byte, 1<<20+1), make([]byte, 1<<20+1)) },
	} {
		for _, l := range implementations() {
			func() {
				defer l.use()()
				defer func() {
					if recover() == nil {
						t.Errorf("%s, %s: no panic", l.name, name)
					}
				}()
				f()
			}()
		}
	}
}

func TestNoAllocations(t *testing.T) {
	a, b, c := make([]byte, 4096), make([]byte, 4096), make([]byte, 4096)
	for _, ty := range Types {
		k := KernelOf(ty, Sum)
		if n := testing.AllocsPerRun(10, func() {
			k(a, a, b)
			Reduce(ty, Max, a, b, c)
			ReduceScaled(ty, a, b, c, 0.25)
			Scale(ty, a, b, 3)
			Copy(a, b)
		}); n != 0 {
			t.Errorf("%v: %v allocations", ty, n)
		}
	}
}

func FuzzReduce(f *testing.F) {
	f.Add(byte(Float16), byte(Sum), byte(3), []byte("some elements, and some more"))
	f.Add(byte(Float8E4M3), byte(Prod), byte(0), bytes.Repeat([]byte{0x7f, 0x81, 8, 0xff}, 9))
	f.Add(byte(Float64), byte(Min), byte(1), bytes.Repeat([]byte{0, 0, 0, 0, 0, 0, 0xf0, 0x7f, 1, 0, 0, 0, 0, 0, 0, 0x80}, 9))
	f.Fuzz(func(t *testing.T, ty, op, shift byte, data []byte) {
		typ, o := Type(ty%byte(numTypes)), Op(op%byte(numOps))
		n := len(data) / 2 / typ.Size() * typ.Size()
		off := min(int(shift), len(data)-2*n)
		a, b := data[off:off+n], data[len(data)-n:]
		want, got := make([]byte, n), make([]byte, n)
		portable[typ].reduce[o](want, a, b)
		used[typ].reduce[o](got, a, b)
		if !bytes.Equal(got, want) {
			t.Fatalf("%v %v of %x and %x: got %x, want %x", typ, o, a, b, got, want)
		}
		s := math.Float64frombits(get(Float64, append(clone(data), make([]byte, 8)...), 0))
		portable[typ].scaled(want, a, b, repeat(typ, s))
		used[typ].scaled(got, a, b, repeat(typ, s))
		if !bytes.Equal(got, want) {
			t.Fatalf("%v of %x + %v * %x: got %x, want %x", typ, a, s, b, got, want)
		}
	})
}
