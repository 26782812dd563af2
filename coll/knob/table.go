package knob

import (
	"slices"
	"strings"
	"sync"
)

// A Status says how a variable is treated on host memory.
type Status uint8

// The statuses.
const (
	Honoured Status = iota // it has the effect that NCCL's documentation describes, on host memory
	Accepted               // valid, and without effect; the log says so when it is set
)

// A Knob is a row of the table.
type Knob struct {
	Name    string
	Since   string // the first release of NCCL that documents it; "" if it is older than the guide or not documented
	Default string // the value that means "not set" if there is one, else "auto", "all", "unset"
	Status  Status
	Effect  string // what it does here, or why it does nothing
	Guide   bool   // it is in the guide of NCCL 2.3.5
	// NCCLRefuses says that a value that cannot be read ends a job with NCCL, and so here. Other values
	// of NCCL's variables are left out with a warning.
	NCCLRefuses bool

	kind kind
}

// Values describes the values that may be set.
func (k Knob) Values() string { return k.kind.values }

// table is all known variables, by name.
var table = sync.OnceValue(func() []Knob {
	var all []Knob
	for _, k := range guide {
		k.Guide = true
		all = append(all, k)
	}
	all = append(all, newer...)
	for _, g := range withoutEffect {
		for name := range strings.FieldsSeq(g.names) {
			all = append(all, Knob{Name: "NCCL_" + name, Default: "unset", Status: Accepted, Effect: g.why, kind: anything})
		}
	}
	slices.SortFunc(all, func(a, b Knob) int { return strings.Compare(a.Name, b.Name) })
	return all
})

// Table returns all variables, by name.
func Table() []Knob { return slices.Clone(table()) }

// knobNamed returns the row of a variable, or nil.
func knobNamed(name string) *Knob {
	t := table()
	i, ok := slices.BinarySearchFunc(t, name, func(k Knob, name string) int { return strings.Compare(k.Name, name) })
	if !ok {
		return nil
	}
	return &t[i]
}

// names returns the names of all variables in the table.
func names() []string {
	var out []string
	for _, k := range table() {
		out = append(out, k.Name)
	}
	return out
}
