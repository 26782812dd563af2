package health

import (
	"errors"
	"io/fs"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/assay-hpc/assay/internal/host/nvml"
	"github.com/assay-hpc/assay/internal/host/sysfs"
)

// A nodeState contains the operating system's data. Its parts are read separately, each within the
// deadline.
type nodeState struct {
	Devices sysfs.Fact[deviceState]
	System  sysfs.Fact[systemState]
	Log     sysfs.Fact[logState]
}

// deviceState contains the PCI devices and the RDMA devices.
type deviceState struct {
	PCI  sysfs.Fact[[]sysfs.PCIDevice]
	RDMA sysfs.Fact[[]sysfs.RDMADevice]
	// Errors and Access are for the functions that transfer data of GPUs: GPUs, RDMA devices, and
	// the bridges above them.
	Errors map[sysfs.BusID]sysfs.Fact[sysfs.AER]
	Access map[sysfs.BusID]sysfs.Fact[sysfs.ACS] // bridges only
	Ports  map[string]sysfs.Fact[map[string]uint64]
}

// systemState contains the kernel's settings and what it allows this process.
type systemState struct {
	Host      string
	Container bool
	Driver    sysfs.Fact[string] // /proc/driver/nvidia/version
	Modules   sysfs.Fact[[]string]
	Limits    sysfs.Fact[map[string]sysfs.Limit]
	Caps      sysfs.Fact[uint64] // effective capabilities, one bit each
	Memory    sysfs.Fact[map[string]uint64]
	Mounts    sysfs.Fact[[]sysfs.Mount]
	CPUs      sysfs.Fact[sysfs.CPUs]
	Nodes     sysfs.Fact[[]sysfs.NUMANode]
	Allowed   sysfs.Fact[sysfs.CPUSet] // CPUs that this process may run on
	Processes sysfs.Fact[[]sysfs.Process]
	Later     sysfs.Fact[[]sysfs.Process] // read again after the window; an error if there is no window
	Dev       []string                    // relevant device files, such as infiniband/uverbs0
	CUDA      sysfs.Fact[string]          // version of the CUDA toolkit
	Compat    bool                        // the image contains CUDA's forward compatibility library
	Variables []string                    // environment variables that are set and that slow or break programs
}

// A logState contains the kernel's messages about GPUs.
type logState struct {
	File     string
	Messages []message
	Uptime   time.Duration // 0 if not known
}

// badVariables are the variables that DCGM's software test looks for, and one more that makes every
// launch wait.
var badVariables = []string{
	"NSIGHT_CUDA_DEBUGGER", "CUDA_INJECTION32_PATH", "CUDA_INJECTION64_PATH", "CUDA_AUTO_BOOST", "CUDA_ENABLE_COREDUMP_ON_EXCEPTION",
	"CUDA_COREDUMP_FILE", "CUDA_DEVICE_WAITS_ON_EXCEPTION", "CUDA_PROFILE", "COMPUTE_PROFILE", "OPENCL_PROFILE", "CUDA_LAUNCH_BLOCKING",
}

func fact[T any](v T, err error) sysfs.Fact[T] { return sysfs.Fact[T]{Value: v, Err: err} }

func readDevices(f sysfs.FS) deviceState {
	d := deviceState{
		PCI: fact(f.PCI()), RDMA: fact(f.RDMADevices()),
		Errors: map[sysfs.BusID]sysfs.Fact[sysfs.AER]{}, Access: map[sysfs.BusID]sysfs.Fact[sysfs.ACS]{}, Ports: map[string]sysfs.Fact[map[string]uint64]{},
	}
	used := map[sysfs.BusID]bool{}
	for _, r := range d.RDMA.Value {
		used[r.BusID] = r.OnPCI
		for _, p := range r.Ports {
			d.Ports[portName(r.Name, p.Number)] = fact(f.Counters(r.Name, p.Number))
		}
	}
	for _, p := range d.PCI.Value {
		if !p.IsGPU() && !used[p.BusID] {
			continue
		}
		d.Errors[p.BusID] = fact(f.AER(p.BusID))
		for _, b := range p.Bridges {
			d.Errors[b], d.Access[b] = fact(f.AER(b)), fact(f.ACS(b))
		}
	}
	return d
}

func portName(device string, port int) string { return device + "/" + strconv.Itoa(port) }

// GPUs returns the NVIDIA GPUs on PCI, independent of the driver.
func (d *deviceState) GPUs() []sysfs.PCIDevice {
	var out []sysfs.PCIDevice
	for _, p := range d.PCI.Value {
		if p.IsGPU() {
			out = append(out, p)
		}
	}
	return out
}

