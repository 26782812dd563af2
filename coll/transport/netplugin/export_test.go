//go:build cgo

package netplugin

import (
	"github.com/assay-hpc/assay/coll/transport"
	"github.com/assay-hpc/assay/coll/transport/slots"
)

// HangUp ends all TCP connections, as the death of the process would.
func HangUp(e transport.Endpoint) {
	for _, x := range e.(*slots.Endpoint).Ends(nil) {
		x.(interface{ HangUp() }).HangUp()
	}
}
