package netplugin

import (
	"net/netip"
	"time"

	"github.com/assay-hpc/assay/coll/transport"
)

// Options say how an Endpoint is to be. Net, Rank, Key and Fault must be given.
type Options struct {
	Net   *Net   // the Endpoint closes it, also when Open fails
	Rank  int    // of this process in the communicator
	Comm  []byte // names the communicator: those of another one are strangers
	Key   []byte // secret of the communicator, 16 bytes or more
	Fault *transport.Fault

	// Addrs are this host's addresses for the TCP connections over which ranks
	// arrange theirs. None means the loopback address.
	Addrs []netip.Addr

	// First is the device of channel 0; the next ones take the next ones. Ranks
	// of one host have different numbers.
	First int

	MaxMessage int           // bytes; the smaller one of two peers' holds
	Timeout    time.Duration // how long a peer's host may be silent on TCP; 0: rendezvous.DefaultTimeout

	Logf func(format string, args ...any) // strangers and failures that others report; may be nil
}

// headerSize is the length of what goes before each message in its slot, in
// bytes. It keeps the message aligned for every element.
const headerSize = 32

// LongestMessage is how long messages can be over a network whose own can be of
// so many bytes.
func LongestMessage(bytes uint64) int {
	return int(min(bytes, 1<<29) - min(bytes, headerSize))
}

// DefaultMaxMessage is for Options.MaxMessage, in bytes.
const DefaultMaxMessage = 512 << 10
