//go:build cuda && cgo

package bench

import (
	_ "embed"
	"errors"
	"fmt"
	"math/bits"

	"github.com/assay-hpc/assay/internal/gpu/driver"
)

//go:generate nvcc -ptx -arch=compute_80 -o check.ptx check.cu

//go:embed check.ptx
var image []byte

// The shape of the grids: threads per block, and blocks per multiprocessor, as many as it can
// hold.
const (
	threads     = 256
	blocksPerSM = 8
)

// widths is the number of element sizes, which are 1<<i bytes.
const widths = 4

// kernels are those of check.cu, prepared for one stream.
type kernels struct {
	module        *driver.Module
	tile, compare [widths]*driver.Launch
	blocks        int // at most
}

// load loads the kernels into the current context. wrong is the counter of the compare
// kernels.
func (k *kernels) load(stream driver.Stream, sms int, wrong driver.Ptr) (err error) {
	k.blocks = sms * blocksPerSM
	if k.module, err = driver.Load(image); err != nil {
		return err
	}
	for i := range widths {
		if k.tile[i], err = k.prepare("tile", i, stream, 8, 8, 8, 4, 4); err != nil {
			return err
		}
		if k.compare[i], err = k.prepare("compare", i, stream, 8, 8, 8, 4, 4, 8, 8); err != nil {
			return err
		}
		set(k.compare[i], 6, wrong)
	}
	return nil
}

func (k *kernels) prepare(name string, width int, stream driver.Stream, params ...int) (*driver.Launch, error) {
	f, err := k.module.Function(fmt.Sprint(name, 1<<width))
	if err != nil {
		return nil, err
	}
	l := driver.NewLaunch(f, params...)
	l.SetBlock(threads, 1, 1)
	l.SetStream(stream)
	return l, nil
}

func (k *kernels) close() error {
	for _, l := range append(k.tile[:], k.compare[:]...) {
		if l != nil {
			l.Close()
		}
	}
	if k.module == nil {
		return nil
	}
	return k.module.Unload()
}

// set sets a launch's parameter, which has the size of v.
func set[T any](l *driver.Launch, i int, v T) { *(*T)(l.Param(i)) = v }

// run launches tile or compare over memory, in elements of 1<<width bytes. period is the
// pattern's length in bytes, phase the offset in the pattern at which mem begins.
func (k *kernels) run(l *driver.Launch, mem []byte, pattern driver.Ptr, period int, phase int64, width int) error {
	n := uint64(len(mem) >> width)
	set(l, 0, driver.Ptr(Address(mem)))
	set(l, 1, n)
	set(l, 2, pattern)
	set(l, 3, uint32(period>>width))
	set(l, 4, uint32(phase>>width))
	l.SetGrid(int(min((n+threads-1)/threads, uint64(k.blocks))), 1, 1)
	return l.Run()
}

// widest is the logarithm of the widest element that all of these are
// multiples of, in bytes.
func widest(v ...uintptr) int {
	all := uintptr(1) << (widths - 1)
	for _, x := range v {
		all |= x
	}
	return bits.TrailingZeros64(uint64(all))
}

// widthOf is the logarithm of an element's size in bytes.
func widthOf(size int) (int, error) {
	if size <= 0 || size&(size-1) != 0 || size >= 1<<widths {
		return 0, fmt.Errorf("there are no elements of %d bytes", size)
	}
	return bits.TrailingZeros(uint(size)), nil
}

// aligned reports whether all are multiples of 1<<width bytes.
func aligned(width int, v ...uintptr) error {
	if widest(v...) < width {
		return errors.New("memory, pattern or phase is not aligned to the element")
	}
	return nil
}
