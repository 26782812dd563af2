package jobs

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strings"
	"sync"

	"go.yaml.in/yaml/v3"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/assay-hpc/assay/internal/hardware"
	"github.com/assay-hpc/assay/internal/words"
)

// A Fact is a value and its source.
type Fact[T any] struct {
	Value  T      `json:"value"`
	Source string `json:"source"` // key of Document.Sources
	Note   string `json:"note,omitempty"`
}

// known reports whether the profile has the fact.
func (f Fact[T]) known() bool { return f.Source != "" }

// UnmarshalYAML reads [value, source] or [value, source, note].
func (f *Fact[T]) UnmarshalYAML(n *yaml.Node) error {
	if n.Kind != yaml.SequenceNode || len(n.Content) < 2 || len(n.Content) > 3 {
		return fmt.Errorf("line %d: a fact is [value, source] or [value, source, note]", n.Line)
	}
	err := errors.Join(n.Content[0].Decode(&f.Value), n.Content[1].Decode(&f.Source))
	if len(n.Content) == 3 {
		err = errors.Join(err, n.Content[2].Decode(&f.Note))
	}
	return err
}

// A Var is an environment variable and the reason for it.
type Var struct {
	Name   string   `yaml:"name" json:"name"`
	Value  string   `yaml:"value" json:"value"`
	Source string   `yaml:"source" json:"source,omitempty"`
	Why    string   `yaml:"why" json:"why,omitempty"`
	Intent bool     `yaml:"intent" json:"intent,omitempty"` // the user's intent: "harness exec" cannot detect it on a node
	At     string   `yaml:"at" json:"at,omitempty"`         // "container": the container runtime reads it
	In     []string `yaml:"in" json:"in,omitempty"`         // launchers "mpi", "slurm"; empty: all
	Only   string   `yaml:"only" json:"only,omitempty"`     // "bench": not with a suite
}

// A Resource is a resource of a device plugin.
type Resource struct {
	Name   string `yaml:"name" json:"name"`
	Value  string `yaml:"value" json:"value"`
	Source string `yaml:"source" json:"source"`
}

// A Site holds names that differ from cluster to cluster.
type Site struct {
	Selector Fact[string] `yaml:"selector" json:"selector,omitzero"` // KEY=VALUE,VALUE: nodes with this label
	Domain   Fact[string] `yaml:"domain" json:"domain,omitzero"`     // as Profile.Domain
	Networks Fact[string] `yaml:"networks" json:"networks,omitzero"` // Multus networks, separated by spaces
}

// A Variant is an optional modification of a profile.
type Variant struct {
	Source        string       `yaml:"source" json:"source"`
	Why           string       `yaml:"why" json:"why"`
	Sets          []string     `yaml:"sets" json:"sets,omitempty"`
	Drop          []string     `yaml:"drop" json:"drop,omitempty"`       // variables that it removes
	Devices       []string     `yaml:"devices" json:"devices,omitempty"` // device files that the container needs
	Fabric        string       `yaml:"fabric" json:"fabric,omitempty"`
	NoRDMA        bool         `yaml:"no_rdma" json:"noRDMA,omitempty"`
	Spread        bool         `yaml:"spread" json:"spread,omitempty"` // over several NVLink domains
	ComputeDomain bool         `yaml:"compute_domain" json:"computeDomain,omitempty"`
	Nodes         Fact[int]    `yaml:"nodes" json:"nodes,omitzero"`
	CPUs          Fact[int]    `yaml:"cpus" json:"cpus,omitzero"`
	Memory        Fact[string] `yaml:"memory" json:"memory,omitzero"`
}

// Slurm is what a profile's job requests from Slurm where that differs from Kubernetes.
type Slurm struct {
	Nodes       Fact[int]    `yaml:"nodes" json:"nodes,omitzero"`
	Segment     Fact[int]    `yaml:"segment" json:"segment,omitzero"`
	CPUsPerTask Fact[int]    `yaml:"cpus_per_task" json:"cpusPerTask,omitzero"`
	Memory      Fact[string] `yaml:"memory" json:"memory,omitzero"`
}

