package sysfs

import (
	"fmt"
	"strings"
)

// A DMI contains the names that the firmware, or a cloud's hypervisor, gives the machine.
type DMI struct {
	Vendor   string `json:"sys_vendor,omitempty"`        // sys_vendor
	Product  string `json:"product_name,omitempty"`      // product_name
	Board    string `json:"board_name,omitempty"`        // board_name
	AssetTag string `json:"chassis_asset_tag,omitempty"` // chassis_asset_tag
}

// DMI reads the machine's names. The error is fs.ErrNotExist for a machine without any, such as one
// that boots from a device tree.
func (f FS) DMI() (DMI, error) {
	const dir = "/sys/class/dmi/id"
	if _, err := f.root.Stat(dir); err != nil {
		return DMI{}, fmt.Errorf("the machine's names: %w", err)
	}
	a := &attrs{fs: f, dir: dir}
	d := DMI{Vendor: a.text("sys_vendor"), Product: a.text("product_name"), Board: a.text("board_name"), AssetTag: a.text("chassis_asset_tag")}
	if len(a.problems) > 0 {
		return d, a.problems[0]
	}
	return d, nil
}

// Container names the container of the calling process: docker, podman, kubernetes, or what systemd
// or the root file system indicates. It returns "" if nothing indicates a container; a runtime may
// hide it.
func (f FS) Container() string {
	for _, mark := range []struct{ file, name string }{
		{"/var/run/secrets/kubernetes.io", "kubernetes"}, {"/.dockerenv", "docker"}, {"/run/.containerenv", "podman"},
	} {
		if _, err := f.root.Stat(mark.file); err == nil {
			return mark.name
		}
	}
	if name, err := f.read("/run/systemd/container"); err == nil && name != "" {
		return name
	}
	groups, err := f.read("/proc/1/cgroup")
	if name := containerOfGroups(groups); err == nil && name != "" {
		return name
	}
	mounts, err := f.read("/proc/self/mounts")
	if err == nil && overlayRoot(mounts) {
		return "a container with an overlay file system"
	}
	return ""
}

// containerOfGroups looks for the name of a container runtime in the control groups.
func containerOfGroups(text string) string {
	for _, mark := range []struct{ part, name string }{
		{"kubepods", "kubernetes"}, {"docker", "docker"}, {"libpod", "podman"}, {"lxc", "lxc"},
	} {
		if strings.Contains(text, mark.part) {
			return mark.name
		}
	}
	return ""
}

// overlayRoot reports whether the last file system mounted on / is an overlay.
func overlayRoot(mounts string) bool {
	overlay := false
	for line := range strings.Lines(mounts) {
		if f := strings.Fields(line); len(f) > 2 && f[1] == "/" {
			overlay = f[2] == "overlay"
		}
	}
	return overlay
}
