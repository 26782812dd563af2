// Package flip says which GPU, or which way between two of them, has flipped bits, from results that
// are wrong. It works with what is known of an operation: who sends what to whom, and who adds.
//
// A Check is about one operation on checksums, as the engine on GPUs makes them while a program runs.
// A Reduction is about elements of which all that was added is known, as in the suite full; Blame puts
// together what several of them say.
package flip

import (
	"fmt"
	"slices"
	"strings"
)

// A Suspect may be at fault: a GPU, or the way of data to it.
type Suspect struct {
	Rank int `json:"rank"` // the GPU, or the receiver
	From int `json:"from"` // the sender; Itself: the GPU's memory or arithmetic; Anyone: any sender
}

// Values of Suspect.From.
const (
	Itself = -1
	Anyone = -2
)

// Name returns the suspect's name for people: "GPU 1", "the link from GPU 0 to GPU 1".
func (s Suspect) Name(gpu func(rank int) string) string {
	switch s.From {
	case Itself:
		return gpu(s.Rank)
	case Anyone:
		return "a link into " + gpu(s.Rank)
	}
	return fmt.Sprintf("the link from %s to %s", gpu(s.From), gpu(s.Rank))
}

// touches reports whether a rank's GPU is the suspect, or an end of its way.
func (s Suspect) touches(rank int) bool { return s.Rank == rank || s.From == rank }

// Names returns the names of suspects: "GPU 1, or the link from GPU 0 to GPU 1".
func Names(all []Suspect, gpu func(rank int) string) string {
	var names []string
	for _, s := range all {
		names = append(names, s.Name(gpu))
	}
	return strings.Join(names, ", or ")
}

// set adds suspects without repetition.
func set(all []Suspect, more ...Suspect) []Suspect {
	for _, s := range more {
		if !slices.Contains(all, s) {
			all = append(all, s)
		}
	}
	return all
}
