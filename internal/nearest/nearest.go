// Package nearest finds the name that a user who mistyped it probably meant.
package nearest

// To returns the name with the fewest edits from s; the first one if several are equal, "" if there
// are no names.
func To(s string, names []string) string {
	best, least := "", -1
	for _, n := range names {
		if d := Distance(s, n); least < 0 || d < least {
			best, least = n, d
		}
	}
	return best
}

// Distance returns the number of insertions, deletions and substitutions of bytes (Levenshtein
// distance).
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
