package judge

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// A perfRun is what one run of perftest printed.
type perfRun struct {
	test    string // "RDMA_Write BW Test"
	latency bool
	both    bool   // directions at once
	unit    string // "Gb/sec", "MB/sec", "usec"
	header  map[string]string
	rows    []perfRow
	line    int
	command string
	gpu     bool     // its memory
	gids    []string // of both sides
}

type perfRow struct {
	bytes      int64
	peak, mean float64 // Gb/s, or microseconds: least and typical
	tail       float64 // microseconds
}

var (
	perfTitle   = regexp.MustCompile(`^\s*((?:RDMA_Write|RDMA_Read|Send|Atomic_\w+|Raw Ethernet \w+|Write|Read)\b.*?(BW|Latency|Post List|Bandwidth)[ \w]*Test)\s*$`)
	perfHeader  = regexp.MustCompile(`([A-Za-z][\w*. ]*?)\s*:\s*(\S[^:\t]*?)(?:\s{2,}|\t|$)`)
	perfColumns = regexp.MustCompile(`#bytes\s+#iterations\s+(?:BW peak\[([GM]i?[bB]/sec)\]|t_min\[(usec)\])`)
	perfCommand = regexp.MustCompile(`\bib_(?:write|read|send|atomic)_(?:bw|lat)\b.*`)
	perfAddress = regexp.MustCompile(`^\s*(local|remote) address: LID 0x([0-9a-f]+)`)
	perfGID     = regexp.MustCompile(`^\s*GID: ([0-9a-fA-F:]{20,})`)
	numbers     = regexp.MustCompile(`^\s*(\d+)\s+(\d+)\s+((?:[0-9.]+\s*)+)$`)
)

// readPerftest reads the runs of perftest.
func readPerftest(lines []line) (all []*perfRun) {
	var p *perfRun
	last, gpu := "", false
	for _, x := range lines {
		l := x.text
		if strings.Contains(l, "ib_") {
			if m := perfCommand.FindString(l); m != "" {
				last = m
			}
		}
		if strings.Contains(l, "cuMemAlloc") || strings.Contains(l, "initializing CUDA") || strings.Contains(l, "Using DMABUF") {
			gpu = true
		}
		if p == nil && !strings.Contains(l, "Test") && !strings.Contains(l, "#bytes") {
			continue
		}
		if m := perfTitle.FindStringSubmatch(l); m != nil {
			p = &perfRun{test: strings.TrimSpace(m[1]), header: map[string]string{}, line: x.number, command: last}
			p.both = strings.Contains(strings.ToLower(m[1]), "bidirectional") || strings.Contains(last, " -b ") || strings.HasSuffix(last, " -b")
			p.gpu = gpu || strings.Contains(last, "--use_cuda") || strings.Contains(last, "--use_rocm")
			gpu = false
			all = append(all, p)
			last = ""
			continue
		}
		if m := perfColumns.FindStringSubmatch(l); m != nil {
			if p == nil || len(p.rows) > 0 { // what is pasted begins at the columns
				p = &perfRun{header: map[string]string{}, line: x.number, command: last, gpu: gpu}
				gpu = false
				all = append(all, p)
			}
			p.unit, p.latency = m[1]+m[2], m[2] != ""
			continue
		}
		if p == nil || len(l) > 400 {
			continue
		}
		if m := numbers.FindStringSubmatch(l); m != nil && p.unit != "" {
			p.row(m)
		} else if len(p.rows) == 0 {
			if m := perfAddress.FindStringSubmatch(l); m != nil {
				p.header[m[1]+" lid"] = m[2]
			}
			if m := perfGID.FindStringSubmatch(l); m != nil {
				p.gids = append(p.gids, m[1])
			}
			for _, m := range perfHeader.FindAllStringSubmatch(l, -1) {
				p.header[strings.ToLower(strings.TrimSpace(m[1]))] = strings.TrimSpace(m[2])
			}
			if strings.Contains(l, "CUDA") && strings.Contains(strings.ToLower(l), "device") {
				p.gpu = true
			}
		}
	}
	return slices.DeleteFunc(all, func(p *perfRun) bool { return len(p.rows) == 0 })
}

