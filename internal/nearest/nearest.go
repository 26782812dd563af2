// Package nearest finds what somebody who mistyped a name probably meant.
package nearest

// To returns the name that takes the fewest edits to get to from s; the first
// one of equals, "" where there are none.
func To(s string, names []string) string {
	best, least := "", -1
	for _, n := range names {
		if d := Distance(s, n); least < 0 || d < least {
			best, least = n, d
		}
	}
	return best
}

// Distance counts insertions, deletions and substitutions of bytes
// (Levenshtein's distance).
func Distance(a, b string) int {
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
