package explain

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// hostTools show the host: PCIe, processors, memory, modules.
var hostTools = []tool{
	{"host", `(?:[0-9a-f]{4}:)?[0-9a-f]{2}:[0-9a-f]{2}\.\d (?:3D controller|VGA compatible controller|PCI bridge|Ethernet controller|Infiniband controller|Network controller|Bridge|Processing accelerators|Display controller|Host bridge|System peripheral)[^:]*: `, `\s|(?:[0-9a-f]{4}:)?[0-9a-f]{2}:[0-9a-f]{2}\.\d `, readLspci},
	{"host", `\s+LnkCap:\s+Port #`, `\s`, readLspci},
	{"host", `[ +-]*-\[[0-9a-f]{4}:[0-9a-f]{2}(?:-[0-9a-f]{2})?\]-\+-0`, `[ |\\+-]`, readPCITree},
	{"host", `available: \d+ nodes? \(`, `node|\s+\d+:|\s*\d+:`, readNuma},
	{"host", `Architecture: +\S`, `\S.*: +|\s`, readLscpu},
	{"host", `Module +Size +Used by`, `\w+ +\d+ +-?\d+`, readLsmod},
	{"host", `nvidia(?:_drm|_modeset|_uvm|_peermem)? +\d{4,} +\d+`, `\w+ +\d+ +-?\d+`, readLsmod},
	{"host", `filename: +\S*/nvidia[\w-]*\.ko`, `\w+: |\s`, readModinfo},
	{"host", `MemTotal: +\d+ kB`, `[\w()]+: +\d+`, readMeminfo},
	{"host", `(?:core file size|real-time non-blocking time) +\(`, `[a-z].*\(.*\) +\S+`, readUlimit},
	{"host", `BOOT_IMAGE=\S+ `, `$^`, readCmdline},
	{"host", `analyzing CPU \d+:`, `\s|analyzing`, readGovernor},
	{"host", `GPU id:\d+; name: |Total: \d+, Passed: \d+, Failed: \d+`, `.*`, readGdrcopy},
	{"host", `# (?:UCT version=|Library version: )`, `#`, func(b *block) string {
		return "ucx_info -v: UCX " + strings.Trim(compiled(`[\d.]+\d`).FindString(b.lines[0]), ".")
	}},
	{"host", `# Memory domain: \S+`, `#|\s`, readUCX},
	{"host", `provider: \S+\s*$`, `\s|provider: `, readFiInfo},
	{"host", `\s*Package: Open MPI|\s+Open MPI: \d`, `\s.*: `, readOmpiInfo},
}

var (
	pciDevice = regexp.MustCompile(`^((?:[0-9a-f]{4}:)?[0-9a-f]{2}:[0-9a-f]{2}\.\d) ([^:]+): (.*)`)
	pciLink   = regexp.MustCompile(`Lnk(Cap|Sta):.*?Speed ([\d.]+)GT/s[^,]*, Width x(\d+)`)
	pciModel  = regexp.MustCompile(`\[([^\]]{4,})\]`)
	pciGPU    = regexp.MustCompile(`^(?:3D controller|VGA compatible controller|Processing accelerators|Display controller)`)
	pciKnown  = regexp.MustCompile(`NVIDIA|Mellanox|Advanced Micro Devices.*(?:Instinct|Aldebaran|MI\d)|Broadcom.*(?:BCM57[5-9]|Thor)|\bEFA\b|Elastic Fabric|Habana`)
)

// pciRow is a device that lspci lists: what it can, and what it does.
type pciRow struct {
	line, can, does                    int
	address, class, name               string
	speed, width, bestSpeed, bestWidth float64
}

