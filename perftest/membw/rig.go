//go:build cuda && cgo

package membw

import (
	"errors"
	"fmt"
	"io/fs"
	"runtime"
	"unsafe"

	"github.com/assay-hpc/assay/internal/gpu/driver"
	"github.com/assay-hpc/assay/internal/gpu/rig"
	"github.com/assay-hpc/assay/internal/host/sysfs"
)

// A cudaMachine implements Machine with all GPUs that the process sees.
type cudaMachine struct {
	gpus     []GPU
	devices  []*device
	rooms    map[key]*room
	words    *driver.Pinned // shared with kernels, at the word* offsets
	flush    []byte         // written to clear the CPU caches
	seed     uint64         // of the next test data
	anywhere bool           // host memory may be on any NUMA node
}

// A device is a GPU with the resources prepared on it.
type device struct {
	*rig.GPU
	lanes []*lane
	wrong driver.Ptr // two words of 8 bytes, for the kernel check
}

// A lane has one more event than rig.Lane: the end of the work of all lanes.
type lane struct {
	rig.Lane
	all driver.Event
}

// Offsets of words in the pinned memory that kernels and the host share.
const (
	wordGo   = 0   // spin kernels wait for it, uint32
	wordLate = 128 // a spin kernel waited too long, uint32
	wordEnd  = 256 // the address that chase reached, uint64
)

// threads per block, for all kernels except spin and chase.
const threads = 512

// Open prepares all GPUs. Host memory for a GPU is allocated next to it, or anywhere. The calling
// goroutine stays locked to its thread until Close. Open returns driver.ErrNoDriver or
// driver.ErrNoDevice if there is no driver or no GPU.
func Open(fs sysfs.FS, anywhere bool) (Machine, error) {
	all, err := rig.Find(fs)
	if err != nil {
		return nil, err
	}
	runtime.LockOSThread()
	m := &cudaMachine{rooms: map[key]*room{}, seed: 1, anywhere: anywhere}
	for _, g := range all {
		if err := m.add(g); err != nil {
			return nil, errors.Join(fmt.Errorf("preparing GPU %d: %w", g.Info.Ordinal, err), m.Close())
		}
	}
	if m.words, err = driver.HostAlloc(4096); err != nil {
		return nil, errors.Join(err, m.Close())
	}
	return m, nil
}

// add opens a GPU and loads the kernels. Its context becomes current.
func (m *cudaMachine) add(g *rig.GPU) (err error) {
	known := GPU{Index: g.Info.Ordinal, Name: g.Info.Name, UUID: g.Info.UUID, Bus: g.Bus, PCIDevice: g.PCIDevice, Node: g.Node}
	if !m.anywhere {
		known.CPUs = g.CPUs.String()
	}
	d := &device{GPU: g}
	m.gpus, m.devices = append(m.gpus, known), append(m.devices, d)
	if err := g.Open(); err != nil {
		return err
	}
	if err := g.Load(files, func(dir fs.FS) ([]byte, error) { return ptx(dir, 10*g.Info.ComputeMajor+g.Info.ComputeMinor) },
		rig.Kernels{Threads: 1, Params: map[string]int{"spin": 3, "chase": 3}},
		rig.Kernels{Threads: threads, Params: map[string]int{"fill": 3, "check": 4, "copy": 4, "copy_both": 6}},
	); err != nil {
		return err
	}
	d.wrong, err = g.Malloc(16)
	return err
}

// over enqueues a kernel with at most the given number of threads. The context must be current.
func (d *device) over(name string, s driver.Stream, most int, params ...uint64) error {
	return d.Run(name, s, min(d.Blocks(name), max(1, (most+threads-1)/threads)), params...)
}

// lane returns lane i of the device. The context must be current.
func (d *device) lane(i int) (*lane, error) {
	for len(d.lanes) <= i {
		made, err := d.Lane(0)
		if err != nil {
			return nil, err
		}
		all, err := d.Event(driver.Timing)
		if err != nil {
			return nil, err
		}
		d.lanes = append(d.lanes, &lane{made, all})
	}
	return d.lanes[i], nil
}

// GPUs implements Machine.
func (m *cudaMachine) GPUs() []GPU { return m.gpus }

// CUDA implements Machine.
func (m *cudaMachine) CUDA() int { return driver.DriverVersion() }

// Peer implements Machine.
func (m *cudaMachine) Peer(a, b int) error {
	if a != b && m.devices[a].CanAccessPeer(b) {
		return nil
	}
	return errPeer
}

// SetPeer implements Machine.
func (m *cudaMachine) SetPeer(a, b int, on bool) error {
	if a == b {
		return nil
	}
	for _, p := range [][2]*device{{m.devices[a], m.devices[b]}, {m.devices[b], m.devices[a]}} {
		if err := p[0].Bind(); err != nil {
			return err
		}
		set := p[0].DisablePeer
		if on {
			set = p[0].EnablePeer
		}
		if err := set(p[1].Context); err != nil {
			return err
		}
	}
	return nil
}

// u32 returns a pointer to a shared word.
func (m *cudaMachine) u32(at int) *uint32 { return (*uint32)(unsafe.Pointer(&m.words.Bytes[at])) }

// Close frees all resources and unlocks the thread.
func (m *cudaMachine) Close() error {
	var errs []error
	for k, r := range m.rooms {
		errs = append(errs, m.devices[k.place.GPU].Bind(), r.free())
	}
	if m.words != nil {
		errs = append(errs, m.words.Free())
	}
	for _, d := range m.devices {
		errs = append(errs, d.Close())
	}
	runtime.UnlockOSThread()
	return errors.Join(errs...)
}
