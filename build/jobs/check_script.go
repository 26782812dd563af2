package jobs

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/assay-hpc/assay/internal/words"
)

var (
	directive = regexp.MustCompile(`^#SBATCH\s`)
	notOpen   = regexp.MustCompile(`(?i)intel.?mpi|\bimpi\b|mpich|mvapich`)
)

// script checks a shell script and its Slurm directives.
func (c *checker) script(text []byte) {
	o, at, end := directives(string(text))
	a := layout{}.slurm(o)
	if o.has("ntasks", "n", "ntasks-per-node", "tasks-per-node") { // else Slurm counts processors
		a.slots = a.tasks
	}
	if o.has("hetjob", "packjob") {
		a = layout{}
		c.add(LevelSkipped, at["hetjob"]+at["packjob"], 0, "", "the components of a heterogeneous job are not compared", "")
	}
	a.batch, a.other = len(at) > 0, notOpen.Match(text)
	if a.batch && !strings.HasPrefix(string(text), "#!") {
		c.bad(1, "", "sbatch refuses a script whose first line does not begin with #!", "write #!/bin/bash as the first line, with nothing before it")
	}
	if a.batch && strings.Contains(string(text), "\r\n") {
		c.bad(1, "", "sbatch refuses a script with DOS line breaks", "dos2unix removes them")
	}
	c.unexpanded(o, at)
	j := &judge{layout: a, shell: parseShell(string(text), slurmVars(a, o)), variable: c.variable, report: func(line int, level, field, message, remedy string) {
		c.add(level, line, 0, field, message, remedy)
	}}
	j.judge()
	if line := j.shell.open; line > 0 && strings.Count(unquotable.ReplaceAllString(string(text), ""), `"`)%2 == 1 {
		c.add(LevelWarning, line, 0, "", "nothing closes the quote that opens here or above", "bash -n says where the shell sees it")
	}
	c.sbatch(j.shell, end)
	c.continued(string(text))
	c.batchContainer(j, o, at["container-image"])
	c.docker(j.shell, string(text))
}

// directives returns the options of #SBATCH lines, and where they are. sbatch reads them up
// to the first command, whose line is end.
func directives(text string) (all options, at map[string]int, end int) {
	all, at = options{}, map[string]int{}
	for i, line := range strings.Split(text, "\n") {
		if end = i + 1; strings.TrimSpace(line) != "" && strings.TrimSpace(line)[0] != '#' {
			break
		}
		if !directive.MatchString(line) {
			continue
		}
		for _, cmd := range parseShell(strings.TrimPrefix(line, "#SBATCH"), nil).commands {
			if w := cmd.words[0]; w == "hetjob" || w == "packjob" {
				cmd.words[0] = "--" + w
			}
			for name, values := range parseOptions(cmd.words) {
				all[name], at[name] = append(all[name], values...), i+1
			}
		}
	}
	return all, at, end
}

// slurmVars returns Slurm's variables as the batch script gets them: it is the first task of
// the first node.
func slurmVars(a layout, o options) map[string]string {
	vars := map[string]string{}
	if !a.batch {
		return vars
	}
	for name, n := range map[string]int{
		"SLURM_NNODES": a.nodes, "SLURM_JOB_NUM_NODES": a.nodes, "SLURM_NTASKS": a.nodes * a.slots, "SLURM_GPUS_ON_NODE": a.gpus,
		"SLURM_NTASKS_PER_NODE": o.number("ntasks-per-node"), "SLURM_GPUS_PER_NODE": o.number("gpus-per-node"),
	} {
		if n > 0 {
			vars[name] = strconv.Itoa(n)
		}
	}
	vars["SLURM_PROCID"], vars["SLURM_NODEID"], vars["SLURM_LOCALID"] = "0", "0", "0"
	return vars
}

