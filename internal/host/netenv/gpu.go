package netenv

import (
	"fmt"
	"slices"
	"strings"

	"github.com/assay-hpc/assay/internal/words"
)

// gpuMemory covers how network cards and processors reach GPU memory.
func (m *maker) gpuMemory() {
	k := m.n.Modules
	rdma := m.Data.Kind == InfiniBand || m.Data.Kind == RoCE
	if rdma && len(m.n.GPUs) > 0 && k.Known && !k.PeerMem && !k.DMABuf {
		m.warn("network cards cannot reach GPU memory: nvidia_peermem is not loaded, and the driver is not of the open kind that has DMA buffers",
			"modprobe nvidia_peermem on the host, or install the driver with open kernel modules")
	}
	if rdma && len(m.n.GPUs) > 0 && m.n.Cloud == "" {
		m.leave("NCCL_NET_GDR_LEVEL", "NCCL decides by distance: cards up to PXB, and over C2C those at the GPU's processor; a higher level sends data through processors, which most are slow at")
	}
	switch {
	case !m.opt.GDRCopy:
		if len(m.n.GPUs) > 0 && (k.GDRDrv || k.GDRDev) {
			m.leave("NCCL_GDRCOPY_ENABLE", "gdrdrv is here. CoreWeave measured no gain by it in all-reduce, and GDRCopy's own documentation knows of losses: --gdrcopy turns it on, to be measured")
		}
	case k.Known && !k.GDRDrv:
		m.warn("--gdrcopy: the module gdrdrv is not loaded", "install GDRCopy's driver on the host (modprobe gdrdrv)")
	case k.DevKnown && !k.GDRDev:
		m.warn("--gdrcopy: there is no /dev/gdrdrv here", "docker --device=/dev/gdrdrv; Kubernetes: a hostPath volume of /dev/gdrdrv; pyxis: --container-mounts=/dev/gdrdrv")
	default:
		m.set("NCCL_GDRCOPY_ENABLE", "1", "asked for (--gdrcopy): the processor writes to GPU memory directly. Measure with and without it")
	}
}

// nvlink is for platforms with NVLinks that connect several hosts (NVL72).
func (m *maker) nvlink() {
	x := m.n.IMEX
	if !m.n.NVLinkHosts {
		if len(x.Channels) > 0 {
			m.leave("NCCL_MNNVL_ENABLE", "the NVLinks of this platform end at the host")
		}
		return
	}
	switch {
	case len(x.Channels) > 0:
		m.set("NCCL_MNNVL_ENABLE", "1", "NVLink joins the hosts of the rack, and %s of IMEX is here: a rank that cannot use it fails, where NCCL's own choice would go over the network", x.Channels[0])
		m.set("NCCL_CUMEM_ENABLE", "1", "memory that other hosts reach over NVLink must be of CUDA's virtual memory calls")
	case !x.Known:
		m.leave("NCCL_MNNVL_ENABLE", "whether there is an IMEX channel is not known: NCCL sees for itself (2)")
	default:
		what := "/dev/nvidia-caps-imex-channels has no channel"
		if !x.Driver {
			what = "the driver offers no IMEX channels (/proc/devices)"
		}
		m.leave("NCCL_MNNVL_ENABLE", "%s: NVLink stays within the host, and NCCL sees that for itself (2)", what)
		m.warn("NVLink cannot join the hosts of the rack: "+what,
			"host: nvidia-imex runs on all of the rack's hosts (nvidia-imex-ctl -N shows READY) and nvidia-modprobe has made channel0; container: NVIDIA_IMEX_CHANNELS=0 for the runtime; Kubernetes: a ComputeDomain and its claim")
	}
	m.leave("NVIDIA_IMEX_CHANNELS", "the container runtime reads it before the container starts: it belongs into the job, and changes nothing inside")
	if m.Data.Kind == InfiniBand || m.Data.Kind == RoCE {
		m.set("NCCL_NET_GDR_C2C", "1", "cards and GPUs meet at the processor, and NVLink-C2C is fast enough to pass through it; NCCL's default in recent versions only")
	}
}

