//go:build cuda && cgo

package diag

import (
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"runtime"

	"github.com/assay-hpc/assay/coll/cuda/driver"
	"github.com/assay-hpc/assay/harness/sysfs"
)

// The PTX in ptx is by CUDA 11.8, so that every driver that is supported takes
// it; a CUDA image's harness has its own beside it ([driver.LoadNewest]).
//
//go:embed ptx
var files embed.FS

// A rig is a Machine: all GPUs that the process sees.
type rig struct {
	gpus    []GPU
	infos   []driver.DeviceInfo
	cpus    []sysfs.CPUSet // next to each of them
	devices []*device
}

// Open finds the GPUs. driver.ErrNoDriver and driver.ErrNoDevice: there are none.
func Open(f sysfs.FS) (Machine, error) {
	if err := driver.Init(); err != nil {
		return nil, err
	}
	all, err := driver.Devices()
	if err != nil {
		return nil, err
	}
	if len(all) == 0 {
		return nil, driver.ErrNoDevice
	}
	r := &rig{devices: make([]*device, len(all)), infos: all, cpus: make([]sysfs.CPUSet, len(all))}
	buses, _ := f.PCI() // without them, models are not known
	for i, info := range all {
		g := GPU{
			Index: info.Ordinal, Name: info.Name, UUID: info.UUID, Bus: sysfs.BusID{Domain: uint32(info.PCI.Domain), Bus: uint8(info.PCI.Bus), Device: uint8(info.PCI.Device)},
			Bytes: info.Memory, SMs: info.SMs, Compute: fmt.Sprintf("%d.%d", info.ComputeMajor, info.ComputeMinor),
		}
		for _, b := range buses {
			if b.BusID == g.Bus {
				g.PCIDevice, r.cpus[i] = fmt.Sprintf("%04x", b.Device), b.Local
			}
		}
		r.gpus = append(r.gpus, g)
	}
	return r, nil
}

// GPUs implements Machine.
func (r *rig) GPUs() []GPU { return r.gpus }

// Device implements Machine. Each GPU is prepared once.
func (r *rig) Device(gpu int) (Device, error) {
	if gpu < 0 || gpu >= len(r.gpus) {
		return nil, fmt.Errorf("%w: number %d of %d", driver.ErrNoDevice, gpu, len(r.gpus))
	}
	if d := r.devices[gpu]; d != nil {
		return d, d.context.Bind()
	}
	c, err := driver.Open(gpu)
	if err != nil {
		return nil, err
	}
	d := &device{gpu: r.gpus[gpu], info: r.infos[gpu], cpus: r.cpus[gpu], context: c, kernels: map[string]*kernel{}}
	r.devices[gpu] = d
	return d, d.prepare()
}

// Peer implements Machine.
func (r *rig) Peer(a, b int) error {
	d, err := r.Device(a)
	if err != nil {
		return err
	}
	if !d.(*device).context.CanAccessPeer(b) {
		return driver.ErrPeer
	}
	return nil
}

// Close frees all. Each device's context is to be current meanwhile, so the thread
// must not change.
func (r *rig) Close() error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var errs []error
	for _, d := range r.devices {
		if d != nil {
			errs = append(errs, d.close())
		}
	}
	return errors.Join(errs...)
}

// A kernel is one with its launch, all of whose parameters have 8 bytes.
type kernel struct {
	*driver.Launch
	threads int
	blocks  int // as many as the GPU can hold
}

// A device is a GPU with all that is prepared on it.
type device struct {
	gpu        GPU
	info       driver.DeviceInfo
	cpus       sysfs.CPUSet
	context    *driver.Context
	modules    []*driver.Module
	kernels    map[string]*kernel
	fast       bool // has the kernels of warpgroup.cu
	stream     driver.Stream
	other      driver.Stream
	begin, end driver.Event
	wrong      driver.Ptr // Miscompares, or a sum
	pieces     []piece
	rooms      []driver.Ptr // matrices and outcomes, kept for the next product
	made       Work         // what the matrices are of
	perRound   float64      // seconds
	pinned     *driver.Pinned
}

// A piece is memory in one allocation.
type piece struct {
	at    driver.Ptr
	bytes int64
}

// parameters is how many each kernel has.
var parameters = map[string]int{
	"pattern_write": 4, "pattern_verify": 7, "flip": 2, "stream_read": 3, "stream_copy": 3, "stream_triad": 4,
	"fma_f32": 7, "fma_f64": 7, "mma_bf16": 7, "mma_f16": 7, "wgmma_bf16": 7, "wgmma_f16": 7,
}

