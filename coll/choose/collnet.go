package choose

import (
	"fmt"
	"slices"

	"github.com/assay-hpc/assay/coll/op"
	"github.com/assay-hpc/assay/coll/schedule"
	"github.com/assay-hpc/assay/coll/tuning"
)

// CollNetOnly is NCCL_ALGO without the network's reductions: where it leaves
// nothing else it leaves all, as what the network cannot do has to be done.
type CollNetOnly struct{ tuning.Filter }

// Only reports whether nothing is left to a collective but the network.
func (f CollNetOnly) Only(coll op.Collective) bool {
	return f.Filter.Allows(coll, schedule.CollNet) &&
		!slices.ContainsFunc(schedule.Algorithms(coll), func(a string) bool { return a != schedule.CollNet && f.Filter.Allows(coll, a) })
}

// Allows implements tuning.Filter.
func (f CollNetOnly) Allows(coll op.Collective, name string) bool {
	return f.Filter.Allows(coll, name) || f.Only(coll)
}

// String is NCCL_ALGO.
func (f CollNetOnly) String() string { return fmt.Sprint(f.Filter) }