func (p *perfRun) row(m []string) {
	r := perfRow{}
	r.bytes, _ = strconv.ParseInt(m[1], 10, 64)
	f := strings.Fields(m[3])
	v := make([]float64, 4)
	for i := range min(len(f), 4) {
		v[i], _ = strconv.ParseFloat(f[i], 64)
	}
	if p.latency { // t_min t_max t_typical t_avg
		r.peak, r.tail, r.mean = v[0], v[1], v[2]
		if len(f) < 3 {
			r.mean = v[0]
		}
	} else {
		r.peak, r.mean = p.gbit(v[0]), p.gbit(v[1])
	}
	p.rows = append(p.rows, r)
}

// gbit converts: perftest's MB are 2^20 bytes.
func (p *perfRun) gbit(v float64) float64 {
	switch p.unit {
	case "MB/sec", "MiB/sec":
		return v * (1 << 20) * 8 / 1e9
	case "GB/sec":
		return v * 8
	}
	return v
}

// jsonPerftest reads what perftest writes with --out_json.
func (in *input) jsonPerftest() (out []*perfRun) {
	for _, doc := range in.docs {
		d := object(doc)
		info := object(d, "test_info")
		if info == nil || d["results"] == nil {
			continue
		}
		p := &perfRun{header: map[string]string{}, line: 1, unit: "Gb/sec"}
		for k, v := range info {
			p.header[strings.ToLower(strings.ReplaceAll(k, "_", " "))] = text(v)
		}
		p.test = p.header["test"]
		p.latency = strings.Contains(p.test, "Latency") || strings.Contains(p.test, "lat")
		rows := array(d["results"])
		if rows == nil {
			rows = []any{d["results"]}
		}
		for _, v := range rows {
			r := object(v)
			row := perfRow{}
			size, _ := number(r["MsgSize"])
			row.bytes = int64(size)
			if p.latency {
				row.peak, _ = number(r["t_min"])
				row.mean, _ = number(r["t_typical"])
				row.tail, _ = number(r["t_max"])
			} else {
				row.peak, _ = number(r["BW_peak"])
				row.mean, _ = number(r["BW_average"])
				if m, ok := number(r["MsgRate"]); ok && m > 0 && size > 0 { // MsgRate is in millions: it says which unit the rest is in
					if got := m * 1e6 * size * 8 / 1e9; got > 0 && row.mean > 0 && row.mean/got > 50 {
						row.peak, row.mean = row.peak*(1<<20)*8/1e9, row.mean*(1<<20)*8/1e9
					}
				}
			}
			if row.mean > 0 {
				p.rows = append(p.rows, row)
			}
		}
		if len(p.rows) > 0 {
			out = append(out, p)
		}
	}
	return out
}

const loopbackNote = "both sides are the same port: a loopback. It says what the slot (PCIe) and the NIC carry, and nothing of the network"

// loopback says that both sides are the same port.
func (p *perfRun) loopback() bool {
	local := p.header["local lid"]
	return local != "" && local != "0000" && local == p.header["remote lid"] || len(p.gids) == 2 && p.gids[0] == p.gids[1] ||
		strings.Contains(p.command, "127.0.0.1") || strings.Contains(p.command, "localhost")
}

// perftests judges runs of perftest.
func perftests(in *input) (out []*Judgement) {
	in.barePerftest()
	for _, p := range append(readPerftest(in.lines), in.jsonPerftest()...) {
		if p.latency {
			out = append(out, p.judgeLatency())
		} else {
			out = append(out, p.judge(in))
		}
	}
	return out
}

var (
	standardRates = []float64{1, 2.5, 5, 10, 25, 40, 50, 56, 100, 200, 400, 800}
	linkState     = regexp.MustCompile(`LnkSta:\s*Speed ([0-9.]+)GT/s.*?Width x(\d+)`)
	perLane       = map[string]float64{"2.5": 0.25, "5": 0.5, "8": 0.985, "16": 1.97, "32": 3.94, "64": 7.56} // GB/s
)

