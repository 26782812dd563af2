package probe

import (
	"time"

	"github.com/assay-hpc/assay/perftest/probe/wire"
)

// A BandwidthResult is one line of a bandwidth test.
type BandwidthResult struct {
	Bytes      uint64  // per message
	Iterations uint64  // of each queue pair; with a duration, of all together
	Peak       float64 // bytes per second; 0: not measured
	Average    float64 // bytes per second
	Rate       float64 // messages per second
	CPU        float64 // per cent of all CPUs, with --cpu_util
}

// Units of bandwidth in bytes per second, and of rates in messages per second.
const (
	mebibyte = 1 << 20
	gigabit  = 1e9 / 8
	million  = 1e6
)

// unit is the unit of the table's bandwidths, in bytes per second.
func unit(gbits bool) float64 {
	if gbits {
		return gigabit
	}
	return mebibyte
}

// averaged makes a result from a number of messages and the time that they took.
func averaged(bytes, iterations, messages uint64, took time.Duration) BandwidthResult {
	r := BandwidthResult{Bytes: bytes, Iterations: iterations}
	if s := took.Seconds(); s > 0 {
		r.Rate = float64(messages) / s
		r.Average = r.Rate * float64(bytes)
	}
	return r
}

// Report converts the result to its form on the wire, in the units that both sides print.
func (r BandwidthResult) Report(gbits bool) wire.Report {
	u := unit(gbits)
	return wire.Report{Size: r.Bytes, Iterations: r.Iterations, Peak: r.Peak / u, Average: r.Average / u, Rate: r.Rate / million}
}

// fromReport converts the peer's result.
func fromReport(r wire.Report, gbits bool) BandwidthResult {
	u := unit(gbits)
	return BandwidthResult{Bytes: r.Size, Iterations: r.Iterations, Peak: r.Peak * u, Average: r.Average * u, Rate: r.Rate * million}
}

// Plus is the sum of both directions, with this side's size and iterations, as in perftest.
func (r BandwidthResult) Plus(peer BandwidthResult) BandwidthResult {
	r.Peak += peer.Peak
	r.Average += peer.Average
	r.Rate += peer.Rate
	return r
}
