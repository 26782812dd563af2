package socket

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/assay-hpc/assay/coll/transport/rendezvous"
)

// infoVersion is the first word of an Info. It changes with the wire format.
const infoVersion = "tcp/2"

// An info is what an endpoint tells its peers: three words of text.
type info struct {
	maxMessage int
	addrs      rendezvous.Addrs
}

func (i info) marshal() []byte {
	return fmt.Appendf(nil, "%s %d %v", infoVersion, i.maxMessage, i.addrs)
}

func parseInfo(data []byte) (info, error) {
	words := strings.Split(string(data), " ")
	if len(words) != 3 || words[0] != infoVersion {
		return info{}, fmt.Errorf("%.40q is not of version %s; all ranks must run the same build", data, infoVersion)
	}
	n, err := strconv.ParseUint(words[1], 10, 31)
	if err != nil || n == 0 || strconv.FormatUint(n, 10) != words[1] {
		return info{}, fmt.Errorf("message size %q is not a positive number", words[1])
	}
	addrs, err := rendezvous.ParseAddrs(words[2])
	return info{int(n), addrs}, err
}
