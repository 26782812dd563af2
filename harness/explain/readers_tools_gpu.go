package explain

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// gpuTools are nvidia-smi, rocm-smi, amd-smi and DCGM.
var gpuTools = []tool{
	{"smi", `\| NVIDIA-SMI \d`, `[|+]|(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun) `, readSMITable},
	{"smi", `NVIDIA-SMI version +: `, `(?:NVML|DRIVER|CUDA) [vV]ersion +: `, func(b *block) string {
		v := b.fields(":")
		return "nvidia-smi --version: driver " + v["DRIVER version"] + ", CUDA up to " + v["CUDA Version"]
	}},
	{"smi", `=+NVSMI LOG=+|\s{4,}(?:Product Name +: (?:NVIDIA|Tesla)|(?:GPU Link Info|PCIe Generation|Clocks (?:Event|Throttle) Reasons)\s*$)`, `[ =]|Timestamp|Driver Version|CUDA|Attached|GPU [0-9A-Fa-f]`, readSMIQuery},
	{"smi", `(?:index|name|gpu_name|gpu_bus_id|uuid|gpu_uuid|timestamp|pci\.bus_id|driver_version|count|pstate)(?:, ?[\w.]+(?: \[\S+\])?){1,}\s*$`, `.*, `, readSMICSV},
	{"smi", `# gpu +(?:pwr|sm|gtemp|fb|mclk)`, `#| +\d`, readDmon},
	{"smi", `# gpu +pid`, `#| +\d`, func(b *block) string {
		return fmt.Sprintf("nvidia-smi pmon lists the processes on the GPUs, %d lines; a dash is a value that the process did not have in that second", len(b.lines)-2)
	}},
	{"smi", `\s*GPU \d+: .*\(UUID: GPU-`, `GPU \d+: |  MIG |\s+Link \d|\s*NVML|\t `, readSMIList},
	{"smi", `\s*GPU0[\t ].*GPU1|GPU0\s+X\s+(?:NV\d|PIX|PXB|PHB|NODE|SYS)|\s+GPU0\s+(?:NIC|mlx|CPU Affinity)`, ` ?(?:GPU|NIC|mlx5?_|ibp|bnxt|rdma)\w*[\t ]|Legend|  \S|NIC Legend`, readP2P},
	{"smi", `\| GPU instance(?: profile)?s: +\||\| Compute instances: +\|`, `[|+]`, readInstances},
	{"amd", `=+ (?:Weight|Hops|Link Type) between two GPUs =+`, `[=G ]`, readXGMI},
	{"amd", `LINK TYPE TABLE:`, `\s|[0-9a-f:.]{12}`, readXGMI},
	{"amd", `=+ (?:ROCm System Management Interface|Concise Info) =+`, `[=\dDGE( ]`, readRocm},
	{"dcgm", `\d+ GPUs? found\.`, `[|+]|\d+ `, readDiscovery},
	{"dcgm", `\| Overall Health +\|`, `[|+]`, readHealth},
	{"dcgm", `\| +NvLink Link Status|\+-+\+? *NvLink Link Status`, `[|+ ]|gpuId|NvSwitches|GPUs`, readDCGMLinks},
	{"dcgm", `#Entity +\S`, `#|ID|(?:GPU|GPU-I|GPU-CI|CPU|Switch) \d|\s+`, readDCGMDmon},
}

var (
	tableGPU  = regexp.MustCompile(`^\| +(\d+) +(\S.*?\S) +(On|Off|N/A) +\| +([0-9A-Fa-f:.]+) +\S+ +\| +(\S.*?) +\|`)
	tableUse  = regexp.MustCompile(`^\| *\S+ +(\d+)C +(P\d+) +(\S+) */ *(\d+)W +\| +(\d+)MiB / +(\d+)MiB +\| +(\S+?)%? `)
	tableHead = regexp.MustCompile(`Driver Version: (\S+) +CUDA Version: (\S+)`)
)

// gpuRow is a GPU of nvidia-smi's table.
type gpuRow struct {
	line                              int
	index, name, bus, ecc, cap, total string
	temperature, used, busy           float64
}

