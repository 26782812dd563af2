package jobs

import (
	"fmt"
	"maps"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// A layout is what a job gives its processes. 0 is unknown.
type layout struct {
	nodes int
	tasks int  // processes per node that srun starts
	slots int  // processes per node that mpirun may start
	gpus  int  // per node
	every bool // commands run on each node, not on the first alone
	hosts bool // the hostfile that mpirun gets has these nodes and slots
	batch bool // of a script that sbatch gets
	other bool // mpirun is of MPICH or Intel MPI
	env   []variable
}

// options are the options of a program by name, with "-" for "_". What is not known, such as
// "$ARGS", is under "$".
type options map[string][]string

var (
	attached = regexp.MustCompile(`^-([A-Za-z])([0-9]+)$`)
	twoWords = strings.Fields("mca gmca prtemca pmixmca genv env")
)

// parseOptions returns a program's options. They end at the first word that is neither an
// option nor follows one.
func parseOptions(words []string) options {
	o := options{}
	for len(words) > 0 {
		w := words[0]
		words = words[1:]
		if w == "" || w[0] != '-' {
			if !unknown(w) {
				break
			}
			o["$"] = append(o["$"], w)
			continue
		}
		name, value, given := strings.Cut(strings.TrimLeft(w, "-"), "=")
		if m := attached.FindStringSubmatch(w); m != nil {
			name, value, given = m[1], m[2], true
		}
		name = strings.ReplaceAll(name, "_", "-")
		if !given && slices.Contains(twoWords, name) && len(words) > 1 {
			value, words = words[0]+"="+words[1], words[2:]
		} else if !given && len(words) > 0 && !strings.HasPrefix(words[0], "-") {
			value, words = words[0], words[1:]
		}
		o[name] = append(o[name], value)
	}
	return o
}

// unknown reports whether a word contains what only a running shell knows.
func unknown(word string) bool { return strings.ContainsAny(word, "$`") }

func (o options) has(names ...string) bool {
	return slices.ContainsFunc(names, func(name string) bool { return o[name] != nil })
}

// last returns the last value of the first of the options that is there.
func (o options) last(names ...string) string {
	for _, name := range names {
		if v := o[name]; len(v) > 0 {
			return v[len(v)-1]
		}
	}
	return ""
}

// number returns such a value, also of the form "TYPE:8", or 0 if it is no number.
func (o options) number(names ...string) int {
	v := o.last(names...)
	n, _ := strconv.Atoi(v[strings.LastIndexByte(v, ':')+1:])
	return max(n, 0)
}

// slurm returns what options of sbatch or srun make of a layout.
func (a layout) slurm(o options) layout {
	before := a.nodes
	if o.has("nodes", "N") {
		a.nodes = o.number("nodes", "N")
	}
	total, per := o.number("ntasks", "n"), o.number("ntasks-per-node", "tasks-per-node")
	if a.nodes == 0 {
		a.nodes = divide(total, per)
	}
	switch {
	case o.has("ntasks", "n"):
		if total > 0 {
			a.nodes = min(a.nodes, total)
		}
		a.tasks = divide(total, a.nodes)
	case o.has("ntasks-per-node", "tasks-per-node", "ntasks-per-gpu", "ntasks-per-socket", "ntasks-per-core"):
		a.tasks = per
	case a.tasks == 0 && before == 0 && a.nodes > 0:
		a.tasks = 1
	case a.nodes != before && a.tasks > 1:
		a.tasks = 0
	}
	if o.has("gpus", "G") {
		a.gpus = divide(o.number("gpus", "G"), a.nodes)
	}
	if o.has("gpus-per-task") {
		a.gpus = o.number("gpus-per-task") * a.tasks
	}
	if v := o.last("gres"); strings.Contains(v, "gpu") {
		v, _, _ = strings.Cut(v[strings.Index(v, "gpu"):], ",")
		a.gpus = options{"": {v}}.number("")
		if !strings.Contains(v, ":") {
			a.gpus = 1
		}
	}
	if o.has("gpus-per-node") {
		a.gpus = o.number("gpus-per-node")
	}
	return a
}

// divide returns n/by if that is a whole number, otherwise 0.
func divide(n, by int) int {
	if by < 1 || n%by != 0 {
		return 0
	}
	return n / by
}

// What starts processes.
const (
	srun       = "srun"
	mpirun     = "mpirun"
	torchrun   = "torchrun"
	accelerate = "accelerate"
	deepspeed  = "deepspeed"
	sglang     = "sglang.launch_server"
	benchmark  = "benchmark" // of nccl-tests or the harness: -g GPUs per process
	certify    = "harness certify"
)

// A launch is one command that starts processes.
type launch struct {
	line  int
	outer string // srun, mpirun or "": what starts the processes of all nodes
	options
	inner   string // what each of these processes runs; "": unknown
	inside  options
	exports []variable // of the shells that the command starts
	python  bool       // each of them is a program in Python, or its launcher
	gpus    int        // that a process of outer takes; 0: unknown
	nodes   int        // of which inner is told; 0: of none
}

var (
	ncclTest   = regexp.MustCompile(`^(all_reduce|all_gather|broadcast|reduce_scatter|reduce|alltoall|scatter|gather|sendrecv|hypercube)_perf(_mpi)?$`)
	python     = regexp.MustCompile(`^python[0-9.]*$`)
	localhost  = regexp.MustCompile(`^(localhost|127\.0\.0\.1|\[?::1\]?)(:[0-9]+)?$`)
	shellFlag  = regexp.MustCompile(`^-[a-z]*c$`)
	tools      = strings.Fields("echo hostname nvidia-smi uname")
	notStarted = strings.Fields(`echo printf which command type hash pip pip3 conda module ml spack apt apt-get yum dnf pkill killall
		kill grep sbatch salloc man ls cp rm test [ [[ ssh pdsh clush parallel alias cat docker podman ps pgrep`)
)

// starter names what a word starts, "" for nothing of interest.
func starter(words []string, i int) string {
	before := "-"
	if i > 0 {
		before = words[i-1]
	}
	switch w := path.Base(words[i]); {
	case w == srun, w == torchrun, w == deepspeed, w == sglang:
		return w
	case w == "run" && path.Base(before) == "tune": // torchtune's
		return torchrun
	case w == mpirun, w == "mpiexec", w == "mpiexec.hydra", w == "orterun", w == "prterun":
		return mpirun
	case w == "torch.distributed.run", w == "torch.distributed.launch":
		return torchrun
	case w == "launch" && path.Base(before) == accelerate, w == "accelerate.commands.launch":
		return accelerate
	case ncclTest.MatchString(w), i > 1 && before == "coll" && path.Base(words[i-2]) == "harness":
		return benchmark
	case w == "certify" && i > 0:
		return certify
	}
	return ""
}

// launches returns what a script starts.
func (sh *shell) launches() []*launch {
	var out []*launch
	for _, cmd := range sh.commands {
		if slices.Contains(notStarted, path.Base(cmd.words[0])) {
			continue
		}
		words, exports := flatten(cmd.words, sh.inherited(), 0)
		l, from := &launch{line: cmd.line, exports: exports}, 0
		for i := range words {
			what := starter(words, i)
			if l.outer == "" && (what == srun || what == mpirun) {
				l.outer, from = what, i+1
			} else if what != "" {
				l.inner, l.inside, words = what, parseOptions(words[i+1:]), words[:i]
				break
			}
		}
		l.python = slices.ContainsFunc(words[from:], func(w string) bool { return python.MatchString(path.Base(w)) })
		tool := l.inner == "" && !l.python && slices.ContainsFunc(words[from:], func(w string) bool { return slices.Contains(tools, path.Base(w)) })
		l.options = parseOptions(words[from:])
		if l.inner == "" && l.has("version", "V", "help", "h", "usage") { // it starts nothing
			continue
		}
		if !tool && (l.outer != "" || l.inner != "") {
			l.spawn()
			out = append(out, l)
		}
	}
	return out
}

// inherited returns Slurm's variables that the shell of each task has with the same value.
func (sh *shell) inherited() map[string]string {
	vars := maps.Clone(sh.vars)
	maps.DeleteFunc(vars, func(name, _ string) bool {
		return !strings.HasPrefix(name, "SLURM_") || strings.HasSuffix(name, "ID")
	})
	return vars
}

// flatten puts the words of a shell's command string in the place of the string.
// It also returns what these shells export.
func flatten(words []string, vars map[string]string, depth int) (out []string, exports []variable) {
	for i, w := range words {
		if i == 0 || depth > 3 || !shellFlag.MatchString(words[i-1]) || !strings.ContainsAny(w, " \n") {
			out = append(out, w)
			continue
		}
		sh := parseShell(w, maps.Clone(vars))
		exports = append(exports, sh.exports...)
		for _, c := range sh.commands {
			more, e := flatten(c.words, vars, depth+1)
			out, exports = append(out, more...), append(exports, e...)
		}
	}
	return out, exports
}

// spawn sets how many GPUs a process takes, and of how many nodes it is told.
func (l *launch) spawn() {
	switch o := l.inside; l.inner {
	case benchmark:
		l.gpus = 1
		if o.has("g", "ngpus") {
			l.gpus = o.number("g", "ngpus")
		}
		if o.has("t", "nthreads") {
			l.gpus *= o.number("t", "nthreads")
		}
	case torchrun:
		l.gpus, l.nodes = o.number("nproc-per-node"), o.number("nnodes")
	case accelerate: // it counts the processes of all nodes
		l.nodes = o.number("num-machines")
		l.gpus = divide(o.number("num-processes"), max(l.nodes, 1))
	case deepspeed:
		l.gpus, l.nodes = o.number("num-gpus"), o.number("num-nodes")
	case sglang: // it counts the GPUs of all nodes
		if l.nodes = o.number("nnodes"); !o.has("nnodes") {
			l.nodes = 1
		}
		l.gpus = divide(max(o.number("tp", "tp-size", "tensor-parallel-size"), 1)*max(o.number("pp-size", "pipeline-parallel-size"), 1), l.nodes)
	}
}

// A judge compares what a script starts with what its job has.
type judge struct {
	layout
	*shell
	variable Variable
	report   func(line int, level, field, message, remedy string)
}

func (j *judge) judge() {
	vars := append(slices.Clone(j.env), j.exports...)
	j.nccl(vars)
	all := j.launches()
	alone := !slices.ContainsFunc(all, func(l *launch) bool { return l.outer != "" }) &&
		!slices.ContainsFunc(j.commands, func(c command) bool { return slices.Contains([]string{"ssh", "pdsh", "clush", "parallel"}, c.words[0]) })
	for _, l := range all {
		j.start(l)
		j.ranks(l)
		j.reach(l, vars)
		if j.batch && alone && j.nodes > 1 && l.nodes > 1 && l.inner != deepspeed {
			j.report(l.line, LevelWarning, "", fmt.Sprintf("%s is to wait for %d nodes, but sbatch runs the script on the first alone", l.inner, l.nodes), "write srun before it")
		}
	}
}

// start checks one command.
func (j *judge) start(l *launch) {
	bad := func(level, remedy, format string, args ...any) {
		j.report(l.line, level, "", fmt.Sprintf(format, args...), remedy)
	}
	nodes, per, gpus := j.nodes, 1, j.gpus
	switch {
	case l.has("$"):
		return
	case l.outer == "" && !j.every:
		nodes = 1
	case l.outer == "":
	case l.outer == srun:
		a := j.slurm(l.options)
		nodes, per, gpus = a.nodes, a.tasks, a.gpus
	default:
		per = j.mpirun(l, bad)
	}
	switch {
	case (l.inner == srun || l.inner == mpirun) && nodes*per > 1:
		bad(LevelError, "write one of the two", "each of %d processes of %s starts %s", nodes*per, l.outer, l.inner)
	case l.inner == certify && per > 1:
		bad(LevelError, "write 1", "%d processes a node, but harness certify takes one process a node, which sees all GPUs", per)
	case l.inner == torchrun || l.inner == accelerate || l.inner == sglang:
		j.toldNodes(l, nodes, bad)
		if l.inner == torchrun && l.outer == srun && nodes > 1 && !l.inside.has("nnodes", "standalone", "$") && !j.sets("PET_NNODES") {
			bad(LevelWarning, "write --nnodes and --rdzv-endpoint", "on each of %d nodes torchrun is told of no other (--nnodes is 1 by default), so each trains by itself", nodes)
		}
	case l.outer == srun && l.inner == "" && l.python && gpus > 0 && per > gpus:
		bad(LevelWarning, "write as many tasks as GPUs; NCCL refuses two ranks on one", "%d tasks a node run Python, but there are %d GPUs", per, gpus)
	}
	visible := 0
	for _, v := range slices.Concat(j.env, j.exports) {
		if v.name == "CUDA_VISIBLE_DEVICES" && !v.maybe && !unknown(v.value) && v.value != "" {
			visible = 1 + strings.Count(v.value, ",")
		}
	}
	switch use := per * l.gpus; {
	case use == 0:
	case visible > 0 && l.gpus > visible: // of several processes Slurm may give each its own
		bad(LevelError, "name as many, or unset it", "a process uses %d GPUs, but CUDA_VISIBLE_DEVICES names %d", l.gpus, visible)
	case gpus > 0 && use > gpus, gpus == 0 && use > 16 && (l.inner == benchmark || per > 1):
		there := fmt.Sprintf("there are %d", gpus)
		if gpus == 0 {
			there = "no machine has so many"
		}
		bad(LevelError, "write as many processes times GPUs as a node has", "processes a node: %d, GPUs of each: %d; that needs %d GPUs, but %s", per, l.gpus, use, there)
	case use < gpus && (per > 1 || l.inner == benchmark || l.nodes > 1):
		bad(LevelWarning, "is that so?", "processes a node: %d, GPUs of each: %d; %d of %d GPUs are idle", per, l.gpus, gpus-use, gpus)
	}
}

// toldNodes compares the nodes of which a launcher is told with those on which it starts.
func (j *judge) toldNodes(l *launch, nodes int, bad func(level, remedy, format string, args ...any)) {
	rank, backend := l.inside.last("node-rank", "machine-rank"), l.inside.last("rdzv-backend")
	for _, name := range []string{"rdzv-endpoint", "master-port", "main-process-port", "dist-init-addr"} {
		at := l.inside.last(name)
		if n, err := strconv.Atoi(at[strings.LastIndexByte(at, ':')+1:]); err == nil && n > 1<<16-1 {
			bad(LevelError, "write one from 1024 to 65535", "--%s: there is no port %d", name, n)
		}
	}
	for _, name := range []string{"rdzv-endpoint", "master-addr", "main-process-ip", "dist-init-addr"} {
		if at := l.inside.last(name); localhost.MatchString(at) && min(nodes, l.nodes) > 1 {
			bad(LevelError, "write the first node's name", "--%s=%s: on each of %d nodes that is the node itself, so they do not find each other", name, at, nodes)
		}
	}
	if l.inside.has("standalone") && min(nodes, l.nodes) > 1 {
		bad(LevelError, "write --rdzv-endpoint in its place", "--standalone: each of %d nodes trains by itself", nodes)
	}
	switch all := l.outer == srun && (!l.has("N", "nodes", "w", "nodelist", "n", "ntasks") || nodes > 1 && nodes == j.nodes) || l.outer == "" && j.every; {
	case !all || nodes < 1 || l.nodes < 1 || l.inside.has("standalone"):
	case l.nodes != nodes:
		bad(LevelError, "write the same number", "%s is told of %d nodes, but starts on %d", l.inner, l.nodes, nodes)
	case nodes > 1 && rank != "" && !unknown(rank) && (backend == "" || backend == "static"): // the others number the nodes themselves
		bad(LevelError, `let the shell of each task expand it: srun bash -c '… "$SLURM_NODEID" …'`, "on each of %d nodes %s gets the number %s", nodes, l.inner, rank)
	}
}

// sets reports whether a script or its environment sets a variable.
func (j *judge) sets(name string) bool {
	return slices.ContainsFunc(slices.Concat(j.env, j.exports), func(v variable) bool { return v.name == name })
}

var perNode = regexp.MustCompile(`^ppr:([0-9]+):node\b`)

// mpirun returns how many processes mpirun starts on a node, and reports what it cannot start.
func (j *judge) mpirun(l *launch, bad func(level, remedy, format string, args ...any)) int {
	nodes, slots := j.nodes, j.slots
	if l.has("host", "H", "hosts") {
		nodes, slots = 0, 0
	} else if l.has("hostfile", "machinefile", "f", "rankfile") && !j.hosts {
		slots = 0
	}
	np, per, by := l.number("np", "n", "c"), l.number("npernode", "N", "ppn", "perhost"), l.last("map-by")
	if m := perNode.FindStringSubmatch(by); m != nil {
		per, _ = strconv.Atoi(m[1])
	}
	limited := per > 0
	if !limited {
		per = slots
	}
	level, over := LevelError, strings.Contains(strings.ToLower(fmt.Sprint(l.options)), "oversubscribe")
	if j.batch || j.other {
		level = LevelWarning // whether it refuses that depends on its version
	}
	switch message := fmt.Sprintf("mpirun starts %d processes, but %d on each of %d nodes are %d", np, per, nodes, nodes*per); {
	case np == 0 && l.has("np", "n", "c") && !limited, strings.HasPrefix(by, "ppr:") && !limited:
		return 0
	case limited && j.hosts && slots > 0 && per > slots && !over && !j.other:
		bad(LevelWarning, fmt.Sprintf("write slotsPerWorker: %d", per), "mpirun starts %d processes a node, but a node has %d slots", per, slots)
	case np == 0:
	case nodes*per == 0:
		return divide(np, nodes)
	case np > nodes*per && !over:
		bad(level, "write that number, or name more nodes", "%s", message)
	case np < nodes*per && !limited && l.inner != certify:
		bad(LevelWarning, "is that so?", "%s", message)
	}
	if np > 0 && strings.HasPrefix(by, "node") {
		return (np + nodes - 1) / nodes
	}
	if np > 0 {
		per = min(per, np)
	}
	return per
}
