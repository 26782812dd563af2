package matrix

import (
	"fmt"
	"slices"

	"github.com/invopop/jsonschema"
	"go.yaml.in/yaml/v3"
)

// known lists every component that a matrix file may name, with a description. build/component
// knows how to build each of them.
var known = []struct{ name, what string }{
	{"ssh", "OpenSSH, set up for MPI"},
	{"ofed", "user space of NVIDIA's OFED; the version is DOCA's"},
	{"cudnn", "NVIDIA cuDNN"},
	{"dcgm", "NVIDIA DCGM"},
	{"hpcx", "NVIDIA HPC-X with its Open MPI rebuilt"},
	{"gdrcopy", "NVIDIA GDRCopy without the kernel module"},
	{"nccl", "NCCL, built from source"},
	{"sharp", "NCCL's SHARP plugin; \"bundled\" is the one in HPC-X"},
	{"nccl-tests", "NVIDIA's nccl-tests with MPI"},
	{"perftest", "RDMA perftest, with CUDA where the image has it"},
	{"nvbandwidth", "NVIDIA nvbandwidth"},
	{"efa", "AWS EFA installer"},
	{"harness", "assay's harness, compiled in the target's own base"},
	{"cuda-toolkit", "CUDA toolkit of the distribution: \"devel\" with compiler and headers, \"runtime\" with the shared libraries alone, \"minimal\" with cudart and nvrtc alone"},
	{"openmpi", "Open MPI of the distribution"},
	{"ucx", "UCX of the distribution"},
	{"pmix", "PMIx of the distribution"},
	{"rdma-core", "rdma-core of the distribution"},
	{"infiniband-diags", "InfiniBand diagnostics of the distribution"},
	{"libfabric", "libfabric of the distribution, with fi_info and fi_pingpong"},
	{"hwloc", "hwloc of the distribution"},
	{"numactl", "numactl of the distribution"},
}

// ComponentNames returns every component that a matrix file may name.
func ComponentNames() []string {
	out := make([]string, len(known))
	for i, k := range known {
		out[i] = k.name
	}
	return out
}

// components is the mapping from component to version, in the file's order.
type components []componentRule

// A componentRule determines the version of one component.
type componentRule struct {
	name    string
	field   string // path in the file
	choices []choice
}

func (c *components) decode(r *reporter, field string, n *yaml.Node) {
	entries, ok := r.mapping(field, n, "component", ComponentNames())
	if ok && len(n.Content) == 0 {
		r.report(pos(n), field, "there is no component here", `name at least one, as in "harness: source"`)
	}
	for _, e := range entries {
		rule := componentRule{name: e.key, field: join(field, e.key)}
		rule.decode(r, e.value)
		*c = append(*c, rule)
	}
}

// decode reads a bare version or a list of choices.
func (c *componentRule) decode(r *reporter, n *yaml.Node) {
	if n.Kind == yaml.ScalarNode {
		only := choice{At: pos(n)}
		only.Version.decode(r, c.field, n)
		c.choices = []choice{only}
		return
	}
	r.decodeInto(c.field, n, &c.choices)
	for i, ch := range c.choices {
		if ch.Version.At.set() == ch.Absent.At.set() && ch.At.set() {
			r.report(ch.At, item(c.field, i), "a choice is either a version or an absence",
				`write one of "version: …" and "absent: the reason"`)
		}
	}
}

// JSONSchema implements the interface that jsonschema.Reflector looks for.
func (components) JSONSchema() *jsonschema.Schema { return defined("components") }

func componentsSchema() *jsonschema.Schema {
	s := closedObject()
	for _, k := range known {
		version := defined("version")
		version.Description = k.what
		s.Properties.Set(k.name, version)
	}
	return s
}

// JSONSchemaExtend adds that a choice is a version or an absence.
func (choice) JSONSchemaExtend(s *jsonschema.Schema) { eitherOf(s, "version", "absent") }

// rule returns the rule for the component of that name, or nil.
func (c components) rule(name string) *componentRule {
	i := slices.IndexFunc(c, func(r componentRule) bool { return r.name == name })
	if i < 0 {
		return nil
	}
	return &c[i]
}

// choose returns the first choice that fits, or nil.
func (c *componentRule) choose(f facts) *choice {
	i := slices.IndexFunc(c.choices, func(ch choice) bool { return applies(ch.When, f) })
	if i < 0 {
		return nil
	}
	return &c.choices[i]
}

// versions returns every version that the rule can yield.
func (c *componentRule) versions() []string {
	var out []string
	for _, ch := range c.choices {
		if ch.Version.At.set() {
			out = append(out, ch.Version.Text)
		}
	}
	return out
}

// decide picks the version of every component of a row. A component that is left out adds no fact
// to the row.
func (e *expansion) decide(r targetRow, f facts) (out []Component, ok bool) {
	ok = true
	for i := range r.components {
		rule := &r.components[i]
		ch := rule.choose(f)
		if ch == nil {
			e.once(rule.choices[0].At, rule.field, fmt.Sprintf("no choice fits %s", r.name),
				`add a last choice without "when", or one that says "absent" and why`)
			ok = false
			continue
		}
		e.used[ch.At] = true
		if ch.Absent.At.set() {
			continue
		}
		f[rule.name] = []string{ch.Version.Text}
		out = append(out, Component{Name: rule.name, Version: ch.Version.Text})
	}
	return out, ok
}
