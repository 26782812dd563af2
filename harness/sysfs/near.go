package sysfs

import "golang.org/x/sys/unix"

// Near runs f while the calling thread, to which the goroutine is locked, may
// use only these processors. Memory that f is the first to write lies next to
// them. Processors that the process may not have change nothing.
func Near(cpus CPUSet, f func() error) error {
	var before, want unix.CPUSet
	if err := unix.SchedGetaffinity(0, &before); err != nil {
		return f()
	}
	for _, c := range cpus.List() {
		if before.IsSet(c) {
			want.Set(c)
		}
	}
	if want.Count() == 0 || unix.SchedSetaffinity(0, &want) != nil {
		return f()
	}
	defer unix.SchedSetaffinity(0, &before)
	return f()
}
