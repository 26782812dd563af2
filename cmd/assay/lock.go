package main

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/assay-hpc/assay/build/driver"
	"github.com/assay-hpc/assay/build/lock"
	"github.com/assay-hpc/assay/build/matrix"
	"github.com/assay-hpc/assay/internal/exit"
	"github.com/assay-hpc/assay/internal/grammar"
)

type lockFlags struct {
	common
	builderFlags
	check, update bool
	diff, keep    string
	form          string
	baseKeys      cli.StringSlice
}

func lockCommand() *cli.Command {
	o := &lockFlags{}
	return &cli.Command{
		Name: "lock", Usage: "pin digests, checksums and package versions",
		ArgsUsage:   "[TARGET...]",
		Description: "Without a target it locks all. What cannot be reached from here stays unresolved, with the reason.",
		Flags: append(o.common.flags(o.onlyFlag(),
			&cli.BoolFlag{Name: "check", Usage: "change nothing; exit 1 if the targets need what the lock lacks", Destination: &o.check},
			&cli.BoolFlag{Name: "update", Usage: "resolve again the entries that are already locked", Destination: &o.update},
			&cli.StringFlag{Name: "diff", Usage: "change nothing; show what differs between the earlier lock `FILE` and this one, by target", Destination: &o.diff},
			&cli.StringFlag{Name: "keep", Usage: "put all files that the lock pins for the targets into `DIR`, for builds with --mirror: archives drop what is superseded, and some machines reach no server", Destination: &o.keep},
			&cli.StringSliceFlag{Name: "base-key", Usage: "public `KEY` that must have signed the certificates of bases that are images of assay's, as for assay inspect; may be repeated", Destination: &o.baseKeys},
			grammar.Format(&o.form, "text", "json"),
		), o.builderFlags.flags()...),
		BashComplete: o.complete,
		Action: func(c *cli.Context) error {
			if o.check || o.diff != "" {
				return o.run(c)
			}
			return o.asRoot(c, o.run)
		},
	}
}

func (o *lockFlags) run(c *cli.Context) error {
	if o.diff != "" && (o.check || o.update) {
		return exit.Usagef("--diff changes and checks nothing: give it without --check and --update")
	}
	if o.keep != "" && (o.check || o.diff != "") {
		return exit.Usagef("--check and --diff change nothing: give --keep without them")
	}
	w, err := o.open(c)
	if err != nil {
		return err
	}
	if w.BaseKeys, err = loadKeys(c.Context, o.baseKeys.Value()); err != nil {
		return err
	}
	targets := w.Targets
	if names := o.names(c); len(names) > 0 {
		if targets, err = w.Select(names); err != nil {
			return err
		}
	}
	if o.diff != "" {
		if len(o.names(c)) == 0 {
			targets = nil
		}
		d, err := w.DiffLock(o.diff, targets)
		if err != nil {
			return err
		}
		if o.form == "json" {
			return writeJSON(c.App.Writer, d)
		}
		lockDiffText(c.App.Writer, d)
		return nil
	}
	if o.check {
		return o.checkLock(c, w, targets)
	}
	if o.update {
		if err := w.Forget(targets); err != nil {
			return err
		}
	}
	rep, err := w.LockTargets(c.Context, targets, driver.BuildOptions{Builders: o.addrs(), Buildkitd: o.buildkitd, Progress: o.progress, Limits: o.limits})
	if err != nil {
		return err
	}
	var kept driver.Kept
	if o.keep != "" {
		if kept, err = w.Keep(c.Context, targets, o.keep, o.limits); err != nil {
			return err
		}
		rep.Mirrors, rep.Images = kept.Rules, kept.Images
	}
	if o.form == "json" {
		err = writeJSON(c.App.Writer, rep)
	} else {
		for _, k := range rep.Resolved {
			fmt.Fprintf(c.App.Writer, "resolved    %s\n", k)
		}
		for _, k := range slices.Sorted(maps.Keys(rep.Unresolved)) {
			fmt.Fprintf(c.App.Writer, "unresolved  %s: %s\n", k, rep.Unresolved[k])
		}
		fmt.Fprintf(c.App.Writer, "%s: %d resolved, %d unresolved\n", w.LockPath, len(rep.Resolved), len(rep.Unresolved))
		if o.keep != "" {
			fmt.Fprintf(c.App.Writer, "%s: %d packages, %d other downloads; to build from them: --mirror %s\n", o.keep, kept.Packages, kept.Downloads, strings.Join(rep.Mirrors, " --mirror "))
			for _, image := range rep.Images {
				fmt.Fprintf(c.App.Writer, "not in it, but in a registry: %s\n", image)
			}
		}
	}
	if err == nil && len(rep.Unresolved) > 0 {
		return exit.With(exit.Fail, nil)
	}
	return err
}

func (o *lockFlags) checkLock(c *cli.Context, w *driver.Workspace, targets []matrix.Target) error {
	stale, err := w.Stale()
	if err != nil {
		return err
	}
	need, err := w.Unlocked(targets, nil)
	if err != nil {
		return err
	}
	for _, k := range stale {
		fmt.Fprintf(c.App.ErrWriter, "assay: %s is in the lock but no target needs it; \"assay lock\" drops it\n", k)
	}
	if len(need) > 0 {
		return exit.With(exit.Fail, driver.NotLockedError(w.LockPath, need))
	}
	if len(stale) > 0 {
		return exit.With(exit.Fail, nil)
	}
	fmt.Fprintf(c.App.Writer, "%s pins everything that %d targets need\n", w.LockPath, len(targets))
	return nil
}

// lockDiffText prints the changes. Those that the same targets need are below one heading.
func lockDiffText(out io.Writer, d driver.LockDiff) {
	if len(d.Changes) == 0 {
		fmt.Fprintln(out, "the locks pin the same")
		return
	}
	groups := map[string][]driver.LockChange{}
	var order []string
	for _, c := range d.Changes {
		key := cmp.Or(strings.Join(c.Targets, " "), "needed by no target any longer")
		if groups[key] == nil {
			order = append(order, key)
		}
		groups[key] = append(groups[key], c)
	}
	for _, key := range order {
		fmt.Fprintf(out, "%s\n", key)
		for _, c := range groups[key] {
			lockChangeText(out, c.Change)
		}
	}
}

func lockChangeText(out io.Writer, c lock.Change) {
	note := ""
	switch {
	case c.Added:
		note = ", new"
	case c.Removed:
		note = ", removed"
	case c.Kind == "debs" && len(c.Packages) == 0:
		note = ": what is asked for differs, the packages do not"
	}
	if c.Kind != "debs" {
		fmt.Fprintf(out, "  %s %s: %s -> %s%s\n", c.Kind, c.Key, shortDigest(c.Old), shortDigest(c.New), note)
		return
	}
	fmt.Fprintf(out, "  packages %s%s\n", c.Key, note)
	for _, p := range c.Packages {
		name := p.Name + ":" + p.Arch
		switch {
		case p.Old == "":
			fmt.Fprintf(out, "    %s %s, new\n", name, p.New)
		case p.New == "":
			fmt.Fprintf(out, "    %s %s, removed\n", name, p.Old)
		case p.Old == p.New:
			fmt.Fprintf(out, "    %s %s, other content\n", name, p.New)
		default:
			fmt.Fprintf(out, "    %s %s -> %s\n", name, p.Old, p.New)
		}
	}
}

// shortDigest shortens a digest to what tells two of them apart.
func shortDigest(d string) string {
	if d == "" {
		return "none"
	}
	return d[:min(len(d), len("sha256:")+12)]
}
