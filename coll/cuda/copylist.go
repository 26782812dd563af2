//go:build cuda && cgo

package cuda

import (
	"sync/atomic"
	"unsafe"

	"github.com/assay-hpc/assay/internal/gpu/driver"
)

// A copyList tells a block of a kernel what to copy between the device and pinned memory: kernels/stage.h.
type copyList struct {
	at   *stageListABI
	next uint32 // number of the last copy that is listed
}

// room reports whether the kernel is so far that one more copy can be listed.
func (c *copyList) room() bool { return c.next-atomic.LoadUint32(&c.at.done) < listed }

// add lists a copy.
func (c *copyList) add(to, from driver.Ptr, bytes uint32) {
	c.next++
	words := &c.at.copies[c.next%listed]
	for i, word := range [...]uint32{uint32(from), uint32(from >> 32), uint32(to), uint32(to >> 32), bytes} {
		atomic.StoreUint64((*uint64)(unsafe.Pointer(&words[2*i])), uint64(c.next)<<32|uint64(word))
	}
}

// begun reports whether the block has begun that copies for an operation.
func (c *copyList) begun(number uint32) bool {
	return int32(atomic.LoadUint32(&c.at.begun)-number) >= 0
}

// copyLists are a lane's lists for one direction.
type copyLists [mostShares]copyList

// begun reports whether the first n blocks have begun.
func (c *copyLists) begun(number uint32, n int) bool {
	for i := range n {
		if !c[i].begun(number) {
			return false
		}
	}
	return true
}

// A copyMark is the numbers of the last copies of some copyLists.
type copyMark [mostShares]uint32

func (c *copyLists) mark() (m copyMark) {
	for i := range c {
		m[i] = c[i].next
	}
	return m
}

// done reports whether all copies up to a mark are done.
func (c *copyLists) done(m copyMark) bool {
	for i := range c {
		if int32(atomic.LoadUint32(&c[i].at.done)-m[i]) < 0 {
			return false
		}
	}
	return true
}
