//go:build cgo && linux

package verbs

/*
#cgo LDFLAGS: -ldl
#include "library.h"
#cgo noescape verbs_poll
#cgo nocallback verbs_poll
#cgo noescape verbs_post_send
#cgo nocallback verbs_post_send
#cgo noescape verbs_post_recv
#cgo nocallback verbs_post_recv
#cgo nocallback verbs_notify
#cgo noescape verbs_event
#cgo nocallback verbs_event
*/
import "C"

import (
	"cmp"
	"fmt"
	"sync"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/assay-hpc/assay/internal/host/sysfs"
)

// Load returns nil, or the reason why libibverbs cannot be used, as an error that is ErrNoLibrary.
func Load() error {
	if why := C.verbs_load(); why != nil {
		return fmt.Errorf("%w: %s (Debian's package is libibverbs1, with ibverbs-providers)", ErrNoLibrary, C.GoString(why))
	}
	return nil
}

// Names lists the devices that libibverbs has a provider for.
func Names() ([]string, error) {
	var names []string
	err := devices(func(name string, _ *C.struct_vb_device) bool {
		names = append(names, name)
		return true
	})
	return names, err
}

// devices calls f with each device until it returns false.
func devices(f func(name string, d *C.struct_vb_device) bool) error {
	if err := Load(); err != nil {
		return err
	}
	var n C.int
	list, err := C.verbs_list(&n)
	if list == nil {
		if err == syscall.ENOSYS {
			return fmt.Errorf("%w: the kernel has no module ib_uverbs", ErrNoLibrary)
		}
		return newError("ibv_get_device_list", "this machine", err)
	}
	defer C.verbs_free_list(list)
	for i := range n {
		d := C.verbs_device_at(list, i)
		if !f(C.GoString(C.verbs_name(d)), d) {
			break
		}
	}
	return nil
}

// A Context is an open device. Its methods may be called by any goroutine.
type Context struct {
	name     string
	c        *C.struct_vb_context
	borrowed bool // owned by librdmacm, which keeps it open

	mu   sync.Mutex
	qps  map[unsafe.Pointer]uint32
	stop int           // an eventfd that stops the goroutine of Events
	done chan struct{} // closed when that goroutine has ended
}

// Open opens a device by its name; "" is the first one. Close closes it.
func Open(name string) (*Context, error) {
	var c *C.struct_vb_context
	var err error
	found := ""
	if e := devices(func(n string, d *C.struct_vb_device) bool {
		if name != "" && n != name {
			return true
		}
		found = n
		c, err = C.verbs_open(d)
		return false
	}); e != nil {
		return nil, e
	}
	switch {
	case found == "":
		return nil, noDevice(name)
	case c == nil:
		return nil, newError("ibv_open_device", found, err)
	}
	return &Context{name: found, c: c, qps: map[unsafe.Pointer]uint32{}}, nil
}

func noDevice(name string) error {
	names, _ := Names()
	switch {
	case len(names) == 0:
		return fmt.Errorf("%w: no RDMA device: none in /sys/class/infiniband, or no provider for it (ibverbs-providers), or no /dev/infiniband in this container", ErrNoLibrary)
	case name == "":
		return fmt.Errorf("%w: no RDMA device", ErrNoLibrary)
	}
	return fmt.Errorf("there is no RDMA device %q; there are %q", name, names)
}

// Name is the name of the device.
func (c *Context) Name() string { return c.name }

// Close closes the device. All resources created with it must be closed already.
func (c *Context) Close() error {
	if c.done != nil {
		_, _ = unix.Write(c.stop, []byte{1, 0, 0, 0, 0, 0, 0, 0})
		<-c.done
		_ = unix.Close(c.stop)
		c.done = nil
	}
	if c.borrowed {
		return nil
	}
	return c.failed("ibv_close_device", C.verbs_close(c.c))
}