// readLspci reads lspci, with -vv the links: GPUs and adapters whose link is narrower or slower than they can.
func readLspci(b *block) string {
	rows := pciRows(b.lines)
	b.known = len(rows) > 0
	var names []string
	links := 0
	for _, r := range rows {
		if !pciKnown.MatchString(r.name) && r.address != "" {
			continue
		}
		if r.address != "" && !strings.HasPrefix(r.class, "PCI bridge") && !strings.HasPrefix(r.class, "Audio") {
			names = append(names, pciName(r))
		}
		if strings.Contains(r.name, "(rev ff)") {
			b.fault("pci.gone", r.address, r.line, map[string]string{"device": r.address + " " + pciName(r)})
		}
		if r.width > 0 && r.bestWidth > 0 {
			links++
			b.pciLink(r)
		}
	}
	b.missing(slices.DeleteFunc(slices.Clone(names), func(n string) bool { return n != names[0] }))
	for i, l := range b.lines {
		if compiled(`LnkSta:.*Width x0\b|UESta:.* (?:DLP|TLP|CmpltTO|UnxCmplt|MalfTLP)\+|in use: (?:nouveau|vfio-pci)`).MatchString(l) {
			b.doubt(i, "%s", strings.TrimSpace(l))
		}
		b.wrong = b.wrong || strings.Contains(l, "<unassigned>") || strings.Contains(l, "!!! Unknown header type")
	}
	if len(names)+links == 0 {
		return ""
	}
	text := "lspci lists " + several(names)
	if len(names) == 0 {
		text = "lspci"
	}
	if links > 0 {
		text += fmt.Sprintf(": the PCIe links of %s have the width and speed that the device can (LnkSta is LnkCap)", plural(links, "device", "devices"))
	}
	return text
}

func pciRows(lines []string) []pciRow {
	rows := []pciRow{}
	for i, l := range lines {
		if m := pciDevice.FindStringSubmatch(l); m != nil {
			rows = append(rows, pciRow{line: i, address: m[1], class: m[2], name: m[3]})
			continue
		}
		m := pciLink.FindStringSubmatch(l)
		if m == nil {
			continue
		}
		if len(rows) == 0 || rows[len(rows)-1].address == "" && m[1] == "Cap" {
			rows = append(rows, pciRow{line: i})
		}
		r := &rows[len(rows)-1]
		speed, _ := strconv.ParseFloat(m[2], 64)
		width, _ := strconv.ParseFloat(m[3], 64)
		if m[1] == "Cap" {
			r.bestSpeed, r.bestWidth, r.can = speed, width, i
		} else {
			r.speed, r.width, r.does = speed, width, i
		}
	}
	return rows
}

func pciName(r pciRow) string {
	if m := pciModel.FindAllStringSubmatch(r.name, -1); len(m) > 0 {
		if text := m[0][1]; !compiled(`^[0-9a-f]{4}(?::[0-9a-f]{4})?$`).MatchString(text) {
			return text
		}
	}
	name := compiled(` \(rev \w+\).*| \(prog-if.*`).ReplaceAllString(r.name, "")
	return strings.TrimPrefix(strings.TrimPrefix(name, "NVIDIA Corporation "), "Mellanox Technologies ")
}

func (b *block) pciLink(r pciRow) {
	more := map[string]string{
		"device": cmpText(strings.TrimSpace(r.address+" "+pciName(r)), "a device"), "width": number(r.width), "best": number(r.bestWidth),
		"speed": number(r.speed), "most": number(r.bestSpeed),
	}
	switch {
	case r.width < r.bestWidth:
		b.fault("pci.narrow", more["width"], r.does, more)
	case r.speed < r.bestSpeed && (pciGPU.MatchString(r.class) || r.address == ""):
		b.fault("pci.idle", more["speed"], r.does, more)
	case r.speed < r.bestSpeed:
		b.fault("pci.slower", more["speed"], r.does, more)
	}
}

func readPCITree(b *block) string {
	var names []string
	for _, l := range b.lines {
		if m := compiled(`(NVIDIA Corporation|Mellanox Technologies|Advanced Micro Devices, Inc\. \[AMD/ATI\]) (.*)`).FindStringSubmatch(l); m != nil {
			names = append(names, strings.TrimSpace(m[2]))
		}
	}
	if len(names) == 0 {
		return ""
	}
	return "lspci -tv shows where " + several(names) + " are: devices below one bridge reach each other without the processor"
}

