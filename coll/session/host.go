package session

import (
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/assay-hpc/assay/internal/host/sysfs"
	"github.com/assay-hpc/assay/internal/host/topology"
)

// hostID returns a number that identifies the host. In a sandbox without /proc that is a hash of its
// name alone: where hosts have the same one, their ranks find that they share no memory.
func (s *Session) hostID() (uint64, error) {
	fs, err := sysfs.Open("/")
	if err != nil {
		return 0, fmt.Errorf("telling hosts apart: %w", err)
	}
	id, err := topology.HostID(func(string) string { return s.cfg.HostID }, fs)
	if err != nil {
		var u unix.Utsname
		if uerr := unix.Uname(&u); uerr != nil {
			return 0, fmt.Errorf("telling hosts apart: %w; NCCL_HOSTID can say it", err)
		}
		name := unix.ByteSliceToString(u.Nodename[:])
		s.cfg.Log.Warnf("hosts are told apart by their names alone, this is %q: %v; NCCL_HOSTID can say it", name, err)
		id, _ = topology.HostID(func(string) string { return name }, fs)
	}
	return id | 1, nil // 0 means none
}
