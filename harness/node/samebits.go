package node

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/assay-hpc/assay/coll/flip"
	"github.com/assay-hpc/assay/coll/perf"
	"github.com/assay-hpc/assay/internal/result"
	"github.com/assay-hpc/assay/internal/words"
)

// adders are the engine's algorithms on GPUs that add, by operation; "" is what it chooses itself.
var adders = map[string][]string{
	"all_reduce":     {"", "reduce_ll", "reduce_ll128", "allreduce_ll", "allreduce_ll128", "allreduce_simple"},
	"reduce_scatter": {"", "reduce_ll", "reduce_ll128", "allreduce_simple"},
	"reduce":         {"", "reduce_ll", "reduce_ll128", "allreduce_simple"},
}

// mostTurns is the least number of turns for which not every algorithm runs on every rotation.
const mostTurns = 12

// sameBits reduces the same data again and again, each time with another rotation of the GPUs over the
// ranks and another algorithm, each size twice: sums of floats, whose bits depend on the order of addition
// and must be those of the ranks' order each time, and products of odd integers, of which a flipped bit
// says whose data it was in. A fault follows its GPU, whichever rank that is and whatever the algorithm.
func (c *Config) sameBits(ctx context.Context, p collParams, op string, ranks int) result.Result {
	args := []string{"coll", op, "-g", strconv.Itoa(ranks), "-b", p.Min, "-e", p.Max, "-f", strconv.Itoa(p.Factor), "-n", "1", "-c", "2", "--device", p.Device, "--format", "json"}
	sums := append(slices.Clone(args), "--same-bits")
	if p.Device == "cpu" {
		d, bad := report[perf.Document](ctx, c.Run, sums...)
		if bad != nil {
			return *bad
		}
		return differing([]*perf.Document{d}, ranks)
	}
	products := append(slices.Clone(args), "-d", "uint64", "-o", "prod")
	visible := make([]string, ranks)
	for i := range visible {
		visible[i] = strconv.Itoa(i)
	}
	if v := os.Getenv("CUDA_VISIBLE_DEVICES"); v != "" {
		visible = strings.Split(v, ",")
	}
	var all []*perf.Document
	ways := adders[op]
	for turn := range turns(len(visible), len(ways)) {
		at := (turn + turn/len(ways)) % len(visible)
		environ := []string{"CUDA_VISIBLE_DEVICES=" + strings.Join(slices.Concat(visible[at:], visible[:at]), ",")}
		if way := ways[turn%len(ways)]; way != "" {
			environ = append(environ, "ASSAY_GPU_ALGO="+way)
		}
		for _, args := range [][]string{sums, products} {
			d, bad := report[perf.Document](ctx, c.Run, slices.Concat(environ, args)...)
			if bad != nil {
				return *bad
			}
			all = append(all, d)
		}
	}
	return differing(all, ranks)
}

// turns is how many turns there are: each rotation with each algorithm if that is not too many, otherwise
// each of both at least once.
func turns(rotations, ways int) int {
	if n := rotations * ways; n <= mostTurns {
		return n
	}
	return max(rotations, ways)
}

// differing sums up the runs. If results were wrong, there is an object for each GPU or link that may be at
// fault.
func differing(runs []*perf.Document, ranks int) result.Result {
	var events []flip.Event
	verified, wrong, in := 0, 0, 0
	for _, d := range runs {
		if d.Error != "" || len(d.Rows) == 0 {
			return result.Errored("%s", cmp.Or(d.Error, "nothing was measured"))
		}
		before := wrong
		for _, row := range d.Rows {
			for _, half := range []perf.Placement{row.OutOfPlace, row.InPlace} {
				verified++
				if len(half.WrongOn) > 0 {
					wrong++
					events = append(events, eventsOf(d, half, ranks)...)
				}
			}
		}
		if wrong > before {
			in++
		}
	}
	if wrong == 0 {
		return result.Passed("%s, %s of %d results, all with the bits of the ranks' order", words.Count(ranks, "rank"), words.Count(len(runs), "run"), verified)
	}
	b := flip.BlameOf(events, ranks)
	res := result.Failed("")
	for _, d := range b.Suspects {
		res.Objects = append(res.Objects, result.Object{
			Name: d.String(), Quantity: "results with other bits", Verdict: result.Fail, Measured: &result.Measurement{Value: float64(wrong), Unit: "errors"},
			Reason: fmt.Sprintf("explains %d of %s", b.Explain, words.Count(b.Events, "wrong element")),
		})
	}
	res.Reason = fmt.Sprintf("%v: other bits in %s of %d, in %d of %s", b, words.Count(wrong, "result"), verified, in, words.Count(len(runs), "run"))
	res.Remedy = b.Remedy()
	return res
}

// eventsOf are the wrong elements of a result. Where it is not known who adds, it is the ranks whose
// results are wrong.
func eventsOf(d *perf.Document, half perf.Placement, ranks int) (events []flip.Event) {
	gpu := func(rank int) string { return rankDevice(d, rank) }
	for _, s := range half.Suspects {
		events = append(events, flip.Of(s, gpu))
	}
	if events != nil {
		return events
	}
	var all []flip.Suspect
	for _, r := range half.WrongOn {
		all = append(all, flip.Suspect{Rank: r, From: flip.Itself})
	}
	if len(half.WrongOn) == 1 && ranks > 1 {
		all = append(all, flip.Suspect{Rank: half.WrongOn[0], From: flip.Anyone})
	}
	return []flip.Event{flip.Of(all, gpu)}
}

// rankDevice names what a rank ran on.
func rankDevice(d *perf.Document, rank int) string {
	if rank < len(d.Devices) && d.Devices[rank].Bus != [3]int{} {
		return "GPU " + perf.Device{Bus: d.Devices[rank].Bus}.Address()
	}
	return fmt.Sprintf("rank %d", rank)
}

// wrongOn names the devices with wrong results: ", on GPU 0000:3b:00".
func wrongOn(d *perf.Document) string {
	var names []string
	for _, row := range d.Rows {
		for _, rank := range slices.Concat(row.OutOfPlace.WrongOn, row.InPlace.WrongOn) {
			if name := rankDevice(d, rank); !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
	}
	if len(names) == 0 {
		return ""
	}
	return ", on " + strings.Join(names, ", ")
}