// TopoFiles are the paths of the topology files in the clouds' images, by platform of the hardware
// database.
var TopoFiles = map[string][]string{
	"azure-ndv2":       {"/opt/microsoft/ndv2-topo.xml", "/opt/microsoft/ndv2/topo.xml"},
	"azure-nd-a100-v4": {"/opt/microsoft/ndv4-topo.xml", "/opt/microsoft/ndv4/topo.xml"},
	"azure-nd-h100-v5": {"/opt/microsoft/ndv5-topo.xml", "/opt/microsoft/ndv5/topo.xml"},
	"azure-nd-h200-v5": {"/opt/microsoft/ndv5-topo.xml", "/opt/microsoft/ndv5/topo.xml"},
}

// topology sets the topology file that a cloud ships for its instances.
func (m *maker) topology() {
	if m.Data.Kind != InfiniBand && m.Data.Kind != RoCE || m.n.Cloud == "" || len(m.n.GPUs) == 0 {
		return
	}
	if near, _ := m.pathsUsed(); near > 0 {
		return // the machine shows its PCI switches
	}
	if len(m.n.TopoFiles) > 0 {
		m.set("NCCL_TOPO_FILE", m.n.TopoFiles[0], "the virtual machine hides its PCI switches, and the cloud's file says where cards and GPUs sit: without it NCCL takes them for far apart and leaves GPUDirect RDMA off")
		m.leave("NCCL_NET_GDR_LEVEL", "with the topology file cards and GPUs are near")
		return
	}
	if slices.ContainsFunc(m.n.Ports, func(p Port) bool { return p.Vendor == "15b3" }) && !m.n.NVLinkHosts {
		m.warn("this virtual machine hides its PCI switches, and no topology file of the cloud's is here: NCCL takes cards and GPUs for far apart and leaves GPUDirect RDMA off",
			"mount the host's file (Azure: /opt/microsoft) and name it by NCCL_TOPO_FILE, or set NCCL_NET_GDR_LEVEL=SYS")
	}
}

// shmLeast is the size of /dev/shm that NVIDIA's NCCL guide recommends for containers.
const shmLeast = 1 << 30

// pidsEach is a rank's share of the thread limit: threads of NCCL and CUDA, and a framework's pools
// and loaders.
const pidsEach = 256

// limits warns about the limits of the process and its container.
func (m *maker) limits() {
	l := m.n.Limits
	if l.Memlock != nil && *l.Memlock != Unlimited && !l.IPCLock && m.Data.Kind != Sockets {
		m.warn(fmt.Sprintf("this process may lock %s of memory, and RDMA needs it without limit (ulimit -l)", sizeText(*l.Memlock)),
			"docker --ulimit memlock=-1; Slurm: PropagateResourceLimitsExcept=MEMLOCK and LimitMEMLOCK=infinity for slurmd, which pyxis passes on; Kubernetes: securityContext.capabilities.add [IPC_LOCK], and LimitMEMLOCK=infinity for containerd")
	}
	if l.SHM != nil && *l.SHM < shmLeast && len(m.n.GPUs) > 1 {
		m.warn(fmt.Sprintf("/dev/shm has %s, and ranks of one host need 1 GiB and more there", sizeText(*l.SHM)),
			"docker --shm-size=16g or --ipc=host; Kubernetes: an emptyDir of medium Memory on /dev/shm; pyxis mounts the host's")
	}
	if ranks := max(len(m.n.GPUs), 1); l.PIDs != nil && *l.PIDs < uint64(ranks*pidsEach) {
		m.warn(fmt.Sprintf("the container may have %d threads, which is little for %s", *l.PIDs, words.Count(ranks, "rank")),
			"docker --pids-limit=-1; Kubernetes: the kubelet's podPidsLimit; Slurm: TasksMax=infinity for slurmd")
	}
}

// sizeText formats a size in the largest unit in which it is at least 1.
func sizeText(n uint64) string {
	units := []string{"bytes", "KiB", "MiB", "GiB", "TiB"}
	v, i := float64(n), 0
	for v >= 1024 && i < len(units)-1 {
		v, i = v/1024, i+1
	}
	return strings.TrimSuffix(fmt.Sprintf("%.1f", v), ".0") + " " + units[i]
}
