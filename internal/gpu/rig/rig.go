//go:build cuda && cgo

package rig

import (
	"errors"
	"io/fs"
	"runtime"

	"github.com/assay-hpc/assay/internal/gpu/driver"
	"github.com/assay-hpc/assay/internal/host/sysfs"
)

// A GPU is a GPU that is visible to this process, with all resources that were prepared on it. Once
// it is open, its context must be current for every method except Close: Bind makes it current on a
// thread to which the goroutine is locked.
type GPU struct {
	Info driver.DeviceInfo
	Bus  sysfs.BusID
	Place

	*driver.Context // nil: not open
	kernels         map[string]*kernel
	frees           []func() error
}

type kernel struct {
	*driver.Launch
	blocks int
}

// Find lists the GPUs, none of which is open. The error is driver.ErrNoDriver or driver.ErrNoDevice
// if there are none. Positions that the kernel does not report are not known.
func Find(f sysfs.FS) ([]*GPU, error) {
	all, err := driver.Present()
	if err != nil {
		return nil, err
	}
	where := places(f)
	var out []*GPU
	for _, info := range all {
		g := &GPU{Info: info, Place: Place{Node: -1}, kernels: map[string]*kernel{}}
		g.Bus = sysfs.BusID{Domain: uint32(info.PCI.Domain), Bus: uint8(info.PCI.Bus), Device: uint8(info.PCI.Device)}
		if p, ok := where[g.Bus]; ok {
			g.Place = p
		}
		out = append(out, g)
	}
	return out, nil
}

// Open retains the GPU's context and makes it current.
func (g *GPU) Open() (err error) {
	if g.Context, err = driver.Open(g.Info.Ordinal); err != nil {
		return err
	}
	return g.Bind()
}

// Close frees all resources. It makes the context current and locks the goroutine to its thread for
// that time.
func (g *GPU) Close() error {
	if g.Context == nil {
		return nil
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	errs := []error{g.Bind()}
	for _, k := range g.kernels {
		k.Close()
	}
	for i := len(g.frees) - 1; i >= 0; i-- {
		errs = append(errs, g.frees[i]())
	}
	errs = append(errs, g.Context.Close())
	g.Context, g.frees = nil, nil
	clear(g.kernels)
	return errors.Join(errs...)
}

// Defer makes Close call f with the context current, in reverse order.
func (g *GPU) Defer(f func() error) { g.frees = append(g.frees, f) }

// Kernels are kernels of a module with the same number of threads per block. Params maps their
// names to their numbers of 8-byte parameters.
type Kernels struct {
	Threads int
	Params  map[string]int
}

// Load loads the module that read finds, as [driver.LoadNewest] does, and prepares some of its
// kernels.
func (g *GPU) Load(files fs.FS, read func(dir fs.FS) ([]byte, error), kernels ...Kernels) error {
	m, err := driver.LoadNewest(files, read)
	if err != nil {
		return err
	}
	g.Defer(m.Unload)
	for _, ks := range kernels {
		for name, params := range ks.Params {
			if err := g.prepare(m, name, params, ks.Threads); err != nil {
				return err
			}
		}
	}
	return nil
}

func (g *GPU) prepare(m *driver.Module, name string, params, threads int) error {
	f, err := m.Function(name)
	if err != nil {
		return err
	}
	sizes := make([]int, params)
	for i := range sizes {
		sizes[i] = 8
	}
	k := &kernel{driver.NewLaunch(f, sizes...), 1}
	g.kernels[name] = k
	perSM, err := f.Occupancy(threads, 0)
	k.blocks = max(1, perSM*g.Info.SMs)
	k.SetBlock(threads, 1, 1)
	return err
}

// Blocks returns how many blocks of a kernel fit on the GPU at once; 0 if the kernel is not loaded.
func (g *GPU) Blocks(name string) int {
	if k := g.kernels[name]; k != nil {
		return k.blocks
	}
	return 0
}

// Run enqueues a kernel.
func (g *GPU) Run(name string, s driver.Stream, blocks int, params ...uint64) error {
	k := g.kernels[name]
	for i, p := range params {
		*(*uint64)(k.Param(i)) = p
	}
	k.SetStream(s)
	k.SetGrid(blocks, 1, 1)
	return k.Run()
}

// Malloc allocates memory that Close frees.
func (g *GPU) Malloc(n int) (driver.Ptr, error) {
	p, err := driver.Malloc(n)
	if err == nil {
		g.Defer(func() error { return driver.Free(p) })
	}
	return p, err
}

// Event creates an event that Close destroys.
func (g *GPU) Event(flags driver.EventFlags) (driver.Event, error) {
	e, err := driver.NewEvent(flags)
	if err == nil {
		g.Defer(e.Destroy)
	}
	return e, err
}

// A Lane is a stream with two timing events.
type Lane struct {
	driver.Stream
	Begin, End driver.Event
}

// Lane creates a lane. Its events also have the given flags.
func (g *GPU) Lane(flags driver.EventFlags) (l Lane, err error) {
	if l.Stream, err = driver.NewStream(0); err != nil {
		return l, err
	}
	g.Defer(l.Stream.Destroy)
	if l.Begin, err = g.Event(driver.Timing | flags); err != nil {
		return l, err
	}
	l.End, err = g.Event(driver.Timing | flags)
	return l, err
}

// Time returns the seconds that the work enqueued by f takes: at least 1 ns, since rates are
// computed from it.
func (l Lane) Time(f func() error) (float64, error) {
	if err := l.Begin.Record(l.Stream); err != nil {
		return 0, err
	}
	if err := f(); err != nil {
		return 0, err
	}
	if err := l.End.Record(l.Stream); err != nil {
		return 0, err
	}
	if err := l.End.Synchronize(); err != nil {
		return 0, err
	}
	return Seconds(l.Begin, l.End)
}

// Seconds returns the time between two events, at least 1 ns.
func Seconds(from, to driver.Event) (float64, error) {
	t, err := driver.Elapsed(from, to)
	return max(t.Seconds(), 1e-9), err
}
