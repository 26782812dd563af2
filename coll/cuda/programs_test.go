//go:build cuda && cgo

package cuda

import (
	"cmp"
	"context"
	"errors"
	"os"
	"testing"
	"time"

	"github.com/assay-hpc/assay/coll"
	"github.com/assay-hpc/assay/coll/hang"
	"github.com/assay-hpc/assay/coll/knob"
	oracle "github.com/assay-hpc/assay/coll/model"
	"github.com/assay-hpc/assay/coll/model/modeltest"
	"github.com/assay-hpc/assay/coll/op"
	"github.com/assay-hpc/assay/internal/gpu/driver"
)

// deviceMemory is a rank's memory of a program, on its device.
type deviceMemory struct {
	dev    *device
	stream driver.Stream
	at     driver.Ptr
	n      int
	delays []*driver.Pinned
}

func newDeviceMemory(c *coll.Comm, content []byte) (modeltest.Memory, error) {
	ordinal, _ := c.Device()
	dev, err := deviceOf(ordinal)
	if err != nil {
		return nil, err
	}
	m := &deviceMemory{dev: dev, n: len(content)}
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
		if err := errors.Join(m.stream.Synchronize(), m.stream.Destroy()); err != nil {
			return err
		}
		for _, word := range m.delays {
			if err := word.Free(); err != nil {
				return err
			}
		}
		return driver.Free(m.at)
	})
}

func (m *deviceMemory) Done() (done bool, err error) {
	err = m.dev.in(func() (err error) {
		done, err = m.stream.Query()
		return err
	})
	return done, err
}

func (m *deviceMemory) Read() ([]byte, error) {
	b := make([]byte, m.n)
	return b, m.dev.in(func() error { return driver.CopyFromDevice(b, m.at) })
}

// Delay makes the stream wait.
func (m *deviceMemory) Delay(d time.Duration) error {
	return m.dev.in(func() error {
		word, err := driver.HostAlloc(4)
		if err != nil {
			return err
		}
		if err := m.stream.WaitValue32(word.Ptr, 1); err != nil {
			return err
		}
		m.delays = append(m.delays, word)
		time.AfterFunc(d, func() { word.Bytes[0] = 1 })
		return nil
	})
}

// fuzz runs random programs on all devices, for so long with -short and twice as long without.
func fuzz(t *testing.T, short time.Duration, memory int, options func(seed uint64, o *modeltest.Options)) {
	devices := gpuCount(t)
	ranks := min(devices, maxRanks)
	if devices == 1 {
		ranks = 3
	}
	d := 2 * short
	if testing.Short() {
		d = short
	}
	open := func(asNCCL bool) func(context.Context, oracle.Program) ([]*coll.Comm, error) {
		return func(ctx context.Context, p oracle.Program) ([]*coll.Comm, error) {
			k, _, err := knob.Load(append(p.Env, "NCCL_CONF_FILE=/dev/null", "ASSAY_CHECK="+cmp.Or(os.Getenv("ASSAY_CHECK"), "0")), nil)
			if err != nil {
				return nil, err
			}
			k.Timeout, k.NetPlugin, k.MultiRankGPU, k.HangAfter, k.HangDir = time.Minute, "none", true, 30*time.Second, t.TempDir()
			stands := func(v hang.Verdict) { t.Errorf("a program stands still: %s", v.Text) }
			return coll.CommInitAll(ctx, p.Ranks, coll.Config{Knobs: k, Devices: spread(p.Ranks, devices).devices, GPUs: Factory, AsNCCL: asNCCL, OnHang: stands})
		}
	}
	modeltest.Fuzz(t, d, oracle.Options{Ranks: ranks, Memory: limit(memory), Apart: true}, func(seed uint64) modeltest.Options {
		o := modeltest.Options{Open: open(seed%3 > 0), Parts: seed%3 > 0, Memory: newDeviceMemory, Late: seed / 2 % 5}
		options(seed, &o)
		return o
	})
}

