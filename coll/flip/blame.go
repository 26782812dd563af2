package flip

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// An Event is one element that was wrong, and who may be at fault, as names of GPUs: which rank each is
// differs from run to run.
type Event []Device

// A Device is a GPU that may be at fault, or the receiver of what came from another one.
type Device struct {
	GPU, From string // From "": the GPU itself; unknown: it is not known who sent
}

const unknown = "?"

func (d Device) String() string {
	switch d.From {
	case "":
		return d.GPU
	case unknown:
		return "a link into " + d.GPU
	}
	return fmt.Sprintf("the link from %s to %s", d.From, d.GPU)
}

// Of returns the event of suspects.
func Of(all []Suspect, gpu func(rank int) string) (e Event) {
	for _, s := range all {
		d := Device{GPU: gpu(s.Rank)}
		switch {
		case s.From >= 0:
			d.From = gpu(s.From)
		case s.From == Anyone:
			d.From = unknown
		}
		if !slices.Contains(e, d) {
			e = append(e, d)
		}
	}
	return e
}

// by reports whether a suspect explains the event. A GPU may be at fault for what came from it or to it: its
// memory, or its side of the link.
func (e Event) by(d Device) bool {
	return slices.ContainsFunc(e, func(o Device) bool {
		return o == d || d.From == "" && (o.GPU == d.GPU || o.From == d.GPU) || d.From != "" && o.From == unknown && o.GPU == d.GPU
	})
}

// direct reports whether the event names a suspect itself.
func (e Event) direct(d Device) bool { return slices.Contains(e, d) }

// A Blame is what all events together say.
type Blame struct {
	Suspects []Device // that explain most events, the likeliest first
	Explain  int      // so many
	Events   int
}

// sure is how often chance may let a GPU's faults look like those of one of its links.
const sure = 0.01

// BlameOf puts events together, among so many GPUs. One fault explains all of them, if there is one:
// the GPU or the link that most events have among their suspects. Where a link explains what its GPUs do, it is
// the link if their other links would have shown as well.
func BlameOf(events []Event, gpus int) (b Blame) {
	b.Events = len(events)
	var all []Device
	for _, e := range events {
		for _, d := range e {
			for _, c := range []Device{{GPU: d.GPU}, {GPU: d.From}, d} {
				if c.GPU != "" && c.GPU != unknown && !slices.Contains(all, c) {
					all = append(all, c)
				}
			}
		}
	}
	explains, direct := map[Device]int{}, map[Device]int{}
	for _, d := range all {
		for _, e := range events {
			if e.by(d) {
				explains[d]++
			}
			if e.direct(d) {
				direct[d]++
			}
		}
		b.Explain = max(b.Explain, explains[d])
	}
	for _, d := range all {
		if explains[d] == b.Explain {
			b.Suspects = append(b.Suspects, d)
		}
	}
	b.narrow(direct, gpus)
	slices.SortStableFunc(b.Suspects, func(x, y Device) int {
		return cmp.Or(cmp.Compare(direct[y], direct[x]), cmp.Compare(x.GPU, y.GPU), cmp.Compare(x.From, y.From))
	})
	return b
}

// narrow leaves out suspects that chance alone would have to hide.
func (b *Blame) narrow(direct map[Device]int, gpus int) {
	if gpus < 3 || !slices.ContainsFunc(b.Suspects, func(d Device) bool { return d.From != "" }) {
		return
	}
	chance := 1.0 // that a GPU whose fault is in what comes to it shows it with one sender only
	for range b.Explain - 1 {
		chance /= float64(gpus - 1)
	}
	b.Suspects = slices.DeleteFunc(b.Suspects, func(d Device) bool {
		return d.From == "" && direct[d] == 0 && chance < sure
	})
}

// String names the suspects.
func (b Blame) String() string {
	var names []string
	for _, d := range b.Suspects {
		names = append(names, d.String())
	}
	return strings.Join(names, ", or ")
}

// Remedy says what to do, and what would decide between several.
func (b Blame) Remedy() string {
	const then = "run harness diag -r memory,sm_stress,p2p to see whether it is its memory, its arithmetic or its links"
	if len(b.Suspects) == 1 {
		return "do not use it: " + then
	}
	return "do not use them; more findings, best with other GPUs beside them, tell them apart: run harness certify --suite full, and harness diag -r memory,sm_stress,p2p, which tests each alone"
}
