package explain

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// netTools are the tools of InfiniBand, RoCE and Ethernet.
var netTools = []tool{
	{"rdma", `Infiniband device '\S+' port \d+ status:`, `\s|Infiniband device`, readIbstatus},
	{"rdma", `.*\d+\[ *\] ==\(`, `\s|CA: |Switch|.*\] ==\(`, readIblinkinfo},
	{"rdma", `(?:CA|SW) +\d+ +\d+ 0x[0-9a-f]{16} \d+(?:x SDR|x DDR|x QDR|x FDR|x EDR|x HDR|x NDR|x XDR|x \?\?\?)`, `(?:CA|SW|RT) +\d+ +\d+ 0x`, readIbnetdiscover},
	{"rdma", `# Port (?:extended )?counters: Lid \d+ port`, `#|\w+:\.{2,}`, readPerfquery},
	{"rdma", `sminfo: sm lid \d+`, `sminfo`, readSminfo},
	{"rdma", `Operational Info\s*$`, `[A-Z\w].* : |[A-Z][\w ()-]+$|-+$|\s`, readMlxlink},
	{"rdma", `DEV\s+PORT\s+INDEX\s+GID`, `\w+\s+\d+\s+\d+\s|---|n_gids`, readGIDTable},
	{"rdma", `DEVICE_TYPE +MST +PCI`, `\w+\(rev|\w+[ -]\S* +/dev/mst|\w+ +NA `, readMst},
	{"rdma", `Device type: +(?:ConnectX|BlueField)`, `[A-Z*].*|\s`, readMlxconfig},
	{"rdma", `Image type: +FS\d`, `[A-Z].*|\s`, readFlint},
	{"rdma", `-+ Performing Adapter Device Self Test`, `.*`, readSelfTest},
	{"rdma", `link \S+/\d+ *$|link \S+/\d+ rx_write_requests|link \S+/\d+ (?:\w+ \d+ ){3}`, `link |\s|\w+ \d+|(?:\d+ )?\w+_\w+ \d+`, readRDMAStatistic},
	{"net", `NIC statistics:`, `\s+\S`, readEthtoolS},
	{"net", `Settings for \S+:\s*$`, `\s`, readEthtool},
	{"net", `Pause parameters for \S+:`, `\w+.*:\s+(?:on|off)|\w+ negotiated`, readPause},
	{"net", `DCBX mode: `, `[A-Zdp\s].*|tc: .*|priority.*|enabled.*|buffer.*`, readQos},
	{"net", `\d+: [\w.@-]+: <[A-Z_,-]+> mtu \d+`, `\d+: |\s`, readIPAddr},
	{"net", `[\w.@-]+: flags=\d+<[A-Z_,]+> +mtu \d+`, `\s|[\w.@-]+: flags=`, readIfconfig},
}

var ibstatusHead = regexp.MustCompile(`Infiniband device '(\S+)' port`)

// readIbstatus makes facts of ports, which rules about ibstat judge.
func readIbstatus(b *block) string {
	device := ""
	values := map[string]string{}
	where := 0
	var names, rates []string
	var lines []int
	flush := func() {
		if device != "" && values["state"] != "" {
			if values["state"] == "Active" {
				names, rates, lines = append(names, device), append(rates, values["rate"]+" Gb/s"), append(lines, where)
			}
			b.in.addPort(fmt.Sprintf("%s %s %s %s", values["state"], values["physical"], values["rate"], values["layer"]),
				map[string]string{"device": device, "rate": values["rate"], "lid": values["lid"]}, b.at[where])
		}
		values = map[string]string{}
	}
	for i, l := range b.lines {
		if m := ibstatusHead.FindStringSubmatch(l); m != nil {
			flush()
			device = m[1]
			continue
		}
		key, v, _ := strings.Cut(strings.TrimSpace(l), ":")
		switch v = strings.TrimSpace(v); key {
		case "state":
			values["state"], where = stateName(v[strings.LastIndex(v, " ")+1:]), i
		case "phys state":
			values["physical"] = v[strings.LastIndex(v, " ")+1:]
		case "rate":
			values["rate"] = strings.Fields(v + " -")[0]
			if strings.Contains(v, "(1X ") {
				b.doubt(i, "%s runs on one lane: %s", device, v)
			}
		case "base lid":
			values["lid"] = v
		case "link_layer":
			values["layer"] = v
		}
	}
	flush()
	b.slower("its rate", names, rates, lines)
	b.wrong = true // the rules about ports say it
	return ""
}

