package sysfs

import (
	"slices"
	"strconv"
	"strings"
)

// CPUs describes the machine's processors.
type CPUs struct {
	Model    CPUModel
	Online   CPUSet // /sys/devices/system/cpu/online
	Cores    []Core // by number
	Problems []error
}

// A Core is a logical processor of /sys/devices/system/cpu.
type Core struct {
	ID       int
	Package  int    // topology/physical_package_id; -1 if not reported
	Core     int    // topology/core_id; -1 if not reported
	Siblings CPUSet // topology/thread_siblings_list
	Governor string // cpufreq/scaling_governor; "" without frequency scaling
}

// A CPUModel is what /proc/cpuinfo reports for the first processor.
type CPUModel struct {
	// Vendor is vendor_id on x86 (GenuineIntel, AuthenticAMD), and "CPU
	// implementer" on Arm (0x41).
	Vendor string
	Name   string // model name; Arm has none
	Family int    // cpu family; on Arm "CPU architecture"
	Model  int    // model; on Arm "CPU part"
}

const cpuDir = "/sys/devices/system/cpu"

// CPUs reads the processors.
func (f FS) CPUs() (CPUs, error) {
	names, err := f.names(cpuDir)
	if err != nil {
		return CPUs{}, err
	}
	top := &attrs{fs: f, dir: cpuDir}
	c := CPUs{Online: parsed(top, "online", ParseCPUList)}
	for _, name := range names {
		id, ok := numbered(name, "cpu")
		if !ok {
			continue
		}
		a := &attrs{fs: f, dir: cpuDir + "/" + name}
		c.Cores = append(c.Cores, Core{
			ID:       id,
			Package:  a.integer("topology/physical_package_id", -1),
			Core:     a.integer("topology/core_id", -1),
			Siblings: parsed(a, "topology/thread_siblings_list", ParseCPUList),
			Governor: a.text("cpufreq/scaling_governor"),
		})
		top.problems = append(top.problems, a.problems...)
	}
	slices.SortFunc(c.Cores, func(a, b Core) int { return a.ID - b.ID })
	proc := &attrs{fs: f, dir: "/proc"}
	c.Model = parseCPUInfo(proc.text("cpuinfo"))
	c.Problems = append(top.problems, proc.problems...)
	return c, nil
}

// parseCPUInfo parses the first processor's part of /proc/cpuinfo. Missing values stay zero.
func parseCPUInfo(text string) CPUModel {
	var m CPUModel
	for line := range strings.Lines(text) {
		key, value, ok := strings.Cut(line, ":")
		if !ok {
			if m != (CPUModel{}) && strings.TrimSpace(line) == "" {
				break // the next processor's part follows
			}
			continue
		}
		value = strings.TrimSpace(value)
		number, _ := strconv.ParseInt(value, 0, 32)
		switch strings.TrimSpace(key) {
		case "vendor_id", "CPU implementer":
			m.Vendor = value
		case "model name":
			m.Name = value
		case "cpu family", "CPU architecture":
			m.Family = int(number)
		case "model", "CPU part":
			m.Model = int(number)
		}
	}
	return m
}
