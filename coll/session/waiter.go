package session

import (
	"time"

	"github.com/assay-hpc/assay/coll/choose"
	"github.com/assay-hpc/assay/coll/host"
	"golang.org/x/sys/unix"
)

// spinner returns how the rank waits: spinning, if its host has a processor for each of its ranks.
func (l *Links) spinner(local []int) *host.Spinner {
	within := 0 // ranks of this process
	for _, r := range local {
		if l.found[r].Process == l.found[l.cfg.Rank].Process {
			within++
		}
	}
	s := &host.Spinner{Spin: 20000, Yield: 200, Nap: 20 * time.Millisecond}
	switch {
	case within == 1:
		s.Process = 64 // the runtime wakes another thread when a goroutine yields
	case within < len(local):
		s.Process = 2
	}
	if choose.Processors(l.found, local) < len(local) {
		s.Spin, s.Yield = 0, 2000
	}
	if l.shm != nil {
		s.Sleeper = l.shm.Bell()
	}
	l.waitForNetwork(s)
	return s
}

// waitForNetwork makes a waiting rank sleep on its network, or poll it.
func (l *Links) waitForNetwork(s *host.Spinner) {
	if l.net == nil {
		return
	}
	s.Nap = pollTime
	e, ok := l.net.(interface {
		Fd() int // becomes readable when something may have arrived
		Drain()
	})
	if !ok || l.collNet.heads != nil { // nothing wakes the rank
		s.Poll = func(time.Duration) { time.Sleep(lookTime) }
		return
	}
	fds := []unix.PollFd{{Fd: int32(e.Fd()), Events: unix.POLLIN}}
	s.Pauses = socketPauses
	s.Poll = func(d time.Duration) {
		if n, _ := unix.Poll(fds, int(d/time.Millisecond)); n > 0 {
			e.Drain()
		}
	}
}

// pollTime is how long a rank sleeps on its sockets at a time: messages through shared memory do
// not wake it.
const pollTime = time.Millisecond

// lookTime is how long a rank sleeps between looks at a network that does not wake it.
const lookTime = 50 * time.Microsecond

// socketPauses is about half a microsecond, about as long as a look at a socket takes.
const socketPauses = 20
