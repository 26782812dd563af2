//go:build cgo

package netplugin

/*
#include <stdlib.h>
#include "collnet.h"
*/
import "C"

import (
	"errors"
	"fmt"
	"unsafe"

	"github.com/assay-hpc/assay/coll/elem"
	"github.com/assay-hpc/assay/coll/op"
)

// A CollNet is a plugin's table for reductions in the network, initialized for one
// communicator. The caller must close it. Its methods may be called from several
// goroutines.
type CollNet struct {
	lib     *Library
	c       *C.struct_np_coll
	devices []Properties
}

// CollNetName returns the name of the table for reductions in the network, and whether
// there is one.
func (l *Library) CollNetName() (string, bool) {
	if l.c.coll == nil {
		return "", false
	}
	return C.GoString(C.np_coll_name(l.c)), true
}

// CollNet initializes the table for reductions in the network for a communicator, which
// id identifies. The error says why the network does not reduce.
func (l *Library) CollNet(id uint64) (*CollNet, error) {
	if l.c.coll == nil {
		return nil, fmt.Errorf("network plugin %s has none of the symbols ncclCollNetPlugin_v%d to ncclCollNetPlugin_v%d", l.name, C.NP_OLDEST, C.NP_NEWEST)
	}
	n := &CollNet{lib: l, c: (*C.struct_np_coll)(C.calloc(1, C.sizeof_struct_np_coll))}
	n.c.l = l.c
	err := l.initialize(&l.collOnce, n.Version(), func() error { return n.failed("init", C.np_coll_init(n.c, C.uint64_t(id))) })
	if err != nil {
		C.free(unsafe.Pointer(n.c))
		return nil, err
	}
	if err := n.readDevices(); err != nil {
		return nil, errors.Join(err, n.Close())
	}
	return n, nil
}

// look reads the devices' properties.
func (n *CollNet) readDevices() error {
	var count C.int
	if err := n.failed("devices", C.np_coll_devices(n.c, &count)); err != nil {
		return err
	}
	for d := range int(count) {
		var p C.struct_np_props
		if err := n.failed("getProperties", C.np_coll_properties(n.c, C.int(d), &p)); err != nil {
			return err
		}
		n.devices = append(n.devices, propertiesOf(&p, p.max_coll))
	}
	switch {
	case len(n.devices) == 0:
		return fmt.Errorf("collnet plugin %s has no devices", n.Name())
	case n.devices[0].PtrSupport&PtrHost == 0:
		return fmt.Errorf("collnet plugin %s: device 0, %s, does not reduce the processor's memory (kinds of memory %#x)", n.Name(), n.devices[0].Name, n.devices[0].PtrSupport)
	}
	return nil
}

// failed converts a call's result to an error; nil for success.
func (n *CollNet) failed(call string, result C.int) error {
	if result == 0 {
		return nil
	}
	return fmt.Errorf("collnet plugin %s: %s: %w", n.Name(), call, Result(result))
}

// Name returns the table's name.
func (n *CollNet) Name() string { return C.GoString(C.np_coll_name(n.lib.c)) }

// Version returns the table's version: 8 to 12.
func (n *CollNet) Version() int { return int(n.lib.c.coll_version) }

// Devices returns the devices that reduce, by number; there is at least one.
func (n *CollNet) Devices() []Properties { return n.devices }

// Reduces reports whether the network supports a reduction of a type.
func (n *CollNet) Reduces(t elem.Type, op elem.Op) bool {
	if op == elem.Avg { // the network computes a sum
		op = elem.Sum
	}
	var supported C.int
	return C.np_coll_reduces(n.c, C.int(t), C.int(op), &supported) == 0 && supported == 1
}

// Does reports whether the network supports a collective at all.
func (n *CollNet) Does(c op.Collective) bool {
	switch c {
	case op.AllReduce:
		return true
	case op.AllGather:
		return C.np_coll_gathers(n.c) != 0
	case op.ReduceScatter:
		return C.np_coll_scatters(n.c) != 0
	}
	return false
}

// Close releases the communicator's use of the table. Its groups must be closed before.
func (n *CollNet) Close() error {
	if n.c == nil {
		return nil
	}
	err := n.failed("finalize", C.np_coll_finalize(n.c))
	C.free(unsafe.Pointer(n.c))
	n.c = nil
	return err
}