// rate determines the rate of the port, Gb/s, and who says so; 0: unknown.
func (p *perfRun) rate(in *input) (gbit float64, from string) {
	if m := in.machine; m != nil && m.Gbit > 0 {
		if m.gpu != nil && m.gpu.Port > 0 {
			return m.gpu.Port, fmt.Sprintf("%s: %g Gb/s ports whose slot carries %g", m.Name, m.Gbit, m.gpu.Port)
		}
		return m.Gbit, m.nics() + " (" + m.From + ")"
	}
	if m, line := in.find(ethSpeed, "000"); m != nil {
		v, _ := strconv.ParseFloat(m[1]+m[2], 64)
		return v, fmt.Sprintf("line %d", line)
	}
	if m, line := in.find(ibRate, "ate"); m != nil {
		v, _ := strconv.ParseFloat(m[1], 64)
		return v, fmt.Sprintf("line %d", line)
	}
	return 0, ""
}

func (p *perfRun) subject() string {
	name := strings.Fields(p.command + " ")
	s := p.test
	if len(name) > 0 {
		s = name[0]
	}
	if s == "" {
		s = "perftest"
	}
	if d := p.header["device"]; d != "" {
		s += " on " + d
	}
	return s
}

func (p *perfRun) judge(in *input) *Judgement {
	j := &Judgement{Subject: p.subject(), Line: p.line, Unit: "Gb/s"}
	j.Understood = p.understood()
	top := p.rows[len(p.rows)-1]
	for _, r := range p.rows {
		if r.mean > top.mean && r.bytes >= 32<<10 {
			top = r
		}
	}
	gbit, from := p.rate(in)
	assumed := false
	directions := 1.0
	if p.both {
		directions = 2
	}
	if gbit == 0 {
		for _, rate := range standardRates {
			if f := top.mean / rate / directions; rate >= 100 && f > 0.88 && f < 0.995 {
				gbit, from, assumed = rate, "the figure itself: it is close to a line rate", true
			}
		}
	}
	if gbit == 0 {
		j.Verdict = Undecidable
		j.Summary = fmt.Sprintf("%s Gb/s at %s cannot be judged: the rate of the port is not known", exact(top.mean), sizeText(top.bytes))
		for _, rate := range standardRates {
			if f := top.mean / rate / directions; f > 0.88 && f < 0.995 {
				j.Summary += fmt.Sprintf(" (it would be good for %g Gb/s)", rate)
			}
		}
		j.Ask = append(j.Ask, "the rate of the ports: ibstat (Rate), or cat /sys/class/infiniband/*/ports/1/rate; or --platform \"8 x 400G RoCE\"", "the slot: lspci -vv -s ADDRESS | grep LnkSta")
		if top.bytes < 8<<10 {
			j.Notes = append(j.Notes, fmt.Sprintf("messages of %s measure the rate of messages, one core's work and a start-up, and not the bandwidth of a link: larger ones (-s 65536, -a) and more of them (-n 5000, or -D 10) do", sizeText(top.bytes)))
		}
		if p.loopback() {
			j.Notes = append(j.Notes, loopbackNote)
		}
		j.unit(p)
		return j
	}
	if p.loopback() {
		j.Notes = append(j.Notes, loopbackNote)
		defer func() {
			if j.Verdict == Slow {
				j.Verdict, j.Causes = Invalid, nil
				j.Summary = "no link was measured: both sides are the same port (a loopback). " + j.Summary
			}
		}()
	}
	if in.machine != nil && in.machine.gpu != nil && in.machine.gpu.Port > 0 {
		j.Notes = append(j.Notes, fmt.Sprintf("%g Gb/s is what the slot of one interface carries, half of the card; the port's %g need both of its interfaces at once", in.machine.gpu.Port, in.machine.Gbit))
	}
	line := gbit
	if g := p.coded(gbit); g < gbit {
		line = g
		j.Notes = append(j.Notes, fmt.Sprintf("InfiniBand of %g Gb/s (SDR, DDR, QDR) sends ten bits for eight of data: %g Gb/s of data", gbit, g))
	}
	if m, at := in.find(linkState, "LnkSta"); m != nil && (in.machine == nil || in.machine.gpu == nil || in.machine.gpu.Port == 0) {
		width, _ := strconv.ParseFloat(m[2], 64)
		if slot := perLane[strings.TrimSuffix(m[1], ".0")] * width * 8; slot > 0 && slot*0.9 < gbit {
			line = slot * 0.92
			j.Notes = append(j.Notes, fmt.Sprintf("PCIe %s GT/s x%s carries about %.0f Gb/s (line %d), less than the port's %g", m[1], m[2], line, at, gbit))
		}
	}
	eff := 0.98
	ethernet := strings.EqualFold(p.header["link type"], "Ethernet")
	if mtu := p.mtu(); ethernet && mtu > 0 && mtu < 2048 {
		eff = float64(mtu) / float64(mtu+85)
	}
	low, high := line*eff*0.95*directions, line*0.996*directions
	if in.machine != nil && in.machine.gpu != nil && in.machine.gpu.Port > 0 {
		low = line * 0.78 * directions
	}
	if p.both {
		low *= 0.93
	}
	if strings.Contains(p.test, "Read") && p.qps() == 1 && gbit >= 400 { // so many reads are under way, and no more
		low *= 0.84
		j.Notes = append(j.Notes, "reads of one queue pair: 16 that are under way fill no port of 400 Gb/s; -q 4 shows what it carries")
	}
	j.Sources = append(j.Sources, fmt.Sprintf("%g Gb/s: %s; headers and acknowledgements take 2 to %.0f %% of it (MTU)", gbit, from, 100*(1-eff*0.95)))
	for _, r := range p.rows {
		d := Judged{What: sizeText(r.bytes), Bytes: r.bytes, Measured: r.mean, Low: low, High: high, Verdict: OK}
		switch {
		case r.bytes < 32<<10:
			d.Verdict, d.Low = Small, 0
		case r.mean > high*1.02:
			d.Verdict = Impossible
		case r.mean < low:
			d.Verdict = Low
		}
		j.Rows = append(j.Rows, d)
	}
	where := fmt.Sprintf("%s Gb/s of %g at %s", exact(top.mean), gbit*directions, sizeText(top.bytes))
	switch {
	case top.bytes <= 4096 && top.mean < low && top.mean*1e9/8/float64(top.bytes) > 3e6:
		j.Verdict = Slow
		j.Summary = fmt.Sprintf("%s: %.1f million messages a second, which is about what one queue pair sends; at this size the message rate is the limit, not the link", where, top.mean*1e3/8/float64(top.bytes))
		small := "small messages: each is a packet of its own"
		if p.header["connection type"] == "UD" {
			small += ", as all of UD are, which carries no more than an MTU a message"
		}
		j.Causes = []Cause{{
			Text:   small,
			Remedy: []string{"for bandwidth: -s 65536 and more over RC (ib_write_bw), or -q 8; for the rate of messages: more queue pairs, -l (post lists), inline data"},
			Decide: "the same with -q 8: the rate grows with the queue pairs", Source: []string{"https://github.com/linux-rdma/perftest"},
		}}
	case top.bytes < 32<<10:
		j.Verdict = Undecidable
		j.Summary = fmt.Sprintf("%s: messages are too small to judge bandwidth by (%s or more is right at 64 KiB and above)", where, figure(low))
		j.Ask = append(j.Ask, "a run with -s 1048576, or -a")
	case top.mean > high*1.02:
		j.Verdict = Impossible
		j.Summary = where + " is more than the port carries: its rate is another one, or both directions are counted (-b), or MB are read as Gb"
	case top.mean >= low:
		j.Verdict = OK
		j.Summary = fmt.Sprintf("%s, where %s to %s is right", where, figure(low), figure(high))
		if assumed {
			j.Summary += fmt.Sprintf(", if the port has %g Gb/s", gbit)
		}
	default:
		j.Verdict = Slow
		j.Summary = fmt.Sprintf("%s, where %s to %s is right", where, figure(low), figure(high))
		p.causes(j, in, top, low, gbit)
	}
	if m, at := in.find(endedBadly, ""); m != nil && at > p.line && j.Verdict != Impossible {
		j.ended(in, m[1], at)
	}
	if p.both {
		j.Notes = append(j.Notes, fmt.Sprintf("a bidirectional run prints the sum of both directions: %s Gb/s in each direction", figure(top.mean/2)))
	}
	j.unit(p)
	return j
}

