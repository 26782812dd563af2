package fleet

import (
	"fmt"
	"slices"
	"strings"

	"github.com/assay-hpc/assay/internal/hostlist"
)

// Expected is the machines that should have certificates.
type Expected struct {
	Nodes    []string
	Switches map[string]string // the leaf switch of a node, by its name
}

// ParseExpected reads machines from one of: a list as Slurm writes it ("node[01-08],login1"), a
// hostfile (a host in each line, with slots or without; "#" begins a comment), or Slurm's
// topology.conf (lines "SwitchName=leaf1 Nodes=node[01-08]"; continued lines end in "\"). Errors
// name the line; name is the file's, or the flag's.
func ParseExpected(name, text string) (*Expected, error) {
	e := &Expected{Switches: map[string]string{}}
	seen := map[string]bool{}
	lines := strings.Split(strings.ReplaceAll(text, "\r", ""), "\n")
	for i := 0; i < len(lines); i++ {
		first := i + 1
		line := uncommented(lines[i])
		for strings.HasSuffix(line, `\`) && i+1 < len(lines) {
			i++
			line = strings.TrimSuffix(line, `\`) + uncommented(lines[i])
		}
		list, leaf, ok := hostsOf(line)
		if !ok {
			continue
		}
		hosts, err := hostlist.Expand(list, false)
		if err != nil {
			return nil, fmt.Errorf("%s:%d: %w; write node[01-08,12]", name, first, err)
		}
		for _, h := range hosts {
			if strings.ContainsAny(h, "= \t\"'") {
				return nil, fmt.Errorf("%s:%d: %.60q is no name of a host; a line has a host, or SwitchName=… Nodes=…", name, first, h)
			}
			if leaf != "" {
				e.Switches[h] = leaf
			}
			if !seen[h] {
				seen[h] = true
				e.Nodes = append(e.Nodes, h)
			}
		}
		if len(e.Nodes) > hostlist.Most {
			return nil, fmt.Errorf("%s:%d: more than %d hosts", name, first, hostlist.Most)
		}
	}
	if len(e.Nodes) == 0 {
		return nil, fmt.Errorf("%s: it names no host", name)
	}
	slices.SortFunc(e.Nodes, compareNames)
	return e, nil
}

func uncommented(line string) string {
	line, _, _ = strings.Cut(line, "#")
	return strings.TrimSpace(line)
}

// hostsOf returns the list of hosts of a line, and their switch in a topology.conf; false if it has
// none.
func hostsOf(line string) (list, leaf string, ok bool) {
	fields := strings.Fields(line)
	if len(fields) == 0 {
		return "", "", false
	}
	name, value, _ := strings.Cut(fields[0], "=")
	if !strings.EqualFold(name, "SwitchName") && !strings.EqualFold(name, "BlockName") {
		return strings.TrimSuffix(fields[0], ","), "", true // a hostfile's, or a list
	}
	for _, f := range fields[1:] {
		if key, nodes, _ := strings.Cut(f, "="); strings.EqualFold(key, "Nodes") && nodes != "" {
			return nodes, value, true
		}
	}
	return "", "", false // a switch above others
}

// against returns the expected machines that are not known, and the known ones that are not
// expected. Names that differ in their domain alone are the same.
func (e *Expected) against(known map[string]bool) (missing, unexpected []string) {
	missing, unexpected = []string{}, []string{}
	short := map[string]bool{}
	for name := range known {
		short[host(name)] = true
	}
	expected := map[string]bool{}
	for _, name := range e.Nodes {
		expected[name], expected[host(name)] = true, true
		if !known[name] && !(short[host(name)] && (host(name) == name || known[host(name)])) {
			missing = append(missing, name)
		}
	}
	for name := range known {
		if !expected[name] && !expected[host(name)] {
			unexpected = append(unexpected, name)
		}
	}
	slices.SortFunc(unexpected, compareNames)
	return missing, unexpected
}

// host returns a name without its domain. An address stays whole.
func host(name string) string {
	before, _, _ := strings.Cut(name, ".")
	if before == "" || strings.Trim(before, "0123456789") == "" {
		return name
	}
	return before
}
