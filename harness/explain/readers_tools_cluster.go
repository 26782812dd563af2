package explain

import (
	"cmp"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// clusterTools show what schedulers and NCCL say of nodes, jobs and ranks.
var clusterTools = []tool{
	{"slurm", `NodeName=\S+ (?:Arch|CoresPerSocket|CPUAlloc)=?`, `\s|NodeName=`, readSlurmNode},
	{"slurm", `JobId=\d+ (?:ArrayJobId=\d+ .*)?JobName=`, `\s`, readSlurmJob},
	{"slurm", `PARTITION +AVAIL +TIMELIMIT +NODES +STATE`, `\S+ +(?:up|down|drain|inact)`, readSinfo},
	{"slurm", `\s+JOBID +PARTITION +NAME +USER`, `\s+\d+`, readSqueue},
	{"k8s", `(?:NAMESPACE +)?NAME +READY +STATUS +RESTARTS`, `[\w-].* \d+/\d+ `, readPods},
	{"k8s", `NAME +STATUS +ROLES +AGE +VERSION`, `\S+ +\S*Ready`, readNodes},
	{"nccl", `\s*Job summary\s*$`, `.*`, readRASText},
	{"nccl", `<graphs version=`, `\s*<|\s*$`, readGraphs},
	{"nccl", `.*Init COMPLETE`, `$^`, readNCCL},
}

// readSlurmNode reads scontrol show node.
func readSlurmNode(b *block) string {
	name := ""
	var states []string
	sick := compiled(`DOWN|DRAIN|FAIL|NOT_RESPONDING|INVAL|UNKNOWN|ERROR|MAINT|REBOOT|BLOCKED`)
	state, where := "", 0
	reason := ""
	flush := func() {
		if name == "" || state == "" {
			return
		}
		states = append(states, state)
		if sick.MatchString(state) {
			more := map[string]string{"node": name, "state": state}
			if reason != "" {
				more["reason"] = reason
			}
			b.fault("slurm.node", state, where, more)
		} else if reason != "" {
			b.doubt(where, "node %s is %s and has a reason: %s", name, state, reason)
		}
	}
	for i, l := range b.lines {
		if m := compiled(`^NodeName=(\S+)`).FindStringSubmatch(l); m != nil {
			flush()
			name, state, reason = m[1], "", ""
		}
		if m := compiled(`\bState=(\S+)`).FindStringSubmatch(l); m != nil && state == "" {
			state, where = m[1], i
		}
		if m := compiled(`\bReason=(.*?)(?: \[\w+@| Comment=|$)`).FindStringSubmatch(l); m != nil {
			reason = strings.TrimSpace(m[1])
		}
	}
	flush()
	if len(states) == 0 {
		return ""
	}
	return "scontrol shows nodes that take jobs: " + several(states)
}

func readSlurmJob(b *block) string {
	i, m := b.find(compiled(`JobState=(\w+) Reason=(\S+)`))
	if m == nil {
		return ""
	}
	switch m[1] {
	case "RUNNING", "COMPLETED", "COMPLETING":
		_, nodes := b.find(compiled(`NumNodes=(\d+)`))
		text := "scontrol shows a job that is " + m[1]
		if nodes != nil {
			text += " on " + nodes[1] + " nodes"
		}
		if _, tres := b.find(compiled(`(?:Alloc)?TRES=\S*gres/gpu(?::\w+)?=(\d+)`)); tres != nil {
			text += " with " + tres[1] + " GPUs"
		}
		return text
	case "PENDING":
		b.fault("slurm.pending", m[2], i, map[string]string{"reason": m[2]})
	default:
		_, code := b.find(compiled(`\bExitCode=(\S+)`))
		more := map[string]string{"state": m[1], "reason": m[2]}
		if code != nil {
			more["code"] = code[1]
		}
		b.fault("slurm.job", m[1], i, more)
	}
	return ""
}

func readSinfo(b *block) string {
	count := map[string]int{}
	for i, l := range b.lines[1:] {
		f := strings.Fields(l)
		if len(f) < 5 {
			continue
		}
		n, _ := strconv.Atoi(f[3])
		if n == 0 { // a partition without nodes
			continue
		}
		count[f[4]] += n
		if compiled(`^(?:down|drain|drng|fail|inval|unk|no_respond|boot\^|reboot|block|err|maint)|\*$`).MatchString(f[4]) || f[1] != "up" {
			b.fault("slurm.sinfo", f[4], i+1, map[string]string{"state": f[4] + map[bool]string{true: ", partition " + f[1]}[f[1] != "up"], "nodes": f[len(f)-1]})
		}
	}
	if len(count) == 0 {
		return ""
	}
	var shows []string
	for _, s := range slices.Sorted(maps.Keys(count)) {
		shows = append(shows, strconv.Itoa(count[s])+" "+s)
	}
	return "sinfo: no node is down or drained (by partitions: " + strings.Join(shows, ", ") + ")"
}

func readSqueue(b *block) string {
	running := 0
	for i, l := range b.lines[1:] {
		f := strings.Fields(l)
		switch {
		case len(f) < 7:
		case f[4] == "R":
			running++
		case f[4] == "PD":
			if m := compiled(`\((.*)\)\s*$`).FindStringSubmatch(l); m != nil {
				b.fault("slurm.pending", m[1], i+1, map[string]string{"reason": m[1]})
			}
		case f[4] != "CG" && f[4] != "CF" && f[4] != "CD":
			b.doubt(i+1, "job %s is in state %s", f[0], f[4])
		}
	}
	if running == 0 {
		return ""
	}
	return fmt.Sprintf("squeue: %s, and none waits", plural(running, "job runs", "jobs run"))
}

func readPods(b *block) string {
	ready := 0
	for i, l := range b.lines[1:] {
		f := strings.Fields(l)
		at := slices.IndexFunc(f, func(s string) bool { return compiled(`^\d+/\d+$`).MatchString(s) })
		if at < 1 || at+1 >= len(f) {
			continue
		}
		have, want, _ := strings.Cut(f[at], "/")
		restarts, _ := strconv.Atoi(strings.Join(f[at+2:min(at+3, len(f))], ""))
		switch status := f[at+1]; {
		case restarts >= 10:
			b.fault("k8s.pod", status, i+1, map[string]string{"pod": f[at-1], "status": status + ", " + plural(restarts, "restart", "restarts")})
		case status == "Running" && have == want || status == "Completed" || status == "Succeeded":
			ready++
		default:
			b.fault("k8s.pod", status, i+1, map[string]string{"pod": f[at-1], "status": status + " " + f[at]})
		}
	}
	if ready == 0 {
		return ""
	}
	return fmt.Sprintf("kubectl get pods: %s, each Running with all its containers ready, or Completed", plural(ready, "pod", "pods"))
}

func readNodes(b *block) string {
	ready := 0
	for i, l := range b.lines[1:] {
		f := strings.Fields(l)
		switch {
		case len(f) < 4:
		case f[1] == "Ready":
			ready++
		default:
			b.fault("k8s.node", f[1], i+1, map[string]string{"node": f[0], "status": f[1]})
		}
	}
	if ready == 0 {
		return ""
	}
	return "kubectl get nodes: " + plural(ready, "node is", "nodes are") + " Ready, none is cordoned"
}

// readRASText reads the answer of ncclras.
func readRASText(b *block) string {
	ranks, rows, have, total := 0, 0, 0, false
	for i, l := range b.lines {
		f := strings.Fields(l)
		if strings.HasPrefix(l, "(total)") { // the job's GPUs are the last column of the next line
			total = true
		} else if total && len(f) > 2 {
			have, _ = strconv.Atoi(f[len(f)-1])
			total = false
		}
		if len(f) == 8 && f[7] == "OK" && f[6] != "RUNNING" && compiled(`^\d+$`).MatchString(f[0]) {
			b.doubt(i, "communicators of NCCL's RAS are %s, not RUNNING", f[6])
		}
		if len(f) == 8 && f[6] == "RUNNING" || len(f) == 8 && f[6] == "INIT" || len(f) == 8 && f[6] == "FINALIZE" {
			rows++
			n, _ := strconv.Atoi(f[4])
			all, _ := strconv.Atoi(f[5])
			ranks = max(ranks, n)
			b.wrong = b.wrong || f[7] != "OK"
			if answered := min(all, cmp.Or(have, all)); answered > 0 && answered < n {
				b.fault("ras.fewer", strconv.Itoa(answered), i, map[string]string{"answered": strconv.Itoa(answered), "ranks": strconv.Itoa(n)})
			}
		}
		b.wrong = b.wrong || b.hasErrors(i) || strings.Contains(l, "INCOMPLETE") || strings.Contains(l, "NOCOMM")
	}
	if rows == 0 {
		return ""
	}
	return fmt.Sprintf("NCCL's RAS: %s of communicators, the largest with %d ranks, all RUNNING and without errors or warnings", plural(rows, "group", "groups"), ranks)
}

// hasErrors says whether a line is the head of RAS' errors or warnings, and there are some.
func (b *block) hasErrors(i int) bool {
	if l := strings.TrimSpace(b.lines[i]); l != "Errors" && l != "Warnings" {
		return false
	}
	for _, l := range b.lines[i+1:] {
		switch l = strings.TrimSpace(l); {
		case l == "" || strings.Trim(l, "=") == "":
		case l == "Errors" || l == "Warnings":
			return false
		default:
			return !troubleless.MatchString(l)
		}
	}
	return false
}

// troubleless matches a prompt, or the end of what was copied.
var troubleless = regexp.MustCompile(`^(?:[$#>]|` + "```" + `|\S+@\S+[:~]|--)`)

func readGraphs(b *block) string {
	var shows []string
	for _, l := range b.lines {
		if m := compiled(`<graph id="(\d+)" pattern="(\d+)".* nchannels="(\d+)" speedintra="([\d.]+)" speedinter="([\d.]+)".* typeintra="(\S+)" typeinter="(\S+)"`).FindStringSubmatch(l); m != nil {
			if m[3] != "0" {
				shows = append(shows, fmt.Sprintf("%s: %s channels at %s GB/s over %s (between nodes %s GB/s, %s)", patterns[m[2]], m[3], m[4], m[6], m[5], m[7]))
			}
		}
	}
	if len(shows) == 0 {
		return ""
	}
	return "NCCL's graph file: " + strings.Join(shows, ", ")
}

// patterns are the names of NCCL's graphs, by their numbers.
var patterns = map[string]string{"1": "balanced tree", "2": "split tree", "3": "tree", "4": "ring", "5": "NVLS", "6": "CollNet direct"}

var (
	initDone = regexp.MustCompile(`NCCL INFO .*?comm (0x\w+) rank (\d+) n[rR]anks (\d+) .*?(?:commId (0x\w+) .*)?Init COMPLETE`)
	viaWhat  = regexp.MustCompile(`NCCL INFO Channel .* via (\S+)`)
)

// readNCCL reads a log of NCCL in which all ranks of a communicator say that they are ready.
func readNCCL(b *block) string {
	if len(b.in.facts["nccl.read"]) > 0 {
		return ""
	}
	b.in.add("nccl.read", "1", nil, b.at[0])
	ranks := map[string]map[string]bool{} // of each communicator, by its size and ID
	for i := range b.in.files {
		for l := range strings.Lines(string(b.in.files[i].Text[:min(len(b.in.files[i].Text), maxTrouble)])) {
			if !strings.Contains(l, "Init COMPLETE") && !strings.Contains(l, "NCCL WARN") && !strings.Contains(l, "ncclCommAbort") {
				continue
			}
			if m := initDone.FindStringSubmatch(l); m != nil {
				id := m[3] + " " + m[4]
				if ranks[id] == nil {
					ranks[id] = map[string]bool{}
				}
				ranks[id][m[2]] = true
			}
			if strings.Contains(l, "NCCL WARN") || strings.Contains(l, "ncclCommAbort") {
				return ""
			}
		}
	}
	size := ""
	for id, have := range ranks {
		if n := strings.Fields(id)[0]; strconv.Itoa(len(have)) != n {
			return ""
		} else if len(n) > len(size) || len(n) == len(size) && n > size {
			size = n
		}
	}
	if size == "" {
		return ""
	}
	var via []string
	for i := range b.in.files {
		for _, m := range viaWhat.FindAllStringSubmatch(string(b.in.files[i].Text[:min(len(b.in.files[i].Text), maxTrouble)]), 20000) {
			if way := strings.TrimRight(m[1], ","); !slices.Contains(via, way) && len(via) < 6 {
				via = append(via, way)
			}
		}
	}
	text := "NCCL's log: all " + size + " ranks of the " + map[bool]string{true: "communicator", false: "largest communicator, and of the others,"}[len(ranks) == 1] + " finished the initialization (Init COMPLETE) without a warning"
	if len(via) > 0 {
		slices.Sort(via)
		text += ", connected via " + strings.Join(via, ", ")
	}
	return text
}

// readDiscovery reads dcgmi discovery -l.
func readDiscovery(b *block) string {
	var names []string
	for _, l := range b.lines {
		if m := compiled(`\| Name: (.*?) +\|`).FindStringSubmatch(l); m != nil {
			names = append(names, m[1])
		}
	}
	if n, _ := value(b.lines[0]); n == 0 || len(names) > 0 && int(n) != len(names) {
		b.doubt(0, "dcgmi discovery: %s, and %d are listed", strings.TrimSpace(b.lines[0]), len(names))
	}
	b.missing(names)
	return "dcgmi discovery: " + cmpText(several(names), b.lines[0]) + " found"
}

func readHealth(b *block) string {
	if m := compiled(`Overall Health +\| +(\w+)`).FindStringSubmatch(b.lines[0]); m != nil && m[1] == "Healthy" {
		return "dcgmi health: the overall health is Healthy: no watched system (PCIe, NVLink, memory, power, temperature) reports an incident since the watches were set"
	}
	if _, m := b.find(compiled(`\| +(\S.*?) +\| +(Warning|Failure|Warn|Fail)\b`)); m != nil {
		i, _ := b.find(compiled(`Warning|Failure|Warn|Fail`))
		b.fault("dcgm.health", m[2], i, map[string]string{"system": m[1], "result": m[2]})
	}
	return ""
}

// readDCGMLinks reads dcgmi nvlink -s: U is up, D down, X disabled, _ not supported.
func readDCGMLinks(b *block) string {
	up, gpu := 0, ""
	var links []string
	var lines []int
	for i, l := range b.lines {
		if m := compiled(`gpuId (\d+):`).FindStringSubmatch(l); m != nil {
			gpu = "GPU " + m[1]
		} else if m := compiled(`physicalId (\d+):|(?i:nvswitch) (\d+)`).FindStringSubmatch(l); m != nil {
			gpu = "NVSwitch " + m[1] + m[2]
		}
		f := strings.Fields(l)
		if len(f) < 2 || slices.ContainsFunc(f, func(s string) bool { return s != "U" && s != "D" && s != "X" && s != "_" }) {
			continue
		}
		for _, s := range f {
			if s == "U" {
				up++
			}
		}
		if strings.HasPrefix(gpu, "GPU") {
			links, lines = append(links, strconv.Itoa(strings.Count(strings.Join(f, ""), "U"))), append(lines, i)
		}
		if n := strings.Count(strings.Join(f, ""), "D"); n == 0 {
			continue
		} else if b.wrong = true; slices.Contains(f, "U") {
			b.fault("dcgm.links", strconv.Itoa(n), i, map[string]string{"gpu": gpu, "count": strconv.Itoa(n)})
		}
	}
	if up == 0 {
		return ""
	}
	if slices.ContainsFunc(links, func(n string) bool { return n != links[0] }) && !b.wrong {
		b.doubt(lines[0], "the GPUs do not have the same number of NVLinks up: %s", strings.Join(links, ", "))
	}
	return fmt.Sprintf("dcgmi nvlink -s: %d links are up (U), none is down (D)", up)
}

// readXGMI reads rocm-smi --showtopo.
func readXGMI(b *block) string {
	kinds := map[string]int{}
	for i, l := range b.lines {
		f := strings.Fields(l)
		if len(f) < 2 || !strings.HasPrefix(f[0], "GPU") && !pciAddress.MatchString(f[0]) {
			continue
		}
		for _, c := range f[1:] {
			if c == "XGMI" || c == "PCIE" {
				kinds[c]++
			}
		}
		if x, p := slices.Index(f, "XGMI"), slices.Index(f, "PCIE"); x > 0 && p > 0 {
			b.in.add("xgmi.mixed", f[0], map[string]string{"gpu": f[0]}, b.at[i])
		}
	}
	switch {
	case len(kinds) == 2:
		b.wrong = true
		return ""
	case kinds["XGMI"] > 0:
		return fmt.Sprintf("the topology of rocm-smi or amd-smi: all %d pairs of GPUs are joined by XGMI", kinds["XGMI"])
	case kinds["PCIE"] > 0:
		return fmt.Sprintf("the topology of rocm-smi or amd-smi: all %d pairs of GPUs are joined by PCIe, without XGMI, as cards without a bridge are", kinds["PCIE"])
	}
	return ""
}

func readRocm(b *block) string {
	rows := 0
	var heat []float64
	var gpus, caps []string
	var lines []int
	for i, l := range b.lines {
		if f := strings.Fields(l); len(f) > 5 && compiled(`^\d+$`).MatchString(f[0]) {
			rows++
			if m := compiled(`([\d.]+) ?°?C`).FindStringSubmatch(l); m != nil {
				v, _ := value(m[1])
				heat = append(heat, v)
				b.hot(i, f[0], v)
			} else if len(heat) > 0 {
				b.doubt(i, "GPU %s shows no temperature", f[0])
			}
			gpus, lines = append(gpus, "GPU "+f[0]), append(lines, i)
			caps = append(caps, cmpText(strings.Join(compiled(`[\d.]+W +(?:\d+%|N/A)`).FindAllString(l, 1), ""), "unknown"))
		}
	}
	if rows == 0 {
		return ""
	}
	for i, c := range caps {
		caps[i] = strings.Fields(c)[0]
	}
	if rows == 7 {
		b.doubt(0, "7 GPUs are listed, and boards have 8")
	}
	b.differ("its limit of power", gpus, caps, lines)
	return fmt.Sprintf("rocm-smi lists %s at %s C", plural(rows, "GPU", "GPUs"), span(heat))
}