// endedBadly is what perftest prints when a size fails; the group is the status of the completion.
var endedBadly = regexp.MustCompile(`Failed status (\d+): wr_id|Failed to complete run_iter`)

// ended is for a run that printed sizes, and then ended with an error.
func (j *Judgement) ended(in *input, status string, line int) {
	last := j.Rows[len(j.Rows)-1]
	j.Verdict = Fail
	j.Summary = fmt.Sprintf("the run ended with an error after %s (%s Gb/s, which %s): line %d", last.What, exact(last.Measured), map[bool]string{true: "is low", false: "is as it should be"}[last.Verdict == Low], line)
	c := Cause{
		Text:   "a message was not acknowledged, or not accepted by the other side",
		Shown:  []string{fmt.Sprintf("line %d", line)},
		Remedy: []string{"the output of the other side, and its last size; the same run with -s of that size"},
		Decide: "dmesg of both hosts, and the counters of both ports",
		Source: []string{"https://github.com/linux-rdma/perftest"},
	}
	switch status {
	case "10":
		c.Text = "the other side refused the access (status 10, remote access error): its buffer is smaller, because the server was started without -a, or with another -s, than the client"
		c.Remedy = []string{"start both sides with the same options: ib_write_bw -a on the server, and ib_write_bw -a SERVER"}
	case "12":
		c.Text = "no acknowledgement came (status 12, transport retry counter exceeded): the other side ended, or packets are lost"
	case "13":
		c.Text = "the other side was not ready to receive (status 13, RNR retry exceeded): it ended, or is stalled"
	}
	j.Causes = append([]Cause{c}, j.Causes...)
}

