//go:build cuda && cgo

package membw

import (
	"encoding/binary"
	"errors"
	"math"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/assay-hpc/assay/internal/gpu/driver"
	"github.com/assay-hpc/assay/internal/host/sysfs"
)

// A key identifies memory that is cached for later measurements: the place, and the slot there.
type key struct {
	place endpoint
	slot  int
}

// A room is allocated memory.
type room struct {
	at     driver.Ptr
	bytes  int
	host   []byte         // pageable memory only
	pinned *driver.Pinned // pinned memory only
}

// room returns at least the given number of bytes of memory.
func (r *cudaMachine) room(k key, bytes int) (*room, error) {
	if m := r.rooms[k]; m != nil && m.bytes >= bytes {
		return m, nil
	} else if m != nil {
		delete(r.rooms, k)
		if err := errors.Join(r.devices[k.place.GPU].Bind(), m.free()); err != nil {
			return nil, err
		}
	}
	m, err := r.allocate(k.place, (bytes+255)&^255)
	if err != nil {
		return nil, err
	}
	r.rooms[k] = m
	return m, nil
}

// allocate allocates memory next to the GPU of the place, and makes the GPU's context current.
func (r *cudaMachine) allocate(p endpoint, bytes int) (*room, error) {
	d := r.devices[p.GPU]
	if err := d.Bind(); err != nil {
		return nil, err
	}
	m := &room{bytes: bytes}
	cpus := d.CPUs
	if r.anywhere {
		cpus = sysfs.CPUSet{}
	}
	return m, sysfs.Near(cpus, func() (err error) {
		switch p.Memory {
		case ofGPU:
			m.at, err = driver.Malloc(bytes)
			return err
		case pageable:
			if m.host, err = unix.Mmap(-1, 0, bytes, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON); err == nil {
				clear(m.host)
				m.at = driver.Ptr(uintptr(unsafe.Pointer(&m.host[0])))
			}
			return err
		case combined:
			m.pinned, err = driver.HostAllocCombined(bytes)
		default:
			m.pinned, err = driver.HostAlloc(bytes)
		}
		if err == nil {
			m.at = m.pinned.Ptr
		}
		return err
	})
}

// free frees the memory. The context of its place must be current.
func (m *room) free() error {
	switch {
	case m.host != nil:
		return unix.Munmap(m.host)
	case m.pinned != nil:
		return m.pinned.Free()
	case m.at != 0:
		return driver.Free(m.at)
	}
	return nil
}

// fill writes test data to memory of a place. A GPU writes it, unless it cannot access the memory.
func (r *cudaMachine) fill(p endpoint, m *room, bytes int, seed uint64) error {
	if m.host != nil {
		fillHost(m.host[:(bytes+7)&^7], seed)
		return nil
	}
	d := r.devices[p.GPU]
	l, err := r.first(d)
	if err != nil {
		return err
	}
	if err := d.over("fill", l.Stream, bytes/8, uint64(m.at), uint64(bytes), seed); err != nil {
		return err
	}
	return l.Stream.Synchronize()
}

// first is the first lane of the device, and makes the device's context current.
func (r *cudaMachine) first(d *device) (*lane, error) {
	if err := d.Bind(); err != nil {
		return nil, err
	}
	return d.lane(0)
}

// check compares memory of a place with test data.
func (r *cudaMachine) check(p endpoint, m *room, bytes int, seed uint64) (words, first int64, err error) {
	if m.host != nil {
		words, first = checkHost(m.host, bytes, seed)
		return words, first, nil
	}
	d := r.devices[p.GPU]
	l, err := r.first(d)
	if err != nil {
		return 0, 0, err
	}
	counts := binary.LittleEndian.AppendUint64(make([]byte, 8), math.MaxUint64)
	if err := driver.CopyToDevice(d.wrong, counts); err != nil {
		return 0, 0, err
	}
	if err := d.over("check", l.Stream, bytes/8, uint64(m.at), uint64(bytes), seed, uint64(d.wrong)); err != nil {
		return 0, 0, err
	}
	if err := errors.Join(l.Stream.Synchronize(), driver.CopyFromDevice(counts, d.wrong)); err != nil {
		return 0, 0, err
	}
	return int64(binary.LittleEndian.Uint64(counts)), int64(binary.LittleEndian.Uint64(counts[8:])) * 8, nil
}