// TestPrograms: random programs leave in the devices' memory what the model says.
func TestPrograms(t *testing.T) {
	fuzz(t, 10*time.Second, 1<<20, func(seed uint64, o *modeltest.Options) { o.Together = seed%2 == 1 })
}

// TestStoppedPrograms: while one rank aborts, no other has wrong data without an error, and each gets one that names it.
func TestStoppedPrograms(t *testing.T) {
	fuzz(t, 10*time.Second, 256<<10, func(seed uint64, o *modeltest.Options) { o.Stop = seed + 1 })
}

// TestCrowdedPrograms: random programs are right, and end, while another kernel leaves them 20 multiprocessors of some
// devices.
func TestCrowdedPrograms(t *testing.T) {
	if n := gpuCount(t); n < 2 {
		t.Skip("ranks of one device wait for one another's multiprocessors")
	}
	if info, err := driver.Devices(); err != nil || info[0].Name == "emulator" {
		t.Skip("the emulator has no multiprocessors: ", err)
	}
	fuzz(t, 10*time.Second, 1<<20, func(seed uint64, o *modeltest.Options) {
		o.Together = seed%2 == 1
		o.Beside = func(ranks int) (func() error, error) { return crowd(ranks, seed) }
	})
}

// hold is a kernel whose blocks stay on all multiprocessors but the first ones, until a word is set or time is over.
const hold = `.version 7.0
.target sm_70
.address_size 64
.visible .entry hold(.param .u64 word, .param .u64 first, .param .u64 ns) {
	.reg .b64 %d<6>;
	.reg .b32 %r<3>;
	.reg .pred %p<4>;
	ld.param.u32 %r1, [first];
	mov.u32 %r2, %smid;
	setp.lt.u32 %p1, %r2, %r1;
	@%p1 bra END;
	ld.param.u64 %d1, [word];
	ld.param.u64 %d2, [ns];
	mov.u64 %d3, %globaltimer;
	add.s64 %d3, %d3, %d2;
AGAIN:
	ld.volatile.global.u32 %r1, [%d1];
	setp.ne.u32 %p2, %r1, 0;
	@%p2 bra END;
	mov.u64 %d4, %globaltimer;
	setp.lt.u64 %p3, %d4, %d3;
	@%p3 bra AGAIN;
END:
	ret;
}
`

// crowd occupies most multiprocessors of the ranks' devices, of all or of some, until end is called. A program that
// stands still because of it gets a verdict before it leaves by itself.
func crowd(ranks int, seed uint64) (end func() error, err error) {
	const left, threads = 20, 1024
	var words []*driver.Pinned
	var ends []func() error
	for r := range ranks {
		if seed%3 == 0 && r > 0 {
			break
		}
		dev, err := deviceOf(r)
		if err != nil {
			return nil, err
		}
		err = dev.in(func() error {
			m, err := driver.Load([]byte(hold))
			if err != nil {
				return err
			}
			f, err := m.Function("hold")
			if err != nil {
				return err
			}
			s, err := driver.NewStream(0)
			if err != nil {
				return err
			}
			word, err := driver.HostAlloc(4)
			if err != nil {
				return err
			}
			words = append(words, word)
			l := driver.NewLaunch(f, 8, 8, 8)
			l.SetStream(s)
			l.SetBlock(threads, 1, 1)
			l.SetGrid(4*dev.info.SMs, 1, 1)
			*(*driver.Ptr)(l.Param(0)) = word.Ptr
			*(*uint64)(l.Param(1)) = left
			*(*uint64)(l.Param(2)) = 90e9
			ends = append(ends, func() error {
				return dev.in(func() error {
					defer l.Close()
					return errors.Join(s.Synchronize(), s.Destroy(), m.Unload(), word.Free())
				})
			})
			return l.Run()
		})
		if err != nil {
			return nil, err
		}
	}
	return func() error {
		for _, w := range words {
			w.Bytes[0] = 1
		}
		var errs []error
		for _, e := range ends {
			errs = append(errs, e())
		}
		return errors.Join(errs...)
	}, nil
}