// coded returns the rate of the data, where the rate of a port counts the bits on the line.
func (p *perfRun) coded(gbit float64) float64 {
	if strings.EqualFold(p.header["link type"], "IB") && (gbit == 10 || gbit == 20 || gbit == 40) {
		return gbit * 0.8
	}
	return gbit
}

func (j *Judgement) unit(p *perfRun) {
	if strings.HasPrefix(p.unit, "M") {
		j.Notes = append(j.Notes, fmt.Sprintf("perftest's MB are 2^20 bytes: %s MB/sec are %s Gb/s (--report_gbits prints them)", figure(p.rows[len(p.rows)-1].mean*1e9/8/(1<<20)), figure(p.rows[len(p.rows)-1].mean)))
	}
}

// barePerftest completes rows that were pasted without what stands above them, where the platform names the program.
func (in *input) barePerftest() {
	if in.machine == nil || !perfCommand.MatchString(in.machine.text) || slices.ContainsFunc(in.lines, func(l line) bool { return strings.Contains(l.text, "#bytes") }) {
		return
	}
	i := slices.IndexFunc(in.lines, func(l line) bool { return numbers.MatchString(l.text) })
	if i < 0 {
		return
	}
	unit := "MB/sec"
	if strings.Contains(in.machine.text, "gbit") {
		unit = "Gb/sec"
	}
	n := in.lines[i].number
	in.lines = slices.Insert(slices.Clone(in.lines), i, line{n, "$ " + perfCommand.FindString(in.machine.text)}, line{n, "#bytes #iterations BW peak[" + unit + "] BW average[" + unit + "] MsgRate[Mpps]"})
}

