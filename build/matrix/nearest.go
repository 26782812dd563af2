package matrix

import (
	"fmt"
	"slices"
	"strings"
)

// nearest returns the candidate that takes the fewest edits to get to from s;
// the first one of equals, "" where there are none.
func nearest(s string, candidates []string) string {
	best, least := "", -1
	for _, c := range candidates {
		if d := editDistance(s, c); least < 0 || d < least {
			best, least = c, d
		}
	}
	return best
}

// editDistance counts insertions, deletions and substitutions of bytes.
func editDistance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			substitute := diagonal
			if a[i] != b[j] {
				substitute++
			}
			diagonal = row[j+1]
			row[j+1] = min(row[j]+1, row[j+1]+1, substitute)
		}
	}
	return row[len(b)]
}

// nearestVersion returns, of the candidates, the highest one below v, or the
// lowest one where all are above; "" where there are none.
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

// suggest is the remedy for a word that is not one of those allowed.
func suggest(what, s string, allowed []string) string {
	if len(allowed) == 0 {
		return "there is no " + what + " to choose from; remove it"
	}
	near := nearest(s, allowed)
	if editDistance(s, near)*2 > len(s) { // nothing alike: show what there is
		return fmt.Sprintf("the nearest %s is %q, of %s", what, near, strings.Join(allowed, ", "))
	}
	return fmt.Sprintf("the nearest %s is %q", what, near)
}
