package elem

import (
	"math"
	"unsafe"
)

// The portable loops run where there is no assembly, and are the reference in tests of
// the assembly.

var portable = [numTypes]loops{
	Int8:       integers[int8, int32](),
	Uint8:      integers[uint8, int32](),
	Int32:      integers[int32, int32](),
	Uint32:     integers[uint32, uint32](),
	Int64:      integers[int64, int64](),
	Uint64:     integers[uint64, uint64](),
	Float16:    narrows(Float16),
	Float32:    floats[float32](),
	Float64:    floats[float64](),
	BFloat16:   narrows(BFloat16),
	Float8E4M3: float8s(Float8E4M3),
	Float8E5M2: float8s(Float8E5M2),
}

// view reads memory as elements, at any alignment: the processors that this
// module runs on allow that.
func view[T any](b []byte) []T {
	var z T
	n := len(b) / int(unsafe.Sizeof(z))
	if n == 0 {
		return nil
	}
	return unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(b))), n)
}

// views checks a kernel's arguments and reads them as elements. The loops cut the inputs to
// dst's length once more, which spares them a check of each index.
func views[T any](dst, a, b []byte) (d, x, y []T) {
	var z T
	if len(a) != len(dst) || len(b) != len(dst) || len(dst)%int(unsafe.Sizeof(z)) != 0 {
		badLength()
	}
	return view[T](dst), view[T](a), view[T](b)
}

// reductions makes the loops of a type from one that has an operand for the reduction.
func reductions[T any](apply func(op Op, d, x, y []T)) (r [numOps]Kernel) {
	for op := range numOps {
		r[op] = func(dst, a, b []byte) {
			d, x, y := views[T](dst, a, b)
			apply(op, d, x, y)
		}
	}
	return r
}

type integer interface {
	int8 | uint8 | int32 | uint32 | int64 | uint64
}

// integers are the loops of T, whose elements are compared as W: the compiler selects from
// two values without a branch if they are wider than a byte.
func integers[T, W integer]() loops {
	return loops{reduce: reductions(applyInt[T, W]), scale: scaleInt[T], scaled: scaledInt[T]}
}

func applyInt[T, W integer](op Op, d, x, y []T) {
	x, y = x[:len(d)], y[:len(d)]
	switch op {
	case Sum, Avg:
		for i := range d {
			d[i] = x[i] + y[i]
		}
	case Prod:
		for i := range d {
			d[i] = x[i] * y[i]
		}
	case Max:
		for i := range d {
			d[i] = T(max(W(x[i]), W(y[i])))
		}
	case Min:
		for i := range d {
			d[i] = T(min(W(x[i]), W(y[i])))
		}
	}
}

func scaleInt[T integer](dst, a []byte, scale uint64) {
	d, x, _ := views[T](dst, a, a)
	x = x[:len(d)]
	for i := range d {
		d[i] = x[i] * T(scale)
	}
}

func scaledInt[T integer](dst, a, b []byte, scale uint64) {
	d, x, y := views[T](dst, a, b)
	x, y = x[:len(d)], y[:len(d)]
	for i := range d {
		d[i] = x[i] + y[i]*T(scale)
	}
}

type float interface{ float32 | float64 }

// canonical returns x, or the NaN that is stored for any NaN (see Reduce).
func canonical[T float](x T) T {
	if x == x {
		return x
	}
	if unsafe.Sizeof(x) == 4 {
		return T(math.Float32frombits(nan32))
	}
	return T(math.Float64frombits(nan64))
}

// maxNumber and minNumber: a number wins over a NaN. The built-in functions
// order -0 below +0.
func maxNumber[T float](x, y T) T {
	if x != x {
		return canonical(y)
	}
	if y != y {
		return x
	}
	return max(x, y)
}

func minNumber[T float](x, y T) T {
	if x != x {
		return canonical(y)
	}
	if y != y {
		return x
	}
	return min(x, y)
}

// apply computes d[i] = x[i] op y[i] in the precision of T.
func apply[T float](op Op, d, x, y []T) {
	x, y = x[:len(d)], y[:len(d)]
	switch op {
	case Sum, Avg:
		for i := range d {
			d[i] = canonical(x[i] + y[i])
		}
	case Prod:
		for i := range d {
			d[i] = canonical(x[i] * y[i])
		}
	case Max:
		for i := range d {
			d[i] = maxNumber(x[i], y[i])
		}
	case Min:
		for i := range d {
			d[i] = minNumber(x[i], y[i])
		}
	}
}

func floats[T float]() loops {
	return loops{reduce: reductions(apply[T]), scale: scaleFloat[T], scaled: scaledFloat[T]}
}

// scaleOf converts a multiplier.
func scaleOf[T float](scale uint64) T {
	if unsafe.Sizeof(T(0)) == 4 {
		return T(math.Float32frombits(uint32(scale)))
	}
	return T(math.Float64frombits(scale))
}

func scaleFloat[T float](dst, a []byte, scale uint64) {
	d, x, _ := views[T](dst, a, a)
	x = x[:len(d)]
	s := scaleOf[T](scale)
	for i := range d {
		d[i] = canonical(x[i] * s)
	}
}

func scaledFloat[T float](dst, a, b []byte, scale uint64) {
	d, x, y := views[T](dst, a, b)
	x, y = x[:len(d)], y[:len(d)]
	s := scaleOf[T](scale)
	for i := range d {
		// The conversion prevents a fused multiply-add.
		d[i] = canonical(x[i] + T(y[i]*s))
	}
}