// failed converts the return value of a call that returns an errno to an error, and 0 to nil. Some
// providers return -1 and set errno.
func (c *Context) failed(call string, rc C.int) error {
	if rc == 0 {
		return nil
	}
	return newError(call, c.name, syscall.Errno(max(rc, -rc)))
}

// Limits are the limits of a device.
type Limits struct {
	Vendor   uint32 // OUI of the vendor
	QPs      int
	Requests int // per queue of a QP
	CQEs     int // per CQ
	ReadsIn  int // reads and atomics that a QP can answer at once
	Ports    int
}

// Limits queries the limits of the device.
func (c *Context) Limits() (Limits, error) {
	var a C.struct_vb_device_attr
	if err := c.failed("ibv_query_device", C.verbs_query_device(c.c, &a)); err != nil {
		return Limits{}, err
	}
	return Limits{
		Vendor: uint32(a.vendor_id), QPs: int(a.max_qp), Requests: int(a.max_qp_wr), CQEs: int(a.max_cqe), ReadsIn: int(a.max_qp_rd_atom), Ports: int(a.phys_port_cnt),
	}, nil
}

// A Port is the state of one of the device's ports.
type Port struct {
	Number     int
	State      portState
	MTU        MTU    // the active one
	LID        uint16 // 0 on Ethernet
	MaxMessage uint32 // bytes
	Ethernet   bool   // RoCE or iWARP; false: InfiniBand
}

// Active reports whether the port's link is up.
func (p *Port) Active() bool { return p.State == portActive }

// Port queries a port, numbered from 1.
func (c *Context) Port(number int) (Port, error) {
	var a C.struct_vb_port_attr
	if err := c.failed("ibv_query_port", C.verbs_query_port(c.c, C.int(number), &a)); err != nil {
		e := err.(*Error)
		e.Port, e.Cause = number, cmp.Or(e.Cause, "the device has no such port (-i)")
		return Port{}, e
	}
	return Port{
		Number: number, State: portState(a.state), MTU: MTU(a.active_mtu), LID: uint16(a.lid),
		MaxMessage: uint32(a.max_msg_sz), Ethernet: a.link_layer == 2,
	}, nil
}

// GIDs lists the GIDs of a port that are in use.
func (c *Context) GIDs(port int) ([]GIDEntry, error) {
	fs, err := sysfs.Open("/")
	if err != nil {
		return nil, err
	}
	table, err := fs.GIDs(c.name, port)
	if err != nil {
		return nil, fmt.Errorf("the addresses of %s port %d: %w", c.name, port, err)
	}
	var out []GIDEntry
	for _, t := range table {
		g, err := parseGID(t.GID)
		if err != nil {
			return nil, err
		}
		out = append(out, GIDEntry{Index: t.Index, GID: g, RoCE: roceVersion(t.Type), Netdev: t.Netdev})
	}
	return out, nil
}

// Events starts listening for asynchronous events. It calls f with one event after the other until
// the device is closed. It may be called only once.
func (c *Context) Events(f func(Event)) error {
	stop, err := unix.Eventfd(0, unix.EFD_CLOEXEC)
	if err != nil {
		return fmt.Errorf("listening for events of %s: eventfd: %w", c.name, err)
	}
	c.stop, c.done = stop, make(chan struct{})
	go func() {
		defer close(c.done)
		for {
			e, ok, err := c.event()
			if err != nil {
				return // the device was closed or is gone
			}
			if ok {
				f(e)
			}
		}
	}()
	return nil
}

func (c *Context) event() (Event, bool, error) {
	var kind, port C.int
	var object unsafe.Pointer
	switch n := C.verbs_event(c.c, C.int(c.stop), &kind, &object, &port); {
	case n < 0:
		return Event{}, false, newError("ibv_get_async_event", c.name, syscall.Errno(-n))
	case n == 0:
		return Event{}, false, nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return Event{Type: eventType(kind), QPN: c.qps[object], Port: int(port)}, true, nil
}
