package health

import (
	"fmt"
	"maps"
	"slices"

	"github.com/assay-hpc/assay/internal/host/nvml"
	"github.com/assay-hpc/assay/internal/host/sysfs"
	"github.com/assay-hpc/assay/internal/result"
)

// pcieChecks check the path between GPU, CPU and network card.
var pcieChecks = []check{
	{
		id: "gpu/pcie/width", title: "the PCIe link has all its lanes", want: "the most that GPU and slot can have", gpu: of(slot, checkWidth),
		remedy: "reseat the GPU or its riser; look at the slot's setting in the firmware",
	},
	{
		id: "gpu/pcie/generation", title: "the PCIe link has its full speed", want: "the most that GPU and slot can have", gpu: of(slot, checkGeneration),
		remedy: "measure under load (harness bandwidth); reseat the GPU if the link stays slow",
	},
	{
		id: "gpu/pcie/slot", title: "the slot is as fast as the GPU", want: "the GPU's own generation", gpu: of(slot, checkSlot),
		remedy: "look at the slot's speed in the firmware's setup; move the GPU to a faster slot",
	},
	{
		id: "gpu/pcie/replay", title: "PCIe replays stand still", want: "growth of at most %s", remedy: "reseat the GPU; watch the counter under load",
		gpu: growth("PCIe replays", "pcie_replay"),
	},
	{
		id: "gpu/pcie/correctable", title: "PCIe correctable errors are few", want: "at most %s", remedy: "reseat the GPU; watch the counter under load",
		gpu: rate("PCIe correctable errors a minute", 60, "pcie_correctable"),
	},
	{
		id: "gpu/pcie/fatal", title: "there were no uncorrectable PCIe errors", want: "at most %s", remedy: reboot,
		gpu: counter("uncorrectable PCIe errors since the driver was loaded", "pcie_nonfatal", "pcie_fatal"),
	},
	{
		id: "pci/aer/uncorrectable", title: "the kernel has seen no uncorrectable PCIe error", want: "at most %s", node: checkAERFatal, uses: usesDevices,
		remedy: "look at the kernel's log (AER); reseat the card, replace it if errors come back",
	},
	{
		id: "pci/aer/correctable", title: "the kernel has seen few correctable PCIe errors", want: "at most %s", node: checkAERCorrectable, uses: usesDevices,
		remedy: "look at the kernel's log (AER); reseat the card if they keep coming",
	},
	{
		id: "pci/acs", title: "GPUs and network cards reach one another directly", want: "no redirection to the root complex", node: checkACS, uses: usesDevices,
		remedy: "turn ACS off in the firmware's setup, or on these bridges with setpci at boot; leave it on if devices are given to virtual machines",
	},
	{
		id: "gpu/numa/node", title: "the GPU's NUMA node is known", want: "a node", gpu: checkNUMA, uses: usesDevices | usesSystem,
		remedy: "have the firmware tell the devices' proximity (ACPI _PXM), or the virtual machine its topology",
	},
	{
		id: "gpu/numa/cpus", title: "this process may run next to the GPU", want: "processors of the GPU's node", gpu: checkCPUs, uses: usesDevices | usesSystem,
		remedy: "give the job or container processors of every GPU's NUMA node (--cpuset-cpus, Slurm's --gpu-bind)",
	},
}

// slot returns a GPU's link to its slot.
func slot(g *gpuState) sysfs.Fact[nvml.PCIe] { return g.PCIe }

func checkWidth(_ *env, _ *gpuState, p nvml.PCIe) outcome {
	o := good(fmt.Sprintf("x%d", p.Width))
	if p.Width < p.MaxWidth {
		o = bad("%d of %d lanes", p.Width, p.MaxWidth)
	}
	o.want = fmt.Sprintf("x%d, what GPU and slot can have", p.MaxWidth)
	return o
}

// restful is the first performance state in which a link may be idle and slower: P2 is the state
// for compute on some boards.
const restful = 3

