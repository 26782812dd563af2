//go:build cuda && cgo

package membw

import (
	"errors"
	"fmt"
	"io/fs"
	"runtime"
	"unsafe"

	"github.com/assay-hpc/assay/coll/cuda/driver"
	"github.com/assay-hpc/assay/harness/sysfs"
)

// A rig is a Machine: all GPUs that the process sees.
type rig struct {
	gpus    []GPU
	devices []*device
	rooms   map[key]*room
	words   *driver.Pinned // of the protocol with kernels, see word…
	flush   []byte         // what is written to clear the processors' caches
	seed    uint64         // of the next data
	apart   bool           // OpenOptions.NoAffinity
}

// A device is a GPU with all that is prepared on it.
type device struct {
	info    driver.DeviceInfo
	context *driver.Context
	module  *driver.Module
	cpus    sysfs.CPUSet // next to it
	kernels map[string]*kernel
	lanes   []*lane
	wrong   driver.Ptr // two words of 8 bytes, for the kernel check
}

// A kernel is one with its launch.
type kernel struct {
	*driver.Launch
	blocks int // as many as the GPU can hold
}

// A lane is a stream with its marks.
type lane struct {
	stream          driver.Stream
	begin, end, all driver.Event
}

// Words of pinned memory that kernels and the host share: where in it they are.
const (
	wordGo   = 0   // kernels of spin wait for it, uint32
	wordLate = 128 // one of them waited too long, uint32
	wordEnd  = 256 // where chase got to, uint64
)

// threads of a block, for all kernels but spin and chase.
const threads = 512

// Open prepares all GPUs. The calling goroutine stays locked to its thread until
// Close. driver.ErrNoDriver and driver.ErrNoDevice: there are none.
func Open(fs sysfs.FS, o OpenOptions) (Machine, error) {
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
	runtime.LockOSThread()
	r := &rig{rooms: map[key]*room{}, seed: 1, apart: o.NoAffinity}
	where := localities(fs)
	for _, info := range all {
		if err := r.add(info, where); err != nil {
			return nil, errors.Join(fmt.Errorf("preparing GPU %d: %w", info.Ordinal, err), r.Close())
		}
	}
	if r.words, err = driver.HostAlloc(4096); err != nil {
		return nil, errors.Join(err, r.Close())
	}
	return r, nil
}

// add opens a device.
func (r *rig) add(info driver.DeviceInfo, where map[sysfs.BusID]locality) error {
	bus := sysfs.BusID{Domain: uint32(info.PCI.Domain), Bus: uint8(info.PCI.Bus), Device: uint8(info.PCI.Device)}
	g := GPU{Index: info.Ordinal, Name: info.Name, UUID: info.UUID, Bus: bus, Node: -1}
	d := &device{info: info, kernels: map[string]*kernel{}}
	if l, ok := where[bus]; ok {
		g.Node, g.PCIDevice, d.cpus = l.node, l.device, l.cpus
		if !r.apart {
			g.CPUs = l.cpus.String()
		}
	}
	var err error
	if d.context, err = driver.Open(info.Ordinal); err != nil {
		return err
	}
	r.gpus, r.devices = append(r.gpus, g), append(r.devices, d)
	return d.prepare()
}

// prepare loads the kernels. The context becomes current.
func (d *device) prepare() error {
	if err := d.context.Bind(); err != nil {
		return err
	}
	var err error
	if d.module, err = driver.LoadNewest(files, func(dir fs.FS) ([]byte, error) {
		return ptx(dir, 10*d.info.ComputeMajor+d.info.ComputeMinor)
	}); err != nil {
		return err
	}
	for name, params := range map[string]int{"spin": 3, "fill": 3, "check": 4, "copy": 4, "copy_both": 6, "chase": 3} {
		if err := d.kernel(name, params); err != nil {
			return err
		}
	}
	d.wrong, err = driver.Malloc(16)
	return err
}

// kernel prepares one, all of whose parameters have 8 bytes.
func (d *device) kernel(name string, params int) error {
	f, err := d.module.Function(name)
	if err != nil {
		return err
	}
	sizes := make([]int, params)
	for i := range sizes {
		sizes[i] = 8
	}
	k := &kernel{driver.NewLaunch(f, sizes...), 1}
	d.kernels[name] = k
	if name == "spin" || name == "chase" {
		return nil
	}
	perSM, err := f.Occupancy(threads, 0)
	k.blocks = max(1, perSM*d.info.SMs)
	k.SetBlock(threads, 1, 1)
	return err
}

// run enqueues a kernel, for so many threads at most; the context is current.
func (d *device) run(name string, s driver.Stream, most int, params ...uint64) error {
	k := d.kernels[name]
	for i, p := range params {
		*(*uint64)(k.Param(i)) = p
	}
	k.SetStream(s)
	if k.blocks > 1 {
		k.SetGrid(min(k.blocks, max(1, (most+threads-1)/threads)), 1, 1)
	}
	return k.Run()
}

// lane is the device's number i; the context is current.
func (d *device) lane(i int) (*lane, error) {
	for len(d.lanes) <= i {
		l := new(lane)
		d.lanes = append(d.lanes, l) // to be freed, whatever of it there is
		var err error
		if l.stream, err = driver.NewStream(0); err != nil {
			return nil, err
		}
		for _, e := range []*driver.Event{&l.begin, &l.end, &l.all} {
			if *e, err = driver.NewEvent(driver.Timing); err != nil {
				return nil, err
			}
		}
	}
	return d.lanes[i], nil
}

// GPUs implements Machine.
func (r *rig) GPUs() []GPU { return r.gpus }

// CUDA implements Machine.
func (r *rig) CUDA() int { return driver.DriverVersion() }

// Peer implements Machine.
func (r *rig) Peer(a, b int) error {
	if a != b && r.devices[a].context.CanAccessPeer(b) {
		return nil
	}
	return ErrPeer
}

// SetPeer implements Machine.
func (r *rig) SetPeer(a, b int, on bool) error {
	if a == b {
		return nil
	}
	for _, p := range [][2]*device{{r.devices[a], r.devices[b]}, {r.devices[b], r.devices[a]}} {
		if err := p[0].context.Bind(); err != nil {
			return err
		}
		set := p[0].context.DisablePeer
		if on {
			set = p[0].context.EnablePeer
		}
		if err := set(p[1].context); err != nil {
			return err
		}
	}
	return nil
}

// u32 is one of the shared words.
func (r *rig) u32(at int) *uint32 { return (*uint32)(unsafe.Pointer(&r.words.Bytes[at])) }

// Close frees all, and unlocks the thread.
func (r *rig) Close() error {
	var errs []error
	for k, m := range r.rooms {
		errs = append(errs, r.devices[k.place.GPU].context.Bind(), m.free())
	}
	if r.words != nil {
		errs = append(errs, r.words.Free())
	}
	for _, d := range r.devices {
		errs = append(errs, d.close())
	}
	runtime.UnlockOSThread()
	return errors.Join(errs...)
}

func (d *device) close() error {
	errs := []error{d.context.Bind()}
	for _, l := range d.lanes {
		for _, e := range []driver.Event{l.begin, l.end, l.all} {
			if e != 0 {
				errs = append(errs, e.Destroy())
			}
		}
		if l.stream != 0 {
			errs = append(errs, l.stream.Destroy())
		}
	}
	for _, k := range d.kernels {
		k.Close()
	}
	if d.wrong != 0 {
		errs = append(errs, driver.Free(d.wrong))
	}
	if d.module != nil {
		errs = append(errs, d.module.Unload())
	}
	return errors.Join(append(errs, d.context.Close())...)
}
