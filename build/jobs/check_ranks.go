package jobs

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	mpi "github.com/kubeflow/mpi-operator/pkg/apis/kubeflow/v2beta1"
	corev1 "k8s.io/api/core/v1"
)

// Benchmarks run one process per GPU. harness certify runs one process per node, which
// sees all of the node's GPUs. Neither works when started the other way.
const (
	oneANode = "harness certify takes one process a node, which sees all GPUs"
	pprNode  = "ppr:1:node"
)

// certifies reports whether a command runs harness certify, directly or inside a
// shell's command string.
func certifies(words []string) bool {
	for i, w := range commandWords(words) {
		if w == "certify" && i > 0 {
			return true
		}
	}
	return false
}

// commandWords returns a command's words, and splits a shell's command string into words.
func commandWords(words []string) []string {
	var out []string
	for _, w := range words {
		for _, f := range strings.Fields(w) {
			out = append(out, strings.Trim(f, `"'`))
		}
	}
	return out
}

// mpirunRanks returns the value of mpirun's -np.
func mpirunRanks(words []string) (n int, ok bool) {
	for i, w := range words {
		if (w == "-np" || w == "--np") && i+1 < len(words) {
			n, err := strconv.Atoi(words[i+1])
			return n, err == nil
		}
	}
	return 0, false
}

// ranks checks that an MPIJob's workers, slots, GPUs and mpirun arguments agree.
func (s *places) ranks(job *mpi.MPIJob) {
	if job.Spec.RunPolicy.ActiveDeadlineSeconds == nil {
		s.report(LevelWarning, "spec.runPolicy", "there is no activeDeadlineSeconds", "a run that hangs would keep its GPUs for ever")
	}
	worker := job.Spec.MPIReplicaSpecs[mpi.MPIReplicaTypeWorker]
	if worker == nil || worker.Replicas == nil || job.Spec.SlotsPerWorker == nil {
		return
	}
	slots, replicas := int64(*job.Spec.SlotsPerWorker), int64(*worker.Replicas)
	byNode := false
	if launcher := job.Spec.MPIReplicaSpecs[mpi.MPIReplicaTypeLauncher]; launcher != nil {
		for i, c := range launcher.Template.Spec.Containers {
			s.launcher(c, fmt.Sprintf("spec.mpiReplicaSpecs[Launcher].template.spec.containers[%d]", i), slots, replicas)
			byNode = byNode || certifies(slices.Concat(c.Command, c.Args))
		}
	}
	if byNode {
		return
	}
	for i, c := range worker.Template.Spec.Containers {
		if gpus, ok := c.Resources.Limits[gpuResource]; ok && gpus.Value() != slots {
			s.report(LevelError, fmt.Sprintf("spec.mpiReplicaSpecs[Worker].template.spec.containers[%d].resources.limits[%s]", i, gpuResource),
				fmt.Sprintf("a worker has %d GPUs, but slotsPerWorker is %d", gpus.Value(), slots), "write the same number: one rank a GPU")
		}
	}
}

// launcher compares mpirun's arguments with slots and workers.
func (s *places) launcher(c corev1.Container, at string, slots, replicas int64) {
	whole := slices.Concat(c.Command, c.Args)
	words := commandWords(whole)
	n, ok := mpirunRanks(words)
	spread := slices.Contains(words, pprNode)
	path := func(word string) string {
		for i, w := range whole {
			if !slices.Contains(commandWords([]string{w}), word) {
				continue
			}
			if i < len(c.Command) {
				return fmt.Sprintf("%s.command[%d]", at, i)
			}
			return fmt.Sprintf("%s.args[%d]", at, i-len(c.Command))
		}
		return at
	}
	switch {
	case certifies(whole):
		if slots != 1 && !spread {
			s.report(LevelError, "spec.slotsPerWorker", fmt.Sprintf("it is %d, but %s", slots, oneANode), "write 1")
		}
		if ok && int64(n) != replicas {
			s.report(LevelError, path(strconv.Itoa(n)), fmt.Sprintf("mpirun starts %d processes on %d workers, but %s", n, replicas, oneANode), "write the number of workers")
		}
	case spread && slots > 1:
		s.report(LevelError, path(pprNode), fmt.Sprintf("one rank a node, but slotsPerWorker is %d", slots), "write slot: one rank a GPU")
	case ok && int64(n) != slots*replicas:
		s.report(LevelError, path(strconv.Itoa(n)),
			fmt.Sprintf("mpirun starts %d ranks, but %d workers of %d slots are %d", n, replicas, slots, slots*replicas), "write that number, or other replicas")
	}
}

