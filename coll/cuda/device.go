//go:build cuda && cgo

package cuda

import (
	"errors"
	"fmt"
	"io/fs"
	"runtime"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/assay-hpc/assay/coll/cuda/kernels"
	"github.com/assay-hpc/assay/coll/debug"
	"github.com/assay-hpc/assay/coll/elem"
	"github.com/assay-hpc/assay/internal/gpu/driver"
)

// A device is what all engines of a process on one GPU share: its context and
// the code in it. It stays until the process ends.
type device struct {
	ctx  *driver.Context
	info driver.DeviceInfo

	arena arena

	mu       sync.Mutex
	variants [2]*functions // for few ranks, and for more
}

// functions are the kernels of one variant. Untyped kernels are stored at the first type and
// reduction.
type functions [numKernels][numTypes][elem.Avg]driver.Func

// of finds a kernel.
func (f *functions) of(k kernel, t elem.Type, op elem.Op) driver.Func {
	if !kernelTable[k].typed {
		t, op = 0, 0
	}
	return f[k][t][op]
}

var devices struct {
	mu  sync.Mutex
	all map[int]*device
}

// errOrdinal is the error of a number that no device has.
var errOrdinal = errors.New("there is no such number")

// deviceOf opens a device.
func deviceOf(ordinal int) (*device, error) {
	devices.mu.Lock()
	defer devices.mu.Unlock()
	if d := devices.all[ordinal]; d != nil {
		return d, nil
	}
	if err := driver.Init(); err != nil {
		return nil, err
	}
	infos, err := driver.Devices()
	if err != nil {
		return nil, err
	}
	if ordinal < 0 || ordinal >= len(infos) {
		return nil, fmt.Errorf("%w: %w: number %d of %d", errOrdinal, driver.ErrNoDevice, ordinal, len(infos))
	}
	ctx, err := driver.Open(ordinal)
	if err != nil {
		return nil, err
	}
	d := &device{ctx: ctx, info: infos[ordinal]}
	if devices.all == nil {
		devices.all = map[int]*device{}
	}
	devices.all[ordinal] = d
	return d, nil
}

// clusters reports whether its blocks form clusters, which share memory.
func (d *device) clusters() bool { return d.info.ComputeMajor >= 9 }

// in runs f with the device's context current. Whatever f calls, it does not invalidate a
// stream capture of the program.
func (d *device) in(f func() error) error {
	return d.bound(func() error {
		defer driver.Relax().Restore()
		return f()
	})
}

// bound is in for an f that calls only functions that can be captured or are allowed during a
// capture.
func (d *device) bound(f func() error) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := d.ctx.Bind(); err != nil {
		return err
	}
	return f()
}

// functions returns all kernels for communicators of the given number of ranks. They are
// loaded for the first such communicator: before it loads code, the driver waits for
// everything that runs on the device. An operation that had to load code would wait for other
// operations, which may wait for ranks that wait for this one.
func (d *device) functions(log *debug.Logger, ranks int) (*functions, error) {
	at := &d.variants[0]
	if ranks > kernels.FewRanks {
		at = &d.variants[1]
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if *at != nil {
		return *at, nil
	}
	f := new(functions)
	err := driver.Newest(kernels.Files, func(dir fs.FS) error { return d.load(log, dir, ranks, f) })
	if err != nil {
		return nil, err
	}
	*at = f
	return f, nil
}

// load loads all modules from a directory. Modules without machine code are compiled, as many
// at a time as the driver does.
func (d *device) load(log *debug.Logger, dir fs.FS, ranks int, to *functions) error {
	code, compiled, err := kernels.Code(dir, 10*d.info.ComputeMajor+d.info.ComputeMinor, ranks)
	if err != nil {
		return err
	}
	if !compiled {
		log.Infof(debug.Init, "this build has no machine code for %s (compute capability %d.%d): the driver compiles %d modules, which takes a minute or so the first time",
			d.info.Name, d.info.ComputeMajor, d.info.ComputeMinor, len(code))
	}
	var g errgroup.Group
	g.SetLimit(8)
	for _, m := range kernels.Modules() {
		g.Go(func() error {
			return d.in(func() error {
				loaded, err := driver.Load(code[m.Name])
				for k := noKernel + 1; k < numKernels && err == nil; k++ {
					if k.in(m.Typed, m.Norm, kernels.Rounds(m.Type, m.Op)) {
						to[k][m.Type][m.Op], err = loaded.Function(m.Kernel(k.String()))
					}
				}
				if err != nil {
					return fmt.Errorf("kernels for %s: %w", m.Name, err)
				}
				return nil
			})
		})
	}
	return g.Wait()
}