var (
	linkRow  = regexp.MustCompile(`\( *(\d+X) +([\d.]+) Gbps (\w+)/ *(\w+)\)`)
	linkDown = regexp.MustCompile(`\( *Down/ *(\w+)\)`)
	couldBe  = regexp.MustCompile(`Could be ([^)]*?)\s*\)`)
)

// readIblinkinfo reads iblinkinfo: a link that both ends could run faster or wider.
func readIblinkinfo(b *block) string {
	var rates, ports []string
	var lines []int
	down := 0
	for i, l := range b.lines {
		if m := linkRow.FindStringSubmatch(l); m != nil {
			speed, _ := value(m[2])
			width, _ := value(m[1])
			rates = append(rates, fmt.Sprintf("at %s %s Gb/s (%s)", m[1], m[2], number(speed*width)))
			port, _, _ := strings.Cut(strings.TrimSpace(l), "[")
			port = strings.TrimSpace(port)
			if ports, lines = append(ports, port), append(lines, i); m[1] == "1X" {
				b.doubt(i, "port %s runs on one lane", port)
			}
			if c := couldBe.FindStringSubmatch(l); c != nil {
				b.fault("iblink.slow", m[1]+" "+m[2], i, map[string]string{"port": port, "rate": m[1] + " " + m[2] + " Gb/s", "could": c[1]})
			}
			if m[3] != "Active" {
				b.fault("iblink.state", m[3], i, map[string]string{"port": port, "state": m[3] + "/" + m[4]})
			}
		} else if linkDown.MatchString(l) {
			down++
		}
	}
	if len(rates) == 0 {
		return ""
	}
	b.slower("its link", ports, rates, lines)
	text := "iblinkinfo shows " + plural(len(rates), "link", "links") + " Active and LinkUp: " + several(rates) + ", none marked \"Could be\" faster or wider"
	if down > 0 {
		text += fmt.Sprintf("; %d ports are Down, which is right of unused ones alone", down)
	}
	return text
}

var discovered = regexp.MustCompile(`^(CA|SW|RT) +\d+ +(\d+) 0x\w+ (\d+x) (\S+) +(-)?`)

// readIbnetdiscover reads ibnetdiscover -p, and compares the adapters.
func readIbnetdiscover(b *block) string {
	var adapters []string
	var lines []int
	switches, open := 0, 0
	for i, l := range b.lines {
		m := discovered.FindStringSubmatch(l)
		switch {
		case m == nil:
		case m[5] == "":
			open++
		case m[1] == "CA":
			adapters, lines = append(adapters, m[3]+" "+m[4]), append(lines, i)
		default:
			switches++
		}
	}
	if len(adapters)+switches == 0 {
		return ""
	}
	common, others := odd(adapters)
	for _, i := range others {
		b.fault("iblink.odd", adapters[i], lines[i], map[string]string{"rate": adapters[i], "common": common})
	}
	return fmt.Sprintf("ibnetdiscover lists %s and %s of switches, %d switch ports with nothing behind them", plural(len(adapters), "adapter's link", "adapters' links ("+several(adapters)+")"), plural(switches, "link", "links"), open)
}

// portErrors are counters of perfquery, with ibqueryerrors' thresholds (infiniband-diags/etc/error_thresholds).
var portErrors = map[string]float64{
	"SymbolErrorCounter": 10, "LinkErrorRecoveryCounter": 10, "LinkDownedCounter": 10, "PortRcvErrors": 10, "LocalLinkIntegrityErrors": 10, "ExcessiveBufferOverrunErrors": 10,
	"PortRcvRemotePhysicalErrors": 100, "PortXmitDiscards": 100, "PortRcvConstraintErrors": 100, "PortXmitConstraintErrors": 100, "VL15Dropped": 100,
}

var dotted = regexp.MustCompile(`^(\w+):\.{2,}(\S+)`)

func readPerfquery(b *block) string {
	seen, wait := 0, ""
	for i, l := range b.lines {
		m := dotted.FindStringSubmatch(l)
		switch {
		case m == nil:
		case portErrors[m[1]] > 0:
			seen++
			if n, _ := value(m[2]); n >= portErrors[m[1]] {
				b.fault("ibport.counters", m[1], i, map[string]string{"counter": m[1] + " " + m[2]})
			}
		case m[1] == "PortXmitWait" && m[2] != "0":
			wait = "; PortXmitWait " + m[2] + " counts ticks in which data waited for credits: congestion, no error"
		}
	}
	if seen == 0 {
		return ""
	}
	return fmt.Sprintf("perfquery: the %d counters of errors, discards and lost links are below the thresholds of ibqueryerrors (10, and 100 of discards)%s", seen, wait)
}