// tasks compares a script's number of tasks with its GPUs and with the command that it starts.
func (c *checker) tasks(lines []string, at map[string]int, value map[string]string) {
	const name = "ntasks-per-node"
	gpus, gpuErr := strconv.Atoi(value["gpus-per-node"])
	said := map[string]bool{}
	check := func(line int, tasks string, byNode bool) {
		n, err := strconv.Atoi(tasks)
		what, remedy := "", ""
		switch {
		case err != nil: // not set, or set by a variable
		case byNode && n != 1:
			what, remedy = fmt.Sprintf("%d tasks a node, but %s", n, oneANode), "write 1"
		case !byNode && gpuErr == nil && n != gpus:
			what, remedy = fmt.Sprintf("%d tasks, but %d GPUs a node", n, gpus), "write the same number: one rank a GPU"
		}
		if key := fmt.Sprint(line, what); what != "" && !said[key] {
			said[key] = true
			c.bad(line, name, what, remedy)
		}
	}
	started := false
	for _, cmd := range shellCommands(lines) {
		i := slices.Index(cmd.words, "srun")
		if i < 0 {
			continue
		}
		started = true
		line, tasks := at[name], value[name]
		for k, w := range cmd.words[i:] { // srun's own option overrides the job's
			if v, ok := strings.CutPrefix(w, "--"+name+"="); ok {
				line, tasks = cmd.line, v
			} else if w == "--"+name && i+k+1 < len(cmd.words) {
				line, tasks = cmd.line, cmd.words[i+k+1]
			}
		}
		check(line, tasks, certifies(cmd.words[i:]))
	}
	if !started { // mpirun, for example, uses the job's tasks
		check(at[name], value[name], false)
	}
}

type shellCommand struct {
	line  int
	words []string
}

// shellCommands splits a script into commands and their words. It parses only as much
// shell syntax as is needed to see what srun starts.
func shellCommands(lines []string) []shellCommand {
	var out []shellCommand
	var cmd shellCommand
	for i, line := range lines {
		line = strings.TrimSpace(line)
		if cmd.line == 0 {
			if line == "" || line[0] == '#' {
				continue
			}
			cmd.line = i + 1
		}
		rest, more := strings.CutSuffix(line, "\\")
		cmd.words = append(cmd.words, commandWords([]string{rest})...)
		if !more {
			out, cmd = append(out, cmd), shellCommand{}
		}
	}
	return out
}

// hostCommand compares the mpirun command in a hostfile's comment with the hosts.
func (c *checker) hostCommand(lines []string, hosts, slots int) {
	for i, line := range lines {
		text, comment := strings.CutPrefix(strings.TrimSpace(line), "#")
		words := commandWords([]string{text})
		if !comment || len(words) == 0 || words[0] != "mpirun" {
			continue
		}
		n, ok := mpirunRanks(words)
		spread := slices.Contains(words, pprNode)
		switch {
		case certifies(words):
			if slots > 1 && !spread {
				c.bad(i+1, "", fmt.Sprintf("hosts have %d slots, but %s", slots, oneANode), "write slots=1")
			}
			if ok && n != hosts {
				c.bad(i+1, "", fmt.Sprintf("mpirun starts %d processes on %d hosts, but %s", n, hosts, oneANode), "write the number of hosts")
			}
		case spread && slots > 1:
			c.bad(i+1, "", fmt.Sprintf("one rank a host, but hosts have %d slots", slots), "write --map-by slot: one rank a GPU")
		case ok && n > hosts*slots:
			c.bad(i+1, "", fmt.Sprintf("mpirun starts %d ranks, but %d hosts of %d slots are %d", n, hosts, slots, hosts*slots), "write that number, or name more hosts")
		}
	}
}
