// Package flip says which GPU, or which way between two of them, has flipped bits, from results that
// are wrong. It works with what is known of an operation: who sends what to whom, and who adds.
//
// A Check is about one operation on checksums, as the engine on GPUs makes them while a program runs.
// A Reduction is about elements of which all that was added is known, as in the suite full; Blame puts
// together what several of them say.
package flip

import "slices"

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

// set adds suspects without repetition.
func set(all []Suspect, more ...Suspect) []Suspect {
	for _, s := range more {
		if !slices.Contains(all, s) {
			all = append(all, s)
		}
	}
	return all
}
