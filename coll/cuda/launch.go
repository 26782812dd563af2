//go:build cuda && cgo

package cuda

import (
	"unsafe"

	"github.com/assay-hpc/assay/coll/elem"
	"github.com/assay-hpc/assay/coll/op"
	"github.com/assay-hpc/assay/internal/gpu/driver"
)

// A launch launches one kernel, for any type and reduction.
type launch struct {
	l     *driver.Launch
	args  *argsABI
	norm  *normABI // of kernels that normalize rows
	ring  *ringABI // of those that add in a ring
	early bool     // as newLaunch has it
}

// newLaunch prepares a launch of a kernel. early: it may start as soon as the previous one lets it, and
// not when that one has ended.
func newLaunch(comm commABI, k kernel, early bool) *launch {
	sizes := []int{int(unsafe.Sizeof(commABI{})), int(unsafe.Sizeof(argsABI{}))}
	switch {
	case kernelTable[k].norm:
		sizes = append(sizes, int(unsafe.Sizeof(normABI{})))
	case kernelTable[k].ring:
		sizes = append(sizes, int(unsafe.Sizeof(ringABI{})))
	}
	l := driver.NewLaunch(driver.Func{}, sizes...)
	*(*commABI)(l.Param(0)) = comm
	made := &launch{l: l, args: (*argsABI)(l.Param(1)), early: early}
	switch {
	case kernelTable[k].norm:
		made.norm = (*normABI)(l.Param(2))
	case kernelTable[k].ring:
		made.ring = (*ringABI)(l.Param(2))
	}
	return made
}

// prepare prepares the launch of a collective.
func (e *engine) prepare(o *op.Op, c choice) *driver.Launch {
	l := e.launch(c.kernel, o.Type, o.Red)
	e.chosen = c
	fill(l.args, e.cfg.Rank, e.cfg.Size, o, c)
	if kernelTable[c.kernel].registered {
		e.direct(o).aim(l.args, e.cfg.Rank, o, c)
	}
	l.args.row = e.chooser.row(o.Coll, c, o.Bytes())
	if c.kernel.chunks() {
		l.args.chunk = uint32(e.chooser.even(o.Coll, c, o.Bytes()))
	}
	return e.set(l, c)
}

// launch returns the launch of a kernel for a type and reduction.
func (e *engine) launch(k kernel, t elem.Type, op elem.Op) *launch {
	l := e.launches[k]
	l.l.SetFunc(e.funcs.of(k, t, op))
	return l
}

// mostWaiting is how many kernels of a communicator may be on the GPU while they wait for other ranks. A GPU
// runs 128 grids at a time (CUDA C++ Programming Guide, technical specifications), those of the program and
// of other communicators among them.
const mostWaiting = 8

// set sets the grid, block and stream of a launch, and whether it is launched early.
//
// Kernels that move chunks let the next one start near their end, and are launched early behind one of their
// kind. Behind others, which do so when they begin, their many blocks would hold multiprocessors for as long
// as those wait for other ranks; and where ranks share a device, they could hold those that the other rank
// needs. The others would gather on the GPU if their rank is far ahead, until nothing else can start, not
// even what the other ranks wait for. So each that would be one too many, or whose blocks would, waits until
// all before it have ended.
func (e *engine) set(l *launch, c choice) *driver.Launch {
	early, blocks := l.early, c.channels*kernelTable[c.kernel].roles
	if c.kernel.chunks() {
		early = e.sole && e.last.chunks()
		e.waiting, e.waitingBlocks = 0, 0
	} else {
		early = early && e.waiting < mostWaiting && e.waitingBlocks+blocks <= e.chooser.blocks
		if !early {
			e.waiting, e.waitingBlocks = 0, 0
		}
		e.waiting++
		e.waitingBlocks += blocks
	}
	l.l.SetDependent(early)
	e.last = c.kernel
	l.l.SetGrid(blocks, 1, 1)
	threads := c.threads
	if l.args.row != 0 {
		threads *= e.cfg.Size - 1
	}
	l.l.SetBlock(threads, 1, 1)
	l.l.SetStream(e.stream)
	return l.l
}

func (e *engine) run(l *driver.Launch) error {
	e.one[0] = l
	return driver.RunAll(e.one[:])
}
