package sysfs

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Text returns a file's text without surrounding white space, for files without a parser in this
// package, such as those of a driver below /proc/driver.
func (f FS) Text(name string) (string, error) { return f.read(name) }

// Names lists a directory's entries, sorted: for example the devices in /dev.
func (f FS) Names(dir string) ([]string, error) { return f.names(dir) }

// Modules lists the loaded kernel modules, sorted. It does not include built-in code.
func (f FS) Modules() ([]string, error) {
	text, err := f.read("/proc/modules")
	if err != nil {
		return nil, err
	}
	var out []string
	for line := range strings.Lines(text) {
		if name, _, ok := strings.Cut(line, " "); ok {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out, nil
}

// Uptime is the time since the machine was booted.
func (f FS) Uptime() (time.Duration, error) {
	text, err := f.read("/proc/uptime")
	if err != nil {
		return 0, err
	}
	first, _, _ := strings.Cut(text, " ")
	v, err := strconv.ParseFloat(first, 64)
	if err != nil || !(v >= 0 && v < 1e10) {
		return 0, fmt.Errorf("/proc/uptime: %.40q is not a time in seconds", text)
	}
	return time.Duration(v * float64(time.Second)), nil
}

// Unlimited is the value for no limit.
const Unlimited = math.MaxUint64

// A Limit is one of a process's resource limits, in the unit of its line in
// /proc/self/limits.
type Limit struct{ Soft, Hard uint64 }

// Limits reads this process's limits, by their names in /proc/self/limits, such as "Max locked
// memory".
func (f FS) Limits() (map[string]Limit, error) {
	text, err := f.read("/proc/self/limits")
	if err != nil {
		return nil, err
	}
	return ParseLimits(text)
}

// ParseLimits parses /proc/self/limits: a header, then lines of a name, two values and an optional
// unit, separated by two or more blanks.
func ParseLimits(text string) (map[string]Limit, error) {
	out := map[string]Limit{}
	for line := range strings.Lines(text) {
		name, rest, ok := strings.Cut(line, "  ")
		fields := strings.Fields(rest)
		if !ok || len(fields) < 2 || fields[0] == "Soft" {
			continue
		}
		soft, err1 := parseLimit(fields[0])
		hard, err2 := parseLimit(fields[1])
		if err1 != nil || err2 != nil {
			return nil, fmt.Errorf("%.60q is not a limit such as: Max open files  1024  4096  files", line)
		}
		out[name] = Limit{soft, hard}
	}
	return out, nil
}

func parseLimit(s string) (uint64, error) {
	if s == "unlimited" {
		return Unlimited, nil
	}
	return strconv.ParseUint(s, 10, 64)
}

// CapIPCLock is the number of the capability CAP_IPC_LOCK.
const CapIPCLock = 14

// Capabilities reads this process's effective capabilities: bit n is capability number n.
func (f FS) Capabilities() (uint64, error) {
	text, err := f.read("/proc/self/status")
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(text) {
		if v, ok := strings.CutPrefix(line, "CapEff:"); ok {
			return strconv.ParseUint(strings.TrimSpace(v), 16, 64)
		}
	}
	return 0, errors.New("/proc/self/status has no line: CapEff")
}

// Memory reads /proc/meminfo: bytes by name, and plain numbers for entries without a unit, such as
// HugePages_Total.
func (f FS) Memory() (map[string]uint64, error) {
	text, err := f.read("/proc/meminfo")
	if err != nil {
		return nil, err
	}
	return ParseMemory(text), nil
}

// ParseMemory parses /proc/meminfo. Unknown lines are skipped.
func ParseMemory(text string) map[string]uint64 {
	out := map[string]uint64{}
	for line := range strings.Lines(text) {
		name, rest, _ := strings.Cut(line, ":")
		fields := strings.Fields(rest)
		if len(fields) == 0 || len(fields) > 2 {
			continue
		}
		v, err := strconv.ParseUint(fields[0], 10, 53)
		if err != nil {
			continue
		}
		if len(fields) == 2 {
			v *= 1024 // "kB", which has always meant KiB
		}
		out[name] = v
	}
	return out
}

// A Mount is a mounted file system, as this process sees it.
type Mount struct {
	Dir     string
	Type    string
	Options []string
}

// Mounts lists the mounts in order. Of two mounts on the same directory the later one is visible.
func (f FS) Mounts() ([]Mount, error) {
	text, err := f.read("/proc/self/mounts")
	if err != nil {
		return nil, err
	}
	return ParseMounts(text), nil
}

// ParseMounts parses /proc/self/mounts.
func ParseMounts(text string) []Mount {
	var out []Mount
	for line := range strings.Lines(text) {
		if f := strings.Fields(line); len(f) >= 4 {
			out = append(out, Mount{Dir: f[1], Type: f[2], Options: strings.Split(f[3], ",")})
		}
	}
	return out
}

// ParseMountSize parses a tmpfs's size option: bytes, or a number with the suffix k, m or g
// (65536k).
func ParseMountSize(s string) (uint64, error) {
	shift := 0
	for i, unit := range "kmg" {
		if rest, ok := strings.CutSuffix(s, string(unit)); ok {
			s, shift = rest, 10*(i+1)
		}
	}
	v, err := strconv.ParseUint(s, 10, 64-shift)
	if err != nil {
		return 0, fmt.Errorf("%.20q is not a size such as 65536k", s)
	}
	return v << shift, nil
}

// A Process is an entry of /proc.
type Process struct {
	PID   int
	Name  string // at most 15 bytes
	State byte   // R running, S asleep, D waiting for a device, Z dead and not reaped, …
	// Kernel says that it is a kernel thread.
	Kernel bool
}

// Processes lists the processes that are visible to this one. Processes that end during the reading
// are skipped.
func (f FS) Processes() ([]Process, error) {
	names, err := f.names("/proc")
	if err != nil {
		return nil, err
	}
	var out []Process
	for _, name := range names {
		pid, ok := numbered(name, "")
		if !ok {
			continue
		}
		text, err := f.read("/proc/" + name + "/stat")
		if err != nil {
			continue
		}
		if p, err := ParseProcess(text); err == nil {
			p.PID = pid
			out = append(out, p)
		}
	}
	slices.SortFunc(out, func(a, b Process) int { return a.PID - b.PID })
	return out, nil
}

const (
	flagsField   = 6          // in /proc/PID/stat, counted from the state
	kernelThread = 0x00200000 // PF_KTHREAD in the kernel's sched.h
)

// ParseProcess parses name and state of /proc/PID/stat: "12 (a name) S 1 …". The name may contain
// brackets.
func ParseProcess(text string) (Process, error) {
	from, to := strings.IndexByte(text, '('), strings.LastIndex(text, ") ")
	if from < 0 || to < from || to+2 >= len(text) {
		return Process{}, fmt.Errorf("%.40q is not a process such as 12 (sh) S 1", text)
	}
	p := Process{Name: text[from+1 : to], State: text[to+2]}
	if f := strings.Fields(text[to+2:]); len(f) > flagsField {
		flags, err := strconv.ParseUint(f[flagsField], 10, 64)
		p.Kernel = err == nil && flags&kernelThread != 0
	}
	return p, nil
}
