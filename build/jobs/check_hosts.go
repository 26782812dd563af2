package jobs

import (
	"cmp"
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

var (
	// hostLine is a line of a hostfile of Open MPI, of DeepSpeed (with slots alone), or of
	// MPICH and Intel MPI ("host:slots").
	hostLine  = regexp.MustCompile(`^[+^]?[A-Za-z0-9_.:@%\[\]-]+(\s+[a-z_-]+\s*=\s*\S+)*$`)
	slotsWord = regexp.MustCompile(`\s(?:slots|cpus?|count)\s*=\s*(\S+)|^[^:]+:([0-9]+)$`)
)

// hosts checks a hostfile.
func (c *checker) hosts(text []byte) {
	lines := strings.Split(string(text), "\n")
	seen := map[string]int{}
	first, total := 0, 0
	for i, line := range lines {
		line, _, _ = strings.Cut(line, "#")
		line = strings.TrimSpace(line)
		if line == "" {
			continue
		}
		if !hostLine.MatchString(line) {
			c.add(LevelSkipped, i+1, 0, "", fmt.Sprintf("%.60q is no line of a manifest, a script or a hostfile", line), "")
			return
		}
		m := slotsWord.FindStringSubmatch(line)
		host := strings.Fields(line)[0]
		if m != nil && m[2] != "" {
			host, _, _ = strings.Cut(host, ":")
		}
		if before := seen[host]; before > 0 && m != nil && m[1] != "" {
			c.add(LevelWarning, i+1, 0, "", fmt.Sprintf("%s is there already, on line %d", host, before), "write one line with all its slots: DeepSpeed refuses two")
		}
		seen[host] = i + 1
		if m == nil { // Open MPI takes the number of cores, or counts the lines
			continue
		}
		slots, err := strconv.Atoi(cmp.Or(m[1], m[2]))
		switch {
		case err != nil || slots < 1:
			c.bad(i+1, "", "slots="+cmp.Or(m[1], m[2]), "write how many ranks the host takes: one a GPU, or one for harness certify")
		case first == 0:
			first = slots
		case slots != first:
			c.add(LevelWarning, i+1, 0, "", fmt.Sprintf("%s has %d slots, the first host %d", host, slots, first), "is that so? algorithms of several nodes want them equal")
		}
		total += slots
	}
	j := &judge{layout: layout{nodes: len(seen), hosts: true}, variable: c.variable, shell: &shell{}, report: func(line int, level, field, message, remedy string) {
		c.add(level, line, 0, field, message, remedy)
	}}
	if total == first*len(seen) {
		j.slots = first
	}
	for i, line := range lines {
		if text, ok := strings.CutPrefix(strings.TrimSpace(line), "#"); ok && strings.HasPrefix(strings.TrimSpace(text), "mpirun ") {
			for _, cmd := range parseShell(text, nil).commands {
				j.commands = append(j.commands, command{i + 1, cmd.words})
			}
		}
	}
	j.judge()
	if len(seen) == 0 {
		c.bad(0, "", "it names no host", `write "HOST slots=8", one a line`)
	}
}
