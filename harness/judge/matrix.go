package judge

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/assay-hpc/assay/internal/words"
)

// matrices judges copies.
func matrices(in *input) (out []*Judgement) {
	all, names := in.readMatrices()
	if len(all) == 0 {
		return nil
	}
	g, name := (*gpu)(nil), ""
	machine := in.machine
	if machine != nil {
		g, name = machine.gpu, machine.GPU
	}
	for _, i := range slices.Sorted(maps.Keys(names)) {
		if found := findGPU(names[i]); found != nil {
			g, name = found, names[i]
			break
		}
	}
	disabled := map[bool]float64{} // by both: the median without peer access
	enabled := false
	for _, m := range all {
		if strings.HasSuffix(m.name, "P2P=Disabled") {
			disabled[m.both] = m.median()
		}
		enabled = enabled || strings.HasSuffix(m.name, "P2P=Enabled")
	}
	for _, m := range all {
		n := len(names)
		if n == 0 && machine != nil {
			n = machine.PerNode
		}
		m.divide(n)
		if m.kind == otherCopy && m.program == "p2pBandwidthLatencyTest" && enabled {
			continue // only to compare with
		}
		out = append(out, m.judge(in, g, machine, name, len(names), disabled[m.both]))
	}
	return out
}

// divide makes of a sum that stands alone the mean of the copies of n GPUs.
func (m *matrix) divide(n int) {
	if m.sum == 0 || n == 0 {
		return
	}
	if m.copies = n; m.kind == between {
		m.copies = n * (n - 1)
	}
	if m.copies > 0 {
		m.add(0, 1, m.sum/float64(m.copies))
	}
}

func (m *matrix) median() float64 {
	v := make([]float64, 0, len(m.cells))
	for _, c := range m.cells {
		if c.from != c.to {
			v = append(v, c.gbps)
		}
	}
	if len(v) == 0 {
		return 0
	}
	slices.Sort(v)
	return v[len(v)/2]
}

// reach returns what a copy should reach.
func (m *matrix) reach(g *gpu, machine *Machine) (s span, what string, ok bool) {
	if machine != nil && machine.hostPath != "" && (m.kind == toDevice || m.kind == fromDevice) {
		s = machine.host
		if m.both {
			s.low, s.high = s.low*0.65, s.high*2.02
		}
		return s, machine.hostPath, true
	}
	if g == nil {
		return span{}, "", false
	}
	switch m.kind {
	case toDevice, fromDevice:
		s, what = g.Host[m.kind-toDevice], slotName(g.PCIe)
		if strings.HasSuffix(m.name, "_sm") { // kernels reach the host less well than copy engines
			s.low *= 0.55
		}
	case between:
		switch {
		case g.Copy.low > 0:
			s, what = g.Copy, fmt.Sprintf("%s, %g GB/s a direction", g.Link, g.Uni)
			if m.program == "p2pBandwidthLatencyTest" { // its first pair is a little slower, and CUDA_VISIBLE_DEVICES decides which that is
				s.low *= 0.92
			}
			if strings.HasSuffix(m.name, "_sm") {
				s.low, s.high = s.low*0.85, s.high*1.06
			}
		case g.Slots:
			s, what = span{g.PCIe * 0.55, g.PCIe * 0.78, g.PCIe * 0.95}, slotName(g.PCIe)+" and no NVLink"
			if g.Pair.high > 0 {
				s.high, what = g.Pair.high, what+", or an NVLink bridge"
			}
			if g.ThroughHost && !m.peers {
				s.low = g.PCIe * 0.15
			}
		default:
			return span{}, "", false
		}
	default:
		return span{}, "", false
	}
	if m.both { // programs add both directions, or measure one beside the other
		s.low, s.high = s.low*0.65, s.high*2.02
		if g.PCIe >= 400 && m.kind != between { // NVLink-C2C: the processor's memory is the limit
			s.low, what = s.low*0.6, what+"; in both directions at once the processor's memory (LPDDR) is the limit"
		}
	}
	return s, what, s.low > 0
}

