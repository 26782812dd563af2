package jobs

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// communication matches the variables of NCCL and of what is below it.
var communication = regexp.MustCompile(`^(NCCL|RCCL|OFI_NCCL|TORCH_NCCL|UCX|FI|SHARP)_|^(LD_LIBRARY_PATH|LD_PRELOAD|CUDA_VISIBLE_DEVICES)$`)

// withinNode matches interfaces that no other node is reached over.
var withinNode = regexp.MustCompile(`^(lo|docker[0-9]+|virbr[0-9]+)$`)

// port reports whether a value may be the number of a port: it is none, or from 1024 to 65535.
func port(value string) bool {
	n, err := strconv.Atoi(value)
	return err != nil || n == 0 || 1024 <= n && n <= 1<<16-1
}

// nccl checks values of NCCL's variables, and the numbers of processes.
func (j *judge) nccl(vars []variable) {
	for _, l := range j.launches() {
		for _, v := range l.options["x"] {
			if name, value, ok := strings.Cut(v, "="); ok && l.outer == mpirun {
				vars = append(vars, variable{name: name, value: value, line: l.line})
			}
		}
	}
	plugin := slices.ContainsFunc(vars, func(v variable) bool {
		return (v.name == "NCCL_NET" || v.name == "NCCL_NET_PLUGIN") && v.value != "none" && v.value != "Socket"
	})
	for i, v := range vars {
		if j.variable != nil && !unknown(v.value) && communication.MatchString(v.name) {
			if f := j.variable(v.name, v.value); f != nil {
				j.report(v.line, f.Level, v.name, f.Message, f.Remedy)
			}
		}
		switch is := v.name + "=" + v.value; {
		case v.value == "" && communication.MatchString(v.name) && i+1 < len(vars) && vars[i+1].after == v.name:
			j.report(v.line, LevelWarning, v.name, fmt.Sprintf("it is empty: a space follows =, and %q is another word", vars[i+1].name), "write "+v.name+"="+vars[i+1].name)
		case v.maybe:
		case is == "NCCL_IB_DISABLE=1" && j.nodes > 1 && !plugin:
			j.report(v.line, LevelWarning, v.name, fmt.Sprintf("between %d nodes NCCL uses sockets, not InfiniBand or RoCE", j.nodes), "remove it, unless the nodes have neither")
		case is == "NCCL_P2P_DISABLE=1" && j.gpus > 1:
			j.report(v.line, LevelWarning, v.name, fmt.Sprintf("%d GPUs of a node use the host's memory, not NVLink", j.gpus), "remove it, unless it is to measure that")
		case v.name == "NCCL_SOCKET_IFNAME" && withinNode.MatchString(v.value) && j.nodes > 1:
			j.report(v.line, LevelError, v.name, fmt.Sprintf("no node reaches another over %s, and there are %d", v.value, j.nodes), "name the interface between the nodes")
		case v.name == "NCCL_SOCKET_IFNAME" && keepsLoopback(v.value) && j.nodes > 1:
			j.report(v.line, LevelWarning, v.name, "an exclusion replaces NCCL's own (^lo,docker): it takes the loopback, over which no node reaches another", "write ^lo,"+strings.TrimLeft(v.value, "^="))
		case v.name == "MASTER_PORT" && !port(v.value):
			j.report(v.line, LevelError, v.name, "there is no port "+v.value+" that a user's program can have", "write one from 1024 to 65535")
		case v.name == "MASTER_ADDR" && localhost.MatchString(v.value) && j.nodes > 1 && (j.batch && j.tasks > 0 && j.together() || j.every):
			j.report(v.line, LevelWarning, v.name, fmt.Sprintf("on each of %d nodes %s is the node itself, so they do not find each other", j.nodes, v.value), "write the first node's name")
		case j.batch && slices.Contains([]string{"RANK=0", "LOCAL_RANK=0", "NODE_RANK=0"}, is) && j.tasks*j.nodes > 1:
			j.report(v.line, LevelWarning, v.name, fmt.Sprintf("it is 0 for each of %d tasks: the script runs once", j.tasks*j.nodes), "set it in the shell of each task: srun bash -c '…'")
		}
	}
}

// keepsLoopback reports whether a value excludes interfaces and leaves the loopback in.
func keepsLoopback(value string) bool {
	list, not := strings.CutPrefix(value, "^")
	return not && !unknown(value) && !slices.ContainsFunc(strings.Split(strings.TrimPrefix(list, "="), ","), func(s string) bool { return s == "lo" || s == "l" })
}