// A Profile describes a platform, as far as a job needs it.
type Profile struct {
	ID        string             `yaml:"id" json:"id"`
	Title     string             `yaml:"title" json:"title"`
	Hardware  string             `yaml:"hardware" json:"hardware,omitempty"` // its row of the hardware database
	Arch      Fact[string]       `yaml:"arch" json:"arch"`
	GPUs      Fact[int]          `yaml:"gpus" json:"gpus"`   // per node
	Nodes     Fact[int]          `yaml:"nodes" json:"nodes"` // default of --nodes
	Fabric    string             `yaml:"fabric" json:"fabric"`
	Image     string             `yaml:"image" json:"image,omitempty"`  // variant of the images in matrix.yaml
	CPUs      Fact[int]          `yaml:"cpus" json:"cpus,omitzero"`     // that a pod requests
	Memory    Fact[string]       `yaml:"memory" json:"memory,omitzero"` // that a pod requests
	Resources []Resource         `yaml:"resources" json:"resources,omitempty"`
	Slurm     Slurm              `yaml:"slurm" json:"slurm,omitzero"`
	Domain    Fact[string]       `yaml:"domain" json:"domain,omitzero"` // label that has the same value on all nodes of an NVLink domain
	Sets      []string           `yaml:"sets" json:"sets,omitempty"`
	Site      string             `yaml:"site" json:"site,omitempty"` // default of --site
	Sites     map[string]Site    `yaml:"sites" json:"sites,omitempty"`
	Variants  map[string]Variant `yaml:"variants" json:"variants,omitempty"`
	Refuse    map[string]string  `yaml:"refuse" json:"refuse,omitempty"` // unsupported variants, and why
}

// A Document contains all profiles, and the sources and sets that they refer to.
type Document struct {
	Schema   int                        `json:"schemaVersion"` // of this JSON: 1
	Sources  map[string]hardware.Source `json:"sources"`
	Sets     map[string][]Var           `json:"sets"`
	Profiles []Profile                  `json:"profiles"`

	names []hardwareName
}

// profilesFile is a file of the hardware database, as far as jobs need it.
type profilesFile struct {
	Sources  map[string]hardware.Source `yaml:"sources"`
	Sets     map[string][]Var           `yaml:"sets"`
	Profiles []Profile                  `yaml:"profiles"`
	// Platforms are read for what else their profiles may be called.
	Platforms map[string]struct {
		Name    string               `yaml:"name"`
		Aliases []string             `yaml:"aliases"`
		Others  map[string]yaml.Node `yaml:",inline"`
	} `yaml:"platforms"`
	Others map[string]yaml.Node `yaml:",inline"`
}

var load = sync.OnceValues(func() (*Document, error) { return parseProfiles(hardware.Files) })

// Load returns the profiles of the hardware database. They are parsed once; callers must
// not change them.
func Load() (*Document, error) { return load() }

func parseProfiles(files fs.FS) (*Document, error) {
	d := &Document{Schema: 1}
	err := hardware.Read(files, func(f *profilesFile) error {
		d.Profiles = append(d.Profiles, f.Profiles...)
		for key, n := range f.Platforms {
			d.names = append(d.names, hardwareName{key, key}, hardwareName{n.Name, key})
			for _, alias := range n.Aliases {
				d.names = append(d.names, hardwareName{alias, key})
			}
		}
		return errors.Join(hardware.Unite("sources", &d.Sources, f.Sources), hardware.Unite("sets", &d.Sets, f.Sets))
	})
	for i := range d.Profiles {
		d.Profiles[i].refuseUnnamed()
	}
	slices.SortFunc(d.Profiles, func(a, b Profile) int { return strings.Compare(a.ID, b.ID) })
	if err == nil {
		err = d.check()
	}
	if err != nil {
		return nil, fmt.Errorf("profiles of jobs: %w", err)
	}
	return d, nil
}

// atNode are the reasons of a platform whose NVLink ends at the node, if its profile names none.
var atNode = map[string]string{
	"roce":       "no sample of this platform with RoCE is known; the profile generic finds the settings on the node",
	"spectrum-x": "no sample of this platform with Spectrum-X is known; the profile generic takes the flag",
	"multirack":  "NVLink ends at the node, so racks make no difference",
	"dra":        "NVLink ends at the node, so there is no compute domain",
}

// refuseUnnamed refuses the variants of atNode that the profile does not name.
func (p *Profile) refuseUnnamed() {
	if p.Domain.known() {
		return
	}
	own := p.Refuse
	p.Refuse = maps.Clone(atNode)
	maps.DeleteFunc(p.Refuse, func(v, _ string) bool { _, has := p.Variants[v]; return has })
	maps.Copy(p.Refuse, own)
}