// slotName names a slot by its peak.
func slotName(gbps float64) string {
	for _, s := range []struct {
		gbps float64
		name string
	}{{15.75, "PCIe 3 (Gen3) x16"}, {15.5, "PCIe 4 (Gen4) x8"}, {31, "PCIe 4 (Gen4) x16"}, {63, "PCIe 5 (Gen5) x16"}, {121, "PCIe 6 (Gen6) x16"}, {450, "NVLink-C2C"}} {
		if s.gbps == gbps {
			return fmt.Sprintf("%s, %g GB/s", s.name, gbps)
		}
	}
	return fmt.Sprintf("the slot, %g GB/s", gbps)
}

// carries names the PCIe link that carries a bandwidth.
func carries(gbps float64) string {
	for _, s := range []struct {
		gbps float64
		name string
	}{{1.6, "PCIe 1 x8 or 3 x2"}, {3.2, "PCIe 3 x4, or 1 x16"}, {6.4, "PCIe 3 x8, or 4 x4"}, {12.7, "PCIe 3 x16, or 4 x8"}, {25.8, "PCIe 4 x16, or 5 x8"}, {54, "PCIe 5 x16"}} {
		if approximately(gbps, s.gbps, 0.14) {
			return "it is what " + s.name + " carries"
		}
	}
	return ""
}

// links names the NVLinks that carry copies of a bandwidth between two GPUs.
func links(gbps float64) string {
	for _, s := range []struct {
		low, high float64
		name      string
	}{
		{45, 58, "a bridge of NVLink 2 or 3 between two cards (RTX A6000, 3090), or one PCIe 5 slot"}, {84, 98, "NVLink 3 with four links (A30), or two links"}, {120, 150, "six links of NVLink 2 (V100)"},
		{160, 190, "eight links of NVLink 3 or 4 (A800, H800)"}, {240, 290, "twelve links of NVLink 3 (A100), or the NVLink bridge of H100 PCIe"}, {345, 415, "18 links of NVLink 4 (H100, H200, H20)"}, {690, 845, "18 links of NVLink 5 (B200, B300, GB200)"},
	} {
		if s.low <= gbps && gbps <= s.high {
			return "it is what " + s.name + " carries"
		}
	}
	return ""
}

// kinds says which pairs of GPUs have a link that the others lack, where there are two kinds of pairs: a bridge joins some
// of them.
func (m *matrix) kinds() string {
	least, most := math.Inf(1), 0.0
	for _, c := range m.cells {
		if c.from != c.to {
			least, most = min(least, c.gbps), max(most, c.gbps)
		}
	}
	if most < 3*least {
		return ""
	}
	var pairs []string
	fast, slow := 0.0, 0.0
	for _, c := range m.cells {
		switch {
		case c.from == c.to:
		case c.gbps > most*0.8:
			fast = max(fast, c.gbps)
			if c.from < c.to {
				pairs = append(pairs, fmt.Sprintf("%d-%d", c.from, c.to))
			}
		case c.gbps < least*2:
			slow = max(slow, c.gbps)
		default:
			return ""
		}
	}
	return fmt.Sprintf("there are two kinds of pairs: %s GB/s between GPUs %s, which a bridge or switch joins, and %s between the others, by PCIe or the host's memory", exact(fast), list(pairs, 8), figure(slow))
}

func (c cell) String() string {
	switch {
	case c.from < 0:
		return fmt.Sprintf("host to GPU %d", c.to)
	case c.to < 0:
		return fmt.Sprintf("GPU %d to host", c.from)
	}
	return fmt.Sprintf("GPU %d and GPU %d", c.from, c.to)
}

