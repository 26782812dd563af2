// Package audit knows faults of released versions: which of them the versions have that are loaded or installed here, or
// that somebody names. The list is data: known.yaml has an entry for each fault, with its source. It is used without a
// network.
package audit

import (
	"cmp"
	_ "embed"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"sync"

	"go.yaml.in/yaml/v3"

	"github.com/assay-hpc/assay/harness/explain"
)

//go:embed known.yaml
var known []byte

// Components are the names that entries and arguments have.
var Components = []string{
	"nccl", "rccl", "driver", "cuda", "fabricmanager", "dcgm", "ofi", "libfabric", "efa", "ucx", "ucc", "openmpi", "hpcx", "gdrcopy", "perftest",
	"nccl-tests", "nvbandwidth", "doca", "kernel", "container-toolkit", "pytorch", "nvshmem",
}

// titles are what people call components.
var titles = map[string]string{
	"nccl": "NCCL", "rccl": "RCCL", "driver": "the NVIDIA driver", "fabricmanager": "the fabric manager", "dcgm": "DCGM", "ofi": "aws-ofi-nccl",
	"efa": "the EFA installer", "ucx": "UCX", "ucc": "UCC", "openmpi": "Open MPI", "gdrcopy": "GDRCopy", "doca": "DOCA-OFED", "kernel": "Linux",
	"container-toolkit": "the NVIDIA container toolkit", "pytorch": "PyTorch", "nvshmem": "NVSHMEM", "cuda": "CUDA",
}

// Kinds of faults, the worst first.
var Kinds = []string{"wrong data", "hang", "crash", "does not start", "security", "slow", "wrong report"}

// A Fault is an entry of known.yaml.
type Fault struct {
	ID        string   `yaml:"id" json:"id"`
	Component string   `yaml:"component" json:"component"`
	Versions  string   `yaml:"versions" json:"versions"`
	Also      []string `yaml:"also" json:"also,omitempty"`
	Arch      []string `yaml:"arch" json:"arch,omitempty"`
	GPU       []string `yaml:"gpu" json:"gpu,omitempty"`
	Kind      string   `yaml:"kind" json:"kind"`
	Basis     string   `yaml:"basis" json:"basis"`
	Fixed     string   `yaml:"fixed" json:"fixed,omitempty"`
	Effect    string   `yaml:"effect" json:"effect"`
	Remedy    string   `yaml:"remedy" json:"remedy"`
	Source    []string `yaml:"source" json:"source"`

	versions constraint
	also     []condition
}

// A condition is a constraint on another component.
type condition struct {
	component string
	versions  constraint
}

// Faults returns all entries.
var Faults = sync.OnceValues(func() ([]*Fault, error) { return parse(known) })

func parse(data []byte) ([]*Fault, error) {
	var f struct {
		Faults []*Fault `yaml:"faults"`
	}
	d := yaml.NewDecoder(strings.NewReader(string(data)))
	d.KnownFields(true)
	if err := d.Decode(&f); err != nil {
		return nil, fmt.Errorf("known faults: %w", err)
	}
	ids := map[string]bool{}
	for _, e := range f.Faults {
		var err error
		switch {
		case ids[e.ID] || !strings.HasPrefix(e.ID, e.Component):
			err = fmt.Errorf("its id is there twice, or does not begin with its component")
		case !slices.Contains(Components, e.Component) || !slices.Contains(Kinds, e.Kind) || !slices.Contains([]string{"release note", "maintainer", "reporter"}, e.Basis):
			err = fmt.Errorf("component, kind or basis is none of those that there are")
		case e.Effect == "" || e.Remedy == "" || len(e.Source) == 0:
			err = fmt.Errorf("effect, remedy or source is missing")
		default:
			e.versions, err = parseConstraint(e.Versions)
		}
		for _, text := range e.Also {
			name, rest, _ := strings.Cut(text, " ")
			c := condition{component: name}
			if err == nil {
				c.versions, err = parseConstraint(rest)
			}
			e.also = append(e.also, c)
		}
		if err != nil {
			return nil, fmt.Errorf("known faults: %s: %w", e.ID, err)
		}
		ids[e.ID] = true
	}
	return f.Faults, nil
}

// A Version is a component's, as it was found or named.
type Version struct {
	Component string `json:"component"`
	Version   string `json:"version"`
	Where     string `json:"where,omitempty"` // a file or package; "": it was named
	// Patched says that a distribution made the package: it may have the mending of a later version.
	Patched bool `json:"patched,omitempty"`
}

// A System is what is audited. Arch and GPUs may be unknown: empty.
type System struct {
	Versions []Version `json:"versions"`
	Arch     string    `json:"arch,omitempty"` // "amd64"
	GPUs     []string  `json:"gpus,omitempty"` // the driver's names
}

