package coll

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/assay-hpc/assay/coll/host"
	"github.com/assay-hpc/assay/internal/host/sysfs"
	"github.com/assay-hpc/assay/internal/host/topology"
)

// hostID returns a number that identifies the host. In a sandbox without /proc that is a hash of its
// name alone: where hosts have the same one, their ranks find that they share no memory.
func (c *Comm) hostID() (uint64, error) {
	fs, err := sysfs.Open("/")
	if err != nil {
		return 0, fmt.Errorf("telling hosts apart: %w", err)
	}
	id, err := topology.HostID(func(string) string { return c.cfg.HostID }, fs)
	if err != nil {
		var u unix.Utsname
		if uerr := unix.Uname(&u); uerr != nil {
			return 0, fmt.Errorf("telling hosts apart: %w; NCCL_HOSTID can say it", err)
		}
		name := unix.ByteSliceToString(u.Nodename[:])
		c.cfg.log.Warnf("hosts are told apart by their names alone, this is %q: %v; NCCL_HOSTID can say it", name, err)
		id, _ = topology.HostID(func(string) string { return name }, fs)
	}
	return id | 1, nil // 0 means none
}

// waitForNetwork makes a waiting rank sleep on its network, or poll it.
func (c *Comm) waitForNetwork(s *host.Spinner) {
	if c.links.net == nil {
		return
	}
	s.Nap = pollTime
	e, ok := c.links.net.(interface {
		Fd() int // becomes readable when something may have arrived
		Drain()
	})
	if !ok || c.links.collNet.heads != nil { // nothing wakes the rank
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
