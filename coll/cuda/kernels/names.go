package kernels

import "github.com/assay-hpc/assay/coll/elem"

// kernelTypes are the element types' names within kernel names.
var kernelTypes = [...]string{
	elem.Int8:       "i8",
	elem.Uint8:      "u8",
	elem.Int32:      "i32",
	elem.Uint32:     "u32",
	elem.Int64:      "i64",
	elem.Uint64:     "u64",
	elem.Float16:    "f16",
	elem.Float32:    "f32",
	elem.Float64:    "f64",
	elem.BFloat16:   "bf16",
	elem.Float8E4M3: "e4m3",
	elem.Float8E5M2: "e5m2",
}

// A Module is a part of the compiled code: the kernels that only move bytes, those that reduce one
// type by one operation, or those that normalize rows of a type.
type Module struct {
	Name  string
	Typed bool // its kernels are for a Type
	Norm  bool // they normalize rows
	Type  elem.Type
	Op    elem.Op // that they reduce by
}

// Modules returns all modules.
func Modules() []Module {
	m := []Module{{Name: "movement"}}
	for _, t := range elem.Types {
		if t.Norms() {
			m = append(m, Module{Name: "norm_" + t.String(), Typed: true, Norm: true, Type: t})
		}
		for op := elem.Sum; op < elem.Avg; op++ {
			m = append(m, reduction(t, op))
		}
	}
	return m
}

// reduction returns the module of the kernels that reduce a type by an operation other than Avg.
// Avg uses the module of Sum: scaling and dividing are arguments.
func reduction(t elem.Type, op elem.Op) Module {
	return Module{Name: t.String() + "_" + op.String(), Typed: true, Type: t, Op: op}
}

// Kernel returns the name of a kernel of the module. base is what the kernel does, for example
// "combine".
func (m Module) Kernel(base string) string {
	switch {
	case !m.Typed:
		return base
	case m.Norm:
		return base + "_" + kernelTypes[m.Type]
	}
	return base + "_" + kernelTypes[m.Type] + "_" + m.Op.String()
}

// FewRanks is the largest number of ranks for the small variant of the modules, in which loops
// over ranks are unrolled for no more. The kernels of both variants have the same names.
const FewRanks = 4

// Rounds reports whether a reduction of more than two elements is done in float32 and rounded
// at the end. reduce_chain would round at each rank, so it does not exist for these.
func Rounds(t elem.Type, op elem.Op) bool {
	return t.Float() && t.Size() < 4 && op != elem.Max && op != elem.Min
}