func (p *perfRun) mtu() int {
	n, _ := strconv.Atoi(strings.TrimSuffix(strings.SplitN(p.header["mtu"], "[", 2)[0], "B"))
	return n
}

func (p *perfRun) qps() int {
	n, _ := strconv.Atoi(strings.Fields(p.header["number of qps"] + " 0")[0])
	return n
}

func (p *perfRun) relaxedOff() bool {
	return strings.EqualFold(p.header["pcie relax order"], "OFF") || strings.Contains(p.command, "--disable_pcie_relaxed")
}

func (p *perfRun) understood() (out []string) {
	for _, k := range []string{"link type", "number of qps", "mtu", "pcie relax order", "connection type"} {
		if v := p.header[k]; v != "" {
			out = append(out, k+" "+v)
		}
	}
	if p.both {
		out = append(out, "both directions")
	}
	if p.gpu {
		out = append(out, "GPU memory")
	}
	return out
}

// causes adds why a port is slow.
func (p *perfRun) causes(j *Judgement, in *input, top perfRow, low, gbit float64) {
	part := top.mean / low
	source := []string{"https://enterprise-support.nvidia.com/s/article/perftest-package"}
	if p.relaxedOff() {
		shown := "PCIe relax order: OFF"
		if strings.Contains(p.command, "--disable_pcie_relaxed") {
			shown = "--disable_pcie_relaxed"
		}
		j.Causes = append(j.Causes, Cause{
			Text:   fmt.Sprintf("relaxed ordering on PCIe is off: writes of a port wait for each other, and many CPUs then take a slow path (%s GB/s of %s)", figure(top.mean/8), figure(gbit/8)),
			Shown:  []string{shown},
			Remedy: []string{"run without --disable_pcie_relaxed; NCCL_IB_PCI_RELAXED_ORDERING=1 (2 is automatic), UCX_IB_PCI_RELAXED_ORDERING=y; and look at the BIOS setting for relaxed ordering"},
			Decide: "the same run with relaxed ordering on",
			Source: []string{"https://github.com/openucx/ucx/issues/10955"},
		})
	}
	if p.gpu {
		j.Causes = append(j.Causes, Cause{
			Text:   "the path between NIC and GPU: through the CPU, or with ACS or IOMMU on",
			Remedy: []string{"use the GPU beside the NIC (nvidia-smi topo -m: PIX or PXB); ACS off on switches between them; IOMMU off or pass-through; nvidia-peermem or --use_cuda_dmabuf"},
			Decide: "the same run without --use_cuda: host memory at full rate means that only the GPU's path is slow",
			Source: source,
		})
	}
	spark := in.machine != nil && in.machine.gpu != nil && in.machine.gpu.Name == "GB10"
	if spark && part < 0.5 {
		j.Causes = append(j.Causes, Cause{
			Text:   fmt.Sprintf("the ConnectX-7 came up degraded: %s Gb/s where 92 to 97 a half is healthy, though port and slot have their full rate", figure(top.mean)),
			Remedy: []string{"a full power cycle (unplug it; a reboot is not enough), or reseat the cable so that the adapter initializes anew; then measure again"},
			Decide: "the same run after a cold start",
			Source: []string{"https://github.com/NVIDIA/dgx-spark-playbooks/issues/108"},
		})
		return
	}
	if p.relaxedOff() && !p.gpu {
		return
	}
	if part > 0.85 && p.qps() == 1 {
		j.Causes = append(j.Causes, Cause{
			Text:   "one queue pair does not fill the port",
			Remedy: []string{"-q 4 or -q 8, and -t 128"},
			Decide: "the same run with -q 8",
			Source: source,
		})
	}
	if mtu := p.mtu(); mtu > 0 && mtu < 4096 && part > 0.8 {
		j.Causes = append(j.Causes, Cause{
			Text:   fmt.Sprintf("MTU %d: headers take more of the wire than with 4096", mtu),
			Remedy: []string{"MTU 9000 on Ethernet's interface and switch, which gives RoCE 4096"},
			Decide: "ibv_devinfo: active_mtu",
			Source: source,
		})
	}
	lower := ""
	for _, r := range standardRates {
		if f := top.mean / r; r < gbit && f > 0.88 && f < 0.995 {
			lower = fmt.Sprintf("%s is the line rate of %g Gb/s: the port, a cable or the other side runs at that", figure(top.mean), r)
		}
	}
	if lower != "" {
		j.Causes = append([]Cause{{
			Text:   lower,
			Remedy: []string{"the port's rate on both sides and on the switch; cables and transceivers for that rate"},
			Decide: "ibstat (Rate) or ethtool (Speed) on both hosts",
			Source: source,
		}}, j.Causes...)
	}
	j.Causes = append(j.Causes, Cause{
		Text:   "the PCIe slot of the NIC: fewer lanes or a lower generation than it takes, memory on another NUMA node, or a small read request",
		Remedy: []string{"lspci -vv: LnkSta against LnkCap, MaxReadReq 4096; numactl --cpunodebind and --membind to the NIC's node; the adapter's own power and temperature (dmesg, mlx5_core)"},
		Decide: "lspci -vv -s ADDRESS | grep -E 'LnkCap|LnkSta|MaxReadReq' on both hosts",
		Source: source,
	})
	if part < 0.6 && !p.gpu {
		j.Causes = append(j.Causes, Cause{
			Text:   "the network between the two: packets are lost (RoCE without flow control), a shared link, a rail that crosses others",
			Remedy: []string{"the same run through one switch, and in loopback on one host: where it is fast tells which part is slow; counters of discards and retransmissions before and after"},
			Decide: "ethtool -S, /sys/class/infiniband/*/ports/1/hw_counters (out_of_sequence, local_ack_timeout_err)",
			Source: source,
		})
	}
}