var (
	counts = strings.Fields("nodes N ntasks n ntasks-per-node ntasks-per-gpu cpus-per-task c gpus G gpus-per-node gpus-per-task gres mem mem-per-gpu mem-per-cpu time t")
	digits = regexp.MustCompile(`^[0-9]{1,4}$`)
)

// unexpanded warns about values of directives that sbatch takes otherwise than they are meant.
func (c *checker) unexpanded(o options, at map[string]int) {
	for _, name := range slices.Sorted(maps.Keys(at)) {
		value := o.last(name)
		switch {
		case unknown(value) && slices.Contains(counts, name):
			c.add(LevelWarning, at[name], 0, name, "sbatch expands no variable in a directive, and refuses "+value+", unless something fills it in first", "write the value, or give it on sbatch's command line")
		case unknown(value) && (name == "output" || name == "o" || name == "error" || name == "e"):
			c.add(LevelWarning, at[name], 0, name, "sbatch expands no variable in a directive: "+value+" is the file's name, unless something fills it in first", "write %j for the job's number, and paths in full")
		case name == "mem" && digits.MatchString(value) && value != "0":
			c.add(LevelWarning, at[name], 0, name, value+" without a unit are megabytes", "write "+value+"G, if gigabytes are meant")
		}
	}
}

// sbatch checks the form of directives. Those after the first command it does not read: tasks
// and GPUs may be missing.
func (c *checker) sbatch(sh *shell, first int) {
	var late []int
	for _, comment := range sh.comments {
		text := comment.words[0]
		switch {
		case !directive.MatchString(text):
			continue
		case comment.line > first:
			late = append(late, comment.line)
			continue
		}
		for _, cmd := range parseShell(strings.TrimPrefix(text, "#SBATCH"), nil).commands {
			for _, w := range cmd.words {
				c.option(comment.line, w)
			}
		}
	}
	if len(late) > 0 {
		message := fmt.Sprintf("sbatch does not read directives after the first command, on line %d", first)
		if len(late) > 1 {
			message += fmt.Sprintf("; there are %d, down to line %d", len(late), late[len(late)-1])
		}
		c.add(LevelWarning, late[0], 0, "", message, "move them up")
	}
}

// option checks a word of a directive that is an option.
func (c *checker) option(line int, w string) {
	name, value, _ := strings.Cut(strings.TrimLeft(w, "-"), "=")
	known := slices.Contains(sbatchOptions, name)
	switch two := strings.HasPrefix(w, "--"); {
	case !strings.HasPrefix(w, "-") || unknown(w):
	case !two && known && len(name) > 2:
		c.bad(line, "", fmt.Sprintf("with one dash sbatch reads -%c with the value %s", name[0], strings.TrimPrefix(w, "-"+name[:1])), "write -"+w)
	case two && !known && !slices.ContainsFunc(sbatchOptions, func(o string) bool { return strings.HasPrefix(o, name) }): // a plugin may add options
		if near := words.Nearest(name, sbatchOptions); words.Distance(name, near) <= 2 && len(name) > 4 {
			c.bad(line, "", "sbatch has no option --"+name, "write --"+near)
		}
	case two && name == "gres" && misspeltGPU.MatchString(value):
		c.bad(line, name, "Slurm has no resource "+misspeltGPU.FindString(value), "write gpu")
	case two && name == "time" && value != "" && !duration.MatchString(value):
		c.bad(line, name, "sbatch cannot read the time "+value, "write minutes, hours:minutes:seconds or days-hours:minutes:seconds")
	}
}

// continued warns about lines that seem to go on, but end.
func (c *checker) continued(text string) {
	for i, l := range strings.Split(text, "\n") {
		if l = strings.TrimSuffix(l, "\r"); notContinued.MatchString(l) && !strings.HasPrefix(strings.TrimSpace(l), "#") {
			c.add(LevelWarning, i+1, 0, "", "a blank follows the last \\, so the next line does not belong to this one", "remove the blank")
		}
	}
}

