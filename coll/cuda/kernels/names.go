package kernels

import (
	"github.com/assay-hpc/assay/coll/elem"
)

// The kernels of module Movement.
const (
	ExchangeLL     = "exchange_ll"
	ExchangeLL128  = "exchange_ll128"
	ExchangeSimple = "exchange_simple"
	RelaySimple    = "relay_simple"
	ChainSimple    = "chain_simple"
)

// What the names of the kernels of the other modules begin with; KernelName
// has the rest.
const (
	ReduceLL        = "reduce_ll"
	ReduceLL128     = "reduce_ll128"
	AllReduceLL     = "allreduce_ll"
	AllReduceLL128  = "allreduce_ll128"
	AllReduceSimple = "allreduce_simple"
	ReduceChain     = "reduce_chain"
	Combine         = "combine"
)

var (
	movements  = []string{ExchangeLL, ExchangeLL128, ExchangeSimple, RelaySimple, ChainSimple}
	reductions = []string{ReduceLL, ReduceLL128, AllReduceLL, AllReduceLL128, AllReduceSimple, Combine}
)

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

// KernelName is the name of a kernel that reduces, in the module of t and op.
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
// rounded at the end: ReduceChain, which would round after each, is not there
// for such.
func Rounds(t elem.Type, op elem.Op) bool {
	return t.Float() && t.Size() < 4 && op != elem.Max && op != elem.Min
}

// KernelNames are the names of all kernels of a module; none if there is no such
// module.
func KernelNames(module string) []string {
	if module == Movement {
		return append([]string(nil), movements...)
	}
	var names []string
	for _, t := range elem.Types {
		for op := elem.Sum; op < elem.Avg; op++ {
			if Module(t, op) != module {
				continue
			}
			for _, base := range reductions {
				names = append(names, KernelName(base, t, op))
			}
			if !Rounds(t, op) {
				names = append(names, KernelName(ReduceChain, t, op))
			}
		}
	}
	return names
}
