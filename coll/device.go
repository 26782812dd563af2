package coll

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/assay-hpc/assay/coll/debug"
	"github.com/assay-hpc/assay/coll/op"
)

// ErrNoAccelerator: a communicator was to be made on a device, and nothing
// that knows devices is part of the program.
var ErrNoAccelerator = errors.New("this build has no CUDA (build tag cuda)")

// An Accelerator does the operations on device memory of one rank of a
// communicator. Abort may be called from any goroutine; all else is called by
// the goroutine that uses the communicator.
type Accelerator interface {
	// Enqueue puts an operation on its stream and returns. It does not keep op.
	// After an *Error of InvalidUsage or InvalidArgument nothing was done;
	// others break the communicator.
	Enqueue(op *DeviceOp) error
	// EnqueueAll does so for the operations of a group, of this accelerator and
	// of others (DeviceOp.On), in their order for each of them. All are
	// enqueued before it waits for anything. On an error it says whose
	// operation it was.
	EnqueueAll(ops []*DeviceOp) (failed int, err error)
	// Stream says on which stream later operations will come.
	Stream(stream uintptr) error
	// Alloc returns zeroed device memory; Free takes it back.
	Alloc(n int) (uintptr, error)
	Free(addr uintptr) error
	// Chosen says how the last operation was done: "allreduce_ll/4".
	Chosen() string
	// Abort makes everything that is enqueued end soon, with whatever result.
	Abort(cause error)
	// Close waits for what is enqueued, and frees everything. barrier returns
	// when all ranks have called it as often; it is nil after an Abort.
	Close(barrier func() error) error
}

// A DeviceOp is an operation on device memory, and whose it is.
type DeviceOp struct {
	On Accelerator
	op.Op
}

// A Place is where a rank runs.
type Place struct {
	Host    int // ranks with the same number share a host
	Process uint32
}

// An AcceleratorConfig is what an accelerator is made with.
type AcceleratorConfig struct {
	Rank, Size int
	Device     int     // this rank's, as its process numbers them
	Places     []Place // by rank
	Env        *Env    // all that choices are made of, beside what accelerators tell one another
	Log        *debug.Logger
	Host       *HostSide

	// The rank's own, of which no other needs to know.
	Timeout       time.Duration
	CheckPointers bool
}

var opener atomic.Pointer[func(context.Context, AcceleratorConfig) (Accelerator, error)]

// RegisterAccelerator says how accelerators are made. It is called once, by
// the init of the package that has them. open is called by all ranks.
func RegisterAccelerator(open func(context.Context, AcceleratorConfig) (Accelerator, error)) {
	opener.Store(&open)
}

// device is a Comm's part on device memory.
type device struct {
	Accelerator
	ordinal int
	side    HostSide
	op      DeviceOp
	ops     []DeviceOp // of a group
	recent  recent
	quiet   chan struct{} // closed: the teller ends
	last    bool          // the last operation was on the device
	factor  struct {      // the last one
		t     Type
		scale float64
		bits  uint64
	}
}

// openDevice makes the accelerator, if the communicator is to have one.
func (c *Comm) openDevice(ctx context.Context) error {
	if c.cfg.device == nil {
		return nil
	}
	d := &device{ordinal: *c.cfg.device, quiet: make(chan struct{})}
	d.side.c = c
	d.op.Transfers = make([]op.Transfer, 0, 1)
	open := opener.Load()
	if open == nil { // as on all ranks: they said so to one another
		return &Error{Code: InvalidUsage, Rank: c.rank, Op: "CommInitRank", Peer: NoPeer, Err: ErrNoAccelerator}
	}
	a, err := (*open)(ctx, AcceleratorConfig{
		Rank: c.rank, Size: c.size, Device: d.ordinal, Places: c.places,
		Env: &c.env, Log: c.cfg.log, Host: &d.side, Timeout: c.cfg.Timeout, CheckPointers: c.cfg.CheckPointers,
	})
	if err != nil {
		return err
	}
	d.Accelerator = a
	c.dev = d
	c.accel.Store(d)
	if f := c.fault.Err(); f != nil { // of which the hook told nobody yet
		a.Abort(f)
		return f
	}
	if c.size > 1 && !c.env.Unchecked {
		go c.tellWhenQuiet(d)
	}
	return nil
}

// closeDevice ends the accelerator. Calls after the first do nothing.
func (c *Comm) closeDevice(barrier func() error) error {
	d := c.dev
	if d == nil || c.accel.Swap(nil) == nil {
		return nil
	}
	close(d.quiet)
	return d.Close(barrier)
}

// Device is the ordinal of the device that the communicator was made with; ok
// tells whether there is one.
func (c *Comm) Device() (ordinal int, ok bool) {
	if c.dev == nil {
		return 0, false
	}
	return c.dev.ordinal, true
}

// Accelerator is what does the communicator's operations on device memory;
// nil: there is none.
func (c *Comm) Accelerator() Accelerator {
	if c.dev == nil {
		return nil
	}
	return c.dev.Accelerator
}

// SetStream makes later operations on device memory come on a CUDA stream, 0
// being the default one. Operations are done in their order even where that
// means waiting for what is on the stream before, except that none waits for
// what a graph does. The stream before must still be there.
func (c *Comm) SetStream(stream uintptr) error {
	const op = "SetStream"
	if err := c.enter(); err != nil {
		return err
	}
	defer c.leave()
	if c.dev == nil {
		return c.errorOf(InvalidUsage, op, "the communicator was made without a device")
	}
	if err := c.dev.Stream(stream); err != nil {
		return c.wrap(op, err)
	}
	return nil
}

// AllocDevice returns n bytes of zeroed memory on the communicator's device,
// which are given back with FreeDevice.
func (c *Comm) AllocDevice(n int) (Buffer, error) {
	const op = "AllocDevice"
	if c.dev == nil {
		return Buffer{}, c.errorOf(InvalidUsage, op, "the communicator was made without a device")
	}
	if n <= 0 {
		return Buffer{}, c.errorOf(InvalidArgument, op, "there is no memory of %d bytes", n)
	}
	addr, err := c.dev.Alloc(n)
	if err != nil {
		return Buffer{}, c.wrap(op, err)
	}
	return Device(addr, n), nil
}

// FreeDevice gives back what AllocDevice returned. No operation may be using
// it.
func (c *Comm) FreeDevice(b Buffer) error {
	const op = "FreeDevice"
	if c.dev == nil || !b.device {
		return c.errorOf(InvalidArgument, op, "this is no memory of AllocDevice")
	}
	if err := c.dev.Free(b.addr()); err != nil {
		return c.wrap(op, err)
	}
	return nil
}

// kindOfMemory checks that the buffers, after they were cut, are all the
// processor's or all the device's.
func (c *Comm) kindOfMemory(a *call) error {
	if !a.onDevice() {
		return nil
	}
	switch {
	case c.dev == nil:
		return fmt.Errorf("this is device memory, and the communicator was made without a device")
	case a.send.Len() > 0 && !a.send.device, a.recv.Len() > 0 && !a.recv.device:
		return fmt.Errorf("one buffer is the device's and the other the processor's")
	}
	if n := uintptr(a.t.Size()); a.send.addr()%n != 0 || a.recv.addr()%n != 0 {
		return fmt.Errorf("the address of a %v is a multiple of %d", a.t, n)
	}
	return nil
}
