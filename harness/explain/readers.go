package explain

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/assay-hpc/assay/dcgm/health"
)

// A reader makes facts of what a pattern alone cannot read.
type reader struct {
	what   string
	begins string // a pattern of the lines where it begins
	read   func(in *input, hits []hit)
}

// readers are those of logs and of the outputs of tools.
var readers = slices.Concat(logReaders, toolReaders())

// logReaders, with the facts that they make. Those of nvidia-smi are in readers_smi.go.
var logReaders = []reader{
	// xid, sxid, init: "fail 79", by the class and number; {number}, {bus}, {meaning}, {action}, {detail}.
	{"the kernel's log", `NVRM: (?:Xid|GPU) |nvidia-nvswitch\d*: SXid|nvidia [0-9a-f:.]+: prob`, readKernel},
	// xid: of a text that names them without the kernel's lines.
	{"Xids in prose", `\b(?:Xid|XID|xid)(?:s|[ _]?(?:error|event|code)s?)?[ :=#*` + "`" + `]*\d`, readNamedXids},
	// adapter: likewise.
	{"the kernel's log of mlx5", `mlx5_core \S+: .*(?:module event|insufficient power|ealth|emperature|done completion)`, readKernel},
	// env.NAME: a variable's value.
	{"variables", `\b(?:NCCL_|RCCL_|UCX_|FI_PROVIDER|FI_EFA_|GLOO_|OMPI_MCA_|HSA_|LD_LIBRARY_PATH|CUDA_VISIBLE_DEVICES)[A-Z0-9_]*(?:=| set )`, readVariables},
	// knob.wrong, knob.unknown, knob.slow: settings of NCCL. knob.alone: how many, if the text has nothing else.
	{"NCCL's settings", `\bNCCL_[A-Z0-9_]+(?:=| set )`, readSettings},
	// ras.missing: a rank; {host}, {pid}, {gpu}, {state}. ras.behind: ranks; {operation}, {count}, {most}. ras.error: a
	// rank. ras.fewer: how many ranks answered; {answered}, {ranks}. ras.fine: how many ranks, if there is nothing of the others.
	{"RAS as JSON", `"communicators_count":`, readRAS},
	// copies: how many nccl-tests print into the text.
	{"nccl-tests", `# nThread \d+ nGpus|# Avg bus bandwidth`, readCopies},
	// driver: its version.
	{"modinfo", `modinfo .*nvidia|Driver Version *: `, readDriver},
	// port: "STATE PHYSICAL RATE LAYER"; {device}, {rate}. port.nolid: an active InfiniBand port without a LID. port.slow: the rate, if another port of this type is faster; {best}.
	{"ibstat", `^\s*(?:CA '|hca_id:)|^\s*Port \d+:\s*$`, readPorts},
	// port: likewise. port.beside: a port that is down, beside one that is up.
	{"rdma link", `^\s*(?:link \S+/\d+|\d+/\d+: \S+/\d+:) .*state \S+ physical_state`, readRDMALinks},
	// call.differs: a collective's name and number; {calls}.
	{"NCCL's calls", `: opCount [0-9a-f]+ sendbuff`, readCalls},
	// watchdog.differs: the number of a collective that ranks of one process group wait in with different operations or
	// sizes; {calls}.
	{"PyTorch's watchdog", `Watchdog caught collective operation timeout: WorkNCCL\(SeqNum=`, readWatchdogs},
	// gid.in-use: the address of NCCL_IB_GID_INDEX; {gid}, {better}.
	{"GIDs", `GID\[ *\d+\]:|(?:0000:){5}ffff:|fe80:`, readGIDs},
	// link.flaps: how often a link came up; {dev}, {count}.
	{"links", `mlx5_core \S+ \S+: Link up`, readFlaps},
	// topo.gpu-gpu, topo.gpu-nic: how they are connected; {a}, {b}.
	{"nvidia-smi topo -m", `^\s*GPU0\s.*GPU|^\s*GPU0\s+X\s+(?:NV\d|PIX|PXB|PHB|NODE|SYS)`, readMatrix},
	// nvlink.active, nvlink.inactive: the number of a link; {gpu}. nvlink.alike: all GPUs have the same inactive ones.
	{"nvidia-smi nvlink", `^\s*GPU \d+: .*UUID`, readLinks},
	// smi.pcie: "GENERATION of MAX, WIDTH of MAX, STATE, UTILIZATION %"; {gpu}.
	{"nvidia-smi -q", `NVSMI LOG`, readQuery},
	// fabric: "STATE: STATUS".
	{"nvidia-smi's fabric", `^\s*Fabric\s*$`, readFabric},
	// k8s.lacking: allocatable GPUs, if the node has more.
	{"kubectl describe node", `^\s*Capacity:\s*$`, readNode},
	// xml.bridge: a PCIe switch, and xml.gpu: a GPU; {bus}, {vendor}, {speed}, {width}, {below}. xml.differ: a machine that
	// differs from the first; {first}, {other}.
	{"topology files", `<system version=|<cpu .*numaid=`, readTopology},
	// nvlink.uneven, of files and of what NCCL prints: the figures of the two directions; {pair}.
	{"NCCL's machine", `=== System : max`, readSystem},
}

