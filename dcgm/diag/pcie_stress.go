package diag

import (
	"context"
	"time"
)

// pcieStress copies to and from all GPUs at once until its time is over: marginal links make errors
// when the whole board is warm and busy. GPUs may share an uplink by design, so the rates (the
// slowest of each direction) are measured but not judged.
func pcieStress(ctx context.Context, j *job) error {
	before := j.tally()
	until := time.Now().Add(time.Duration(j.params[duration] * float64(time.Second)))
	j.each(func(g GPU, d Device) error {
		slowest := map[direction]figure{}
		for first := true; first || time.Now().Before(until); first = false {
			for _, way := range directions {
				f, err := j.host(ctx, g, d, way, way.String()+", all at once")
				if err != nil {
					return err
				}
				if s, ok := slowest[way]; !ok || f.Measured.Value < s.Measured.Value {
					slowest[way] = f
				}
			}
		}
		for _, way := range directions {
			j.measure(slowest[way], "")
		}
		return nil
	})
	j.counted(before, pcieCounters)
	return nil
}