// readSMITable reads what nvidia-smi prints without options.
func readSMITable(b *block) string {
	var rows []gpuRow
	for i, l := range b.lines {
		if m := tableGPU.FindStringSubmatch(l); m != nil {
			rows = append(rows, gpuRow{line: i, index: m[1], name: m[2], bus: m[4], ecc: m[5]})
		} else if m := tableUse.FindStringSubmatch(l); m != nil && len(rows) > 0 {
			r := &rows[len(rows)-1]
			if r.cap = m[4]; m[3] != "N/A" {
				r.total = m[6]
			}
			r.temperature, _ = value(m[1])
			r.used, _ = value(m[5])
			r.busy, _ = value(m[7])
		}
		b.wrong = b.wrong || strings.Contains(l, "ERR!")
	}
	if len(rows) == 0 {
		return ""
	}
	b.peers(rows)
	read := slices.ContainsFunc(rows, func(r gpuRow) bool { return r.total != "" })
	var gpus, states []string
	var lines []int
	var names []string
	var heat, used, busy []float64
	for _, r := range rows {
		if n, ok := value(r.ecc); ok && n > 0 && strings.Trim(r.ecc, "0123456789") == "" {
			b.fault("smi.ecc", r.ecc, r.line, map[string]string{"gpu": r.index})
		}
		if r.total == "" && read {
			b.doubt(r.line, "of GPU %s the temperature, power or memory is no number", r.index)
		}
		b.hot(r.line, r.index, r.temperature)
		ecc := strings.NewReplacer("Off", "off", "N/A", "none").Replace(r.ecc)
		gpus, states, lines = append(gpus, "GPU "+r.index), append(states, cmpText(strings.Trim(ecc, "0123456789"), "on")), append(lines, r.line)
		names = append(names, r.name)
		heat, used, busy = append(heat, r.temperature), append(used, r.used), append(busy, r.busy)
	}
	if i := slices.Index(busy, 0); i >= 0 && len(rows) > 3 && !slices.ContainsFunc(slices.Concat(busy[:i], busy[i+1:]), func(n float64) bool { return n < 80 }) {
		b.doubt(lines[i], "%s is idle, and the others are busy: a rank is missing or waits, or the job does not use it", gpus[i])
	}
	if !slices.ContainsFunc(names, func(n string) bool { return n != names[0] }) {
		b.differ("ECC", gpus, states, lines)
	}
	head := ""
	if _, m := b.find(tableHead); m != nil {
		head = " (driver " + m[1] + ", CUDA up to " + m[2] + ")"
	}
	return fmt.Sprintf("nvidia-smi lists %s%s at %s C, %s MiB in use, %s %% busy; no ERR!, no uncorrected ECC error%s", several(names), head, span(heat), span(used), span(busy), alikeText(len(rows)))
}

func alikeText(n int) string {
	if n > 2 {
		return ", none differs from the others"
	}
	return ""
}

// peers compares the GPUs of one model: the limit of power, and the memory.
func (b *block) peers(rows []gpuRow) {
	for _, c := range []struct {
		name string
		get  func(gpuRow) string
	}{{"power limit in W", func(r gpuRow) string { return r.cap }}, {"memory in MiB", func(r gpuRow) string { return r.total }}} {
		var values []string
		for _, r := range rows {
			if r.name == rows[0].name && c.get(r) != "" {
				values = append(values, c.get(r))
			}
		}
		if len(values) != len(rows) {
			continue
		}
		common, others := odd(values)
		for _, i := range others {
			b.fault("smi.peer", values[i], rows[i].line, map[string]string{"gpu": rows[i].index, "what": c.name, "common": common})
		}
	}
	if n := len(rows); lacksGPU(n, rows[0].name) {
		b.fault("smi.count", strconv.Itoa(n), rows[n-1].line, map[string]string{"model": rows[0].name})
	}
}

var (
	queryGPU   = regexp.MustCompile(`^GPU ([0-9A-Fa-f]+:[0-9A-Fa-f]+:\S+)`)
	queryWrong = regexp.MustCompile(`^\s*(?:(?:SRAM|DRAM|Device Memory|Total|L2 Cache) Uncorrectable\S*(?: Parity| SEC-DED)? +: [1-9]|Remapping Failure Occurred +: Yes|(?:HW |SW Thermal |HW Thermal |HW Power Brake )Slowdown +: Active|Pending Page Blacklist +: Yes|GPU Recovery Action +: (?:Reset|Reboot|Drain)|.*GPU is lost|.*Unknown Error)`)
	queryShow  = []struct{ key, text string }{
		{"Performance State", "state"}, {"GPU Current Temp", "temperature"}, {"Average Power Draw", "power"}, {"Power Draw", "power"}, {"Current Power Limit", "limit"}, {"SM", "SM clock"},
	}
)

