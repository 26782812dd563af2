//go:build cuda && cgo

package cuda

import (
	"context"
	"testing"
	"time"

	"github.com/assay-hpc/assay/coll"
	"github.com/assay-hpc/assay/coll/cuda/driver"
	"github.com/assay-hpc/assay/coll/knob"
	oracle "github.com/assay-hpc/assay/coll/model"
	"github.com/assay-hpc/assay/coll/model/modeltest"
	"github.com/assay-hpc/assay/coll/op"
)

// deviceMemory is a rank's memory of a program, on its device.
type deviceMemory struct {
	c      *coll.Comm
	dev    *device
	stream driver.Stream
	at     driver.Ptr
	n      int
}

func newDeviceMemory(c *coll.Comm, content []byte) (modeltest.Memory, error) {
	ordinal, _ := c.Device()
	dev, err := deviceOf(ordinal)
	if err != nil {
		return nil, err
	}
	m := &deviceMemory{c: c, dev: dev, n: len(content)}
	err = dev.in(func() (err error) {
		if m.stream, err = driver.NewStream(0); err != nil {
			return err
		}
		if m.at, err = driver.Malloc(m.n); err != nil {
			return err
		}
		return driver.CopyToDevice(m.at, content)
	})
	if err != nil {
		return nil, err
	}
	return m, m.Adopt(c)
}

func (m *deviceMemory) Slice(at, n int) []byte   { return op.Memory(uintptr(m.at)+uintptr(at), n) }
func (m *deviceMemory) Device() bool             { return true }
func (m *deviceMemory) Adopt(c *coll.Comm) error { return c.SetStream(uintptr(m.stream)) }
func (m *deviceMemory) Free() error {
	return m.dev.in(func() error {
		if err := m.stream.Destroy(); err != nil {
			return err
		}
		return driver.Free(m.at)
	})
}

func (m *deviceMemory) Read() ([]byte, error) {
	b := make([]byte, m.n)
	err := m.dev.in(func() error {
		if err := m.stream.Synchronize(); err != nil {
			return err
		}
		return driver.CopyFromDevice(b, m.at)
	})
	if err == nil {
		err = m.c.AsyncError()
	}
	return b, err
}

// TestPrograms: random programs leave in the devices' memory what the model says.
func TestPrograms(t *testing.T) {
	devices := gpuCount(t)
	d := 20 * time.Second
	if testing.Short() {
		d = 10 * time.Second
	}
	open := func(asNCCL bool) func(context.Context, oracle.Program) ([]*coll.Comm, error) {
		return func(ctx context.Context, p oracle.Program) ([]*coll.Comm, error) {
			k, _, err := knob.Load(append(p.Env, "NCCL_CONF_FILE=/dev/null"), nil)
			if err != nil {
				return nil, err
			}
			k.Timeout, k.NetPlugin = time.Minute, "none"
			return coll.CommInitAll(ctx, p.Ranks, coll.Config{Knobs: k, Devices: spread(p.Ranks, devices).devices, GPUs: Factory, AsNCCL: asNCCL})
		}
	}
	modeltest.Fuzz(t, d, oracle.Options{Ranks: min(devices, maxRanks), Memory: limit(1 << 20), Apart: true}, func(seed uint64) modeltest.Options {
		return modeltest.Options{Open: open(seed%3 > 0), Memory: newDeviceMemory, Together: seed%2 == 1}
	})
}