// A Finding is a fault that a version has.
type Finding struct {
	*Fault
	Of Version `json:"of"`
	// If says what is not known here and decides: "the GPU is GB200".
	If string `json:"if,omitempty"`
}

// A Report is the findings, the worst first.
type Report struct {
	Schema   int       `json:"schema"` // 1
	System   System    `json:"system"`
	Findings []Finding `json:"findings"`
	Known    int       `json:"known"` // how many faults are known in all
}

// Audit compares versions with the faults that are known.
func Audit(s System) (*Report, error) {
	all, err := Faults()
	if err != nil {
		return nil, err
	}
	r := &Report{Schema: 1, System: s, Findings: []Finding{}, Known: len(all)}
	for _, v := range s.Versions {
		for _, f := range all {
			if f.Component != v.Component || !f.versions.holds(v.Version) {
				continue
			}
			if condition, ok := f.applies(s); ok {
				r.Findings = append(r.Findings, Finding{Fault: f, Of: v, If: condition})
			}
		}
	}
	slices.SortStableFunc(r.Findings, func(a, b Finding) int {
		if (a.If == "") != (b.If == "") {
			return cmp.Compare(len(a.If), len(b.If)) // what is certain first
		}
		return slices.Index(Kinds, a.Kind) - slices.Index(Kinds, b.Kind)
	})
	return r, nil
}

// applies says whether the conditions of a fault besides its version hold, or may hold: then condition says what decides.
func (f *Fault) applies(s System) (condition string, ok bool) {
	var unknown []string
	if len(f.Arch) > 0 {
		switch {
		case s.Arch == "":
			unknown = append(unknown, "on "+strings.Join(f.Arch, " or "))
		case !slices.Contains(f.Arch, s.Arch):
			return "", false
		}
	}
	if len(f.GPU) > 0 {
		switch {
		case len(s.GPUs) == 0:
			unknown = append(unknown, "with "+strings.Join(f.GPU, " or "))
		case !slices.ContainsFunc(s.GPUs, func(name string) bool {
			return slices.ContainsFunc(f.GPU, func(g string) bool { return hasWord(name, g) })
		}):
			return "", false
		}
	}
	for i, c := range f.also {
		found, holds := false, false
		for _, v := range s.Versions {
			if v.Component == c.component {
				found = true
				holds = holds || c.versions.holds(v.Version)
			}
		}
		switch {
		case !found:
			unknown = append(unknown, "with "+f.Also[i])
		case !holds:
			return "", false
		}
	}
	return strings.Join(unknown, ", "), true
}

// hasWord says whether a GPU's name contains another as a word: "NVIDIA B200" has B200, and "NVIDIA GB200" has not.
func hasWord(name, word string) bool {
	return regexp.MustCompile(`(?i)(?:^|[^a-z0-9])` + regexp.QuoteMeta(word) + `(?:[^a-z0-9]|$)`).MatchString(name)
}

// Line says a finding in one line.
func (f Finding) Line() string {
	text := fmt.Sprintf("%s %s: %s: %s", cmp.Or(titles[f.Component], f.Component), f.Of.Version, f.Kind, f.Effect)
	if f.If != "" {
		text = fmt.Sprintf("%s %s, %s: %s: %s", cmp.Or(titles[f.Component], f.Component), f.Of.Version, f.If, f.Kind, f.Effect)
	}
	return text
}

// WriteText writes the report for a person.
func (r *Report) WriteText(w io.Writer, width int) error {
	t := explain.NewText(width)
	certain := 0
	for _, f := range r.Findings {
		if f.If == "" {
			certain++
		}
	}
	switch n := len(r.System.Versions); {
	case n == 0:
		t.Line("no version of a component was found here; name them: harness audit nccl=2.28.3 driver=580.95.05")
	case len(r.Findings) == 0:
		t.Line(fmt.Sprintf("none of the %d known faults is in these versions", r.Known))
	default:
		t.Line(fmt.Sprintf("%d of the %d known faults are in these versions, %d more under a condition that is not known here", certain, r.Known, len(r.Findings)-certain))
	}
	for _, f := range r.Findings {
		t.Line("")
		t.Par("", f.Line())
		if f.Of.Patched {
			t.Par("   note: ", "the package is the distribution's, which may have mended it without another number: its changelog says")
		}
		if f.Of.Where != "" {
			t.Par("   found: ", f.Of.Where)
		}
		t.Par("   remedy: ", f.Remedy)
		if f.Fixed != "" {
			t.Par("   mended in: ", f.Fixed)
		}
		t.Par("   source: ", f.Basis+": "+strings.Join(f.Source, " "))
	}
	t.Line("")
	for _, v := range r.System.Versions {
		t.Par("", fmt.Sprintf("%-18s %-18s %s", v.Component, v.Version, v.Where))
	}
	_, err := io.WriteString(w, t.String())
	return err
}