func checkGeneration(_ *env, g *gpuState, p nvml.PCIe) outcome {
	o := good(fmt.Sprintf("generation %d", p.Generation))
	switch {
	case p.Generation >= p.MaxGeneration:
	case g.Pstate.Err != nil || g.Pstate.Value >= restful:
		return skipped("generation %d of %d: a link may rest while the GPU does; measure under load", p.Generation, p.MaxGeneration)
	default:
		o = bad("generation %d of %d while the GPU is awake (P%d)", p.Generation, p.MaxGeneration, g.Pstate.Value)
	}
	o.want = fmt.Sprintf("generation %d, what GPU and slot can have", p.MaxGeneration)
	return o
}

func checkSlot(_ *env, _ *gpuState, p nvml.PCIe) outcome {
	switch {
	case p.OwnGeneration == 0:
		return skipped("the driver does not say what the GPU alone could do")
	case p.MaxGeneration < p.OwnGeneration:
		return bad("the GPU could have generation %d, its slot has %d", p.OwnGeneration, p.MaxGeneration)
	}
	return good(fmt.Sprintf("generation %d", p.MaxGeneration))
}

func checkAERFatal(e *env) []outcome {
	return e.aer(func(a sysfs.AER) uint64 { return a.NonFatal + a.Fatal }, "uncorrectable errors since boot")
}

func checkAERCorrectable(e *env) []outcome {
	return e.aer(func(a sysfs.AER) uint64 { return a.Correctable }, "correctable errors since boot")
}

// aer judges each function that has counters.
func (e *env) aer(get func(sysfs.AER) uint64, what string) []outcome {
	d := e.Node.Devices
	if d.Err != nil {
		return node(without(d.Err))
	}
	var out []outcome
	for _, id := range slices.SortedFunc(maps.Keys(d.Value.Errors), sysfs.BusID.Compare) {
		if f := d.Value.Errors[id]; f.Err == nil {
			v := get(f.Value)
			out = append(out, e.atMost(float64(v), fmt.Sprintf("%s: %d", what, v)).on(pciObject(id)))
		}
	}
	switch {
	case len(d.Value.Errors) == 0:
		return node(skipped("there are no GPUs and no RDMA devices on PCI"))
	case len(out) == 0:
		return node(skipped("the kernel has no error counters for these devices (virtual machine, or the firmware keeps them)"))
	}
	return out
}

func pciObject(id sysfs.BusID) result.Object {
	return result.Object{Name: id.String(), Bus: id.String()}
}

func checkACS(e *env) []outcome {
	d := e.Node.Devices
	if d.Err != nil {
		return node(without(d.Err))
	}
	var out []outcome
	seen, hidden := 0, error(nil)
	for _, id := range slices.SortedFunc(maps.Keys(d.Value.Access), sysfs.BusID.Compare) {
		f := d.Value.Access[id]
		switch {
		case f.Err == nil && f.Value.Redirects():
			seen++
			out = append(out, bad("the bridge sends what peers write to one another up to the root complex").on(pciObject(id)))
		case f.Err == nil:
			seen++
		case !isNoACS(f.Err):
			hidden = f.Err
		}
	}
	switch {
	case len(out) > 0:
		return out
	case len(d.Value.Access) == 0:
		return node(skipped("there are no bridges above GPUs and RDMA devices"))
	case hidden != nil:
		return node(without(permission(hidden)))
	}
	return node(good(fmt.Sprintf("off on %d bridges, %d lack it", seen, len(d.Value.Access)-seen)))
}

func checkNUMA(e *env, g *gpuState) outcome {
	d, ok := e.device(g.Bus)
	switch nodes := len(e.Node.System.Value.Nodes.Value); {
	case !ok:
		return skipped("PCI is not to be seen here")
	case nodes < 2:
		return skipped("the machine has one NUMA node")
	case d.NUMANode < 0:
		return bad("the machine has %d NUMA nodes, and the kernel does not know which is the GPU's", nodes)
	}
	return good(fmt.Sprintf("node %d", d.NUMANode))
}

func checkCPUs(e *env, g *gpuState) outcome {
	d, ok := e.device(g.Bus)
	allowed := e.Node.System.Value.Allowed
	switch {
	case !ok || d.Local.Len() == 0:
		return skipped("the kernel does not say which processors are the GPU's")
	case allowed.Err != nil:
		return without(allowed.Err)
	}
	both := d.Local.Intersect(allowed.Value)
	if both.Len() == 0 {
		return bad("the process may run on %v, next to the GPU are %v", allowed.Value, d.Local)
	}
	return good(both.String())
}
