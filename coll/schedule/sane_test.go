package schedule

import (
	"fmt"

	"github.com/assay-hpc/assay/coll/op"
)

// A Place says whether Input and Output share memory.
type Place uint8

// The places.
const (
	AnyPlace Place = iota // both, where the collective can be in place
	OutOfPlace
	InPlace
)

// CheckOptions say what Check assumes of transport and memory.
type CheckOptions struct {
	// Slots is how many messages a connection holds. 0 is MinSlots; negative is
	// without limit. What is free of deadlock with few is so with more.
	Slots   int
	Windows int   // how many windows run; 0 is 3
	Place   Place // which kinds of memory to check; the zero value is all

	// ZeroCopy demands that input and output that are sent from where they lie
	// (a step that sends what it stored, or a block as it is) are not written
	// again before the receiver has taken them, as far as the schedule's own
	// messages tell. Scratch memory is never sent from where it lies.
	ZeroCopy bool
}

// clockLanes is the number of lanes up to which the checker knows what
// happened before what. Beyond that lanes of one rank are not proved free of
// races on its memory, and ZeroCopy is refused.
const clockLanes = 256

// sane checks what running a schedule on symbols relies on.
func (s *Schedule) sane() error {
	switch {
	case s.Collective >= op.NumCollectives:
		return fmt.Errorf("schedule: there is no collective number %d", s.Collective)
	case s.Ranks < 1 || s.Ranks > MaxRanks || s.Channels < 1 || s.Channels > MaxChannels || s.Blocks < 1:
		return fmt.Errorf("schedule: %d ranks, %d channels, %d blocks are not within limits", s.Ranks, s.Channels, s.Blocks)
	case s.Root < 0 || s.Root >= s.Ranks:
		return fmt.Errorf("schedule: root %d is not one of the %d ranks", s.Root, s.Ranks)
	case !s.Collective.Vector() && s.Blocks != s.Ranks:
		return fmt.Errorf("schedule: %v has one block a rank, not %d for %d ranks", s.Collective, s.Blocks, s.Ranks)
	}
	return nil
}
