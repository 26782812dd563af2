package shm

import (
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A Bell wakes a rank that has gone to sleep waiting for a message or for a free slot. It
// is in memory that the rank's peers map. A peer that changes something for which the
// rank may be waiting rings the bell; while the rank is awake, that costs the peer one
// load.
//
// The sleeper calls Arm, checks once more whether there is something to do, and calls
// Sleep if there is not: a peer that changes something after Arm rings.
type Bell struct{ asleep uint32 }

// Ring wakes the owner if it sleeps.
func (b *Bell) Ring() {
	if atomic.LoadUint32(&b.asleep) != 0 && atomic.CompareAndSwapUint32(&b.asleep, 1, 0) {
		futex(&b.asleep, futexWake, 1, nil)
	}
}

// Arm announces that the owner is about to sleep.
func (b *Bell) Arm() { atomic.StoreUint32(&b.asleep, 1) }

// Disarm withdraws Arm.
func (b *Bell) Disarm() { atomic.StoreUint32(&b.asleep, 0) }

// Sleep returns when the bell has been rung since Arm, or after d.
func (b *Bell) Sleep(d time.Duration) {
	ts := unix.NsecToTimespec(int64(d))
	futex(&b.asleep, futexWait, 1, &ts)
	b.Disarm()
}

// From the kernel's futex.h. Not the private variants: the word is shared
// between processes.
const (
	futexWait = 0
	futexWake = 1
)

func futex(word *uint32, op, val uintptr, timeout *unix.Timespec) {
	// Spurious returns are harmless: callers look again.
	_, _, _ = unix.Syscall6(unix.SYS_FUTEX, uintptr(unsafe.Pointer(word)), op, val, uintptr(unsafe.Pointer(timeout)), 0, 0)
}
