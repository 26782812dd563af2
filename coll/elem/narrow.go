package elem

// The portable loops of 16-bit floats widen a block to float32, compute, and
// narrow it.

// block is how many elements they process at once: the scratch memory is on the stack.
const block = 128

// blocks calls f for byte ranges of at most a block of elements.
func blocks(n, size int, f func(off, end int)) {
	for off := 0; off < n; off += block * size {
		f(off, min(off+block*size, n))
	}
}

func checkLengths(t Type, dst, a, b []byte) {
	if len(a) != len(dst) || len(b) != len(dst) || len(dst)%t.Size() != 0 {
		badLength()
	}
}

func narrows(t Type) loops {
	l := loops{scale: scaleNarrow(t), scaled: scaledNarrow(t)}
	for op := range numOps {
		l.reduce[op] = func(dst, a, b []byte) {
			checkLengths(t, dst, a, b)
			var x, y [block]float32
			blocks(len(dst), t.Size(), func(off, end int) {
				n := (end - off) / t.Size()
				widen(t, x[:n], a[off:end])
				widen(t, y[:n], b[off:end])
				apply(op, x[:n], x[:n], y[:n])
				narrow(t, dst[off:end], x[:n])
			})
		}
	}
	return l
}

// multiply multiplies and rounds to t, in place.
func multiply(t Type, x []float32, s float32) {
	var scratch [block * 2]byte
	for i := range x {
		x[i] *= s
	}
	narrow(t, scratch[:], x)
	widen(t, x, scratch[:])
}

// multiplier converts a multiplier of type t.
func multiplier(t Type, scale uint64) float32 {
	var s [1]float32
	widen(t, s[:], []byte{byte(scale), byte(scale >> 8)})
	return s[0]
}

func scaleNarrow(t Type) func(dst, a []byte, scale uint64) {
	return func(dst, a []byte, scale uint64) {
		checkLengths(t, dst, a, a)
		s := multiplier(t, scale)
		var x [block]float32
		blocks(len(dst), t.Size(), func(off, end int) {
			n := (end - off) / t.Size()
			widen(t, x[:n], a[off:end])
			for i := range x[:n] {
				x[i] *= s
			}
			narrow(t, dst[off:end], x[:n])
		})
	}
}

func scaledNarrow(t Type) func(dst, a, b []byte, scale uint64) {
	return func(dst, a, b []byte, scale uint64) {
		checkLengths(t, dst, a, b)
		s := multiplier(t, scale)
		var x, y [block]float32
		blocks(len(dst), t.Size(), func(off, end int) {
			n := (end - off) / t.Size()
			widen(t, x[:n], a[off:end])
			widen(t, y[:n], b[off:end])
			multiply(t, y[:n], s)
			apply(Sum, x[:n], x[:n], y[:n])
			narrow(t, dst[off:end], x[:n])
		})
	}
}