func (m *matrix) judge(in *input, g *gpu, machine *Machine, name string, count int, disabled float64) *Judgement {
	j := &Judgement{Subject: m.name + " by " + m.program, Line: m.line, Unit: "GB/s"}
	if name != "" {
		j.Understood = append(j.Understood, name)
	}
	if count > 0 {
		j.Understood = append(j.Understood, words.Count(count, "GPU"))
	}
	switch {
	case m.wrong > 0:
		j.Verdict = Fail
		j.Summary = fmt.Sprintf("the data that was copied is wrong (line %d: the pattern does not verify): a corrupt path or memory; its speed says nothing", m.wrong)
		j.Causes = []Cause{{
			Text:   "data is corrupted between devices, or in a device's memory",
			Remedy: []string{"repeat it with other pairs and smaller buffers (-b); IOMMU and ACS off between GPUs; nvidia-smi -q -d ECC,ROW_REMAPPER; dmesg for Xid and AER lines"},
			Decide: "compute-sanitizer or dcgmi diag -r 3 on the GPUs of that pair", Source: []string{"https://github.com/NVIDIA/nvbandwidth"},
		}}
		return j
	case len(m.cells) == 0 && m.sum > 0:
		j.Verdict = Undecidable
		j.Summary = fmt.Sprintf("%s GB/s is the sum over the GPUs, or their pairs: how many there are is not known", exact(m.sum))
		j.Ask = []string{"the whole output, with the matrices; or nvidia-smi -L, and --platform \"4 x GB200\""}
		return j
	case len(m.cells) == 0 && m.pageable:
		j.Verdict = Undecidable
		j.Summary = "copies from pageable memory: the host's own copying decides, and not the slot"
		j.Ask = []string{"the same with --memory=pinned, or nvbandwidth"}
		return j
	case len(m.cells) == 0:
		j.Verdict = Invalid
		j.Summary = "the test was waived, and nothing measured: the machine cannot do it (one GPU, or no peer access (P2P) between its GPUs)"
		j.Ask = []string{"nvidia-smi topo -p2p r, if it has several GPUs"}
		return j
	}
	s, what, known := m.reach(g, machine)
	median := m.median()
	if median == 0 {
		median = m.cells[0].gbps
	}
	var low, high []cell
	least, most := m.cells[0], m.cells[0]
	for _, c := range m.cells {
		switch {
		case known && c.gbps < s.low, c.gbps < median*0.8 && len(m.cells) > 2 && (g == nil || !g.Slots || m.kind != between) && m.kind != otherCopy:
			low = append(low, c)
		case known && c.gbps > s.high*1.03:
			high = append(high, c)
		}
		if c.gbps < least.gbps {
			least = c
		}
		if c.gbps > most.gbps {
			most = c
		}
	}
	row := func(label string, v float64) {
		d := Judged{What: label, Measured: v, Verdict: Undecidable}
		if known {
			d.Low, d.High, d.Verdict = s.low, s.high, OK
			switch {
			case v < s.low:
				d.Verdict = Low
			case v > s.high*1.03:
				d.Verdict = Impossible
			}
		}
		j.Rows = append(j.Rows, d)
	}
	row("median", median)
	if len(m.cells) > 1 {
		row("lowest ("+least.String()+")", least.gbps)
		row("highest ("+most.String()+")", most.gbps)
	}
	if g != nil {
		j.Sources = append(j.Sources, g.Name+": "+g.Source)
	}
	reach := fmt.Sprintf("where %s to %s is right (%s)", figure(s.low), figure(s.high), what)
	switch {
	case m.kind == between && disabled > 0 && !known && median < 0.8*disabled:
		j.Verdict = Slow
		j.Summary = fmt.Sprintf("with peer access %s GB/s, and by the host's memory %s: the direct path is slower than the detour", figure(median), figure(disabled))
		j.Causes = append(j.Causes, Cause{
			Text:   "peer traffic is sent through the CPU: ACS or IOMMU on (a VM, too), or a root complex that is slow for it",
			Remedy: []string{"ACS off on the switches (lspci -vvv | grep ACSCtl: all minus), IOMMU off or pass-through (iommu=pt); until then NCCL_P2P_DISABLE=1, or NCCL_P2P_LEVEL=PIX"},
			Decide: "nvidia-smi topo -m; lspci -vvv | grep ACSCtl", Source: []string{"https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/troubleshooting.html#pci-access-control-services-acs"},
		})
	case m.kind == otherCopy && m.program == "p2pBandwidthLatencyTest":
		j.Verdict = OK
		j.Summary = fmt.Sprintf("%s GB/s through host memory, without peer access (P2P)", figure(median))
		if text := carries(median); text != "" {
			j.Summary += "; " + text
		}
	case m.kind == otherCopy && strings.Contains(m.name, "local") || m.name == "device to device":
		m.local(j, in, name, median)
	case m.kind == otherCopy:
		j.Verdict = Undecidable
		j.Summary = fmt.Sprintf("%s GB/s: for this test no reference is known", figure(median))
		j.hideRows = true
		if len(low) == 0 {
			j.Verdict = OK
			j.Summary = fmt.Sprintf("%s GB/s, all devices alike; for this test no other reference is known", figure(median))
		}
	case len(high) > 0 && len(high)*2 > len(m.cells):
		j.Verdict = Impossible
		j.Summary = fmt.Sprintf("%s GB/s is more than %s carries: the GPU is another one, or both directions are added", figure(median), what)
	case known && m.kind != between && median < 0.62*s.typical && median > 0.38*s.typical && strings.Contains(name, "Laptop"):
		j.Verdict = OK
		j.Summary = fmt.Sprintf("%s GB/s: %s; GPUs of laptops have eight lanes (x8)", figure(median), cmp.Or(carries(median), "about half of "+what))
	case known && m.kind != between && s.low < 0.5*s.typical && median < 0.62*s.typical && median > 0.38*s.typical && machineUnknown(in):
		j.Verdict = Undecidable
		j.Summary = fmt.Sprintf("%s GB/s: half of what %s gives; some boards and clouds give this GPU eight lanes by design, on others a link is degraded", figure(median), what)
		j.Ask = []string{"the machine or instance type; nvidia-smi -q | grep -A12 'GPU Link Info' under load (width, current and max)"}
	case known && m.kind == toDevice && strings.HasSuffix(m.name, "_sm") && median < 0.75*s.typical && !in.has("memcpy_ce"):
		j.Verdict = Undecidable
		j.Summary = fmt.Sprintf("%s GB/s by kernels (SM), which read the host less well than copy engines (CE): %s for those; whether the link is slow, they say", figure(median), reach)
		j.Ask = []string{"nvbandwidth -t host_to_device_memcpy_ce device_to_host_memcpy_ce"}
	case len(low) == 0 && known:
		j.Verdict = OK
		j.Summary = fmt.Sprintf("%s GB/s, %s", figure(median), reach)
	case len(low) == 0:
		j.Verdict = Undecidable
		j.Summary = fmt.Sprintf("%s GB/s, all devices alike; whether that is right depends on the GPU, which is not known", figure(median))
		if text := carries(median); text != "" && m.kind != between {
			j.Summary += "; " + text
		}
		if text := links(median); text != "" && m.kind == between && !m.both {
			j.Summary += "; " + text
		}
		j.Ask = []string{"the GPU's model: nvidia-smi -L, or --platform"}
	case len(low)*2 > len(m.cells):
		j.Verdict = Slow
		j.Summary = fmt.Sprintf("%s GB/s, %s", figure(median), reach)
		m.allLow(j, in, g, median, disabled)
	default:
		j.Verdict = Slow
		j.Summary = fmt.Sprintf("%s %s GB/s where the others have %s", m.culprits(low), figure(low[0].gbps), figure(median))
		m.someLow(j, low, g)
	}
	if m.kind == between && len(m.cells) > 2 {
		if text := m.kinds(); text != "" && (g == nil || g.Slots) {
			j.Notes = append(j.Notes, text)
		}
	}
	if m.sum > 0 {
		j.Notes = append(j.Notes, fmt.Sprintf("%s is the sum; judged is the mean of its %s, and one that is slow would not show: the matrices do", exact(m.sum), words.Count(m.copies, "copy")))
	}
	if m.devices > 1 {
		j.Notes = append(j.Notes, fmt.Sprintf("bandwidthTest adds up its %d devices: figures here are those of one", m.devices))
	}
	if m.program == "bandwidthTest" && m.kind != otherCopy {
		j.Notes = append(j.Notes, "bandwidthTest is no measurement by NVIDIA's own words; nvbandwidth is")
	}
	return j
}

