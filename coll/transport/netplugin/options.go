package netplugin

import (
	"github.com/assay-hpc/assay/coll/transport"
	"github.com/assay-hpc/assay/coll/transport/slots"
)

// Options say how an Endpoint is to be. Net, Rank, Key and Fault must be given.
type Options struct {
	slots.Options
	Net *Net // the Endpoint closes it, also when Open fails
}

// HeadsOptions say how Heads are to be.
type HeadsOptions struct {
	Listener   *CollListener
	Handles    [][HandleSize]byte // of all heads, in an order that all have
	Rank       int                // of this one in Handles
	MaxMessage int                // bytes, of what a head gives and of what it gets
	Fault      *transport.Fault
	Logf       func(format string, args ...any)
}

// LongestMessage is how long messages can be over a network whose own can be of
// so many bytes.
func LongestMessage(bytes uint64) int {
	return int(min(bytes, slots.MostMessage) - min(bytes, slots.HeaderSize))
}