// readSMIQuery reads nvidia-smi -q and its sections.
func readSMIQuery(b *block) string {
	gpus, section := 0, ""
	var checked []string
	saw := map[string]bool{}
	values := map[string][]string{}
	for i, l := range b.lines {
		key, v, ok := strings.Cut(l, " : ")
		key, v = strings.TrimSpace(key), strings.TrimSpace(v)
		switch {
		case queryGPU.MatchString(l):
			gpus++
		case !ok && key != "":
			section = key
		case key == "Pending" && section == "Remapped Rows" && v == "Yes":
			b.fault("smi.remap", v, i, nil)
		case key == "Uncorrectable Error" && section == "Remapped Rows" && v != "0" && v != "N/A":
			b.in.add("smi.remapped", v, nil, b.at[i])
		case key == "Pending Page Blacklist" && v == "Yes":
			b.fault("smi.remap", v, i, nil)
		case key == "SRAM Threshold Exceeded" && v == "Yes", key == "None" && section == "Bank Remap Availability Histogram" && !strings.HasPrefix(v, "0 "):
			b.doubt(i, "%s: %s, which may be a reason to hand the GPU in", key, v)
		case key == "GPU Current Temp":
			n, _ := value(v)
			b.hot(i, strconv.Itoa(max(0, gpus-1)), n)
		case key == "Replays Since Reset":
			if n, ok := value(v); ok && n > 100 {
				b.fault("smi.replays", v, i, nil)
			}
		}
		if queryWrong.MatchString(l) {
			b.wrong = true
		}
		if ok && v != "N/A" {
			values[key] = append(values[key], v)
			saw[section] = true
		}
	}
	for _, c := range []struct{ section, text string }{
		{"Volatile", "no uncorrected ECC error"}, {"Remapped Rows", "no row remapping pending or failed"}, {"Clocks Event Reasons", "no hardware or thermal slowdown"}, {"Clocks Throttle Reasons", "no hardware or thermal slowdown"},
		{"Retired Pages", "no page retirement pending"}, {"PCI", "few or no PCIe replays"},
	} {
		if saw[c.section] {
			checked = append(checked, c.text)
		}
	}
	var shows []string
	for _, s := range queryShow {
		if v := values[s.key]; len(v) > 0 && len(shows) < 4 {
			shows = append(shows, s.text+" "+strings.Join(slices.Compact(slices.Clone(v[:min(len(v), 2)])), ", "))
		}
	}
	if gpus == 0 && len(values) > 3 { // a part of it
		gpus = 1
	}
	if gpus == 0 || len(checked)+len(shows) == 0 {
		return ""
	}
	return strings.TrimSuffix("nvidia-smi -q of "+plural(gpus, "GPU", "GPUs")+": "+strings.Join(slices.Concat(shows, checked), ", "), ": ")
}

// csvWrong says which columns of a query show a fault, by their value.
var csvWrong = []struct{ column, wrong string }{
	{`^ecc\.errors\.uncorrected\.`, `^[1-9]\d*$`},
	{`^gpu_recovery_action$`, `^(?:Reset|Reboot|Drain)`},
	{`^fabric\.state$`, `^(?:In Progress|Not Started)$`},
	{`^remapped_rows\.(?:pending|failure)$`, `^(?:[1-9]\d*|Yes)$`},
	{`^retired_pages\.pending$`, `^Yes$`},
	{`^clocks_(?:event|throttle)_reasons\.(?:hw_slowdown|hw_thermal_slowdown|hw_power_brake_slowdown|sw_thermal_slowdown)$`, `^Active$`},
}

// readSMICSV reads nvidia-smi --query-gpu=… --format=csv.
func readSMICSV(b *block) string {
	columns := strings.Split(b.lines[0], ",")
	at := map[string]int{}
	for i, c := range columns {
		columns[i], _, _ = strings.Cut(strings.TrimSpace(c), " ")
		at[columns[i]] = i
	}
	var rows [][]string
	for _, l := range b.lines[1:] {
		f := strings.Split(l, ",")
		for i := range f {
			f[i] = strings.TrimSpace(f[i])
		}
		if n := len(columns); len(f) == n || len(b.lines[0]) >= maxLine && len(f) > 2 { // of a long line there is the begin alone
			rows = append(rows, slices.Concat(f, make([]string, max(0, n-len(f))))[:n])
		}
	}
	if len(rows) == 0 {
		return ""
	}
	for r, f := range rows {
		b.csvRow(columns, at, f, r+1)
	}
	b.csvDoubts(columns, rows)
	b.csvPeers(columns, at, rows)
	return csvText(at, rows)
}

