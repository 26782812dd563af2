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

// Module returns the name of the module of the kernels that reduce a type by an operation. Avg
// uses the module of Sum: scaling and dividing are arguments.
func Module(t elem.Type, op elem.Op) string { return t.String() + "_" + opName(op) }

// FewRanks is the largest number of ranks for the small variant of the modules, in which loops
// over ranks are unrolled for no more. The kernels of both variants have the same names.
const FewRanks = 4

// KernelName returns the name of a reducing kernel in the module of t and op. base is what the
// kernel does, for example "combine".
func KernelName(base string, t elem.Type, op elem.Op) string {
	return base + "_" + kernelTypes[t] + "_" + opName(op)
}

func opName(op elem.Op) string {
	if op == elem.Avg {
		op = elem.Sum
	}
	return op.String()
}

// Rounds reports whether a reduction of more than two elements is done in float32 and rounded
// at the end. reduce_chain would round at each rank, so it does not exist for these.
func Rounds(t elem.Type, op elem.Op) bool {
	return t.Float() && t.Size() < 4 && op != elem.Max && op != elem.Min
}

// NormModule returns the name of the module of the kernels that normalize rows of t.
func NormModule(t elem.Type) string { return "norm_" + t.String() }

// NormName returns the name of a kernel of a NormModule. base is what it does, for example
// "norm_local".
func NormName(base string, t elem.Type) string { return base + "_" + kernelTypes[t] }