// A CollListener is a head before its group exists.
type CollListener struct {
	n      *CollNet
	c      unsafe.Pointer
	Handle [HandleSize]byte // for all heads
}

// Listen creates a head, on a device.
func (n *CollNet) Listen(device int) (*CollListener, error) {
	handle := C.calloc(1, HandleSize)
	defer C.free(handle)
	l := &CollListener{n: n}
	if err := n.failed("listen", C.np_coll_listen(n.c, C.int(device), handle, &l.c)); err != nil {
		return nil, err
	}
	if l.c == nil {
		return nil, fmt.Errorf("collnet plugin %s: listen: %w", n.Name(), errNoObject)
	}
	copy(l.Handle[:], unsafe.Slice((*byte)(handle), HandleSize))
	return l, nil
}

// Connect creates the group of the heads with these handles; rank is the caller's index.
// All heads call it. It may block until all of them do.
func (l *CollListener) Connect(handles [][HandleSize]byte, rank int) (*CollGroup, error) {
	all := C.calloc(C.size_t(len(handles)), HandleSize)
	defer C.free(all)
	for i, h := range handles {
		copy(unsafe.Slice((*byte)(unsafe.Add(all, i*HandleSize)), HandleSize), h[:])
	}
	g := &CollGroup{n: l.n, size: len(handles)}
	if err := l.n.failed("connect", C.np_coll_connect(l.n.c, all, C.int(len(handles)), C.int(rank), l.c, &g.c)); err != nil {
		return nil, err
	}
	if g.c == nil {
		return nil, fmt.Errorf("collnet plugin %s: connect: %w", l.n.Name(), errNoObject)
	}
	return g, nil
}

// Close closes the listener, not the group.
func (l *CollListener) Close() error {
	return l.n.failed("closeListen", C.np_coll_close_listen(l.n.c, l.c))
}

// A CollGroup is one head's side of a group. One goroutine at a time uses it.
type CollGroup struct {
	n    *CollNet
	c    unsafe.Pointer
	size int
}

// Register registers memory with the plugin. It must not be in the Go heap.
func (g *CollGroup) Register(b []byte) (r Region, err error) {
	err = g.n.failed("regMr", C.np_coll_register(g.n.c, g.c, unsafe.Pointer(unsafe.SliceData(b)), C.size_t(len(b)), &r.c))
	return r, err
}

// Deregister reverses Register.
func (g *CollGroup) Deregister(r Region) error {
	return g.n.failed("deregMr", C.np_coll_deregister(g.n.c, g.c, r.c))
}

// A Job is a collective of a group. Each head's input is at From, its result is written
// to To. Both are in registered memory.
type Job struct {
	Do       op.Collective
	Type     elem.Type
	Op       elem.Op
	From, To []byte
}

// kinds maps collectives to their C constants.
var kinds = [op.NumCollectives]C.int{op.AllReduce: C.NP_ALLREDUCE, op.AllGather: C.NP_ALLGATHER, op.ReduceScatter: C.NP_REDUCESCATTER}

// fill converts a job to its C form.
func (j *Job) fill(c *C.struct_np_job) {
	c.kind, c._type, c.op, c.element = kinds[j.Do], C.int(j.Type), C.int(j.Op), C.size_t(j.Type.Size())
	if j.Op == elem.Avg {
		c.op = C.int(elem.Sum)
	}
	c.size, c.from, c.to = C.size_t(len(j.From)), unsafe.Pointer(unsafe.SliceData(j.From)), unsafe.Pointer(unsafe.SliceData(j.To))
}

// Begin starts a job; ok is false if the plugin cannot accept it now. All heads start the
// same jobs in the same order.
func (g *CollGroup) Begin(j Job, r Region) (q Request, ok bool, err error) {
	var c C.struct_np_job
	var call *C.char
	j.fill(&c)
	result := C.np_coll_begin(g.n.c, g.c, C.int(g.size), r.c, &c, &q.c, &call)
	return q, q.c != nil, g.n.failed(C.GoString(call), result)
}

// Test reports whether a job is done. A request that is done is no longer valid.
func (g *CollGroup) Test(q Request) (bool, error) {
	var done C.int
	err := g.n.failed("test", C.np_coll_test(g.n.c, q.c, &done))
	return done != 0, err
}

// Close closes the head's side of the group.
func (g *CollGroup) Close() error { return g.n.failed("closeColl", C.np_coll_close(g.n.c, g.c)) }