// lineAt returns the line of a hit.
func (in *input) lineAt(at place) string {
	_, l := line(in.files[at.file].Text, at.offset)
	return string(l)
}

// from returns lines from a hit on, until f returns false.
func (in *input) from(at place, f func(at place, l string) bool) {
	text := in.files[at.file].Text
	for at.offset < len(text) {
		end := bytes.IndexByte(text[at.offset:], '\n')
		if end < 0 {
			end = len(text) - at.offset
		}
		if !f(at, string(Clean(text[at.offset:at.offset+min(end, maxLine)]))) {
			return
		}
		at.offset += end + 1
	}
}

// instance is a GPU's instance in MIG mode.
var instance = regexp.MustCompile(`GPU-I:\d+(?: GPU-CI:\d+)?`)

func readKernel(in *input, hits []hit) {
	for _, h := range hits {
		e, ok := health.ReadKernelLine(in.lineAt(h.at))
		if !ok {
			continue
		}
		more := map[string]string{"number": strconv.Itoa(e.Number), "bus": e.Bus, "meaning": e.Meaning, "action": e.Action, "detail": e.Text}
		if m := instance.FindString(in.lineAt(h.at)); m != "" {
			more["instance"] = m
		}
		class := e.Class
		if e.Kind == "SXid" && class == "note" && !strings.HasPrefix(e.Text, "Non-fatal") {
			class = "unknown" // a line of data, or of the severity alone
		}
		in.add(strings.ToLower(e.Kind), class+" "+strconv.Itoa(e.Number), more, h.at)
	}
}

var (
	namedXids  = regexp.MustCompile(`\b(?:Xid|XID|xid)(?:s|[ _]?(?:error|event|code)s?)?[ :=#*` + "`" + `]*(\d{1,3}(?:(?: ?[/,&] ?| and )\d{1,3})*)\b`)
	xidNumber  = regexp.MustCompile(`\d+`)
	pciAddress = regexp.MustCompile(`\b(?:[0-9a-fA-F]{4,8}:)?[0-9a-fA-F]{2}:[0-9a-fA-F]{2}(?:\.\d)?\b`)
)

// advice matches what tells a person to search for Xids, and does not say that there are some.
var advice = regexp.MustCompile(`(?i)\b(?:look|check|grep|search|watch|scan)(?:ing)?\b.{0,40}\bxid`)

// meant matches what says what an Xid stands for, and not that there was one.
var meant = regexp.MustCompile(`^\W*(?:(?:means?|indicates?|reports?|stands? for|refers? to|denotes?|signifies|is (?:an?|the) (?:code|number|error) (?:for|of))\b|= )`)

