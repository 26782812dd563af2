// Package hang finds out why the operations of a communicator do not end, and says it to people
// and programs.
//
// Operations on device memory return before any data has moved, and their kernels wait as long as
// another rank does not call the same operation. So each rank has a Recorder of its calls, and a
// Watchdog. When the rank has waited for Comm.After, its Watchdog polls the other ranks, which
// answer with a snapshot of their progress, and gives a Verdict that follows from the snapshots. If
// several ranks poll at once, the lowest one gives the verdict. Ranks also exchange the signatures
// of their last calls: if two ranks have called different operations, both would wait forever, and
// the communicator breaks.
//
// Operations on host memory notice most of this from the messages that they get. For the rest,
// ranks that wait tell the others in what and for whom: see Waits.
package hang

import (
	"context"
	"time"

	"github.com/assay-hpc/assay/coll/debug"
	"github.com/assay-hpc/assay/coll/transport"
)

// A Comm is what this package needs of a communicator.
type Comm struct {
	Rank, Size int
	Fault      *transport.Fault
	Broken     context.Context // done when there is a Fault
	Send       func(Report)    // to all other ranks, which pass it to Heard; it does not wait, and a Report may be lost
	Log        *debug.Logger
	After      time.Duration // how long a rank waits before a verdict, and before its waiting is logged; 0: for ever

	// For a Watchdog.
	Name     string
	Key      string        // the same for all ranks of the communicator, and for no others of this process
	Dir      string        // of the verdicts' files; "": that for temporary files
	Verdicts bool          // gives verdicts; else only ranks are found that have called different operations
	OnHang   func(Verdict) // nil: verdicts are logged
}
