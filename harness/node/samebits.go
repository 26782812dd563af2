package node

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/assay-hpc/assay/coll/perf"
	"github.com/assay-hpc/assay/internal/result"
	"github.com/assay-hpc/assay/internal/words"
)

// sameBits adds the same data once for each rotation of the GPUs over the ranks, each size twice.
// The sums' bits depend on the order of addition, and must be those of the ranks' order each time.
// A GPU whose results are wrong is wrong as whichever rank it is.
func (c *Config) sameBits(ctx context.Context, p collParams, op string, ranks int) result.Result {
	args := []string{
		"coll", op, "-g", strconv.Itoa(ranks), "-b", p.Min, "-e", p.Max, "-f", strconv.Itoa(p.Factor), "-n", "1", "-c", "2",
		"--device", p.Device, "--same-bits", "--format", "json",
	}
	if p.Device == "cpu" {
		d, bad := report[perf.Document](ctx, c.Run, args...)
		if bad != nil {
			return *bad
		}
		return differing([]*perf.Document{d})
	}
	visible := make([]string, ranks)
	for i := range visible {
		visible[i] = strconv.Itoa(i)
	}
	if v := os.Getenv("CUDA_VISIBLE_DEVICES"); v != "" {
		visible = strings.Split(v, ",")
	}
	var all []*perf.Document
	for range visible {
		d, bad := report[perf.Document](ctx, c.Run, append([]string{"CUDA_VISIBLE_DEVICES=" + strings.Join(visible, ",")}, args...)...)
		if bad != nil {
			return *bad
		}
		all = append(all, d)
		visible = append(visible[1:], visible[0])
	}
	return differing(all)
}

// differing sums up the runs: an object for each device that had wrong results, the one with most of
// them first.
func differing(runs []*perf.Document) result.Result {
	type wrong struct{ results, runs int }
	by := map[string]*wrong{}
	verified := 0
	for _, d := range runs {
		if d.Error != "" || len(d.Rows) == 0 {
			return result.Errored("%s", cmp.Or(d.Error, "nothing was measured"))
		}
		seen := map[string]bool{}
		for _, row := range d.Rows {
			for _, half := range []perf.Placement{row.OutOfPlace, row.InPlace} {
				verified++
				for _, rank := range half.WrongOn {
					name := rankDevice(d, rank)
					if by[name] == nil {
						by[name] = &wrong{}
					}
					by[name].results++
					if !seen[name] {
						seen[name] = true
						by[name].runs++
					}
				}
			}
		}
	}
	ranks := runs[0].Ranks
	if len(by) == 0 {
		return result.Passed("%s, %s of %d sums, all with the bits of the ranks' order", words.Count(ranks, "rank"), words.Count(len(runs), "rotation"), verified)
	}
	res := result.Failed("")
	for name, w := range by {
		res.Objects = append(res.Objects, result.Object{
			Name: name, Quantity: "sums with other bits", Verdict: result.Fail, Measured: &result.Measurement{Value: float64(w.results), Unit: "errors"},
			Reason: fmt.Sprintf("other bits in %s of %d, in %d of %s", words.Count(w.results, "sum"), verified, w.runs, words.Count(len(runs), "rotation")),
		})
	}
	slices.SortFunc(res.Objects, func(a, b result.Object) int {
		return cmp.Or(cmp.Compare(b.Measured.Value, a.Measured.Value), cmp.Compare(a.Name, b.Name))
	})
	first := res.Objects[0]
	res.Reason = first.Name + ": " + first.Reason
	res.Remedy = "do not use it: run harness diag -r memory,sm_stress,p2p to see whether it is its memory, its arithmetic or its links"
	return res
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
