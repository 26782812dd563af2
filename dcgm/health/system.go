package health

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/assay-hpc/assay/internal/host/sysfs"
)

// softwareChecks check that the needed kernel modules are loaded.
var softwareChecks = []check{
	{
		id: "module/uvm", title: "CUDA's kernel module is there", want: "nvidia_uvm and its device file", node: checkUVM, uses: usesSystem,
		remedy: "modprobe nvidia_uvm; nvidia-modprobe -u -c 0 makes the device file",
	},
	{
		id: "module/peermem", title: "network cards can reach GPU memory", want: "nvidia_peermem, or a driver with DMA buffers", node: checkPeermem, uses: usesSystem | usesDevices,
		remedy: "modprobe nvidia-peermem, or install the driver with open kernel modules",
	},
	{
		id: "module/gdrdrv", title: "GDRCopy's module is there", want: "gdrdrv and its device file", node: checkGDR, uses: usesSystem | usesDevices,
		remedy: "install gdrdrv-dkms and modprobe gdrdrv; give containers /dev/gdrdrv",
	},
}

// systemChecks check the kernel, and what it allows this process.
var systemChecks = []check{
	{
		id: "node/memlock", title: "this process may lock memory without limit", want: "unlimited", node: checkMemlock, uses: usesSystem | usesDevices,
		remedy: "ulimit -l unlimited; docker --ulimit memlock=-1; Slurm: PropagateResourceLimitsExcept=MEMLOCK; systemd: LimitMEMLOCK=infinity",
	},
	{
		id: "node/shm", title: "/dev/shm is large enough", want: "at least %s", least: true, node: checkSHM, uses: usesSystem,
		remedy: "docker --shm-size=16g, or --ipc=host; in Kubernetes an emptyDir of medium Memory on /dev/shm",
	},
	{
		id: "node/hugepages", title: "reserved huge pages are reported", want: "any", node: checkHugepages, uses: usesSystem,
	},
	{
		id: "node/memory", title: "the kernel has taken no memory away for errors", want: "at most %s", node: checkHostMemory, uses: usesSystem,
		remedy: "look for the module in the kernel's log (mcelog, rasdaemon, dmesg) and have it replaced: the next error may end the job or the node",
	},
	{
		id: "node/governor", title: "processors run at full speed", want: "governor performance", node: checkGovernor, uses: usesSystem,
		remedy: "cpupower frequency-set -g performance",
	},
	{
		id: "node/environment", title: "no variable is set that slows CUDA programs", want: "none", node: checkEnvironment, uses: usesSystem,
		remedy: "unset them",
	},
	{
		id: "node/stuck", title: "no process is stuck in a device", want: "at most %s", node: checkStuck, uses: usesSystem,
		remedy: "look at the kernel's log for what they wait for; only a reboot ends them if it is a driver",
	},
}

// noModules returns the outcome if nothing can be determined about modules for GPUs; nil if it can.
func (e *env) noModules() *outcome {
	var f outcome
	switch err := e.Node.System.Value.Modules.Err; {
	case len(e.GPUs) == 0:
		f = e.noGPU()
	case err != nil:
		f = skipped("the loaded modules are not known: %v", err)
	default:
		return nil
	}
	return &f
}

func checkUVM(e *env) []outcome {
	return node(e.module("nvidia_uvm", "nvidia-uvm", "nvidia_uvm is not loaded: CUDA programs cannot start", "there is no /dev/nvidia-uvm: CUDA programs cannot start"))
}

// module checks that a kernel module is loaded and has its device file.
func (e *env) module(name, file, unloaded, without string) outcome {
	s := e.Node.System.Value
	if none := e.noModules(); none != nil {
		return *none
	}
	switch {
	case !s.loaded(name):
		return bad("%s", unloaded)
	case !slices.Contains(s.Dev, file):
		return bad("%s", without)
	}
	return good("loaded")
}

func checkPeermem(e *env) []outcome {
	s := e.Node.System.Value
	if _, none := e.rdma(); none != nil {
		return node(*none)
	}
	if none := e.noModules(); none != nil {
		return node(*none)
	}
	switch {
	case s.loaded("nvidia_peermem"), s.loaded("nv_peer_mem"):
		return node(good("nvidia_peermem"))
	case strings.Contains(s.Driver.Value, "Open Kernel Module"):
		return node(good("DMA buffers (open kernel modules)"))
	}
	return node(bad("nvidia_peermem is not loaded, and the driver is not of the open kind that has DMA buffers: data goes through the host's memory"))
}

func checkGDR(e *env) []outcome {
	if _, none := e.rdma(); none != nil {
		return node(*none)
	}
	return node(e.module("gdrdrv", "gdrdrv", "gdrdrv is not loaded: small messages take longer", "there is no /dev/gdrdrv here"))
}