func readSminfo(b *block) string {
	m := compiled(`sm lid (\d+) .*state \d+ SMINFO_(\w+)`).FindStringSubmatch(b.lines[0])
	if m == nil || m[2] != "MASTER" {
		return ""
	}
	return "sminfo: the subnet manager answers at LID " + m[1] + " and is the master"
}

// readGIDTable reads show_gids: each RoCE port needs a v2 GID with an IPv4 address.
func readGIDTable(b *block) string {
	routed := map[string]string{}
	var devices []string
	var lines []int
	for i, l := range b.lines[1:] {
		f := strings.Fields(l)
		if len(f) < 5 || !strings.Contains(f[3], ":") {
			continue
		}
		if !slices.Contains(devices, f[0]) {
			devices, lines = append(devices, f[0]), append(lines, i+1)
		}
		if slices.Contains(f, "v2") && strings.HasPrefix(f[3], "0000:0000:0000:0000:0000:ffff:") && routed[f[0]] == "" {
			routed[f[0]] = f[2]
		}
	}
	var missing []string
	for i, d := range devices {
		if routed[d] == "" && len(routed) > 0 {
			missing = append(missing, d)
			b.fault("gids.none", d, lines[i], map[string]string{"device": d})
		}
	}
	if len(devices) == 0 {
		return ""
	}
	if len(routed) == 0 {
		b.fault("gids.nowhere", strconv.Itoa(len(devices)), lines[0], map[string]string{"device": strings.Join(devices[:min(len(devices), 8)], ", ")})
	}
	var indexes []string
	for _, d := range devices {
		indexes = append(indexes, "at index "+routed[d])
	}
	if len(missing) > 0 {
		return ""
	}
	return fmt.Sprintf("show_gids: each of %s has a RoCE v2 GID with an IPv4 address (%s)", plural(len(devices), "device", "devices"), several(indexes))
}

func readMst(b *block) string {
	var names []string
	nodes := map[string]bool{}
	for _, l := range b.lines[1:] {
		if f := strings.Fields(l); len(f) > 3 && !strings.HasPrefix(f[0], "-") {
			names = append(names, strings.TrimSuffix(f[0], "(rev:0)"))
			if _, err := strconv.Atoi(f[len(f)-1]); err == nil {
				nodes[f[len(f)-1]] = true
			}
		}
	}
	if len(names) == 0 {
		return ""
	}
	return fmt.Sprintf("mst status lists %s, on %s", several(names), plural(len(nodes), "NUMA node", "NUMA nodes"))
}

var configured = regexp.MustCompile(`^\s*\*?\s*(LINK_TYPE_P\d|SRIOV_EN|NUM_OF_VFS|ATS_ENABLED|PCI_WR_ORDERING|ROCE_CONTROL|ADVANCED_PCI_SETTINGS|MAX_ACC_OUT_READ)\s+(\S.*?)\s*$`)

// readMlxconfig reads mlxconfig -d DEVICE q, and with -e, whose rows begin with a star where the next start differs.
func readMlxconfig(b *block) string {
	var shows []string
	m := compiled(`(?:ConnectX|BlueField)\S*`).FindString(b.lines[0])
	for i, l := range b.lines {
		if strings.HasPrefix(strings.TrimSpace(l), "*") && !strings.Contains(l, "The '*'") {
			f := strings.Fields(strings.TrimPrefix(strings.TrimSpace(l), "*"))
			if len(f) > 3 && f[len(f)-1] != f[len(f)-2] {
				b.in.add("mlxconfig.pending", f[0], map[string]string{"name": f[0], "now": f[len(f)-2], "next": f[len(f)-1]}, b.at[i])
			}
		}
		if c := configured.FindStringSubmatch(l); c != nil {
			f := strings.Fields(c[2])
			shows = append(shows, c[1]+" "+f[len(f)-1])
		}
	}
	if len(shows) == 0 {
		return ""
	}
	return "mlxconfig of a " + m + ": " + strings.Join(shows, ", ")
}

func readFlint(b *block) string {
	v := b.fields(":")
	if v["FW Version"] == "" {
		return ""
	}
	if r := v["FW Version(Running)"]; r != "" && r != v["FW Version"] {
		b.in.add("flint.pending", r, map[string]string{"now": r, "next": v["FW Version"]}, b.at[0])
		return ""
	}
	return "flint: firmware " + v["FW Version"] + " of " + v["FW Release Date"] + ", PSID " + v["PSID"] + ", and the running one is not another"
}

