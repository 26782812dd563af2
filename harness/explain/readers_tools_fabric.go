package explain

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// fabricTools show NVLink's services, sysfs, and what is shorter than a tool's output.
var fabricTools = []tool{
	{"dcgm", `\| NVLINK Error Counts`, `[|+]`, readDCGMErrors},
	{"smi", `Connectivity Table Legend:`, `.*`, readIMEX},
	{"smi", `.*Successfully configured all the available (?:GPUs and )?NVSwitches`, `$^`, func(*block) string {
		return "fabric manager configured all NVSwitches that it found"
	}},
	{"rdma", `(?:MLNX_OFED_LINUX|OFED-internal|DOCA_OFED|OFED)-[\d.]+[\d.-]*:?\s*$`, `$^`, func(b *block) string {
		return "ofed_info: the installed stack is " + strings.TrimRight(strings.TrimSpace(b.lines[0]), ":")
	}},
	{"rdma", `/sys/class/infiniband/[\w-]+/ports/\d+/(?:state|phys_state|rate|link_layer):`, `/sys/`, readSysPorts},
	{"host", `/sys/\S*/(?:current|max)_link_(?:width|speed):`, `/sys/`, readSysLinks},
	{"host", `Machine \(\d+\w+ total\)`, `\s|Machine|Host`, readLstopo},
	{"nccl", `(?:<\?xml .*\?> *)?<system version=`, `\s*<`, readTopologyFile},
	{"k8s", `Capacity:\s*$`, `\s|Allocatable:`, readCapacity},
	{"host", `[○●×] \S+\.service|\S+\.service - `, `\s`, readService},
}

func readDCGMErrors(b *block) string {
	row := compiled(`^\| +-> (.*?) +\| (\d+)`)
	seen, link, gpu := 0, "", ""
	for i, l := range b.lines {
		if m := compiled(`^\| (Link|GPU) (\d+)`).FindStringSubmatch(l); m != nil {
			if m[1] == "GPU" {
				gpu = m[2]
			} else {
				link = m[2]
			}
		}
		if m := row.FindStringSubmatch(l); m != nil {
			if seen++; m[2] != "0" {
				b.fault("nvlink.errors", m[2], i, map[string]string{"gpu": gpu, "link": link, "counter": m[1], "count": m[2]})
			}
		}
	}
	if seen == 0 {
		return ""
	}
	return fmt.Sprintf("dcgmi nvlink -e: all %d error counters of GPU %s are 0", seen, gpu)
}

var imexNode = regexp.MustCompile(`^\s*Node #(\d+) +- +(\S+) +- +(\w+)`)

// readIMEX reads nvidia-imex-ctl -N.
func readIMEX(b *block) string {
	ready, domain := 0, "not shown"
	for i, l := range b.lines {
		if m := imexNode.FindStringSubmatch(l); m != nil {
			if m[3] == "READY" {
				ready++
			} else {
				b.fault("imex.node", m[2], i, map[string]string{"node": m[2], "state": m[3]})
			}
		}
		if m := compiled(`^\s*Domain State: (\w+)`).FindStringSubmatch(l); m != nil {
			if domain = m[1]; domain != "UP" {
				b.fault("imex.domain", domain, i, nil)
			}
		}
	}
	if ready == 0 || domain != "UP" {
		return ""
	}
	return "nvidia-imex-ctl -N: the IMEX domain is UP, and " + plural(ready, "node is", "nodes are") + " READY"
}

