package netplugin

import (
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
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

// LongestMessage is how long messages can be over a network whose own can be of
// so many bytes.
func LongestMessage(bytes uint64) int {
	return int(min(bytes, 1<<29) - min(bytes, headerSize))
}

// DefaultMaxMessage is for Options.MaxMessage, in bytes.
const DefaultMaxMessage = 512 << 10

func (o *Options) check() error {
	switch {
	case o.Net == nil:
		return errors.New("netplugin: there is no plugin")
	case o.Fault == nil:
		return errors.New("netplugin: there is no Fault to report to")
	case o.MaxMessage < 0 || o.MaxMessage > 1<<29:
		return fmt.Errorf("netplugin: messages of %d bytes; want at most %d", o.MaxMessage, 1<<29)
	case o.First < 0:
		return fmt.Errorf("netplugin: device %d is negative", o.First)
	}
	return nil
}

// infoVersion is the first word of an Info. It changes with what ranks say to
// each other.
const infoVersion = "netplugin/1"

// An info is what an endpoint tells its peers, as four words of text.
type info struct {
	maxMessage int
	point      string // of a rendezvous.Point
	plugin     string // its name
}

func (i info) marshal() []byte {
	return fmt.Appendf(nil, "%s %d %s %q", infoVersion, i.maxMessage, i.point, i.plugin)
}

func parseInfo(data []byte) (i info, err error) {
	words := strings.SplitN(string(data), " ", 4)
	if len(words) != 4 || words[0] != infoVersion {
		return i, fmt.Errorf("%.40q is not of version %s; all ranks must run the same build", data, infoVersion)
	}
	n, err := strconv.ParseUint(words[1], 10, 30)
	if err != nil || n == 0 {
		return i, fmt.Errorf("message size %q is not a positive number", words[1])
	}
	name, err := strconv.Unquote(words[3])
	if err != nil {
		return i, fmt.Errorf("%q is no name of a plugin", words[3])
	}
	return info{int(n), words[2], name}, nil
}