// check verifies that every reference resolves and every fact has a source.
func (d *Document) check() error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	used := map[string]hardware.Source{}
	source := func(where, s string) {
		from, ok := d.Sources[s]
		if !ok {
			bad("%s: there is no source %q", where, s)
		}
		used[s] = from
	}
	for _, set := range slices.Sorted(maps.Keys(d.Sets)) {
		for _, v := range d.Sets[set] {
			source("set "+set+", "+v.Name, v.Source)
			if v.Name == "" || v.Value == "" || v.Why == "" {
				bad("set %s: %q lacks its name, value or reason", set, v.Name)
			}
			if v.At != "" && v.At != "container" || v.Only != "" && v.Only != "bench" {
				bad("set %s: %s: at %q, only %q", set, v.Name, v.At, v.Only)
			}
		}
	}
	seen := map[string]bool{}
	for i := range d.Profiles {
		p := &d.Profiles[i]
		if seen[p.ID] {
			bad("%s is there twice", p.ID)
		}
		seen[p.ID] = true
		for _, err := range p.check(d, source) {
			bad("%s: %w", p.ID, err)
		}
	}
	d.Sources = used
	return errors.Join(errs...)
}

func (p *Profile) check(d *Document, source func(where, s string)) []error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	sets := func(names []string) {
		for _, s := range names {
			if d.Sets[s] == nil {
				bad("there is no set %q", s)
			}
		}
	}
	quantity := func(s string) {
		if _, err := resource.ParseQuantity(s); err != nil {
			bad("%q is no quantity", s)
		}
	}
	for _, s := range []string{p.Arch.Source, p.GPUs.Source, p.Nodes.Source} {
		source(p.ID, s) // required in every profile
	}
	for _, s := range []string{
		p.CPUs.Source, p.Memory.Source, p.Domain.Source, p.Slurm.Nodes.Source, p.Slurm.Segment.Source, p.Slurm.CPUsPerTask.Source, p.Slurm.Memory.Source,
	} {
		if s != "" {
			source(p.ID, s)
		}
	}
	for _, r := range p.Resources {
		source(p.ID+", "+r.Name, r.Source)
		quantity(r.Value)
	}
	if p.Memory.known() {
		quantity(p.Memory.Value)
	}
	sets(p.Sets)
	for name, s := range p.Sites {
		for _, f := range []Fact[string]{s.Selector, s.Domain, s.Networks} {
			if f.known() {
				source(p.ID+", site "+name, f.Source)
			}
		}
	}
	if _, ok := p.Sites[p.Site]; p.Site != "" && !ok {
		bad("there is no site %q", p.Site)
	}
	for _, v := range VariantNames {
		_, has := p.Variants[v]
		if _, not := p.Refuse[v]; has == not {
			bad("%s must be among variants or, with a reason, in refuse", v)
		}
		if why, not := p.Refuse[v]; not && !strings.Contains(why, " ") {
			bad("refuse.%s: %q is no reason; write for users why the platform does not have it", v, why)
		}
	}
	for name, v := range p.Variants {
		source(p.ID+", "+name, v.Source)
		sets(v.Sets)
	}
	if len(p.Variants)+len(p.Refuse) != len(VariantNames) {
		bad("it names a variant that there is not")
	}
	return errs
}

// A hardwareName is what a platform of the hardware database is called: its key, its name, an alias.
type hardwareName struct{ name, key string }

// Profile returns the profile with that id, or that of the platform with that name, as the harness shows it.
func (d *Document) Profile(id string) (*Profile, error) {
	ids := make([]string, len(d.Profiles))
	for i := range d.Profiles {
		if ids[i] = d.Profiles[i].ID; ids[i] == id {
			return &d.Profiles[i], nil
		}
	}
	var of []int
	for i, p := range d.Profiles {
		if slices.ContainsFunc(d.names, func(n hardwareName) bool {
			return n.key == p.Hardware && words.Alphanumeric(n.name) == words.Alphanumeric(id)
		}) {
			of = append(of, i)
		}
	}
	switch {
	case len(of) == 1:
		return &d.Profiles[of[0]], nil
	case len(of) > 1:
		var names []string
		for _, i := range of {
			names = append(names, d.Profiles[i].ID)
		}
		return nil, fmt.Errorf("%q has several profiles: %s", id, strings.Join(names, ", "))
	}
	nearest := words.Nearest(id, ids)
	if words.Distance(id, nearest) > max(2, len(id)/2) && !strings.Contains(nearest, strings.ToLower(id)) {
		return nil, fmt.Errorf("there is no profile %q; there are: %s", id, strings.Join(ids, ", "))
	}
	return nil, fmt.Errorf("there is no profile %q; did you mean %q? \"assay jobs list\" has them all", id, nearest)
}
