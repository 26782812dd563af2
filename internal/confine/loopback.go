package confine

import (
	"fmt"
	"net"
	"slices"

	"golang.org/x/sys/unix"
)

// raiseLoopback brings lo up in a sandbox that left it down: mpirun needs an interface. If any
// interface is up, it does nothing.
func raiseLoopback() error {
	ifs, err := net.Interfaces()
	if err != nil {
		return err
	}
	if slices.ContainsFunc(ifs, func(i net.Interface) bool { return i.Flags&net.FlagUp != 0 }) {
		return nil
	}
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	req, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	if err := unix.IoctlIfreq(fd, unix.SIOCGIFFLAGS, req); err != nil {
		return fmt.Errorf("read the flags of lo: %w", err)
	}
	req.SetUint16(req.Uint16() | unix.IFF_UP)
	if err := unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, req); err != nil {
		return fmt.Errorf("bring lo up: %w", err)
	}
	return nil
}
