package kernels

import "github.com/assay-hpc/assay/coll/elem"

// kernelTypes are the types' names in those of kernels.
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

// Module is the module of the kernels that reduce a type by an operation. Avg
// is Sum: scaling and dividing are arguments.
func Module(t elem.Type, op elem.Op) string { return t.String() + "_" + opName(op) }

// FewRanks is how many ranks the variant of the modules for few of them is for, at
// most: its loops over ranks are unrolled for no more. The kernels of both variants
// have the same names.
const FewRanks = 4

// KernelName is the name of a kernel that reduces, in the module of t and op: base,
// "combine" for example, is what it does.
func KernelName(base string, t elem.Type, op elem.Op) string {
	return base + "_" + kernelTypes[t] + "_" + opName(op)
}

func opName(op elem.Op) string {
	if op == elem.Avg {
		op = elem.Sum
	}
	return op.String()
}

// Rounds reports whether more than two elements are reduced in float32 and
// rounded at the end: reduce_chain, which would round after each, is not there
// for such.
func Rounds(t elem.Type, op elem.Op) bool {
	return t.Float() && t.Size() < 4 && op != elem.Max && op != elem.Min
}
