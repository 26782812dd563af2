package sysfs

import (
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"
)

// A BusID is the address of a PCI function.
type BusID struct {
	Domain   uint32
	Bus      uint8
	Device   uint8 // 0 to 31
	Function uint8 // 0 to 7
}

// OpaqueBusID is the address that NVIDIA's driver reports for a device that it hides, such as the
// NVSwitches of a virtual machine. NVML prints it as FFFFFFFF:FF:FF.0, NCCL as fffffff:ff:ff.0.
var OpaqueBusID = BusID{Domain: 0xfffffff, Bus: 0xff, Device: 0xff}

// String returns the kernel's form, 0000:1b:00.0.
func (b BusID) String() string {
	return fmt.Sprintf("%04x:%02x:%02x.%x", b.Domain, b.Bus, b.Device, b.Function)
}

// Compare orders addresses by domain, bus, device and function.
func (b BusID) Compare(c BusID) int {
	return slices.Compare(b.key(), c.key())
}

func (b BusID) key() []uint32 {
	return []uint32{b.Domain, uint32(b.Bus), uint32(b.Device), uint32(b.Function)}
}

// MarshalText returns String.
func (b BusID) MarshalText() ([]byte, error) { return []byte(b.String()), nil }

// UnmarshalText calls ParseBusID.
func (b *BusID) UnmarshalText(text []byte) (err error) {
	*b, err = ParseBusID(string(text))
	return err
}

// ParseBusID parses domain:bus:device.function in hexadecimal, upper or lower case, as written by
// the kernel, NVML (eight digits of domain) and NCCL. The domain may be omitted.
func ParseBusID(s string) (BusID, error) {
	bad := func() (BusID, error) {
		return BusID{}, fmt.Errorf("%.40q is no PCI address such as 0000:1b:00.0", s)
	}
	addr, fn, ok := strings.Cut(s, ".")
	parts := strings.Split(addr, ":")
	if !ok || len(parts) < 2 || len(parts) > 3 {
		return bad()
	}
	if len(parts) == 2 {
		parts = append([]string{"0"}, parts...)
	}
	domain, err1 := strconv.ParseUint(parts[0], 16, 32)
	bus, err2 := strconv.ParseUint(parts[1], 16, 8)
	dev, err3 := strconv.ParseUint(parts[2], 16, 8)
	function, err4 := strconv.ParseUint(fn, 16, 4)
	if err1 != nil || err2 != nil || err3 != nil || err4 != nil {
		return bad()
	}
	if domain >= 0xfffffff && bus == 0xff && dev == 0xff && function == 0 {
		return OpaqueBusID, nil
	}
	if dev > 31 || function > 7 {
		return bad()
	}
	return BusID{uint32(domain), uint8(bus), uint8(dev), uint8(function)}, nil
}

// A PCILink is a link's speed and width; both are 0 if not known.
type PCILink struct {
	GTs   float64 `json:"gts,omitempty"` // gigatransfers a second and lane
	Width int     `json:"width,omitempty"`
}

// ParseLinkSpeed parses current_link_speed and max_link_speed: "32.0 GT/s
// PCIe", "8 GT/s" on old kernels, "Unknown" (0).
func ParseLinkSpeed(s string) (float64, error) {
	number, unit, ok := strings.Cut(s, " ")
	if strings.HasPrefix(s, "Unknown") || s == "" {
		return 0, nil
	}
	v, err := strconv.ParseFloat(number, 64)
	if err != nil || !ok || !strings.HasPrefix(unit, "GT/s") || !(v > 0 && v <= 1024) {
		return 0, fmt.Errorf("%.40q is no link speed such as 16.0 GT/s PCIe", s)
	}
	return v, nil
}

// parseLinkWidth parses current_link_width and max_link_width. 0 and 255 mean not known.
func parseLinkWidth(s string) (int, error) {
	v, err := strconv.ParseUint(s, 10, 8)
	if err != nil {
		return 0, fmt.Errorf("%.40q is no link width such as 16", s)
	}
	if v > 32 { // the maximum of PCIe
		return 0, nil
	}
	return int(v), nil
}

// PCI classes (the PCI Code and ID Assignment Specification): base class and
// sub-class, the upper 16 of PCIDevice.Class's 24 bits.
const (
	ClassEthernet   = 0x0200
	ClassInfiniBand = 0x0207
	ClassDisplayVGA = 0x0300
	ClassDisplay3D  = 0x0302
	ClassBridgePCI  = 0x0604
	ClassBridge     = 0x0680 // other bridge: NVSwitch
)