// Switches is the number of NVSwitches on PCI. It is 0 in a virtual machine, and if the switches
// are in another chassis.
func (d *deviceState) Switches() int {
	n := 0
	for _, p := range d.PCI.Value {
		if p.Vendor == sysfs.VendorNVIDIA && p.Class>>8 == sysfs.ClassBridge {
			n++
		}
	}
	return n
}

func readSystem(f sysfs.FS, getenv func(string) string) systemState {
	s := systemState{
		Driver:    fact(f.Text("/proc/driver/nvidia/version")),
		Modules:   fact(f.Modules()),
		Limits:    fact(f.Limits()),
		Caps:      fact(f.Capabilities()),
		Memory:    fact(f.Memory()),
		Mounts:    fact(f.Mounts()),
		CPUs:      fact(f.CPUs()),
		Nodes:     fact(f.NUMANodes()),
		Allowed:   fact(allowed(f)),
		Processes: fact(f.Processes()),
		Dev:       devices(f),
	}
	if h, err := f.Host(); err == nil {
		s.Host = h.Name
	}
	s.Container = s.contained(f, getenv)
	s.CUDA = fact(toolkit(f, getenv))
	if _, err := f.Names("/usr/local/cuda/compat"); err == nil {
		s.Compat = true
	}
	for _, v := range badVariables {
		if getenv(v) != "" {
			s.Variables = append(s.Variables, v)
		}
	}
	return s
}

// contained reports whether this is a container, by the marks of a container engine or by a root
// file system that is typical for containers.
func (s *systemState) contained(f sysfs.FS, getenv func(string) string) bool {
	for _, mark := range []string{"/.dockerenv", "/run/.containerenv"} {
		if _, err := f.Text(mark); err == nil {
			return true
		}
	}
	overlay := false
	for _, m := range s.Mounts.Value {
		if m.Dir == "/" {
			overlay = m.Type == "overlay" || m.Type == "fuse-overlayfs"
		}
	}
	return overlay || getenv("KUBERNETES_SERVICE_HOST") != "" || getenv("container") != ""
}

// allowed reads on which CPUs this process may run.
func allowed(f sysfs.FS) (sysfs.CPUSet, error) {
	text, err := f.Text("/proc/self/status")
	if err != nil {
		return sysfs.CPUSet{}, err
	}
	for line := range strings.Lines(text) {
		if list, ok := strings.CutPrefix(line, "Cpus_allowed_list:"); ok {
			return sysfs.ParseCPUList(list)
		}
	}
	return sysfs.CPUSet{}, fs.ErrNotExist
}

var deviceFile = regexp.MustCompile(`^(nvidia\d+|nvidia-uvm|gdrdrv|infiniband/uverbs\d+|nvidia-caps-imex-channels/channel\d+)$`)

// devices lists the relevant device files.
func devices(f sysfs.FS) []string {
	var out []string
	for _, dir := range []string{"", "infiniband/", "nvidia-caps-imex-channels/"} {
		names, _ := f.Names("/dev/" + dir)
		for _, n := range names {
			if deviceFile.MatchString(dir + n) {
				out = append(out, dir+n)
			}
		}
	}
	return out
}

// count is the number of device files with names that consist of the prefix and a number.
func (s *systemState) count(prefix string) int {
	n := 0
	for _, d := range s.Dev {
		if rest, ok := strings.CutPrefix(d, prefix); ok && rest != "" && strings.Trim(rest, "0123456789") == "" {
			n++
		}
	}
	return n
}

func (s *systemState) loaded(module string) bool { return slices.Contains(s.Modules.Value, module) }

var cudaVersion = regexp.MustCompile(`"version"\s*:\s*"(\d+\.\d+[0-9.]*)"`)

// toolkit is the version of the installed CUDA toolkit: NVIDIA's images have it in CUDA_VERSION, an
// installation in version.json, of which the first entry is CUDA.
func toolkit(f sysfs.FS, getenv func(string) string) (string, error) {
	if v := getenv("CUDA_VERSION"); v != "" {
		return v, nil
	}
	text, err := f.Text("/usr/local/cuda/version.json")
	if err != nil {
		return "", err
	}
	if _, rest, ok := strings.Cut(text, `"cuda"`); ok {
		if m := cudaVersion.FindStringSubmatch(rest); m != nil {
			return m[1], nil
		}
	}
	return "", errors.New("/usr/local/cuda/version.json does not say which CUDA it is")
}

func readLog(f sysfs.FS, now time.Time) (logState, error) {
	log, err := f.KernelLog()
	if err != nil {
		if errors.Is(err, fs.ErrPermission) {
			return logState{}, nvml.ErrNoPermission
		}
		return logState{}, err
	}
	uptime, err := f.Uptime()
	if err != nil {
		uptime = 0
	}
	return logState{File: log.File, Messages: parseLog(log.Text, now.In(zoneOf(log, now))), Uptime: uptime}, nil
}
