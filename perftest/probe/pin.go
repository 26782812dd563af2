//go:build cgo && linux

package probe

import (
	"errors"
	"fmt"
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// cores returns the processors that the measurement runs on; none: any.
func (c *Config) cores() ([]int, error) {
	if c.NUMANode < 0 {
		return c.Cores, nil
	}
	b, err := os.ReadFile(fmt.Sprintf("/sys/devices/system/node/node%d/cpulist", c.NUMANode))
	if errors.Is(err, os.ErrNotExist) {
		return nil, flagErrorf("--numa_node", "this host has no node %d (see /sys/devices/system/node)", c.NUMANode)
	}
	if err != nil {
		return nil, err
	}
	list, err := coreList(string(b))
	if err != nil {
		return nil, flagErrorf("--numa_node", "node %d has no processors: %v", c.NUMANode, err)
	}
	return list, nil
}

// pinned calls f in a thread that runs on the given processors only, if there are any. The thread
// ends with f.
func pinned(cores []int, f func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // without an unlock the thread ends with this goroutine
		if len(cores) > 0 {
			var set unix.CPUSet
			for _, n := range cores {
				set.Set(n)
			}
			if err := unix.SchedSetaffinity(0, &set); err != nil {
				done <- flagErrorf("--pin_cores", "processors %v: %v: this process may use those that taskset -p shows", cores, err)
				return
			}
		}
		done <- f()
	}()
	return <-done
}