// readSysPorts makes facts of ports of what grep shows of /sys/class/infiniband.
func readSysPorts(b *block) string {
	values, at := map[string]map[string]string{}, map[string]place{}
	for i, l := range b.lines {
		m := compiled(`^/sys/class/infiniband/([\w-]+)/ports/\d+/(\w+):(.*)`).FindStringSubmatch(l)
		if m == nil {
			continue
		}
		if values[m[1]] == nil {
			values[m[1]] = map[string]string{}
			at[m[1]] = b.at[i]
		}
		v := strings.TrimSpace(m[3])
		if m[2] == "state" || m[2] == "phys_state" {
			v = v[strings.LastIndex(v, " ")+1:]
		}
		values[m[1]][m[2]] = v
	}
	for _, d := range slices.Sorted(maps.Keys(values)) {
		v := values[d]
		if v["state"] != "" {
			rate := strings.Fields(v["rate"] + " -")[0]
			b.in.add("port", fmt.Sprintf("%s %s %s %s", stateName(v["state"]), cmpText(v["phys_state"], "-"), rate, v["link_layer"]), map[string]string{"device": d, "rate": rate}, at[d])
		}
	}
	b.wrong = true // rules about ports say it
	return ""
}

// readSysLinks compares the current and the greatest width and speed of PCIe links in sysfs.
func readSysLinks(b *block) string {
	now, most := map[string]float64{}, map[string]float64{}
	line := map[string]int{}
	for i, l := range b.lines {
		m := compiled(`/([0-9a-f:.]{7,12})/(current|max)_link_(width|speed):([\d.]+)`).FindStringSubmatch(l)
		if m == nil {
			continue
		}
		v, _ := strconv.ParseFloat(m[4], 64)
		if key := m[1] + " " + m[3]; m[2] == "max" {
			most[key] = v
		} else {
			now[key], line[key] = v, i
		}
	}
	for _, key := range slices.Sorted(maps.Keys(now)) {
		device, what, _ := strings.Cut(key, " ")
		switch {
		case now[key] >= most[key]:
		case what == "width":
			b.fault("pci.narrow", number(now[key]), line[key], map[string]string{"device": device, "width": number(now[key]), "best": number(most[key])})
		default:
			b.fault("pci.idle", number(now[key]), line[key], map[string]string{"device": device, "speed": number(now[key]), "most": number(most[key])})
		}
	}
	if len(now) == 0 || len(most) == 0 {
		return ""
	}
	return "sysfs: the PCIe links have the width and speed that the devices can"
}

var (
	xmlPCI  = regexp.MustCompile(`<pci .*class="(0x[0-9a-f]+)"`)
	xmlRate = regexp.MustCompile(`link_speed="([\d.]+) GT/s\S*" link_width="(\d+)"`)
	xmlGPU  = regexp.MustCompile(`<gpu dev="(\d+)"`)
)

// readTopologyFile reads NCCL's topology: how many devices of each kind it has, and whether the links of GPUs are alike.
func readTopologyFile(b *block) string {
	gpus, nics, nodes := 0, 0, 0
	links := map[string]bool{}
	var named, lacking []string // GPUs by number, and those without NVLinks
	var at []int                // of lacking
	bare := false               // no NVLink of the last one was seen
	for i, l := range b.lines {
		if g := xmlGPU.FindStringSubmatch(l); g != nil {
			named, lacking, at, bare = append(named, g[1]), append(lacking, g[1]), append(at, i), true
		}
		if n := len(lacking); bare && strings.Contains(l, "<nvlink ") {
			lacking, at, bare = lacking[:n-1], at[:n-1], false
		}
		nodes += strings.Count(l, "<cpu ")
		m := xmlPCI.FindStringSubmatch(l)
		if m == nil {
			continue
		}
		switch {
		case strings.HasPrefix(m[1], "0x03"):
			gpus++
			if r := xmlRate.FindStringSubmatch(l); r != nil {
				links[r[1]+" GT/s x"+r[2]] = true
			}
		case strings.HasPrefix(m[1], "0x02"):
			nics++
		}
	}
	if n := len(lacking); n > 0 && n*2 < len(named) {
		for i, gpu := range lacking {
			b.fault("xml.odd", gpu, at[i], map[string]string{"gpu": gpu, "others": strconv.Itoa(len(named) - n)})
		}
		return ""
	}
	for _, pattern := range []string{`<nvlink [^>]*count="\d+"`, `<net [^>]*speed="\d+"`} {
		var found []string
		for i, l := range b.lines {
			v := compiled(`(?:count|speed)="\d+"`).FindString(compiled(pattern).FindString(l))
			if found = append(found, v); v == "" {
				found = found[:len(found)-1]
			} else if v != found[0] && len(found) > 1 {
				b.doubt(i, "links in the topology file differ: %s and %s", found[0], v)
				break
			}
		}
	}
	whole := strings.Contains(b.lines[len(b.lines)-1], "</system>") || len(b.lines) > 1 && strings.Contains(b.lines[len(b.lines)-2], "</system>")
	if len(links) > 1 {
		b.doubt(0, "the PCIe links of GPUs in the topology file differ: %s", strings.Join(slices.Sorted(maps.Keys(links)), ", "))
	}
	if gpus == 0 || len(links) > 1 || !whole || links["2.5 GT/s x1"] {
		return ""
	}
	text := fmt.Sprintf("the topology file is complete: %s with %s and %s", plural(nodes, "NUMA node", "NUMA nodes"), plural(gpus, "GPU", "GPUs"), plural(nics, "NIC", "NICs"))
	for l := range links {
		text += ", each GPU's PCIe link " + l
	}
	return text
}