// unquotable matches comments and escaped quotes.
var unquotable = regexp.MustCompile(`(?m)^[ \t]*#.*$|\\"`)

var (
	notContinued = regexp.MustCompile(`[^\\]\\[ \t]+$`)
	misspeltGPU  = regexp.MustCompile(`^(gpus|GPUs?)\b`)
)

// duration matches what sbatch's --time accepts, and what is filled in first.
var duration = regexp.MustCompile(`(?i)^([0-9]+-|([0-9]+-)?[0-9]+(:[0-9]+){0,2}|unlimited|infinite|-1)$|[<>{}%@]|^[A-Z_]+$`)

// sbatchOptions are sbatch's long options, of Slurm 20.11 to 25.11.
var sbatchOptions = strings.Fields(`account acctg-freq array batch bb bbf begin chdir cluster clusters cluster-constraint comment
	constraint container container-id contiguous core-spec cores-per-socket cpu-freq cpus-per-gpu cpus-per-task deadline
	delay-boot dependency distribution error exclude exclusive export export-file extra extra-node-info get-user-env gid
	gpu-bind gpu-freq gpus gpus-per-node gpus-per-socket gpus-per-task gres gres-flags help hint hold ignore-pbs input
	job-name kill-on-invalid-dep licenses mail-type mail-user mcs-label mem mem-bind mem-per-cpu mem-per-gpu mincpus
	network nice no-kill no-requeue nodefile nodelist nodes ntasks ntasks-per-core ntasks-per-gpu ntasks-per-node
	ntasks-per-socket open-mode output overcommit oversubscribe parsable partition power prefer priority profile
	propagate qos quiet reboot requeue reservation resv-ports segment share signal sockets-per-node spread-job stepmgr
	switches tasks-per-node test-only thread-spec threads-per-core time time-min tmp tres-bind tres-per-job tres-per-task
	uid usage use-min-nodes verbose version wait wait-all-nodes wckey wrap x11
	container-image container-mounts container-name container-workdir container-env container-entrypoint container-writable
	container-mount-home container-remap-root container-save no-container-entrypoint no-container-mount-home no-container-remap-root`)

// batchContainer checks the image in which pyxis runs the script itself.
func (c *checker) batchContainer(j *judge, o options, line int) {
	if line == 0 {
		return
	}
	raw := slices.IndexFunc(j.comments, func(cmd command) bool { return cmd.line == line })
	if image, _, cut := strings.Cut(o.last("container-image"), "#"); cut && !strings.ContainsAny(j.comments[raw].words[0], `\"'`) {
		c.bad(line, "container-image", fmt.Sprintf("sbatch reads %q: the rest is a comment", image), `write \# for #`)
	}
	starts := slices.ContainsFunc(j.launches(), func(l *launch) bool { return l.outer == srun })
	switch {
	case starts:
		c.add(LevelWarning, line, 0, "container-image", "the script itself runs in the image, on the first node: srun is rarely there, and its tasks are not in the image", "write it after srun")
	case j.nodes > 1:
		c.add(LevelWarning, line, 0, "container-image", fmt.Sprintf("the script itself runs in the image, on the first of %d nodes alone", j.nodes), "write srun with --container-image")
	}
}

// docker checks that containers with RDMA devices may pin memory. RDMA needs that, and
// docker does not permit it by default.
func (c *checker) docker(sh *shell, text string) {
	if strings.Contains(text, "memlock=-1") || strings.Contains(text, "IPC_LOCK") || strings.Contains(text, "--privileged") {
		return
	}
	for _, cmd := range sh.commands {
		if i := slices.Index(cmd.words, "run"); i > 0 && slices.ContainsFunc(cmd.words[i:], func(w string) bool { return strings.Contains(w, "/dev/infiniband") }) {
			c.add(LevelWarning, cmd.line, 0, "", "the container gets RDMA devices, but may not pin memory", "add --ulimit memlock=-1")
		}
	}
}