// csvText says what columns of a query show.
func csvText(at map[string]int, rows [][]string) string {
	var names, checked []string
	for _, f := range rows {
		if i, ok := at["name"]; ok {
			names = append(names, f[i])
		}
	}
	if i, ok := at["retired_pages.address"]; ok {
		n := 0
		for _, f := range rows {
			if strings.HasPrefix(f[i], "0x") {
				n++
			}
		}
		return fmt.Sprintf("nvidia-smi's query of retired pages lists %s", cmpText(map[bool]string{true: "none"}[n == 0], plural(n, "page, which is no longer used", "pages, which are no longer used")))
	}
	if _, ok := at["pid"]; ok {
		return "nvidia-smi's query lists " + plural(len(rows), "process", "processes")
	}
	has := func(pattern string) bool {
		for c := range at {
			if compiled(pattern).MatchString(c) {
				return true
			}
		}
		return false
	}
	for _, c := range []struct{ column, text string }{
		{`^ecc\.errors\.uncorrected`, "no uncorrected ECC error"}, {`^(?:remapped_rows|retired_pages)\.(?:pending|failure)`, "no remapping pending or failed"},
		{`reasons\.hw_`, "no hardware slowdown"}, {`^pcie\.link\.width\.max`, "full PCIe width"},
	} {
		if has(c.column) {
			checked = append(checked, c.text)
		}
	}
	text := "nvidia-smi's query lists " + cmpText(several(names), plural(len(rows), "GPU", "GPUs"))
	if len(checked) > 0 {
		text += ": " + strings.Join(checked, ", ")
	}
	return text
}

func cmpText(a, b string) string {
	if a != "" {
		return a
	}
	return b
}

func (b *block) csvRow(columns []string, at map[string]int, f []string, line int) {
	get := func(name string) string {
		if i, ok := at[name]; ok {
			return f[i]
		}
		return ""
	}
	gpu := cmpText(get("index"), cmpText(get("pci.bus_id"), strconv.Itoa(line-1)))
	for i, c := range columns {
		for _, w := range csvWrong {
			if compiled(w.column).MatchString(c) && compiled(w.wrong).MatchString(f[i]) {
				b.fault("smi.csv", c+" "+f[i], line, map[string]string{"gpu": gpu, "column": c, "value": f[i]})
			}
		}
	}
	w, ok := value(get("pcie.link.width.current"))
	if most, has := value(get("pcie.link.width.max")); ok && has && w < most {
		b.fault("pci.narrow", number(w), line, map[string]string{"device": "GPU " + gpu, "width": number(w), "best": number(most)})
	}
}

// csvPeers compares what is the same for all GPUs of one model.
func (b *block) csvPeers(columns []string, at map[string]int, rows [][]string) {
	same := compiled(`^(?:power\.limit|enforced\.power\.limit|memory\.total|clocks\.max\.\w+|pcie\.link\.(?:gen|width)\.max|ecc\.mode\.current|mig\.mode\.current|persistence_mode|vbios_version|driver_version|compute_mode)$`)
	for i, c := range columns {
		if !same.MatchString(c) {
			continue
		}
		var values []string
		for _, f := range rows {
			if n, ok := at["name"]; !ok || f[n] == rows[0][n] {
				values = append(values, f[i])
			}
		}
		if common, others := odd(values); len(values) == len(rows) {
			if len(others) == 0 && slices.ContainsFunc(values, func(v string) bool { return v != values[0] }) {
				b.doubt(1, "%s is not alike: %s", c, several(values))
			}
			for _, o := range others {
				gpu := strconv.Itoa(o)
				if n, ok := at["index"]; ok {
					gpu = rows[o][n]
				}
				b.fault("smi.peer", values[o], o+1, map[string]string{"gpu": gpu, "what": c, "common": common})
			}
		}
	}
}

var (
	listGPU   = regexp.MustCompile(`^\s*GPU \d+: (.*?) \(UUID`)
	listLink  = regexp.MustCompile(`^\s*Link (\d+)[:,] (.*)`)
	linkError = regexp.MustCompile(`^\s*Link (\d+): (\w[\w /]*(?:Errors?|failed events)): (\d+)`)
)

