package coll

import (
	"crypto/sha256"
	"fmt"
	"hash/fnv"
	"math/bits"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/assay-hpc/assay/coll/host"
	"github.com/assay-hpc/assay/coll/schedule"
	"github.com/assay-hpc/assay/coll/topology"
	"github.com/assay-hpc/assay/coll/transport/shm"
	"github.com/assay-hpc/assay/coll/transport/slots"
	"github.com/assay-hpc/assay/harness/sysfs"
)

// hostID tells hosts apart.
func (c *Comm) hostID() (uint64, error) {
	fs, err := sysfs.Open("/")
	if err != nil {
		return 0, fmt.Errorf("telling hosts apart: %w", err)
	}
	id, err := topology.HostID(func(string) string { return c.cfg.HostID }, fs)
	if err != nil {
		return 0, fmt.Errorf("telling hosts apart: %w; NCCL_HOSTID can say it", err)
	}
	return id | 1, nil // 0 stands for none
}

// maxChannels is how many channels the tuner may use. One goroutine drives all
// of a rank's, so that more of them only help where they are more streams of a
// network.
func (c *Comm) maxChannels(network bool) int {
	n := 1
	if network {
		n = 4
	}
	if c.cfg.MaxChannels > 0 {
		n = min(n, c.cfg.MaxChannels)
	}
	return max(n, c.cfg.MinChannels, len(c.cfg.rings))
}

// settingsHash is of all that decides which messages an operation sends.
func (c *Comm) settingsHash() uint64 {
	h := fnv.New64a()
	k := c.cfg.Knobs
	fmt.Fprintln(h, k.Algo, k.Proto, c.cfg.rings, k.MinChannels, k.MaxChannels, k.BuffSize, k.SingleRingThreshold, k.LLThreshold, k.Threads, k.SHMDisable, k.P2P(), k.CollNetEnable, k.CollNetThreshold)
	if k.Tuning != "" {
		b, err := os.ReadFile(k.Tuning)
		fmt.Fprintln(h, err != nil, sha256.Sum256(b))
	}
	return h.Sum64()
}

// slot is the size of the largest message. Among ranks of one host it is small
// enough for a second-level cache; a network wants larger ones. It is more than
// NCCL_BUFFSIZE says where there are so many ranks that a message would not hold
// an element of each block that it has to.
func (c *Comm) slot(near bool) int {
	n := defaultBuffSize / slots.N
	switch {
	case c.cfg.BuffSize != defaultBuffSize:
		n = int(min(max(c.cfg.BuffSize/slots.N, 4096), 64<<20))
	case near:
		n = shm.DefaultSlot
	}
	least := host.Slot(schedule.Widest(schedule.Options{Ranks: c.size, Groups: c.links.groups}))
	return max(n/64*64, (least+63)/64*64)
}

const defaultBuffSize = 4 << 20

func onesOf(mask [16]uint64) (n int) {
	for _, w := range mask {
		n += bits.OnesCount64(w)
	}
	return n
}

// waitForNetwork makes a rank that waits listen to its network.
func (c *Comm) waitForNetwork(s *host.Spinner) {
	if c.links.net == nil {
		return
	}
	s.Nap = pollTime
	e, ok := c.links.net.(interface {
		Fd() int // becomes readable when something may have come
		Drain()
	})
	if !ok || c.links.collNet.heads != nil { // nothing wakes us
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

// pollTime is how long a rank sleeps on its sockets: messages through shared
// memory do not wake it.
const pollTime = time.Millisecond

// lookTime is how long a rank sleeps that has to look at its network.
const lookTime = 50 * time.Microsecond

// socketPauses is about half a microsecond: a look at a socket takes about as
// long.
const socketPauses = 20
