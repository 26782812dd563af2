package coll

import (
	"context"
	"errors"
	"fmt"

	"github.com/assay-hpc/assay/coll/executor"
	"github.com/assay-hpc/assay/coll/hang"
	"github.com/assay-hpc/assay/coll/knob"
	"github.com/assay-hpc/assay/coll/op"
	"github.com/assay-hpc/assay/coll/session"
)

// ErrNoExecutor is the error for a communicator on a device in a program without device support.
var ErrNoExecutor = errors.New("the program has no CUDA (Config.GPUs; build tag cuda)")

// device is a Comm's state for device memory.
type device struct {
	executor.Executor
	ordinal  int
	side     hostSide
	op       executor.Op
	ops      []executor.Op // of a group
	also     []uintptr     // streams of the group's Sends and Recvs
	stream   uintptr
	watchdog *hang.Watchdog
	last     bool     // the last operation was on the device
	factor   struct { // the last factor that was converted
		t     Type
		scale float64
		bits  uint64
	}
}

// deviceTerm says whether the rank has a device, for the others to compare.
func (s *settings) deviceTerm() string {
	switch {
	case s.device == nil:
		return "no device"
	case s.gpus == nil:
		return "a device but no CUDA in its program (Config.GPUs; build tag cuda)"
	}
	return "a device"
}

// openDevice creates the executor if the communicator is to have a device.
func openDevice(ctx context.Context, c *Comm) error {
	if c.cfg.device == nil {
		return nil
	}
	d := &device{ordinal: *c.cfg.device}
	d.side.c = c
	d.op.Transfers = make([]op.Transfer, 0, 1)
	if c.cfg.gpus == nil { // the same on all ranks: they have compared their deviceTerm
		return &Error{Code: InvalidUsage, Rank: c.rank, Op: "CommInitRank", Peer: NoPeer, Err: ErrNoExecutor}
	}
	var processes hang.Processes
	timeout := c.cfg.Timeout
	if c.cfg.asNCCL {
		timeout = 0 // a kernel that gives up would let its stream continue
	}
	a, err := c.cfg.gpus.Open(ctx, executor.Config{
		Rank: c.rank, Size: c.size, Device: d.ordinal, Places: c.session.Places,
		Env: &c.session.Env, Log: c.cfg.log, Host: &d.side, Timeout: timeout, CheckPointers: c.cfg.CheckPointers, Fallback: c.cfg.fallback, AsNCCL: c.cfg.asNCCL, GraphMixing: c.cfg.GraphMixing, GraphOrder: c.cfg.GraphOrder, OneRankPerDevice: c.cfg.asNCCL && !c.cfg.MultiRankGPU,
		Gone: func(r int) bool { return processes != nil && processes.Halted(c.rank)[r] == hang.Dead },
	})
	if err != nil {
		return err
	}
	d.Executor = a
	if processes, err = session.ExchangeJSON(ctx, c.session, hang.ThisProcess(d.ordinal, c.cfg.job)); err != nil {
		return errors.Join(err, a.Close(nil))
	}
	d.watchdog = hang.NewWatchdog(&c.hang, a, d.ordinal, processes)
	c.dev = d
	c.accel.Store(d)
	if f := c.fault.Err(); f != nil { // the fault hook did not see this device yet
		a.Abort(f)
		return f
	}
	if c.size > 1 && !c.session.Env.Unchecked {
		d.watchdog.Start()
	}
	return nil
}

// fallback is the file of NVIDIA's library; "": none.
func (s *settings) fallback() string {
	switch {
	case s.Fallback == knob.NoFallback:
		return ""
	case s.find != nil:
		return s.find(s.Fallback)
	}
	return s.Fallback
}

// close closes the executor, if there is one. Calls after the first do nothing.
func (d *device) close(tell func(byte) ([]byte, error)) error {
	if d == nil || d.side.c.accel.Swap(nil) == nil {
		return nil
	}
	d.watchdog.Close() // it uses the executor
	return d.Close(tell)
}

// refuses gives the verdict about what has broken the communicator before a call with a number
// returns the error.
func (d *device) refuses(a *call, seq uint32) {
	if d == nil || !d.side.c.cfg.asNCCL {
		return
	}
	what := a.name(0)
	if a.Coll != pointToPoint {
		what = fmt.Sprintf("%v, operation #%d", a.Coll, seq)
	}
	if err := d.side.c.fault.Err(); err != nil {
		d.watchdog.ReportFault(err, what)
	}
}

// Device returns the ordinal of the communicator's device; ok is false if it has none.
func (c *Comm) Device() (ordinal int, ok bool) {
	if c.dev == nil {
		return 0, false
	}
	return c.dev.ordinal, true
}

// Executor returns the executor of the communicator's operations on device memory, nil if it has
// none.
func (c *Comm) Executor() executor.Executor {
	if c.dev == nil {
		return nil
	}
	return c.dev.Executor
}

// DeviceMemory returns how much memory the communicator uses on its device; zero if it has no
// device. Any goroutine may call it.
func (c *Comm) DeviceMemory() executor.Memory {
	if d := c.accel.Load(); d != nil {
		return d.Memory()
	}
	return executor.Memory{}
}

// SetStream sets the CUDA stream for later operations on device memory; 0 is the default stream.
// Operations are done in the order of the calls, even if that means waiting for work on the
// previous stream, except that none waits for the work of a graph. The previous stream must still
// exist, and may be destroyed afterwards. In a group SetStream applies to the operations called
// next, and all streams must exist until the group ends: each collective runs on its own stream,
// and the Sends and Recvs run together, after the work on all of theirs.
func (c *Comm) SetStream(stream uintptr) error {
	const op = "SetStream"
	if c.group == nil {
		if err := c.enter(nil); err != nil {
			return err
		}
		defer c.leave()
	}
	if c.dev == nil {
		return c.errorOf(InvalidUsage, op, "the communicator was made without a device")
	}
	if c.group == nil {
		if err := c.dev.Stream(stream); err != nil {
			return c.wrap(op, err)
		}
	}
	c.dev.stream = stream
	return nil
}

// kindOfMemory checks that the buffers, after they were cut to size, are all host memory or all
// device memory, and that device buffers are aligned.
func (a *call) kindOfMemory(hasDevice bool) error {
	if !a.onDevice() {
		return nil
	}
	switch {
	case !hasDevice:
		return fmt.Errorf("this is device memory, and the communicator was made without a device")
	case len(a.Send) > 0 && !a.device[0], len(a.Recv) > 0 && !a.device[1]:
		return fmt.Errorf("one buffer is the device's and the other the processor's")
	}
	if n := uintptr(a.Type.Size()); op.Addr(a.Send)%n != 0 || op.Addr(a.Recv)%n != 0 {
		return fmt.Errorf("the address of a %v is a multiple of %d", a.Type, n)
	}
	return nil
}
