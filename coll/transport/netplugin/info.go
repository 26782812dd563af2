//go:build cgo

package netplugin

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

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
