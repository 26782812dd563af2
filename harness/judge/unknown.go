package judge

import (
	"fmt"
	"strings"
)

// unknown is for a table whose platform is not known.
func (j *Judgement) unknown(t *Table, m *Machine, missing []string) {
	j.Verdict = Undecidable
	top := t.Rows[len(t.Rows)-1]
	j.Summary = fmt.Sprintf("%s GB/s busbw at %s cannot be judged: the hardware is not known (%s)", exact(top.best().BusBW), sizeText(top.Bytes), strings.Join(missing, "; "))
	if t.Nodes > 1 && m != nil && m.gpu != nil && m.gpu.Uni >= 200 && top.best().BusBW < 10 && (m.Kind == "InfiniBand" || m.Kind == "RoCE" || m.Kind == "EFA") {
		j.Verdict = Slow
		j.Summary = fmt.Sprintf("%s GB/s busbw at %s between nodes with %s: less than one NIC of 100 Gb/s carries", figure(top.best().BusBW), sizeText(top.Bytes), m.Kind)
		j.Causes = append(j.Causes, tcpInstead(top.best().BusBW, ""))
	}
	j.Ask = append(j.Ask, missing...)
	if t.Guessed {
		j.Ask = append(j.Ask, "which collective it was: all_gather, alltoall, gather and scatter have the same columns")
	}
	if t.Nodes > 1 || t.Nodes == 0 {
		j.Ask = append(j.Ask, "the network between the nodes: NICs, how many, and their link speed (ibstat; ethtool of the interface that \"NET/Socket : Using\" names, and of each link of a bond)")
	}
	j.Ask = append(j.Ask, "the platform: --platform NAME, or --platform \"8 x GPU, 8 x 400G RoCE\" (the GPU model, and the NICs of a node with their rate)")
	j.candidates(t)
	j.dips(t)
	j.falls(t)
	for _, r := range t.Rows {
		j.Rows = append(j.Rows, Judged{What: sizeText(r.Bytes), Bytes: r.Bytes, Measured: r.best().BusBW, Verdict: Undecidable})
	}
	j.hideRows = true
}

// dips says where a curve falls far below what smaller sizes had.
func (j *Judgement) dips(t *Table) {
	most := 0.0
	var low []string
	for _, r := range t.Rows {
		b := r.best().BusBW
		if most > 1 && b < most/4 {
			low = append(low, sizeText(r.Bytes))
		}
		most = max(most, b)
	}
	if n := t.jumps(); n >= 3 {
		j.Notes = append(j.Notes, fmt.Sprintf("the times are erratic: %d sizes took more than three times as long as those beside them. Something else uses the machine or the network, packets are lost, or clocks of processors sleep", n))
	}
	if len(low) > 0 {
		j.Notes = append(j.Notes, "whatever the hardware is, the curve collapses at "+list(low, 4)+": smaller sizes had four times as much. Lost packets, a node that stalls, or another path for these sizes")
	}
}

// falls judges a curve that falls after its peak, at two sizes or more by four tenths: no hardware of GPUs has such a one where
// its peak is above what the memory of a host carries.
func (j *Judgement) falls(t *Table) {
	peak, fallen, least := Row{}, []string(nil), 0.0
	for _, r := range t.Rows {
		switch b := r.best().BusBW; {
		case peak.Bytes == 0 || b > peak.best().BusBW:
			peak, fallen, least = r, nil, b
		case b < 0.6*peak.best().BusBW:
			fallen, least = append(fallen, sizeText(r.Bytes)), min(least, b)
		}
	}
	if len(fallen) < 2 || peak.best().BusBW < 60 || peak.Bytes < 1<<20 {
		return
	}
	j.Verdict = Slow
	j.Summary = fmt.Sprintf("the curve collapses, whatever the hardware is: %s GB/s at %s, and larger sizes fall below it, to %s (%s)", exact(peak.best().BusBW), sizeText(peak.Bytes), exact(least), list(fallen, 4))
	j.Causes = append(j.Causes, Cause{
		Text:   "something else uses the GPUs or links, clocks fall under load (power, heat), or a link repeats what it lost; speeds that vary from size to size are no limit of a link",
		Remedy: []string{"the same run again, on an idle node: nvidia-smi or rocm-smi (programs, clocks, why they are limited) while it runs; dmesg, and the links' error counters before and after"},
		Decide: "the largest sizes alone, -b 1G -e 8G -n 100: a speed that stays low is a limit, one that varies is load or errors",
		Source: []string{"https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/troubleshooting.html"},
	})
}

// stall returns the first size whose time is out of all proportion to that of the size before: more than ten times for so
// many more bytes, and more than 5 ms.
func (t *Table) stall() *Row {
	for i := 1; i < len(t.Rows); i++ {
		a, b := t.Rows[i-1].best(), t.Rows[i].best()
		if a == nil || b == nil || t.Rows[i-1].Bytes == 0 {
			continue
		}
		grown := float64(t.Rows[i].Bytes) / float64(t.Rows[i-1].Bytes)
		if b.Microseconds > 5e3 && b.Microseconds > 10*grown*a.Microseconds && grown > 1 {
			return &t.Rows[i]
		}
	}
	return nil
}

// jumps counts the times that are more than three times those of the sizes before and after.
func (t *Table) jumps() (n int) {
	var us [2][]float64
	for _, r := range t.Rows {
		if r.Out != nil && r.Bytes > 0 {
			us[0] = append(us[0], r.Out.Microseconds)
		}
		if r.In != nil && r.Bytes > 0 {
			us[1] = append(us[1], r.In.Microseconds)
		}
	}
	for _, list := range us {
		for i := 1; i+1 < len(list); i++ {
			if list[i] > 3*max(list[i-1], list[i+1]) {
				n++
			}
		}
	}
	return n
}

// candidates says by which NICs a figure between nodes would be good.
func (j *Judgement) candidates(t *Table) {
	if t.Nodes < 2 || t.Collective == "alltoall" || t.Collective == "sendrecv" {
		return
	}
	got := t.Rows[len(t.Rows)-1].best().BusBW
	var good []string
	for _, nics := range []int{1, 2, 4, 8, 16} {
		for _, gbit := range []float64{25, 100, 200, 400} {
			wire := float64(nics) * gbit / 8
			if nics > 1 && gbit < 100 || nics == 16 && gbit != 200 {
				continue
			}
			if f := got / wire; f > 0.83 && f < 1 {
				good = append(good, fmt.Sprintf("%d x %g Gb/s", nics, gbit))
			}
		}
	}
	if len(good) > 0 {
		j.Notes = append(j.Notes, "as a ring it would be good for nodes with "+strings.Join(good, " or ")+", and low for faster ones")
	}
}