// entry matches what follows a number in a list of what Xids mean, of which so many lines are one.
var entry = regexp.MustCompile("^[`*]* *(?::|-|=|–|\\|) *[A-Za-z]")

const fewListed = 4

// maxNamedXids is how many Xids a person names: a text with more is a list of them.
const maxNamedXids = 8

// readNamedXids reads what a person or a monitor wrote of Xids, where there is no line of the kernel's.
func readNamedXids(in *input, hits []hit) {
	if len(in.facts["xid"]) > 0 {
		return
	}
	type found struct {
		e    health.KernelEvent
		more map[string]string
		at   place
	}
	var all []found
	seen, listed := map[int]bool{}, 0
	for _, h := range hits {
		l := in.lineAt(h.at)
		if advice.MatchString(l) {
			continue
		}
		for _, m := range namedXids.FindAllStringSubmatchIndex(l, -1) {
			if meant.MatchString(l[m[1]:]) {
				continue
			}
			if strings.Trim(l[:m[0]], " \t-*|#`") == "" && entry.MatchString(l[m[1]:]) {
				listed++
			}
			for _, text := range xidNumber.FindAllString(l[m[2]:m[3]], -1) {
				n, _ := strconv.Atoi(text)
				e, known := health.KnownXid(n)
				if !known || seen[n] {
					continue
				}
				seen[n] = true
				bus := pciAddress.FindString(l)
				if bus == "" {
					bus = "ADDRESS"
				}
				all = append(all, found{e, map[string]string{"number": text, "bus": bus, "meaning": e.Meaning, "action": e.Action, "detail": ""}, h.at})
			}
		}
	}
	if len(all) > maxNamedXids || listed >= fewListed {
		return
	}
	for _, f := range all {
		in.facts["xid"] = append(in.facts["xid"], fact{f.e.Class + " " + strconv.Itoa(f.e.Number), f.more, f.at, true})
	}
}

var (
	assigned = regexp.MustCompile(`\b((?:NCCL|RCCL|UCX|FI|GLOO|TORCH_NCCL|OMPI_MCA|HSA)_[A-Z0-9_]+|LD_LIBRARY_PATH|CUDA_VISIBLE_DEVICES)=("[^"]*"|'[^']*'|\S*)`)
	heard    = regexp.MustCompile(`\b([A-Z]+_[A-Z0-9_]+) set (?:by environment )?to (\S+?)\.?(?:\s|$)`)
	typed    = regexp.MustCompile(`^\s*(?:[$#>+] |export |declare -x |-x |-e |--env |ENV |set |(?:sudo |env )?(?:mpirun|mpiexec|srun|torchrun|docker|podman|kubectl)\b)`)
)

// readVariables reads assignments: a line of env or of a file, a command's, and what NCCL says that it has heard. A
// message that recommends to set a variable is none.
func readVariables(in *input, hits []hit) {
	for _, h := range hits {
		l := in.lineAt(h.at)
		if m := heard.FindStringSubmatch(l); m != nil && (strings.Contains(l, "NCCL INFO") || strings.Contains(l, " set by environment to ")) {
			in.add("env."+m[1], m[2], nil, h.at)
			continue
		}
		for _, m := range assigned.FindAllStringSubmatchIndex(l, -1) {
			if before := strings.TrimSpace(l[:m[0]]); before == "" || typed.MatchString(l) || assigned.MatchString(before+" ") && !strings.Contains(before, ": ") {
				in.add("env."+l[m[2]:m[3]], strings.Trim(l[m[4]:m[5]], `"',;`), nil, h.at)
			}
		}
	}
}