func machineUnknown(in *input) bool { return in.machine == nil || in.machine.key == "" }

// local judges copies within a device by its memory.
func (m *matrix) local(j *Judgement, in *input, name string, got float64) {
	twice := 2.0 // every byte is read and written
	if m.program == "bandwidthTest" {
		twice = 1 // it counts both
	}
	j.Verdict = Undecidable
	j.Summary = fmt.Sprintf("%s GB/s within a device", figure(got))
	j.aside = true
	if twice == 2 {
		j.Notes = append(j.Notes, fmt.Sprintf("every byte is counted once, and read and written: twice that (%s GB/s) is what to compare with the memory's data sheet; copy engines (ce) do not reach it alone, kernels (sm) come close", figure(2*got)))
	}
	_, g := in.db.IdentifyGPU("", name)
	if g == nil || !g.MemoryGBps.Known() {
		if g := findGPU(name); g != nil && g.Memory > 0 {
			m.memory(j, got*twice, g.Memory)
			return
		}
		j.Ask = append(j.Ask, "the GPU's model: nvidia-smi -L, or --platform")
		return
	}
	m.memory(j, got*twice, g.MemoryGBps.Value)
}

func (m *matrix) memory(j *Judgement, got, peak float64) {
	switch part := got / peak; {
	case part > 1.03:
		j.Verdict = Impossible
		j.Summary = fmt.Sprintf("%s GB/s is more than the memory carries (%.0f): the buffer fits in the L2 cache, and that is what was measured; take buffers of 512 MiB and more", figure(got), peak)
	case part > 0.6 && m.program == "bandwidthTest", part > 0.7:
		j.Verdict = OK
		j.Summary = fmt.Sprintf("%s GB/s of the memory's %.0f, read and written", figure(got), peak)
	default:
		j.Summary = fmt.Sprintf("%s GB/s of the memory's %.0f, read and written: right for a copy engine alone, low for a kernel", figure(got), peak)
	}
}

