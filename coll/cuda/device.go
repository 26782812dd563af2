//go:build cuda && cgo

package cuda

import (
	"fmt"
	"io/fs"
	"runtime"
	"sync"

	"github.com/assay-hpc/assay/coll/cuda/driver"
	"github.com/assay-hpc/assay/coll/cuda/kernels"
	"github.com/assay-hpc/assay/coll/elem"
)

// A device is what all engines of a process on one GPU share: its context and
// the code in it. It stays until the process ends.
type device struct {
	ctx  *driver.Context
	info driver.DeviceInfo

	mu    sync.Mutex
	funcs map[string]map[string]driver.Func // by module or variant, and kernel
}

var devices struct {
	mu  sync.Mutex
	all map[int]*device
}

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
		return nil, fmt.Errorf("%w: number %d of %d", driver.ErrNoDevice, ordinal, len(infos))
	}
	ctx, err := driver.Open(ordinal)
	if err != nil {
		return nil, err
	}
	d := &device{ctx: ctx, info: infos[ordinal], funcs: map[string]map[string]driver.Func{}}
	if devices.all == nil {
		devices.all = map[int]*device{}
	}
	devices.all[ordinal] = d
	return d, nil
}

// in runs f with the device's context current.
func (d *device) in(f func() error) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := d.ctx.Bind(); err != nil {
		return err
	}
	return f()
}

// load loads a module and all its kernels, for communicators of so many ranks,
// if that has not been done. The driver may wait for all that runs on the
// device, and compiles for a while the first time.
func (d *device) load(module string, ranks int) error {
	module = kernels.ForRanks(module, ranks)
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.funcs[module] != nil {
		return nil
	}
	return d.in(func() error {
		m, err := driver.LoadNewest(kernels.Files, func(dir fs.FS) ([]byte, error) {
			return kernels.PTX(dir, module, d.info.ComputeMajor*10+d.info.ComputeMinor)
		})
		if err != nil {
			return fmt.Errorf("kernels for %s: %w", module, err)
		}
		funcs := map[string]driver.Func{}
		for _, name := range kernels.KernelNames(module) {
			if funcs[name], err = m.Function(name); err != nil {
				return fmt.Errorf("kernels for %s: %w", module, err)
			}
		}
		d.funcs[module] = funcs
		return nil
	})
}

// function finds a kernel of a module that was loaded for so many ranks.
func (d *device) function(k kernel, t elem.Type, op elem.Op, ranks int) (driver.Func, error) {
	module, name := kernels.Movement, k.String()
	if kernelInfo[k].typed {
		module, name = kernels.Module(t, op), kernels.KernelName(name, t, op)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	f, ok := d.funcs[kernels.ForRanks(module, ranks)][name]
	if !ok {
		return f, fmt.Errorf("there is no kernel %s", name)
	}
	return f, nil
}
