package main

import (
	"fmt"
	"maps"
	"slices"

	"github.com/urfave/cli/v2"

	"github.com/assay-hpc/assay/build/driver"
	"github.com/assay-hpc/assay/build/matrix"
	"github.com/assay-hpc/assay/internal/exit"
	"github.com/assay-hpc/assay/internal/grammar"
)

type lockFlags struct {
	common
	builderFlags
	check, update bool
	form          string
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
			grammar.Format(&o.form, "text", "json"),
		), o.builderFlags.flags()...),
		BashComplete: o.complete,
		Action:       func(c *cli.Context) error { return o.run(c) },
	}
}

func (o *lockFlags) run(c *cli.Context) error {
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
