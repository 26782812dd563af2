package cuda

import (
	"github.com/assay-hpc/assay/coll/choose"
	"github.com/assay-hpc/assay/coll/op"
	"github.com/assay-hpc/assay/coll/schedule"
)

const ll, ll128, simple = choose.LL, choose.LL128, choose.Simple

// A kernel is one of the kernels in coll/cuda/kernels, without its type and reduction, or one of two ways
// that are no kernel.
type kernel uint8

const (
	noKernel kernel = iota
	exchangeLL
	exchangeLL128
	exchangeSimple
	exchangeDirect
	relaySimple
	chainSimple
	reduceLL
	reduceLL128
	allReduceLL
	allReduceLL128
	allReduceSimple
	reduceChain
	combine
	copyRing // what copies needs in a ring, see ringblocks.go
	normLL   // these two: see norm.go
	normLocal
	stage    // what copies for the host's engine, see staged.go
	checksum // these two: see verify.go
	checkWords
	numKernels
	copies  = numKernels     // copy engines move the bytes, see copies.go
	nvidia  = numKernels + 1 // NVIDIA's library does the operation, see library.go
	numWays = numKernels + 2
)

// A path is how data gets from rank to rank.
type path uint8

const (
	toPeers    path = iota // each rank sends each other rank what is for it
	toOwners               // each rank sends each owner everything that the owner reduces
	byParts                // the vector is cut into the owners' parts
	alongChain             // each rank passes the vector on to the next one
	byRelay                // the root sends each other rank a part, which that one passes on
)

// A kernelRow is what there is to know of a kernel. Nothing else distinguishes kernels by their names,
// except what makes a choice of one.
type kernelRow struct {
	name      string                   // in its source, and in ASSAY_GPU_ALGO
	does      func(op.Collective) bool // nil: none; it is a part of other operations, and cannot be chosen
	protocol  choose.Protocol
	path      path
	algorithm string // coll/schedule's name for how it does an AllReduce

	roles   int  // blocks per channel
	warps   int  // of a block, at least
	typed   bool // there is one for each type and reduction
	norm    bool // it normalizes rows, and has a normABI
	ring    bool // it has a ringABI
	results bool // half of the channels carry results

	// Data moves in steps of the choice's chunk, of which so many for each channel are cut evenly, see
	// chooser.even; 0: it does not.
	steps int
	short bool // an operation of one round is done by as many threads as it needs, see chooser.short
	phase bool // a long exchange goes to one peer after the other
	// It works on memory that the program has registered, see registered.go.
	registered bool
	// It adds in the order of the ranks among so many at most; 0: among any number.
	inOrder int
	exact   bool // only for reductions that do not round: it would round at each rank
}

// Of the warps of a block that moves chunks, or of each of its two teams, some serve the others,
// of which there are at least as many.
const (
	serving     = 2
	servedWarps = 2 * serving
)

func all(op.Collective) bool             { return true }
func moves(c op.Collective) bool         { return !c.Reduces() }
func broadcasts(c op.Collective) bool    { return c == op.Broadcast }
func reducesToRoot(c op.Collective) bool { return c == op.Reduce }
func allReduces(c op.Collective) bool    { return c == op.AllReduce }

var kernelTable = [numWays]kernelRow{
	exchangeLL:      {name: "exchange_ll", does: moves, protocol: ll, roles: 1, warps: 1, short: true},
	exchangeLL128:   {name: "exchange_ll128", does: moves, protocol: ll128, roles: 1, warps: 1},
	exchangeSimple:  {name: "exchange_simple", does: moves, protocol: simple, roles: 2, warps: servedWarps, steps: 1, phase: true},
	exchangeDirect:  {name: "exchange_direct", does: moves, protocol: simple, roles: 2, warps: 1, registered: true},
	relaySimple:     {name: "relay_simple", does: broadcasts, protocol: simple, path: byRelay, roles: 3, warps: servedWarps, results: true, steps: evenSteps},
	chainSimple:     {name: "chain_simple", does: broadcasts, protocol: simple, path: alongChain, roles: 1, warps: servedWarps, steps: evenSteps},
	reduceLL:        {name: "reduce_ll", does: op.Collective.Reduces, protocol: ll, path: toOwners, algorithm: schedule.OneShot, typed: true, roles: 1, warps: 1, short: true},
	reduceLL128:     {name: "reduce_ll128", does: op.Collective.Reduces, protocol: ll128, path: toOwners, algorithm: schedule.OneShot, typed: true, roles: 1, warps: 1},
	allReduceLL:     {name: "allreduce_ll", does: allReduces, protocol: ll, path: byParts, algorithm: schedule.TwoShot, typed: true, roles: 1, warps: 1},
	allReduceLL128:  {name: "allreduce_ll128", does: allReduces, protocol: ll128, path: byParts, algorithm: schedule.TwoShot, typed: true, roles: 1, warps: 1},
	allReduceSimple: {name: "allreduce_simple", does: op.Collective.Reduces, protocol: simple, path: byParts, algorithm: schedule.TwoShot, typed: true, roles: 2, warps: 2 * servedWarps, results: true, steps: evenSteps},
	reduceChain:     {name: "reduce_chain", does: reducesToRoot, protocol: simple, path: alongChain, typed: true, roles: 1, warps: servedWarps, steps: evenSteps, inOrder: 2, exact: true},
	combine:         {name: "combine", protocol: simple, typed: true, roles: 1, warps: 1},
	copyRing:        {name: "copy_ring", protocol: simple, typed: true, ring: true, roles: 1, warps: servedWarps},
	normLL:          {name: "norm_ll", protocol: ll, algorithm: schedule.OneShot, typed: true, norm: true, roles: 1, warps: 1},
	normLocal:       {name: "norm_local", protocol: ll, typed: true, norm: true, roles: 1, warps: 1},
	stage:           {name: "stage", protocol: simple, roles: 2, warps: 1},
	checksum:        {name: "checksum", protocol: ll, roles: 1, warps: 1},
	checkWords:      {name: "check_words", protocol: ll, roles: 1, warps: 1},
	copies:          {name: "copy", does: all, protocol: simple, algorithm: schedule.TwoShot, roles: 1, warps: 1, inOrder: 2},
	nvidia:          {name: "nvidia", does: all, protocol: simple, roles: 1, warps: 1, inOrder: 1},
}

// String is the kernel's name in its source.
func (k kernel) String() string { return kernelTable[k].name }

// in reports whether a kernel is in the modules that are for a type, that normalize rows, and whose
// reduction rounds.
func (k kernel) in(typed, norm, rounds bool) bool {
	row := &kernelTable[k]
	return row.typed == typed && row.norm == norm && !(row.exact && rounds)
}

// does reports whether a kernel can do a collective at all.
func (k kernel) does(c op.Collective) bool {
	return kernelTable[k].does != nil && kernelTable[k].does(c)
}

// chunks reports whether a kernel moves data in steps of the choice's chunk.
func (k kernel) chunks() bool { return kernelTable[k].steps > 0 }