// culprits names the devices that copies which are low have in common.
func (m *matrix) culprits(low []cell) string {
	if m.kind == between && len(low) > 1 {
		count := map[int]int{}
		for _, c := range low {
			count[c.from]++
			count[c.to]++
		}
		maps.DeleteFunc(count, func(_, n int) bool { return n < len(low) })
		if len(count) == 1 { // two are a pair, measured both ways
			for d := range count {
				return fmt.Sprintf("all copies of GPU %d that are low have", d)
			}
		}
	}
	var out []string
	for _, c := range low {
		out = append(out, c.String())
	}
	return list(out, 4) + ": " + words.Form(len(low), "copy") + " with"
}

// someLow adds the causes of one device that differs from the others.
func (m *matrix) someLow(j *Judgement, low []cell, g *gpu) {
	if m.kind == between {
		j.Causes = append(j.Causes, Cause{
			Text:   "links of one GPU are down or degraded, or the pair has no direct path",
			Remedy: []string{"nvidia-smi nvlink -s and -e for that GPU; dmesg for Xid 74, 144 to 150; nvidia-smi topo -m for the path of the pair", "a reset of all GPUs of the node (nvidia-smi -r) or a cold start; if it stays, the GPU or its board is for the vendor"},
			Decide: "nvidia-smi nvlink -s -i N", Source: []string{"https://docs.nvidia.com/deploy/xid-errors/"},
		})
		return
	}
	j.Causes = append(j.Causes, Cause{
		Text:   "the slot of that GPU has fewer lanes or a lower generation, or memory and program are on the other NUMA node",
		Remedy: []string{"nvidia-smi -q | grep -A12 'GPU Link Info' while the test runs (generation and width, current and max); reseat the GPU or its riser; dmesg for AER lines", "numactl --cpunodebind and --membind to the GPU's node"},
		Decide: "nvidia-smi -q -i N | grep -A12 'GPU Link Info' while the test runs", Source: []string{"https://github.com/NVIDIA/nvbandwidth"},
	})
}

