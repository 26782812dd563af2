package suite

import (
	"fmt"
	"path"
	"slices"

	"github.com/assay-hpc/assay/internal/words"
)

// A Selection says which checks are wanted, by patterns of their ids: those that Only covers, or
// all if it is empty, without those that Skip covers.
type Selection struct{ Only, Skip []string }

// Wants reports whether a check is wanted.
func (s Selection) Wants(id string) bool {
	wanted, _ := s.Select(Check{ID: id})
	return wanted
}

// Select is Options.Select.
func (s Selection) Select(c Check) (wanted bool, reason string) {
	switch {
	case CoversAny(s.Skip, c.ID):
		return false, "left out by --skip"
	case len(s.Only) > 0 && !CoversAny(s.Only, c.ID):
		return false, "left out by --only"
	}
	return true, ""
}

// Match refuses a pattern that matches no check: otherwise a typo would silently select the wrong
// checks.
func (s Selection) Match(ids []string) error {
	for _, p := range slices.Concat(s.Only, s.Skip) {
		if !slices.ContainsFunc(ids, func(id string) bool { return Covers(p, id) }) {
			return fmt.Errorf("no check matches %q; the nearest is %q", p, words.Nearest(p, ids))
		}
	}
	return nil
}

// CheckPatterns refuses what cannot be a pattern.
func CheckPatterns(patterns []string) error {
	for _, p := range patterns {
		if _, err := path.Match(p, ""); err != nil || p == "" {
			return fmt.Errorf("%q is not a pattern of check ids", p)
		}
	}
	return nil
}
