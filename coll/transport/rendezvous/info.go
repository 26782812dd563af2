package rendezvous

import (
	"fmt"
	"strconv"
	"strings"
)

// infoVersion is the first word of an Info. It changes when the protocol between ranks
// changes, over any transport.
const infoVersion = "peer/3"

// An Info describes a transport's endpoint to its peers, as four words of text. It is not
// secret.
type Info struct {
	MaxMessage int    // bytes of the longest message, 1 or more
	Addrs      Addrs  // of its Point
	Network    string // the transport's name; may have spaces
}

// Marshal returns the text that ParseInfo parses.
func (i Info) Marshal() []byte {
	return fmt.Appendf(nil, "%s %d %v %s", infoVersion, i.MaxMessage, i.Addrs, i.Network)
}

// ParseInfo parses the Info of rank peer, which must use the same network. Errors name
// the rank.
func ParseInfo(data []byte, peer int, network string) (Info, error) {
	i, err := parseInfo(data)
	if err != nil {
		return i, fmt.Errorf("%s: info of rank %d: %w", network, peer, err)
	}
	if i.Network != network {
		return i, fmt.Errorf("rank %d has the network %s, this rank %s", peer, i.Network, network)
	}
	return i, nil
}

func parseInfo(data []byte) (Info, error) {
	words := strings.SplitN(string(data), " ", 4)
	if len(words) != 4 || words[0] != infoVersion {
		return Info{}, fmt.Errorf("%.40q is not of version %s; all ranks must run the same build", data, infoVersion)
	}
	n, err := strconv.ParseUint(words[1], 10, 31)
	if err != nil || n == 0 || strconv.FormatUint(n, 10) != words[1] {
		return Info{}, fmt.Errorf("message size %q is not a positive number", words[1])
	}
	addrs, err := parseAddrs(words[2])
	return Info{int(n), addrs, words[3]}, err
}
