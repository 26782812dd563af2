package explain

import (
	"slices"
	"strings"
)

// readDmon reads nvidia-smi dmon, and compares the clocks of GPUs that are all busy.
func readDmon(b *block) string {
	columns := strings.Fields(strings.TrimPrefix(b.lines[0], "#"))
	sm, clock, memory := slices.Index(columns, "sm"), slices.Index(columns, "pclk"), slices.Index(columns, "mclk")
	values := map[string][]float64{}
	gpus := map[string]bool{}
	var samples [][]dmonRow
	var rows []dmonRow
	for i, l := range b.lines[1:] {
		f := strings.Fields(l)
		if len(f) < len(columns) || f[0] == "#" {
			continue
		}
		if slices.ContainsFunc(rows, func(r dmonRow) bool { return r.gpu == f[0] }) {
			samples, rows = append(samples, rows), nil
		}
		gpus[f[0]] = true
		for c, name := range columns {
			if v, ok := value(f[c]); ok {
				if name == "gtemp" {
					b.hot(i+1, f[0], v)
				} else if v > 0 && (name == "dbecc" || name == "tviol") {
					b.doubt(i+1, "GPU %s has %s %s", f[0], name, f[c])
				}
				values[name] = append(values[name], v)
			}
		}
		r := dmonRow{gpu: f[0], line: i + 1}
		if sm > 0 {
			r.busy, _ = value(f[sm])
		}
		if clock > 0 {
			r.clock, _ = value(f[clock])
		}
		if memory > 0 {
			r.memory, _ = value(f[memory])
		}
		rows = append(rows, r)
	}
	if samples = append(samples, rows); sm > 0 {
		b.dmonSamples(samples, clock > 0, memory > 0)
	}
	var shows []string
	for _, c := range []struct{ column, unit string }{{"pwr", "W"}, {"gtemp", "C"}, {"sm", "% busy"}, {"pclk", "MHz"}} {
		if v := values[c.column]; len(v) > 0 {
			shows = append(shows, span(v)+" "+c.unit)
		}
	}
	if len(gpus) == 0 {
		return ""
	}
	return "nvidia-smi dmon of " + plural(len(gpus), "GPU", "GPUs") + ": " + strings.Join(shows, ", ") + map[bool]string{true: "; no GPU runs at a lower clock than most"}[len(gpus) > 2 && clock > 0]
}

// dmonSamples compares the GPUs, each by its median in the samples in which all are busy.
func (b *block) dmonSamples(samples [][]dmonRow, clock, memory bool) {
	clocks, memories, lines := map[string][]float64{}, map[string][]float64{}, map[string]int{}
	var gpus []string
	for _, rows := range samples {
		if slices.ContainsFunc(rows, func(r dmonRow) bool { return r.busy < 80 }) {
			continue
		}
		for _, r := range rows {
			if lines[r.gpu] == 0 {
				gpus = append(gpus, r.gpu)
			}
			clocks[r.gpu], memories[r.gpu], lines[r.gpu] = append(clocks[r.gpu], r.clock), append(memories[r.gpu], r.memory), r.line
		}
	}
	median := func(v []float64) string {
		slices.Sort(v)
		return number(v[len(v)/2])
	}
	var names, sm, mem []string
	var at []int
	for _, g := range gpus {
		names, sm, mem, at = append(names, "GPU "+g), append(sm, median(clocks[g])), append(mem, median(memories[g])), append(at, lines[g])
	}
	if clock {
		b.dmonClocks(gpus, sm, at)
	}
	if memory {
		b.slower("its memory clock in MHz", names, mem, at)
	}
	b.dmonAlone(samples)
}

// dmonClocks compares the clocks of GPUs that are all busy: one that is far lower is a fault, one that is a little lower than
// others which are alike is a doubt.
func (b *block) dmonClocks(gpus, clocks []string, lines []int) {
	most, least := 0.0, 0.0
	var all []float64
	for _, c := range clocks {
		v, _ := value(c)
		all = append(all, v)
		most = max(most, v)
	}
	slow, low := 0, -1
	for i, v := range all {
		if v < most*farLower {
			slow++
		}
		if low < 0 || v < all[low] {
			low = i
		}
	}
	for i, v := range all {
		if i != low && (least == 0 || v < least) {
			least = v
		}
	}
	for i, v := range all {
		if v < most*farLower && len(all) > 2 && (slow == 1 || slow*4 <= len(all)) {
			b.fault("smi.clock", clocks[i], lines[i], map[string]string{"gpu": gpus[i], "best": number(most)})
		}
	}
	switch {
	case len(all) < 2 || slow > 0 && len(all) > 2:
	case slow == 1:
		b.doubt(lines[low], "GPU %s is as busy as the other and runs at %s MHz, the other at %s", gpus[low], clocks[low], number(most))
	case all[low] < most*lower && least >= most*alike:
		b.doubt(lines[low], "GPU %s is as busy as the others and runs at %s MHz, the others at %s or more", gpus[low], clocks[low], number(least))
	}
}

// Parts of the highest clock: far lower than all busy GPUs that are cooled and fed alike, lower, and alike.
const (
	farLower = 0.8
	lower    = 0.93
	alike    = 0.97
)

// dmonAlone doubts a GPU that is less busy than all others: in most samples, if there are several.
func (b *block) dmonAlone(samples [][]dmonRow) {
	count, last := map[string]int{}, map[string]dmonRow{}
	for _, rows := range samples {
		odd, idle := dmonRow{}, 0
		for _, r := range rows {
			if r.busy < 60 {
				odd, idle = r, idle+1
			} else if r.busy < 90 {
				idle = len(rows)
			}
		}
		if idle == 1 && len(rows) > 2 {
			count[odd.gpu]++
			last[odd.gpu] = odd
		}
	}
	for gpu, n := range count {
		if n*4 >= len(samples)*3 {
			b.doubt(last[gpu].line, "GPU %s is %s %% busy, and all others 90 %% or more: its process waits, is slow or has ended, or none was started there", gpu, number(last[gpu].busy))
		}
	}
}

// A dmonRow is what a sample says of a GPU.
type dmonRow struct {
	gpu         string
	busy, clock float64
	memory      float64
	line        int
}
