//go:build cgo

package netplugin

/*
#include <stdlib.h>
#include "plugin.h"
*/
import "C"

import (
	"errors"
	"fmt"
	"net"
	"unsafe"

	"github.com/assay-hpc/assay/coll/transport/slots"
)

// The plugin has at most slots.N pending requests per connection; it must allow
// MaxRequests. These constants verify that C uses the same number of slots.
const (
	_ = uint(slots.N - C.NP_SLOTS)
	_ = uint(C.NP_SLOTS - slots.N)
)

// conn is the part that both ends of a connection share.
type conn struct {
	*slots.Conn
	n      *network
	ring   *C.struct_np_ring // nil before the plugin has connected, and after Free
	comm   *Comm
	region Region
}

// open creates the slots of a connection that the plugin has established.
func (c *conn) open(comm *Comm) error {
	if c.Closed { // Close did not wait for it
		return net.ErrClosed
	}
	mem, size, stride := c.MakeSlots()
	region, err := comm.Register(mem)
	if err != nil {
		return err
	}
	c.comm, c.region = comm, region
	r := (*C.struct_np_ring)(C.calloc(1, C.sizeof_struct_np_ring))
	r.n, r.comm, r.region = comm.n.c, comm.c, region.c
	r.base = C.uintptr_t(uintptr(unsafe.Pointer(&mem[0])))
	r.stride, r.size, r.tag = C.size_t(stride), C.size_t(size), C.int(c.Channel)
	c.ring = r
	c.Made()
	return nil
}

// failCall breaks the connection after a failed call of the plugin.
func (c *conn) failCall(result C.int) {
	c.Fail(fmt.Sprintf("%v: %s: %v", c.n, C.GoString(c.ring.call), Result(result)))
}

// Free implements slots.End.
func (c *conn) Free() error {
	if c.ring == nil {
		return nil
	}
	err := errors.Join(c.comm.Deregister(c.region), c.comm.Close())
	C.free(unsafe.Pointer(c.ring))
	c.ring = nil
	return err
}

// later returns the greater of two counts, which may have wrapped around.
func later(a, b uint32) uint32 {
	if int32(a-b) > 0 {
		return a
	}
	return b
}
