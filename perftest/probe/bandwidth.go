package probe

import (
	"time"

	"github.com/assay-hpc/assay/perftest/probe/wire"
)

// A BandwidthResult is a line of a bandwidth test.
type BandwidthResult struct {
	Bytes      uint64  // of a message
	Iterations uint64  // of each queue pair; with a duration of all of them
	Peak       float64 // bytes a second; 0: not measured
	Average    float64 // bytes a second
	Rate       float64 // messages a second
	CPU        float64 // percent of all processors, with --cpu_util
}

// Units of bandwidth in bytes a second, and of rates in messages a second.
const (
	mebibyte = 1 << 20
	gigabit  = 1e9 / 8
	million  = 1e6
)

// unit is what the table's bandwidths are in, in bytes a second.
func unit(gbits bool) float64 {
	if gbits {
		return gigabit
	}
	return mebibyte
}

// averaged makes a result of so many messages in a time.
func averaged(bytes, iterations, messages uint64, took time.Duration) BandwidthResult {
	r := BandwidthResult{Bytes: bytes, Iterations: iterations}
	if s := took.Seconds(); s > 0 {
		r.Rate = float64(messages) / s
		r.Average = r.Rate * float64(bytes)
	}
	return r
}

// Report is the result as it goes over the wire, in the units that both sides
// print.
func (r BandwidthResult) Report(gbits bool) wire.Report {
	u := unit(gbits)
	return wire.Report{Size: r.Bytes, Iterations: r.Iterations, Peak: r.Peak / u, Average: r.Average / u, Rate: r.Rate / million}
}

// fromReport is the peer's result.
func fromReport(r wire.Report, gbits bool) BandwidthResult {
	u := unit(gbits)
	return BandwidthResult{Bytes: r.Size, Iterations: r.Iterations, Peak: r.Peak * u, Average: r.Average * u, Rate: r.Rate * million}
}

// Plus is both directions together, with this side's size and iterations, as
// perftest adds them.
func (r BandwidthResult) Plus(peer BandwidthResult) BandwidthResult {
	r.Peak += peer.Peak
	r.Average += peer.Average
	r.Rate += peer.Rate
	return r
}