func readSelfTest(b *block) string {
	pass := 0
	for i, l := range b.lines {
		switch f := strings.Fields(l); {
		case len(f) == 0:
		case strings.HasPrefix(f[len(f)-1], "PASS"):
			pass++
		case compiled(`Port State.*(?:DOWN|INIT)`).MatchString(l) && !strings.Contains(l, "FAIL"):
			b.doubt(i, "%s", strings.TrimSpace(l))
		case strings.Contains(l, "FAIL"):
			b.fault("selftest.failed", strings.TrimSpace(l), i, map[string]string{"check": strings.Trim(strings.TrimSpace(l), ".")})
		}
	}
	if pass == 0 {
		return ""
	}
	return fmt.Sprintf("hca_self_test.ofed: %d checks passed, none failed", pass)
}

// lossCounters are counters of RDMA that mean lost or repeated packets.
var lossCounters = []string{"out_of_sequence", "packet_seq_err", "local_ack_timeout_err", "implied_nak_seq_err", "rnr_nak_retry_err", "rx_icrc_encapsulated", "req_transport_retries_exceeded", "req_rnr_retries_exceeded", "out_of_buffer", "duplicate_request", "roce_adp_retrans", "roce_adp_retrans_to"}

var pairOf = regexp.MustCompile(`\b([a-z]\w+) (\d+)\b`)

func readRDMAStatistic(b *block) string {
	seen := 0
	var notes []string
	for i, l := range b.lines {
		link := compiled(`link (\S+)`).FindStringSubmatch(l)
		for _, m := range pairOf.FindAllStringSubmatch(l, -1) {
			n, _ := strconv.Atoi(m[2])
			switch {
			case slices.Contains(lossCounters, m[1]):
				if seen++; n >= fewErrors {
					more := map[string]string{"counter": m[1] + " " + m[2]}
					if link != nil {
						more["device"] = link[1]
					}
					b.fault("rdma.loss", m[1], i, more)
				}
			case n > 0 && (m[1] == "np_cnp_sent" || m[1] == "rp_cnp_handled" || m[1] == "np_ecn_marked_roce_packets"):
				notes = append(notes, m[1]+" "+m[2])
			}
		}
	}
	if seen == 0 {
		return ""
	}
	text := fmt.Sprintf("rdma statistic: the %d counters of lost and repeated packets that it shows are 0, or nearly", seen)
	if len(notes) > 0 {
		text += "; " + strings.Join(notes[:min(len(notes), 4)], ", ") + ": congestion control works"
	}
	return text
}

// nicErrors are counters of ethtool -S that are 0 on a sound port.
var nicErrors = regexp.MustCompile(`^\s+((?:rx_discards_phy|tx_discards_phy|rx_symbol_err_phy|rx_crc_errors_phy|rx_pcs_symbol_err_phy|tx_errors_phy|rx_prio\d_discards|rx_prio\d_buf_discard|rx_out_of_buffer|rx_crc_errors|rx_missed_errors|rx_fifo_errors|rx_over_errors|module_high_temp|tx_pause_storm_error_events|outbound_pci_stalled_wr|outbound_pci_stalled_rd|rx_pci_signal_integrity|tx_pci_signal_integrity|rx_errors|tx_errors)): (\d+)`)

func readEthtoolS(b *block) string {
	seen := 0
	pauses := ""
	for i, l := range b.lines {
		if m := nicErrors.FindStringSubmatch(l); m != nil {
			if seen++; m[2] != "0" {
				b.fault("nic.counters", m[1], i, map[string]string{"counter": m[1] + " " + m[2]})
			}
		} else if m := compiled(`^\s+([rt]x_prio\d_pause): ([1-9]\d*)`).FindStringSubmatch(l); m != nil && len(pauses) < 100 {
			pauses += "; " + m[1] + " " + m[2]
		}
	}
	if seen == 0 {
		return ""
	}
	text := fmt.Sprintf("ethtool -S: the %d counters of errors, discards and lost links that it shows are 0", seen)
	if pauses != "" {
		text += pauses + ": PFC works, and was needed"
	}
	return text
}

var modeSpeed = regexp.MustCompile(`\b(\d+)base\w`)