// checkMemlock fails if there are RDMA devices, since their memory must be locked. Otherwise it
// warns, because the job may be meant for a machine that has some.
func checkMemlock(e *env) []outcome {
	f := e.Node.System.Value.Limits
	l, ok := f.Value["Max locked memory"]
	switch {
	case f.Err != nil:
		return node(without(permission(f.Err)))
	case !ok:
		return node(errored("/proc/self/limits has no line: Max locked memory"))
	case l.Soft == sysfs.Unlimited:
		return node(good("unlimited"))
	case e.Node.System.Value.Caps.Value&(1<<sysfs.CapIPCLock) != 0: // then the kernel ignores the limit
		return node(good(bytesText(l.Soft) + ", and CAP_IPC_LOCK"))
	}
	o := bad("at most %s may be locked", bytesText(l.Soft))
	_, none := e.rdma()
	o.soft = none != nil
	return node(o)
}

// bytesText formats a size in the largest unit in which it is at least 1.
func bytesText(n uint64) string {
	units := []string{"B", "KiB", "MiB", "GiB", "TiB"}
	v, i := float64(n), 0
	for v >= 1024 && i < len(units)-1 {
		v, i = v/1024, i+1
	}
	return strconv.FormatFloat(v, 'g', 4, 64) + " " + units[i]
}

// checkSHM reads the size from the mount's options. A tmpfs without a size may use half of the
// memory.
func checkSHM(e *env) []outcome {
	s := e.Node.System.Value
	if s.Mounts.Err != nil {
		return node(without(permission(s.Mounts.Err)))
	}
	var shm *sysfs.Mount
	for i, m := range s.Mounts.Value {
		if m.Dir == "/dev/shm" {
			shm = &s.Mounts.Value[i]
		}
	}
	if shm == nil {
		return node(bad("nothing is mounted on /dev/shm: ranks of one node cannot share memory"))
	}
	size := s.Memory.Value["MemTotal"] / 2
	for _, o := range shm.Options {
		if text, ok := strings.CutPrefix(o, "size="); ok {
			v, err := sysfs.ParseMountSize(text)
			if err != nil {
				return node(errored("/dev/shm: %v", err))
			}
			size = v
		}
	}
	if size == 0 {
		return node(skipped("the size of /dev/shm is not known"))
	}
	gib := float64(size) / (1 << 30)
	return node(e.measured(gib, gib >= e.rule.limit(), bytesText(size)+" are too few for NCCL and for data loaders"))
}

func checkHugepages(e *env) []outcome {
	m := e.Node.System.Value.Memory
	if m.Err != nil {
		return node(without(permission(m.Err)))
	}
	total, free := m.Value["HugePages_Total"], m.Value["HugePages_Free"]
	return node(good(fmt.Sprintf("%d of %s, %d free", total, bytesText(m.Value["Hugepagesize"]), free)))
}

// checkHostMemory checks for pages with an uncorrectable error, which the kernel does not use again
// until the next boot. Kernels without that feature, as in many virtual machines, do not report
// them.
func checkHostMemory(e *env) []outcome {
	m := e.Node.System.Value.Memory
	if m.Err != nil {
		return node(without(permission(m.Err)))
	}
	lost, ok := m.Value["HardwareCorrupted"]
	if !ok {
		return node(skipped("this kernel does not handle errors of memory"))
	}
	return node(e.atMost(float64(lost)/(1<<20), "taken away since the last boot, with uncorrectable errors"))
}

func checkGovernor(e *env) []outcome {
	c := e.Node.System.Value.CPUs
	if c.Err != nil {
		return node(skipped("the processors are not to be seen: %v", c.Err))
	}
	by := map[string]int{}
	for _, core := range c.Value.Cores {
		if core.Governor != "" {
			by[core.Governor]++
		}
	}
	var parts []string
	for _, g := range slices.Sorted(maps.Keys(by)) {
		parts = append(parts, fmt.Sprintf("%s on %d", g, by[g]))
	}
	value := strings.Join(parts, ", ")
	switch {
	case len(by) == 0:
		return node(skipped("the kernel does not set the processors' frequency here"))
	case by["performance"] == 0, len(by) > 1:
		return node(bad("%s processors", value))
	}
	return node(good(value))
}

func checkEnvironment(e *env) []outcome {
	if set := e.Node.System.Value.Variables; len(set) > 0 {
		return node(bad("set: %s", strings.Join(set, ", ")))
	}
	return node(good("none"))
}

// checkStuck looks for processes that wait for a device and cannot be killed. A process that is
// seen only once may just be reading its disk, so the table has only a warning for it.
func checkStuck(e *env) []outcome {
	f := e.Node.System.Value.Processes
	if f.Err != nil {
		return node(without(permission(f.Err)))
	}
	// A process that waits for a disk is seen once; a stuck process is also seen later.
	later := map[int]bool{}
	for _, p := range e.Node.System.Value.Later.Value {
		later[p.PID] = p.State == 'D'
	}
	once := e.Node.System.Value.Later.Err != nil
	var who []string
	for _, p := range f.Value {
		// Kernel threads normally wait in D.
		if p.State == 'D' && !p.Kernel && (once || later[p.PID]) {
			who = append(who, fmt.Sprintf("%d (%s)", p.PID, p.Name))
		}
	}
	return node(e.atMost(float64(len(who)), "waiting in the kernel: "+joinWords(who)))
}