// readNuma reads numactl -H.
func readNuma(b *block) string {
	var sizes []string
	for i, l := range b.lines {
		if m := compiled(`node (\d+) size: (\d+) MB`).FindStringSubmatch(l); m != nil {
			sizes = append(sizes, m[2])
			if m[2] == "0" {
				b.in.add("numa.empty", m[1], nil, b.at[i])
			}
		}
	}
	if len(sizes) == 0 || slices.Contains(sizes, "0") {
		return ""
	}
	var gb []float64
	for _, s := range sizes {
		f, _ := value(s)
		gb = append(gb, float64(int(f/1024)))
	}
	if slices.Max(gb) > 1.2*slices.Min(gb) {
		b.doubt(0, "the NUMA nodes have %s GiB of memory: nodes of HBM or of a GPU can have less, else DIMMs are missing", span(gb))
	}
	return fmt.Sprintf("numactl -H shows %s, with %s GiB of memory each", plural(len(sizes), "NUMA node", "NUMA nodes"), span(gb))
}

func readLscpu(b *block) string {
	v := b.fields(":")
	if v["CPU(s)"] == "" {
		return ""
	}
	text := fmt.Sprintf("lscpu: %s, %s processors, %s sockets, %s threads a core, %s NUMA nodes", v["Model name"], v["CPU(s)"], cmpText(v["Socket(s)"], "?"), cmpText(v["Thread(s) per core"], "?"), cmpText(v["NUMA node(s)"], "?"))
	if off := v["Off-line CPU(s) list"]; off != "" {
		text += "; switched off: " + off
	}
	return text
}

// readLsmod reads lsmod.
func readLsmod(b *block) string {
	have, driver := map[string]bool{}, 0
	for i, l := range b.lines {
		if f := strings.Fields(l); len(f) > 1 {
			if have[f[0]] = true; f[0] == "nvidia" {
				driver = i
			}
			if f[0] == "nouveau" {
				b.fault("lsmod.nouveau", f[0], slices.Index(b.lines, l), nil)
			}
		}
	}
	var shows []string
	for _, m := range []string{"nvidia", "nvidia_uvm", "nvidia_peermem", "nv_peer_mem", "gdrdrv", "mlx5_core", "mlx5_ib", "ib_uverbs", "ib_umad", "rdma_cm", "amdgpu", "efa", "irdma", "bnxt_re"} {
		if have[m] {
			shows = append(shows, m)
		}
	}
	if len(shows) == 0 {
		return ""
	}
	switch {
	case !have["nvidia"]:
	case !have["nvidia_uvm"]:
		b.fault("lsmod.uvm", "nvidia", driver, nil)
	case have["mlx5_ib"] && !have["nvidia_peermem"] && !have["nv_peer_mem"]:
		b.fault("lsmod.peermem", "nvidia", driver, nil)
	}
	return "lsmod: loaded are " + strings.Join(shows, ", ")
}

func readModinfo(b *block) string {
	v := b.fields(":")
	if v["version"] == "" {
		return ""
	}
	kind := "the proprietary module"
	if strings.Contains(v["license"], "MIT") {
		kind = "the open module"
	}
	return "modinfo: the NVIDIA driver is " + v["version"] + ", " + kind + ", for kernel " + strings.Fields(v["vermagic"] + " ?")[0]
}

func readMeminfo(b *block) string {
	v := b.fields(":")
	total, ok := value(v["MemTotal"])
	free, has := value(v["MemAvailable"])
	if !ok || !has || total == 0 {
		return ""
	}
	if free < total/50 {
		b.fault("meminfo.low", v["MemAvailable"], 0, map[string]string{"free": v["MemAvailable"], "total": v["MemTotal"]})
	}
	return fmt.Sprintf("/proc/meminfo: %.0f GiB, of which %.0f are available", total/1048576, free/1048576)
}

func readUlimit(b *block) string {
	lock := ""
	for i, l := range b.lines {
		if f := strings.Fields(l); strings.HasPrefix(l, "max locked memory") {
			if lock = f[len(f)-1]; lock != "unlimited" {
				b.fault("ulimit.lock", lock, i, nil)
			}
		}
	}
	if lock == "" {
		return ""
	}
	return "ulimit -a: max locked memory is unlimited, as RDMA needs it"
}

