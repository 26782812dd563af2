package perf

import (
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
)

// A Ratios is how fast our engine is beside another one, over collectives and sizes.
type Ratios struct {
	ranks string   // "2 x NVIDIA H200"
	rival string   // "nccl 2.28.9"
	names []string // collectives, in the order in which they were measured
	sizes []int64
	wrong []string // collectives with wrong results
	// by whether launched as a graph, collective and size: the other engine's time / ours, the lower
	// one of both placements
	by [2]map[string]map[int64]float64
}

// NewRatios sums up documents of comparisons, of one collective each.
func NewRatios(docs []*Document) *Ratios {
	r := &Ratios{by: [2]map[string]map[int64]float64{{}, {}}}
	sizes := map[int64]bool{}
	for _, d := range docs {
		r.names = append(r.names, d.Collective)
		if d.Bad > 0 {
			r.wrong = append(r.wrong, d.Collective)
		}
		cells, _ := d.cells()
		for size, of := range cells {
			sizes[size] = true
			for at, row := range of {
				by := r.by[0]
				if at.graph {
					by = r.by[1]
				}
				if by[d.Collective] == nil {
					by[d.Collective] = map[int64]float64{}
				}
				ratio := row.Engines[1].Time / row.Engines[0].Time
				if before, ok := by[d.Collective][size]; ok {
					ratio = min(ratio, before)
				}
				by[d.Collective][size] = ratio
			}
		}
	}
	r.sizes = columnsOf(slices.Sorted(maps.Keys(sizes)))
	if d := docs[0]; len(d.Devices) > 0 {
		r.ranks = fmt.Sprintf("%d x %s", d.Ranks, d.Devices[0].Name)
	}
	for _, e := range docs[0].Rivals[:min(1, len(docs[0].Rivals))] {
		r.rival = e.Engine
		if e.Version != 0 && e.Engine == "nccl" {
			r.rival += " " + versionName(e.Version)
		}
	}
	return r
}

// Wrong returns an error that names the collectives with wrong results; nil: there are none.
func (r *Ratios) Wrong() error {
	if len(r.wrong) > 0 {
		return fmt.Errorf("results were wrong: %s", strings.Join(r.wrong, ", "))
	}
	return nil
}

// columnsOf merges sizes that are the same but for rounding to whole elements of each rank: the
// largest of those between two powers of two stays.
func columnsOf(sizes []int64) (out []int64) {
	for _, s := range sizes {
		if n := len(out); n > 0 && power(out[n-1]) == power(s) {
			out[n-1] = s
			continue
		}
		out = append(out, s)
	}
	return out
}

// power is the exponent of the power of two that a size was meant to be.
func power(size int64) int { return int(math.Round(math.Log2(float64(size)))) }

// cell returns the ratio of a collective at about a size.
func (r *Ratios) cell(graph int, name string, size int64) (float64, bool) {
	for s, ratio := range r.by[graph][name] {
		if power(s) == power(size) {
			return ratio, true
		}
	}
	return 0, false
}

// bars are the heights of ratios below a bound: the third is even, those before it are slower.
var bars = []rune("▁▂▃▄▅▆▇█")
var bounds = []float64{0.9, 0.97, 1.03, 1.1, 1.25, 1.5, 2, math.Inf(1)}

// Text draws the ratios for a terminal: a line for each collective, a column for each size.
func (r *Ratios) Text(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: time of %s / ours, the lower one out of place and in place; ▃ is even\n", r.ranks, r.rival)
	for graph, of := range r.by {
		if len(of) == 0 {
			continue
		}
		fmt.Fprintf(&b, "\n%-14s", launchName(graph == 1))
		for _, s := range r.sizes {
			fmt.Fprintf(&b, "%6s", powerOfTwo(power(s)))
		}
		b.WriteString("    mean  worst\n")
		for _, name := range r.names {
			r.line(&b, graph, name)
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// line draws the line of a collective, with the geometric mean and the lowest ratio.
func (r *Ratios) line(b *strings.Builder, graph int, name string) {
	fmt.Fprintf(b, "%-14s", name)
	sum, n, worst, where := 0.0, 0, math.Inf(1), int64(0)
	for _, s := range r.sizes {
		ratio, ok := r.cell(graph, name, s)
		if !ok || ratio <= 0 {
			fmt.Fprintf(b, "%6s", "")
			continue
		}
		bar := bars[slices.IndexFunc(bounds, func(k float64) bool { return ratio < k })]
		fmt.Fprintf(b, " %c%s", bar, pad(micros(ratio), 4))
		sum, n = sum+math.Log(ratio), n+1
		if ratio < worst {
			worst, where = ratio, s
		}
	}
	if n > 0 {
		fmt.Fprintf(b, "    %4.2f  %4.2f at %s", math.Exp(sum/float64(n)), worst, powerOfTwo(power(where)))
	}
	b.WriteByte('\n')
}

// powerOfTwo names 2^e bytes: 8, 64K, 1G.
func powerOfTwo(e int) string {
	i := min(max(e, 0)/10, 4)
	return strconv.Itoa(1<<(max(e, 0)-10*i)) + []string{"", "K", "M", "G", "T"}[i]
}