// readEthtool reads ethtool INTERFACE.
func readEthtool(b *block) string {
	v := b.fields(": ")
	name := strings.Trim(strings.TrimPrefix(b.lines[0][strings.Index(b.lines[0], "Settings for "):], "Settings for "), ": ")
	switch speed, ok := value(v["Speed"]); {
	case v["Link detected"] == "":
		return ""
	case strings.HasPrefix(v["Link detected"], "no"):
		b.fault("ethtool.down", name, len(b.lines)-1, map[string]string{"interface": name, "why": strings.Trim(strings.TrimPrefix(v["Link detected"], "no"), " ()")})
		return ""
	case ok:
		best, supported := 0.0, false
		for _, l := range b.lines {
			key, _, has := strings.Cut(strings.TrimSpace(l), ":")
			if has && key != "" && !strings.Contains(key, "base") {
				supported = key == "Supported link modes"
			}
			if supported {
				for _, m := range modeSpeed.FindAllStringSubmatch(l, -1) {
					f, _ := strconv.ParseFloat(m[1], 64)
					best = max(best, f)
				}
			}
		}
		i := slices.IndexFunc(b.lines, func(l string) bool { return strings.Contains(l, "Speed:") })
		if speed < best {
			b.in.add("ethtool.slower", v["Speed"], map[string]string{"interface": name, "speed": v["Speed"], "best": number(best) + "Mb/s"}, b.at[max(i, 0)])
			return ""
		}
		if v["Duplex"] == "Half" {
			b.doubt(max(i, 0), "%s runs in half duplex", name)
		}
		return fmt.Sprintf("ethtool: %s has a link at %s, %s duplex", name, v["Speed"], v["Duplex"]) + map[bool]string{true: ", the fastest mode that it supports"}[best > 0]
	}
	return ""
}

func readPause(b *block) string {
	v := b.fields(":")
	if v["RX"] == "" {
		return ""
	}
	return "ethtool -a: global pause is RX " + v["RX"] + ", TX " + v["TX"] + "; with PFC for RoCE it is off in both directions, without PFC on in both"
}

// readQos reads mlnx_qos -i INTERFACE.
func readQos(b *block) string {
	enabled, pfc := "", false
	trust := ""
	for _, l := range b.lines {
		pfc = pfc || strings.HasPrefix(strings.TrimSpace(l), "PFC configuration")
		if f := strings.Fields(l); pfc && len(f) == 9 && f[0] == "enabled" {
			for i, on := range f[1:] {
				if on == "1" {
					enabled += " " + strconv.Itoa(i)
				}
			}
			pfc = false
		}
		if _, v, ok := strings.Cut(l, "Priority trust state: "); ok {
			trust = strings.TrimSpace(v)
		}
	}
	if trust == "" {
		return ""
	}
	if enabled == "" {
		b.fault("qos.lossy", trust, 0, map[string]string{"trust": trust})
		return ""
	}
	text := "mlnx_qos: PFC is on for priority" + enabled + ", trust " + trust
	if trust == "pcp" {
		text += " (priorities of VLAN tags; RoCE v2 without VLAN tags needs trust dscp)"
	}
	return text
}

var (
	ipLink = regexp.MustCompile(`^\d+: ([\w.@-]+): <([A-Z_,-]*)> mtu (\d+).*?(?: state (\w+))?(?: |$)`)
	ipRDMA = regexp.MustCompile(`^(?:ib|rdma|roce|ens|enp|eth|eno)[\w.]*`)
)

// readIPAddr reads ip addr and ip link.
func readIPAddr(b *block) string {
	up, down := []string{}, []string{}
	var mtus []string
	var lines []int
	name, counted := "", false
	for i, l := range b.lines {
		if b.ipCounters(name, i); strings.HasPrefix(strings.TrimSpace(l), "RX:") {
			counted = true
		}
		m := ipLink.FindStringSubmatch(l)
		if m == nil {
			continue
		}
		if name = m[1]; name == "lo" {
			continue
		}
		flags := strings.Split(m[2], ",")
		if slices.Contains(flags, "NO-CARRIER") && slices.Contains(flags, "UP") && ipRDMA.MatchString(m[1]) {
			b.fault("ip.carrier", m[1], i, map[string]string{"interface": m[1]})
		}
		if slices.Contains(flags, "LOWER_UP") {
			up, mtus, lines = append(up, m[1]), append(mtus, "with MTU "+m[3]), append(lines, i)
		} else {
			down = append(down, m[1])
		}
	}
	if len(up) == 0 {
		return ""
	}
	if !slices.ContainsFunc(up, func(n string) bool { return !ipRDMA.MatchString(n) }) {
		b.differ("it", up, mtus, lines)
	}
	text := fmt.Sprintf("ip shows %s up (%s)", plural(len(up), "interface", "interfaces"), several(mtus))
	if counted {
		text += ", with no or few errors and drops"
	}
	if len(down) > 0 {
		text += ", not up: " + strings.Join(down[:min(len(down), 6)], ", ")
	}
	return text
}