// readSMIList reads nvidia-smi -L and nvidia-smi nvlink.
func readSMIList(b *block) string {
	var names []string
	mig, links, errors := 0, 0, 0
	gpu := ""
	var speeds, where []string
	var at []int
	perGPU := map[string]int{}
	for i, l := range b.lines {
		if m := listGPU.FindStringSubmatch(l); m != nil {
			names, gpu = append(names, m[1]), strings.Fields(l)[1]
		} else if m := linkError.FindStringSubmatch(l); m != nil {
			if errors++; m[3] != "0" {
				b.fault("nvlink.errors", m[3], i, map[string]string{"gpu": strings.TrimSuffix(gpu, ":"), "link": m[1], "counter": m[2], "count": m[3]})
			}
		} else if m := listLink.FindStringSubmatch(l); m != nil {
			links++
			perGPU[gpu]++
			speeds, where, at = append(speeds, m[2]), append(where, "GPU "+gpu+" link "+m[1]), append(at, i)
		} else if strings.HasPrefix(strings.TrimSpace(l), "MIG ") {
			mig++
		}
		b.wrong = b.wrong || strings.Contains(l, "inactive") || strings.Contains(l, "Unable to") || strings.Contains(l, "inActive")
	}
	if len(perGPU) > 0 && links < len(names)*slices.Max(slices.Collect(maps.Values(perGPU))) && compiled(`GB/s|active`).MatchString(speeds[0]) {
		b.doubt(0, "not all GPUs are listed with the same number of NVLinks (%d of %d)", links, len(names)*slices.Max(slices.Collect(maps.Values(perGPU))))
	}
	if compiled(`GB/s`).MatchString(strings.Join(speeds, " ")) {
		b.differ("its speed", where, speeds, at)
	}
	b.missing(names)
	switch {
	case len(names) == 0:
		return ""
	case errors > 0:
		return fmt.Sprintf("nvidia-smi nvlink: all %d counters of replay, recovery and CRC errors are 0 (%s)", errors, several(names))
	case links > 0:
		return fmt.Sprintf("nvidia-smi nvlink lists %d links of %s, none inactive", links, several(names))
	case mig > 0:
		return fmt.Sprintf("nvidia-smi -L lists %s, divided into %s", several(names), plural(mig, "MIG device", "MIG devices"))
	}
	return "nvidia-smi -L lists " + several(names)
}

var p2pCell = regexp.MustCompile(`^(?:X|OK|CNS|GNS|TNS|NS|DR|U)$`)

// readP2P reads nvidia-smi topo -p2p and topo -m.
func readP2P(b *block) string {
	if f := strings.Fields(b.lines[0]); len(f) > 1 && f[1] == "X" { // its head was not copied
		head := strings.Join(b.in.headless(b.at[0]), " ")
		b.lines, b.at = slices.Insert(b.lines, 0, head), slices.Insert(b.at, 0, b.at[0])
	}
	columns := slices.DeleteFunc(strings.Fields(b.lines[0]), func(s string) bool { return !strings.HasPrefix(s, "GPU") })
	ok, cells, other := 0, 0, ""
	for _, l := range b.lines[1:] {
		f := strings.Fields(l)
		if len(f) < 2 || !strings.HasPrefix(f[0], "GPU") {
			continue
		}
		for _, c := range f[1:min(len(f), len(columns)+1)] {
			if cell.MatchString(c) && c != "X" {
				return readTopo(b)
			}
			if p2pCell.MatchString(c) && c != "X" {
				if cells++; c == "OK" {
					ok++
				} else {
					other = c
				}
			}
		}
	}
	switch {
	case cells == 0:
		return readTopo(b)
	case ok == cells:
		return fmt.Sprintf("nvidia-smi topo -p2p: all %d pairs of %d GPUs are OK: peer-to-peer works between all", cells, len(columns))
	}
	b.wrong = true // rules say what CNS, GNS, TNS and DR are
	if other == "NS" || other == "U" {
		b.fault("p2p.none", other, 1, map[string]string{"count": strconv.Itoa(cells - ok)})
	}
	return ""
}

