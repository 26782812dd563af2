package netplugin

import (
	"github.com/assay-hpc/assay/coll/transport"
	"github.com/assay-hpc/assay/coll/transport/slots"
)

// Options configure an Endpoint. Net, Rank, Key and Fault must be given.
type Options struct {
	slots.Options
	Net *Net // the Endpoint closes it, also when Open fails
}

// HeadsOptions configure Heads.
type HeadsOptions struct {
	Listener   *CollListener
	Handles    [][HandleSize]byte // of all heads, in the same order on every head
	Rank       int                // this head's index in Handles
	MaxMessage int                // bytes, of a head's input and of its result
	Fault      *transport.Fault
	Logf       func(format string, args ...any)
}

// LongestMessage returns the longest message over a network that can send the given
// number of bytes at once.
func LongestMessage(bytes uint64) int {
	return int(min(bytes, slots.MostMessage) - min(bytes, slots.HeaderSize))
}