// readRAS reads the answer of ncclras -f json.
func readRAS(in *input, hits []hit) {
	type rank struct {
		Rank   int
		Host   string
		PID    int `json:"pid"`
		CUDA   int `json:"cuda_dev"`
		Status struct {
			AsyncError   int  `json:"async_error"`
			Unresponsive bool `json:"unresponsive"`
			Dead         bool `json:"considered_dead"`
		}
		Counts map[string]int `json:"collective_counts"`
	}
	for _, h := range hits {
		text := in.files[h.at.file].Text
		begin := bytes.LastIndexByte(text[:h.at.offset+1], '{')
		if begin < 0 {
			continue
		}
		var doc struct {
			Communicators []struct {
				Size    int
				Ranks   []rank
				Missing []rank `json:"missing_ranks"`
			}
		}
		if json.NewDecoder(bytes.NewReader(text[begin:])).Decode(&doc) != nil {
			continue
		}
		found, all := false, 0
		add := func(name, value string, more map[string]string) {
			found = true
			in.add(name, value, more, h.at)
		}
		for _, c := range doc.Communicators {
			if n := len(c.Ranks) + len(c.Missing); n > 0 && n < c.Size {
				add("ras.fewer", strconv.Itoa(n), map[string]string{"answered": strconv.Itoa(len(c.Ranks)), "ranks": strconv.Itoa(c.Size)})
			}
			all += len(c.Ranks)
			for _, r := range c.Missing {
				state := "does not answer"
				if r.Status.Dead {
					state = "is considered dead"
				}
				add("ras.missing", strconv.Itoa(r.Rank), map[string]string{"host": r.Host, "pid": strconv.Itoa(r.PID), "gpu": strconv.Itoa(r.CUDA), "state": state})
			}
			most := map[string]int{}
			for _, r := range c.Ranks {
				for op, n := range r.Counts {
					most[op] = max(most[op], n)
				}
				if r.Status.AsyncError != 0 {
					add("ras.error", strconv.Itoa(r.Rank), map[string]string{"host": r.Host})
				}
			}
			for _, op := range slices.Sorted(maps.Keys(most)) {
				for _, r := range c.Ranks {
					if n := r.Counts[op]; n < most[op] {
						add("ras.behind", strconv.Itoa(r.Rank), map[string]string{"operation": op, "count": strconv.Itoa(n), "most": strconv.Itoa(most[op]), "host": r.Host})
					}
				}
			}
		}
		if !found && all > 0 {
			in.add("ras.fine", strconv.Itoa(all), nil, h.at)
		}
	}
}

// readCopies counts the programs of nccl-tests whose output this is.
func readCopies(in *input, hits []hit) {
	heads, tails := 0, 0
	for _, h := range hits {
		if strings.Contains(in.lineAt(h.at), "nThread") {
			heads++
		} else {
			tails++
		}
	}
	if n := max(heads, tails); n > 1 {
		in.add("copies", strconv.Itoa(n), nil, hits[len(hits)-1].at)
	}
}

var version = regexp.MustCompile(`\b\d{3}\.\d{2,3}(?:\.\d{2})?\b`)

// readDriver reads the driver's version from nvidia-smi, or from the lines after a modinfo.
func readDriver(in *input, hits []hit) {
	for _, h := range hits {
		n := 0
		in.from(h.at, func(at place, l string) bool {
			if v := version.FindString(l); v != "" {
				in.add("driver", v, nil, at)
				return false
			}
			n++
			return n < 3 && strings.Contains(in.lineAt(h.at), "modinfo")
		})
	}
}

var call = regexp.MustCompile(`(\S+:\d+):\d+ \[\w+\] NCCL INFO (\w+): opCount (\w+) .*count (\d+) datatype (\d+) op (\d+) root (\d+) comm (\w+) \[nranks=(\d+)\]`)

