package probe

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"github.com/assay-hpc/assay/internal/host/sysfs"
	"github.com/assay-hpc/assay/internal/words"
)

// Available returns a *NotAvailable that says in one line what is missing in /sys for a test. A
// device name that does not exist is a *FlagError.
func (c *Config) Available(f sysfs.FS) error {
	devices, err := f.RDMADevices()
	switch {
	case errors.Is(err, fs.ErrNotExist) || err == nil && len(devices) == 0:
		return &NotAvailable{"there is no RDMA device on this machine: /sys/class/infiniband has none (load the card's driver or, for soft RoCE, rdma link add rxe0 type rxe netdev IFACE; a container needs /dev/infiniband)"}
	case err != nil:
		return &NotAvailable{fmt.Sprintf("the RDMA devices cannot be listed: %v", err)}
	case c.Device == "":
		return nil
	}
	i := slices.IndexFunc(devices, func(d sysfs.RDMADevice) bool { return d.Name == c.Device })
	if i < 0 {
		var names []string
		for _, d := range devices {
			names = append(names, d.Name)
		}
		return flagErrorf("-d", "there is no RDMA device %q; there are %s; did you mean %q?", c.Device, strings.Join(names, ", "), words.Nearest(c.Device, names))
	}
	return c.port(devices[i])
}

// ready checks the options, and that this machine can run the test.
func (c *Config) ready() error {
	if err := c.Check(); err != nil {
		return err
	}
	if c.OnGPU() && c.Allocate == nil {
		return &NotAvailable{"--use_cuda: this harness was built without CUDA"}
	}
	f, err := sysfs.Open("/")
	if err != nil {
		return &NotAvailable{err.Error()}
	}
	return c.Available(f)
}

// port checks that the device has the port and that the port is up.
func (c *Config) port(d sysfs.RDMADevice) error {
	for _, p := range d.Ports {
		switch {
		case p.Number != c.IBPort:
		case p.State != "ACTIVE" && p.State != "":
			return &NotAvailable{fmt.Sprintf("port %d of %s is %s, not ACTIVE: bring the link up; InfiniBand needs a subnet manager, too", p.Number, d.Name, p.State)}
		default:
			return nil
		}
	}
	return flagErrorf("-i", "%s has no port %d; it has %d ports", d.Name, c.IBPort, len(d.Ports))
}
