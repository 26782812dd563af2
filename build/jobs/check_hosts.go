package jobs

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
)

// hostLine is the line format that both Open MPI and DeepSpeed accept.
var hostLine = regexp.MustCompile(`^(\S+)\s+slots=([0-9]+)$`)

// hosts checks a hostfile.
func (c *checker) hosts(text []byte) {
	seen := map[string]int{}
	first, n := 0, 0
	for i, line := range strings.Split(string(text), "\n") {
		line, at := strings.TrimSpace(line), i+1
		if line == "" || line[0] == '#' {
			continue
		}
		n++
		m := hostLine.FindStringSubmatch(line)
		if m == nil {
			c.bad(at, "", fmt.Sprintf("%.60q is not a host with its slots", line), `write "HOST slots=8"; Open MPI takes more, DeepSpeed nothing else`)
			continue
		}
		host := m[1]
		if len(validation.IsDNS1123Subdomain(strings.ToLower(host))) > 0 && len(validation.IsValidIP(nil, host)) > 0 {
			c.bad(at, "", fmt.Sprintf("%.60q is neither a host's name nor an address", host), "correct it")
		}
		if before, ok := seen[host]; ok {
			c.bad(at, "", fmt.Sprintf("%s is there already, on line %d", host, before), "write one line with all its slots")
		}
		seen[host] = at
		slots, err := strconv.Atoi(m[2])
		switch {
		case err != nil || slots < 1:
			c.bad(at, "", fmt.Sprintf("slots=%s", m[2]), "write how many ranks the host takes: one a GPU, or one for harness certify")
		case first == 0:
			first = slots
		case slots != first:
			c.add(LevelWarning, at, 0, "", fmt.Sprintf("%s has %d slots, the first host %d", host, slots, first), "is that so? algorithms of several nodes want them equal")
		}
	}
	c.hostCommand(strings.Split(string(text), "\n"), n, first)
	if n == 0 {
		c.bad(0, "", "it names no host", `write "HOST slots=8", one a line`)
	}
}
