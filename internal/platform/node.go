package platform

import "github.com/assay-hpc/assay/internal/host/sysfs"

// A Node holds the facts about one machine, without judgement. Unknown fields are zero.
type Node struct {
	GPUs      []NodeGPU `json:"gpus"`
	NICs      []NodeNIC `json:"nics"` // RDMA ports
	DMI       sysfs.DMI `json:"dmi"`
	Container string    `json:"container"` // kind of container around the process; "": none detected
	// LinksKnown says that the NVLinks were read. Without it, 0 NVLinks of a GPU means nothing.
	LinksKnown bool `json:"nvlinks_known"`
}

// A NodeGPU is a GPU of a Node.
type NodeGPU struct {
	Name     string        `json:"name,omitempty"`       // the driver's name
	Device   string        `json:"pci_device,omitempty"` // four hex digits
	Slot     sysfs.PCILink `json:"slot,omitzero"`        // the best that GPU and port support
	NVLinks  int           `json:"nvlinks"`              // that are up
	Switched bool          `json:"nvswitch,omitempty"`   // they lead to NVSwitches
}

// A NodeNIC is a port of an RDMA device.
type NodeNIC struct {
	Name      string  `json:"name"`
	Vendor    string  `json:"pci_vendor,omitempty"` // four hex digits
	Device    string  `json:"pci_device,omitempty"` // four hex digits
	Gbit      float64 `json:"gbit_per_s,omitempty"`
	LinkLayer string  `json:"link_layer,omitempty"` // InfiniBand, Ethernet
	State     string  `json:"state,omitempty"`      // ACTIVE, DOWN, …
}
