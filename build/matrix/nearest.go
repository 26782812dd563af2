package matrix

import (
	"fmt"
	"slices"
	"strings"

	"github.com/assay-hpc/assay/internal/words"
)

// nearestVersion returns the highest candidate below v, or the lowest candidate if none is below;
// "" if there are no candidates.
func nearestVersion(v string, candidates []string) string {
	sorted := slices.SortedFunc(slices.Values(candidates), CompareVersions)
	best := ""
	for _, c := range sorted {
		if best == "" || CompareVersions(c, v) < 0 {
			best = c
		}
	}
	return best
}

// suggest returns the remedy for a word that is not one of those allowed.
func suggest(what, s string, allowed []string) string {
	if len(allowed) == 0 {
		return "there is no " + what + " to choose from; remove it"
	}
	near := words.Nearest(s, allowed)
	if words.Distance(s, near)*2 > len(s) { // nothing similar: list what is allowed
		return fmt.Sprintf("the nearest %s is %q, of %s", what, near, strings.Join(allowed, ", "))
	}
	return fmt.Sprintf("the nearest %s is %q", what, near)
}
