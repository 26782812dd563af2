package netplugin

import "github.com/assay-hpc/assay/coll/transport/slots"

// Options say how an Endpoint is to be. Net, Rank, Key and Fault must be given.
type Options struct {
	slots.Options
	Net *Net // the Endpoint closes it, also when Open fails
}

// LongestMessage is how long messages can be over a network whose own can be of
// so many bytes.
func LongestMessage(bytes uint64) int {
	return int(min(bytes, slots.MostMessage) - min(bytes, slots.HeaderSize))
}