// readCalls compares the calls of the ranks. Communicators have different addresses on each rank, so it compares those of
// processes that use one communicator of a size alone.
func readCalls(in *input, hits []hit) {
	type key struct{ number, size string }
	calls, comms := map[key]map[string][]string{}, map[[2]string]map[string]bool{}
	where := map[key]place{}
	for _, h := range hits {
		m := call.FindStringSubmatch(in.lineAt(h.at))
		if m == nil {
			continue
		}
		k := key{m[3], m[9]}
		if calls[k] == nil {
			calls[k], where[k] = map[string][]string{}, h.at
		}
		what := fmt.Sprintf("%s of %s elements of datatype %s, op %s, root %s", m[2], m[4], m[5], m[6], m[7])
		calls[k][m[1]] = append(calls[k][m[1]], what)
		c := [2]string{m[1], m[9]}
		if comms[c] == nil {
			comms[c] = map[string]bool{}
		}
		comms[c][m[8]] = true
	}
	for k, byProcess := range calls {
		var different []string
		sure := len(byProcess) > 1
		for process, list := range byProcess {
			sure = sure && len(list) == 1 && len(comms[[2]string{process, k.size}]) == 1
			if !slices.Contains(different, list[0]) {
				different = append(different, list[0])
			}
		}
		if sure && len(different) > 1 {
			slices.Sort(different)
			in.add("call.differs", k.number, map[string]string{"calls": strings.Join(different[:min(len(different), 3)], "; ")}, where[k])
		}
	}
}

// watchdogCall is a rank's line of PyTorch's watchdog, and watchdogGroup what it says of the process group, there or on the
// next line.
var (
	watchdogCall  = regexp.MustCompile(`[Rr]ank (\d+)\][^\[]*Watchdog caught collective operation timeout: WorkNCCL\(SeqNum=(\d+), OpType=(\w+)(?:, NumelIn=(\d+))?`)
	watchdogGroup = regexp.MustCompile(`\[PG (?:ID )?\S+ (?:PG GUID )?(\S+) Rank (\d+)\]`)
)

// readWatchdogs compares what ranks of one process group wait in under one number. Without the group a number says nothing:
// stages of a pipeline have groups of their own. Gathers of different sizes are no mistake.
func readWatchdogs(in *input, hits []hit) {
	type call struct{ rank, op, size string }
	first := map[string]call{} // by group and number
	for _, h := range hits {
		m := watchdogCall.FindStringSubmatch(in.lineAt(h.at))
		if m == nil {
			continue
		}
		group, n := "", 0
		in.from(h.at, func(_ place, l string) bool {
			if g := watchdogGroup.FindStringSubmatch(l); g != nil && g[2] == m[1] {
				group = g[1]
			}
			n++
			return group == "" && n < 3
		})
		if group == "" {
			continue
		}
		key, c := group+" "+m[2], call{m[1], m[3], m[4]}
		f, ok := first[key]
		switch {
		case !ok:
			first[key] = c
		case f.rank == c.rank:
		case f.op != c.op, f.size != c.size && f.size != "" && c.size != "" && (c.op == "BROADCAST" || c.op == "ALLREDUCE"):
			text := func(c call) string {
				if c.size == "" {
					return c.op + " on rank " + c.rank
				}
				return c.op + " of " + c.size + " elements on rank " + c.rank
			}
			in.add("watchdog.differs", m[2], map[string]string{"calls": "number " + m[2] + " is " + text(f) + " and " + text(c)}, h.at)
			return
		}
	}
}

// readNode reads the GPUs of kubectl describe node.
func readNode(in *input, hits []hit) {
	for _, h := range hits {
		capacity, n := "", 0
		in.from(h.at, func(at place, l string) bool {
			if value, ok := strings.CutPrefix(strings.TrimSpace(l), "nvidia.com/gpu:"); ok {
				if value = strings.TrimSpace(value); capacity == "" {
					capacity = value
				} else {
					if value != capacity {
						in.add("k8s.lacking", value, nil, at)
					}
					return false
				}
			}
			n++
			return n < 60
		})
	}
}
