//go:build cuda && cgo

package cuda

import (
	"time"

	"github.com/assay-hpc/assay/coll/choose"
	"github.com/assay-hpc/assay/coll/op"
)

// Estimated costs of copies within a device, which were not measured: a launch, and a rate
// that GPUs of this decade reach.
const (
	copyLaunch = 2500 * time.Nanosecond
	copyRate   = 1e12 // bytes a second
)

// copyTime is how long an operation of a one-rank communicator takes: it is a copy.
func copyTime(bytes int) time.Duration {
	return copyLaunch + time.Duration(float64(bytes)/copyRate*float64(time.Second))
}

// carried returns how many bytes a rank sends or receives in an operation, whichever is more.
func carried(o *op.Op) int {
	if o.Coll != op.SendRecv {
		return o.Bytes()
	}
	var sent, got int
	for _, t := range o.Transfers {
		if t.Send {
			sent += len(t.Data)
		} else {
			got += len(t.Data)
		}
	}
	return max(sent, got)
}

// estimate returns how long an operation takes among the given number of ranks. times are
// those of the GPUs' name.
func estimate(o *op.Op, ranks int, hosted bool, times *choose.Times) time.Duration {
	switch bytes := carried(o); {
	case ranks == 1 && o.Coll != op.SendRecv && op.Addr(o.Send) == op.Addr(o.Recv) && !o.Scaled:
		return 0
	case ranks == 1:
		return copyTime(bytes)
	case hosted:
		return choose.HostedTime(o.Coll, ranks, bytes)
	default:
		return times.At(o.Coll, bytes)
	}
}
