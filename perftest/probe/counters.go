//go:build cgo && linux

package probe

import (
	"fmt"
	"os"
	"path"
	"strconv"
	"strings"

	"github.com/assay-hpc/assay/internal/host/sysfs"
)

// around contains what is read before and after a measurement: the port's counters (-W) and the CPU
// time (--cpu_util).
type around struct {
	counters map[string]uint64
	cpu      cpuTime
}

// readSurroundings reads the current values.
func (r *runner) readSurroundings() (around, error) {
	var a around
	if len(r.c.Counters) > 0 {
		f, err := sysfs.Open("/")
		if err != nil {
			return a, err
		}
		all, err := f.Counters(r.e.ctx.Name(), r.c.IBPort)
		if err != nil {
			return a, fmt.Errorf("-W: the counters of %s port %d: %w", r.e.ctx.Name(), r.c.IBPort, err)
		}
		a.counters = map[string]uint64{}
		for _, name := range r.c.Counters {
			// perftest's names are paths: counters/port_xmit_data.
			v, ok := all[path.Base(name)]
			if !ok {
				return a, &FlagError{"-W", fmt.Sprintf("%s port %d has no counter %q", r.e.ctx.Name(), r.c.IBPort, name)}
			}
			a.counters[name] = v
		}
	}
	if r.c.CPUUtil {
		a.cpu = readCPU()
	}
	return a, nil
}

// since returns the changes since before.
func (r *runner) since(before around) (counters map[string]counterChange, cpu float64, err error) {
	now, err := r.readSurroundings()
	if err != nil {
		return nil, 0, err
	}
	for name, v := range now.counters {
		if counters == nil {
			counters = map[string]counterChange{}
		}
		counters[name] = counterChange{before.counters[name], v}
	}
	return counters, now.cpu.percentSince(before.cpu), nil
}

// A cpuTime is the time that all CPUs have spent, in ticks.
type cpuTime struct{ user, idle uint64 }

// readCPU reads the first line of /proc/stat. Like perftest it uses only user and idle time: the
// kernel's work for an RDMA device is not the program's.
func readCPU() cpuTime {
	b, err := os.ReadFile("/proc/stat")
	if err != nil {
		return cpuTime{}
	}
	return parseCPU(string(b))
}

func parseCPU(text string) (t cpuTime) {
	line, _, _ := strings.Cut(text, "\n")
	f := strings.Fields(line)
	if len(f) < 5 || f[0] != "cpu" {
		return t
	}
	t.user, _ = strconv.ParseUint(f[1], 10, 64)
	t.idle, _ = strconv.ParseUint(f[4], 10, 64)
	return t
}

// percentSince is user time over user plus idle time, per cent; 0 if no time passed.
func (t cpuTime) percentSince(before cpuTime) float64 {
	user, idle := float64(t.user-before.user), float64(t.idle-before.idle)
	if t.user < before.user || user+idle <= 0 {
		return 0
	}
	return 100 * user / (user + idle)
}
