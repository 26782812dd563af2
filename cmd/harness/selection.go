package main

import (
	"path"
	"slices"

	"github.com/assay-hpc/assay/harness/suite"
	"github.com/assay-hpc/assay/internal/exit"
	"github.com/assay-hpc/assay/internal/nearest"
)

func checkGlobs(patterns []string) error {
	for _, p := range patterns {
		if _, err := path.Match(p, ""); err != nil || p == "" {
			return exit.Usagef("%q is not a pattern of check ids (see certify --list)", p)
		}
	}
	return nil
}

// matchesAny refuses a pattern that matches no check: otherwise a typo would silently
// select the wrong checks.
func (o *certifyOptions) matchesAny(checks []suite.Check) error {
	var ids []string
	for _, c := range checks {
		ids = append(ids, c.ID)
	}
	for _, p := range slices.Concat(o.only, o.skip) {
		if !slices.ContainsFunc(ids, func(id string) bool { return suite.Covers(p, id) }) {
			return exit.Usagef("no check matches %q; the nearest is %q (see certify --list)", p, nearest.To(p, ids))
		}
	}
	return nil
}

// selected implements suite.Options.Select.
func (o *certifyOptions) selected(c suite.Check) (bool, string) {
	switch {
	case suite.CoversAny(o.skip, c.ID):
		return false, "left out by --skip"
	case len(o.only) > 0 && !suite.CoversAny(o.only, c.ID):
		return false, "left out by --only"
	}
	return true, ""
}

// deselected reports whether the flags left a check out.
func (o *certifyOptions) deselected(id string) bool {
	ok, _ := o.selected(suite.Check{ID: id})
	return !ok && id != baselineID // which is in no suite
}
