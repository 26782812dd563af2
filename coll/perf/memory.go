package perf

import (
	"bufio"
	"bytes"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path"
	"runtime"
	"strconv"
	"strings"
)

// available returns how much more memory this process may use, in bytes: what the kernel
// estimates (MemAvailable), or what the control groups above the process leave, whichever is
// less. If nothing can be read it is unlimited.
func available(root fs.FS) int64 {
	least := int64(math.MaxInt64)
	if kb, ok := field(root, "proc/meminfo", "MemAvailable:"); ok {
		least = kb << 10
	}
	b, err := fs.ReadFile(root, "proc/self/cgroup")
	if err != nil {
		return least
	}
	for line := range strings.Lines(string(b)) {
		_, rest, _ := strings.Cut(strings.TrimSpace(line), ":")
		controllers, dir, _ := strings.Cut(rest, ":")
		switch {
		case controllers == "":
			least = min(least, cgroupLeft(root, "sys/fs/cgroup", dir, "memory.max", "memory.current", "inactive_file"))
		case strings.Contains(","+controllers+",", ",memory,"):
			least = min(least, cgroupLeft(root, "sys/fs/cgroup/memory", dir, "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"))
		}
	}
	return least
}

// cgroupLeft returns what a control group and its ancestors leave. Cache that the kernel drops
// before it refuses memory does not count as used.
func cgroupLeft(root fs.FS, mount, dir, limitFile, usageFile, cache string) int64 {
	least := int64(math.MaxInt64)
	for dir = path.Clean("/" + dir); ; dir = path.Dir(dir) {
		at := path.Join(mount, dir)
		limit, ok1 := number64(root, path.Join(at, limitFile))
		usage, ok2 := number64(root, path.Join(at, usageFile))
		if ok1 && ok2 {
			dropped, _ := field(root, path.Join(at, "memory.stat"), cache)
			least = min(least, max(0, limit-max(0, usage-dropped)))
		}
		if dir == "/" {
			return least
		}
	}
}

// number64 reads a file with one number. "max" does not count as one.
func number64(root fs.FS, name string) (int64, bool) {
	b, err := fs.ReadFile(root, name)
	if err != nil {
		return 0, false
	}
	v, err := strconv.ParseInt(string(bytes.TrimSpace(b)), 10, 64)
	return v, err == nil && v >= 0
}

// field reads the number after a word at the beginning of a line.
func field(root fs.FS, name, key string) (int64, bool) {
	b, err := fs.ReadFile(root, name)
	if err != nil {
		return 0, false
	}
	for s := bufio.NewScanner(bytes.NewReader(b)); s.Scan(); {
		if f := strings.Fields(s.Text()); len(f) > 1 && f[0] == key {
			v, err := strconv.ParseInt(f[1], 10, 64)
			return v, err == nil && v >= 0 && v < 1<<50
		}
	}
	return 0, false
}

// resident is the process's resident memory in bytes.
func resident(root fs.FS) int64 {
	kb, _ := field(root, "proc/self/status", "VmRSS:")
	return kb << 10
}

// fits returns how large the buffers of one rank may be if the given number of ranks share the
// memory, each with one kind of buffers. An eighth is left for the engine and for other
// processes.
func fits(available int64, ranks int) int64 {
	const buffers = 2 // send and receive; verification needs none of its own
	share := (available - available/8) / int64(ranks) / buffers
	return max(0, share-2*guard) &^ 15
}

// processor returns the name of this machine's processor.
func processor(root fs.FS, arch string) string {
	b, _ := fs.ReadFile(root, "proc/cpuinfo")
	for line := range strings.Lines(string(b)) {
		if k, v, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(k) == "model name" && strings.TrimSpace(v) != "" {
			return strings.Join(strings.Fields(v), " ")
		}
	}
	return arch + " processor"
}

// MachineName returns the name and number of this machine's processors.
func MachineName() string {
	return fmt.Sprintf("%s, %d processors", processor(os.DirFS("/"), runtime.GOARCH), runtime.NumCPU())
}
