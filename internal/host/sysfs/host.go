package sysfs

import "fmt"

// A Host identifies a running machine.
type Host struct {
	Name   string // /proc/sys/kernel/hostname
	BootID string // /proc/sys/kernel/random/boot_id: new with each boot
}

// Host reads the machine's identity. Containers on the same machine share its boot ID, and usually
// have their own names.
func (f FS) Host() (Host, error) {
	name, err := f.read("/proc/sys/kernel/hostname")
	if err != nil {
		return Host{}, fmt.Errorf("the host's name: %w", err)
	}
	boot, err := f.read("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return Host{}, fmt.Errorf("the host's boot ID: %w", err)
	}
	return Host{Name: name, BootID: boot}, nil
}
