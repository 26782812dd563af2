//go:build cuda && cgo

package kernels

import (
	"fmt"
	"io/fs"
	"runtime"
	"testing"
	"unsafe"

	"github.com/assay-hpc/assay/coll/elem"
	"github.com/assay-hpc/assay/internal/gpu/driver"
	"github.com/assay-hpc/assay/internal/gputest"
)

// combineComm and combineArgs are Comm and Args of abi.h, as far as combine
// reads them.
type combineComm struct {
	_           [8 + 3]uint64
	_           [4]uint32
	rank, ranks int32
	_           [3]uint64
}

type combineArgs struct {
	in, out        [8]driver.Ptr
	_, recv        [8]uint64
	_              [2][8]uint8
	factor         uint64
	scale, divisor uint32
	_              [6]uint32
}

// TestReduceGPU holds the code, with the instructions that only GPUs have, to
// package elem.
func TestReduceGPU(t *testing.T) {
	err := driver.Init()
	var devices []driver.DeviceInfo
	if err == nil {
		devices, err = driver.Devices()
	}
	gputest.Need(t, 1, len(devices), err, driver.ErrNoDriver, driver.ErrNoDevice)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	ctx, err := driver.Open(0)
	check(t, err)
	defer ctx.Close()
	check(t, ctx.Bind())

	const room = 1 << 17 // for the longest source
	var buffers [9]driver.Ptr
	for i := range buffers {
		buffers[i], err = driver.Malloc(room)
		check(t, err)
		defer driver.Free(buffers[i])
	}
	for _, ranks := range []int{len(buffers) - 1, FewRanks} { // at most
		var code map[string][]byte
		check(t, driver.Newest(Files, func(dir fs.FS) (err error) {
			code, _, err = Code(dir, devices[0].ComputeMajor*10+devices[0].ComputeMinor, ranks)
			return err
		}))
		reduceAll(t, ctx, code, ranks, buffers)
	}
}

func reduceAll(t *testing.T, ctx *driver.Context, code map[string][]byte, ranks int, buffers [9]driver.Ptr) {
	for _, ty := range elem.Types {
		t.Run(fmt.Sprintf("%v, %d ranks", ty, ranks), func(t *testing.T) { // on a thread of its own
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			check(t, ctx.Bind())
			all := tests(ty)
			for op := elem.Sum; op < elem.Avg; op++ {
				module, err := driver.Load(code[reduction(ty, op).Name])
				check(t, err)
				defer module.Unload()
				f, err := module.Function(reduction(ty, op).Kernel("combine"))
				check(t, err)
				for _, c := range all {
					if c.op != op || len(c.srcs) > ranks {
						continue
					}
					got := make([]byte, len(c.want))
					combine(t, ctx, f, c, buffers, got)
					c.check(t, got)
				}
			}
		})
	}
}

// combine runs the kernel on a test's sources.
func combine(t *testing.T, ctx *driver.Context, f driver.Func, c test, buffers [9]driver.Ptr, got []byte) {
	launch := driver.NewLaunch(f, int(unsafe.Sizeof(combineComm{})), int(unsafe.Sizeof(combineArgs{})))
	defer launch.Close()
	// A kind is what Args.scale says of it.
	args := combineArgs{factor: c.factor, scale: uint32(c.kind), divisor: c.divisor}
	for i, s := range c.srcs {
		args.in[i] = buffers[i]
		check(t, driver.CopyToDevice(buffers[i], s))
	}
	args.out[0], args.recv[0] = buffers[8], uint64(len(got))
	*(*combineComm)(launch.Param(0)) = combineComm{ranks: int32(len(c.srcs))}
	*(*combineArgs)(launch.Param(1)) = args
	launch.SetGrid(4, 1, 1)
	launch.SetBlock(512, 1, 1)
	check(t, launch.Run())
	check(t, ctx.Synchronize())
	check(t, driver.CopyFromDevice(got, buffers[8]))
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