// judgeLatency judges ib_*_lat: small messages between two hosts take one to a few microseconds.
func (p *perfRun) judgeLatency() *Judgement {
	j := &Judgement{Subject: p.subject(), Line: p.line, Unit: "us", Understood: p.understood()}
	r := p.rows[0]
	for _, row := range p.rows {
		if row.bytes <= 64 {
			r = row
		}
	}
	high := 3.0
	if strings.Contains(p.test, "Read") {
		high = 4.5
	}
	if strings.EqualFold(p.header["link type"], "Ethernet") {
		high += 1.5
	}
	j.Sources = []string{"InfiniBand and RoCE of ConnectX-5 to 8: 0.9 to 2 us between hosts on one switch, about 0.2 more for each further switch"}
	for _, row := range p.rows {
		j.Rows = append(j.Rows, Judged{What: sizeText(row.bytes), Bytes: row.bytes, Measured: row.mean, Verdict: Small})
	}
	j.hideRows = true
	switch {
	case r.bytes > 4096:
		j.Verdict = Undecidable
		j.Summary = fmt.Sprintf("%.2f us at %s: latency is judged by small messages", r.mean, sizeText(r.bytes))
		j.Ask = []string{"a run with -s 8, or -a"}
	case r.mean <= high:
		j.Verdict = OK
		j.Summary = fmt.Sprintf("%.2f us at %s, where up to %.1f is right", r.mean, sizeText(r.bytes), high)
	default:
		j.Verdict = Slow
		j.Summary = fmt.Sprintf("%.2f us at %s, where up to %.1f is right", r.mean, sizeText(r.bytes), high)
		j.Causes = []Cause{{
			Text:   "the CPUs sleep (C-states), or sit far from the NIC; a virtual machine; many switches on the way",
			Remedy: []string{"cpupower idle-set -D 0 (no C-states), the highest governor (or a busy loop beside it), numactl to the NIC's node"},
			Decide: "the same run in loopback on each host",
			Source: []string{"https://enterprise-support.nvidia.com/s/article/perftest-package"},
		}}
	}
	if r.tail > 20*r.mean && r.tail > 50 {
		j.Notes = append(j.Notes, fmt.Sprintf("the slowest of all took %.0f us: something interrupts the CPU", r.tail))
	}
	return j
}
