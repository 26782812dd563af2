//go:build cuda && cgo

package diag

import (
	"embed"
	"errors"
	"fmt"
	"io/fs"

	"github.com/assay-hpc/assay/internal/gpu/driver"
	"github.com/assay-hpc/assay/internal/gpu/rig"
	"github.com/assay-hpc/assay/internal/host/sysfs"
)

// The PTX in ptx is built with CUDA 11.8, so that every supported driver accepts it. The harness of
// a CUDA image has its own next to it ([driver.LoadNewest]).
//
//go:embed ptx
var files embed.FS

// A cudaMachine implements Machine with all GPUs that the process sees.
type cudaMachine struct {
	gpus    []GPU
	devices []*device
}

// Open finds the GPUs. It returns driver.ErrNoDriver or driver.ErrNoDevice if there is no driver or
// no GPU.
func Open(f sysfs.FS) (Machine, error) {
	all, err := rig.Find(f)
	if err != nil {
		return nil, err
	}
	m := &cudaMachine{}
	for _, g := range all {
		m.devices = append(m.devices, &device{GPU: g})
		m.gpus = append(m.gpus, GPU{
			Index: g.Info.Ordinal, Name: g.Info.Name, UUID: g.Info.UUID, Bus: g.Bus, PCIDevice: g.PCIDevice,
			Bytes: g.Info.Memory, SMs: g.Info.SMs,
		})
	}
	return m, nil
}

// GPUs implements Machine.
func (m *cudaMachine) GPUs() []GPU { return m.gpus }

// Device implements Machine. Each GPU is prepared once.
func (m *cudaMachine) Device(gpu int) (Device, error) {
	if gpu < 0 || gpu >= len(m.gpus) {
		return nil, fmt.Errorf("%w: number %d of %d", driver.ErrNoDevice, gpu, len(m.gpus))
	}
	d := m.devices[gpu]
	if d.Context != nil {
		return d, d.Bind()
	}
	if err := d.Open(); err != nil {
		return nil, err
	}
	return d, d.prepare()
}

// Close closes all devices.
func (m *cudaMachine) Close() error {
	var errs []error
	for _, d := range m.devices {
		errs = append(errs, d.Close())
	}
	return errors.Join(errs...)
}

// A device is a GPU with the resources prepared on it.
type device struct {
	*rig.GPU
	fast     bool // the kernels of warpgroup.cu are loaded
	lane     rig.Lane
	other    rig.Lane
	wrong    driver.Ptr // Miscompares, or a sum
	pieces   []piece
	rooms    []driver.Ptr // matrices and outcomes, reused for the next product
	made     productWork  // work for which the matrices were made
	perRound float64      // seconds
	pinned   *driver.Pinned
}

// A piece is one allocation of memory.
type piece struct {
	at    driver.Ptr
	bytes int64
}

// prepare loads the kernels. The context must be current.
func (d *device) prepare() (err error) {
	if d.Info.ComputeMajor < 8 {
		return fmt.Errorf("compute capability %d.%d is too old: the kernels need 8.0", d.Info.ComputeMajor, d.Info.ComputeMinor)
	}
	d.Defer(d.Free)
	if err := d.Load(files, image("kernels"),
		rig.Kernels{Threads: kernelThreads, Params: map[string]int{"pattern_write": 4, "pattern_verify": 7, "stream_read": 3, "stream_copy": 3, "stream_triad": 4}},
		rig.Kernels{Threads: 1, Params: map[string]int{"flip": 2}},
		rig.Kernels{Threads: 256, Params: map[string]int{"fma_f32": 7, "fma_f64": 7}},
		rig.Kernels{Threads: 128, Params: map[string]int{"mma_bf16": 7, "mma_f16": 7}},
	); err != nil {
		return err
	}
	// wgmma exists only on compute capability 9.0. If the driver rejects the PTX, mma is used.
	if d.Info.ComputeMajor == 9 && d.Info.ComputeMinor == 0 {
		err := d.Load(files, image("warpgroup"), rig.Kernels{Threads: 256, Params: map[string]int{"wgmma_bf16": 7, "wgmma_f16": 7}})
		if err != nil && !errors.Is(err, driver.ErrImage) {
			return err
		}
		d.fast = err == nil
	}
	for _, l := range []*rig.Lane{&d.lane, &d.other} {
		if *l, err = d.Lane(driver.Blocking); err != nil {
			return err
		}
	}
	d.wrong, err = d.Malloc(miscompareBytes)
	return err
}

// image returns a function that reads a PTX file.
func image(name string) func(fs.FS) ([]byte, error) {
	return func(dir fs.FS) ([]byte, error) { return fs.ReadFile(dir, name+".ptx") }
}

// launch enqueues a kernel with as many blocks as the GPU can hold. The context must be current.
func (d *device) launch(name string, params ...uint64) error {
	return d.Run(name, d.lane.Stream, d.Blocks(name), params...)
}

// Free implements Device.
func (d *device) Free() error {
	errs := []error{d.Bind()}
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
