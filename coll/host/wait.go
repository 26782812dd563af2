package host

import (
	"runtime"
	"time"

	"golang.org/x/sys/unix"
)

// A Sleeper puts its rank to sleep until a peer rings, as shm.Bell does.
type Sleeper interface {
	Arm()
	Disarm()
	Sleep(time.Duration)
}

// A Spinner waits by spinning first, which notices a message within tens of nanoseconds, then by
// yielding the processor to other work (with more ranks than processors, that is likely the
// awaited peer), and finally by sleeping. It implements Waiter.
type Spinner struct {
	// Spin and Yield are how many times to spin and to yield before the next stage.
	Spin, Yield int
	// Pauses is how many times the processor pauses between two looks while spinning: frequent
	// looks at sockets keep the kernel from filling them.
	Pauses int
	// Process makes all yields except every Process-th one a system call, which lets other
	// processes run, not goroutines of this one; 0: no system calls.
	Process int
	// Sleeper, if not nil, is used for the sleep, which lasts up to Nap.
	Sleeper Sleeper
	Nap     time.Duration
	// Poll, if not nil, is called instead of sleeping: it waits for sockets.
	Poll func(time.Duration)

	armed bool
}

// Wait implements Waiter.
func (s *Spinner) Wait(idle int) (long bool) {
	if idle == 0 && s.armed {
		s.Sleeper.Disarm()
		s.armed = false
	}
	switch {
	case idle < s.Spin:
		for range s.Pauses {
			pause()
		}
		if idle&63 == 63 {
			runtime.Gosched() // goroutines that watch the peers need the processor, too
		}
		return false
	case idle < s.Spin+s.Yield:
		if s.Process > 0 && idle%s.Process != s.Process-1 {
			_, _, _ = unix.RawSyscall(unix.SYS_SCHED_YIELD, 0, 0, 0)
		} else {
			runtime.Gosched()
		}
		return false
	case s.Poll != nil:
		s.Poll(s.Nap)
	case s.Sleeper == nil:
		time.Sleep(s.Nap)
	case !s.armed:
		s.Sleeper.Arm() // and let the caller look once more
		s.armed = true
		return false
	default:
		s.Sleeper.Sleep(s.Nap)
		s.armed = false
	}
	return true
}
