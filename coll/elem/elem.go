// Package elem defines the element types and the reductions of a collective: their names
// and sizes, and the loops that apply them to memory.
//
// The loops are the engine's hot path: no allocation, and for the types that are
// reduced on CPUs (int32, int64 and floats of 16 bits and more; the sums and products
// of uint32 and uint64 are theirs) vector instructions where the processor has them,
// chosen once, at start. Elsewhere, and for other types, they are plain Go. Both give the
// same bits. 16- and 8-bit floats are computed in float32 and rounded to nearest even
// when stored.
package elem

import "fmt"

// A Type is the type of an element. The values are those of ncclDataType_t.
type Type uint8

// The types, in the order of ncclDataType_t.
const (
	Int8 Type = iota
	Uint8
	Int32
	Uint32
	Int64
	Uint64
	Float16
	Float32
	Float64
	BFloat16
	Float8E4M3
	Float8E5M2
	numTypes
)

// Types contains all types, in the order in which nccl-tests walks them.
var Types = []Type{Int8, Uint8, Int32, Uint32, Int64, Uint64, Float16, Float32, Float64, BFloat16, Float8E4M3, Float8E5M2}

var typeNames = [numTypes]string{"int8", "uint8", "int32", "uint32", "int64", "uint64", "half", "float", "double", "bfloat16", "f8e4m3", "f8e5m2"}
var typeSizes = [numTypes]int{1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1}

// Valid reports whether t is one of the types above.
func (t Type) Valid() bool { return t < numTypes }

// Size returns the size of an element in bytes; 0 for an invalid type.
func (t Type) Size() int {
	if !t.Valid() {
		return 0
	}
	return typeSizes[t]
}

// String is the name that nccl-tests prints.
func (t Type) String() string {
	if !t.Valid() {
		return fmt.Sprintf("type(%d)", uint8(t))
	}
	return typeNames[t]
}

// Norms reports whether rows of the type can be normalized (op.Norm).
func (t Type) Norms() bool { return t == Float16 || t == BFloat16 || t == Float32 }

// Float reports whether t is a floating-point type, of any width.
func (t Type) Float() bool { return t >= Float16 && t < numTypes }

// Signed reports whether the type is an integer with a sign.
func (t Type) Signed() bool { return t == Int8 || t == Int32 || t == Int64 }

// ParseType returns the type with a name of nccl-tests.
func ParseType(s string) (Type, bool) {
	for i, n := range typeNames {
		if n == s {
			return Type(i), true
		}
	}
	return 0, false
}

// An Op is a reduction. The values are those of ncclRedOp_t.
type Op uint8

// The reductions, in the order of ncclRedOp_t.
const (
	Sum Op = iota
	Prod
	Max
	Min
	// Avg of floats multiplies each rank's input by 1/n and sums; Avg of integers sums
	// and divides, truncating.
	Avg
	numOps
)

// Ops contains all reductions, in the order in which nccl-tests walks them.
var Ops = []Op{Sum, Prod, Max, Min, Avg}

var opNames = [numOps]string{"sum", "prod", "max", "min", "avg"}

// Valid reports whether o is one of the reductions above.
func (o Op) Valid() bool { return o < numOps }

// String is the name that nccl-tests prints.
func (o Op) String() string {
	if !o.Valid() {
		return fmt.Sprintf("op(%d)", uint8(o))
	}
	return opNames[o]
}