// readTopo reads nvidia-smi topo -m: it compares the GPUs.
func readTopo(b *block) string {
	columns := strings.Fields(b.lines[0])
	if i := slices.Index(columns, "CPU"); i >= 0 {
		columns = columns[:i]
	}
	var gpus, kinds, nearest []string
	var lines []int
	nics := 0
	for _, c := range columns {
		if !strings.HasPrefix(c, "GPU") {
			nics++
		}
	}
	for i, l := range b.lines[1:] {
		f := strings.Fields(l)
		if len(f) <= len(columns) || !strings.HasPrefix(f[0], "GPU") {
			continue
		}
		var to []string
		best := len(distances)
		for c, name := range columns {
			if strings.HasPrefix(name, "GPU") && f[c+1] != "X" {
				if to = append(to, f[c+1]); !cell.MatchString(f[c+1]) {
					b.doubt(i+1, "%s to %s is %s", f[0], name, f[c+1])
				}
			} else if d := slices.Index(distances, f[c+1]); !strings.HasPrefix(name, "GPU") && d >= 0 {
				best = min(best, d)
			}
		}
		slices.Sort(to)
		gpus, kinds, lines = append(gpus, f[0]), append(kinds, strings.Join(slices.Compact(to), " and ")), append(lines, i+1)
		if best < len(distances) {
			nearest = append(nearest, distances[best])
		}
	}
	if len(gpus) == 0 {
		return ""
	}
	b.compareTopo(gpus, kinds, nearest, lines)
	return topoText(gpus, kinds, nearest, nics)
}

// distances are how far a NIC can be from a GPU, the nearest first.
var distances = []string{"PIX", "PXB", "PHB", "NODE", "SYS"}

func (b *block) compareTopo(gpus, kinds, nearest []string, lines []int) {
	nvlinks := func(k string) string { return strings.Join(compiled(`NV\d+`).FindAllString(k, -1), " and ") }
	if slices.ContainsFunc(kinds, func(k string) bool { return nvlinks(k) != nvlinks(kinds[0]) }) {
		b.doubt(lines[0], "the GPUs are not joined alike by NVLink: %s; right where only some have a bridge, else links are down", several(kinds))
	}
	common, others := odd(kinds)
	for _, i := range others {
		if compiled(`^NV\d+$`).MatchString(strings.Split(common, " and ")[0]) && len(others) == 1 && !strings.HasPrefix(kinds[i], common) {
			b.fault("topo.odd", kinds[i], lines[i], map[string]string{"gpu": gpus[i], "common": common})
		}
	}
	if common, others = odd(nearest); len(nearest) == len(gpus) {
		for _, i := range others {
			if slices.Index(distances, common) < 2 && slices.Index(distances, nearest[i]) > 2 {
				b.fault("topo.far", nearest[i], lines[i], map[string]string{"gpu": gpus[i], "common": common})
			}
		}
	}
}

func topoText(gpus, kinds, nearest []string, nics int) string {
	if len(gpus) == 1 {
		text := "nvidia-smi topo -m shows one GPU"
		if len(nearest) > 0 {
			text += " and " + plural(nics, "NIC", "NICs") + ", the nearest at " + nearest[0]
		}
		return text + ": there is no other GPU to reach"
	}
	kind := kinds[0]
	if slices.ContainsFunc(kinds, func(k string) bool { return k != kind }) {
		kind = strings.Join(slices.Compact(slices.Sorted(slices.Values(kinds))), "; ")
	}
	text := fmt.Sprintf("nvidia-smi topo -m shows %d GPUs, joined by %s", len(gpus), kind)
	if len(nearest) > 0 {
		text += fmt.Sprintf(", and %s: the nearest of a GPU is at %s", plural(nics, "NIC", "NICs"), strings.Join(slices.Compact(slices.Sorted(slices.Values(nearest))), " or "))
	}
	return text
}

// readInstances reads nvidia-smi mig -lgi, -lci and -lgip.
func readInstances(b *block) string {
	row := compiled(`^\| +\d+ +.*?(MIG \S+)`)
	var names []string
	for _, l := range b.lines {
		if m := row.FindStringSubmatch(l); m != nil {
			names = append(names, m[1])
		}
	}
	switch {
	case len(names) == 0:
		return ""
	case strings.Contains(b.lines[0], "profile"):
		return fmt.Sprintf("nvidia-smi mig lists %d profiles that can be created, with the instances that are still free and in total", len(names))
	}
	return "nvidia-smi mig lists " + several(names)
}