func readCmdline(b *block) string {
	var flags []string
	for _, f := range strings.Fields(b.lines[0]) {
		if compiled(`^(?:iommu|intel_iommu|amd_iommu|pci|pcie_aspm|pcie_acs_override|default_hugepagesz|hugepagesz|hugepages|isolcpus|nohz_full|numa_balancing|processor\.max_cstate|intel_idle\.max_cstate|mitigations|nvme\.|modprobe\.blacklist|rd\.driver\.blacklist)`).MatchString(f) {
			flags = append(flags, f)
		}
	}
	if len(flags) == 0 {
		return ""
	}
	return "the kernel's command line sets " + strings.Join(flags, " ")
}

func readGovernor(b *block) string {
	_, m := b.find(compiled(`The governor "(\w+)"`))
	if m == nil {
		return ""
	}
	if m[1] == "powersave" {
		if _, driver := b.find(compiled(`driver: (?:intel_pstate|amd-pstate-epp|amd_pstate)`)); driver == nil {
			b.in.add("cpu.powersave", m[1], nil, b.at[0])
			return ""
		}
	}
	return "cpupower: the governor is " + m[1]
}

// readGdrcopy reads gdrcopy_sanity, gdrcopy_copybw and gdrcopy_copylat.
func readGdrcopy(b *block) string {
	var shows []string
	for i, l := range b.lines {
		if m := compiled(`Total: (\d+), Passed: (\d+), Failed: (\d+)`).FindStringSubmatch(l); m != nil {
			if m[3] != "0" {
				b.fault("gdrcopy.failed", m[3], i, map[string]string{"failed": m[3], "total": m[1]})
			}
			if m[2] == "0" {
				b.doubt(i, "no test of gdrcopy_sanity passed")
			}
			shows = append(shows, "gdrcopy_sanity: "+m[2]+" of "+m[1]+" tests passed, none failed")
		} else if m := compiled(`^(write|read) BW: ([\d.]+) ?MB/s`).FindStringSubmatch(l); m != nil {
			shows = append(shows, "gdrcopy_copybw: "+m[1]+" "+m[2]+" MB/s"+map[bool]string{true: " (reads through the processor's window are slow by nature)"}[m[1] == "read"])
		}
	}
	return strings.Join(shows, ", ")
}

// readUCX reads ucx_info -d.
func readUCX(b *block) string {
	var names []string
	for _, l := range b.lines {
		if m := compiled(`^# +Transport: (\S+)`).FindStringSubmatch(l); m != nil && !slices.Contains(names, m[1]) {
			names = append(names, m[1])
		}
	}
	if len(names) == 0 {
		return ""
	}
	text := "ucx_info -d lists the transports " + strings.Join(names, ", ")
	if !slices.Contains(names, "cuda_copy") && !slices.Contains(names, "rocm_copy") {
		text += "; none for GPU memory: this UCX was built without CUDA and ROCm, or sees no GPU"
	}
	if !slices.ContainsFunc(names, func(n string) bool { return strings.HasPrefix(n, "rc") || strings.HasPrefix(n, "dc") || n == "srd" }) {
		text += "; none of RDMA"
	}
	return text
}

func readFiInfo(b *block) string {
	var names []string
	for _, l := range b.lines {
		if n, ok := strings.CutPrefix(l, "provider: "); ok && !slices.Contains(names, n) {
			names = append(names, strings.TrimSpace(n))
		}
	}
	text := "fi_info lists the providers " + strings.Join(names, ", ")
	if !slices.ContainsFunc(names, func(n string) bool {
		return strings.HasPrefix(n, "efa") || strings.HasPrefix(n, "verbs") || strings.HasPrefix(n, "cxi") || strings.HasPrefix(n, "psm") || strings.HasPrefix(n, "opx")
	}) {
		text += ", none of RDMA"
	}
	return text
}

func readOmpiInfo(b *block) string {
	v := b.fields(": ")
	version := v["Open MPI"]
	if version == "" {
		return ""
	}
	var parts []string
	for _, l := range b.lines {
		if m := compiled(`MCA (pml|btl|coll|mtl|osc): (ucx|openib|ofi|cm|ob1|hcoll|ucc|cuda|smcuda|uct|accelerator) `).FindStringSubmatch(l); m != nil {
			parts = append(parts, m[1]+" "+m[2])
		}
	}
	return "ompi_info: Open MPI " + version + " with " + cmpText(strings.Join(parts, ", "), "no component that it names here")
}
