package wire

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"
)

// A Report contains what a side has measured. Bandwidths are in the unit that it prints, so both
// sides must have the same --report_gbits. In a test in one direction only the client's report is
// meaningful; a C server sends undefined memory.
type Report struct {
	Size       uint64  // bytes per message
	Iterations uint64  // messages counted
	Peak       float64 // MiB/s, or Gb/s of 10⁹ bits
	Average    float64 // as Peak
	Rate       float64 // millions of messages per second
}

// maxReportSize is the largest plausible message size in a report.
const maxReportSize = 1 << 40

// SwapReport makes the five exchanges of a report. It returns the peer's numbers unchecked; Check
// tells whether they can be a measurement.
func (c *Conn) SwapReport(ctx context.Context, mine Report) (Report, error) {
	words := []struct {
		name  string
		value uint64
	}{
		{"message size", mine.Size}, {"iterations", mine.Iterations}, {"peak bandwidth", math.Float64bits(mine.Peak)},
		{"average bandwidth", math.Float64bits(mine.Average)}, {"message rate", math.Float64bits(mine.Rate)},
	}
	var theirs [5]uint64
	for i, w := range words {
		var err error
		if theirs[i], err = c.swapWord(ctx, "the report's "+w.name, w.value); err != nil {
			return Report{}, err
		}
	}
	return Report{
		Size: theirs[0], Iterations: theirs[1], Peak: math.Float64frombits(theirs[2]),
		Average: math.Float64frombits(theirs[3]), Rate: math.Float64frombits(theirs[4]),
	}, nil
}

func (c *Conn) swapWord(ctx context.Context, what string, mine uint64) (uint64, error) {
	b, err := c.swap(ctx, what, binary.BigEndian.AppendUint64(nil, mine))
	if err != nil {
		return 0, err
	}
	if _, kind := diagnose(b, len(b)); kind != nil {
		return 0, c.mismatch(what, b, nil)
	}
	return binary.BigEndian.Uint64(b), nil
}

// Check returns an error if the numbers cannot be a measurement, for a side that uses them.
func (r Report) Check() error {
	bad := ""
	switch {
	case r.Size < 1 || r.Size > maxReportSize:
		bad = fmt.Sprintf("a message size of %d bytes", r.Size)
	case r.Iterations > 1<<48:
		bad = fmt.Sprintf("%d iterations", r.Iterations)
	case !plausible(r.Peak):
		bad = fmt.Sprintf("a peak bandwidth of %g", r.Peak)
	case !plausible(r.Average):
		bad = fmt.Sprintf("an average bandwidth of %g", r.Average)
	case !plausible(r.Rate):
		bad = fmt.Sprintf("a message rate of %g million a second", r.Rate)
	default:
		return nil
	}
	return fmt.Errorf("the peer's report has %s: %w: -b, -q or --report-per-port is not the same on both sides, or the peer measured nothing", bad, ErrMismatch)
}

// plausible bandwidths and rates are up to 10¹², in any unit. A denormal number is really the bytes
// of an integer.
func plausible(v float64) bool {
	return finite(v) && (v == 0 || v >= 1e-12 && v <= 1e12)
}
