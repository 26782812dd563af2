// Package variables judges the variables of NCCL, UCX, libfabric and Open MPI that the environment and
// NCCL's files set: what they do on this node, what that costs where it was measured, and what to do.
// The rules are those of coll/knob, which reads them as NCCL does, and of internal/host/netenv, which
// knows the node's adapters and interfaces.
package variables

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/assay-hpc/assay/coll/debug"
	"github.com/assay-hpc/assay/coll/knob"
	"github.com/assay-hpc/assay/internal/host/netenv"
)

// A Finding is what is to be said of a variable.
type Finding struct {
	Name   string // "" of a line of a file that sets none
	From   string // "environment" or file:line
	Grade  netenv.Grade
	Text   string // a whole sentence, with name, value and place
	Costs  []knob.Cost
	Remedy string
}

// String is the text with what was measured.
func (f Finding) String() string {
	var costs []string
	for _, c := range f.Costs {
		costs = append(costs, fmt.Sprintf("measured on %s: %s (%s)", c.On, c.Text, c.Source))
	}
	if costs == nil {
		return f.Text
	}
	return f.Text + "; " + strings.Join(costs, "; ")
}

// OnOneNode says whether the finding is about a variable that makes operations among the GPUs of a node
// slower, so that it can be measured what it costs there.
func (f Finding) OnOneNode(c knob.Configuration) bool {
	row := knob.SlowerNamed(f.Name)
	i := slices.IndexFunc(c.Set, func(s knob.Setting) bool { return s.Name == f.Name })
	return f.Grade != netenv.Stops && row != nil && i >= 0 && row.Inside && row.Does(c.Set[i].Value)
}

// ForPlan returns a configuration for a plan of the environment.
func ForPlan(c knob.Configuration) (set []netenv.Setting, problems []string) {
	for _, s := range c.Set {
		set = append(set, netenv.Setting{Name: s.Name, Value: s.Value, From: s.From, Unread: s.Unread})
	}
	for _, p := range c.Problems {
		problems = append(problems, p.Text)
	}
	return set, problems
}

// Judge returns what is to be said of a configuration on a node, the worst first. plan is the node's,
// with the configuration; nil, and without a node, for an image that may come to any node.
func Judge(c knob.Configuration, n *netenv.Node, plan *netenv.Plan) []Finding {
	j := judge{c: c, node: n, plan: plan}
	j.problems()
	if plan != nil {
		j.kept()
	}
	j.slower()
	j.log()
	j.openMPI()
	j.hidden()
	order := []netenv.Grade{netenv.Stops, netenv.Harms, netenv.Differs}
	slices.SortStableFunc(j.out, func(a, b Finding) int {
		return cmp.Compare(slices.Index(order, a.Grade), slices.Index(order, b.Grade))
	})
	return j.out
}

type judge struct {
	c    knob.Configuration
	node *netenv.Node
	plan *netenv.Plan
	out  []Finding
}

func (j *judge) add(s knob.Setting, g netenv.Grade, remedy string, costs []knob.Cost, format string, a ...any) {
	text := fmt.Sprintf("%s=%s (%s): ", s.Name, debug.Short(s.Value, shown), s.From) + fmt.Sprintf(format, a...)
	j.out = append(j.out, Finding{s.Name, s.From, g, text, costs, remedy})
}

// shown is how many bytes of a value are shown.
const shown = 60

// value returns the setting that NCCL reads of a name; an empty value counts as not set.
func (j *judge) value(name string) (knob.Setting, bool) {
	i := slices.IndexFunc(j.c.Set, func(s knob.Setting) bool { return s.Name == name })
	if i < 0 || j.c.Set[i].Value == "" || j.c.Set[i].Unread != "" {
		return knob.Setting{}, false
	}
	return j.c.Set[i], true
}

// problems adds what NCCL does not take as it is written.
func (j *judge) problems() {
	for _, p := range j.c.Problems {
		grade := netenv.Harms
		if p.Refused {
			grade = netenv.Stops
		}
		text, remedy := p.Text, "correct it, or take it out"
		i := strings.Index(text, "; allowed: ")
		if i < 0 {
			i = strings.LastIndex(text, "; ")
		}
		if i >= 0 {
			text, remedy = text[:i], text[i+len("; "):]
		}
		if p.Near != "" {
			remedy = "write " + p.Near + ", if that is meant, or take it out"
		} else if p.Unknown {
			remedy = "take it out, unless another library or a plugin reads it"
		}
		if p.Unknown && p.Near == "" {
			grade = netenv.Differs
		}
		j.out = append(j.out, Finding{p.Name, p.From, grade, text, nil, remedy})
	}
}

