//go:build cuda && cgo

package membw

import (
	"context"
	"encoding/binary"
	"fmt"
	"unsafe"

	"github.com/assay-hpc/assay/internal/gpu/driver"
)

// The size of the memory in which pointers are chased, and the distance between them: a line of a
// GPU's L2 cache. nvbandwidth's buffer has the same size.
const (
	ringBytes  = 2 << 20
	ringStride = 128
)

// ringSlot is the slot of the memory that contains the pointers.
const ringSlot = -1

// Latency implements Machine.
func (r *cudaMachine) Latency(ctx context.Context, l Latency) ([]float64, error) {
	m, order, err := r.ring(l.At)
	if err != nil {
		return nil, err
	}
	d := r.devices[l.By]
	lane, err := r.first(d)
	if err != nil {
		return nil, err
	}
	// One pass over the ring first, so that all addresses are translated.
	if _, err := r.chase(d, lane, m.at, order, len(order)); err != nil {
		return nil, err
	}
	var out []float64
	for range l.Samples {
		if err := context.Cause(ctx); err != nil {
			return out, err
		}
		t, err := r.chase(d, lane, m.at, order, l.Accesses)
		if err != nil {
			return out, err
		}
		out = append(out, t/float64(l.Accesses))
	}
	return out, nil
}

// ring returns memory with pointers through all its lines. order contains their numbers.
func (r *cudaMachine) ring(p endpoint) (*room, []int, error) {
	m, err := r.room(key{p, ringSlot}, ringBytes)
	if err != nil {
		return nil, nil, err
	}
	order := ringOrder(ringBytes / ringStride)
	b := make([]byte, ringBytes)
	for i, line := range order {
		next := order[(i+1)%len(order)]
		binary.LittleEndian.PutUint64(b[line*ringStride:], uint64(m.at)+uint64(next*ringStride))
	}
	if m.pinned != nil {
		copy(m.pinned.Bytes, b)
		return m, order, nil
	}
	if err := r.devices[p.GPU].Bind(); err != nil {
		return nil, nil, err
	}
	return m, order, driver.CopyToDevice(m.at, b)
}

// chase follows the given number of pointers and returns the time in seconds. The device's context
// must be current.
func (r *cudaMachine) chase(d *device, l *lane, at driver.Ptr, order []int, steps int) (float64, error) {
	start := uint64(at) + uint64(order[0]*ringStride)
	seconds, err := l.Time(func() error {
		return d.Run("chase", l.Stream, 1, start, uint64(steps), uint64(r.words.Ptr)+wordEnd)
	})
	if err != nil {
		return 0, err
	}
	want := uint64(at) + uint64(order[steps%len(order)]*ringStride)
	if got := *(*uint64)(unsafe.Pointer(&r.words.Bytes[wordEnd])); got != want {
		return 0, fmt.Errorf("wrong data: %d pointers led to %#x, not %#x", steps, got, want)
	}
	return seconds, nil
}
