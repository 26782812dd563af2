package netenv

import (
	"slices"
	"strings"

	"github.com/assay-hpc/assay/internal/words"
)

// firstEFA is the PCI device of the first EFA generation, which cannot read remote memory.
const firstEFA = "efa0"

// efa sets what NCCL's OFI plugin and libfabric need on AWS.
func (m *maker) efa() {
	used := m.Data.used()
	m.set("FI_PROVIDER", "efa", "%s: programs that use libfabric fail where they cannot open them, and do not take TCP", words.Count(len(used), "EFA device"))
	switch {
	case slices.ContainsFunc(m.n.Ports, func(p Port) bool { return p.Vendor == VendorAmazon && p.Model == firstEFA }):
		m.leave("FI_EFA_USE_DEVICE_RDMA", "EFA of the first generation cannot read remote memory, and libfabric ends the program when it is asked for")
	case strings.HasPrefix(m.n.Platform, "aws-p"):
		m.set("FI_EFA_USE_DEVICE_RDMA", "1", "EFA of these instances reads remote memory; libfabric before 1.18 asks for this, later ones do it anyway")
	default:
		m.leave("FI_EFA_USE_DEVICE_RDMA", "not all instances' EFA can read remote memory, and libfabric ends the program where it cannot; libfabric from 1.18 on asks the device")
	}
	p, found := m.plugin(PluginOFI)
	unasked, loads := m.unasked()
	switch {
	case !found:
		m.warn("there are EFA devices, and NCCL's OFI plugin (libnccl-net-ofi.so or libnccl-net.so of aws-ofi-nccl) is not here: NCCL goes over TCP",
			"use an image that has the plugin and libfabric, or mount the host's /opt/amazon")
		m.leave("NCCL_NET_PLUGIN", "the OFI plugin is not here")
	case loads && unasked.Kind == PluginOFI && p.Name == "":
		m.leave("NCCL_NET_PLUGIN", "%s is loaded unasked", unasked.Path)
	case p.Name != "":
		m.set("NCCL_NET_PLUGIN", p.Name, "names %s; another libnccl-net.so is not tried", p.Path)
	default:
		m.leave("NCCL_NET_PLUGIN", "%s is loaded unasked once the loader finds it", p.Path)
	}
	if found && !p.Listed {
		m.notListed(p)
	}
	m.set("OMPI_MCA_pml", "^ucx", "UCX has no way to go over EFA; Open MPI takes libfabric or TCP")
	m.leave("NCCL_IB_HCA", "NCCL's own transport cannot use EFA: the plugin takes the devices, by what it knows of the instance")
	m.leave("NCCL_NET", "it would make a fallback to TCP an error; its value goes with the plugin's version: Libfabric from 1.16 on, AWS Libfabric before")
	m.leave("NCCL_PROTO", "with NCCL_BUFFSIZE, the chunk sizes, NCCL_TOPO_FILE and NCCL_TUNER_PLUGIN: the plugin sets them for the instance, and values from outside undo that")
	m.leave("FI_EFA_FORK_SAFE", "kernel and libfabric see to forks by themselves now; RDMAV_FORK_SAFE must not be set at all")
	m.noSHARP()
}