// VendorNVIDIA is NVIDIA's PCI vendor number.
const VendorNVIDIA = 0x10de

// A PCIDevice is an entry of /sys/bus/pci/devices.
type PCIDevice struct {
	BusID BusID
	// HostBridge is the root of the device's tree, such as pci0000:15, and Bridges is the path from
	// there to the device. Both come from the target of the entry's link. HostBridge is "" if the
	// target is not in a PCI tree.
	HostBridge string
	Bridges    []BusID

	Class     uint32 // class: 24 bits
	Vendor    uint16 // vendor
	Device    uint16 // device
	SubVendor uint16 // subsystem_vendor
	SubDevice uint16 // subsystem_device

	Link     PCILink // current_link_speed, current_link_width
	MaxLink  PCILink // max_link_speed, max_link_width
	NUMANode int     // numa_node: -1 if the firmware does not report it
	Local    CPUSet  // local_cpulist
	Driver   string  // target of the driver link; "" if none

	Problems []error
}

// IsGPU reports whether the device is a GPU from NVIDIA.
func (d PCIDevice) IsGPU() bool {
	c := d.Class >> 8
	return d.Vendor == VendorNVIDIA && (c == ClassDisplay3D || c == ClassDisplayVGA)
}

const pciDir = "/sys/bus/pci/devices"

// PCI lists the PCI devices by address.
func (f FS) PCI() ([]PCIDevice, error) {
	names, err := f.names(pciDir)
	if err != nil {
		return nil, err
	}
	var out []PCIDevice
	for _, name := range names {
		if id, err := ParseBusID(name); err == nil {
			out = append(out, f.pciDevice(id, name))
		}
	}
	slices.SortFunc(out, func(a, b PCIDevice) int { return a.BusID.Compare(b.BusID) })
	return out, nil
}

func (f FS) pciDevice(id BusID, name string) PCIDevice {
	a := &attrs{fs: f, dir: pciDir + "/" + name}
	d := PCIDevice{
		BusID:     id,
		Class:     uint32(a.number("class", 24)),
		Vendor:    uint16(a.number("vendor", 16)),
		Device:    uint16(a.number("device", 16)),
		SubVendor: uint16(a.number("subsystem_vendor", 16)),
		SubDevice: uint16(a.number("subsystem_device", 16)),
		Link:      PCILink{parsed(a, "current_link_speed", ParseLinkSpeed), parsed(a, "current_link_width", parseLinkWidth)},
		MaxLink:   PCILink{parsed(a, "max_link_speed", ParseLinkSpeed), parsed(a, "max_link_width", parseLinkWidth)},
		NUMANode:  a.integer("numa_node", -1),
		Local:     parsed(a, "local_cpulist", ParseCPUList),
	}
	if driver, err := f.root.Resolve(a.dir + "/driver"); err == nil {
		d.Driver = path.Base(driver)
	}
	real, err := f.root.Resolve(a.dir)
	if err != nil {
		a.note("", err)
	}
	d.HostBridge, d.Bridges = parsePCIPath(real)
	if n := len(d.Bridges); n > 0 && d.Bridges[n-1] == id {
		d.Bridges = d.Bridges[:n-1]
	}
	d.Problems = a.problems
	return d
}

// parsePCIPath finds the host bridge and the functions below it in a path of /sys/devices. It
// ignores what follows the last function (virtio2/net/eth0). Of nested trees, as behind Intel's
// VMD, the innermost is used.
func parsePCIPath(name string) (hostBridge string, functions []BusID) {
	for elem := range strings.SplitSeq(name, "/") {
		if rest, ok := strings.CutPrefix(elem, "pci"); ok {
			if _, err := ParseBusID(rest + ":00.0"); err == nil && strings.Count(rest, ":") == 1 {
				hostBridge, functions = elem, nil
				continue
			}
		}
		if id, err := ParseBusID(elem); err == nil && hostBridge != "" && strings.Count(elem, ":") == 2 {
			functions = append(functions, id)
		}
	}
	return hostBridge, functions
}

// owner returns the PCI function that an entry of a device class belongs to: the innermost one in
// the path of its device, so that a virtio interface has the function of its card.
func (f FS) owner(dir string) (id BusID, ok bool) {
	real, err := f.root.Resolve(dir + "/device")
	if err != nil {
		return id, false
	}
	_, functions := parsePCIPath(real)
	if len(functions) == 0 {
		return id, false
	}
	return functions[len(functions)-1], true
}
