package certificate

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Facts returns the versions and settings of a machine by which machines of one kind may differ, by
// name: "driver", "kernel", "VBIOS", "$NCCL_DEBUG", … The certificate is about a machine.
func (p *Predicate) Facts() map[string]string {
	n := p.Node
	f := map[string]string{
		"harness": p.Harness.Version, "kernel": p.Environment.Kernel, "system": p.Environment.OS, "processor": p.Environment.CPU,
		"image": p.Environment.Target, "driver": n.Driver, "CUDA": n.CUDA, "product": strings.TrimSpace(n.Vendor + " " + n.Product),
		"instance": strings.TrimSpace(n.Cloud + " " + n.Instance), "container": n.Container, "names": strings.TrimRight(n.Name, "0123456789"),
	}
	if p.Environment.Recipe != "" {
		f["image"] = fmt.Sprintf("%s %.7s", p.Environment.Target, p.Environment.Recipe)
	}
	bios, firmware := map[string]bool{}, map[string]bool{}
	for _, g := range n.GPUs {
		bios[g.VBIOS] = true
	}
	for _, port := range n.Ports {
		firmware[port.Firmware] = true
	}
	f["VBIOS"], f["NIC firmware"] = several(bios), several(firmware)
	for k, v := range n.Versions {
		f[k] = v
	}
	for k, v := range n.Variables {
		f["$"+k] = v
	}
	maps.DeleteFunc(f, func(_, v string) bool { return v == "" })
	return f
}

func several(set map[string]bool) string {
	delete(set, "")
	return strings.Join(slices.Sorted(maps.Keys(set)), " and ")
}
