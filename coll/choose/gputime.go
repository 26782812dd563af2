package choose

import (
	"cmp"
	"math"
	"time"

	"github.com/assay-hpc/assay/coll/op"
	"github.com/assay-hpc/assay/coll/schedule"
)

// Times hold how long collectives take on GPUs: pairs of bytes, ascending, and nanoseconds.
// Bytes are as op.Op.Bytes counts them.
type Times [op.NumCollectives][][2]int64

// GPUTimes returns what was measured among the given number of GPUs of a name. Without such
// measurements, it returns the times of the nearest tables: those of GPUs of that name before
// others, then those with the closest number of ranks.
func GPUTimes(t *Tables, gpu string, ranks int) (times Times) {
	var other [op.NumCollectives]bool // measured on other GPUs
	for c := range op.NumCollectives {
		rows, far := t.nearest(gpu, ranks, c)
		times[c], other[c] = points(rows), far
	}
	// Gather and Scatter are AllToAlls of fewer messages.
	for _, c := range [...]op.Collective{op.Gather, op.Scatter} {
		if times[c] == nil || other[c] && !other[op.AllToAll] {
			times[c] = times[op.AllToAll]
		}
	}
	return times
}

// nearest returns the rows of the nearest measured table of GPUs, and whether it is of other GPUs.
func (t *Tables) nearest(gpu string, ranks int, c op.Collective) (rows []Row, other bool) {
	least := [2]int{math.MaxInt}
	for _, of := range []*Tables{t, known()} {
		if of == nil {
			continue
		}
		for _, at := range of.Tables {
			if at.GPU == "" || at.GPU == AnyGPU || at.GPU == Hosted || at.Collective != c.String() {
				continue
			}
			far := [2]int{0, max(at.Ranks-ranks, ranks-at.Ranks)}
			if at.GPU != gpu {
				far[0] = 1
			}
			if cmp.Or(cmp.Compare(far[0], least[0]), cmp.Compare(far[1], least[1])) < 0 {
				rows, least = at.Rows, far
			}
		}
	}
	return rows, least[0] > 0
}

// points returns the times of rows.
func points(rows []Row) (all [][2]int64) {
	for _, r := range rows {
		for _, p := range r.Took {
			if p[0] == 0 {
				p[0] = measuredAt(all, p[1])
			}
			all = append(all, p)
		}
	}
	return all
}

// measuredAt returns how many bytes a time was measured with in a row for all lengths, which
// does not contain them: the power of 2 with the rate that is closest to that of the previous
// length.
func measuredAt(before [][2]int64, nanos int64) int64 {
	bytes := int64(steady)
	if len(before) == 0 {
		return bytes
	}
	last := before[len(before)-1]
	for bytes <= last[0] {
		bytes *= 2
	}
	off := func(bytes int64) float64 { // factor between the rates, as a logarithm
		return math.Abs(math.Log(float64(bytes) / float64(nanos) / (float64(last[0]) / float64(last[1]))))
	}
	for off(2*bytes) < off(bytes) {
		bytes *= 2
	}
	return bytes
}

// At returns how long the given bytes take: interpolated linearly between measured lengths,
// and at the rate of the last one beyond it. It returns 0 if nothing was measured.
func (t *Times) At(c op.Collective, bytes int) time.Duration {
	all := t[c]
	if len(all) == 0 {
		return 0
	}
	before := [2]int64{0, all[0][1]}
	for _, p := range all {
		if int64(bytes) <= p[0] {
			share := float64(int64(bytes)-before[0]) / float64(p[0]-before[0])
			return time.Duration(float64(before[1]) + share*float64(p[1]-before[1]))
		}
		before = p
	}
	return time.Duration(float64(before[1]) * float64(bytes) / float64(before[0]))
}

// hosted are the costs of windows in host memory, rounded from measurements with two H200s
// (docs/lab/gpu-collectives.md).
var hosted = Cost{Latency: 4500, Port: 38 * GBps}

// HostedTime returns how long a collective takes on GPUs with windows in host memory, by the
// model: the data through the busiest rank's link.
func HostedTime(c op.Collective, ranks, bytes int) time.Duration {
	f := forms[c][schedule.Ring]
	if f == nil {
		f = forms[c][schedule.OneShot]
	}
	moved := f(newShape(ranks, 1)).bytes * float64(bytes*c.Longest(ranks))
	return hosted.Latency + time.Duration(moved*hosted.Port.perByte()*float64(time.Second))
}

// Time returns how long an operation with a count of the given bytes takes, by the tuner's
// estimate when it chooses.
func (t *Tuner) Time(c op.Collective, bytes int) time.Duration {
	k, n := t.Pick(c, bytes), int64(bytes*c.Longest(t.ranks))
	k.Window = 0 // as choices are measured
	factor, _ := t.series(c).factor(k, n)
	_, seconds := t.cost(t.form(c, k.Algorithm), k, n, t.env.Slot)
	return time.Duration(seconds * factor * float64(time.Second))
}
