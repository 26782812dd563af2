package jobs

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// script checks a shell script and its Slurm directives.
func (c *checker) script(text []byte) {
	lines := strings.Split(string(text), "\n")
	if !strings.HasPrefix(lines[0], "#!") {
		c.bad(1, "", "the first line does not say which shell runs it", "write #!/bin/bash; sbatch refuses it otherwise")
	}
	c.directives(lines)
	c.containerEnv(string(text), lines)
	c.docker(lines)
}

var directive = regexp.MustCompile(`^#SBATCH\s+(?:--([a-z-]+)(?:[= ](.*))?|-([A-Za-z])\s*(.*))$`)

// directives checks that #SBATCH lines are valid and agree with each other.
func (c *checker) directives(lines []string) {
	at, value := map[string]int{}, map[string]string{}
	command := 0
	for i, line := range lines {
		trimmed := strings.TrimSpace(line)
		if !strings.HasPrefix(trimmed, "#SBATCH") {
			if trimmed != "" && trimmed[0] != '#' && command == 0 {
				command = i + 1
			}
			continue
		}
		m := directive.FindStringSubmatch(strings.TrimRight(line, " \t\r"))
		switch {
		case m == nil:
			c.bad(i+1, "", fmt.Sprintf("%.60q is no directive", line), `write "#SBATCH --name=value" from the first column`)
			continue
		case command > 0:
			c.bad(i+1, "", fmt.Sprintf("sbatch does not read directives after the first command, on line %d", command), "move it up")
		}
		name, v := m[1], m[2]
		if name == "" {
			name, v = short[m[3]], m[4]
		}
		if before, ok := at[name]; ok && name != "" {
			c.bad(i+1, name, fmt.Sprintf("it is there already, on line %d", before), "remove one")
		}
		at[name], value[name] = i+1, v
	}
	if len(at) == 0 {
		return
	}
	c.tasks(lines, at, value)
	nodes, err1 := strconv.Atoi(value["nodes"])
	segment, err2 := strconv.Atoi(value["segment"])
	if err1 == nil && err2 == nil && (segment < 1 || nodes%segment != 0) {
		c.bad(at["segment"], "segment", fmt.Sprintf("segments of %d do not make %d nodes", segment, nodes), "write a divisor of the number of nodes")
	}
	if at["time"] == 0 {
		c.add(LevelWarning, 1, 0, "time", "there is no limit", "a run that hangs would keep its nodes as long as the partition lets it")
	}
}

// short maps sbatch's one-letter options to the names that directives uses.
var short = map[string]string{"N": "nodes", "t": "time", "J": "job-name", "p": "partition", "A": "account", "o": "output", "n": "ntasks", "c": "cpus-per-task"}

var (
	exported     = regexp.MustCompile(`^\s*export\s+([A-Za-z_][A-Za-z0-9_]*)=`)
	containerEnv = regexp.MustCompile(`--container-env[= ]"?([A-Za-z0-9_,]+)`)
)

// containerEnv warns about exported variables that --container-env does not name: in a
// pyxis container the image's value overrides the job's unless the variable is named.
func (c *checker) containerEnv(text string, lines []string) {
	if !strings.Contains(text, "--container-image") {
		return
	}
	var named []string
	for _, m := range containerEnv.FindAllStringSubmatch(text, -1) {
		named = append(named, strings.Split(m[1], ",")...)
	}
	for i, line := range lines {
		if m := exported.FindStringSubmatch(line); m != nil && !slices.Contains(named, m[1]) {
			c.add(LevelWarning, i+1, 0, m[1], "where the image sets it, too, the image's value counts", "name it in srun's --container-env")
		}
	}
}

// docker checks that containers with RDMA devices may pin memory. RDMA needs that, and
// docker does not permit it by default.
func (c *checker) docker(lines []string) {
	for i, line := range lines {
		code, _, _ := strings.Cut(line, " #")
		if strings.Contains(code, "--device /dev/infiniband") && !strings.Contains(strings.Join(lines, "\n"), "memlock=-1") {
			c.bad(i+1, "", "the container gets RDMA devices, but may not pin memory", "add --ulimit memlock=-1")
		}
	}
}
