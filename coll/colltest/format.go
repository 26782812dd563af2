package colltest

import (
	"github.com/assay-hpc/assay/coll/elem"
	"github.com/assay-hpc/assay/coll/model"
)

// What floats are, by the model, which shares no code with the engine.

func precision(t elem.Type) int                { return model.Type(t).Precision() }
func round(t elem.Type, x float64) uint64      { return model.Type(t).Round(x) }
func toFloat(t elem.Type, bits uint64) float64 { return model.Type(t).Number(bits) }
func exact(t elem.Type, x float64) uint64      { return model.Type(t).Exact(x) }

// store writes element i.
func store(t elem.Type, p []byte, i int, bits uint64) { elem.AppendBits(p[:i*t.Size()], t, bits) }

// Fold computes dst[i] = ((srcs[0][i] op srcs[1][i]) op srcs[2][i]) …, like an engine that has
// all sources available: sums and products of 16- and 8-bit floats are accumulated in float32,
// and rounded once. A single source is copied.
func Fold(t elem.Type, op elem.Op, dst []byte, srcs [][]byte) {
	if copy(dst, srcs[0]); len(srcs) == 1 {
		return
	}
	size := t.Size()
	if !t.Float() || size > 2 || op == elem.Max || op == elem.Min {
		for _, s := range srcs[1:] {
			elem.Reduce(t, op, dst, dst, s)
		}
		return
	}
	one := make([]byte, size)
	store(t, one, 0, exact(t, 1))
	parallel(len(dst)/size, func(from, to int) {
		for at := from * size; at < to*size; at += size {
			acc := float32(elem.Float(t, srcs[0][at:]))
			for _, s := range srcs[1:] {
				if x := float32(elem.Float(t, s[at:])); op == elem.Prod {
					acc *= x
				} else {
					acc += x
				}
			}
			elem.Scale(t, dst[at:at+size], one, float64(acc)) // rounds
		}
	})
}