// allLow adds the causes of copies that are all low.
func (m *matrix) allLow(j *Judgement, in *input, g *gpu, median, disabled float64) {
	switch {
	case m.kind == between && g != nil && !g.Slots && g.PCIe > 0 && median < g.PCIe && g.PCIe < 200:
		text := fmt.Sprintf("copies do not use %s: %s is what PCIe or host memory carries", g.Link, figure(median))
		if disabled > 0 && approximately(median, disabled, 0.25) {
			text += "; with and without peer access it is the same"
		}
		j.Causes = append(j.Causes, Cause{
			Text:   text,
			Remedy: []string{"nvidia-smi nvlink -s, systemctl status nvidia-fabricmanager (NVSwitch), no MIG, peer access in the VM (topology of the fabric passed through)"},
			Decide: "nvidia-smi topo -p2p n and topo -m", Source: []string{"https://docs.nvidia.com/datacenter/tesla/fabric-manager-user-guide/"},
		})
	case m.kind == between && g != nil && g.Slots:
		j.Causes = append(j.Causes, Cause{
			Text:   fmt.Sprintf("peer access goes through the CPU: %s of %g GB/s of a slot (ACS or IOMMU on, GPUs on two sockets, or no peer access at all)", figure(median), g.PCIe),
			Remedy: []string{"nvidia-smi topo -p2p r: OK for every pair; ACS off (lspci -vvv | grep ACSCtl: all minus), IOMMU off or pass-through (iommu=pt)", "on GeForce GPUs there is no peer access"},
			Decide: "nvidia-smi topo -p2p r and topo -m; lspci -vvv | grep ACSCtl", Source: []string{"https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/troubleshooting.html#pci-access-control-services-acs"},
		})
	case m.kind == between:
		j.Causes = append(j.Causes, Cause{
			Text:   fmt.Sprintf("links that are down, or GPUs at low clocks: %s of %s", figure(median), figure(g.Copy.typical)),
			Remedy: []string{"nvidia-smi nvlink -s (links and their speed), nvidia-smi -q -d CLOCK"},
			Decide: "nvidia-smi nvlink -s", Source: []string{"https://github.com/NVIDIA/nvbandwidth"},
		})
	default:
		text := fmt.Sprintf("the slots have fewer lanes or a lower generation than the GPU takes, or memory is on the other NUMA node: %s of %s", figure(median), figure(g.Host[0].typical))
		if s := carries(median); s != "" {
			text += "; " + s
		}
		j.Causes = append(j.Causes, Cause{
			Text:   text,
			Remedy: []string{"nvidia-smi -q | grep -A12 'GPU Link Info' while the test runs (idle GPUs lower their link); the BIOS setting of the slot; numactl to the GPU's node; a VM's NUMA nodes", "on AMD CPUs: NPS, IOMMU, preferred I/O"},
			Decide: "nvidia-smi -q | grep -A12 'GPU Link Info'; lspci -vv | grep LnkSta", Source: []string{"https://github.com/NVIDIA/nvbandwidth"},
		})
	}
	j.fromLog(in)
}