// ranks checks the numbers that the shells of srun's tasks get.
func (j *judge) ranks(l *launch) {
	a := j.slurm(l.options)
	if l.outer != srun || !j.batch || a.tasks*a.nodes < 2 {
		return
	}
	vars := append(slices.Clone(j.exports), l.exports...)
	by := map[string]string{}
	for _, v := range vars {
		by[v.name] = v.value
	}
	for _, v := range l.exports {
		switch {
		case slices.Contains([]string{"RANK=0", "LOCAL_RANK=0", "NODE_RANK=0"}, v.name+"="+v.value) && (v.name != "LOCAL_RANK" || a.tasks > 1):
			j.report(l.line, LevelWarning, v.name, fmt.Sprintf("it is 0 in each of %d tasks: the batch script's shell expands it", a.tasks*a.nodes), `write \$ for $ within "…"`)
		case v.name == "RANK" && strings.Contains(v.value, "SLURM_LOCALID") && a.nodes > 1:
			j.report(l.line, LevelError, v.name, fmt.Sprintf("SLURM_LOCALID counts the tasks of one node, and there are %d nodes", a.nodes), "write SLURM_PROCID")
		}
	}
	if world, err := strconv.Atoi(by["WORLD_SIZE"]); err == nil && world != a.tasks*a.nodes && strings.Contains(by["RANK"], "SLURM_PROCID") && a.tasks > 0 {
		j.report(l.line, LevelError, "WORLD_SIZE", fmt.Sprintf("it is %d, but srun starts %d tasks", world, a.tasks*a.nodes), "write SLURM_NTASKS")
	}
}

// together reports whether processes on several nodes find each other by MASTER_ADDR.
func (j *judge) together() bool {
	return slices.ContainsFunc(j.launches(), func(l *launch) bool {
		return l.outer == srun && j.slurm(l.options).nodes > 1 && l.python && !l.inside.has("rdzv-endpoint", "master-addr", "standalone")
	})
}

// reach warns about variables that do not get to a command's ranks.
func (j *judge) reach(l *launch, vars []variable) {
	passed, why, remedy := j.passes(l)
	var lost []string
	line := 0
	for _, v := range vars {
		if communication.MatchString(v.name) && !slices.Contains(lost, v.name) && !slices.Contains(passed, v.name) {
			if lost = append(lost, v.name); line == 0 {
				line = v.line
			}
		}
	}
	if why != "" && len(lost) > 0 {
		names := strings.Join(lost[:min(3, len(lost))], ", ")
		if len(lost) > 3 {
			names += fmt.Sprintf(" and %d more", len(lost)-3)
		}
		j.report(line, LevelWarning, lost[0], names+": "+why, remedy)
	}
}

// passes returns the variables that a command passes to its ranks, and why others do not
// get there; "" if they do, or if that is unknown.
func (j *judge) passes(l *launch) (passed []string, why, remedy string) {
	names := func(lists ...string) (out []string) {
		for _, v := range strings.FieldsFunc(strings.Join(lists, ","), func(r rune) bool { return strings.ContainsRune(",; ", r) }) {
			name, _, _ := strings.Cut(v, "=")
			out = append(out, name)
		}
		return out
	}
	export := l.last("export")
	switch {
	case l.has("$"), slices.ContainsFunc(slices.Concat(l.options["x"], l.options["container-env"]), unknown):
	case l.outer == mpirun && (j.nodes > 1 || j.nodes == 0 && (l.has("hostfile", "machinefile") || strings.Contains(l.last("host", "H"), ","))):
		if j.other || l.has("ppn", "perhost", "genv", "genvall", "genvlist", "env", "hosts", "f", "bootstrap", "iface", "rr") {
			return nil, "", "" // MPICH and Intel MPI pass them all
		}
		for _, v := range l.options["mca"] {
			if list, ok := strings.CutPrefix(v, "mca_base_env_list="); ok {
				passed = names(list)
			}
		}
		for _, v := range l.options["x"] { // the value may have commas
			passed = append(passed, names(v)[:min(1, len(names(v)))]...)
		}
		return passed, "mpirun passes no variable to ranks on other nodes unless told to", "name it: mpirun -x NAME"
	case l.outer == srun && export != "" && !strings.Contains(export, "ALL") && !unknown(export):
		return names(export), "srun --export=" + export + " keeps it from the tasks", "write --export=ALL"
	case l.outer == srun && l.has("container-image", "container-name"):
		return names(l.options["container-env"]...), "where the image sets it, too, the image's value counts", "name it in srun's --container-env"
	}
	return nil, "", ""
}