// kept adds what the node has against the values.
func (j *judge) kept() {
	for _, k := range j.plan.Kept {
		if k.Grade == "" || k.Unread != "" { // that is one of the problems
			continue
		}
		var costs []knob.Cost
		if s := knob.SlowerNamed(k.Name); s != nil && k.Grade == netenv.Harms && s.Does(k.Value) {
			costs = s.Costs
		}
		j.add(knob.Setting{Name: k.Name, Value: k.Value, From: k.From}, k.Grade, k.Remedy(), costs, "it %s", k.Against)
	}
}

// slower adds the settings that make NCCL slower and for which the node has no rule of its own.
func (j *judge) slower() {
	for i := range knob.Slowers {
		row := &knob.Slowers[i]
		s, ok := j.value(row.Name)
		if !ok || !strings.HasPrefix(row.Name, "NCCL_") || !row.Does(s.Value) || !j.matters(row) || slices.ContainsFunc(j.out, func(f Finding) bool { return f.Name == row.Name && f.Grade == netenv.Stops }) {
			continue
		}
		grade := netenv.Differs
		if row.Harms(s.Value) && (row.Name != "NCCL_P2P_LEVEL" || j.nvlinked()) {
			grade = netenv.Harms
		}
		j.add(s, grade, row.Advice, row.Costs, "%s", row.Effect)
	}
}

// matters reports whether a setting can cost something here.
func (j *judge) matters(row *knob.Slower) bool {
	switch {
	case j.plan == nil:
		return true
	case netenv.Judges(row.Name) && row.Name != "NCCL_PROTO" && row.Name != "NCCL_BUFFSIZE":
		return false
	case row.Name == "NCCL_NVLS_ENABLE" || row.Name == "NCCL_CUMEM_ENABLE":
		return j.nvlinked()
	}
	return row.Inside && len(j.node.GPUs) > 1 || row.Between && j.plan.Data.Kind != netenv.Sockets
}

func (j *judge) nvlinked() bool {
	return j.node == nil || len(j.node.GPUs) > 1 && !slices.ContainsFunc(j.node.GPUs, func(g netenv.GPU) bool { return !g.NVLink })
}

// log adds a log that has a line for each operation.
func (j *judge) log() {
	level, _ := j.value("NCCL_DEBUG")
	s, ok := j.value("NCCL_DEBUG_SUBSYS")
	l, err := debug.ParseLevel(strings.TrimSpace(level.Value))
	set, wrong := debug.ParseSubsystems(s.Value)
	if ok && err == nil && wrong == nil && l >= debug.Info && set&debug.Coll != 0 {
		j.add(s, netenv.Harms, "leave COLL out, or NCCL_DEBUG=WARN, unless a fault is looked for", nil, "with NCCL_DEBUG=%s each rank writes a line for each operation", level.Value)
	}
}

// openMPI adds lists that Open MPI takes one of.
func (j *judge) openMPI() {
	for _, of := range []string{"OMPI_MCA_btl_tcp_if_", "OMPI_MCA_oob_tcp_if_", "PRTE_MCA_oob_tcp_if_"} {
		include, has := j.value(of + "include")
		if exclude, both := j.value(of + "exclude"); has && both {
			j.add(include, netenv.Harms, "unset one of them", nil, "%s=%s (%s) is set, too, and Open MPI refuses both at once", exclude.Name, debug.Short(exclude.Value, shown), exclude.From)
		}
	}
}

// hidden adds lines of NCCL's files for which the environment, or another file, has another value.
func (j *judge) hidden() {
	for _, h := range j.c.Hidden {
		i := slices.IndexFunc(j.c.Set, func(s knob.Setting) bool { return s.Name == h.Name })
		if i < 0 {
			continue
		}
		s := j.c.Set[i]
		remedy := "unset it, if the file is right"
		if s.From != netenv.Environment {
			remedy = "take one of the lines out"
		}
		j.add(s, netenv.Differs, remedy, nil, "it hides %s=%s (%s)", h.Name, debug.Short(h.Value, shown), h.From)
	}
}