func readLstopo(b *block) string {
	packages, nodes, gpus, nics := 0, 0, 0, 0
	for _, l := range b.lines {
		packages += strings.Count(l, "Package L#")
		nodes += strings.Count(l, "NUMANode L#")
		for _, c := range []string{"(3D)", "(VGA)", "(Display)", "(ProcessingAccelerator)"} {
			gpus += strings.Count(l, c)
		}
		nics += strings.Count(l, "(InfiniBand)") + strings.Count(l, "(Ethernet)")
	}
	if packages == 0 {
		return ""
	}
	return fmt.Sprintf("lstopo shows %s, %s, %s and %s; devices below one bridge are near each other", plural(packages, "processor package", "processor packages"), plural(nodes, "NUMA node", "NUMA nodes"), plural(gpus, "GPU or display", "GPUs or displays"), plural(nics, "NIC", "NICs"))
}

// readCapacity reads kubectl describe node: readNode says it if GPUs are lacking.
func readCapacity(b *block) string {
	var counts []string
	for _, l := range b.lines {
		if m := compiled(`^\s+(?:nvidia\.com/gpu|amd\.com/gpu): +(\d+)`).FindStringSubmatch(l); m != nil {
			counts = append(counts, m[1])
		}
	}
	if len(counts) < 2 || counts[0] != counts[1] || counts[0] == "0" {
		return ""
	}
	if compiled(`(?m)^Unschedulable: +true`).Match(b.in.files[b.at[0].file].Text) {
		b.doubt(0, "the node is cordoned (Unschedulable: true)")
	}
	return "kubectl describe node: all " + counts[0] + " GPUs of the node are allocatable"
}

// quiet are services that are active without a process, or need not run.
var quiet = regexp.MustCompile(`(openibd|mst|nvidia-fabricmanager|nvidia-persistenced|nvidia-imex|opensmd?|nvidia-dcgm|dcgm|slurmd|munge|nvidia-peermem|nv_peer_mem)\.service`)

// readService reads systemctl status of services whose state the rules about running ones do not have.
func readService(b *block) string {
	m := quiet.FindStringSubmatch(b.lines[0])
	i, state := b.find(compiled(`^\s+Active: (\w+) \(([\w-]+)\)`))
	switch {
	case m == nil || state == nil:
		return ""
	case state[1] == "active" && state[2] == "exited":
		return "systemctl: " + m[1] + " started and ended well (active, exited), as a service that only loads modules does"
	case state[1] == "failed":
		b.doubt(i, "the service %s failed", m[1])
	case state[1] == "inactive":
		b.fault("service.inactive", m[1], i, map[string]string{"service": m[1]})
	}
	b.known = true
	return ""
}
