package predict

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/assay-hpc/assay/coll/schedule"
)

// Run says with how much data and with which granularity a schedule is simulated.
type Run struct {
	Bytes  int64 // of the collective's whole vector, as nccl-tests counts it: Blocks equal parts
	Window int64 // bytes of a block that a channel moves at a time; 0: all of its part
	Slots  int   // messages that a connection holds; 0: 8, as in NCCL
}

// Simulate returns how long a schedule takes on a topology, from the moment when all ranks
// start. It is exact in the model that Topology and the package schedule describe; a schedule
// that deadlocks is an error. It is fast for many ranks when the schedule looks the same from
// every domain and its messages do not compete, as in a ring, and for many windows once they
// follow one another at a steady pace. Neither changes the result, except that long
// simulations of messages that compete are extrapolated (see extrapolate).
func Simulate(s *schedule.Schedule, t Topology, r Run) (time.Duration, error) {
	return simulate(s, t, r, true)
}

func simulate(s *schedule.Schedule, t Topology, r Run, fast bool) (time.Duration, error) {
	if err := t.validate(); err != nil {
		return 0, err
	}
	if s.Ranks != t.Ranks {
		return 0, fmt.Errorf("a schedule for %d ranks on a topology of %d", s.Ranks, t.Ranks)
	}
	if s.Algorithm == schedule.CollNet {
		return 0, fmt.Errorf("simulation: %v %s: a topology has no network that reduces", s.Collective, s.Algorithm)
	}
	if r.Bytes < 0 || r.Window < 0 || r.Slots < 0 {
		return 0, fmt.Errorf("simulation: %d bytes in windows of %d with %d slots; none may be negative", r.Bytes, r.Window, r.Slots)
	}
	if r.Slots == 0 {
		r.Slots = ncclSteps
	}
	m := compileFor(s, t, r.Slots, fast)
	part := float64(r.Bytes) / float64(s.Blocks) / float64(s.Channels)
	end, err := m.windows(part, float64(r.Window), fast)
	if err != nil {
		return 0, fmt.Errorf("%v %s: %w", s.Collective, s.Algorithm, err)
	}
	return seconds(end), nil
}

// compileFor compiles only the ranks of one period if fast is set and no messages compete.
// Otherwise it compiles all ranks: the order in which messages compete depends on the ranks.
func compileFor(s *schedule.Schedule, t Topology, slots int, fast bool) *simulation {
	if fast {
		if period := rotation(s, t); period < s.Ranks {
			if m := compile(s, t, slots, period); !m.contended() {
				return m
			}
		}
	}
	return compile(s, t, slots, s.Ranks)
}

// windows runs part bytes of each block in windows.
func (m *simulation) windows(part, window float64, fast bool) (float64, error) {
	n := 1
	if window > 0 && part > window {
		n = int(math.Ceil(part / window))
	} else {
		window = part
	}
	last := part - float64(n-1)*window
	run := func(n int) (float64, error) {
		return m.run(n, func(w int) float64 {
			if w == n-1 {
				return last
			}
			return window
		})
	}
	if !fast {
		return run(n)
	}
	if m.contended() {
		return m.extrapolate(n, run)
	}
	return m.paced(n, run)
}

// paced returns run(n) for a machine in which no connections share a link. Later windows then
// do not affect earlier ones, so the end times of windows in a short run show the pace. Each
// connection must have been full by then.
func (m *simulation) paced(n int, run func(n int) (float64, error)) (float64, error) {
	last := max(3, m.slots) // windows that must take equally long: the pace may repeat with a connection's slots
	least := m.slots
	count := make([]int, len(m.conns)) // messages per window
	for i := range m.lanes {
		for j := range m.lanes[i].ops {
			for _, s := range m.lanes[i].ops[j].sends {
				count[s]++
			}
		}
	}
	for _, c := range count {
		least = min(least, max(1, c))
	}
	short := 1 + (m.slots+least-1)/least + last
	if n <= short+1 {
		return run(n)
	}
	t, err := run(short + 1) // the last one may be shorter
	if err != nil {
		return 0, err
	}
	d := m.ends[short-1] - m.ends[short-2]
	for i := 2; i <= last; i++ {
		if math.Abs(d-(m.ends[short-i]-m.ends[short-i-1])) > 1e-9*t { // more than rounding
			return run(n)
		}
	}
	return t + float64(n-short-1)*d, nil
}

// contended reports whether two connections share a link.
func (m *simulation) contended() bool {
	user := slices.Repeat([]int32{-1}, len(m.links))
	for i := range m.lanes {
		for j := range m.lanes[i].ops {
			o := &m.lanes[i].ops[j]
			for _, k := range o.links {
				for _, s := range o.sends {
					if user[k] >= 0 && user[k] != s {
						return true
					}
					user[k] = s
				}
			}
		}
	}
	return false
}

// extrapolate returns run(n). If that is too much work, it extrapolates with the pace between
// paceFrom windows and twice as many.
func (m *simulation) extrapolate(n int, run func(n int) (float64, error)) (float64, error) {
	work := 0
	for _, l := range m.lanes {
		work += n * len(l.ops)
	}
	if work < exactWork || n < 4*paceFrom {
		return run(n)
	}
	first, err := run(paceFrom)
	if err != nil {
		return 0, err
	}
	second, err := run(2 * paceFrom)
	return second + float64(n-2*paceFrom)*(second-first)/paceFrom, err
}

const (
	// exactWork is the number of operations up to which all are simulated one by one: about a
	// second's worth.
	exactWork = 2_000_000
	// paceFrom is the number of windows after which the pace is steady: a double tree of 1,024
	// ranks keeps to within 0.3 % the pace that it has from 128 to 256 windows; from 64 to 128
	// it is still 4 % slower.
	paceFrom = 128
)

func seconds(s float64) time.Duration { return time.Duration(math.Round(s * 1e9)) }
