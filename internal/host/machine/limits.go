package machine

import (
	"slices"
	"strconv"
	"strings"

	"github.com/assay-hpc/assay/internal/host/netenv"
	"github.com/assay-hpc/assay/internal/host/sysfs"
)

// modules determines how cards access GPU memory.
func modules(f sysfs.FS) netenv.Modules {
	var m netenv.Modules
	loaded, err := f.Modules()
	m.Known = err == nil
	has := func(names ...string) bool {
		return slices.ContainsFunc(names, func(n string) bool { return slices.Contains(loaded, n) })
	}
	m.PeerMem, m.GDRDrv = has("nvidia_peermem", "nv_peer_mem"), has("gdrdrv")
	driver, _ := f.Text("/proc/driver/nvidia/version")
	m.DMABuf = strings.Contains(driver, "Open Kernel Module")
	dev, err := f.Names("/dev")
	m.DevKnown = err == nil
	m.GDRDev = slices.Contains(dev, "gdrdrv")
	rdma, _ := f.Names("/dev/infiniband")
	m.Verbs = slices.ContainsFunc(rdma, func(n string) bool { return strings.HasPrefix(n, "uverbs") })
	return m
}

// imex determines whether memory can be shared over NVLink between hosts.
func imex(f sysfs.FS) netenv.IMEX {
	x := netenv.IMEX{Channels: []string{}}
	if _, err := f.Names("/dev"); err == nil {
		x.Known = true
	}
	devices, _ := f.Text("/proc/devices")
	x.Driver = strings.Contains(devices, "nvidia-caps-imex-channels")
	names, _ := f.Names("/dev/nvidia-caps-imex-channels")
	for _, n := range names {
		if strings.HasPrefix(n, "channel") {
			x.Channels = append(x.Channels, n)
		}
	}
	return x
}

// limits reads the limits of this process and its container.
func limits(f sysfs.FS) netenv.Limits {
	var l netenv.Limits
	if all, err := f.Limits(); err == nil {
		if m, ok := all["Max locked memory"]; ok {
			l.Memlock = &m.Soft
		}
	}
	caps, _ := f.Capabilities() // 0: none
	users, _ := f.Text("/proc/self/uid_map")
	// In a separate user namespace a process's capabilities do not lift the host's limits.
	l.IPCLock = caps>>sysfs.CapIPCLock&1 == 1 && strings.Join(strings.Fields(users), " ") == "0 0 4294967295"
	l.SHM = shmSize(f)
	for _, name := range []string{"/sys/fs/cgroup/pids.max", "/sys/fs/cgroup/pids/pids.max"} {
		if text, err := f.Text(name); err == nil {
			l.PIDs = pidsMax(text)
			break
		}
	}
	return l
}

func pidsMax(text string) *uint64 {
	v := uint64(netenv.Unlimited)
	if text != "max" {
		n, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			return nil
		}
		v = n
	}
	return &v
}

// shmSize returns the capacity of /dev/shm; nil if it is not known. A tmpfs without a size may
// use half of the memory.
func shmSize(f sysfs.FS) *uint64 {
	mounts, err := f.Mounts()
	if err != nil {
		return nil
	}
	at := -1
	for i, m := range mounts {
		if m.Dir == "/dev/shm" {
			at = i
		}
	}
	if at < 0 {
		return new(uint64)
	}
	for _, opt := range mounts[at].Options {
		if text, ok := strings.CutPrefix(opt, "size="); ok {
			v, err := sysfs.ParseMountSize(text)
			if err != nil {
				return nil
			}
			return &v
		}
	}
	memory, err := f.Memory()
	if err != nil || memory["MemTotal"] == 0 {
		return nil
	}
	half := memory["MemTotal"] / 2
	return &half
}
