package netenv

import (
	"fmt"
	"slices"
	"strings"
)

// Options are what the user wants.
type Options struct {
	SHARP   bool // reductions in the switches
	GDRCopy bool // NCCL_GDRCOPY_ENABLE
	NoIB    bool // sockets only
	// Env are the current settings, from the environment or a file of NCCL's.
	Env []Setting
	// Problems are whole sentences on those of them that NCCL does not read, or reads as something else.
	Problems []string
}

// A Setting is a variable that is set, and where.
type Setting struct {
	Name  string `json:"name"`
	Value string `json:"value"`
	From  string `json:"from"` // Environment or file:line
	// Unread says why NCCL does not read what the file means; "": it does. Who wrote it wants it all the
	// same, so that nothing else is set in its place.
	Unread string `json:"unread,omitempty"`
}

// Environment is Setting.From of the process's environment.
const Environment = "environment"

// A Plan says what to set on a node, and why. Each name is in only one of Set, Kept and Unset.
type Plan struct {
	Control  Control    `json:"control"`
	Data     Data       `json:"data"`
	Set      []Variable `json:"set"`
	Kept     []Kept     `json:"kept"`
	Unset    []Unset    `json:"unset"`
	Warnings []Warning  `json:"warnings"`
}

// A Variable is a variable to set.
type Variable struct {
	Name   string `json:"name"`
	Value  string `json:"value"`
	Reason string `json:"reason"`
}

// A Kept is a variable that the user has set.
type Kept struct {
	Setting
	// Found is the value that would have been set; "" if none.
	Found  string `json:"found,omitempty"`
	Reason string `json:"reason,omitempty"`
	// Against says how the value contradicts the node; "": it does not.
	Against string `json:"against,omitempty"`
	// Grade is how bad that is; "" if nothing is against it.
	Grade Grade `json:"grade,omitempty"`
}

// A Grade says how bad it is that a value contradicts the node.
type Grade string

// The grades, the worst first.
const (
	Stops   Grade = "stops"   // NCCL ends at its start
	Harms   Grade = "harms"   // a way for data or start-up that is here is not used, or one that leads nowhere is
	Differs Grade = "differs" // it is another than what was found, and a site or a job may have a reason
)

// An Unset is a variable that is left alone although a user might expect it.
type Unset struct {
	Name   string `json:"name"`
	Reason string `json:"reason"`
}

// A Warning is a problem to expect, and its remedy.
type Warning struct {
	What   string `json:"what"`
	Remedy string `json:"remedy"`
	Config bool   `json:"-"` // it is one of Options.Problems
}

// Make plans the environment for a node.
func Make(n *Node, opt Options) *Plan {
	m := &maker{n: n, opt: opt, Plan: &Plan{Set: []Variable{}, Kept: []Kept{}, Unset: []Unset{}, Warnings: []Warning{}}}
	m.Control = m.chooseControl()
	m.Data = m.chooseData()
	m.controlPlane()
	switch m.Data.Kind {
	case EFA:
		m.efa()
	case InfiniBand, RoCE:
		m.verbs()
	default:
		m.sockets()
	}
	m.gpuMemory()
	m.nvlink()
	m.topology()
	m.limits()
	for _, text := range opt.Problems {
		m.Warnings = append(m.Warnings, Warning{text, "correct it or take it out; nothing is set in its place", true})
	}
	m.keep()
	return m.Plan
}

// A maker builds a Plan.
type maker struct {
	n   *Node
	opt Options
	*Plan
}

func (m *maker) set(name, value, reason string, a ...any) {
	m.Set = append(m.Set, Variable{name, value, fmt.Sprintf(reason, a...)})
}

func (m *maker) leave(name, reason string, a ...any) {
	m.Unset = append(m.Unset, Unset{name, fmt.Sprintf(reason, a...)})
}

func (m *maker) warn(what, remedy string) {
	m.Warnings = append(m.Warnings, Warning{What: what, Remedy: remedy})
}

// env returns a variable that the user has set and NCCL reads. An empty value counts as not set, as it
// does for NCCL.
func (m *maker) env(name string) (Setting, bool) {
	i := slices.IndexFunc(m.opt.Env, func(s Setting) bool { return s.Name == name && s.Value != "" && s.Unread == "" })
	if i < 0 {
		return Setting{}, false
	}
	return m.opt.Env[i], true
}

// plugin finds a network plugin by kind.
func (m *maker) plugin(kind string) (Plugin, bool) {
	i := slices.IndexFunc(m.n.Plugins, func(p Plugin) bool { return p.Kind == kind })
	if i < 0 {
		return Plugin{}, false
	}
	return m.n.Plugins[i], true
}

// unasked returns the plugin that NCCL loads by default.
func (m *maker) unasked() (Plugin, bool) {
	i := slices.IndexFunc(m.n.Plugins, func(p Plugin) bool { return p.Name == "" && p.Listed })
	if i < 0 {
		return Plugin{}, false
	}
	return m.n.Plugins[i], true
}

// join lists names in prose: a, b and c.
func join(names []string) string {
	switch n := len(names); n {
	case 0:
		return "none"
	case 1:
		return names[0]
	default:
		return strings.Join(names[:n-1], ", ") + " and " + names[n-1]
	}
}