// prepare loads the kernels. The context becomes current.
func (d *device) prepare() (err error) {
	if err := d.context.Bind(); err != nil {
		return err
	}
	if d.info.ComputeMajor < 8 {
		return fmt.Errorf("compute capability %s is too old: the kernels need 8.0", d.gpu.Compute)
	}
	if err := d.load("kernels", 512, "pattern_write", "pattern_verify", "stream_read", "stream_copy", "stream_triad"); err != nil {
		return err
	}
	for threads, names := range map[int][]string{1: {"flip"}, 256: {"fma_f32", "fma_f64"}, 128: {"mma_bf16", "mma_f16"}} {
		if err := d.add(d.modules[0], threads, names); err != nil {
			return err
		}
	}
	// wgmma is there on 9.0 and neither before nor after. A driver that does not
	// take it leaves mma.
	if d.info.ComputeMajor == 9 && d.info.ComputeMinor == 0 {
		err := d.load("warpgroup", 256, "wgmma_bf16", "wgmma_f16")
		if err != nil && !errors.Is(err, driver.ErrImage) {
			return err
		}
		d.fast = err == nil
	}
	for _, s := range []*driver.Stream{&d.stream, &d.other} {
		if *s, err = driver.NewStream(0); err != nil {
			return err
		}
	}
	for _, e := range []*driver.Event{&d.begin, &d.end} {
		if *e, err = driver.NewEvent(driver.Timing | driver.Blocking); err != nil {
			return err
		}
	}
	d.wrong, err = driver.Malloc(miscompareBytes)
	return err
}

// load adds the kernels of a module.
func (d *device) load(name string, threads int, kernels ...string) error {
	m, err := driver.LoadNewest(files, func(dir fs.FS) ([]byte, error) { return fs.ReadFile(dir, name+".ptx") })
	if err != nil {
		return err
	}
	d.modules = append(d.modules, m)
	return d.add(m, threads, kernels)
}

func (d *device) add(m *driver.Module, threads int, names []string) error {
	for _, name := range names {
		f, err := m.Function(name)
		if err != nil {
			return err
		}
		sizes := make([]int, parameters[name])
		for i := range sizes {
			sizes[i] = 8
		}
		k := &kernel{driver.NewLaunch(f, sizes...), threads, 1}
		d.kernels[name] = k
		perSM, err := f.Occupancy(threads, 0)
		if err != nil {
			return err
		}
		k.blocks = max(1, perSM*d.info.SMs)
		k.SetBlock(threads, 1, 1)
	}
	return nil
}

// launch enqueues a kernel; the context is current.
func (d *device) launch(name string, blocks int, params ...uint64) error {
	k := d.kernels[name]
	for i, p := range params {
		*(*uint64)(k.Param(i)) = p
	}
	k.SetStream(d.stream)
	k.SetGrid(blocks, 1, 1)
	return k.Run()
}

// timed gives the seconds of what f enqueues.
func (d *device) timed(f func() error) (float64, error) {
	if err := d.begin.Record(d.stream); err != nil {
		return 0, err
	}
	if err := f(); err != nil {
		return 0, err
	}
	if err := d.end.Record(d.stream); err != nil {
		return 0, err
	}
	if err := d.end.Synchronize(); err != nil {
		return 0, err
	}
	t, err := driver.Elapsed(d.begin, d.end)
	return max(t.Seconds(), 1e-9), err
}

// Free implements Device.
func (d *device) Free() error {
	errs := []error{d.context.Bind()}
	for _, p := range d.pieces {
		errs = append(errs, driver.Free(p.at))
	}
	for _, p := range d.rooms {
		errs = append(errs, driver.Free(p))
	}
	if d.pinned != nil {
		errs = append(errs, d.pinned.Free())
	}
	d.pieces, d.rooms, d.pinned = nil, nil, nil
	return errors.Join(errs...)
}

// close frees all that is left of a device.
func (d *device) close() error {
	errs := []error{d.Free()}
	for _, k := range d.kernels {
		k.Close()
	}
	for _, s := range []driver.Stream{d.stream, d.other} {
		if s != 0 {
			errs = append(errs, s.Destroy())
		}
	}
	for _, e := range []driver.Event{d.begin, d.end} {
		if e != 0 {
			errs = append(errs, e.Destroy())
		}
	}
	if d.wrong != 0 {
		errs = append(errs, driver.Free(d.wrong))
	}
	for _, m := range d.modules {
		errs = append(errs, m.Unload())
	}
	return errors.Join(append(errs, d.context.Close())...)
}
