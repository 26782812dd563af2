package main

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/urfave/cli/v2"

	"github.com/assay-hpc/assay/build/driver"
	"github.com/assay-hpc/assay/build/matrix"
	"github.com/assay-hpc/assay/harness/audit"
	"github.com/assay-hpc/assay/internal/grammar"
	"github.com/assay-hpc/assay/internal/words"
)

func planCommand() *cli.Command {
	o := &common{}
	return &cli.Command{
		Name: "plan", Usage: "show targets with base, versions and tag",
		ArgsUsage:    "[TARGET...]",
		Flags:        o.flags(o.onlyFlag(), grammar.Format(&o.output, "table", "json", "github")),
		BashComplete: o.complete,
		Action: func(c *cli.Context) error {
			w, err := o.open(c)
			if err != nil {
				return err
			}
			targets := w.Targets
			if names := o.names(c); len(names) > 0 {
				if targets, err = w.Select(names); err != nil {
					return err
				}
			}
			plan, err := w.Plan(targets)
			if err != nil {
				return err
			}
			faults, err := knownFaults(plan)
			if err != nil {
				return err
			}
			switch o.output {
			case "json":
				return writeJSON(c.App.Writer, map[string]any{"schemaVersion": 1, "repository": w.File.Repository, "targets": plan, "knownFaults": faults})
			case "github":
				jobs, err := githubMatrix(w, plan)
				if err != nil {
					return err
				}
				return writeJSON(c.App.Writer, map[string]any{"include": jobs})
			}
			if err := planTable(c.App.Writer, plan); err != nil {
				return err
			}
			for _, f := range faults {
				fmt.Fprintf(c.App.ErrWriter, "assay: %s\n", f)
			}
			return nil
		},
	}
}

// A faultyVersion is a version of a component that has known faults, and the targets with it.
type faultyVersion struct {
	Component string   `json:"component"`
	Version   string   `json:"version"`
	Targets   []string `json:"targets"`
	Faults    []string `json:"faults"` // ids of harness audit, those of some GPUs and architectures, too
}

func (f faultyVersion) String() string {
	return fmt.Sprintf("%s %s (%s) has known faults, some of them on some machines alone: %s; harness audit %s=%s says more",
		f.Component, f.Version, words.Count(len(f.Targets), "target"), strings.Join(f.Faults, ", "), f.Component, f.Version)
}

// knownFaults returns the versions of a plan that have known faults. A component that is the distribution's has no version
// there.
func knownFaults(plan []driver.Planned) ([]faultyVersion, error) {
	out := []faultyVersion{}
	for _, p := range plan {
		for _, c := range p.Target.Components {
			i := slices.IndexFunc(out, func(f faultyVersion) bool { return f.Component == c.Name && f.Version == c.Version })
			if i < 0 {
				r, err := audit.Audit(audit.System{Versions: []audit.Version{{Component: c.Name, Version: c.Version}}})
				if err != nil {
					return nil, err
				}
				i = len(out)
				out = append(out, faultyVersion{Component: c.Name, Version: c.Version, Faults: []string{}})
				for _, f := range r.Findings {
					if len(f.Also) == 0 {
						out[i].Faults = append(out[i].Faults, f.ID)
					}
				}
			}
			out[i].Targets = append(out[i].Targets, p.Name)
		}
	}
	return slices.DeleteFunc(out, func(f faultyVersion) bool { return len(f.Faults) == 0 }), nil
}

func planTable(out io.Writer, plan []driver.Planned) error {
	tw := tabwriter.NewWriter(out, 0, 8, 2, ' ', 0)
	fmt.Fprintln(tw, "TARGET\tPLATFORMS\tBASE\tRECIPE\tTAG\tCOMPONENTS")
	for _, p := range plan {
		hash, tag := "-", p.Tag
		if p.Hash != "" {
			hash = p.Hash[:12]
		} else {
			hash = fmt.Sprintf("unlocked (%d)", len(p.Missing))
		}
		fmt.Fprintf(tw, "%s\t%s\t%s\t%s\t%s\t%s\n", p.Name, platformList(p.Target), baseText(p.Base), hash, tag, components(p.Target))
	}
	return tw.Flush()
}

func platformList(t matrix.Target) string {
	var archs []string
	for _, p := range t.Platforms {
		archs = append(archs, p.Arch)
	}
	return strings.Join(archs, ",")
}

func baseText(b matrix.Base) string {
	if b.Debootstrap != nil {
		return "debootstrap:" + b.Debootstrap.Suite + "/" + b.Debootstrap.Variant
	}
	if b.Build != "" {
		return b.Image + " (build: " + b.Build + ")"
	}
	return b.Image
}

func components(t matrix.Target) string {
	var out []string
	for _, c := range t.Components {
		out = append(out, c.Name+"="+c.Version)
	}
	return strings.Join(out, " ")
}

// githubEntry is one job of a workflow: one target on one platform, with a runner of
// that architecture.
type githubEntry struct {
	Target   string `json:"target"`
	Platform string `json:"platform"`
	Arch     string `json:"arch"`
	Runner   string `json:"runner"`
	Tag      string `json:"tag,omitempty"`
	Locked   bool   `json:"locked"`
	// For locked targets: stages that earlier waves build are read from their caches.
	Wave   int      `json:"wave"`
	Caches []string `json:"caches,omitempty"` // targets that build stages of this one
	Shared []string `json:"shared,omitempty"` // those stages
}

// githubMatrix lists the jobs of a workflow's strategy.matrix.
func githubMatrix(w *driver.Workspace, plan []driver.Planned) ([]githubEntry, error) {
	runners := map[string]string{"amd64": "ubuntu-24.04", "arm64": "ubuntu-24.04-arm"}
	var locked []matrix.Target
	for _, p := range plan {
		if p.Hash != "" {
			locked = append(locked, p.Target)
		}
	}
	turns := map[string]map[string]driver.Turn{}
	list := []githubEntry{}
	for _, p := range plan {
		for _, pl := range p.Platforms {
			e := githubEntry{Target: p.Name, Platform: pl.String(), Arch: pl.Arch, Runner: runners[pl.Arch], Locked: p.Hash != ""}
			if e.Locked {
				e.Tag = p.Tag
				if turns[e.Platform] == nil {
					var err error
					if turns[e.Platform], err = w.Turns(locked, pl); err != nil {
						return nil, err
					}
				}
				turn := turns[e.Platform][p.Name]
				e.Wave, e.Caches = turn.Wave, slices.Sorted(maps.Keys(turn.Shared))
				for _, c := range e.Caches {
					e.Shared = append(e.Shared, turn.Shared[c]...)
				}
			}
			list = append(list, e)
		}
	}
	return list, nil
}
