package sysfs

import "golang.org/x/sys/unix"

// Near runs f with the affinity of the calling thread, to which the goroutine must be locked, set
// to these processors. Memory that f is the first to write is then local to them. Processors that
// the process may not use have no effect.
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
