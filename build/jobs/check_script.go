package jobs

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// toolTimeout is for one program; Slurm's ask a controller that may not answer.
const toolTimeout = 20 * time.Second

// script checks a shell script, and what it asks Slurm for.
func (c *checker) script(text []byte) {
	lines := strings.Split(string(text), "\n")
	if !strings.HasPrefix(lines[0], "#!") {
		c.bad(1, "", "the first line does not say which shell runs it", "write #!/bin/bash; sbatch refuses it otherwise")
	}
	slurm := c.directives(lines)
	c.containerEnv(string(text), lines)
	c.docker(lines)
	if c.opts.Tools {
		syntax := c.bash(text)
		if syntax {
			c.shellcheck(text)
		}
		if slurm && syntax {
			c.sbatch(text)
		}
	}
}

var directive = regexp.MustCompile(`^#SBATCH\s+(?:--([a-z-]+)(?:[= ](.*))?|-([A-Za-z])\s*(.*))$`)

// directives checks #SBATCH lines against one another, and reports whether there
// are any.
func (c *checker) directives(lines []string) bool {
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
		return false
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
	return true
}

// short are sbatch's letters for what directives looks at.
var short = map[string]string{"N": "nodes", "t": "time", "J": "job-name", "p": "partition", "A": "account", "o": "output", "n": "ntasks", "c": "cpus-per-task"}

var (
	exported     = regexp.MustCompile(`^\s*export\s+([A-Za-z_][A-Za-z0-9_]*)=`)
	containerEnv = regexp.MustCompile(`--container-env[= ]"?([A-Za-z0-9_,]+)`)
)

// containerEnv: in a container of pyxis the image's variables go before the
// job's, unless they are named.
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

// docker: RDMA pins memory, which a container may not without being told.
func (c *checker) docker(lines []string) {
	for i, line := range lines {
		code, _, _ := strings.Cut(line, " #")
		if strings.Contains(code, "--device /dev/infiniband") && !strings.Contains(strings.Join(lines, "\n"), "memlock=-1") {
			c.bad(i+1, "", "the container gets RDMA devices, but may not pin memory", "add --ulimit memlock=-1")
		}
	}
}

// tool runs a program on the script; ok is false where it could not be asked,
// which is reported as skipped.
func (c *checker) tool(text []byte, name string, args ...string) (out string, status int, ok bool) {
	if _, err := exec.LookPath(name); err != nil {
		c.add(LevelSkipped, 0, 0, "", name+" is not installed", "")
		return "", 0, false
	}
	ctx, cancel := context.WithTimeout(c.ctx, toolTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.WaitDelay = time.Second
	cmd.Stdin = bytes.NewReader(text)
	var b bytes.Buffer
	cmd.Stdout, cmd.Stderr = &b, &b
	err := cmd.Run()
	var exit *exec.ExitError
	switch {
	case ctx.Err() != nil:
		c.add(LevelSkipped, 0, 0, "", fmt.Sprintf("%s did not answer within %s", name, toolTimeout), "")
		return "", 0, false
	case errors.As(err, &exit):
		return b.String(), exit.ExitCode(), true
	case err != nil:
		c.add(LevelSkipped, 0, 0, "", err.Error(), "")
		return "", 0, false
	}
	return b.String(), 0, true
}

var bashLine = regexp.MustCompile(`(?m)^.*?line ([0-9]+): (.*)$`)

// bash reports whether the script is one, or bash is not there to say.
func (c *checker) bash(text []byte) bool {
	out, status, ok := c.tool(text, "bash", "-n")
	if !ok || status == 0 {
		return true
	}
	m := bashLine.FindStringSubmatch(out)
	if m == nil {
		m = []string{"", "0", strings.TrimSpace(out)}
	}
	line, _ := strconv.Atoi(m[1])
	c.bad(line, "", "bash: "+m[2], "correct it")
	return false
}

func (c *checker) shellcheck(text []byte) {
	out, status, ok := c.tool(text, "shellcheck", "--format=json", "--shell=bash", "-")
	if !ok {
		return
	}
	var found []struct {
		Line, Column, Code int
		Level, Message     string
	}
	if err := json.Unmarshal([]byte(out), &found); err != nil {
		c.add(LevelSkipped, 0, 0, "", fmt.Sprintf("shellcheck ended with status %d and %.100q", status, out), "")
		return
	}
	for _, f := range found {
		level := LevelWarning
		if f.Level == "error" {
			level = LevelError
		}
		c.add(level, f.Line, f.Column, fmt.Sprintf("SC%d", f.Code), f.Message, "")
	}
}

// sbatch asks Slurm whether it would take the job. That needs a controller.
func (c *checker) sbatch(text []byte) {
	if _, status, ok := c.tool(nil, "scontrol", "ping"); !ok {
		return
	} else if status != 0 {
		c.add(LevelSkipped, 0, 0, "", "sbatch --test-only: no Slurm controller answers scontrol ping", "")
		return
	}
	out, status, ok := c.tool(text, "sbatch", "--test-only")
	if !ok || status == 0 {
		return
	}
	remedy := "ask sinfo what there is"
	if strings.Contains(out, "unrecognized option") {
		remedy = "this Slurm is too old for it; assay jobs render leaves --segment out with --segment -1"
	}
	c.bad(0, "", "sbatch --test-only: "+oneLine(out), remedy)
}

func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }
