package main

import (
	"slices"
	"strconv"
	"strings"

	"github.com/assay-hpc/assay/harness/netenv"
	"github.com/assay-hpc/assay/harness/sysfs"
)

// modules says how cards reach GPU memory.
func modules(machine sysfs.FS) netenv.Modules {
	var m netenv.Modules
	loaded, err := machine.Modules()
	m.Known = err == nil
	has := func(names ...string) bool {
		return slices.ContainsFunc(names, func(n string) bool { return slices.Contains(loaded, n) })
	}
	m.PeerMem, m.GDRDrv = has("nvidia_peermem", "nv_peer_mem"), has("gdrdrv")
	driver, _ := machine.Text("/proc/driver/nvidia/version")
	m.DMABuf = strings.Contains(driver, "Open Kernel Module")
	dev, err := machine.Names("/dev")
	m.DevKnown = err == nil
	m.GDRDev = slices.Contains(dev, "gdrdrv")
	rdma, _ := machine.Names("/dev/infiniband")
	m.Verbs = slices.ContainsFunc(rdma, func(n string) bool { return strings.HasPrefix(n, "uverbs") })
	return m
}

// imex says whether memory can be shared over NVLink between hosts.
func imex(machine sysfs.FS) netenv.IMEX {
	x := netenv.IMEX{Channels: []string{}}
	if _, err := machine.Names("/dev"); err == nil {
		x.Known = true
	}
	devices, _ := machine.Text("/proc/devices")
	x.Driver = strings.Contains(devices, "nvidia-caps-imex-channels")
	names, _ := machine.Names("/dev/nvidia-caps-imex-channels")
	for _, n := range names {
		if strings.HasPrefix(n, "channel") {
			x.Channels = append(x.Channels, n)
		}
	}
	return x
}

// ipcLock is CAP_IPC_LOCK of linux/capability.h.
const ipcLock = 1 << 14

// limits reads those of this process and its container.
func limits(machine sysfs.FS) netenv.Limits {
	var l netenv.Limits
	if all, err := machine.Limits(); err == nil {
		if m, ok := all["Max locked memory"]; ok {
			l.Memlock = &m.Soft
		}
	}
	status, _ := machine.Text("/proc/self/status")
	users, _ := machine.Text("/proc/self/uid_map")
	// In a user namespace of its own a process's capabilities lift no limit of
	// the host's.
	l.IPCLock = capabilities(status)&ipcLock != 0 && strings.Join(strings.Fields(users), " ") == "0 0 4294967295"
	l.SHM = shmSize(machine)
	for _, name := range []string{"/sys/fs/cgroup/pids.max", "/sys/fs/cgroup/pids/pids.max"} {
		if text, err := machine.Text(name); err == nil {
			l.PIDs = pidsMax(text)
			break
		}
	}
	return l
}

// capabilities are the effective ones of /proc/self/status.
func capabilities(status string) uint64 {
	for line := range strings.Lines(status) {
		if hex, ok := strings.CutPrefix(line, "CapEff:"); ok {
			v, _ := strconv.ParseUint(strings.TrimSpace(hex), 16, 64) // 0: none
			return v
		}
	}
	return 0
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

// shmSize is what /dev/shm may hold; nil: it is not known. A tmpfs without a
// size may take half of the memory.
func shmSize(machine sysfs.FS) *uint64 {
	mounts, err := machine.Mounts()
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
	memory, err := machine.Memory()
	if err != nil || memory["MemTotal"] == 0 {
		return nil
	}
	half := memory["MemTotal"] / 2
	return &half
}
