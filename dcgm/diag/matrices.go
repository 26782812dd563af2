package diag

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
)

// A shape is the shape of a kernel's product: rows and columns of the result, each element of which
// is a sum of k terms.
type shape struct{ rows, columns, k int }

func (s shape) flops() float64 { return 2 * float64(s.rows) * float64(s.columns) * float64(s.k) }

// values returns a matrix with rows of k numbers, in row-major order. Exact ones are whole numbers,
// and so few and small that the sums of their products are exact in all kinds of arithmetic. The
// others are from -1 to 1, and use all bits that the kind has.
func values(rows, k int, seed uint64, exact bool) []float64 {
	out := make([]float64, rows*k)
	for i := range out {
		h := mix(seed, uint64(i))
		if exact {
			out[i] = float64(int64(h%17) - 8)
		} else {
			out[i] = float64(int64(h)) / (1 << 63)
		}
	}
	return out
}

// mix is the finalizer of SplitMix64, by Vigna.
func mix(seed, i uint64) uint64 {
	z := (seed + i) * 0x9e3779b97f4a7c15
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

// encode converts a matrix to the layout that the kernels of a kind need: 16-bit numbers in
// row-major order, wider ones in column-major order.
func encode(k productKind, m []float64, rows int) []byte {
	var b []byte
	columns := len(m) / rows
	if k == bf16 || k == fp16 {
		for _, v := range m {
			h := bfloat16(v)
			if k == fp16 {
				h = float16(v)
			}
			b = binary.LittleEndian.AppendUint16(b, h)
		}
		return b
	}
	for c := range columns {
		for r := range rows {
			if v := m[r*columns+c]; k == fp32 {
				b = binary.LittleEndian.AppendUint32(b, math.Float32bits(float32(v)))
			} else {
				b = binary.LittleEndian.AppendUint64(b, math.Float64bits(v))
			}
		}
	}
	return b
}

// bfloat16 truncates a number.
func bfloat16(v float64) uint16 { return uint16(math.Float32bits(float32(v)) >> 16) }

// float16 truncates a number of magnitude below 65536. A number too small for a normal float16
// becomes 0.
func float16(v float64) uint16 {
	b := math.Float32bits(float32(v))
	exponent := int(b>>23&0xff) - 127 + 15
	if exponent <= 0 {
		return uint16(b >> 16 & 0x8000)
	}
	return uint16(b>>16&0x8000) | uint16(exponent)<<10 | uint16(b>>13&0x3ff)
}

// mismatches counts the results that differ from the product of two matrices of whole numbers,
// multiplied by times.
func mismatches(k productKind, got []byte, s shape, a, b []float64, times int) (int, error) {
	wide := make([]float64, s.rows*s.columns)
	if k == fp64 {
		if err := binary.Read(bytes.NewReader(got), binary.LittleEndian, wide); err != nil {
			return 0, fmt.Errorf("a product's results: %w", err)
		}
	} else {
		narrow := make([]float32, len(wide))
		if err := binary.Read(bytes.NewReader(got), binary.LittleEndian, narrow); err != nil {
			return 0, fmt.Errorf("a product's results: %w", err)
		}
		for i, v := range narrow {
			wide[i] = float64(v)
		}
	}
	n := 0
	for r := range s.rows {
		for c := range s.columns {
			sum := 0.0
			for i := range s.k {
				sum += a[r*s.k+i] * b[c*s.k+i]
			}
			if wide[r*s.columns+c] != sum*float64(times) {
				n++
			}
		}
	}
	return n, nil
}
